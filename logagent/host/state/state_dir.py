"""The state dir, which holds the journal: its default path, its creation and its owner.

What root does for it before switching to that owner, another user may attack at every step: by a symlink to one of
root's directories, or a directory swapped for another one.
"""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
from collections.abc import Mapping
from contextlib import suppress

from logagent.errors import JournalError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_as_root(path: str, owner: tuple[int, int] | None) -> os.stat_result:
    """Create the state dir `path` (absolute, normalised) for `owner` (user, group) if it is missing; returns its
    status, which names its owner.

    Raises JournalError if root would have to follow a symlink or pass a directory that others can write to, or OSError.
    """
    *above, name = path.strip("/").split("/")
    fd, reached = os.open("/", _DIRECTORY), ""
    try:
        for step in above:
            _only_root_writes(fd, reached or "/", path)
            with suppress(FileExistsError):  # whose it is, is checked in the next step
                os.mkdir(step, 0o755, dir_fd=fd)
            reached = f"{reached}/{step}"
            fd = _step_into(fd, step, reached)
        _only_root_writes(fd, reached or "/", path)
        made = True
        try:
            os.mkdir(name, 0o750, dir_fd=fd)
        except FileExistsError:
            made = False
        fd = _step_into(fd, name, path)
        if made and owner is not None:
            os.fchown(fd, *owner)
        return os.fstat(fd)
    finally:
        os.close(fd)


def stat_as_root(path: str) -> None:
    """What `make_as_root` would refuse, without making anything. Raises JournalError, or OSError."""
    fd, here = os.open("/", _DIRECTORY), ""
    try:
        for step in path.strip("/").split("/"):
            _only_root_writes(fd, here or "/", path)
            here = f"{here}/{step}"
            try:
                fd = _step_into(fd, step, here)
            except FileNotFoundError:
                return
    finally:
        os.close(fd)


def _step_into(fd: int, name: str, path: str) -> int:
    """A descriptor of the directory `name` in `fd`; `fd` is closed."""
    try:
        below = os.open(name, _DIRECTORY, dir_fd=fd)
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENOTDIR) and stat.S_ISLNK(os.lstat(name, dir_fd=fd).st_mode):
            raise JournalError(
                f"{path} is a symlink, and root follows no symlink to a state dir",
                hint="name the directory it points to with --state-dir",
            ) from e
        raise
    os.close(fd)
    return below


def _only_root_writes(fd: int, directory: str, path: str) -> None:
    """Check that only root can write here: others could swap entries of a directory they can write to, unless it is
    sticky (like /tmp)."""
    status = os.fstat(fd)
    if status.st_uid != 0 or (status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX):
        raise JournalError(
            f"root uses no state dir below {directory}, which user {status.st_uid} or others can write: {path}",
            hint="run it as that user (setpriv, sudo -u), or name a state dir elsewhere with --state-dir",
        )


def become(owner: os.stat_result) -> None:
    """Switch from root to the owner of the state dir for good, with the groups that user has."""
    if owner.st_uid == 0:
        return
    try:
        os.initgroups(pwd.getpwuid(owner.st_uid).pw_name, owner.st_gid)
    except KeyError:
        os.setgroups([owner.st_gid])
    os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
    os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)


DEFAULT_STATE_DIR = "/var/lib/logagent"
# Where a journal can be kept while no disk can be written. Root creates it, for the broker's user.
ELSEWHERE = "--state-dir, such as /run/logagent (as root)"


def default_state_dir(environ: Mapping[str, str], default: str = DEFAULT_STATE_DIR, name: str = "logagent") -> str:
    """`/var/lib/logagent`, or `$XDG_STATE_HOME/logagent` for a user who can neither write to nor create that. For an
    instance (which passes its own `default` and `name`), `logagent-NAME` in either place."""
    writable = default if os.path.isdir(default) else os.path.dirname(default)
    if os.access(writable, os.W_OK | os.X_OK):
        return default
    home = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME", "/"), ".local", "state")
    return os.path.join(home, name)


