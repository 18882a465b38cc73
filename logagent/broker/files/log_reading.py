"""Whether every batch of a part of a log is sound: read from its first byte on, with every checksum.

`log_look` tells where a log ends, from the last batch of each segment, and its leader epochs, from their checkpoint.
Zeros, a batch that decayed, a sector that cannot be read, and batches of other epochs than the checkpoint's do not show
there, so before records go because this log has them too, it is read.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from logagent.broker.files.log_look import segment_bases
from logagent.broker.files.segment_files import LOG
from logagent.broker.metadata_log.batches import BatchDefect, BatchFile
from logagent.errors import UnreadableError
from logagent.files.safe_open import SEGMENT, opened_regular
from logagent.model.assignments.covered import EpochRun, InCommon


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

    def holds(self, found: os.stat_result, end: int, *, is_last: bool) -> bool:
        """Whether it still tells about the offsets below `end` of the file `found`. A broker changes only the last
        segment, by appending: what was read of that stays."""
        if is_last and self.is_last and self.problem is None:
            return self.sound_to >= end and found.st_size >= self.stamp[0]
        return _stamp(found) == self.stamp and (self.whole or self.problem is not None)


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
                found = os.fstat(fd)
                segment = known.get((found.st_dev, found.st_ino))
                if segment is None or not segment.holds(found, end, is_last=after is None):
                    segment = None
                    if found.st_size <= most - read and not stop():
                        read += found.st_size
                        segment = _read_segment(fd, int(base), end, after, stop)
        except (UnreadableError, FileNotFoundError, PermissionError) as error:
            return LogReading(f"{name}: {error}", unread, read)
        if segment is None:
            unread += found.st_size
            continue
        known[found.st_dev, found.st_ino] = segment
        problem = segment.problem or common.contradiction(segment.epochs)
        if problem is not None:
            return LogReading(f"{name} {problem}", unread, read)
    return LogReading(None, unread, read)


def _segments(dir_fd: int, first: int, end: int) -> Iterator[tuple[str, int | None]]:
    """The base offset (20 digits) of each segment with offsets from `first` to `end`, and that of the next one."""
    bases = segment_bases(dir_fd)
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


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns
