"""What another user (the broker's, when it starts) may do with a file, judged by owner and mode.

Access control lists are not evaluated: if a file has one, nothing is reported as denied. Security modules and the
immutable flag are not considered either.

And which files root may trust, because only trusted users could have put them where they are. A path is walked from the
root directory, symlinks included. If a directory belongs to a trusted user and nobody else can write to it, nobody else
can swap its entries, so the next step can be taken by name.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from logagent.base.errors import LogAgentError
from logagent.base.files.safe_open import FileLimit, read_regular
from logagent.base.records import Denied

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40


class Untrusted(LogAgentError):
    """Somebody else could have written the file, or redirected the path."""

    slug = "untrusted"


Where = Literal["nowhere", "at its end", "anywhere"]


def trusted_path(path: str, owners: Collection[int], *, others_may_write: Where = "nowhere") -> str:
    """`path` (absolute) without symlinks, if it and every directory on the way belong to `owners` and nobody else can
    write to them. `others_may_write`: "at its end" if it only matters who could have made it; "anywhere" checks the
    owners alone, for a path whose result is shown before it is used.

    Raises Untrusted that names the first offending step, or OSError (FileNotFoundError if it does not exist).
    """
    return _walk(path, owners, others_may_write)[0]


def sole_owner(path: str) -> int:
    """The one user besides root who owns `path` or anything on the way to it, and so may change it; else 0.

    Raises Untrusted if there are two of them or if others can write, or OSError.
    """
    others = _walk(path, None, "nowhere")[1] - {0}
    if len(others) > 1:
        raise Untrusted(f"{path}: users {', '.join(map(str, sorted(others)))} can all change it", hint=_HINT)
    return next(iter(others), 0)


def _walk(path: str, owners: Collection[int] | None, others_may_write: Where) -> tuple[str, set[int]]:
    """The path without symlinks, and the owners of everything on the way. `owners` None: any owner is accepted."""
    if not path.startswith("/") or any(ord(c) < 32 or ord(c) == 127 for c in path):
        raise Untrusted(f"{path}: not a plain absolute path")
    trail: list[str] = []
    rest = deque(path.split("/"))
    seen = {_check("/", owners, others_may_write == "anywhere").st_uid}
    links = 0
    while rest:
        name = rest.popleft()
        if name in ("", ".", ".."):
            trail = trail[:-1] if name == ".." else trail
            continue
        step = "/" + "/".join([*trail, name])
        loose = others_may_write == "anywhere" or (others_may_write == "at its end" and _is_kept(step, rest))
        status = _check(step, owners, loose)
        seen.add(status.st_uid)
        if not stat.S_ISLNK(status.st_mode):
            trail.append(name)
            continue
        links += 1
        if links > _MOST_LINKS:
            raise Untrusted(f"{path}: too many symlinks")
        target = os.readlink(step)
        trail = [] if target.startswith("/") else trail
        rest.extendleft(reversed(target.split("/")))
    return "/" + "/".join(trail), seen


def _is_kept(step: str, rest: Iterable[str]) -> bool:
    """Whether the path ends here, or others may write here but cannot have made or swapped its next step: that is
    root's, in a sticky directory such as /tmp."""
    name = next(filter(None, rest), None)
    if name is None:
        return True
    sticky = os.lstat(step).st_mode & stat.S_ISVTX
    return bool(sticky) and name not in (".", "..") and os.lstat(f"{step}/{name}").st_uid == 0


def read_trusted(path: str, limit: FileLimit, owners: Collection[int]) -> bytes:
    """The content of `path` if `trusted_path` accepts it. Raises as that does, and as `read_regular`."""
    return read_regular(trusted_path(path, owners), limit)


_HINT = "make root (or the broker's user) its owner, and let nobody else write to it or the directories above it"


