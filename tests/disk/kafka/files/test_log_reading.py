"""A log read from its first byte on: what is unsound, what was read before, and what is not read at all."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.base.dir_names import LOG_START_OFFSET, classify
from logagent.base.records import TopicPartition
from logagent.kafka.extents import Epochs, InCommon
from logagent.kafka.files.checkpoint_files import read_checkpoint
from logagent.kafka.files.log_extent import LogReading, SegmentReadings, read_log_between, read_log_extent
from logagent.verdict.copies import as_loaded, in_common
from tests.kafka_disks import KRAFT, ZOOKEEPER, extract
from tests.metadata_writer import batch
from tests.needs import need_command

SIZE = len(batch(0, [b"r" * 1000], 0))
EPOCHS = ((1, 0),)


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
    own: Epochs = EPOCHS,
    copy: Epochs = EPOCHS,
) -> LogReading:
    fd = os.open(log, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_log_between(fd, InCommon(first, end, own, copy), {} if known is None else known, most, stop)
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


def of_epochs(log: Path, changes: dict[int, int]) -> None:
    """Batches of one record each; each of `changes`: the leader epoch from that offset on."""
    epoch = 0
    for base in (0, 10, 20):
        batches = []
        for n in range(base, base + 10):
            epoch = changes.get(n, epoch)
            batches.append(batch(n, [b"r" * 1000], 0, epoch=epoch))
        segment(log, base).write_bytes(b"".join(batches))


def test_its_batches_are_of_the_epochs_that_both_checkpoints_say(log: Path) -> None:
    of_epochs(log, {0: 1, 13: 2, 20: 4})
    true: Epochs = ((1, 0), (2, 13), (4, 20))
    assert read(log, own=true, copy=true).defect is None
    # One that was copied after compaction begins an epoch at its first batch, and the other log can end in between.
    assert read(log, end=25, own=((2, 15), (4, 20)), copy=true).defect is None
    # What only one of them has is not compared.
    assert read(log, 13, 20, own=true, copy=((2, 13),)).defect is None
    for copy, says in (
        (
            ((1, 0), (4, 20)),
            f"{10:020d}.log is of leader epoch 2 at offset 13, its leader-epoch-checkpoint says epoch 1",
        ),
        (((1, 0), (2, 14), (4, 20)), "epoch 2 at offset 13, its leader-epoch-checkpoint says epoch 1"),
        (((1, 0), (2, 12), (4, 20)), "epoch 1 at offset 12, its leader-epoch-checkpoint says epoch 2"),
        (((1, 1), (2, 13), (4, 20)), "epoch 1 at offset 0, its leader-epoch-checkpoint says none"),
        ((), "epoch 1 at offset 0, its leader-epoch-checkpoint says none"),
    ):
        assert says in (read(log, own=true, copy=copy).problem or ""), copy
    other = ((1, 0), (2, 13), (3, 19), (4, 20))
    assert "epoch 2 at offset 19, the other log of epoch 3" in (read(log, own=other, copy=true).problem or "")


@pytest.mark.parametrize("disk", [*KRAFT, *ZOOKEEPER])
def test_the_logs_of_real_brokers_agree_with_their_checkpoints(tmp_path: Path, disk: str) -> None:
    """Also where deleteRecords has moved the log start offset into a segment: what is below it is not compared."""
    compared = 0
    for log_dir in sorted(p for p in extract(disk, tmp_path).iterdir() if p.is_dir()):
        fd = os.open(log_dir, os.O_RDONLY | os.O_DIRECTORY)
        try:
            starts = read_checkpoint(fd, LOG_START_OFFSET) or {}
        finally:
            os.close(fd)
        for partition_dir in sorted(p for p in log_dir.glob("*-*/") if p.name != "__cluster_metadata-0"):
            fd = os.open(partition_dir, os.O_RDONLY | os.O_DIRECTORY)
            try:
                parsed = classify(partition_dir.name)
                partition = TopicPartition(parsed.topic or "", -1 if parsed.partition is None else parsed.partition)
                found = as_loaded(read_log_extent(fd, whole=True), starts.get(partition, 0))
                if found.last_epoch is not None:
                    assert (
                        read_log_between(fd, in_common(found, found), {}, float("inf"), lambda: False).problem is None
                    )
                    compared += 1
            finally:
                os.close(fd)
    assert compared > 20


def test_what_was_read_before_is_compared_with_the_checkpoints_of_now(log: Path) -> None:
    of_epochs(log, {0: 1, 13: 2})
    known: SegmentReadings = {}
    assert read(log, known=known, own=((1, 0), (2, 13)), copy=((1, 0), (2, 13))).defect is None
    assert read(log, known=known, own=((1, 0),), copy=((1, 0),)) == LogReading(
        f"{10:020d}.log is of leader epoch 2 at offset 13, its leader-epoch-checkpoint says epoch 1", 0, 0
    )


def test_a_segment_full_of_elections_is_no_segment(tmp_path: Path) -> None:
    batches = (batch(n, [b"r"], 0, epoch=n) for n in range(10_001))
    segment(tmp_path, 0).write_bytes(b"".join(batches))
    epochs = tuple((n, n) for n in range(10_001))
    assert "more than 10000 leader epochs" in (read(tmp_path, end=10_001, own=epochs, copy=epochs).problem or "")


def test_a_sector_that_cannot_be_read_is_a_defect(log: Path) -> None:
    need_command("strace")
    work = (
        "import os, sys\n"
        "from logagent.kafka.files.log_extent import read_log_between\n"
        "from logagent.verdict.copies import InCommon\n"
        "fd = os.open(sys.argv[1], os.O_RDONLY)\n"
        "print(read_log_between(fd, InCommon(0, 30, (), ((1, 0),)), {}, float('inf'), lambda: False).defect)\n"
    )
    inject = ["-e", "trace=pread64", "-e", "inject=pread64:error=EIO:when=1", "-P", str(segment(log, 10))]
    command = ["strace", "-f", "-o", os.devnull, *inject, sys.executable, "-c", work, str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{10:020d}.log cannot be read after byte 0 of {10 * SIZE}: Input/output error"