def stat_directory(path: str) -> os.stat_result | None:
    """The status of the directory `path`; None if there is none. On a dead disk this may hang."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status if stat.S_ISDIR(status.st_mode) else None


def prepare_state_dir(path: str, log_dirs: Mapping[str, os.stat_result | None]) -> None:
    """Create the state dir (mode 0750) if it does not exist.

    log_dirs: by path, the answer of `stat_directory`; None if there was none. They are not read again here,
    because a disk may hang at any moment.

    As root: a state dir that this call creates is given to the owner of the log dirs (of the first one that answered;
    if none did it is not created, because whose it is would be a guess), and then the process switches from root to the
    state dir's owner for good, so that nothing is ever created as root in a log dir of the broker's user. Root follows
    no symlink on the way, passes no directory that another user can write to, and gives away nothing that it did not
    create. Raises JournalError, also for a path in one of `log_dirs`: no broker starts with a directory such as `state`
    or `.local` in a log dir (and the home of the broker's user can be one).
    """
    seen = {log_dir: status for log_dir, status in log_dirs.items() if status is not None}
    try:
        _keep_out(path, seen)
        if os.geteuid() == 0:
            if log_dirs and not seen and not os.path.lexists(path):
                raise JournalError(
                    f"the state dir {path} is not created: none of the log dirs answers, and whose it is would be a"
                    " guess",
                    hint="mend a log dir, or create the state dir for the broker's user",
                )
            log_dir, like = next(iter(seen.items()), (None, None))
            owner = make_as_root(os.path.abspath(path), (like.st_uid, like.st_gid) if like is not None else None)
            if owner.st_uid == 0 and like is not None and like.st_uid != 0:
                raise _of_root(path, log_dir, like)
            become(owner)
        elif not os.path.isdir(path):
            os.makedirs(path, mode=0o750)
        check_writable(path)
    except OSError as e:
        raise unusable(path, e.errno) from e


def become_who_acts(path: str, log_dirs: Mapping[str, os.stat_result | None]) -> JournalError | None:
    """For a dry run: as root, switch for good to the user that a command which acts would be: both see the same then.
    Creates nothing. Returns why `prepare_state_dir` would refuse the state dir, if that can be said beforehand."""
    seen = {log_dir: found for log_dir, found in log_dirs.items() if found is not None}
    like = next(iter(seen.values()), None)
    try:
        _keep_out(path, seen)
        there = os.lstat(path) if os.path.lexists(path) else None
    except JournalError as e:
        return e
    except OSError as e:
        return unusable(path, e.errno)
    if os.geteuid() != 0:
        return None
    if there is not None and there.st_uid == 0 and like is not None and like.st_uid != 0:
        return _of_root(path, next(iter(seen)), like)
    problem = None
    try:
        stat_as_root(os.path.abspath(path))
    except JournalError as e:
        problem = e
    except OSError as e:
        problem = unusable(path, e.errno)
    owner = there if there is not None and stat.S_ISDIR(there.st_mode) else like
    if owner is not None:
        become(owner)
    return problem


def _of_root(path: str, log_dir: str | None, like: os.stat_result) -> JournalError:
    return JournalError(
        f"the state dir {path} is root's, but the log dir {log_dir} belongs to user {like.st_uid}",
        hint=f"chown -R {like.st_uid}:{like.st_gid} {shlex.quote(path)}, or name another with --state-dir",
    )


def nearest_directory(path: str) -> str:
    """`path` if it is a directory, else the nearest one above it, in which it would be created."""
    while not os.path.isdir(path) and path not in ("", "/"):
        path = os.path.dirname(path)
    return path or "."


def check_writable(directory: str) -> None:
    """Raise OSError unless files can be created in `directory`, as far as its mode and mount show."""
    if not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
        read_only = os.statvfs(directory).f_flag & os.ST_RDONLY
        why = errno.EROFS if read_only else errno.EACCES
        raise OSError(why, os.strerror(why))


def unusable(path: str, why: int | None) -> JournalError:
    """The error for a state dir that cannot be used because of this errno."""
    what = os.strerror(why) if why is not None else "it cannot be written"
    return JournalError(f"the state dir {path} cannot be used: {what}", hint=hint_on(why))


def hint_on(why: int | None) -> str:
    """What to do about an error of the state dir."""
    match why:
        case errno.ENOSPC | errno.EDQUOT:
            return f"free some space there, or name a state dir on a disk with room: {ELSEWHERE}"
        case errno.EROFS:
            return (
                f"name a state dir that can be written: {ELSEWHERE}; the kernel log (dmesg) may say why it is read-only"
            )
        case errno.EACCES | errno.EPERM:
            return "run as the broker's user, or name your own state dir with --state-dir"
    return "repair it, or name another state dir with --state-dir"


def _keep_out(path: str, log_dirs: Mapping[str, os.stat_result]) -> None:
    log_dir = log_dir_above(path, log_dirs, unseen=FileNotFoundError)
    if log_dir is not None:
        raise JournalError(
            f"the state dir {path} is inside the log dir {log_dir}: no broker would start with it",
            hint="name a state dir elsewhere with --state-dir",
        )


def log_dir_above(path: str, log_dirs: Mapping[str, os.stat_result], *, unseen: type[OSError] = OSError) -> str | None:
    """The log dir that `path` is or is in, by device and inode of every parent directory, because symlinks and bind
    mounts give one directory many paths. `unseen`: errors for which a parent directory is skipped."""
    known = {(status.st_dev, status.st_ino): log_dir for log_dir, status in log_dirs.items()}
    above = os.path.realpath(path)
    while True:
        with suppress(unseen):
            status = os.stat(above)
            if (status.st_dev, status.st_ino) in known:
                return known[status.st_dev, status.st_ino]
        if above == "/":
            return None
        above = os.path.dirname(above)
