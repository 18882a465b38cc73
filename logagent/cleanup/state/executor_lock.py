"""The locks that let only one logagent act at a time: in the state dir, and on each log dir for those with another."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Self

from logagent.base.errors import Busy, ItemFailed, JournalError, KafkaStorageError, LogAgentError
from logagent.base.linux.kernel import close_unlocked, flock_holders, only_strangers, thread_states
from logagent.base.linux.state_dir import check_writable, hint_on
from logagent.cleanup.state.journal_schema import FILE_NAME
from logagent.cleanup.state.reserve import BESIDE
from logagent.disk.calls import DirectCalls, DiskCalls
from logagent.disk.log_dir import OpenLogDir

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
        """Take it, waiting at most `wait_seconds`. Raises Busy, which names the holder, or JournalError."""
        try:
            self._fd = _opened(self._path, os.O_CREAT)
            deadline = self._monotonic() + self._wait
            while not _is_free(self._fd):
                if self._monotonic() >= deadline:
                    raise self._held()
                self._say_waiting()
                self._sleep(POLL_SECONDS)
            self._waiting_fd = _closed(self._waiting_fd)
            self._write_holder()
        except OSError as e:
            self._close()
            raise _not_to_be_opened(self._path, e) from e
        except LogAgentError:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

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
        text = f"{os.getpid()} {self._who}\n".encode() + at
        try:
            # Never empty in between, for a concurrent reader.
            os.pwrite(self._fd, text, 0)
            os.ftruncate(self._fd, len(text))
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
        with suppress(BlockingIOError):  # `somebody_waits` is testing it at this moment; the next round tries again
            fcntl.flock(self._waiting_fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def _close(self) -> None:
        self._waiting_fd = _closed(self._waiting_fd)
        self._fd = _closed(self._fd)


def why_not_to_be_opened(state_dir: str) -> JournalError | None:
    """Why a command that acts could not lock, or write the journal, whoever has them, in a state dir where files can be
    made: SQLite writes nothing to a file that may only be read (`chattr +i`, root's). Creates, locks and changes
    nothing. Only before this process opens the journal: to close a file ends SQLite's locks on it."""
    try:
        check_writable(state_dir)
    except OSError:
        return None  # `why_acting_would_fail` says so
    for name in (LOCK_NAME, FILE_NAME, *(FILE_NAME + suffix for suffix in BESIDE)):
        path = os.path.join(state_dir, name)
        try:
            os.close(_opened(path, 0))
        except FileNotFoundError:
            continue
        except OSError as e:
            return _not_to_be_opened(path, e)
    return None


def _opened(path: str, make: int) -> int:
    fd = os.open(path, os.O_RDWR | make | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is not a regular file")


def _not_to_be_opened(path: str, error: OSError) -> JournalError:
    done = "locked" if path.endswith(LOCK_NAME) else "written"
    return JournalError(f"{path} cannot be {done}: {error.strerror}", hint=hint_on(error.errno, path))


def waits_for_disk(pid: str) -> bool:
    """Whether a thread of the process is in a disk call (the kernel's state D) twice in a row: a healthy disk
    answers within moments."""
    for attempt in range(2):
        if attempt:
            time.sleep(POLL_SECONDS)
        if not pid.isdecimal() or "D" not in thread_states(int(pid)):
            return False
    return True


def _is_free(fd: int) -> bool:
    """Take the lock; False if another process has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _closed(fd: int) -> int:
    if fd >= 0:
        close_unlocked(fd)
    return -1


def somebody_waits(state_dir: str) -> bool:
    """Whether another logagent process waits for the executor lock of this state dir, and holds nothing yet."""
    try:
        fd = os.open(os.path.join(state_dir, WAITING_NAME), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not _is_free(fd)
    except OSError:
        return False
    finally:
        os.close(fd)


def hold_log_dirs(
    log_dirs: Iterable[OpenLogDir],
    *,
    wait_seconds: float,
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
    calls: DiskCalls | None = None,
) -> None:
    """Keep any other logagent from acting on these log dirs while they are open, whatever state dir it uses.

    An `flock` on each directory itself, which no broker reads (Kafka's lock is a record lock on `.lock`). Two state
    dirs mean two executor locks: one process could rename the checkpoint temp file of the other while it is being
    written. On file systems that cannot lock a directory (some network ones) only the executor lock protects; so it
    does if the only lock holders are users who cannot write to the log dir (anyone who may list a directory may lock
    it). Raises LogAgentError.
    """
    deadline = monotonic() + wait_seconds
    for log_dir in log_dirs:
        while not _locked(log_dir, calls or DirectCalls()):
            if monotonic() >= deadline:
                raise _locked_by_another(log_dir)
            sleep(POLL_SECONDS)


def _locked(log_dir: OpenLogDir, calls: DiskCalls) -> bool:
    """True also for a log dir that went offline: nothing more is done there."""
    try:
        return calls.call(log_dir.path, lambda: _flock(log_dir))
    except KafkaStorageError:
        return True


def _locked_by_another(log_dir: OpenLogDir) -> LogAgentError:
    pids = flock_holders(log_dir.fd)
    if pids == [os.getpid()]:
        # No other logagent that will have finished soon: it must not be reported as one.
        return ItemFailed(
            f"this process still has {log_dir.path} locked: an operation of an earlier cycle has not ended",
            path=log_dir.path,
            hint="restart the daemon, and report this",
        )
    if not pids:  # held from another PID namespace, or by a child of a process that has ended
        return Busy(
            f"{log_dir.path} is locked (flock) by a process that cannot be seen from here, as another logagent would",
            hint="run one logagent for these log dirs, not one inside and one outside a container",
        )
    return Busy(
        f"another logagent is acting on {log_dir.path}, with another state dir (process {pids[0]})",
        hint="wait until it has finished, and give all of them the same --state-dir",
    )


def _flock(log_dir: OpenLogDir) -> bool:
    """False if another logagent has it; True also if only users hold it who could never act here. Raises
    KafkaStorageError if its disk fails."""
    with log_dir.acting("lock"):
        fd = log_dir.fd
        users = {0, os.geteuid(), os.fstat(fd).st_uid}
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return only_strangers(flock_holders(fd), users) and _beside_strangers(fd, users)
        except OSError as e:
            if e.errno not in (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
    return True


def _beside_strangers(fd: int, users: Collection[int]) -> bool:
    """Take a shared lock beside the strangers', so that the next logagent sees this one; False if one did so
    meanwhile."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True  # the strangers' lock is exclusive: only the executor lock protects
    others = [pid for pid in flock_holders(fd) if pid != os.getpid()]
    if not others or only_strangers(others, users):
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False
