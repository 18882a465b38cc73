"""The segment files of one partition dir, as `LogSegment` names them: sizes, and whether their indexes are sound.

Before a directory gets its current name back, some index files are removed, so that Kafka rebuilds them. A broker that
loads a `-stray` dir extends the last segment's indexes to their preallocated length and never trims them again. Under
the current name, next to a clean-shutdown marker, no index is checked any more (`LogSegment.sanityCheck`): the last
entry of the time index reads as 0, and the next retention check deletes the segment, also on every follower. If an
`.index` is missing, Kafka recovers that segment: it rebuilds `.index`, `.timeindex`, `.txnindex`, producer state and
leader epochs. (A missing `.timeindex` alone is not rebuilt, and without its `.txnindex` a segment exposes aborted
transactions. So only `.index` files are removed; `.kafka_cleanshutdown` stays, because other partitions rely on it.)
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from logagent.base.dir_names import LEFTOVERS
from logagent.base.errors import UnreadableError
from logagent.base.files.safe_open import INDEX, SEGMENT, open_regular, open_seen, opened_regular
from logagent.kafka.retention.settings import LogSegment, SegmentAge

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
# Bytes of one entry: `OffsetIndex.ENTRY_SIZE`, `TimeIndex.ENTRY_SIZE`.
ENTRY_BYTES: Final = {OFFSET_INDEX: 8, TIME_INDEX: 12}
# If one of these has no `.log`, a removal left it behind (Kafka and we remove the `.log` first).
_BELONGS_TO_A_LOG: Final = (OFFSET_INDEX, TIME_INDEX, ".txnindex")
# Kafka renames the files of a segment before it unlinks them, and a whole log from its first segment on.
_DELETED: Final = tuple(f"{suffix}.deleted" for suffix in (LOG, *_BELONGS_TO_A_LOG))
_DIGITS: Final = 20


class IndexFile(NamedTuple):
    """One index file. `sound`: its length is a multiple of its entry size, and its last entry is not all zeros.

    Kafka preallocates an index (10 MiB) and trims it when closing it properly, so zeros at the end show that it was not
    closed.
    """

    bytes: int
    sound: bool


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment, by its base offset (20 digits). A missing index is None."""

    base: str
    log_bytes: int
    index: IndexFile | None
    timeindex: IndexFile | None


@dataclass(frozen=True, slots=True)
class SegmentsRead:
    """The segments of a directory in order, the index files whose `.log` is missing, and the files below the first
    segment that a broker was about to unlink (`.deleted`)."""

    segments: tuple[Segment, ...]
    without_log: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


def is_segment_file(name: str, suffix: str) -> bool:
    """Whether `name` is 20 ASCII digits followed by `suffix`."""
    return name[_DIGITS:] == suffix and name[:_DIGITS].isdigit() and name.isascii()


def segment_bases(names: Iterable[str]) -> list[str]:
    """The base offsets (20 digits) of the segments that have a `.log` among `names`, in order."""
    return sorted(name[:_DIGITS] for name in names if is_segment_file(name, LOG))


def last_index_entry(dir_fd: int, name: str, layout: struct.Struct) -> tuple[int, ...] | None:
    """The last entry of an index file; None if it has none, is torn, or cannot be read. Raises OSError only if the
    disk fails."""
    try:
        fd = open_regular(name, INDEX, dir_fd=dir_fd)
        try:
            size = os.fstat(fd).st_size
            if size < layout.size or size % layout.size:
                return None
            return layout.unpack(os.pread(fd, layout.size, size - layout.size))
        finally:
            os.close(fd)
    except (UnreadableError, FileNotFoundError, PermissionError, struct.error):
        return None


def read_segment_files(dir_fd: int) -> SegmentsRead:
    """Inspect the segments in the open partition dir `dir_fd`.

    An index that is not a regular file is not sound. Raises OSError from the disk.
    """
    names = set(os.listdir(dir_fd))
    bases = segment_bases(names)
    segments = tuple(
        Segment(
            base,
            os.stat(base + LOG, dir_fd=dir_fd, follow_symlinks=False).st_size,
            _index(dir_fd, base, OFFSET_INDEX, names),
            _index(dir_fd, base, TIME_INDEX, names),
        )
        for base in bases
    )
    alone = sorted(
        n for n in names for s in _BELONGS_TO_A_LOG if is_segment_file(n, s) and n[:_DIGITS] + LOG not in names
    )
    first = bases[0] if bases else ""
    deleted = sorted(n for n in names for s in _DELETED if is_segment_file(n, s) and n[:_DIGITS] < first)
    return SegmentsRead(segments, tuple(alone), tuple(deleted))


def _index(dir_fd: int, base: str, suffix: str, names: set[str]) -> IndexFile | None:
    name, entry = base + suffix, ENTRY_BYTES[suffix]
    if name not in names:
        return None
    try:
        with opened_regular(name, INDEX, dir_fd=dir_fd) as fd:
            size = os.fstat(fd).st_size
            last = os.pread(fd, entry, max(size - entry, 0))
    except FileNotFoundError:
        return None
    except UnreadableError:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        return IndexFile(status.st_size if stat.S_ISREG(status.st_mode) else 0, sound=False)
    return IndexFile(size, sound=size % entry == 0 and (size == 0 or any(last)))


class Rebuild(NamedTuple):
    """`unlink`: the `.index` files to remove, by base offset. `bytes`: what the broker then reads from `.log` files."""

    unlink: tuple[str, ...]
    bytes: int


def indexes_to_rebuild(look: SegmentsRead, *, every_segment: bool) -> Rebuild:
    """The `.index` of the last segment and of each segment whose `.index` or `.timeindex` is missing or not sound; with
    `every_segment`, those of all segments.

    `every_segment` is for a directory that had a `-delete` name (each load of one empties its
    `leader-epoch-checkpoint`), and for one that may not have been closed cleanly before it was set aside: a later
    clean-shutdown marker would keep Kafka from recovering it.
    """
    chosen = [s for s in look.segments if every_segment or s is look.segments[-1] or not _sound(s)]
    return Rebuild(
        tuple(s.base + OFFSET_INDEX for s in chosen if s.index is not None), sum(s.log_bytes for s in chosen)
    )


def every_index(look: SegmentsRead) -> tuple[str, ...]:
    """The `.index` of every segment, and then the `.timeindex` of each: without its `.index` first, a broker would not
    rebuild it."""
    offset_indexes = [s.base + OFFSET_INDEX for s in look.segments if s.index is not None]
    return (*offset_indexes, *(s.base + TIME_INDEX for s in look.segments if s.timeindex is not None))


def _sound(segment: Segment) -> bool:
    return all(index is not None and index.sound for index in (segment.index, segment.timeindex))


_TIME_INDEX_ENTRY = struct.Struct(">qi")
# `DefaultRecordBatch`: base offset, length, magic, attributes, last offset delta, largest timestamp and producer id, of
# a header of 61 bytes.
_BATCH = struct.Struct(">qi4xb4xhi8xqq")
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_BATCH_HEADER_BYTES = 61
_LENGTH_FROM = 12
_WINDOW = 1 << 12


def rebuilt_segment_times(dir_fd: int) -> Iterator[SegmentAge]:
    """The segments of the open partition dir, oldest first, with their ages by Kafka's rule for retention
    (`LogSegment.largestTimestamp`), as a broker finds them that rebuilds the indexes that were not closed: by the
    batches there (`LogSegment.recover`), which may be much older than their last write. Each is read when it is asked
    for. The last one is the active one, which a broker rolls before it deletes it; without records it stays, and is
    left out. Raises OSError only if the disk fails."""
    bases = segment_bases(os.listdir(dir_fd))
    for base in bases:
        with suppress(FileNotFoundError):  # a broker has removed it meanwhile: it takes no space
            log, active = os.stat(base + LOG, dir_fd=dir_fd, follow_symlinks=False), base == bases[-1]
            if log.st_size or not active:
                largest_ms = _largest(dir_fd, base) or _largest_in_batches(dir_fd, base)
                if largest_ms is None:
                    largest_ms = log.st_mtime_ns // 1_000_000
                yield SegmentAge(log.st_blocks * 512, largest_ms, active)


def _largest(dir_fd: int, base: str) -> int | None:
    """The timestamp in the last entry of the time index; None if there is none: then Kafka uses the last write. (An
    index that was not closed ends in zeros.)"""
    timestamp, _ = last_index_entry(dir_fd, base + TIME_INDEX, _TIME_INDEX_ENTRY) or (0, 0)
    return timestamp if timestamp > 0 else None


def _largest_in_batches(dir_fd: int, base: str) -> int | None:
    """None if no record has a timestamp: then Kafka uses the last write. What cannot be read counts as old, and records
    in the formats before 2 (Kafka 0.11) too. What follows a torn batch does not count: a broker cuts it off."""
    try:
        with opened_regular(base + LOG, SEGMENT, dir_fd=dir_fd) as fd:
            largest = max(_timestamps(fd, os.fstat(fd).st_size), default=-1)
    except (UnreadableError, FileNotFoundError, PermissionError, struct.error):
        return 0
    return largest if largest >= 0 else None


def _timestamps(fd: int, size: int) -> Iterator[int]:
    """The largest timestamp of each whole batch."""
    return (batch.largest_ms if batch.magic == 2 else 0 for batch in _batches(fd, size, 0))


class _BatchHeader(NamedTuple):
    """Of one whole batch; `end`: the offset after its last record; `upto`: where in the file the next one begins."""

    base: int
    end: int
    magic: int
    largest_ms: int
    attributes: int
    producer: int
    upto: int


def _batches(fd: int, size: int, position: int) -> Iterator[_BatchHeader]:
    """The whole batches from `position` on."""
    window, window_at = b"", 0
    while position + _BATCH_HEADER_BYTES <= size:
        if not window_at <= position <= window_at + len(window) - _BATCH_HEADER_BYTES:
            window, window_at = os.pread(fd, _WINDOW, position), position
        base, length, magic, attributes, last, largest, producer = _BATCH.unpack_from(window, position - window_at)
        upto = position + _LENGTH_FROM + length
        if length < _BATCH_HEADER_BYTES - _LENGTH_FROM or upto > size:
            return
        yield _BatchHeader(base, base + last + 1, magic, largest, attributes, producer, upto)
        position = upto


# Enough for a segment of small batches without an index; a hostile one must not take for ever.
_MOST_BATCHES = 1_000_000
_SHORT = 1 << 14
_OFFSET_INDEX_ENTRY = struct.Struct(">ii")


@dataclass(slots=True)
class LogFiles:
    """Everything in a partition dir, with the allocated bytes of what belongs to no segment. `deleted`: files that a
    broker was about to unlink (`.deleted`, `.cleaned`), with `deleted_ms`, the newest change of one; `indexes`: those
    of the active segment, which are long in advance; `snapshots`: of producers, that a broker drops at its next start
    (`ProducerStateManager.removeStraySnapshots`); `others`: everything else, the directory itself included.
    `unopened`: how many segments, from the ninth on, have the timestamp of the one before. `unstable`: the first offset
    of the oldest transaction that is open; None also if none was looked for."""

    segments: list[LogSegment]
    deleted: int = 0
    deleted_bytes: int = 0
    deleted_ms: int = 0
    indexes: int = 0
    indexes_bytes: int = 0
    snapshots: int = 0
    snapshots_bytes: int = 0
    others: int = 0
    others_bytes: int = 0
    unopened: int = 0
    unstable: int | None = None


# A segment's files, which go with it: its producer snapshot is named by its base offset too.
_SNAPSHOT: Final = ".snapshot"
_OF_SEGMENT: Final = frozenset({LOG, OFFSET_INDEX, TIME_INDEX, ".txnindex", _SNAPSHOT})
_INDEXES: Final = frozenset({OFFSET_INDEX, TIME_INDEX})


# Of a log with more segments than these at both ends, what lies between is not opened unless it is asked for.
EDGE: Final = 8