def _check(path: str, owners: Collection[int] | None, may_be_writable: bool) -> os.stat_result:
    status = os.lstat(path)
    if owners is not None and status.st_uid not in owners:
        raise Untrusted(f"{path} belongs to user {status.st_uid}", hint=_HINT)
    # The mode of a symlink is always 0777 and means nothing.
    if status.st_mode & _WRITABLE_BY_OTHERS and not (may_be_writable or stat.S_ISLNK(status.st_mode)):
        raise Untrusted(f"{path} can be written by others (mode {stat.S_IMODE(status.st_mode):04o})", hint=_HINT)
    return status


READ, WRITE, SEARCH = os.R_OK, os.W_OK, os.X_OK
_WORDS = ((READ, "read"), (WRITE, "write"), (SEARCH, "search"))
_CAP_DAC_OVERRIDE = 1 << 1
_CAP_FOWNER = 1 << 3
_ACL = "system.posix_acl_access"


@dataclass(frozen=True, slots=True)
class User:
    """A user and its groups. `privileged`: owner and mode do not apply to it (root, with CAP_DAC_OVERRIDE).

    `known_by` says how we know that it is the broker's.
    """

    uid: int
    gids: frozenset[int]
    privileged: bool
    name: str
    known_by: str

    def lacks(self, status: os.stat_result, wants: int) -> int:
        """The bits of `wants` that the owner and mode in `status` do not grant this user."""
        if self.privileged:
            return 0
        if status.st_uid == self.uid:
            given = status.st_mode >> 6
        elif status.st_gid in self.gids:
            given = status.st_mode >> 3
        else:
            given = status.st_mode
        return wants & ~given


def user_named(text: str) -> User:
    """The user with this name or number, and its groups on this host. Raises LookupError."""
    if text.isdecimal():
        return _user(int(text), (), "--broker-user")
    try:
        return _user(pwd.getpwnam(text).pw_uid, (), "--broker-user")
    except KeyError:
        raise LookupError(f"there is no user {text!r} on this host") from None


def owner_of(status: os.stat_result, path: str) -> User:
    """The user that owns `path`, the best guess while no broker runs."""
    return _user(status.st_uid, (status.st_gid,), f"owner of {path}")


def _user(uid: int, gids: Iterable[int], known_by: str) -> User:
    """`gids`: those of a user that this host does not know."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return User(uid, frozenset(gids), uid == 0, str(uid), known_by)
    return User(uid, frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid)), uid == 0, entry.pw_name, known_by)


def user_of_process(pid: int) -> User | None:
    """The effective user of a running broker; None if it cannot be read."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        uid, gid = int(fields["Uid"].split()[1]), int(fields["Gid"].split()[1])
        gids = frozenset((gid, *map(int, fields["Groups"].split())))
        privileged = bool(int(fields["CapEff"], 16) & _CAP_DAC_OVERRIDE)
    except (OSError, KeyError, ValueError):
        return None
    return User(uid, gids, privileged, user_name(uid), f"process {pid}")


def may_as_any_owner() -> bool:
    """Whether we may do with every file what only its owner may (CAP_FOWNER)."""
    try:
        with open("/proc/thread-self/status", encoding="utf-8", errors="replace") as file:
            bits = next(line.split()[1] for line in file if line.startswith("CapEff:"))
        return bool(int(bits, 16) & _CAP_FOWNER)
    except (OSError, StopIteration, ValueError):
        return os.geteuid() == 0


def denied(user: User, dir_fd: int, name: str, path: str, status: os.stat_result, wants: int) -> Iterator[Denied]:
    """What `user` lacks on `name` in `dir_fd`, unless an access control list may grant it."""
    lacks = user.lacks(status, wants)
    if lacks and not _has_acl(dir_fd, name):
        yield Denied(path, in_words(lacks), status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))


def in_words(bits: int) -> str:
    """ "read and write"."""
    return " and ".join(word for bit, word in _WORDS if bits & bit)


def user_name(uid: int) -> str:
    """The name of a user, or the number where this host has none for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _has_acl(dir_fd: int, name: str) -> bool:
    try:
        return bool(os.getxattr(f"/proc/self/fd/{dir_fd}/{name}", _ACL))
    except OSError:
        return False
