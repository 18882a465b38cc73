"""The age of a partition dir's segments, by Kafka's rule for retention (`LogSegment.largestTimestamp`)."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

from logagent.broker.files.segment_files import ENTRY_BYTES, LOG, TIME_INDEX, is_segment_file
from logagent.errors import UnreadableError
from logagent.files.safe_open import INDEX, SEGMENT, opened_regular
from logagent.model.planning.topic_retention import SegmentAge

_TIME_INDEX_ENTRY = struct.Struct(">qi")
# `DefaultRecordBatch`: length, magic and largest timestamp, of a header of 61 bytes.
_BATCH = struct.Struct(">8xi4xb18xq")
_BATCH_HEADER_BYTES = 61
_LENGTH_FROM = 12
_WINDOW = 1 << 12


def segment_times(dir_fd: int) -> list[SegmentAge]:
    """The segments of the open partition dir, oldest first. The last one is the active one, which a broker rolls before
    it deletes it; without records it stays, and is left out. If it was not closed, it goes by its last write, which is
    no earlier than its records unless they are of the future. Raises OSError only if the disk fails."""
    return list(_ages(dir_fd, lambda base: _largest(dir_fd, base)))


def rebuilt_segment_times(dir_fd: int) -> Iterator[SegmentAge]:
    """The same as a broker finds them that rebuilds the indexes that were not closed: by the batches there
    (`LogSegment.recover`), which may be much older than their last write. Each is read when it is asked for."""
    return _ages(dir_fd, lambda base: _largest(dir_fd, base) or _largest_in_batches(dir_fd, base))


def _ages(dir_fd: int, largest: Callable[[str], int | None]) -> Iterator[SegmentAge]:
    bases = sorted(name[:20] for name in os.listdir(dir_fd) if is_segment_file(name, LOG))
    for base in bases:
        with suppress(FileNotFoundError):
            log, active = os.stat(base + LOG, dir_fd=dir_fd, follow_symlinks=False), base == bases[-1]
            if log.st_size or not active:
                largest_ms = largest(base)
                if largest_ms is None:
                    largest_ms = log.st_mtime_ns // 1_000_000
                yield SegmentAge(log.st_blocks * 512, largest_ms, active)


def _largest(dir_fd: int, base: str) -> int | None:
    """The timestamp in the last entry of the time index; None if there is none: then Kafka uses the last write. (An
    index that was not closed ends in zeros.)"""
    entry = ENTRY_BYTES[TIME_INDEX]
    try:
        with opened_regular(base + TIME_INDEX, INDEX, dir_fd=dir_fd) as fd:
            size = os.fstat(fd).st_size
            if size < entry or size % entry:
                return None
            timestamp, _ = _TIME_INDEX_ENTRY.unpack(os.pread(fd, entry, size - entry))
    except (UnreadableError, FileNotFoundError, PermissionError, struct.error):
        return None
    return int(timestamp) if timestamp > 0 else None


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
    window, window_at, position = b"", 0, 0
    while position + _BATCH_HEADER_BYTES <= size:
        if position + _BATCH_HEADER_BYTES > window_at + len(window):
            window, window_at = os.pread(fd, _WINDOW, position), position
        length, magic, largest = _BATCH.unpack_from(window, position - window_at)
        end = position + _LENGTH_FROM + length
        if length < _BATCH_HEADER_BYTES - _LENGTH_FROM or end > size:
            return
        yield largest if magic == 2 else 0
        position = end
