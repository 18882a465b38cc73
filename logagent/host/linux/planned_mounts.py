"""Where disks are or will be mounted: at boot they may not be mounted yet, nor those of a stopped broker."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

from logagent.host.linux.mounts import mounts

_ESCAPE = re.compile(r"\\([0-7]{3})")


def mount_points(unit_dirs: Iterable[str], content: Callable[[str], bytes]) -> list[str]:
    """Every mount point: the current ones, those in /etc/fstab, and those of `*.mount` units in `unit_dirs`.

    `content` reads a file; it returns nothing for one that cannot or must not be read. Raises OSError if the current
    mounts cannot be read.
    """
    found = [mount.point for mount in mounts()]
    for line in _lines(content("/etc/fstab")):
        fields = line.split()
        if len(fields) > 2 and not fields[0].startswith("#"):
            found.append(_ESCAPE.sub(lambda m: chr(int(m[1], 8)), fields[1]))
    for folder in unit_dirs:
        for name in _names(folder):
            if name.endswith(".mount"):
                lines = _lines(content(f"{folder}/{name}"))
                found += [line.partition("=")[2].strip() for line in lines if line.startswith("Where=")]
    return list(dict.fromkeys(os.path.normpath(m) for m in found if m.startswith("/")))


def _lines(data: bytes) -> list[str]:
    return os.fsdecode(data).splitlines()


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
