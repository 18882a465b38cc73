"""Rewriting checkpoints on a real file system: what is kept, what a failure leaves, what a kill leaves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logagent.base.dir_names import LOG_START_OFFSET, RECOVERY_POINT
from logagent.base.errors import BrokerHoldsLogDir, UnreadableError
from logagent.base.records import TopicPartition
from logagent.kafka.files.checkpoint_files import parse_checkpoint, read_checkpoint, rewrite_checkpoint
from tests.needs import need_command, need_root

A, B, C = TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("c", 2)
OLD = b"0\n2\na 0 10\nb 1 20\n"
WITHOUT_A = b"0\n1\nb 1 20\n"
TEMP = f".logagent-{RECOVERY_POINT}"


class LogDir:
    """A log dir with one checkpoint, and a record of when `before_act` was called."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self.file = path / RECOVERY_POINT
        self.file.write_bytes(OLD)
        self.call_each: list[list[str]] = []

    def look(self) -> None:
        self.call_each.append(self.names())

    def names(self) -> list[str]:
        return sorted(os.listdir(self.fd))

    def drop_a(self, before_act: Callable[[], None] | None = None) -> dict[TopicPartition, int]:
        return rewrite_checkpoint(self.fd, RECOVERY_POINT, drop=[A], before_act=before_act or self.look)


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[LogDir]:
    made = LogDir(tmp_path)
    yield made
    os.close(made.fd)


def look_nowhere() -> None:
    return None


def test_a_dropped_entry_is_returned(log_dir: LogDir) -> None:
    assert log_dir.drop_a() == {A: 10}
    assert log_dir.file.read_bytes() == WITHOUT_A
    assert log_dir.names() == [RECOVERY_POINT]
    # Right before the temp file is made, and right before it is renamed.
    assert log_dir.call_each == [[RECOVERY_POINT], [TEMP, RECOVERY_POINT]]
    assert log_dir.drop_a() == {}


def test_an_entry_comes_back(log_dir: LogDir) -> None:
    assert rewrite_checkpoint(log_dir.fd, RECOVERY_POINT, put={C: 5, A: 11}, before_act=look_nowhere) == {}
    assert log_dir.file.read_bytes() == b"0\n3\na 0 11\nb 1 20\nc 2 5\n"


def test_drop_then_put_is_where_we_began(log_dir: LogDir) -> None:
    dropped = log_dir.drop_a()
    rewrite_checkpoint(log_dir.fd, RECOVERY_POINT, put=dropped, before_act=look_nowhere)
    assert read_checkpoint(log_dir.fd, RECOVERY_POINT) == parse_checkpoint(OLD)


def test_owner_group_and_mode_stay(log_dir: LogDir) -> None:
    need_root()
    os.chown(log_dir.file, 12345, 23456)
    log_dir.file.chmod(0o640)
    before = log_dir.file.stat()
    log_dir.drop_a()
    after = log_dir.file.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (12345, 23456, before.st_mode)
    assert after.st_ino != before.st_ino


def test_the_umask_does_not_matter(log_dir: LogDir) -> None:
    log_dir.file.chmod(0o666)
    umask = os.umask(0o077)
    try:
        log_dir.drop_a()
    finally:
        os.umask(umask)
    assert log_dir.file.stat().st_mode & 0o7777 == 0o666


def test_a_file_that_is_not_there_has_nothing_to_drop(log_dir: LogDir) -> None:
    log_dir.file.unlink()
    assert log_dir.drop_a() == {}
    assert read_checkpoint(log_dir.fd, RECOVERY_POINT) is None
    assert log_dir.names() == []
    assert log_dir.call_each == []


def test_a_file_that_is_not_there_is_made_for_what_must_be_put(log_dir: LogDir) -> None:
    need_root()
    os.chown(log_dir.path, 12345, 23456)
    rewrite_checkpoint(log_dir.fd, LOG_START_OFFSET, put={A: 7}, before_act=look_nowhere)
    made = log_dir.path / LOG_START_OFFSET
    assert made.read_bytes() == b"0\n1\na 0 7\n"
    assert (made.stat().st_uid, made.stat().st_gid, made.stat().st_mode & 0o7777) == (12345, 23456, 0o644)


