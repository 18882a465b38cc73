"""Looking at `.lock`: what other processes hold on it, as Java and others lock it, and never touching it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logagent.base.errors import BrokerHoldsLogDir
from logagent.kafka.processes.lock import MAX_SLOW_QUERIES, HolderWatch, Interlock, LockState, query_lock

Spawn = Callable[..., Any]

POSIX_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "a+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""
SHARED_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "a+b")
fcntl.lockf(file, fcntl.LOCK_SH)
print("ready", flush=True)
sys.stdin.read()
"""
OFD_LOCK = """
import fcntl, struct, sys
file = open(sys.argv[1], "a+b")
fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
print("ready", flush=True)
sys.stdin.read()
"""
FLOCK = """
import fcntl, sys
file = open(sys.argv[1], "a+b")
fcntl.flock(file, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    number = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield number
    os.close(number)


class Clock:
    def __init__(self, step: float = 0.0) -> None:
        self.now = 100.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_no_file_is_not_held_and_is_not_created(fd: int, tmp_path: Path) -> None:
    assert query_lock(fd) == LockState(held=False, pid=None, present=False, readable=True)
    Interlock(fd, str(tmp_path)).before()
    assert list(tmp_path.iterdir()) == []


def test_a_file_alone_proves_nothing(fd: int, tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    assert query_lock(fd) == LockState(held=False, pid=None, present=True, readable=True)


def test_posix_lock_names_its_holder(fd: int, tmp_path: Path, spawn: Spawn) -> None:
    child = spawn(POSIX_LOCK, tmp_path / ".lock")
    assert query_lock(fd) == LockState(held=True, pid=child.pid, present=True, readable=True)
    # Looking must not have taken the lock away: closing a descriptor does that to the locking process only.
    assert query_lock(fd).held


def test_a_shared_lock_is_no_brokers(fd: int, tmp_path: Path, spawn: Spawn) -> None:
    """Whoever may read the file can have one."""
    child = spawn(SHARED_LOCK, tmp_path / ".lock")
    assert query_lock(fd) == LockState(held=False, pid=child.pid, present=True, readable=True, shared=True)


def test_an_exclusive_one_is_seen_behind_a_shared_one(fd: int, tmp_path: Path, spawn: Spawn) -> None:
    """On parts of the file that do not touch; Kafka's is on the whole of it."""
    spawn(SHARED_LOCK.replace("LOCK_SH", "LOCK_SH, 10, 0"), tmp_path / ".lock")
    child = spawn(POSIX_LOCK.replace("LOCK_EX", "LOCK_EX, 10, 100"), tmp_path / ".lock")
    assert query_lock(fd) == LockState(held=True, pid=child.pid, present=True, readable=True, shared=True)


def test_lock_of_an_open_file_description_has_no_pid(fd: int, tmp_path: Path, spawn: Spawn) -> None:
    spawn(OFD_LOCK, tmp_path / ".lock")
    assert query_lock(fd) == LockState(held=True, pid=None, present=True, readable=True)


def test_flock_is_another_kind_of_lock(fd: int, tmp_path: Path, spawn: Spawn) -> None:
    spawn(FLOCK, tmp_path / ".lock")
    assert not query_lock(fd).held


def test_the_end_of_the_process_frees_it(fd: int, tmp_path: Path, spawn: Spawn) -> None:
    child = spawn(POSIX_LOCK, tmp_path / ".lock")
    assert query_lock(fd).held
    child.close()
    assert not query_lock(fd).held


def test_a_new_inode_is_seen(fd: int, tmp_path: Path, spawn: Spawn) -> None:
    """A broker unlinks `.lock` at a clean stop and makes a new one at its next start."""
    (tmp_path / ".lock").touch()
    interlock = Interlock(fd, str(tmp_path), Clock())
    interlock.before()
    (tmp_path / ".lock").unlink()
    child = spawn(POSIX_LOCK, tmp_path / ".lock")
    with pytest.raises(BrokerHoldsLogDir) as caught:
        interlock.after_rename()
    assert caught.value.pid == child.pid


