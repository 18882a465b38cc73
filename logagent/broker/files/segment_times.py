"""The age of a partition dir's segments, by Kafka's rule for retention (`LogSegment.largestTimestamp`)."""

from __future__ import annotations

import os
import struct
from contextlib import suppress

from logagent.broker.files.segment_files import ENTRY_BYTES, LOG, TIME_INDEX, is_segment_file
from logagent.errors import UnreadableError
from logagent.files.limits import INDEX
from logagent.files.safe_open import opened_regular
from logagent.model.planning.topic_retention import SegmentAge

_TIME_INDEX_ENTRY = struct.Struct(">qi")


def segment_times(dir_fd: int) -> list[SegmentAge]:
    """The segments of the open partition dir, oldest first. The last one is the active one, which a broker rolls before
    it deletes it; without records it stays, and is left out. If it was not closed, it goes by its last write, which is
    no earlier than its records unless they are of the future. Raises OSError only if the disk fails."""
    bases = sorted(name[:20] for name in os.listdir(dir_fd) if is_segment_file(name, LOG))
    found: list[SegmentAge] = []
    for base in bases:
        with suppress(FileNotFoundError):
            log, active = os.stat(base + LOG, dir_fd=dir_fd, follow_symlinks=False), base == bases[-1]
            if log.st_size or not active:
                largest_ms = _largest(dir_fd, base) or log.st_mtime_ns // 1_000_000
                found.append(SegmentAge(log.st_blocks * 512, largest_ms, active))
    return found


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
