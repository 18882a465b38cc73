"""What another user (the broker's, when it starts) may do with a file, judged by owner and mode.

Access control lists are not evaluated: if a file has one, nothing is reported as denied. Security modules and the
immutable flag are not considered either.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from logagent.model.check.start_facts import Denied

READ, WRITE, SEARCH = 4, 2, 1
_WORDS = ((READ, "read"), (WRITE, "write"), (SEARCH, "search"))
_CAP_DAC_OVERRIDE = 1 << 1
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

    def lacks(self, found: os.stat_result, wants: int) -> int:
        """The bits of `wants` that the owner and mode in `found` do not grant this user."""
        if self.privileged:
            return 0
        if found.st_uid == self.uid:
            given = found.st_mode >> 6
        elif found.st_gid in self.gids:
            given = found.st_mode >> 3
        else:
            given = found.st_mode
        return wants & ~given


def user_named(text: str) -> User:
    """The user with this name or number, and its groups on this host. Raises LookupError."""
    import pwd

    try:
        entry = pwd.getpwuid(int(text)) if text.isdecimal() else pwd.getpwnam(text)
    except KeyError:
        if not text.isdecimal():
            raise LookupError(f"there is no user {text!r} on this host") from None
        return User(int(text), frozenset(), int(text) == 0, text, "--broker-user")
    return _of_entry(entry.pw_name, entry.pw_uid, entry.pw_gid, "--broker-user")


def owner_of(found: os.stat_result, path: str) -> User:
    """The user that owns `path`, the best guess while no broker runs."""
    import pwd

    try:
        entry = pwd.getpwuid(found.st_uid)
    except KeyError:
        gids = frozenset({found.st_gid})
        return User(found.st_uid, gids, found.st_uid == 0, str(found.st_uid), f"owner of {path}")
    return _of_entry(entry.pw_name, entry.pw_uid, entry.pw_gid, f"owner of {path}")


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
    return User(uid, gids, privileged, _name(uid), f"process {pid}")


def denied(user: User, dir_fd: int, name: str, path: str, found: os.stat_result, wants: int) -> Iterator[Denied]:
    """What `user` lacks on `name` in `dir_fd` (whose status is `found`), unless an access control list may grant it."""
    lacks = user.lacks(found, wants)
    if lacks and not _has_acl(dir_fd, name):
        words = " and ".join(word for bit, word in _WORDS if lacks & bit)
        yield Denied(path, words, found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode))


def _of_entry(name: str, uid: int, gid: int, known_by: str) -> User:
    return User(uid, frozenset(os.getgrouplist(name, gid)), uid == 0, name, known_by)


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _has_acl(dir_fd: int, name: str) -> bool:
    try:
        return bool(os.getxattr(f"/proc/self/fd/{dir_fd}/{name}", _ACL))
    except OSError:
        return False