@pytest.mark.parametrize("what", ["symlink", "fifo", "directory", "socket"])
def test_a_lock_that_is_no_regular_file_is_unreadable(fd: int, tmp_path: Path, what: str) -> None:
    lock = tmp_path / ".lock"
    if what == "symlink":
        target = tmp_path / "target"
        target.touch()
        lock.symlink_to(target)
    elif what == "fifo":
        os.mkfifo(lock)
    elif what == "directory":
        lock.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(lock))
    seen = query_lock(fd)
    assert (seen.held, seen.present, seen.readable) == (False, True, False)
    with pytest.raises(BrokerHoldsLogDir, match="it is not a regular file"):
        Interlock(fd, str(tmp_path)).before()


def test_a_check_is_valid_for_two_milliseconds_from_its_start(fd: int, tmp_path: Path, spawn: Spawn) -> None:
    clock = Clock()
    interlock = Interlock(fd, str(tmp_path), clock)
    interlock.before()
    spawn(POSIX_LOCK, tmp_path / ".lock")
    clock.now += 0.0019
    interlock.before()
    clock.now += 0.0001
    with pytest.raises(BrokerHoldsLogDir) as caught:
        interlock.before()
    assert caught.value.log_dir == str(tmp_path)
    assert caught.value.hint
    # A refusal leaves nothing behind that would permit the next call.
    with pytest.raises(BrokerHoldsLogDir):
        interlock.before()


def test_waiting_makes_the_last_check_worthless(fd: int, tmp_path: Path, spawn: Spawn) -> None:
    interlock = Interlock(fd, str(tmp_path), Clock())
    interlock.before()
    spawn(POSIX_LOCK, tmp_path / ".lock")
    interlock.before()
    interlock.expire()
    with pytest.raises(BrokerHoldsLogDir):
        interlock.before()


def test_after_a_rename_that_a_broker_overtook_nothing_else_is_permitted(fd: int, tmp_path: Path, spawn: Spawn) -> None:
    """Not even by the look before it, which is still good for a moment."""
    interlock = Interlock(fd, str(tmp_path), Clock())
    interlock.before()
    spawn(POSIX_LOCK, tmp_path / ".lock")
    for again in (interlock.after_rename, interlock.before):
        with pytest.raises(BrokerHoldsLogDir):
            again()


def test_slow_checks_are_repeated_and_then_refused(fd: int, tmp_path: Path) -> None:
    clock = Clock(step=0.0021)
    with pytest.raises(BrokerHoldsLogDir, match="over 2 ms"):
        Interlock(fd, str(tmp_path), clock).before()
    # Asked once by before(), then twice for each look.
    assert round((clock.now - 100) / 0.0021) == 1 + 2 * MAX_SLOW_QUERIES

    asked: list[float] = []

    def slow_twice() -> float:
        asked.append(100 + sum(0.003 for _ in asked) if len(asked) < 5 else 200.0)
        return asked[-1]

    Interlock(fd, str(tmp_path), slow_twice).before()
    assert len(asked) == 7


def test_holder_watch_wants_the_same_holder(fd: int, tmp_path: Path, spawn: Spawn) -> None:
    first = spawn(POSIX_LOCK, tmp_path / ".lock")
    watch = HolderWatch(fd, str(tmp_path), first.pid, Clock(step=0.0003))
    for _ in range(20):
        watch.before()
    first.close()
    with pytest.raises(BrokerHoldsLogDir, match="nobody holds it"):
        watch.expire()
        watch.before()
    second = spawn(POSIX_LOCK, tmp_path / ".lock")
    with pytest.raises(BrokerHoldsLogDir, match=f"process {second.pid} holds it"):
        watch.before()


def test_a_holder_that_the_kernel_does_not_name_is_never_the_same(fd: int, tmp_path: Path, spawn: Spawn) -> None:
    spawn(OFD_LOCK, tmp_path / ".lock")
    with pytest.raises(BrokerHoldsLogDir, match="cannot be identified"):
        HolderWatch(fd, str(tmp_path), None).before()


def test_a_shared_lock_of_that_process_holds_nothing(fd: int, tmp_path: Path, spawn: Spawn) -> None:
    holder = spawn(SHARED_LOCK, tmp_path / ".lock")
    with pytest.raises(BrokerHoldsLogDir, match="nobody holds it"):
        HolderWatch(fd, str(tmp_path), holder.pid).before()


def test_a_holder_watch_that_cannot_tell_says_why(fd: int, tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(BrokerHoldsLogDir, match="not a regular file"):
        HolderWatch(fd, str(tmp_path), os.getpid()).before()
