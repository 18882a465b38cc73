"""Where the log of a partition dir ends on disk, and its leader epochs: from its last segment and its checkpoint.

Kafka knows this for the logs it has loaded (`UnifiedLog.logEndOffset`, `LeaderEpochFileCache`); for a directory that no
broker serves under its name, we determine it from the files. Anything uncertain is left unknown, never guessed: a torn
tail, a last batch with a wrong checksum, records of the old formats, epochs that contradict the records.

Zeros, a batch that decayed, a sector that cannot be read, and batches of other epochs than the checkpoint's do not show
in its last batch. So before records go because this log has them too, it is read from its first byte on, with every
checksum.
"""

from __future__ import annotations

import errno
import itertools
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from logagent.base.dir_names import parse_int
from logagent.base.errors import UnreadableError
from logagent.base.files.safe_open import LEADER_EPOCHS, SEGMENT, opened_regular, read_regular
from logagent.kafka.extents import EpochRun, InCommon, LogExtent
from logagent.kafka.files.segment_files import LOG, OFFSET_INDEX, last_index_entry, segment_bases
from logagent.kafka.metadata_log.batches import BatchDefect, BatchFile, RecordBatch, position_before

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
SWAP = ".log.swap"

# `DefaultRecordBatch`: base offset, length, leader epoch, magic; later the last offset delta.
_HEAD = struct.Struct(">qiib")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_DELTA_AT = 23
_HEADER_BYTES = 61
_LENGTH_FROM = 12
_WINDOW = 1 << 16
_INDEX_ENTRY = struct.Struct(">ii")


def read_log_extent(dir_fd: int, *, whole: bool = False) -> LogExtent:
    """The log in the open partition dir `dir_fd`. `whole`: where every segment ends, not just the last one, so that
    `gaps` is known. Raises OSError only if the disk fails."""
    names = os.listdir(dir_fd)
    bases = segment_bases(names)
    if not bases:
        return LogExtent(None, None, problem="it has no segment")
    start = int(bases[0])
    swap = next((name for name in sorted(names) if name.endswith(SWAP)), None)
    if swap is not None:
        # Records may be in this file only; the broker completes the compaction at its next start
        # (`LogLoader.completeSwapOperations`).
        return LogExtent(
            start, None, problem=f"{swap} is left from an interrupted compaction", last_segment=int(bases[-1])
        )
    size = 0
    try:
        for base in bases:
            size += os.stat(base + LOG, dir_fd=dir_fd, follow_symlinks=False).st_size
        epochs = _epochs(dir_fd)
        end = _end_of(dir_fd, bases[-1])
        ends = [(_end_of(dir_fd, base).offset, int(after)) for base, after in itertools.pairwise(bases) if whole]
    except (UnreadableError, _UnknownEnd, FileNotFoundError, PermissionError) as error:
        return LogExtent(start, None, problem=str(error), last_segment=int(bases[-1]))
    if end.offset == start:
        return LogExtent(start, start, tuple(e for e in epochs if e[1] <= start))
    # An epoch that begins at the end has no records yet.
    epochs = tuple(e for e in epochs if e[1] < end.offset)
    if not epochs:
        return LogExtent(start, end.offset, problem=f"its {LEADER_EPOCH_CHECKPOINT} is missing or empty")
    if end.epoch is not None and epochs[-1][0] != end.epoch:
        problem = (
            f"its last record is of leader epoch {end.epoch}, its {LEADER_EPOCH_CHECKPOINT} ends with {epochs[-1][0]}"
        )
        return LogExtent(start, end.offset, problem=problem)
    gaps = tuple((end_there, after) for end_there, after in ends if end_there < after)
    return LogExtent(start, end.offset, epochs, log_bytes=size, gaps=gaps)


class _UnknownEnd(Exception):
    """The end is unknown; the message says why."""


@dataclass(frozen=True, slots=True)
class _End:
    """The offset after the last record, and that record's leader epoch (None for an empty segment)."""

    offset: int
    epoch: int | None


def parse_leader_epochs(data: bytes) -> tuple[tuple[int, int], ...]:
    """(epoch, start offset) as `LeaderEpochCheckpointFile` writes them, ascending; without epochs that start where the
    next one does, which brokers before 2.0 wrote and any later one drops (`LeaderEpochFileCache.assign`). Raises
    UnreadableError.

    Not `checkpoint_files.parse_epochs`, which says what a broker makes of any file, for twice the memory.
    """
    try:
        lines = data.decode("ascii").splitlines()
        if not lines:
            return ()
        if parse_int(lines[0]) != 0:
            raise ValueError(f"unrecognized version {lines[0]}")
        epochs = tuple((int(number), int(start)) for number, start in (line.split() for line in lines[2:]))
        if len(epochs) != parse_int(lines[1]):
            raise ValueError(f"{lines[1]} entries announced, {len(epochs)} found")
        if any(a[0] >= b[0] or a[1] > b[1] for a, b in itertools.pairwise(epochs)):
            raise ValueError("the entries do not ascend")
    except (ValueError, IndexError) as error:
        raise UnreadableError(f"{LEADER_EPOCH_CHECKPOINT} cannot be read: {error}") from None
    # Of such an epoch there is no record here, so it ends nowhere: another log may have some of it.
    return tuple(a for a, b in itertools.pairwise(epochs) if a[1] < b[1]) + epochs[-1:]


def _epochs(dir_fd: int) -> tuple[tuple[int, int], ...]:
    try:
        return parse_leader_epochs(read_regular(LEADER_EPOCH_CHECKPOINT, LEADER_EPOCHS, dir_fd=dir_fd))
    except FileNotFoundError:
        return ()


def _end_of(dir_fd: int, base: str) -> _End:
    with opened_regular(base + LOG, SEGMENT, dir_fd=dir_fd) as fd:
        size = os.fstat(fd).st_size
        if size == 0:
            return _End(int(base), None)
        hint = _last_indexed(dir_fd, base, size)
        try:
            position = _last_batch(fd, hint, size, int(base))
        except _UnknownEnd:
            if hint == 0:
                raise
            # The index was misleading: start from the beginning.
            position = _last_batch(fd, 0, size, int(base))
        batch = RecordBatch(_read(fd, position, size - position))
    if not batch.validate_crc():
        raise _UnknownEnd(f"the last batch of {base}{LOG} has a wrong checksum")
    return _End(batch.next_offset, batch.leader_epoch)


def _last_indexed(dir_fd: int, base: str, size: int) -> int:
    """Where, according to the index, a batch near the end of the `.log` begins; 0 if the index does not say."""
    _, position = last_index_entry(dir_fd, base + OFFSET_INDEX, _INDEX_ENTRY) or (0, 0)
    return position if 0 <= position < size else 0


def _last_batch(fd: int, position: int, size: int, base: int) -> int:
    """Where the last batch begins, found by walking the batches from `position`; raises _UnknownEnd unless it ends
    exactly at `size`."""
    window, window_at = b"", position
    previous, expected = position, base
    while position < size:
        if position + _HEADER_BYTES > window_at + len(window):
            window, window_at = os.pread(fd, _WINDOW, position), position
        at = position - window_at
        if len(window) - at < _HEADER_BYTES:
            raise _UnknownEnd(f"it ends in a torn batch (at byte {position} of {size})")
        first, length, _, magic = _HEAD.unpack_from(window, at)
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(window, at + _DELTA_AT)
        end = position + _LENGTH_FROM + length
        if magic != 2:
            raise _UnknownEnd(f"it has no batch of format 2 at byte {position} of {size}")
        if first < expected or delta < 0 or length < _HEADER_BYTES - _LENGTH_FROM or end > size:
            raise _UnknownEnd(f"it ends in a torn batch (at byte {position} of {size})")
        expected = first + delta + 1
        previous, position = position, end
    return previous


def _read(fd: int, position: int, count: int) -> bytes:
    data = bytearray()
    while len(data) < count and (piece := os.pread(fd, count - len(data), position + len(data))):
        data += piece
    if len(data) < count:
        raise _UnknownEnd("it became shorter while it was read")
    return bytes(data)


def checksum_of_batch(dir_fd: int, end: int) -> int | None:
    """The checksum of the batch that ends at the offset `end`, which is the same in every replica of its partition and
    hardly in any other; None if there is no such sound batch. Raises OSError only if the disk fails."""
    base = next((base for base in reversed(segment_bases(os.listdir(dir_fd))) if int(base) < end), None)
    if base is None:
        return None
    try:
        with opened_regular(base + LOG, SEGMENT, dir_fd=dir_fd) as fd:
            file, position = BatchFile(fd, "it"), position_before(dir_fd, int(base), end - 1)
            begins_at = file.offset_at(position) if position else None
            at = (int(base), 0) if begins_at is None or not int(base) <= begins_at < end else (begins_at, position)
            for batch in file.batches(at[0], -1, at[1], gaps=True):
                if batch.next_offset >= end:
                    return batch.raw.crc if batch.next_offset == end and batch.raw.validate_crc() else None
    except (BatchDefect, UnreadableError, FileNotFoundError, PermissionError):
        return None
    return None


