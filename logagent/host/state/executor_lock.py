"""The lock in the state dir that lets only one logagent process act at a time, and who waits for it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from logagent.errors import Busy, JournalError, LogAgentError
from logagent.host.linux.proc import thread_states
from logagent.host.state.state_dir import hint_on

LOCK_NAME = "executor.lock"
# Locked (shared) by processes that wait for the executor lock, so that a holder that works for hours can let them in.
WAITING_NAME = "executor.waiting"
POLL_SECONDS = 0.05


class ExecutorLock:
    """Held by the process that acts (a CLI command for its run, the daemon per cycle): two never act at once.

    Another `name` is a separate lock: the daemon's, held as long as it runs, so that there is only one.

    It is an `flock` on a file in the state dir, released by the kernel when we die. The file says who holds it.
    """

    def __init__(
        self,
        state_dir: str,
        who: str,
        *,
        wait_seconds: float,
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
        name: str = LOCK_NAME,
    ) -> None:
        self._path = os.path.join(state_dir, name)
        self._who = who
        self._doing, self._hint = (
            ("acting", "wait until it has finished")
            if name == LOCK_NAME
            else (
                "running",
                "only one may run per state dir: stop that one, or name another state dir with --state-dir",
            )
        )
        self._wait = wait_seconds
        self._monotonic = monotonic
        self._sleep = sleep
        self._fd = -1
        self._waiting_fd = -1
        self._at: str | None = None

    def __enter__(self) -> Self:
        """Take it, waiting at most `wait_seconds`. Raises Busy (exit 1), which names the holder, or JournalError."""
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            deadline = self._monotonic() + self._wait
            while not self._try():
                if self._monotonic() >= deadline:
                    raise self._held()
                self._say_waiting()
                self._sleep(POLL_SECONDS)
            self._waiting_fd = _closed(self._waiting_fd)
            self._write_holder()
        except OSError as e:
            self._close()
            raise JournalError(f"{self._path} cannot be locked: {e.strerror}", hint=hint_on(e.errno)) from e
        except LogAgentError:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _try(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _held(self) -> LogAgentError:
        lines = os.pread(self._fd, 8192, 0).decode("utf-8", "replace").splitlines()
        pid, _, who = (lines[0] if lines else "").partition(" ")
        where, hint = f"process {pid or 'unknown'}", self._hint
        if len(lines) > 1:
            where += f", at {lines[1]}" if lines[1].startswith("/") else f", {lines[1]}"
        if waits_for_disk(pid):
            where += ", waiting for a disk that does not answer"
            hint = f"repair that disk; process {pid} ends when the disk answers again, or with kill -9 if that works"
        return Busy(f"another logagent is {self._doing}: {who or 'unknown'} ({where}) holds {self._path}", hint=hint)

    def note(self, path: str | None) -> None:
        """Write into the lock file which log dir (or call) the holder may be waiting for, because nobody else can find
        that out if it hangs. None: nothing."""
        if path != self._at and self._fd >= 0:
            self._at = path
            self._write_holder()

    def _write_holder(self) -> None:
        """For processes that are refused the lock. If there is no space to write it, the lock holds all the same."""
        at = b"" if self._at is None else os.fsencode(self._at).replace(b"\n", b"?") + b"\n"
        said = f"{os.getpid()} {self._who}\n".encode() + at
        try:
            # Never empty in between, for a concurrent reader.
            os.pwrite(self._fd, said, 0)
            os.ftruncate(self._fd, len(said))
        except OSError as e:
            if e.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def _say_waiting(self) -> None:
        if self._waiting_fd < 0:
            path = os.path.join(os.path.dirname(self._path), WAITING_NAME)
            try:
                self._waiting_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
            except OSError as e:
                if e.errno in (errno.ENOSPC, errno.EDQUOT):
                    return
                raise
        with suppress(BlockingIOError):
            fcntl.flock(self._waiting_fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def _close(self) -> None:
        self._waiting_fd = _closed(self._waiting_fd)
        self._fd = _closed(self._fd)


def waits_for_disk(pid: str) -> bool:
    """Whether a thread of the process is in a disk call (the kernel's state D) at two looks in a row: a healthy disk
    answers within moments."""
    for attempt in range(2):
        if attempt:
            time.sleep(POLL_SECONDS)
        if not pid.isdecimal() or "D" not in thread_states(int(pid)):
            return False
    return True


def _closed(fd: int) -> int:
    if fd >= 0:
        # A child of ours that hangs (`host.linux.child`) has it open, too, and would keep the lock.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)
    return -1


def somebody_waits(state_dir: str) -> bool:
    """Whether another logagent process waits for the executor lock of this state dir, and holds nothing yet."""
    try:
        fd = os.open(os.path.join(state_dir, WAITING_NAME), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        return isinstance(e, BlockingIOError)
    finally:
        os.close(fd)
    return False