def test_nothing_is_written_where_nothing_changes(log_dir: LogDir) -> None:
    before = log_dir.file.stat()
    assert rewrite_checkpoint(log_dir.fd, RECOVERY_POINT, drop=[C], put={B: 20}, before_act=log_dir.look) == {}
    assert log_dir.file.stat() == before
    assert log_dir.call_each == []


@pytest.mark.parametrize("stop_at", [1, 2])
def test_a_broker_that_comes_stops_it_and_nothing_half_done_stays(log_dir: LogDir, stop_at: int) -> None:
    call_each = 0

    def look() -> None:
        nonlocal call_each
        call_each += 1
        if call_each == stop_at:
            raise BrokerHoldsLogDir("a broker took the lock", log_dir=str(log_dir.path))

    with pytest.raises(BrokerHoldsLogDir):
        log_dir.drop_a(look)
    assert log_dir.file.read_bytes() == OLD
    assert log_dir.names() == [RECOVERY_POINT]


def test_a_leftover_is_removed_after_a_check(log_dir: LogDir) -> None:
    (log_dir.path / TEMP).write_bytes(b"0\n1\nhalf a li")
    assert log_dir.drop_a() == {A: 10}
    assert log_dir.names() == [RECOVERY_POINT]
    assert len(log_dir.call_each) == 3
    assert log_dir.call_each[0] == [TEMP, RECOVERY_POINT]


def test_a_leftover_that_is_a_symlink_goes_and_its_target_stays(
    log_dir: LogDir, tmp_path_factory: pytest.TempPathFactory
) -> None:
    target = tmp_path_factory.mktemp("elsewhere") / "precious"
    target.write_bytes(b"precious")
    (log_dir.path / TEMP).symlink_to(target)
    log_dir.drop_a()
    assert target.read_bytes() == b"precious"
    assert log_dir.names() == [RECOVERY_POINT]


def test_a_temp_file_that_somebody_slips_in_is_not_written_through(
    log_dir: LogDir, tmp_path_factory: pytest.TempPathFactory
) -> None:
    target = tmp_path_factory.mktemp("elsewhere") / "precious"
    target.write_bytes(b"precious")

    def slip_in() -> None:
        (log_dir.path / TEMP).symlink_to(target)

    with pytest.raises(FileExistsError):
        log_dir.drop_a(slip_in)
    assert target.read_bytes() == b"precious"
    assert log_dir.file.read_bytes() == OLD


def test_a_temp_file_that_was_replaced_is_not_renamed(log_dir: LogDir) -> None:
    """Another logagent took ours for a leftover, and is still writing its own: the checkpoint must not become that."""

    def another_begins() -> None:
        log_dir.look()
        if len(log_dir.call_each) == 2:
            (log_dir.path / TEMP).unlink()
            (log_dir.path / TEMP).write_bytes(b"0\n")

    with pytest.raises(OSError, match="another process replaced it"):
        log_dir.drop_a(another_begins)
    assert log_dir.file.read_bytes() == OLD
    assert (log_dir.path / TEMP).read_bytes() == b"0\n", "the other one's"


def test_somebody_elses_write_in_between_is_not_lost(log_dir: LogDir) -> None:
    theirs = b"0\n1\na 0 99\n"

    def write() -> None:
        log_dir.file.write_bytes(theirs)

    with pytest.raises(UnreadableError, match="changed by another process"):
        log_dir.drop_a(write)
    assert log_dir.file.read_bytes() == theirs
    assert log_dir.names() == [RECOVERY_POINT]


def test_a_file_that_disappears_is_not_made_again(log_dir: LogDir) -> None:
    with pytest.raises(UnreadableError, match="disappeared"):
        log_dir.drop_a(lambda: log_dir.file.unlink(missing_ok=True))
    assert log_dir.names() == []


