"""What root does for a state dir before switching to another user: creates it if missing, and finds out who owns it.

Another user may attack every step: a symlink to one of root's directories, a directory swapped for another one.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from logagent.errors import JournalError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_as_root(path: str, owner: tuple[int, int] | None) -> os.stat_result:
    """Create the state dir `path` (absolute, normalised) for `owner` (user, group) if it is missing; returns its
    status, which names its owner.

    Raises JournalError if root would have to follow a symlink or pass a directory that others can write to, or OSError.
    """
    *above, name = path.strip("/").split("/")
    fd, here = os.open("/", _DIRECTORY), ""
    try:
        for step in above:
            _only_root_writes(fd, here or "/", path)
            with suppress(FileExistsError):
                os.mkdir(step, 0o755, dir_fd=fd)
            here = f"{here}/{step}"
            fd = _step_into(fd, step, here)
        _only_root_writes(fd, here or "/", path)
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


def _only_root_writes(fd: int, here: str, path: str) -> None:
    """Check that only root can write here: others could swap entries of a directory they can write to, unless it is
    sticky (like /tmp)."""
    found = os.fstat(fd)
    if found.st_uid != 0 or (found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX):
        raise JournalError(
            f"root uses no state dir below {here}, which user {found.st_uid} or others can write: {path}",
            hint="run it as that user (setpriv, sudo -u), or name a state dir elsewhere with --state-dir",
        )


def become(owner: os.stat_result) -> None:
    """Switch from root to the owner of the state dir for good, with the groups that user has."""
    if owner.st_uid == 0:
        return
    import pwd

    try:
        os.initgroups(pwd.getpwuid(owner.st_uid).pw_name, owner.st_gid)
    except KeyError:
        os.setgroups([owner.st_gid])
    os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
    os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)
