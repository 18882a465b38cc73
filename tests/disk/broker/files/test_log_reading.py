"""A log read from its first byte on: what is unsound, what was read before, and what is not read at all."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.broker.files.log_reading import LogReading, SegmentReadings, read_log_between
from tests.metadata_writer import batch
from tests.needs import need_command

SIZE = len(batch(0, [b"r" * 1000], 0))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three segments of ten batches of one record."""
    for base in (0, 10, 20):
        batches = [batch(n, [b"r" * 1000], 0) for n in range(base, base + 10)]
        (tmp_path / f"{base:020d}.log").write_bytes(b"".join(batches))
    return tmp_path


def segment(log: Path, base: int) -> Path:
    return log / f"{base:020d}.log"


def read(
    log: Path,
    first: int = 0,
    end: int = 30,
    known: SegmentReadings | None = None,
    most: float = float("inf"),
    stop: Callable[[], bool] = lambda: False,
) -> LogReading:
    fd = os.open(log, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_log_between(fd, first, end, {} if known is None else known, most, stop)
    finally:
        os.close(fd)


def test_a_sound_log_is_read_whole(log: Path) -> None:
    assert read(log) == LogReading(None, 0, 30 * SIZE)


def test_only_what_is_asked_for_is_read(log: Path) -> None:
    for base in (0, 20):
        segment(log, base).write_bytes(b"\1" * 10 * SIZE)
    assert read(log, 10, 20) == LogReading(None, 0, 10 * SIZE)
    assert read(log, 10, 21).defect and read(log, 9, 20).defect


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: data[: 4 * SIZE] + bytes(2 * SIZE) + data[6 * SIZE :], f"at byte {4 * SIZE} of {10 * SIZE}"),
        (lambda data: data[: 5 * SIZE - 9] + b"\xff" + data[5 * SIZE - 8 :], f"at byte {4 * SIZE} of {10 * SIZE}"),
        (lambda data: data[: 4 * SIZE + 16] + b"\1" + data[4 * SIZE + 17 :], "its format is 1"),
        (lambda data: data[SIZE:] + data[:SIZE], "begins at offset 10, expected 20"),
        (lambda data: data[:-1], f"at byte {9 * SIZE} of {10 * SIZE - 1}"),
        (lambda data: data[:8] + (65 << 20).to_bytes(4, "big") + data[12:], "it claims"),
        (lambda data: data + batch(20, [b"r"], 0), "above the next segment's first"),
    ],
    ids=["zeros", "checksum", "format", "order", "torn", "length", "too-far"],
)
def test_what_is_unsound_in_the_middle_is_found(log: Path, spoil: Callable[[bytes], bytes], says: str) -> None:
    path = segment(log, 10)
    path.write_bytes(spoil(path.read_bytes()))
    found = read(log)
    assert found.defect is not None and path.name in found.defect and says in found.defect


def test_compaction_leaves_gaps(log: Path) -> None:
    data = segment(log, 10).read_bytes()
    segment(log, 10).write_bytes(data[SIZE : 3 * SIZE] + data[7 * SIZE :])
    assert read(log).problem is None


def test_a_last_segment_that_ends_early_is_a_defect(log: Path) -> None:
    assert "ends at offset 30, below 31" in (read(log, end=31).defect or "")


def test_what_was_read_counts_until_the_file_changes(log: Path) -> None:
    known: SegmentReadings = {}
    assert read(log, known=known).read == 30 * SIZE
    assert read(log, known=known) == LogReading()
    data = bytearray(segment(log, 10).read_bytes())
    data[-1] ^= 1
    segment(log, 10).write_bytes(data)
    again = read(log, known=known)
    assert again.read == 10 * SIZE and "checksum" in (again.defect or "")
    # So does a defect, at no cost.
    assert read(log, known=known, most=0) == LogReading(again.defect)


def test_what_a_broker_appends_is_not_read(log: Path) -> None:
    known: SegmentReadings = {}
    read(log, end=25, known=known)
    with segment(log, 20).open("ab") as last:
        last.write(b"the first half of a batch")
    assert read(log, end=25, known=known) == LogReading()
    # Once it is not the last one any more, it counts only as it was read: not to its end.
    segment(log, 30).touch()
    assert read(log, end=25, known=known).read == 10 * SIZE + 25


def test_what_there_is_no_allowance_for_is_left_and_read_later(log: Path) -> None:
    known: SegmentReadings = {}
    first = read(log, known=known, most=25 * SIZE)
    assert (first.read, first.unread) == (20 * SIZE, 10 * SIZE)
    assert first.problem == f"not verified: {10 * SIZE} bytes to read"
    assert read(log, known=known, most=25 * SIZE) == LogReading(None, 0, 10 * SIZE)


def test_it_stops_between_two_batches(log: Path) -> None:
    asked = itertools.count()
    known: SegmentReadings = {}
    found = read(log, known=known, stop=lambda: next(asked) >= 15)
    assert found.defect is None and found.unread == 20 * SIZE and len(known) == 1


def test_a_sector_that_cannot_be_read_is_a_defect(log: Path) -> None:
    need_command("strace")
    work = (
        "import os, sys\n"
        "from logagent.broker.files.log_reading import read_log_between\n"
        "fd = os.open(sys.argv[1], os.O_RDONLY)\n"
        "print(read_log_between(fd, 0, 30, {}, float('inf'), lambda: False).defect)\n"
    )
    inject = ["-e", "trace=pread64", "-e", "inject=pread64:error=EIO:when=1", "-P", str(segment(log, 10))]
    command = ["strace", "-f", "-o", os.devnull, *inject, sys.executable, "-c", work, str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{10:020d}.log cannot be read after byte 0 of {10 * SIZE}: Input/output error"
