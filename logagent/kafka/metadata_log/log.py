"""The assignments in the KRaft metadata log on this host's own disk, without using the network.

`read_metadata_log` replays the newest complete snapshot and the log after it, like `MetadataLoader` in a starting
broker. However the files were truncated or damaged, the result is the state after a prefix of the log that consists of
complete batches, or an `UnreadableError`; never anything in between. The image says which of its removals are not known
to be committed (`AssignmentImage.uncommitted`), and until when it knows the cluster (`known_until_ms`): that ends with
its newest committed record, because what the log lacks may have been taken from it (a volume that was rolled back).

What is read of the quorum (`quorum-state`, control records) only decides which records are committed
(`logagent.kafka.commitment`). So an unreadable `quorum-state` is not an error; it means "not known", which
holds back verdicts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from logagent.base.errors import NotUnderstood, UnreadableError
from logagent.base.files.safe_open import (
    LEADER_EPOCHS,
    QUORUM_STATE,
    SEGMENT,
    opened_directory,
    opened_regular,
    parse_json,
    read_regular,
)
from logagent.base.linux.kernel import without_garbage_collection
from logagent.kafka.commitment import (
    NO_HISTORY,
    BatchTimes,
    LogHistory,
    LogPoint,
    clock_ahead_ms,
    committed_offset,
    known_until_ms,
    settled_ms,
)
from logagent.kafka.image import AssignmentImage, BrokerRegistration, Source, make_image, untested_features
from logagent.kafka.metadata_log.batches import WINDOW, Batch, BatchDefect, BatchFile, FileShrank, position_before
from logagent.kafka.metadata_log.metadata_records import Reader
from logagent.kafka.metadata_log.replay import Replay


class ControlType(IntEnum):
    """The members of Kafka's `ControlRecordType` that occur in metadata logs."""

    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class QuorumState:
    """`quorum-state` of this node (`FileQuorumStateStore`); None for what the file does not say."""

    leader_id: int | None = None
    voters: int | None = None


def parse_quorum_state(text: bytes | None) -> QuorumState:
    """Parse versions 0 and 1 of the file; version 1 (dynamic quorums) has no voters. Anything else is ignored."""
    if text is None:
        return QuorumState()
    try:
        state = parse_json(text)
    except ValueError:
        return QuorumState()
    if not isinstance(state, dict) or state.get("data_version") not in (0, 1):
        return QuorumState()
    leader, voters = state.get("leaderId"), state.get("currentVoters")
    return QuorumState(
        leader_id=leader if isinstance(leader, int) else None,
        voters=len(voters) if isinstance(voters, list) and voters else None,
    )


def control_type(key: bytes | None) -> int:
    """The type of a control record from its key (version, type); `UnreadableError` if the key is malformed."""
    if key is None or len(key) != 4:
        raise UnreadableError("a control record has no proper key")
    return int.from_bytes(key[2:], "big", signed=True)


class ControlRecord(NamedTuple):
    """What a control record says. `time_ms`: `LastContainedLogTimestamp` of a snapshot's header, the time of the newest
    record that the snapshot covers. `voters`: id and directory id (None before KIP-853) of each. `level`: of
    `kraft.version`."""

    kind: ControlType
    time_ms: int | None = None
    voters: tuple[tuple[int, str | None], ...] = ()
    level: int | None = None


# The highest version of each that Kafka 4.4 writes (`ControlRecordUtils`).
_CONTROL_VERSIONS = {
    ControlType.LEADER_CHANGE: 1,
    ControlType.SNAPSHOT_HEADER: 0,
    ControlType.SNAPSHOT_FOOTER: 0,
    ControlType.KRAFT_VERSION: 0,
    ControlType.KRAFT_VOTERS: 0,
}


def read_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Raises `UnreadableError`; `NotUnderstood` for what is not known here: a type, version, tagged field, bytes left
    over."""
    number = control_type(key)
    if number not in _CONTROL_VERSIONS or key[:2] != b"\0\0":  # type: ignore[index]
        raise NotUnderstood(f"a control record is of the unknown type {number}")
    kind = ControlType(number)
    if value is None:
        raise UnreadableError(f"a control record ({kind.name}) is empty")
    reader = Reader(value)
    version, highest = reader.int16(), _CONTROL_VERSIONS[kind]
    if not 0 <= version <= highest:
        raise NotUnderstood(f"a control record ({kind.name}) has version {version}, known are 0 to {highest}")
    record = ControlRecord(kind)
    if kind is ControlType.SNAPSHOT_HEADER:
        record = ControlRecord(kind, time_ms=reader.int64())
    elif kind is ControlType.KRAFT_VERSION:
        record = ControlRecord(kind, level=reader.int16())
    elif kind is ControlType.KRAFT_VOTERS:
        record = ControlRecord(kind, voters=tuple([_registered_voter(reader) for _ in range(reader.length())]))
    elif kind is ControlType.LEADER_CHANGE:
        reader.int32()
        voters = tuple([_voter(reader, version) for _ in range(reader.length())])
        for _ in range(reader.length()):  # GrantingVoters
            _voter(reader, version)
        record = ControlRecord(kind, voters=voters)
    reader.tags()
    reader.finish()
    return record


def only_voter(value: bytes) -> tuple[int, str] | None:
    """Id and directory id of the only voter in a `KRaftVotersRecord`; None if there are several."""
    reader = Reader(value)
    reader.int16()
    return (reader.int32(), reader.uuid()) if reader.length() == 1 else None


def _voter(reader: Reader, version: int) -> tuple[int, str | None]:
    node_id = reader.int32()
    directory = reader.uuid() if version >= 1 else None
    reader.tags()
    return node_id, directory


def _registered_voter(reader: Reader) -> tuple[int, str | None]:
    node_id, directory = reader.int32(), reader.uuid()
    for _ in range(reader.length()):  # Endpoints
        reader.string()
        reader.string()
        reader.take(2)
        reader.tags()
    reader.take(4)  # KRaftVersionFeature
    reader.tags()
    reader.tags()
    return node_id, directory


@dataclass(slots=True)
class VoterCount:
    """The number of voters from several sources, the newest `KRaftVoters` record being the most reliable."""

    voters_record: int | None = None
    leader_change: int | None = None

    def see(self, record: ControlRecord) -> None:
        if record.kind is ControlType.KRAFT_VOTERS:
            self.voters_record = len(record.voters)
        elif record.kind is ControlType.LEADER_CHANGE:
            self.leader_change = len(record.voters)

    def number(self, quorum_state: QuorumState, configured: int | None) -> int | None:
        candidates = (self.voters_record, quorum_state.voters, self.leader_change, configured)
        return next((n for n in candidates if n), None)


@dataclass(slots=True)
class LogState:
    """The state gathered while reading a metadata log."""

    replay: Replay = field(default_factory=Replay)
    voters: VoterCount = field(default_factory=VoterCount)
    times: BatchTimes = field(default_factory=BatchTimes)
    snapshot: str | None = None
    snapshot_end: int = 0
    snapshot_epoch: int = 0
    snapshot_ms: int | None = None
    end: int = 0
    at_ms: int | None = None
    written_ms: int | None = None
    torn_bytes: int = 0
    remembered: LogPoint | None = None
    last_beneath: LogPoint | None = None
    left_out_at: int | None = None

    def control(self, record: ControlRecord) -> None:
        self.voters.see(record)
        if record.level is not None:
            self.replay.features["kraft.version"] = record.level

    def apply(self, batch: Batch) -> None:
        """Apply a batch of the log, or the part of it after the snapshot."""
        self.replay.time_ms = batch.time_ms
        for offset, key, value in batch.records():
            if offset < self.snapshot_end:
                continue
            if batch.control:
                self.control(read_control(key, value))
            else:
                self.replay.add(offset, value or b"")
        self.times.append(batch.next_offset, batch.time_ms, batch.epoch, batch.raw.crc)
        self.end, self.at_ms = batch.next_offset, batch.time_ms


@contextmanager
def open_file(dir_fd: int, name: str) -> Iterator[BatchFile]:
    with opened_regular(name, SEGMENT, dir_fd=dir_fd) as fd:
        yield BatchFile(fd, name)


def read_snapshot(dir_fd: int, name: str) -> LogState:
    """Replay one snapshot; `BatchDefect` or `UnreadableError` unless it is complete from header to footer."""
    end, epoch = int(name[:20]), int(name[21:31])
    state = LogState(snapshot=name, snapshot_end=end, snapshot_epoch=epoch, end=end)
    footer = False
    with open_file(dir_fd, name) as file:
        for batch in file.batches(0, 0):
            for offset, key, value in batch.records():
                if footer:
                    raise UnreadableError("records follow its footer")
                if not batch.control:
                    state.replay.add(offset, value or b"")
                    continue
                record = read_control(key, value)
                if (offset == 0) != (record.kind is ControlType.SNAPSHOT_HEADER):
                    raise UnreadableError("it does not begin with its header")
                if record.time_ms is not None:
                    state.at_ms = state.snapshot_ms = record.time_ms
                footer = record.kind is ControlType.SNAPSHOT_FOOTER
                state.control(record)
            if state.at_ms is None:
                raise UnreadableError("it does not begin with its header")
    if not footer:
        raise UnreadableError("it has no footer: it was not written completely")
    if state.replay.open_transaction:
        raise UnreadableError("it ends within a transaction")
    state.replay.removals.clear()
    if state.replay.resigns_since is not None:
        state.replay.resigns_since = 0  # a snapshot has its own offsets, and is older than everything after it
    return state


def read_segments(dir_fd: int, state: LogState, bases: list[int]) -> None:
    expected, epoch = (bases[0] if bases else 0), 0
    for base in bases:
        name = f"{base:020}.log"
        if base != expected:
            raise UnreadableError(f"{name}: the log before it ends at offset {expected}")
        with open_file(dir_fd, name) as file:
            try:
                expected, position = beginning(dir_fd, file, base, state.snapshot_end)
                for batch in file.batches(expected, epoch, position):
                    if batch.next_offset > state.snapshot_end and not _is_left_out(state, batch):
                        state.apply(batch)
                    expected, epoch = batch.next_offset, batch.epoch
            except BatchDefect as defect:
                if base != bases[-1]:
                    raise UnreadableError(f"{name}: byte {defect.position}: {defect}") from defect
                _accept_torn_tail(file, defect, expected)
                state.torn_bytes = max(state.torn_bytes, file.size - defect.position)
            except UnreadableError as error:
                raise type(error)(f"{name}: {error}", hint=error.hint) from error


def _is_left_out(state: LogState, batch: Batch) -> bool:
    """Whether a batch after the snapshot is of an older epoch. A node whose log ends in such an epoch begins anew at
    the snapshot (`KafkaRaftLog.truncateToLatestSnapshot`): the quorum never agreed on what follows. A log that is older
    first, and then goes on, is none that a node wrote."""
    if batch.epoch < state.snapshot_epoch:
        state.left_out_at = batch.base_offset if state.left_out_at is None else state.left_out_at
        state.torn_bytes = max(state.torn_bytes, 1)
        return True
    if state.left_out_at is not None:
        raise UnreadableError(
            f"offset {state.left_out_at} is of an epoch before that of the snapshot ({state.snapshot_epoch}), and the"
            f" log goes on in epoch {batch.epoch}"
        )
    return False


def beginning(dir_fd: int, file: BatchFile, base: int, offset: int) -> tuple[int, int]:
    """Offset and byte position of a batch in this segment, at or before `offset` and as close to it as is known."""
    position = position_before(dir_fd, base, offset) if file.size > WINDOW else 0
    begins_at = file.offset_at(position) if position else None
    return (begins_at, position) if begins_at is not None and base < begins_at <= offset else (base, 0)


def _accept_torn_tail(file: BatchFile, defect: BatchDefect, expected: int) -> None:
    later = file.batch_after(defect.position, expected)
    if later is not None:
        raise UnreadableError(
            f"byte {defect.position}: {defect}, but records go on at byte {later}: the file is damaged"
        )


def snapshots_of(names: Iterable[str]) -> list[str]:
    """The snapshots among the `names`, the newest last: by epoch, then by offset (`OffsetAndEpoch.compareTo`)."""
    found = (m for m in map(_SNAPSHOT.fullmatch, names) if m)
    return [m[0] for m in sorted(found, key=lambda m: (int(m[2]), int(m[1])))]


def batch_with(dir_fd: int, bases: list[int], end: int) -> LogPoint | None:
    """The batch with the record before the offset `end`; None if the segments do not have it any more."""
    base = max((base for base in bases if base < end), default=None)
    if base is None:
        return None
    with suppress(BatchDefect, UnreadableError), open_file(dir_fd, f"{base:020}.log") as file:
        begins_at, position = beginning(dir_fd, file, base, end - 1)
        for batch in file.batches(begins_at, 0, position):
            if batch.next_offset >= end:
                return LogPoint(batch.next_offset, batch.epoch, batch.raw.crc)
    return None


ATTEMPTS = 5
DEFAULT_FETCH_TIMEOUT_MS = 2_000
"""Kafka's default of `controller.quorum.fetch.timeout.ms`."""
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SEGMENT = re.compile(r"(\d{20})\.log")
_PRODUCER_SNAPSHOT = re.compile(r"(\d{20})\.snapshot")


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The content of the log. `delete_delays`: dynamic `log.segment.delete.delay.ms` by node id, "" for all nodes.
    `topic_configs`, `broker_configs`: of some settings (`replay.Replay`), by name, the value by topic or node id.

    `torn_bytes`: bytes at the end of the log that are not a complete batch and were ignored; at least 1 if the end is
    missing, or may be. `snapshot`: the file that was read first, None if that was the log. `history`: its
    batches, by which it is compared with an earlier reading (`assignments.lineage`).
    """

    assignments: AssignmentImage
    delete_delays: dict[str, int]
    topic_configs: dict[str, dict[str, str]]
    broker_configs: dict[str, dict[str, str]]
    snapshot: str | None
    voters: int | None
    committed_offset: int
    torn_bytes: int = 0
    history: LogHistory = NO_HISTORY

    @property
    def newest_committed(self) -> LogPoint | None:
        return self.history.newest(self.committed_offset)

    def delete_delay_ms(self, node_id: int) -> int | None:
        """The dynamic setting of this node, else that of all nodes; None if neither is set."""
        return self.delete_delays.get(str(node_id), self.delete_delays.get(""))


def read_metadata_log(
    directory: str | int,
    *,
    node_id: int | None,
    cluster_id: str | None,
    now_ms: int,
    configured_voters: int | None = None,
    fetch_timeout_ms: int = DEFAULT_FETCH_TIMEOUT_MS,
    booted_ms: int | None = None,
    remembered: int | None = None,
) -> MetadataImage:
    """Read `__cluster_metadata-0` (a path or a directory descriptor).

    `cluster_id` is that of the `meta.properties` beside it; `now_ms` is a time before the log is first read;
    `configured_voters` counts `controller.quorum.voters`. `booted_ms`: when this host started. A broker does not fsync
    this log, so one last written to before then may have lost its end, at the end of a batch too (seen on xfs).
    `remembered`: the end of a batch that the log had earlier, to be compared, although a snapshot may cover it by now.

    Works beside a live broker. Raises `UnreadableError` with the place and what is wrong; `OSError` for disk errors.
    """
    with without_garbage_collection():
        state, quorum, label = _read_unchanged(directory, booted_ms, remembered)
    at_ms, replay = _time_of(state, label), state.replay
    voters = state.voters.number(quorum, configured_voters)
    may_lead = node_id is None or quorum.leader_id is None or quorum.leader_id == node_id
    committed = _committed(state, voters, may_lead=may_lead, fetch_timeout_ms=fetch_timeout_ms)
    return MetadataImage(
        assignments=_image(state, at_ms, label, cluster_id, committed, now_ms),
        delete_delays=replay.delete_delays,
        topic_configs=replay.topic_configs,
        broker_configs=replay.broker_configs,
        snapshot=state.snapshot,
        voters=voters,
        committed_offset=committed,
        torn_bytes=state.torn_bytes,
        history=LogHistory(
            state.times, state.end, state.snapshot_end, state.snapshot_epoch, state.remembered, state.last_beneath
        ),
    )


def _committed(state: LogState, voters: int | None, *, may_lead: bool, fetch_timeout_ms: int) -> int:
    return committed_offset(
        state.times,
        snapshot_end=state.snapshot_end,
        log_end=state.end,
        voters=voters,
        may_lead=may_lead,
        resigns_since=state.replay.resigns_since,
        settled=settled_ms(fetch_timeout_ms),
    )


def _read_unchanged(
    directory: str | int, booted_ms: int | None, remembered: int | None
) -> tuple[LogState, QuorumState, str]:
    """The state, of a log that did not change while it was read (if files vanish, shrink or are replaced meanwhile,
    reading starts over); and what to call it."""
    opened = nullcontext(directory) if isinstance(directory, int) else opened_directory(directory, follow=True)
    with opened as dir_fd:
        label = directory if isinstance(directory, str) else os.readlink(f"/proc/self/fd/{dir_fd}")
        for _ in range(ATTEMPTS):
            before, names = _marks(dir_fd), sorted(os.listdir(dir_fd))
            try:
                state = _read_once(dir_fd, names, booted_ms, remembered)
            except (FileNotFoundError, FileShrank):
                continue
            except UnreadableError as error:
                if sorted(os.listdir(dir_fd)) != names:
                    continue
                raise type(error)(f"{label}: {error}", hint=error.hint) from error
            # When a follower truncates records that the quorum did not keep, its epoch changes too; then we may have
            # read a mixture of old and new records.
            if _marks(dir_fd) == before:
                return state, parse_quorum_state(before[1]), label
    raise UnreadableError(f"{label}: the metadata log kept changing during {ATTEMPTS} attempts to read it")


def _marks(dir_fd: int) -> tuple[bytes | None, bytes | None]:
    """The contents of `leader-epoch-checkpoint` and `quorum-state`; None for a missing file."""
    contents: list[bytes | None] = []
    for name, limit in (("leader-epoch-checkpoint", LEADER_EPOCHS), ("quorum-state", QUORUM_STATE)):
        try:
            contents.append(read_regular(name, limit, dir_fd=dir_fd))
        except FileNotFoundError:
            contents.append(None)
    return contents[0], contents[1]


def _read_once(dir_fd: int, names: list[str], booted_ms: int | None, remembered: int | None) -> LogState:
    segments = sorted(int(m[1]) for m in map(_SEGMENT.fullmatch, names) if m)
    snapshots = snapshots_of(names)
    if not segments and not snapshots:
        raise UnreadableError("there is neither a log nor a snapshot of it")
    state, refused = LogState(), list[str]()
    for name in reversed(snapshots):
        try:
            state = read_snapshot(dir_fd, name)
            break
        except (UnreadableError, BatchDefect) as error:
            # What is not understood is complete: an older snapshot, and the log, would only leave it out.
            if isinstance(error, FileShrank):
                raise
            if isinstance(error, NotUnderstood):
                raise NotUnderstood(f"{name}: {error}", hint=error.hint) from error
            refused.append(f"{name}: {error}")
    start = max((base for base in segments if base <= state.snapshot_end), default=None)
    if start is None and segments:
        why = f" ({'; '.join(refused)})" if refused else ""
        raise UnreadableError(
            f"the log begins at offset {segments[0]} and no complete snapshot covers the records before it{why}"
        )
    if start is None and state.snapshot is None:
        raise UnreadableError(f"no snapshot is complete and there is no log: {'; '.join(refused)}")
    needed = [base for base in segments if start is not None and base >= start]
    read_segments(dir_fd, state, needed)
    ends_in = max(state.snapshot_epoch, state.times.last_epoch or 0)
    if refused and int(snapshots[-1][21:31]) > ends_in:
        raise UnreadableError(f"the log ends in epoch {ends_in}, before that of the snapshot {refused[0]}")
    if remembered is not None and remembered <= state.snapshot_end:
        state.remembered = batch_with(dir_fd, segments, remembered)
    state.last_beneath = batch_with(dir_fd, segments, state.snapshot_end)
    # A producer snapshot is named after the end of the log at that time, so the log was longer once.
    longest = max((int(m[1]) for m in map(_PRODUCER_SNAPSHOT.fullmatch, names) if m), default=0)
    state.written_ms = _written_ms(dir_fd, names)
    if longest > state.end or (booted_ms is not None and (state.written_ms or 0) < booted_ms):
        state.torn_bytes = max(state.torn_bytes, 1)
    return state


def _written_ms(dir_fd: int, names: list[str]) -> int | None:
    """When the newest segment was last written to; None if there is none."""
    newest = max((name for name in names if _SEGMENT.fullmatch(name)), default=None)
    return os.lstat(newest, dir_fd=dir_fd).st_mtime_ns // 1_000_000 if newest is not None else None


def _time_of(state: LogState, label: str) -> int:
    """The time of its newest record. Raises UnreadableError for a log that must not be used."""
    if state.at_ms is None or (state.snapshot is None and not state.times.times):
        raise UnreadableError(f"{label}: the metadata log is empty")
    if state.replay.zk_migration:
        raise UnreadableError(
            f"{label}: a migration from ZooKeeper is under way, so the log may not have every topic yet",
            hint="use the Admin API as the source of assignments until it is finished",
        )
    return state.at_ms


def _image(
    state: LogState, at_ms: int, label: str, cluster_id: str | None, committed: int, now_ms: int
) -> AssignmentImage:
    return make_image(
        state.replay.topics.values(),
        AssignmentImage(
            source=Source.KRAFT_LOG,
            cluster_id=cluster_id,
            at_ms=at_ms,
            known_until_ms=known_until_ms(
                state.times,
                committed=committed,
                snapshot_ms=state.snapshot_ms,
                written_ms=state.written_ms,
                now_ms=now_ms,
                torn=state.torn_bytes > 0,
            ),
            complete=True,
            open_transaction=state.replay.open_transaction,
            leader_epoch=state.times.last_epoch,
            offset=state.end,
            metadata_version=state.replay.metadata_version,
            earlier_metadata_version=state.replay.earlier_metadata_version,
            untested=untested_features(state.replay.features),
            brokers=_by_our_clock(state.replay.brokers, clock_ahead_ms(state.times, state.written_ms)),
            uncommitted=frozenset(what for what, at in state.replay.removals.items() if at >= committed),
            origin=label,
            gone_ids=frozenset(what for what in state.replay.removals if isinstance(what, str)),
        ),
    )


def _by_our_clock(brokers: dict[int, BrokerRegistration], ahead_ms: int) -> dict[int, BrokerRegistration]:
    def ours(at_ms: int | None) -> int | None:
        return None if at_ms is None else at_ms - ahead_ms

    return {
        node_id: b._replace(registered_ms=ours(b.registered_ms), unfenced_ms=ours(b.unfenced_ms))
        for node_id, b in brokers.items()
    }
