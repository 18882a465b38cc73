"""Which segments retention can delete, and by which time: `UnifiedLog.deletableSegments`, `LogSegment`."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from logagent.kafka.files.segment_files import LogFiles, read_log_files, rebuilt_segment_times
from logagent.kafka.retention.settings import SegmentAge

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
        return list(rebuilt_segment_times(fd))
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


def batch(
    largest_ms: int, payload: int = 100, magic: int = 2, *, base: int = 0, attributes: int = 0, producer: int = -1
) -> bytes:
    attributes_and_times = (attributes, 0, 0, largest_ms, producer, -1, -1, 1)
    return struct.pack(">qiibIhiqqqhii", base, 49 + payload, 0, magic, 0, *attributes_and_times) + b"r" * payload


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


def read(path: Path, **what: bool) -> LogFiles:
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_log_files(fd, **what)
    finally:
        os.close(fd)


def test_of_a_preallocated_segment_what_is_written_counts(tmp_path: Path) -> None:
    written = batch(5) + batch(9, 20_000)
    (tmp_path / f"{0:020d}.log").write_bytes(written + bytes(1 << 20))
    (found,) = read(tmp_path).segments
    assert (found.bytes, found.largest_ms, found.end) == (len(written), 9, 1)


def test_a_closed_segment_has_its_first_timestamp_if_that_is_asked_for(tmp_path: Path) -> None:
    segment(tmp_path, 0, 0, ENTRY)
    (tmp_path / f"{0:020d}.log").write_bytes(batch(7) + batch(9))
    segment(tmp_path, 10, 0, None)
    assert [s.first_ms for s in read(tmp_path).segments] == [None, None]
    assert [s.first_ms for s in read(tmp_path, first_batches=True).segments] == [7, None]


TRANSACTIONAL, MARKER = 0x10, 0x30


def producer_snapshot(path: Path, offset: int, opened: dict[int, int]) -> None:
    entries = (struct.pack(">qhiqiqiq", producer, 0, 1, 1, 0, 5, 0, first) for producer, first in opened.items())
    head = struct.pack(">hIi", 1, 0, len(opened))
    (path / f"{offset:020d}.snapshot").write_bytes(head + b"".join(entries))


@pytest.mark.parametrize(
    ("opened", "batches", "unstable"),
    [
        ({1: -1}, [], None),
        ({1: 3, 2: 5}, [], 3),
        ({1: 3, 2: 5}, [(1, MARKER)], 5),
        ({1: 3}, [(1, MARKER), (2, TRANSACTIONAL), (1, TRANSACTIONAL)], 11),
        ({}, [(7, 0)], None),
        ({}, [(7, TRANSACTIONAL), (7, TRANSACTIONAL)], 10),
    ],
)
def test_the_oldest_open_transaction_is_in_the_producer_snapshot_or_in_what_was_written_since(
    tmp_path: Path, opened: dict[int, int], batches: list[tuple[int, int]], unstable: int | None
) -> None:
    segment(tmp_path, 0, 100, ENTRY)
    producer_snapshot(tmp_path, 10, opened)
    written = (batch(5, base=10 + n, attributes=kind, producer=who) for n, (who, kind) in enumerate(batches))
    (tmp_path / f"{10:020d}.log").write_bytes(b"".join(written))
    assert read(tmp_path, transactions=True).unstable == unstable
    assert read(tmp_path).unstable is None


def test_what_a_later_snapshot_knows_is_not_read_again(tmp_path: Path) -> None:
    """That of a clean stop: the transaction below it ended in another file, or in none that is here."""
    written = batch(5, base=0, attributes=TRANSACTIONAL, producer=1)
    (tmp_path / f"{0:020d}.log").write_bytes(written)
    assert read(tmp_path, transactions=True).unstable == 0
    producer_snapshot(tmp_path, 1, {1: -1})
    assert read(tmp_path, transactions=True).unstable is None
    (tmp_path / f"{1:020d}.snapshot").write_bytes(b"torn")
    assert read(tmp_path, transactions=True).unstable is None


@pytest.mark.parametrize(
    ("alone", "goes"), [([5], [5]), ([5, 7], [5, 7]), ([5, 25], [5]), ([25, 30], [25]), ([30], []), ([], [])]
)
def test_producer_snapshots_without_a_segment_go_but_the_newest_at_the_end(
    tmp_path: Path, alone: list[int], goes: list[int]
) -> None:
    """`ProducerStateManager.removeStraySnapshots`"""
    for base in (10, 20):
        segment(tmp_path, base, 100, None)
        producer_snapshot(tmp_path, base, {})
    for offset in alone:
        producer_snapshot(tmp_path, offset, dict.fromkeys(range(offset), -1))
    assert read(tmp_path).snapshots_bytes == sum(10 + 46 * offset for offset in goes)


def with_indexes(path: Path, base: int, batches: list[bytes], offsets: bytes, times: bytes, padding: int) -> None:
    (path / f"{base:020d}.log").write_bytes(b"".join(batches))
    (path / f"{base:020d}.index").write_bytes(offsets + bytes(8 * padding))
    (path / f"{base:020d}.timeindex").write_bytes(times + bytes(12 * padding))


def test_the_newest_timestamp_of_a_segment_in_use_is_in_its_indexes_or_behind_them(tmp_path: Path) -> None:
    """A live broker writes an entry every 4 KiB into both, and what comes later is only in the batches."""
    batches = [batch(70, 20_000), batch(90), batch(80), batch(60)]
    third = len(batches[0]) + len(batches[1])
    indexed = struct.pack(">ii", 2, third), struct.pack(">qi", 90, 1)
    for last, largest in ((batch(60), 90), (batch(95), 95)):
        with_indexes(tmp_path, 0, [*batches[:3], last], *indexed, padding=1000)
        (found,) = read(tmp_path).segments
        assert (found.largest_ms, found.first_ms, found.end, found.active) == (largest, 70, 1, True)
    # What the indexes cover is not read again: a batch there does not count.
    with_indexes(tmp_path, 0, [batches[0], batch(99), batch(80), batch(60)], *indexed, padding=1000)
    assert read(tmp_path).segments[0].largest_ms == 90


@pytest.mark.parametrize(
    ("content", "index", "largest_ms"),
    [
        (batch(-1), b"", WRITTEN_MS),
        (batch(5), ENTRY, LATEST_MS),
        (batch(5) + batch(9), bytes(120), 9),
        (batch(9, magic=1), None, None),
        (b"\xff" * 500, None, None),
    ],
)
def test_a_closed_segment_goes_by_its_time_index(
    tmp_path: Path, content: bytes, index: bytes | None, largest_ms: int | None
) -> None:
    segment(tmp_path, 0, 1, index)
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(content)
    os.utime(log, (WRITTEN_MS / 1000, WRITTEN_MS / 1000))
    segment(tmp_path, 10, 0, None)
    first, active = read(tmp_path).segments
    assert (first.largest_ms, first.active, active.bytes, active.active) == (largest_ms, False, 0, True)


def test_every_byte_of_a_directory_is_in_one_place(tmp_path: Path) -> None:
    base, newer = f"{0:020d}", f"{10:020d}"
    sizes = {
        f"{base}.log": 9000, f"{base}.index": 8, f"{base}.timeindex": 12, f"{base}.txnindex": 5000,
        f"{newer}.log": 3000, f"{newer}.index": 5000, f"{newer}.timeindex": 7000, f"{newer}.snapshot": 10,
        "leader-epoch-checkpoint": 20, f"{20:020d}.snapshot": 30, f"{base}.log.deleted": 40_000, "x.log": 5,
    }  # fmt: skip
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"\1" * size)
    (tmp_path / "link.log").symlink_to("/etc/passwd")
    (tmp_path / f"{30:020d}.log").mkdir()
    os.mkfifo(tmp_path / f"{40:020d}.log")
    found = read(tmp_path)
    assert [(s.base, s.bytes) for s in found.segments] == [(0, 9000), (10, 3000)]
    blocks = {e.name: e.stat(follow_symlinks=False).st_blocks * 512 for e in os.scandir(tmp_path)}

    def of(*names: str) -> int:
        return sum(blocks[name] for name in names)

    closed = of(*(f"{base}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex")))
    assert [s.allocated for s in found.segments] == [closed, of(f"{newer}.log", f"{newer}.snapshot")]
    assert (found.indexes, found.deleted) == (of(f"{newer}.index", f"{newer}.timeindex"), of(f"{base}.log.deleted"))
    assert (found.indexes_bytes, found.deleted_bytes) == (12_000, 40_000)
    everything = sum(blocks.values()) + tmp_path.stat().st_blocks * 512
    beside = found.indexes + found.deleted + found.snapshots + found.others
    assert sum(s.allocated for s in found.segments) + beside == everything
