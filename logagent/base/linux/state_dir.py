"""The state dir, which holds the journal: its default path, its creation, and whom root becomes to use it.

What root does for it before switching to its owner, another user may attack at every step: by a symlink to one of
root's directories, a directory swapped for another one, or one that was made first where everybody may.
"""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import NamedTuple

from logagent.base.errors import JournalError
from logagent.base.linux.access import (
    READ,
    SEARCH,
    Credentials,
    Untrusted,
    ask_as,
    is_read_only,
    lacking,
    trusted_path,
    user_name,
)

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Way(NamedTuple):
    """A state dir as root reached it: its status (None: it is not there), and the directory that it is in if everybody
    may make entries there (sticky, such as /tmp): then anybody can have made it first."""

    status: os.stat_result | None
    anybody_in: str | None


def make_as_root(path: str, owner: tuple[int, int] | None) -> Way:
    """Create the state dir `path` (absolute, normalised) for `owner` (user, group) if it is missing.

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
        anybody_in = _only_root_writes(fd, reached or "/", path)
        made = True
        try:
            os.mkdir(name, 0o750, dir_fd=fd)
        except FileExistsError:
            made = False
        fd = _step_into(fd, name, path)
        if made and owner is not None:
            os.fchown(fd, *owner)
        return Way(os.fstat(fd), anybody_in)
    finally:
        os.close(fd)


def stat_as_root(path: str) -> Way:
    """What `make_as_root` would find or refuse, without making anything. Raises JournalError, or OSError."""
    fd, here = os.open("/", _DIRECTORY), ""
    anybody_in = None
    try:
        for step in path.strip("/").split("/"):
            anybody_in = _only_root_writes(fd, here or "/", path)
            here = f"{here}/{step}"
            try:
                fd = _step_into(fd, step, here)
            except FileNotFoundError:
                return Way(None, anybody_in)
        return Way(os.fstat(fd), anybody_in)
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


def _only_root_writes(fd: int, directory: str, path: str) -> str | None:
    """Check that only root can write here: others could swap entries of a directory they can write to, unless it is
    sticky (like /tmp). Returns `directory` if it is: entries can be made there by anybody."""
    status = os.fstat(fd)
    if status.st_uid != 0 or (status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX):
        raise JournalError(
            f"root uses no state dir below {directory}, which user {status.st_uid} or others can write: {path}",
            hint="run it as that user (setpriv, sudo -u), or name a state dir elsewhere with --state-dir",
        )
    return directory if status.st_mode & 0o022 else None


# How long the other user's look at the program may take.
_PROGRAM_SECONDS = 5.0


def become(owner: os.stat_result) -> None:
    """Switch from root to this owner for good, with the groups that user has.

    Raises JournalError if that user may not read the program, which is not all in memory yet.
    """
    if owner.st_uid == 0:
        return
    try:
        groups = tuple(os.getgrouplist(pwd.getpwuid(owner.st_uid).pw_name, owner.st_gid))
    except KeyError:
        groups = (owner.st_gid,)
    closed = _closed_program(Credentials(owner.st_uid, owner.st_gid, groups))
    if closed is not None:
        raise JournalError(
            f"root would become user {user_name(owner.st_uid)}, who owns the log dirs and may not read {closed}, where"
            " logagent or its Python is",
            hint="install logagent where every user may read it (the system packages do), or let that user read there",
        )
    os.setgroups(groups)
    os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
    os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)


def _closed_program(identity: Credentials) -> str | None:
    """A directory on the way to the interpreter, its library or the program that this user may not read."""
    places = _places_of_program()

    def closed() -> str | None:
        found = (lacking(place, READ | SEARCH) for place in places)
        return next((str(x["at"]) for x in found if x["lacks"] is not None and x["exists"]), None)

    try:
        answer = ask_as(identity, closed, _PROGRAM_SECONDS)
    except OSError as e:
        return f"{places[0]} ({e})"
    return answer if isinstance(answer, str) else None


def _places_of_program() -> list[str]:
    """Where what is loaded came from, and the compiled library, which may be in a directory of its own; the interpreter
    itself runs already."""
    loaded = [getattr(module, "__spec__", None) for name, module in sys.modules.items() if "." not in name]
    folders: set[str] = set()
    for spec in (*loaded, find_spec("pydantic_core")):
        if spec is not None and spec.origin is not None and spec.origin.startswith("/"):
            inside = os.path.dirname(spec.origin)
            folders |= {inside, os.path.dirname(inside)} if spec.submodule_search_locations else {inside}
    return sorted(folders) or [os.path.dirname(sys.executable)]


DEFAULT_STATE_DIR = "/var/lib/logagent"
# Where a journal can be kept while no disk can be written. Root creates it, for the broker's user.
ELSEWHERE = "--state-dir, such as /run/logagent (as root)"


def default_state_dir(environ: Mapping[str, str], default: str = DEFAULT_STATE_DIR, name: str = "logagent") -> str:
    """`/var/lib/logagent`, or `$XDG_STATE_HOME/logagent` for a user who can neither write to nor create that. For an
    instance (which passes its own `default` and `name`), `logagent-NAME` in either place.

    One on a file system that became read-only is still the one whose journal counts: with another one, everything that
    it remembers would be unknown."""
    writable = default if os.path.isdir(default) else os.path.dirname(default)
    if os.access(writable, os.W_OK | os.X_OK) or (os.access(default, os.R_OK | os.X_OK) and is_read_only(default)):
        return default
    home = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME", "/"), ".local", "state")
    return os.path.join(home, name)


class LogDirSeen(NamedTuple):
    """A log dir that answered: its status, and why its owner names nobody (None: only root or that owner can have made
    it)."""

    status: os.stat_result
    by_anybody: str | None


def stat_directory(path: str) -> LogDirSeen | None:
    """The directory `path`; None if there is none. On a dead disk this may hang."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return LogDirSeen(status, why_by_anybody(path, status.st_uid)) if stat.S_ISDIR(status.st_mode) else None


