"""The broker's `.lock`: looked at, never touched.

Kafka takes `.lock` in every log dir with `FileChannel.tryLock` (`LogManager.lockLogDirs`, `FileLock.java`): a POSIX
record lock, exclusive, on the whole file. We never create, lock or unlink that file: our own lock would make a
broker's start fail, and a broker that opened the file just before we unlinked it would lock a dead inode and be
invisible from then on. So we ask who would stand in our way (`F_OFD_GETLK`, else `F_GETLK`) and keep asking while we
work. This replaces the lock that another Kafka tool would take: a deviation with that reason.

What remains: a process that is stopped (SIGSTOP, a paused VM, a thread that waits for Python's global lock) between a
look and the call after it, for longer than a broker needs from its lock to its first listing (18.5 ms was the
shortest seen). A program that removes while other threads of it run should lower `sys.setswitchinterval`.
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

from logagent.errors import BrokerHoldsLogDir

LOCK_FILE = ".lock"
# A look is good for this long, counted from its start; one that took longer itself says nothing about now.
LOOK_VALID_SECONDS = 0.002
# So many slow looks in a row and the machine is too busy to act safely on it.
MAX_SLOW_LOOKS = 25

_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
# struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid, and the padding that C adds.
_FLOCK = struct.Struct("hhqqi4x")
_QUESTION = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class LockLook:
    """What one look at `.lock` saw.

    held: somebody has a record lock on it that conflicts with an exclusive one (told by the lock's type: over PID
    namespaces, and for locks of an open file description, there is no usable PID). pid: the holder's, where the kernel
    names one. present: the file is there, which alone proves nothing: Kafka unlinks it at a clean stop and leaves it
    behind when killed. readable: False if it could not be told; then `errno` says why (None: it is not a regular file).
    """

    held: bool
    pid: int | None
    present: bool
    readable: bool
    errno: int | None = None


_ABSENT = LockLook(held=False, pid=None, present=False, readable=True)
_FREE = LockLook(held=False, pid=None, present=True, readable=True)


def look(dir_fd: int) -> LockLook:
    """Open `.lock` below `dir_fd` anew (its inode changes over restarts) and ask who has it locked.

    Raises nothing: what cannot be told comes back as `readable=False`.
    """
    try:
        fd = os.open(LOCK_FILE, _OPEN_FLAGS, dir_fd=dir_fd)
    except FileNotFoundError:
        return _ABSENT
    except OSError as error:
        # A socket gives ENXIO like a dead disk does, so what stands there decides what the error means.
        why = error.errno if _may_be_a_file(dir_fd) else None
        return LockLook(held=False, pid=None, present=True, readable=False, errno=why)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return LockLook(held=False, pid=None, present=True, readable=False)
        kind, _, _, _, pid = _FLOCK.unpack(_ask(fd))
    except OSError as error:
        return LockLook(held=False, pid=None, present=True, readable=False, errno=error.errno)
    finally:
        os.close(fd)
    if kind == fcntl.F_UNLCK:
        return _FREE
    return LockLook(held=True, pid=pid if pid > 0 else None, present=True, readable=True)


def _may_be_a_file(dir_fd: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(LOCK_FILE, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    except OSError:
        return True


def _ask(fd: int) -> bytes:
    try:
        return fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _QUESTION)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # Kernels before 3.15 and some network file systems know only the older question.
        return fcntl.fcntl(fd, fcntl.F_GETLK, _QUESTION)


class Watch(Protocol):
    """What every rename, unlink, truncate and rmdir asks immediately before it happens."""

    def before(self) -> None: ...

    def expire(self) -> None: ...


class _Looker:
    """Looks again when the last look is too old; what counts as "may go on" is the subclass's."""

    __slots__ = ("_dir_fd", "_log_dir", "_monotonic", "_valid_until")

    def __init__(self, dir_fd: int, log_dir: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._dir_fd = dir_fd
        self._log_dir = log_dir
        self._monotonic = monotonic
        self._valid_until = float("-inf")

    def before(self) -> None:
        """Return only if a look that started less than 2 ms ago permits the next call.

        Raises `BrokerHoldsLogDir` otherwise, and `OSError` if the disk under the log dir fails.
        """
        if self._monotonic() < self._valid_until:
            return
        self._look()

    def expire(self) -> None:
        """Forget the last look: the next `before()` looks, whatever the clock says."""
        self._valid_until = float("-inf")

    def _look(self) -> None:
        self._valid_until = float("-inf")
        for _ in range(MAX_SLOW_LOOKS):
            started = self._monotonic()
            self._judge(look(self._dir_fd))
            valid_until = started + LOOK_VALID_SECONDS
            if self._monotonic() < valid_until:
                self._valid_until = valid_until
                return
        raise BrokerHoldsLogDir(
            f"{MAX_SLOW_LOOKS} looks at {self._log_dir}/{LOCK_FILE} in a row took over 2 ms each:"
            " it cannot be told in time whether a broker starts",
            log_dir=self._log_dir,
            hint="try again when the host is less busy",
        )

    def _judge(self, seen: LockLook) -> None:
        raise NotImplementedError

    def _unreadable(self, seen: LockLook) -> NoReturn:
        if seen.errno is not None and seen.errno not in (errno.EACCES, errno.EPERM):
            # The disk, not the file: the wrapper around the action decides whether the log dir is offline.
            raise OSError(seen.errno, os.strerror(seen.errno), f"{self._log_dir}/{LOCK_FILE}")
        why = os.strerror(seen.errno) if seen.errno is not None else "it is not a regular file"
        raise BrokerHoldsLogDir(
            f"{self._log_dir}/{LOCK_FILE} cannot be read ({why}): it cannot be told whether a broker holds the log dir",
            log_dir=self._log_dir,
            hint="run as the broker's user, and look at what stands at that path",
        )


class Interlock(_Looker):
    """Lets work on a log dir go on only while **nobody** holds it (behaviour, guard `lock`).

    One object per worker and batch: `before()` immediately before every rename, unlink, truncate and rmdir;
    `after_rename()` right after each rename; `expire()` after every sleep. All waiting comes before a look, never
    after one. Not safe for use by two threads at once.
    """

    __slots__ = ()

    def after_rename(self) -> None:
        """Look once more, whatever the clock says. Raises `BrokerHoldsLogDir`: stop here, the rename is done."""
        self._look()

    def _judge(self, seen: LockLook) -> None:
        if seen.held:
            who = f"process {seen.pid}" if seen.pid else "a process that cannot be named from here"
            raise BrokerHoldsLogDir(
                f"{who} holds the lock of {self._log_dir}",
                log_dir=self._log_dir,
                pid=seen.pid,
                hint="stop the broker first; what is marked already, the broker takes over itself",
            )
        if not seen.readable:
            self._unreadable(seen)


class HolderWatch(_Looker):
    """Lets work on a `-stray` dir go on only while **the same** broker keeps holding the log dir.

    The exception of guard `in-use`: strays of a serving broker are removed under it. The moment that broker stops, the
    next one may be loading those very directories, so the work stops too. `pid` is the holder that was seen serving
    (None where the kernel does not name it). The restart of a JVM takes far longer than the 2 ms between looks.
    """

    __slots__ = ("_pid",)

    def __init__(
        self, dir_fd: int, log_dir: str, pid: int | None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(dir_fd, log_dir, monotonic)
        self._pid = pid

    def _judge(self, seen: LockLook) -> None:
        if not seen.readable:
            self._unreadable(seen)
        if not seen.held or seen.pid is None or seen.pid != self._pid:
            # A holder without a number (another PID namespace) could be a new one: never taken for the same.
            who = "nobody" if not seen.held else f"process {seen.pid}" if seen.pid else "a process without a name here"
            raise BrokerHoldsLogDir(
                f"the broker (process {self._pid}) that held {self._log_dir} no longer does: now {who} holds it",
                log_dir=self._log_dir,
                pid=seen.pid,
                hint="run it again: the rest is removed in the next window",
            )
