"""The lock on each log dir that keeps two logagents with different state dirs from acting at once."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Collection, Iterable

from logagent.errors import Busy, ItemFailed, KafkaStorageError, LogAgentError
from logagent.host.linux.flocks import flock_holders, only_strangers
from logagent.host.log_dir.calls import DirectCalls, DiskCalls
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.state.executor_lock import POLL_SECONDS


def hold_log_dirs(
    log_dirs: Iterable[OpenLogDir],
    *,
    wait_seconds: float,
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
    calls: DiskCalls | None = None,
) -> None:
    """Keep any other logagent from acting on these log dirs while they are open, whatever state dir it uses.

    An `flock` on each directory itself, which no broker looks at (Kafka's lock is a record lock on `.lock`). Two state
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
        return calls.look(log_dir.path, lambda: _flock(log_dir))
    except KafkaStorageError:
        return True


def _locked_by_another(log_dir: OpenLogDir) -> LogAgentError:
    pids = flock_holders(log_dir.fd)
    if pids == [os.getpid()]:
        # No other logagent that will have finished soon: it must not be told as one.
        return ItemFailed(
            f"this process itself still has {log_dir.path} locked: something of an earlier cycle has not ended",
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
    """Take a shared lock beside theirs, so that the next logagent sees this one; False if one did so meanwhile."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True  # theirs is exclusive: only the executor lock protects
    others = [pid for pid in flock_holders(fd) if pid != os.getpid()]
    if not others or only_strangers(others, users):
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False