def why_by_anybody(path: str, uid: int) -> str | None:
    """Why others than root and this user may have made the directory `path`, which belongs to it; None if they cannot.
    Who may write in it is another matter."""
    try:
        trusted_path(os.path.abspath(path), {0, uid}, others_may_write="at its end")
    except Untrusted as e:
        return str(e)
    except OSError as e:
        return f"{path}: {e.strerror}"
    return None


Seen = Mapping[str, LogDirSeen]


def prepare_state_dir(path: str, log_dirs: Mapping[str, LogDirSeen | None]) -> None:
    """Create the state dir (mode 0750) if it does not exist.

    log_dirs: by path, the answer of `stat_directory`; None if there was none. They are not read again here,
    because a disk may hang at any moment.

    As root: a state dir that this call creates is given to the owner of the log dirs (if none answered it is not
    created, because whose it is would be a guess), and then the process switches from root to that user for good, so
    that nothing is ever created as root in a log dir of the broker's user. A state dir that is there has to be that
    user's, and one of both has to be where nobody else can have made it (`_whom_root_becomes`). Root follows
    no symlink on the way, passes no directory that another user can write to, and gives away nothing that it did not
    create. Raises JournalError, also for a path in one of `log_dirs`: no broker starts with a directory such as `state`
    or `.local` in a log dir (and the home of the broker's user can be one).
    """
    seen = {log_dir: found for log_dir, found in log_dirs.items() if found is not None}
    try:
        _keep_out(path, seen)
        if os.geteuid() == 0:
            whole = os.path.abspath(path)
            owner = _whom_root_becomes(path, stat_as_root(whole), log_dirs, seen)
            # It may have been made by somebody else in between.
            there = make_as_root(whole, (owner.st_uid, owner.st_gid) if owner is not None else None)
            if (owner := _whom_root_becomes(path, there, log_dirs, seen)) is not None:
                become(owner)
        elif not os.path.isdir(path):
            os.makedirs(path, mode=0o750)
        else:
            _refuse_strangers(path, os.stat(path), seen)
        check_writable(path)
    except OSError as e:
        raise unusable(path, e.errno) from e


def become_who_acts(path: str, log_dirs: Mapping[str, LogDirSeen | None]) -> JournalError | None:
    """For a dry run: as root, switch for good to the user that a command which acts would be: both see the same then.
    Creates nothing. Returns why `prepare_state_dir` would refuse the state dir, if that can be said beforehand; then
    root stays root, which only reads."""
    seen = {log_dir: found for log_dir, found in log_dirs.items() if found is not None}
    try:
        _keep_out(path, seen)
        if os.geteuid() == 0:
            owner = _whom_root_becomes(path, stat_as_root(os.path.abspath(path)), log_dirs, seen)
            if owner is not None:
                become(owner)
        elif os.path.isdir(path):
            _refuse_strangers(path, os.stat(path), seen)
    except JournalError as e:
        return e
    except OSError as e:
        return unusable(path, e.errno)
    return None