@dataclass(frozen=True, slots=True)
class SegmentReading:
    """What a segment had when it was read: `sound_to` is the offset after its last sound batch; `whole`: it was read
    to its end; `problem`: what is wrong, and at which byte. `is_last`: it was the newest segment of its log. `epochs`:
    the leader epochs of its batches."""

    stamp: tuple[int, int, int]
    sound_to: int
    whole: bool
    problem: str | None = None
    is_last: bool = False
    epochs: tuple[EpochRun, ...] = ()

    def holds(self, status: os.stat_result, end: int, *, is_last: bool) -> bool:
        """Whether it is still true of the offsets below `end` of the file with this `status`. A broker changes only the
        last segment, by appending: what was read of that stays."""
        if is_last and self.is_last and self.problem is None:
            return self.sound_to >= end and status.st_size >= self.stamp[0]
        return _stamp(status) == self.stamp and (self.whole or self.problem is not None)


# A leader epoch is an election: a segment has few of them.
_MOST_EPOCHS = 10_000

# By device and inode of the segment.
SegmentReadings = dict[tuple[int, int], SegmentReading]


class LogReading(NamedTuple):
    """`defect`: what is wrong with the log, and where. `unread`: bytes of segments that were not read. `read`: bytes
    read now."""

    defect: str | None = None
    unread: int = 0
    read: int = 0

    @property
    def problem(self) -> str | None:
        if self.defect is None and self.unread:
            return f"not verified: {self.unread} bytes to read"
        return self.defect


def read_log_between(
    dir_fd: int, common: InCommon, known: SegmentReadings, most: float, stop: Callable[[], bool]
) -> LogReading:
    """Read the segments with offsets that are `common` in the open partition dir `dir_fd`, except those that are in
    `known` and have not changed since; adds what it reads.

    At most `most` bytes, in whole segments, and only until `stop()`. In memory is one batch at a time (64 MiB at most:
    a larger one is a defect). Raises OSError only if the disk fails outside these segments.
    """
    unread = read = 0
    end = common.end
    for base, after in _segments(dir_fd, common.first, end):
        name = base + LOG
        try:
            with opened_regular(name, SEGMENT, dir_fd=dir_fd) as fd:
                status = os.fstat(fd)
                segment = known.get((status.st_dev, status.st_ino))
                if segment is None or not segment.holds(status, end, is_last=after is None):
                    segment = None
                    if status.st_size <= most - read and not stop():
                        read += status.st_size
                        segment = _read_segment(fd, int(base), end, after, stop)
        except (UnreadableError, FileNotFoundError, PermissionError) as error:
            return LogReading(f"{name}: {error}", unread, read)
        if segment is None:
            unread += status.st_size
            continue
        known[status.st_dev, status.st_ino] = segment
        problem = segment.problem or common.contradiction(segment.epochs)
        if problem is not None:
            return LogReading(f"{name} {problem}", unread, read)
    return LogReading(None, unread, read)


def _segments(dir_fd: int, first: int, end: int) -> Iterator[tuple[str, int | None]]:
    """The base offset (20 digits) of each segment with offsets from `first` to `end`, and that of the next one."""
    bases = segment_bases(os.listdir(dir_fd))
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        after = int(following) if following is not None else None
        if int(base) < end and (after is None or after > first):
            yield base, after


def _read_segment(fd: int, base: int, end: int, after: int | None, stop: Callable[[], bool]) -> SegmentReading | None:
    """The last segment is read up to `end` only: a broker may be appending to it. None if stopped."""
    stamp, position, reached = _stamp(os.fstat(fd)), 0, base
    epochs: list[EpochRun] = []
    file = BatchFile(fd, "it")

    def reading(whole: bool, problem: str | None = None) -> SegmentReading:
        is_last = after is None and problem is None
        return SegmentReading(stamp, reached, whole, problem, is_last, tuple(epochs))

    try:
        for batch in file.batches(base, -1, gaps=True):
            if stop():
                return None
            position = batch.position
            if not batch.raw.validate_crc():
                raise BatchDefect(position, "its checksum is wrong")
            if after is not None and batch.next_offset > after:
                raise BatchDefect(position, f"it ends at offset {batch.next_offset}, above the next segment's first")
            reached = batch.next_offset
            if epochs and epochs[-1].epoch == batch.epoch:
                epochs[-1] = epochs[-1]._replace(end=reached)
            elif len(epochs) == _MOST_EPOCHS:
                raise BatchDefect(position, f"there are more than {_MOST_EPOCHS} leader epochs in one segment")
            else:
                epochs.append(EpochRun(batch.epoch, batch.base_offset, reached))
            if after is None and reached >= end:
                return reading(whole=False)
    except BatchDefect as defect:
        return reading(False, f"has no sound batch at byte {defect.position} of {file.size}: {defect}")
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return reading(False, f"cannot be read after byte {position} of {file.size}: {error.strerror}")
    ends_early = after is None and reached < end
    return reading(True, f"ends at offset {reached}, below {end}" if ends_early else None)


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns
