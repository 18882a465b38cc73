"""The kernel's table of mounts, of ourselves or of another process: where a path lies and how it is mounted there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of `/proc/PID/mountinfo`. options: of this mount; device_options: of the file system."""

    point: str
    kind: str
    source: str
    options: frozenset[str]
    device_options: frozenset[str]


def mounts(process: int | str = "self") -> list[Mount]:
    """Every mount that the process sees, the later over the earlier. Raises OSError where they cannot be read."""
    with open(f"/proc/{process}/mountinfo", "rb") as file:
        return [m for line in file if (m := _mount(line)) is not None]


def mount_of(path: str, table: Iterable[Mount]) -> Mount | None:
    """What `path` (absolute, without symlinks) lies on: the longest mount point, and of those the last one."""
    best: Mount | None = None
    for mount in table:
        below = path == mount.point or path.startswith(f"{mount.point.rstrip('/')}/")
        if below and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _mount(line: bytes) -> Mount | None:
    words = line.split()
    try:
        end = words.index(b"-", 6)
        kind, source, device = words[end + 1 : end + 4]
    except ValueError:
        return None
    point = os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), words[4]))
    return Mount(point, kind.decode(), os.fsdecode(source), _options(words[5]), _options(device))


def _options(word: bytes) -> frozenset[str]:
    return frozenset(os.fsdecode(word).split(","))
