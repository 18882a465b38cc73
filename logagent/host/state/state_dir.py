"""The state dir: the journal's home, whose it is, and the lock that lets only one of us act at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from logagent.errors import Busy, JournalError, KafkaStorageError, LogAgentError
from logagent.host.linux.proc import thread_states
from logagent.host.log_dir.calls import DirectCalls, DiskCalls
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.state.as_root import become, make_as_root
from logagent.model.records import Identity

DEFAULT_STATE_DIR = "/var/lib/logagent"
LOCK_NAME = "executor.lock"
# Locked (shared) by whoever waits for the executor lock, so that one who works for hours can let others in.
WAITING_NAME = "executor.waiting"
_POLL_SECONDS = 0.05


def default_state_dir(environ: Mapping[str, str], default: str = DEFAULT_STATE_DIR, name: str = "logagent") -> str:
    """`/var/lib/logagent`, or `$XDG_STATE_HOME/logagent` for a user who can neither write nor create that; of an
    instance (`default` and `name` are its), `logagent-NAME` in either."""
    writable = default if os.path.isdir(default) else os.path.dirname(default)
    if os.access(writable, os.W_OK | os.X_OK):
        return default
    home = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME", "/"), ".local", "state")
    return os.path.join(home, name)


def prepare_state_dir(path: str, owner_like: str | None, log_dirs: Sequence[str] = ()) -> None:
    """Make the state dir (mode 0750) where it is not there.

    As root: one that this call makes is given to the owner of `owner_like` (the log dir), and then root becomes the
    owner of the state dir for good, so that nothing is ever created as root in a log dir of the broker's user. Root
    follows no symlink on the way, goes through no directory that another user can write, and gives away nothing that
    it did not make. Raises JournalError, also for a place in one of `log_dirs`: no broker starts with a directory such
    as `state` or `.local` in a log dir (and the home of the broker's user can be one).
    """
    try:
        _keep_out(path, log_dirs)
        if os.geteuid() == 0:
            like = os.stat(owner_like) if owner_like is not None else None
            owner = make_as_root(os.path.abspath(path), (like.st_uid, like.st_gid) if like is not None else None)
            if owner.st_uid == 0 and like is not None and like.st_uid != 0:
                raise JournalError(
                    f"the state dir {path} is root's, but the log dir {owner_like} belongs to user {like.st_uid}",
                    hint=f"chown -R {like.st_uid}:{like.st_gid} {shlex.quote(path)}, or name another with --state-dir",
                )
            become(owner)
        elif not os.path.isdir(path):
            os.makedirs(path, mode=0o750)
        if not os.access(path, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as e:
        raise JournalError(
            f"the state dir {path} cannot be used: {e.strerror}",
            hint="run as the broker's user, or name a state dir of your own with --state-dir",
        ) from e


def _keep_out(path: str, log_dirs: Sequence[str]) -> None:
    """Told by device and inode of every directory above: symlinks and bind mounts give one directory many paths."""
    forbidden: dict[tuple[int, int], str] = {}
    for log_dir in log_dirs:
        with suppress(OSError):
            found = os.stat(log_dir)
            forbidden[found.st_dev, found.st_ino] = log_dir
    above = os.path.realpath(path)
    while True:
        with suppress(FileNotFoundError):
            found = os.stat(above)
            if (log_dir := forbidden.get((found.st_dev, found.st_ino), "")) != "":
                raise JournalError(
                    f"the state dir {path} lies in the log dir {log_dir}, where no broker would start with it",
                    hint="name a state dir elsewhere with --state-dir",
                )
        if above == "/":
            return
        above = os.path.dirname(above)


class ExecutorLock:
    """Held by whoever acts (a CLI command for its run, the daemon per cycle): two never act at once.

    With another `name` it is a lock of its own: the daemon's, held as long as it runs, so that there is one.

    An `flock` on a file in the state dir, released by the kernel when we die. The file says who holds it.
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
            else ("running", "there is one per state dir: stop that one, or name another state dir with --state-dir")
        )
        self._wait = wait_seconds
        self._monotonic = monotonic
        self._sleep = sleep
        self._fd = -1
        self._waiting_fd = -1
        self._at: str | None = None

    def __enter__(self) -> Self:
        """Take it, waiting at most `wait_seconds`. Raises Busy (exit 1) that names the holder, or JournalError."""
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            deadline = self._monotonic() + self._wait
            while not self._try():
                if self._monotonic() >= deadline:
                    raise self._held()
                self._say_waiting()
                self._sleep(_POLL_SECONDS)
            self._waiting_fd = _closed(self._waiting_fd)
            self._say_who()
        except OSError as e:
            self._close()
            raise JournalError(f"{self._path} cannot be locked: {e.strerror}", hint="repair the state dir first") from e
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
            where += f", at {lines[1]}"
        if waits_for_disk(pid):
            where += ", waiting for a disk that does not answer"
            hint = f"repair that disk; process {pid} ends when it answers again, or with kill -9 where that helps"
        return Busy(f"another logagent is {self._doing}: {who or 'unknown'} ({where}) holds {self._path}", hint=hint)

    def note(self, path: str) -> None:
        """Say in the lock's file which log dir its holder is at: of one that hangs there, nobody else can tell."""
        if path != self._at and self._fd >= 0:
            self._at = path
            self._say_who()

    def _say_who(self) -> None:
        """For whoever is refused. Where there is no room for it, the lock holds all the same."""
        at = b"" if self._at is None else os.fsencode(self._at).replace(b"\n", b"?") + b"\n"
        said = f"{os.getpid()} {self._who}\n".encode() + at
        try:
            # Never empty in between, for whoever reads it just then.
            os.pwrite(self._fd, said, 0)
            os.ftruncate(self._fd, len(said))
        except OSError as e:
            if e.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def _say_waiting(self) -> None:
        if self._waiting_fd < 0:
            path = os.path.join(os.path.dirname(self._path), WAITING_NAME)
            self._waiting_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        with suppress(BlockingIOError):
            fcntl.flock(self._waiting_fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def _close(self) -> None:
        self._waiting_fd = _closed(self._waiting_fd)
        self._fd = _closed(self._fd)


def waits_for_disk(pid: str) -> bool:
    """Whether a thread of the process sits in a call to a disk (the kernel's state D), twice in a row: a disk that
    works is waited for in moments."""
    for attempt in range(2):
        if attempt:
            time.sleep(_POLL_SECONDS)
        if not pid.isdecimal() or "D" not in thread_states(int(pid)):
            return False
    return True


def _closed(fd: int) -> int:
    if fd >= 0:
        os.close(fd)
    return -1


def somebody_waits(state_dir: str) -> bool:
    """Whether another one of us waits for the executor lock of this state dir, and holds nothing yet."""
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


def hold_log_dirs(
    log_dirs: Iterable[OpenLogDir],
    *,
    wait_seconds: float,
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
    calls: DiskCalls | None = None,
) -> None:
    """Let nobody else of us act on these log dirs as long as they are open, whatever state dir that one has.

    An `flock` on each directory itself, which no broker looks at (Kafka's lock is a record lock on `.lock`). Two state
    dirs mean two executor locks: one's temp file of a checkpoint could be renamed by the other while it is written.
    File systems that cannot lock a directory (some network ones) have the executor lock alone. Raises LogAgentError.
    """
    deadline = monotonic() + wait_seconds
    held: set[Identity] = set()
    for log_dir in log_dirs:
        if log_dir.identity in held:
            continue  # a second path to the same directory would wait for ourselves
        while not _locked(log_dir, calls or DirectCalls()):
            if monotonic() >= deadline:
                raise Busy(
                    f"another logagent is acting on {log_dir.path}, with a state dir of its own",
                    hint="wait until it has finished, and give all of them the same --state-dir",
                )
            sleep(_POLL_SECONDS)
        held.add(log_dir.identity)


def _locked(log_dir: OpenLogDir, calls: DiskCalls) -> bool:
    """True also for one that went offline: nothing is done there any more."""
    try:
        return calls.look(log_dir.path, lambda: _flock(log_dir.fd))
    except KafkaStorageError:
        return True


def _flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as e:
        if e.errno not in (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise JournalError(f"a log dir cannot be locked: {e.strerror}") from e
    return True
