"""Mount points, from the kernel's list: bind mounts of the same device show in nothing else, and no disk is asked."""

from __future__ import annotations

import os
import re
from collections.abc import Collection

# Behind these stands somebody who may not answer, for years: even `stat` of an open file waits for him.
_REMOTE = ("fuse", "nfs", "cifs", "smb", "9p", "ceph", "lustre", "afs", "virtiofs", "beegfs", "glusterfs")
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


class RemoteMounts:
    """The file systems that a process sees and that may hang, but for those of `devices`.

    Where the kernel's list cannot be read there are none.
    """

    def __init__(self, pid: int | str, devices: Collection[int]) -> None:
        self._remote: dict[str, bool] = {}
        try:
            with open(f"/proc/{pid}/mountinfo", "rb") as file:
                for line in file:
                    self._note(line, devices)
        except OSError:
            pass
        self._prefixes = tuple(point.rstrip("/") + "/" for point, remote in self._remote.items() if remote)

    def _note(self, line: bytes, devices: Collection[int]) -> None:
        before, _, after = line.partition(b" - ")
        fields, kind = before.split(b" ", 5), after.split(b" ", 1)[0]
        major, _, minor = fields[2].partition(b":")
        remote = kind.decode("ascii", "replace").startswith(_REMOTE)
        # The last one mounted at a point is the one that is seen there.
        self._remote[os.fsdecode(_unescape(fields[4]))] = remote and os.makedev(int(major), int(minor)) not in devices

    def holds(self, path: str) -> bool:
        """Whether `path`, as that process sees it, lies on one of them."""
        if not path.startswith(self._prefixes):
            return False
        here = os.path.dirname(path)
        while here not in self._remote and here != "/":
            here = os.path.dirname(here)
        return self._remote.get(here, False)
