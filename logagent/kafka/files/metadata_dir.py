"""The files in a metadata log dir that a KRaft node reads when it starts: which of them Kafka cannot read, and which
levels of features they have.

Mirrors `FileQuorumStateStore`, `LeaderEpochCheckpointFile`, `PartitionMetadataFile`, `KafkaMetadataLog` and
`BootstrapDirectory`. A missing file is no fault, except for the snapshot that the log begins at.

The levels are those in the newest metadata snapshot, in the log after it, and in `bootstrap.checkpoint`. They are read
apart from `read_metadata_log`, because a log that is too new for verdicts, or damaged in what concerns topics, must
still say which releases can read it. Only records of features are decoded; of all other batches the header counts.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final

from logagent.base.dir_names import METADATA_DIR, PARTITION_METADATA
from logagent.base.errors import UnreadableError
from logagent.base.files import safe_open as limits
from logagent.base.files.safe_open import FileLimit, read_regular
from logagent.kafka.files.checkpoint_files import parse_epochs
from logagent.kafka.files.log_extent import LEADER_EPOCH_CHECKPOINT
from logagent.kafka.files.properties import META_PROPERTIES, parse_partition_metadata, read_meta_file
from logagent.kafka.files.segment_files import segment_bases
from logagent.kafka.identity import MetaRead
from logagent.kafka.image import BOOTSTRAP, KRAFT_VERSION, MetadataFault, MetadataFile, StartLevels
from logagent.kafka.metadata_log.batches import (
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    RECORD_OVERHEAD_V0,
    Batch,
    BatchDefect,
    BatchFile,
    FileShrank,
)
from logagent.kafka.metadata_log.log import (
    ATTEMPTS,
    ControlType,
    beginning,
    control_type,
    only_voter,
    open_file,
    snapshots_of,
)
from logagent.kafka.metadata_log.metadata_records import FeatureLevel, Reader, decode_record

QUORUM_STATE: Final = "quorum-state"
METADATA_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
_VOTERS = ControlType.KRAFT_VOTERS
_DATA_VERSIONS = (0, 1)
_ELECTION = ("leaderId", "leaderEpoch", "votedId")
# What a batch or record that cannot be read raises.
_BROKEN = (UnreadableError, BatchDefect, ValueError)


class _VotersError(UnreadableError):
    """The voters are others than the configured ones."""


class _DynamicError(UnreadableError):
    """Written where the voters of the quorum may change (KIP-853)."""


class _NoFooterError(UnreadableError):
    """A snapshot may end too early."""


class _FirstError(UnreadableError):
    """The snapshot at offset 0, which formatting wrote, ends too early."""


class _RefusedError(UnreadableError):
    """Kafka raises something else than an IOException, which every release dies of, or waits for ever."""


_OTHERWISE: Final[dict[type[Exception], MetadataFile]] = {
    _VotersError: MetadataFile.VOTERS,
    _DynamicError: MetadataFile.DYNAMIC,
    _NoFooterError: MetadataFile.SNAPSHOT_END,
    _FirstError: MetadataFile.FIRST_SNAPSHOT,
}


def metadata_faults(dir_fd: int, voters: Collection[int] = ()) -> tuple[MetadataFault, ...]:
    """What is wrong in the open metadata log dir `dir_fd`; `voters`: those of `controller.quorum.voters`. Raises
    OSError from the disk."""
    faults = [*_fault(MetadataFile.BOOTSTRAP, "", BOOTSTRAP, partial(_check_bootstrap, dir_fd))]
    meta = read_meta_file(dir_fd)
    try:
        log_fd = os.open(METADATA_DIR, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return tuple(faults)
    try:
        faults += [*_in_log(log_fd, voters), *_not_the_voter(log_fd, meta)]
    finally:
        os.close(log_fd)
    return tuple(faults)


def _in_log(log_fd: int, voters: Collection[int]) -> Iterator[MetadataFault]:
    checks: tuple[tuple[MetadataFile, str, FileLimit, Callable[[bytes], object]], ...] = (
        (MetadataFile.QUORUM_STATE, QUORUM_STATE, limits.QUORUM_STATE, partial(_check_quorum_state, voters)),
        (MetadataFile.EPOCHS, LEADER_EPOCH_CHECKPOINT, limits.LEADER_EPOCHS, parse_epochs),
        (MetadataFile.TOPIC_ID, PARTITION_METADATA, limits.PARTITION_METADATA, _check_topic_id),
    )
    for file, name, limit, check in checks:
        yield from _fault(file, METADATA_DIR, name, partial(_check_text, log_fd, name, limit, check))
    yield from _snapshot_faults(log_fd)


def _not_the_voter(log_fd: int, meta: MetaRead) -> Iterator[MetadataFault]:
    """The only voter of a dynamic quorum (KIP-853) is this node with another directory id: nobody is ever elected."""
    if meta.node_id is None or meta.directory_id is None:
        return
    names = os.listdir(log_fd)
    snapshots = snapshots_of(names)[-1:]
    segments = [f"{base}.log" for base in segment_bases(names)]
    # The log only where the snapshot speaks against this node: it can be long, and the voters are in every snapshot.
    for files in (snapshots, [*snapshots, *segments]):
        voter = _sole_voter(log_fd, files)
        if voter is None or voter[0] != meta.node_id or voter[1] == meta.directory_id:
            return
    assert voter is not None
    says = f"its directory.id is {meta.directory_id}, and the only voter is node {voter[0]} with {voter[1]}"
    yield MetadataFault(MetadataFile.DIRECTORY_ID, META_PROPERTIES, f"{META_PROPERTIES}: {says}")


def _sole_voter(log_fd: int, files: Sequence[str]) -> tuple[int, str] | None:
    """By the newest voters record in `files`; None if there are several voters, or the quorum is not dynamic."""
    found: bytes | None = None
    try:
        for name in files:
            is_snapshot = name.endswith(".checkpoint")
            with open_file(log_fd, name) as file:
                for batch in file.batches(0 if is_snapshot else int(name[:20]), 0):
                    if batch.control:
                        records = [value for _, key, value in batch.records() if control_type(key) == _VOTERS]
                        found = next(reversed(records), found)
                    elif is_snapshot:
                        break  # what is of the quorum comes first
        return only_voter(found) if found is not None else None
    except (*_BROKEN, OSError):
        return None


def _check_text(log_fd: int, name: str, limit: FileLimit, check: Callable[[bytes], object]) -> None:
    if stat.S_ISFIFO(os.stat(name, dir_fd=log_fd).st_mode):
        raise _RefusedError("it is a FIFO")  # Kafka waits for a writer: it raises nothing after which it begins anew
    check(read_regular(name, limit, dir_fd=log_fd, follow=True))


def _fault(
    file: MetadataFile, folder: str, name: str, check: Callable[[], object], *, spare: bool = True
) -> Iterator[MetadataFault]:
    try:
        check()
    except (FileNotFoundError, PermissionError):
        return
    except _BROKEN as error:
        path = f"{folder}/{name}" if folder else name
        file = _OTHERWISE.get(type(error), file)
        yield MetadataFault(file, path, f"{name}: {error}", isinstance(error, _RefusedError), spare)


def _check_quorum_state(voters: Collection[int], data: bytes) -> None:
    """`FileQuorumStateStore.readStateFromFile`: the first JSON value of the first line; `QuorumState.initialize`."""
    lines = data.splitlines()
    if not lines:
        raise UnreadableError("it is empty")
    try:
        state, _ = json.JSONDecoder().raw_decode(lines[0].decode().lstrip(" \t"))
    except (ValueError, RecursionError):
        raise UnreadableError("it is not JSON" if data.strip(b"\0") else "it has nothing but zeros") from None
    if not isinstance(state, dict) or "data_version" not in state:
        raise UnreadableError("it has no data_version")
    if state["data_version"] not in _DATA_VERSIONS:
        raise _RefusedError(f"its data_version is {state['data_version']}")
    for key in _ELECTION:
        if not isinstance(state.get(key), int):
            raise _RefusedError(f"it has no {key}")
    if state["data_version"] == 1:
        raise _DynamicError("its data_version is 1, that of a dynamic quorum")
    listed = state.get("currentVoters")
    ids = [v.get("voterId") for v in listed if isinstance(v, dict)] if isinstance(listed, list) else []
    known = {number for number in ids if isinstance(number, int)}
    if known and voters and known != set(voters):
        names = [", ".join(map(str, sorted(numbers))) for numbers in (known, voters)]
        raise _VotersError(f"its voters are {names[0]}, and controller.quorum.voters names {names[1]}")


def _check_topic_id(data: bytes) -> None:
    topic_id = parse_partition_metadata(data)
    if topic_id != METADATA_TOPIC_ID:
        raise UnreadableError(f"topic id {topic_id} is not that of the metadata log")


def _snapshot_faults(log_fd: int) -> Iterator[MetadataFault]:
    """The newest snapshot, which every start loads; the log cannot begin where there is none."""
    names = os.listdir(log_fd)
    snapshots = snapshots_of(names)
    for name in sorted(names):
        if name.endswith(".checkpoint") and name not in snapshots:
            says = f"{name}: its name is not a snapshot's"
            yield MetadataFault(MetadataFile.ODD_NAME, f"{METADATA_DIR}/{name}", says, True)
    bases = segment_bases(names)
    start = int(bases[0]) if bases else 0
    if start > 0 and not (snapshots and int(snapshots[-1][:20]) >= start):
        says = f"the log begins at offset {start}, and there is no snapshot of what was before"
        yield MetadataFault(MetadataFile.SNAPSHOT, METADATA_DIR, says, True, False)
    if snapshots:
        newest = snapshots[-1]
        if start == 0 and int(newest[:20]) > 0 and _is_not_there(log_fd, newest):
            says = f"{newest}: it is {limits.NOWHERE}"
            yield MetadataFault(MetadataFile.LOST_SNAPSHOT, f"{METADATA_DIR}/{newest}", says)
            return
        # With an older one, or the log from its very first record on, a start needs this one only to be quick. What is
        # at offset 0 is in no log: the first voters of a dynamic quorum.
        older = len(snapshots) > 1 and int(snapshots[-2][:20]) >= start
        spare = older or (start == 0 and int(newest[:20]) > 0)
        yield from _fault(
            MetadataFile.SNAPSHOT, METADATA_DIR, newest, partial(_check_snapshot, log_fd, newest), spare=spare
        )


def _is_not_there(dir_fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return True
    return False


def _check_snapshot(log_fd: int, name: str) -> None:
    try:
        _check_records(log_fd, name)
    except _NoFooterError as error:
        if int(name[:20]) == 0:
            raise _FirstError(str(error)) from None
        raise


def _check_records(log_fd: int, name: str) -> None:
    """`RecordsSnapshotReader`: every checksum is right. Kafka does not miss a batch that is not there, nor the footer,
    and loads the rest; what it lacks are topics."""
    last = None
    with open_file(log_fd, name) as file:
        try:
            for batch in file.batches(0, 0):
                if not batch.raw.validate_crc():
                    raise UnreadableError(f"byte {batch.position}: its checksum is wrong")
                last = batch
        except BatchDefect as defect:
            cut_off = _is_cut_off(file, defect.position)
            if cut_off and (_is_footer(file, defect.position) or int(name[:20]) == 0):
                raise _NoFooterError("its end is cut off: it was not written completely") from None
            raise
    if last is None:
        raise (_NoFooterError if int(name[:20]) == 0 else UnreadableError)("it is empty")
    kinds = [control_type(key) for _, key, _ in last.records()] if last.control else []
    if not kinds or kinds[-1] != ControlType.SNAPSHOT_FOOTER:
        raise _NoFooterError("it has no footer: it was not written completely")


def _check_bootstrap(dir_fd: int) -> None:
    """`BatchFileReader` (which compares no checksums), `BootstrapMetadata.fromRecords`: without a `metadata.version`
    in it, no node starts. Only its name is searched for: a later release may write others than we know."""
    has_version = False
    with open_file(dir_fd, BOOTSTRAP) as file:
        try:
            for batch in file.batches(0, 0):
                records = batch.raw.records() if not batch.control else ()
                has_version = any(b"metadata.version" in (value or b"") for _, _, value in records) or has_version
        except BatchDefect as defect:
            if not _is_cut_off(file, defect.position):
                raise
    if not has_version:
        raise UnreadableError("it has no metadata.version")


def _is_cut_off(file: BatchFile, position: int) -> bool:
    """Whether Kafka takes what is at `position` for the beginning of a batch whose rest is not there, which it passes
    over (`FileLogInputStream.nextBatch`)."""
    left = file.size - position
    if left <= HEADER_SIZE_UP_TO_MAGIC:
        return True
    length = int.from_bytes(file.bytes_at(position + 8, 4), "big", signed=True)
    return length >= RECORD_OVERHEAD_V0 and length + LOG_OVERHEAD > left


def _is_footer(file: BatchFile, position: int) -> bool:
    """Whether no records can be lost with the cut off batch at `position`: it is of control records."""
    attributes = file.bytes_at(position + 21, 2) if file.size >= position + 23 else b"\0\0"
    return bool(attributes[1] & 0x20)


_Levels = dict[str, tuple[int, ...]]
_SEGMENT = re.compile(r"(\d{20})\.log")
# Frame version 1, type 12, version 0 of a FeatureLevelRecord; no other version may ever be written (its schema).
_A_FEATURE = bytes((1, 12, 0))


def read_start_levels(dir_fd: int) -> StartLevels:
    """Of the open metadata log dir `dir_fd`; raises only OSError from the disk.

    A running broker changes the files, so they are listed again when one is gone.
    """
    bootstrap, unread = _of_bootstrap(dir_fd)
    levels = StartLevels(bootstrap=bootstrap, unread=unread)
    try:
        log_fd = os.open(METADATA_DIR, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    except FileNotFoundError:
        return levels._replace(empty=True)
    except (NotADirectoryError, PermissionError) as error:
        return levels._replace(unread=f"{METADATA_DIR}: {error.strerror}")
    try:
        for _ in range(ATTEMPTS):
            try:
                return _of_log(log_fd, levels)
            except (FileNotFoundError, FileShrank):
                continue
            except (UnreadableError, BatchDefect, PermissionError) as error:
                return levels._replace(unread=f"{METADATA_DIR}: {error}")
    finally:
        os.close(log_fd)
    return levels._replace(unread=f"{METADATA_DIR} kept changing during {ATTEMPTS} attempts to read it")


def _of_bootstrap(dir_fd: int) -> tuple[_Levels, str | None]:
    levels: _Levels = {}
    try:
        with open_file(dir_fd, BOOTSTRAP) as file:
            for batch in file.batches(0, 0):
                _add(levels, batch)
    except FileNotFoundError:
        pass
    except (UnreadableError, BatchDefect, PermissionError) as error:
        # One that no node can read is a finding of its own.
        return levels, f"{BOOTSTRAP}: {error}"
    return levels, None


def _of_log(log_fd: int, levels: StartLevels) -> StartLevels:
    names = os.listdir(log_fd)
    snapshot = next(reversed(snapshots_of(names)), None)
    end, epoch = (int(snapshot[:20]), int(snapshot[21:31])) if snapshot is not None else (0, 0)
    in_snapshot: _Levels = {}
    if snapshot is not None:
        with open_file(log_fd, snapshot) as file:
            for batch in file.batches(0, 0):
                _add(in_snapshot, batch)
    # What a format writes into a snapshot at offset 0 counts until it is in the log. Of a dynamic quorum it has the
    # first voters, and kraft.version, which are in no log.
    in_log = in_snapshot if end > 0 else {n: found for n, found in in_snapshot.items() if n == KRAFT_VERSION}
    empty = end == 0
    for batch in _batches_after(log_fd, sorted(m[1] for m in map(_SEGMENT.fullmatch, names) if m), end):
        if batch.epoch < epoch:
            continue  # a start throws it away (`KafkaRaftLog.truncateToLatestSnapshot`)
        empty = False
        _add(in_log, batch, end)
    formatted = in_snapshot if empty and in_snapshot != in_log else {}
    return levels._replace(log=in_log, formatted=formatted, empty=empty)


def _batches_after(log_fd: int, bases: list[str], end: int) -> Iterator[Batch]:
    # The last one that begins at or before `end` may hold what comes after it.
    needed = bases[max(sum(int(base) <= end for base in bases) - 1, 0) :]
    for base in needed:
        with open_file(log_fd, f"{base}.log") as file:
            first, position = beginning(log_fd, file, int(base), end)
            try:
                yield from (batch for batch in file.batches(first, 0, position) if batch.next_offset > end)
            except BatchDefect:
                if base != needed[-1]:
                    raise  # a torn end of the last segment is cut off by a start


def _add(levels: _Levels, batch: Batch, end: int = 0) -> None:
    if not batch.control and not batch.raw.holds(_A_FEATURE):
        return
    for offset, key, value in batch.records():
        if offset < end:
            continue
        if batch.control:
            if control_type(key) == ControlType.KRAFT_VERSION:
                _level(levels, KRAFT_VERSION, _kraft_version(value))
        elif value is not None and value.startswith(_A_FEATURE):
            record = decode_record(value)
            if isinstance(record, FeatureLevel):
                _level(levels, record.name, record.level)


def _level(levels: _Levels, name: str, level: int) -> None:
    """A level that comes again is the last one now."""
    levels[name] = (*(other for other in levels.get(name, ()) if other != level), level)


def _kraft_version(value: bytes | None) -> int:
    """`KRaftVersionRecord`: its own version, then the level."""
    if value is None:
        raise UnreadableError("a KRaftVersion record is empty")
    reader = Reader(value)
    reader.int16()
    return reader.int16()
