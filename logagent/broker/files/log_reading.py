"""Whether every batch of a part of a log is sound: read from its first byte on, with every checksum.

`log_look` tells where a log ends, from the last batch of each segment. Zeros, a batch that decayed and a sector that
cannot be read do not show there, so before records go because this log has them too, it is read.
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
from logagent.files.limits import SEGMENT
from logagent.files.safe_open import opened_regular


@dataclass(frozen=True, slots=True)
class SegmentReading:
    """What a segment had when it was read: `sound_to` is the offset after its last sound batch; `whole`: it was read
    to its end; `problem`: what is wrong, and at which byte. `is_last`: it was the newest segment of its log."""

    stamp: tuple[int, int, int]
    sound_to: int
    whole: bool
    problem: str | None = None
    is_last: bool = False

    def holds(self, found: os.stat_result, end: int, *, is_last: bool) -> bool:
        """Whether it still tells about the offsets below `end` of the file `found`. A broker changes only the last
        segment, by appending: what was read of that stays."""
        if is_last and self.is_last and self.problem is None:
            return self.sound_to >= end and found.st_size >= self.stamp[0]
        return _stamp(found) == self.stamp and (self.whole or self.problem is not None)


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
    dir_fd: int, first: int, end: int, known: SegmentReadings, most: float, stop: Callable[[], bool]
) -> LogReading:
    """Read the segments with offsets from `first` to `end` in the open partition dir `dir_fd`, except those that are in
    `known` and have not changed since; adds what it reads.

    At most `most` bytes, in whole segments, and only until `stop()`. In memory is one batch at a time (64 MiB at most:
    a larger one is a defect). Raises OSError only if the disk fails outside these segments.
    """
    unread = read = 0
    for base, after in _segments(dir_fd, first, end):
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
        if segment.problem is not None:
            return LogReading(f"{name} {segment.problem}", unread, read)
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
    file = BatchFile(fd, "it")
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
            if after is None and reached >= end:
                return SegmentReading(stamp, reached, whole=False, is_last=True)
    except BatchDefect as defect:
        says = f"has no sound batch at byte {defect.position} of {file.size}: {defect}"
        return SegmentReading(stamp, reached, whole=False, problem=says)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        says = f"cannot be read after byte {position} of {file.size}: {error.strerror}"
        return SegmentReading(stamp, reached, whole=False, problem=says)
    ends_early = after is None and reached < end
    problem = f"ends at offset {reached}, below {end}" if ends_early else None
    return SegmentReading(stamp, reached, whole=True, problem=problem, is_last=after is None)


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns
