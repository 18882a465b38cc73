"""Files that root may trust, because only trusted users could have put them where they are.

A path is walked from the root directory, symlinks included. If a directory belongs to a trusted user and nobody else
can write to it, nobody else can swap its entries, so the next step can be taken by name.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Collection

from logagent.errors import LogAgentError
from logagent.files.safe_open import FileLimit, read_regular

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40


class Untrusted(LogAgentError):
    """Somebody else could have written the file, or redirected the path."""

    slug = "untrusted"


def trusted_path(path: str, owners: Collection[int], *, others_may_write: bool = False) -> str:
    """`path` (absolute) without symlinks, if it and every directory on the way belong to `owners` and nobody else can
    write to them. `others_may_write`: check only the owners, for a path whose result is shown before it is used.

    Raises Untrusted that names the first offending step, or OSError (FileNotFoundError if it does not exist).
    """
    return _walk(path, owners, others_may_write)[0]


def sole_owner(path: str) -> int:
    """The one user besides root who owns `path` or anything on the way to it, and so may change it; else 0.

    Raises Untrusted if there are two of them or if others can write, or OSError.
    """
    others = _walk(path, None, others_may_write=False)[1] - {0}
    if len(others) > 1:
        raise Untrusted(f"{path}: users {', '.join(map(str, sorted(others)))} can all change it", hint=_HINT)
    return next(iter(others), 0)


def _walk(path: str, owners: Collection[int] | None, others_may_write: bool) -> tuple[str, set[int]]:
    """The path without symlinks, and the owners of everything on the way. `owners` None: any owner is accepted."""
    if not path.startswith("/") or any(ord(c) < 32 or ord(c) == 127 for c in path):
        raise Untrusted(f"{path}: not a plain absolute path")
    trail: list[str] = []
    rest = deque(path.split("/"))
    seen = {_check("/", owners, others_may_write).st_uid}
    links = 0
    while rest:
        name = rest.popleft()
        if name in ("", ".", ".."):
            trail = trail[:-1] if name == ".." else trail
            continue
        here = "/" + "/".join([*trail, name])
        found = _check(here, owners, others_may_write)
        seen.add(found.st_uid)
        if not stat.S_ISLNK(found.st_mode):
            trail.append(name)
            continue
        links += 1
        if links > _MOST_LINKS:
            raise Untrusted(f"{path}: too many symlinks")
        target = os.readlink(here)
        trail = [] if target.startswith("/") else trail
        rest.extendleft(reversed(target.split("/")))
    return "/" + "/".join(trail), seen


def read_trusted(path: str, limit: FileLimit, owners: Collection[int]) -> bytes:
    """The content of `path` if `trusted_path` accepts it. Raises as that does, and as `read_regular`."""
    return read_regular(trusted_path(path, owners), limit)


_HINT = "make root (or the broker's user) its owner, and let nobody else write to it or the directories above it"


def _check(path: str, owners: Collection[int] | None, may_be_writable: bool) -> os.stat_result:
    found = os.lstat(path)
    if owners is not None and found.st_uid not in owners:
        raise Untrusted(f"{path} belongs to user {found.st_uid}", hint=_HINT)
    # The mode of a symlink is always 0777 and means nothing.
    if found.st_mode & _WRITABLE_BY_OTHERS and not (may_be_writable or stat.S_ISLNK(found.st_mode)):
        raise Untrusted(f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):04o})", hint=_HINT)
    return found
