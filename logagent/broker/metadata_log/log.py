"""The assignments in the KRaft metadata log on this host's own disk, without using the network.

`read_metadata_log` replays the newest complete snapshot and the log after it, like `MetadataLoader` in a starting
broker. However the files were truncated or damaged, the result is the state after a prefix of the log that consists of
complete batches, or an `UnreadableError`; never anything in between. The image says which of its removals are not known
to be committed (`AssignmentImage.uncommitted`), and until when it knows the cluster (`known_until_ms`): that ends with
its newest committed record, because what the log lacks may have been taken from it (a volume that was rolled back).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from logagent.broker.metadata_log.batches import BatchDefect, FileShrank
from logagent.broker.metadata_log.quorum import QuorumState, parse_quorum_state
from logagent.broker.metadata_log.read import LogState, read_segments, read_snapshot
from logagent.errors import UnreadableError
from logagent.files.safe_open import LEADER_EPOCHS, QUORUM_STATE, read_regular
from logagent.model.assignments.commitment import clock_ahead_ms, committed_offset, known_until_ms, settled_ms
from logagent.model.assignments.image import AssignmentImage, BrokerRegistration, Source, make_image

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
    missing, or may be. `snapshot`: the file that
    reading began with, None if it began with the log.
    """

    assignments: AssignmentImage
    delete_delays: dict[str, int]
    topic_configs: dict[str, dict[str, str]]
    broker_configs: dict[str, dict[str, str]]
    snapshot: str | None
    voters: int | None
    committed_offset: int
    torn_bytes: int = 0

    def delete_delay_ms(self, node_id: int) -> int | None:
        """The dynamic setting of this node, else that of all nodes; None if neither is set."""
        return self.delete_delays.get(str(node_id), self.delete_delays.get(""))

    def broker_config(self, name: str, node_id: int) -> str | None:
        """The dynamic setting `name` of this node, else that of all nodes; None if neither is set."""
        values = self.broker_configs[name]
        return values.get(str(node_id), values.get(""))


def read_metadata_log(
    directory: str | int,
    *,
    node_id: int | None,
    cluster_id: str | None,
    now_ms: int,
    configured_voters: int | None = None,
    fetch_timeout_ms: int = DEFAULT_FETCH_TIMEOUT_MS,
    booted_ms: int | None = None,
) -> MetadataImage:
    """Read `__cluster_metadata-0` (a path or a directory descriptor).

    `cluster_id` is that of the `meta.properties` beside it, since the log itself has none; `now_ms` is a time before
    the first look at the log; `configured_voters` is the number of entries in `controller.quorum.voters`,
    `fetch_timeout_ms` is `controller.quorum.fetch.timeout.ms`. `booted_ms`: when this host started. A broker does
    not fsync this log, so one that was last written to before then may have lost its end, at the very end of a batch
    too (seen on xfs).

    Works beside a live broker: if files vanish, shrink or are replaced meanwhile, reading starts over.
    Raises `UnreadableError` with the place and what is wrong there; `OSError` only for disk errors.
    """
    with _opened(directory) as dir_fd:
        label = directory if isinstance(directory, str) else os.readlink(f"/proc/self/fd/{dir_fd}")
        for _ in range(ATTEMPTS):
            before, names = _marks(dir_fd), sorted(os.listdir(dir_fd))
            try:
                state = _read_once(dir_fd, names, booted_ms)
            except (FileNotFoundError, FileShrank):
                continue
            except UnreadableError as error:
                if sorted(os.listdir(dir_fd)) != names:
                    continue
                raise UnreadableError(f"{label}: {error}", hint=error.hint) from error
            # When a follower truncates records that the quorum did not keep, its epoch changes too; then we may have
            # read a mixture of old and new records.
            if _marks(dir_fd) == before:
                asked = _Asked(label, node_id, cluster_id, now_ms, configured_voters, fetch_timeout_ms)
                return _image(state, parse_quorum_state(before[1]), asked)
    raise UnreadableError(f"{label}: the metadata log kept changing during {ATTEMPTS} attempts to read it")


@contextmanager
def _opened(directory: str | int) -> Iterator[int]:
    if isinstance(directory, int):
        yield directory
        return
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _marks(dir_fd: int) -> tuple[bytes | None, bytes | None]:
    """The contents of `leader-epoch-checkpoint` and `quorum-state`; None for a missing file."""
    found: list[bytes | None] = []
    for name, limit in (("leader-epoch-checkpoint", LEADER_EPOCHS), ("quorum-state", QUORUM_STATE)):
        try:
            found.append(read_regular(name, limit, dir_fd=dir_fd))
        except FileNotFoundError:
            found.append(None)
    return found[0], found[1]


def _read_once(dir_fd: int, names: list[str], booted_ms: int | None) -> LogState:
    segments = sorted(int(m[1]) for m in map(_SEGMENT.fullmatch, names) if m)
    snapshots = sorted((m[0] for m in map(_SNAPSHOT.fullmatch, names) if m), reverse=True)
    if not segments and not snapshots:
        raise UnreadableError("there is neither a log nor a snapshot of it")
    state, refused = LogState(), list[str]()
    for name in snapshots:
        try:
            state = read_snapshot(dir_fd, name)
            break
        except (UnreadableError, BatchDefect) as error:
            if isinstance(error, FileShrank):
                raise
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


@dataclass(frozen=True, slots=True)
class _Asked:
    """The arguments of `read_metadata_log`."""

    label: str
    node_id: int | None
    cluster_id: str | None
    now_ms: int
    configured_voters: int | None
    fetch_timeout_ms: int


def _image(state: LogState, quorum: QuorumState, asked: _Asked) -> MetadataImage:
    label, node_id, now_ms = asked.label, asked.node_id, asked.now_ms
    if state.at_ms is None or (state.snapshot is None and not state.times.times):
        raise UnreadableError(f"{label}: the metadata log is empty")
    if state.replay.zk_migration:
        raise UnreadableError(
            f"{label}: a migration from ZooKeeper is under way, so the log may not have every topic yet",
            hint="use the Admin API as the source of assignments until it is finished",
        )
    voters = state.voters.number(quorum, asked.configured_voters)
    may_lead = node_id is None or quorum.leader_id is None or quorum.leader_id == node_id
    committed = committed_offset(
        state.times,
        snapshot_end=state.snapshot_end,
        log_end=state.end,
        voters=voters,
        may_lead=may_lead,
        resigns_since=state.replay.resigns_since,
        settled=settled_ms(asked.fetch_timeout_ms),
    )
    image = make_image(
        state.replay.topics.values(),
        source=Source.KRAFT_LOG,
        cluster_id=asked.cluster_id,
        at_ms=state.at_ms,
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
        offset=state.end,
        metadata_version=state.replay.metadata_version,
        brokers=_by_our_clock(state.replay.brokers, clock_ahead_ms(state.times, state.written_ms)),
        uncommitted=frozenset(what for what, at in state.replay.removals.items() if at >= committed),
        origin=label,
    )
    replay = state.replay
    return MetadataImage(
        assignments=image,
        delete_delays=replay.delete_delays,
        topic_configs=replay.topic_configs,
        broker_configs=replay.broker_configs,
        snapshot=state.snapshot,
        voters=voters,
        committed_offset=committed,
        torn_bytes=state.torn_bytes,
    )


def _by_our_clock(brokers: dict[int, BrokerRegistration], ahead_ms: int) -> dict[int, BrokerRegistration]:
    return {
        node_id: b if b.registered_ms is None else b._replace(registered_ms=b.registered_ms - ahead_ms)
        for node_id, b in brokers.items()
    }
