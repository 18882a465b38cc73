"""Mount points below a log dir, from the kernel's list: bind mounts of the same device show in nothing else."""

from __future__ import annotations

import os
import re

_ESCAPE = re.compile(rb"\\([0-7]{3})")


def mounted_children(dir_fd: int) -> frozenset[str]:
    """Names in the directory `dir_fd` that are mount points or have one below them.

    Raises `OSError` if `/proc/self/mountinfo` cannot be read.
    """
    prefix = os.readlink(f"/proc/self/fd/{dir_fd}".encode()).rstrip(b"/") + b"/"
    with open("/proc/self/mountinfo", "rb") as file:
        points = [line.split(b" ", 5)[4] for line in file]
    below = (_unescape(point) for point in points)
    return frozenset(os.fsdecode(point[len(prefix) :].split(b"/", 1)[0]) for point in below if point.startswith(prefix))


def _unescape(point: bytes) -> bytes:
    """The kernel prints blanks, tabs, newlines and backslashes in octal."""
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), point)


def mount_point_of(path: str) -> str:
    """The mount point that `path` (absolute, symlinks resolved) lies on, as the kernel lists it; asks no disk.

    Raises `OSError` if `/proc/self/mountinfo` cannot be read.
    """
    with open("/proc/self/mountinfo", "rb") as file:
        points = {os.fsdecode(_unescape(line.split(b" ", 5)[4])) for line in file}
    here = path.rstrip("/")
    while here and here not in points:
        here = os.path.dirname(here).rstrip("/")
    return here or "/"