def read_log_files(
    dir_fd: int, *, edges_only: bool = False, first_batches: bool = False, transactions: bool = False
) -> LogFiles:
    """The open partition dir `dir_fd`, as `UnifiedLog.deleteOldSegments` finds its segments. Whatever is in it is never
    followed, and only segments, indexes and producer snapshots are opened. `edges_only`: the timestamps of the segments
    between the oldest and the newest 8 are taken to be those of the eighth. `first_batches`: closed segments have their
    `first_ms`, too. `transactions`: it is looked for an open one. Raises OSError only if the disk fails."""
    found = LogFiles([], others=os.fstat(dir_fd).st_blocks * 512)
    stats: dict[str, os.stat_result] = {}
    lstat = os.lstat
    for name in os.listdir(dir_fd):
        try:
            stats[name] = lstat(name, dir_fd=dir_fd)
        except FileNotFoundError:
            continue
    logs = [name for name, status in stats.items() if name.endswith(LOG) and stat.S_ISREG(status.st_mode)]
    bases = segment_bases(logs)
    active, of_segment = bases[-1] if bases else "", dict.fromkeys(bases, 0)
    without_segment = stray_snapshots(stats, of_segment, active)
    # Kept lean, as the inventory's loop is: a host may have a million of these files.
    for name, status in stats.items():
        base, suffix, size = name[:_DIGITS], name[_DIGITS:], status.st_blocks * 512
        if base in of_segment and suffix in _OF_SEGMENT and (base != active or suffix not in _INDEXES):
            of_segment[base] += size
        elif base == active and suffix in _INDEXES:
            found.indexes += size
            found.indexes_bytes += status.st_size
        elif name in without_segment:
            found.snapshots += size
            found.snapshots_bytes += status.st_size
        elif name.endswith(LEFTOVERS):
            found.deleted += size
            found.deleted_bytes += status.st_size
            found.deleted_ms = max(found.deleted_ms, status.st_ctime_ns // 1_000_000)
        else:
            found.others += size
            found.others_bytes += status.st_size if stat.S_ISREG(status.st_mode) else 0
    unopened = range(EDGE, len(bases) - EDGE) if edges_only else range(0)
    for i, base in enumerate(bases):
        log, index = stats[base + LOG], stats.get(base + TIME_INDEX)
        if i in unopened:
            between = found.segments[EDGE - 1].largest_ms
            written_ms = log.st_mtime_ns // 1_000_000
            segment = LogSegment(int(base), log.st_size, of_segment[base], between, written_ms=written_ms)
            found.segments.append(segment)
        else:
            segment = _segment(dir_fd, base, log, base != active, index, of_segment[base])
            if first_batches and segment.first_ms is None and (tail := _tail(dir_fd, base, log, first_only=True)):
                segment = segment._replace(first_ms=tail.first_ms)
            found.segments.append(segment)
    found.unopened = len(unopened)
    if transactions and bases:
        found.unstable = _first_unstable(dir_fd, stats, bases)
    return found


def stray_snapshots(names: Iterable[str], bases: Container[str], active: str) -> set[str]:
    """As `ProducerStateManager.removeStraySnapshots`: of those without a segment all but the newest, and that one, too,
    if it is below the last segment."""
    alone = sorted(n for n in names if is_segment_file(n, _SNAPSHOT) and n[:_DIGITS] not in bases)
    return {n for n in alone if n != alone[-1] or n[:_DIGITS] < active}


# `ProducerStateManager`: version, CRC, number of entries; of each the producer id and the first offset of its open
# transaction, -1 if it has none.
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">q30xq")
_MOST_PRODUCERS = 100_000


def _first_unstable(dir_fd: int, stats: Mapping[str, os.stat_result], bases: Sequence[str]) -> int | None:
    """The first offset of the oldest open transaction: those that are open in the newest producer snapshot, which was
    written when a segment began or the broker stopped, and what the batches since then began and ended."""
    snapshots = sorted(n for n in stats if is_segment_file(n, _SNAPSHOT) and n[:_DIGITS] >= bases[-1])
    if not snapshots and len(bases) > 1:
        return None
    known = int(snapshots[-1][:_DIGITS]) if snapshots else -1
    try:
        opened: dict[int, int] = {}
        if snapshots:
            fd = open_seen(snapshots[-1], stats[snapshots[-1]], INDEX, dir_fd=dir_fd)
            try:
                content = os.pread(fd, _SNAPSHOT_HEAD.size + _MOST_PRODUCERS * _SNAPSHOT_ENTRY.size, 0)
            finally:
                os.close(fd)
            # A torn one is a struct.error.
            entries = _SNAPSHOT_ENTRY.iter_unpack(content[_SNAPSHOT_HEAD.size :])
            opened = {producer: first for producer, first in entries if first >= 0}
        fd = open_seen(bases[-1] + LOG, stats[bases[-1] + LOG], SEGMENT, dir_fd=dir_fd)
        try:
            for batch in islice(_batches(fd, stats[bases[-1] + LOG].st_size, 0), _MOST_BATCHES):
                if batch.base < known or batch.magic != 2 or not batch.attributes & _TRANSACTIONAL:
                    continue
                if batch.attributes & _CONTROL:
                    opened.pop(batch.producer, None)
                else:
                    opened.setdefault(batch.producer, batch.base)
        finally:
            os.close(fd)
    except (UnreadableError, FileNotFoundError, PermissionError, struct.error):
        return None
    return min(opened.values(), default=None)


