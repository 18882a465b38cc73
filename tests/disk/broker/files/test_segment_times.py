"""Which segments retention can delete, and by which time: `UnifiedLog.deletableSegments`, `LogSegment`."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from logagent.broker.files.segment_files import rebuilt_segment_times, segment_times
from logagent.model.planning.topic_retention import SegmentAge

WRITTEN_MS, LATEST_MS = 1_700_000_000_000, 1_600_000_000_000
ENTRY = struct.pack(">qi", LATEST_MS, 3)


def segment(path: Path, base: int, size: int, timeindex: bytes | None) -> int:
    """Its bytes on disk."""
    log = path / f"{base:020d}.log"
    log.write_bytes(b"r" * size)
    os.utime(log, (WRITTEN_MS / 1000, WRITTEN_MS / 1000))
    if timeindex is not None:
        (path / f"{base:020d}.timeindex").write_bytes(timeindex)
    return log.stat().st_blocks * 512


def times(path: Path) -> list[SegmentAge]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return segment_times(fd)
    finally:
        os.close(fd)


def test_the_active_segment_is_one_of_them(tmp_path: Path) -> None:
    """A broker rolls it and deletes it, once all the others go."""
    closed, active = segment(tmp_path, 0, 9000, ENTRY), segment(tmp_path, 10, 5000, ENTRY)
    assert times(tmp_path) == [SegmentAge(closed, LATEST_MS), SegmentAge(active, LATEST_MS, active=True)]


def test_an_active_segment_that_was_not_closed_goes_by_its_last_write(tmp_path: Path) -> None:
    """Its index, which is made long in advance, need not have the latest records."""
    size = segment(tmp_path, 0, 5000, ENTRY + bytes(12 * 100))
    assert times(tmp_path) == [SegmentAge(size, WRITTEN_MS, active=True)]


def test_an_active_segment_without_records_stays(tmp_path: Path) -> None:
    size = segment(tmp_path, 0, 5000, None)
    segment(tmp_path, 10, 0, b"")
    assert times(tmp_path) == [SegmentAge(size, WRITTEN_MS)]


def batch(largest_ms: int, payload: int = 100, magic: int = 2) -> bytes:
    header = struct.pack(">qiibIhiqqqhii", 0, 49 + payload, 0, magic, 0, 0, 0, 0, largest_ms, -1, -1, -1, 1)
    return header + b"r" * payload


@pytest.mark.parametrize(
    ("content", "index", "largest_ms"),
    [
        (batch(5) + batch(9, 9000) + batch(7), bytes(120), 9),  # not closed: in the order of arrival
        (batch(5) + batch(9)[:-1], None, 5),  # torn: a broker cuts it off
        (batch(5), ENTRY, LATEST_MS),  # closed
        (batch(-1), None, WRITTEN_MS),  # no timestamp
        (batch(9, magic=1), None, 0),  # not read: counts as old
    ],
)
def test_a_rebuilt_index_has_the_timestamps_of_the_batches_and_not_of_their_last_write(
    tmp_path: Path, content: bytes, index: bytes | None, largest_ms: int
) -> None:
    """Records that carry old timestamps were written a moment ago."""
    log = tmp_path / f"{0:020d}.log"
    segment(tmp_path, 0, 1, index)
    log.write_bytes(content)
    os.utime(log, (WRITTEN_MS / 1000, WRITTEN_MS / 1000))
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert [s.largest_ms for s in rebuilt_segment_times(fd)] == [largest_ms]
    finally:
        os.close(fd)
