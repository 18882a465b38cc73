"""Where a log ends on disk, and in which leader epochs; and what its segments' indexes look like."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.errors import UnreadableError
from logagent.kafka.extents import LogExtent
from logagent.kafka.files.log_extent import parse_leader_epochs, read_log_extent
from logagent.kafka.files.segment_files import IndexFile, SegmentsRead, read_segment_files
from tests import metadata_writer

LOG = "00000000000000000000.log"


def batch(base: int, values: Sequence[bytes], *, epoch: int) -> bytes:
    return metadata_writer.batch(base, values, 1_700_000_000_000, epoch=epoch)


def records(count: int) -> list[bytes]:
    return [f"record {n}".encode() for n in range(count)]


def write_epochs(path: Path, *epochs: tuple[int, int]) -> None:
    lines = ["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs), ""]
    (path / "leader-epoch-checkpoint").write_text("\n".join(lines))


def look(path: Path) -> LogExtent:
    """Without the size of the segments: only one test is about that."""
    return replace(look_with_size(path), log_bytes=0)


def look_with_size(path: Path, *, whole: bool = False) -> LogExtent:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_log_extent(fd, whole=whole)
    finally:
        os.close(fd)


def segments(path: Path) -> SegmentsRead:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_segment_files(fd)
    finally:
        os.close(fd)


def write(path: Path, *batches: bytes, base: int = 0) -> None:
    (path / f"{base:020d}.log").write_bytes(b"".join(batches))


def test_the_end_and_the_epochs(tmp_path: Path) -> None:
    write(tmp_path, batch(5, records(10), epoch=0), base=5)
    write(tmp_path, batch(15, records(10), epoch=0), batch(25, records(3), epoch=4), base=15)
    write_epochs(tmp_path, (0, 5), (4, 25))
    assert look(tmp_path) == LogExtent(5, 28, ((0, 5), (4, 25)))
    assert look_with_size(tmp_path).log_bytes == sum(log.stat().st_size for log in tmp_path.glob("*.log"))


def test_segments_that_do_not_follow_each_other(tmp_path: Path) -> None:
    for base in (0, 10, 20, 30):
        write(tmp_path, batch(base, records(10), epoch=2), base=base)
    write_epochs(tmp_path, (2, 0))
    assert look_with_size(tmp_path, whole=True).gaps == ()
    (tmp_path / f"{10:020d}.log").unlink()
    assert look_with_size(tmp_path, whole=True).gaps == ((10, 20),)
    assert look_with_size(tmp_path).gaps == ()
    # Cut off between two batches, or to nothing, as a file system may do that lost a write.
    write(tmp_path, batch(10, records(4), epoch=2), base=10)
    write(tmp_path, base=20)
    assert look_with_size(tmp_path, whole=True).gaps == ((14, 20), (20, 30))
    write(tmp_path, batch(20, records(10), epoch=2)[:-1], base=20)
    assert look_with_size(tmp_path, whole=True).log_end is None
    assert look_with_size(tmp_path).log_end == 40


def test_an_interrupted_compaction_leaves_the_end_open(tmp_path: Path) -> None:
    """Its first records may be in the `.swap` file only: such a log covers nothing, and nothing covers it."""
    write(tmp_path, batch(100, records(5), epoch=1), base=100)
    write_epochs(tmp_path, (1, 0))
    assert look(tmp_path).log_end == 105
    (tmp_path / f"{0:020d}.log.swap").write_bytes(batch(0, records(5), epoch=1))
    found = look(tmp_path)
    assert (found.log_start, found.log_end, found.last_segment) == (100, None, 100)
    assert found.problem is not None and ".log.swap is left from an interrupted compaction" in found.problem


def test_an_epoch_without_records_is_none(tmp_path: Path) -> None:
    write(tmp_path, batch(0, records(10), epoch=2))
    write_epochs(tmp_path, (2, 0), (3, 10))
    assert look(tmp_path) == LogExtent(0, 10, ((2, 0),))


def test_an_empty_last_segment_ends_where_it_begins(tmp_path: Path) -> None:
    write(tmp_path, batch(0, records(10), epoch=2))
    write(tmp_path, base=10)
    write_epochs(tmp_path, (2, 0))
    assert look(tmp_path) == LogExtent(0, 10, ((2, 0),))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: data[:-1], "torn batch"),
        (lambda data: data + bytes(4096), "format 2"),
        (lambda data: data + data[:40], "torn batch"),
        (lambda data: data[:-1] + b"\xff", "checksum"),
        (lambda data: data[:16] + b"\1" + data[17:], "format 2"),
    ],
)
def test_a_torn_tail_leaves_the_end_open(tmp_path: Path, spoil: object, said: str) -> None:
    assert callable(spoil)
    (tmp_path / LOG).write_bytes(spoil(batch(0, records(10), epoch=0)))
    write_epochs(tmp_path, (0, 0))
    found = look(tmp_path)
    assert found.log_end is None and found.last_epoch is None and said in (found.problem or "")


@pytest.mark.parametrize("content", [None, "", "0\n0\n", "0\n1\n1 0\n", "0\n2\n0 0\n", "1\n1\n0 0\n", "0\n1\nx y\n"])
def test_epochs_that_are_missing_or_contradict_the_records_are_not_believed(
    tmp_path: Path, content: str | None
) -> None:
    write(tmp_path, batch(0, records(10), epoch=0))
    if content is not None:
        (tmp_path / "leader-epoch-checkpoint").write_text(content)
    found = look(tmp_path)
    assert found.epochs == () and found.last_epoch is None and found.problem


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOG)
    os.mkfifo(tmp_path / "leader-epoch-checkpoint")
    assert "FIFO" in (look(tmp_path).problem or "")
    assert look(tmp_path).log_end is None


@pytest.mark.parametrize(("entry", "position"), [(19, 1), (3, 5), (10**6, 0), (19, 2**31 - 1)])
def test_an_index_that_leads_astray_is_not_believed(tmp_path: Path, entry: int, position: int) -> None:
    write(tmp_path, batch(0, records(10), epoch=0), batch(10, records(10), epoch=0))
    write_epochs(tmp_path, (0, 0))
    (tmp_path / "00000000000000000000.index").write_bytes(entry.to_bytes(4, "big") + position.to_bytes(4, "big"))
    assert look(tmp_path) == LogExtent(0, 20, ((0, 0),))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.booleans(), st.integers(0, 10**6))
def test_as_many_records_as_were_written(
    tmp_path_factory: pytest.TempPathFactory, counts: Sequence[int], indexed: bool, base: int
) -> None:
    path = tmp_path_factory.mktemp("log")
    written, data, end = [], b"", base
    for count in counts:
        written.append((end, len(data)))
        data += batch(end, records(count), epoch=1)
        end += count
    write(path, data, base=base)
    write_epochs(path, (1, base))
    if indexed:
        at, position = written[len(written) // 2]
        (path / f"{base:020d}.index").write_bytes((at - base).to_bytes(4, "big") + position.to_bytes(4, "big"))
    assert look(path) == LogExtent(base, end, ((1, base),))


def test_an_epoch_in_which_nothing_was_written_before_the_next_is_none(tmp_path: Path) -> None:
    """Kafka wrote such entries before 2.0, and drops them when it loads the file. As an end of epoch 2 the 10 would say
    that a log which ends there in epoch 2 is covered: this one has other records there."""
    write(tmp_path, batch(0, records(10), epoch=1), batch(10, records(10), epoch=3))
    write_epochs(tmp_path, (0, 0), (1, 0), (2, 10), (3, 10))
    assert look(tmp_path) == LogExtent(0, 20, ((1, 0), (3, 10)))


def test_epochs_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(UnreadableError):
        parse_leader_epochs(b"0\n2\n3 0\n2 5\n")


@pytest.mark.parametrize(
    ("suffix", "content", "expected"),
    [
        (".index", b"", IndexFile(0, True)),
        (".index", b"\0\0\0\1\0\0\0\1", IndexFile(8, True)),
        (".index", bytes(4096), IndexFile(4096, False)),
        (".index", b"\1" * 9, IndexFile(9, False)),
        (".timeindex", b"\1" * 12, IndexFile(12, True)),
        (".timeindex", b"\1" * 8, IndexFile(8, False)),
        (".timeindex", b"\1" * 12 + bytes(12), IndexFile(24, False)),
    ],
)
def test_how_an_index_ends(tmp_path: Path, suffix: str, content: bytes, expected: IndexFile) -> None:
    write(tmp_path, b"x" * 7)
    (tmp_path / f"{0:020d}{suffix}").write_bytes(content)
    (found,) = segments(tmp_path).segments
    assert (found.index if suffix == ".index" else found.timeindex) == expected
    assert found.log_bytes == 7


def test_an_index_that_is_no_file_is_not_sound(tmp_path: Path) -> None:
    write(tmp_path, b"x")
    (tmp_path / f"{0:020d}.index").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / f"{0:020d}.timeindex")
    (found,) = segments(tmp_path).segments
    assert found.index == found.timeindex == IndexFile(0, False)


def test_indexes_whose_log_is_gone_are_reported(tmp_path: Path) -> None:
    write(tmp_path, b"x", base=10)
    for name in (f"{0:020d}.index", f"{5:020d}.txnindex", f"{10:020d}.timeindex", f"{7:020d}.snapshot", "x.index"):
        (tmp_path / name).write_bytes(b"")
    assert segments(tmp_path).without_log == (f"{0:020d}.index", f"{5:020d}.txnindex")


def test_files_below_the_first_segment_that_a_broker_was_about_to_unlink_are_reported(tmp_path: Path) -> None:
    """Not those of compaction (it puts their records into another segment) or of a truncated end."""
    write(tmp_path, b"x", base=10)
    below = [f"{0:020d}.log.deleted", f"{5:020d}.timeindex.deleted", f"{9:020d}.index.deleted"]
    others = [f"{10:020d}.log.deleted", f"{20:020d}.log.deleted", f"{9:020d}.snapshot.deleted", "x.log.deleted"]
    for name in (*below, *others):
        (tmp_path / name).write_bytes(b"")
    assert segments(tmp_path).deleted == tuple(below)
    (tmp_path / f"{10:020d}.log").unlink()
    assert segments(tmp_path).deleted == ()