def _whom_root_becomes(path: str, there: Way, log_dirs: Mapping[str, object], seen: Seen) -> os.stat_result | None:
    """The owner of the log dirs, who has to be that of the state dir; None: nobody (both are still to be made).

    Any user can make a directory in /tmp or /dev/shm, which then says that it is theirs: whom root becomes is named by
    a log dir or a state dir that only root or that user can have made. Raises JournalError.
    """
    # A mount point that waits for its disk is root's, beside those of the broker's user.
    owners: dict[int, str] = {}
    for name, found in seen.items():
        if found.status.st_uid != 0:
            owners.setdefault(found.status.st_uid, name)
    if len(owners) > 1:
        whose = ", ".join(f"{log_dir} to user {user_name(uid)}" for uid, log_dir in owners.items())
        raise JournalError(
            f"root becomes no user here, because the log dirs belong to several: {whose}",
            hint="give them to the broker's user (chown), or name those of one broker with --log-dir",
        )
    uid, log_dir = next(iter(owners.items()), (0, next(iter(seen), None)))
    own = there.status
    if log_dir is None and (own is None or there.anybody_in is not None) and log_dirs:
        raise JournalError(
            f"the state dir {path} is not {'created' if own is None else 'used'}: none of the log dirs answers, and"
            " whose it is would be a guess",
            hint="mend a log dir, or create the state dir for the broker's user where only root can: /run/logagent",
        )
    if log_dir is None:
        return own
    like = seen[log_dir].status
    if own is not None and own.st_uid != uid:
        raise _of_another(path, own.st_uid, log_dir, like)
    by_anybody = [found.by_anybody for found in seen.values() if found.status.st_uid == uid]
    if uid != 0 and (own is None or there.anybody_in is not None) and all(by_anybody):
        raise JournalError(
            f"root does not become user {user_name(uid)}, because anybody can have made the log dir {log_dir}:"
            f" {by_anybody[0]}",
            hint=f"run it as the broker's user (sudo -u), or as root make the state dir {path} for that user where only"
            " root can make one",
        )
    return own or like


def _refuse_strangers(path: str, own: os.stat_result, seen: Seen) -> None:
    """Raise JournalError if the state dir of a command that is not root's belongs to somebody who could change the
    journal at any time: neither root, nor this user, nor the owner of a log dir."""
    known = {0, os.geteuid(), *(found.status.st_uid for found in seen.values())}
    if own.st_uid not in known:
        log_dir, found = next(iter(seen.items()), (None, None))
        raise _of_another(path, own.st_uid, log_dir, found.status if found is not None else None)


def _of_another(path: str, uid: int, log_dir: str | None, like: os.stat_result | None) -> JournalError:
    but = f", but the log dir {log_dir} to user {user_name(like.st_uid)}" if like is not None else ""
    elsewhere = "name a state dir of the broker's user with --state-dir, where only root can make one"
    if uid == 0 and like is not None:
        elsewhere = f"chown -R {like.st_uid}:{like.st_gid} {shlex.quote(path)}, or name another with --state-dir"
    return JournalError(f"the state dir {path} belongs to user {user_name(uid)}{but}", hint=elsewhere)


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


def unusable(path: str, why: int | None, figures: str = "") -> JournalError:
    """The error for a state dir that cannot be used because of this errno."""
    what = os.strerror(why) if why is not None else "it cannot be written"
    return JournalError(f"the state dir {path} cannot be used: {what}{figures}", hint=hint_on(why))


def hint_on(why: int | None, file: str | None = None) -> str:
    """What to do about an error of the state dir, or of a file in it."""
    match why:
        case errno.EPERM if file is not None:
            return f"an attribute forbids it (lsattr shows which): as root, chattr -ia {shlex.quote(file)}"
        case errno.ENOSPC | errno.EDQUOT:
            return f"free some space there, or name a state dir on a disk with room: {ELSEWHERE}"
        case errno.EROFS:
            return (
                f"name a state dir that can be written: {ELSEWHERE}; the kernel log (dmesg) may say why it is read-only"
            )
        case errno.EACCES | errno.EPERM:
            return "run as the broker's user, or name your own state dir with --state-dir"
    return "repair it, or name another state dir with --state-dir"


def _keep_out(path: str, seen: Seen) -> None:
    log_dirs = {log_dir: found.status for log_dir, found in seen.items()}
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
