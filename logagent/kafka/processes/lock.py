"""The broker's `.lock`: its state is read, and it is never touched.

Kafka locks `.lock` in every log dir with `FileChannel.tryLock` (`LogManager.lockLogDirs`, `FileLock.java`): an
exclusive POSIX record lock on the whole file. We never create, lock or unlink that file: our own lock would make a
broker's start fail, and a broker that opened the file just before we unlinked it would lock a dead inode and be
invisible from then on. Instead we query which lock conflicts with ours (`F_OFD_GETLK`, else `F_GETLK`), and repeat that
while we work. Anyone who may read the file can lock it too, but only shared; the two are distinguished, or any local
user could pose as a broker. For these reasons we deviate from other Kafka tools, which take the lock.

A remaining risk: our process is stopped (SIGSTOP, a paused VM, a thread waiting for Python's global lock) between a
check and the following call for longer than a broker needs from its lock to its first listing (the shortest observed
was 18.5 ms). A program that removes files while it runs other threads should lower `sys.setswitchinterval`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol

from logagent.base.errors import BrokerHoldsLogDir

LOCK_FILE = ".lock"
# A check is valid for this long from its start; one that itself took longer says nothing about the present.
LOCK_VALID_SECONDS = 0.002
# After this many slow checks in a row the host is too busy to act safely.
MAX_SLOW_QUERIES = 25

_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
# struct flock on 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid, and C's padding.
_FLOCK = struct.Struct("hhqqi4x")
_ANY_LOCK = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_EXCLUSIVE_LOCK = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class LockState:
    """The state of `.lock` at one moment.

    held: somebody has an exclusive lock on it, as a broker does and as only users with write access can. This is judged
    by the lock's type: across PID namespaces, and for locks of an open file description, there is no usable PID.
    shared: somebody has a shared lock on it, as any user with read access can; it is not a broker's, but no broker can
    start meanwhile. pid: the holder's, if the kernel reports one. present: the file exists, which alone proves nothing:
    Kafka unlinks it at a clean stop and leaves it behind when killed. readable: False if the lock could not be
    determined; then `errno` says why (None: it is not a regular file).
    """

    held: bool
    pid: int | None
    present: bool
    readable: bool
    errno: int | None = None
    shared: bool = False


_ABSENT = LockState(held=False, pid=None, present=False, readable=True)
_FREE = LockState(held=False, pid=None, present=True, readable=True)


def query_lock(dir_fd: int) -> LockState:
    """Open `.lock` in `dir_fd` (again on every call: its inode changes across restarts) and query its lock.

    Does not raise: if the lock cannot be determined, `readable` is False.
    """
    try:
        fd = os.open(LOCK_FILE, _OPEN_FLAGS, dir_fd=dir_fd)
    except FileNotFoundError:
        return _ABSENT
    except OSError as error:
        # A socket gives ENXIO just as a dead disk does, so the kind of file decides what the error means.
        why = error.errno if _may_be_a_file(dir_fd) else None
        return LockState(held=False, pid=None, present=True, readable=False, errno=why)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return LockState(held=False, pid=None, present=True, readable=False)
        kind, _, _, _, pid = _FLOCK.unpack(_ask(fd, _ANY_LOCK))
        shared = kind == fcntl.F_RDLCK
        if shared:  # there could still be an exclusive lock on another part of the file
            exclusive = _FLOCK.unpack(_ask(fd, _EXCLUSIVE_LOCK))
            kind, pid = (exclusive[0], exclusive[4]) if exclusive[0] != fcntl.F_UNLCK else (fcntl.F_UNLCK, pid)
    except OSError as error:
        return LockState(held=False, pid=None, present=True, readable=False, errno=error.errno)
    finally:
        os.close(fd)
    if kind == fcntl.F_UNLCK and not shared:
        return _FREE
    named = pid if pid > 0 else None
    return LockState(held=kind != fcntl.F_UNLCK, pid=named, present=True, readable=True, shared=shared)


def process_named(pid: int | None) -> str:
    return f"process {pid}" if pid else "a process that cannot be identified from here"


def _may_be_a_file(dir_fd: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(LOCK_FILE, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    except OSError:
        return True


def _ask(fd: int, question: bytes) -> bytes:
    try:
        return fcntl.fcntl(fd, fcntl.F_OFD_GETLK, question)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # Kernels before 3.15 and some network file systems support only the older query.
        return fcntl.fcntl(fd, fcntl.F_GETLK, question)


class Watch(Protocol):
    """Checked immediately before every rename, unlink, truncate and rmdir."""

    def before(self) -> None: ...

    def expire(self) -> None: ...


class _LockCheck:
    """Checks again when the last check is too old; the subclass decides whether work may continue."""

    __slots__ = ("_dir_fd", "_log_dir", "_monotonic", "_valid_until")

    def __init__(self, dir_fd: int, log_dir: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._dir_fd = dir_fd
        self._log_dir = log_dir
        self._monotonic = monotonic
        self._valid_until = float("-inf")

    def before(self) -> None:
        """Return only if a check that started less than 2 ms ago permits the next call.

        Raises `BrokerHoldsLogDir` otherwise, and `OSError` if the disk under the log dir fails.
        """
        if self._monotonic() < self._valid_until:
            return
        self._query()

    def expire(self) -> None:
        """Forget the last check: the next `before()` checks again in any case."""
        self._valid_until = float("-inf")

    def _query(self) -> None:
        self._valid_until = float("-inf")
        for _ in range(MAX_SLOW_QUERIES):
            started = self._monotonic()
            self._judge(query_lock(self._dir_fd))
            valid_until = started + LOCK_VALID_SECONDS
            if self._monotonic() < valid_until:
                self._valid_until = valid_until
                return
        raise BrokerHoldsLogDir(
            f"{MAX_SLOW_QUERIES} queries of {self._log_dir}/{LOCK_FILE} in a row took over 2 ms each:"
            " cannot tell in time whether a broker is starting",
            log_dir=self._log_dir,
            hint="try again when the host is less busy",
        )

    def _judge(self, seen: LockState) -> None:
        raise NotImplementedError

    def _unreadable(self, seen: LockState) -> NoReturn:
        if seen.errno is not None and seen.errno not in (errno.EACCES, errno.EPERM):
            # The disk has failed, not the file: the wrapper around the action decides whether the log dir is offline.
            raise OSError(seen.errno, os.strerror(seen.errno), f"{self._log_dir}/{LOCK_FILE}")
        why = os.strerror(seen.errno) if seen.errno is not None else "it is not a regular file"
        raise BrokerHoldsLogDir(
            f"{self._log_dir}/{LOCK_FILE} cannot be read ({why}): cannot tell whether a broker holds the log dir",
            log_dir=self._log_dir,
            hint="run as the broker's user, and check what is at that path",
        )


class Interlock(_LockCheck):
    """Permits work on a log dir only while **nobody** holds it (behaviour, guard `lock`).

    Use one object per worker and batch: call `before()` immediately before every rename, unlink, truncate and rmdir,
    `after_rename()` right after each rename, and `expire()` after every sleep. Always wait before a check, never after
    one. Not thread-safe.
    """

    __slots__ = ()

    def after_rename(self) -> None:
        """Check again in any case. `BrokerHoldsLogDir` means: the rename is done, but stop here."""
        self._query()

    def _judge(self, seen: LockState) -> None:
        if seen.held:
            raise BrokerHoldsLogDir(
                f"{process_named(seen.pid)} holds the lock of {self._log_dir}",
                log_dir=self._log_dir,
                pid=seen.pid,
                hint="stop the broker first; the broker itself removes what is already marked",
            )
        if not seen.readable:
            self._unreadable(seen)


class HolderWatch(_LockCheck):
    """Permits work on a `-stray` dir only while **the same** broker holds the log dir.

    For the exception in guard `in-use`: strays of a serving broker are removed while it runs. Once that broker stops,
    the next one may be loading these very directories, so the work stops too. `pid` is the holder that was seen serving
    (None if the kernel does not report it). A JVM takes far longer to restart than the 2 ms between checks.
    """

    __slots__ = ("_pid",)

    def __init__(
        self, dir_fd: int, log_dir: str, pid: int | None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(dir_fd, log_dir, monotonic)
        self._pid = pid

    def _judge(self, seen: LockState) -> None:
        if not seen.readable:
            self._unreadable(seen)
        if not seen.held or seen.pid is None or seen.pid != self._pid:
            # A holder without a PID (in another PID namespace) could be a new broker: never treat it as the same.
            who = process_named(seen.pid) if seen.held else "nobody"
            raise BrokerHoldsLogDir(
                f"the broker (process {self._pid}) that held {self._log_dir} no longer does: now {who} holds it",
                log_dir=self._log_dir,
                pid=seen.pid,
                hint="run it again: the rest is removed in the next window",
            )