def _segment(
    dir_fd: int, base: str, log: os.stat_result, closed: bool, index: os.stat_result | None, allocated: int
) -> LogSegment:
    written_ms = log.st_mtime_ns // 1_000_000
    segment = LogSegment(int(base), log.st_size, allocated, None, not closed, written_ms=written_ms)
    largest: int | None = None
    if closed and index is not None:
        # A closed index without entries: no record has a timestamp.
        largest = written_ms if index.st_size == 0 else _last_time(dir_fd, base + TIME_INDEX, index)
    if largest is not None or not log.st_size:
        return segment._replace(largest_ms=written_ms if largest is None else largest)
    tail = _tail(dir_fd, base, log)
    if tail is None:
        return segment
    largest_ms = tail.largest_ms if tail.largest_ms >= 0 else written_ms
    size = log.st_size if closed else tail.upto
    return segment._replace(
        bytes=size, largest_ms=largest_ms, first_ms=tail.first_ms, end=tail.end, indexed=tail.indexed
    )


class _Tail(NamedTuple):
    """`first_ms`: the timestamp of the first batch; `end`: the offset after the last; `largest_ms`: -1 if no record has
    a timestamp; `upto`: bytes that are written; `indexed`: of entries in the longer index, as far as it was read."""

    first_ms: int
    end: int
    largest_ms: int
    upto: int
    indexed: int = 0


def _last_time(dir_fd: int, name: str, seen: os.stat_result) -> int | None:
    """As `_largest`, of a time index that was just `lstat`ed."""
    entry, size = _TIME_INDEX_ENTRY, seen.st_size
    if size % entry.size:
        return None
    try:
        fd = open_seen(name, seen, INDEX, dir_fd=dir_fd)
        try:
            timestamp: int = entry.unpack(os.pread(fd, entry.size, size - entry.size))[0]
        finally:
            os.close(fd)
    except (UnreadableError, FileNotFoundError, PermissionError, struct.error):
        return None
    return timestamp if timestamp > 0 else None


def _tail(dir_fd: int, base: str, log: os.stat_result, *, first_only: bool = False) -> _Tail | None:
    """Of a segment whose time index may lack the newest records, its largest timestamp as
    `LogSegment.maxTimestampSoFar` has it in memory; None if it cannot be read. `first_only`: of its first batch.

    The entries of both indexes are added together (`LogSegment.append`): the last of the time index covers all batches
    before the position in the last of the offset index.
    """
    try:
        fd = open_seen(base + LOG, log, SEGMENT, dir_fd=dir_fd)
        try:
            return _tail_of(dir_fd, base, fd, log.st_size, first_only)
        finally:
            os.close(fd)
    except (UnreadableError, FileNotFoundError, PermissionError, struct.error):
        return None


def _tail_of(dir_fd: int, base: str, fd: int, size: int, first_only: bool) -> _Tail | None:
    batches = _batches(fd, size, 0)
    first = next(batches, None)
    if first is None:
        return None
    largest, end, known, upto, indexed_bytes = first.largest_ms, first.end, first.magic == 2, first.upto, 0
    if size > _SHORT and not first_only:  # a shorter one is read faster than its indexes
        indexed = _last_before_padding(dir_fd, base + OFFSET_INDEX, _OFFSET_INDEX_ENTRY)
        timed = _last_before_padding(dir_fd, base + TIME_INDEX, _TIME_INDEX_ENTRY)
        if indexed is not None and timed is not None and 0 <= indexed[0][1] < size:
            batches, largest = _batches(fd, size, indexed[0][1]), max(largest, timed[0][0])
            indexed_bytes = max(indexed[1], timed[1])
    for batch in islice(batches, 0 if first_only else _MOST_BATCHES):
        largest, end, known, upto = max(largest, batch.largest_ms), batch.end, known and batch.magic == 2, batch.upto
    return _Tail(first.largest_ms, end, largest, upto, indexed_bytes) if known else None


def _last_before_padding(dir_fd: int, name: str, layout: struct.Struct) -> tuple[tuple[int, ...], int] | None:
    """The last entry of an index file that is not all zeros, as it is preallocated, and where it ends; None if there is
    none, or it cannot be read."""
    try:
        with opened_regular(name, INDEX, dir_fd=dir_fd) as fd:
            low, high = 0, os.fstat(fd).st_size // layout.size
            while low < high:
                middle = (low + high) // 2
                if any(os.pread(fd, layout.size, middle * layout.size)):
                    low = middle + 1
                else:
                    high = middle
            last = os.pread(fd, layout.size, (low - 1) * layout.size) if low else None
            return (layout.unpack(last), low * layout.size) if last is not None else None
    except (UnreadableError, FileNotFoundError, PermissionError, struct.error):
        return None
