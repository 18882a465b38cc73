"""What a broker fails on when it loads a partition directory, on real files (what releases do: tests/broker/check)."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.advice.check.start_inspection import (
    PartitionDirs,
    _no_files,
    broken_checkpoints,
    load_faults,
    places_of_files,
)
from logagent.base.dir_names import METADATA_DIR
from logagent.base.linux.access import owner_of
from logagent.disk.log_dir import CLEAN_SHUTDOWN, LogDirFailures, OpenLogDir

FIRST = "0" * 20


def batch(base: int, records: int = 1, size: int = 80) -> bytes:
    head = struct.pack(">qiib", base, size - 12, 0, 2) + bytes(6) + struct.pack(">i", records - 1)
    return head.ljust(size, b"\1")


LOG = batch(0, 5) + batch(5, 5)


def faults(path: Path, *, clean: bool = True, log_start: int = 0) -> list[tuple[str, str]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        others = _no_files(fd)
        files = {p.name for p in path.iterdir()} - others.keys()
        found = load_faults(fd, files, others, clean=clean, log_starts=lambda: {log_start})
        return [(fault.file.value, fault.name) for fault in found]
    finally:
        os.close(fd)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "orders-0"
    made.mkdir()
    (made / f"{FIRST}.log").write_bytes(LOG)
    (made / f"{FIRST}.index").write_bytes(b"")
    return made


TAILS = [
    (b"", False),
    (bytes(300), True),
    (bytes(17), False),
    (bytes(18), True),
    (b"\xff" * 300, True),
    (batch(10)[:-1], False),
    (batch(10) + bytes(300), True),
    (b"x" * 300, False),
]


@pytest.mark.parametrize(("tail", "fails"), TAILS)
def test_bytes_behind_the_last_batch_stop_a_start_unless_they_look_like_a_torn_one(
    path: Path, tail: bytes, fails: bool
) -> None:
    (path / f"{FIRST}.log").write_bytes(LOG + tail)
    told = [("tail", f"{FIRST}.log")]
    assert faults(path) == (told if fails else [])
    assert faults(path, clean=False) == [], "recovered, and cut off"
    (path / f"{FIRST}.index").unlink()
    assert faults(path) == [], "rebuilt, and cut off"


def test_only_the_last_segment_is_read_from_the_last_entry_of_its_index_on(path: Path) -> None:
    (path / f"{FIRST}.log").write_bytes(bytes(300))
    (path / f"{10:020}.log").write_bytes(bytes(80) + batch(15))
    (path / f"{10:020}.index").write_bytes(struct.pack(">ii", 5, 80))
    assert faults(path) == []
    (path / f"{10:020}.index").write_bytes(struct.pack(">ii", 5, 4000))
    assert faults(path) == [("tail", f"{10:020}.log")], "an entry beyond the end says nothing"


@given(st.lists(st.integers(-2, 2), max_size=4), st.integers(0, 33))
def test_one_foreign_version_among_aborted_transactions_is_enough(versions: list[int], torn: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        (Path(made) / f"{FIRST}.log").write_bytes(LOG)
        entries = b"".join(struct.pack(">hqqqq", version, 7, 0, 1, 1) for version in versions)
        (Path(made) / f"{FIRST}.txnindex").write_bytes(entries + b"\1" * torn)
        assert faults(Path(made)) == ([("aborted", f"{FIRST}.txnindex")] if any(versions) else [])
        (Path(made) / f"{FIRST}.log").unlink()
        assert faults(Path(made)) == [], "without its segment it is removed"


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_no_file_of_a_segment_is_above_2_gib(path: Path, suffix: str) -> None:
    for size, found in ((2**31 - 1, []), (2**31, [("large", FIRST + suffix)])):
        with (path / (FIRST + suffix)).open("ab") as file:
            file.truncate(size)
        assert faults(path, clean=False) == found


@pytest.mark.parametrize(
    ("content", "file"),
    [(LOG, None), (b"", "empty-swap"), (bytes(300), "swap"), (b"x" * 300, "torn-swap"), (b"x", "torn-swap")],
)
def test_what_replaces_segments_must_be_one(path: Path, content: bytes, file: str | None) -> None:
    name = f"{FIRST}.log.swap"
    (path / name).write_bytes(content)
    assert faults(path) == ([(file, name)] if file is not None else [])


PLACES = [
    (f"{FIRST}.index", "place"),
    (f"{FIRST}.timeindex", "place"),
    (f"{FIRST}.txnindex", "place"),
    ("leader-epoch-checkpoint.tmp", "place"),
    (f"{10:020}.snapshot", "place"),
    (f"{FIRST}.snapshot", "ahead"),
    (f"{10:020}.log", "ahead"),
    (f"{10:020}.index", "ahead"),
    (f"{2**63:020}.log", None),
    (f"{FIRST}.log.deleted", None),
    ("backup.log", None),
    ("backup", None),
]


@pytest.mark.parametrize(("name", "file"), PLACES)
def test_a_directory_is_a_fault_where_a_start_needs_a_file(path: Path, name: str, file: str | None) -> None:
    (path / name).unlink(missing_ok=True)
    (path / name).mkdir()
    assert faults(path) == ([(file, name)] if file is not None else [])


NOWHERE_AND_FIFOS = [
    (f"{FIRST}.index", "place", "place"),
    (f"{FIRST}.txnindex", "ahead", "place"),
    ("leader-epoch-checkpoint.tmp", "place", "place"),
    ("leader-epoch-checkpoint", "place", None),
    (f"{10:020}.snapshot", "place", "place"),
    (f"{FIRST}.log.swap", None, None),
    ("partition.metadata", None, None),
]


@pytest.mark.parametrize(("name", "nowhere", "fifo"), NOWHERE_AND_FIFOS)
def test_so_is_a_link_that_leads_nowhere_or_a_fifo(
    path: Path, name: str, nowhere: str | None, fifo: str | None
) -> None:
    """A linked file is a file; an epoch file or topic id that cannot be read is another finding."""
    aside = path.parent / "aside"
    aside.write_bytes((path / name).read_bytes() if (path / name).exists() else LOG if ".log" in name else b"")
    places: list[tuple[str | None, str | None]] = [(str(aside), None), ("/nonexistent/x", nowhere), (None, fifo)]
    for target, file in places:
        (path / name).unlink(missing_ok=True)
        if target is not None:
            (path / name).symlink_to(target)
        else:
            os.mkfifo(path / name)
        assert faults(path) == ([(file, name)] if file is not None else []), target


@pytest.mark.parametrize(("start", "file"), [(0, "ahead"), (7, "place")])
def test_a_log_without_segments_needs_one_at_its_start(path: Path, start: int, file: str) -> None:
    for entry in path.iterdir():
        entry.unlink()
    (path / f"{7:020}.log").mkdir()
    assert faults(path, log_start=start) == [(file, f"{7:020}.log")]


@pytest.mark.parametrize("suffix", [".log", ".index", ".snapshot"])
def test_a_number_above_every_offset_is_none(path: Path, suffix: str) -> None:
    for base in (2**63 - 1, 2**63):
        (path / f"{base:020}{suffix}").touch()
    with OpenLogDir(str(path.parent), LogDirFailures()) as log_dir:
        partitions = PartitionDirs(log_dir, owner_of(path.stat(), str(path)))
        partitions.inspect([path.name])
    assert partitions.odd_files == [f"{path.name}/{2**63:020}{suffix}"]


@pytest.mark.parametrize(
    ("snapshot", "base", "file"), [(0, 0, "place"), (30, 0, "place"), (30, 30, "place"), (30, 7, "ahead")]
)
def test_a_metadata_log_without_segments_needs_one_at_its_start_or_at_its_snapshot(
    tmp_path: Path, snapshot: int, base: int, file: str
) -> None:
    (path := tmp_path / METADATA_DIR).mkdir()
    (path / f"{snapshot:020}-0000000001.checkpoint").touch()
    (path / f"{base:020}.log").symlink_to("/nonexistent/x")
    assert inspected(path) == [(file, f"{METADATA_DIR}/{base:020}.log")]


def test_no_marker_of_a_clean_stop_keeps_a_metadata_log_from_being_recovered(path: Path) -> None:
    (path.parent / CLEAN_SHUTDOWN).touch()
    (path / f"{FIRST}.log").write_bytes(LOG + bytes(300))
    assert inspected(path) == [("tail", f"{path.name}/{FIRST}.log")]
    assert inspected(path.rename(path.parent / METADATA_DIR)) == []


def inspected(path: Path) -> list[tuple[str, str]]:
    with OpenLogDir(str(path.parent), LogDirFailures()) as log_dir:
        partitions = PartitionDirs(log_dir, owner_of(path.stat(), str(path)))
        partitions.inspect([path.name])
    return [(fault.file.value, fault.name) for fault in partitions.load_faults]


def test_an_empty_directory_is_taken_for_the_marker_of_a_clean_stop(tmp_path: Path) -> None:
    """One with something in it cannot be removed as the marker is, and has no partition's name: another finding."""
    (marker := tmp_path / CLEAN_SHUTDOWN).mkdir()
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert [(fault.file.value, fault.name) for fault in places_of_files(fd)] == [("marker", CLEAN_SHUTDOWN)]
        assert places_of_files(fd, metadata_only=True) == []
        (marker / "x").touch()
        assert places_of_files(fd) == []
    finally:
        os.close(fd)


@pytest.mark.parametrize("where", ["/nonexistent/x", None])
def test_beside_a_metadata_log_alone_only_the_lock_needs_a_file(tmp_path: Path, where: str | None) -> None:
    for name in (".lock", CLEAN_SHUTDOWN, "recovery-point-offset-checkpoint.tmp"):
        if where is None:
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).symlink_to(where)
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        found = places_of_files(fd, metadata_only=True)
    finally:
        os.close(fd)
    assert [(fault.file.value, fault.name) for fault in found] == [("place", ".lock")]


def test_a_fifo_in_the_place_of_a_checkpoint_is_known_for_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cleaner-offset-checkpoint")
    (tmp_path / "recovery-point-offset-checkpoint").mkdir()
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        found = {name: fault for name, (fault, _) in broken_checkpoints(fd).items()}
    finally:
        os.close(fd)
    assert found["cleaner-offset-checkpoint"] == "fifo" and found["recovery-point-offset-checkpoint"] == "malformed"