def make_symlink(path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(OLD)
    path.symlink_to(target)


def make_dangling_symlink(path: Path) -> None:
    path.symlink_to("nowhere")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize("make", [make_symlink, make_dangling_symlink, os.mkfifo, make_socket, os.mkdir])
def test_what_is_no_plain_file_is_unreadable_and_stays(log_dir: LogDir, make: Callable[[Path], None]) -> None:
    log_dir.file.unlink()
    make(log_dir.file)
    before, names = log_dir.file.lstat(), log_dir.names()
    finished = threading.Event()

    def read_both() -> None:
        with pytest.raises(UnreadableError, match="not a regular file"):
            read_checkpoint(log_dir.fd, RECOVERY_POINT)
        with pytest.raises(UnreadableError, match="not a regular file"):
            log_dir.drop_a()
        finished.set()

    # In a thread of its own, because the mistake to be found is one that waits for ever.
    reader = threading.Thread(target=read_both, daemon=True)
    reader.start()
    assert finished.wait(300)
    reader.join()
    assert (log_dir.file.lstat(), log_dir.names()) == (before, names)


@pytest.mark.parametrize("content", [b"1\n0\n", b"junk", b"0\n2\na 0 1\n", b"\xff\xff", b"\0" * 4096])
def test_what_cannot_be_read_is_left_alone(log_dir: LogDir, content: bytes) -> None:
    log_dir.file.write_bytes(content)
    with pytest.raises(UnreadableError, match=RECOVERY_POINT):
        log_dir.drop_a()
    assert log_dir.file.read_bytes() == content
    assert log_dir.names() == [RECOVERY_POINT]
    assert log_dir.call_each == []


def test_a_file_beyond_all_measure_is_not_read_into_memory(log_dir: LogDir) -> None:
    os.truncate(log_dir.file, 2**40)  # sparse: it takes no room
    with pytest.raises(UnreadableError, match="at most"):
        log_dir.drop_a()


@pytest.mark.parametrize("name", ["meta.properties", "../recovery-point-offset-checkpoint", ""])
def test_nothing_but_checkpoints_is_rewritten(log_dir: LogDir, name: str) -> None:
    with pytest.raises(ValueError, match="not an offset checkpoint"):
        rewrite_checkpoint(log_dir.fd, name, drop=[A], before_act=look_nowhere)


DROP_A = """
import os, sys
from logagent.base.dir_names import RECOVERY_POINT
from logagent.kafka.files.checkpoint_files import rewrite_checkpoint
from logagent.base.records import TopicPartition
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
rewrite_checkpoint(fd, RECOVERY_POINT, drop=[TopicPartition("a", 0)], before_act=lambda: None)
"""


def drop_a_under_strace(path: Path, injection: str) -> subprocess.CompletedProcess[str]:
    need_command("strace")
    call = injection.partition(":")[0]
    return subprocess.run(
        [
            "strace",
            "-f",
            "-qq",
            "-e",
            f"trace={call}",
            "-e",
            f"inject={injection}",
            sys.executable,
            "-c",
            DROP_A,
            str(path),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


# Calls that Python itself does not make while it starts, so that the N-th is ours.
@pytest.mark.parametrize(
    ("call", "wanted"),
    [("fchmod:when=1", OLD), ("fsync:when=1", OLD), ("renameat:when=1", OLD), ("fsync:when=2", WITHOUT_A)],
)
def test_killed_anywhere_the_file_is_old_or_new_and_the_next_call_cleans_up(
    log_dir: LogDir, call: str, wanted: bytes
) -> None:
    name, when = call.split(":")
    killed = drop_a_under_strace(log_dir.path, f"{name}:signal=KILL:{when}")
    assert killed.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), killed.stderr
    assert log_dir.file.read_bytes() == wanted
    assert set(log_dir.names()) <= {RECOVERY_POINT, TEMP}
    assert log_dir.drop_a() == ({A: 10} if wanted == OLD else {})
    assert log_dir.file.read_bytes() == WITHOUT_A
    assert log_dir.names() == [RECOVERY_POINT]


@pytest.mark.parametrize(
    ("call", "wanted"),
    [("fchmod:when=1", OLD), ("fsync:when=1", OLD), ("renameat:when=1", OLD), ("fsync:when=2", WITHOUT_A)],
)
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_an_error_anywhere_is_raised_and_leaves_no_temp_file(
    log_dir: LogDir, call: str, wanted: bytes, error: str
) -> None:
    name, when = call.split(":")
    failed = drop_a_under_strace(log_dir.path, f"{name}:error={error}:{when}")
    assert failed.returncode == 1, failed.stderr
    assert "OSError" in failed.stderr
    assert log_dir.file.read_bytes() == wanted
    assert log_dir.names() == [RECOVERY_POINT]
