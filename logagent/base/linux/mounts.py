"""The kernel's mount table, for ourselves or another process: the only reader of `/proc/PID/mountinfo`.

Bind mounts of the same device show nowhere else, and no disk is touched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

from logagent.base.files.safe_open import listed
from logagent.base.linux.syscalls import mount_id

# Behind these is a server or process that may never answer: even `stat` of an open file waits for it.
_REMOTE = ("fuse", "nfs", "cifs", "smb", "9p", "ceph", "lustre", "afs", "virtiofs", "beegfs", "glusterfs")
_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the table. device: as `st_dev` has it. options: of this mount; device_options: of the file system.
    root: the directory of the file system that is seen there. id: of the mount, as `syscalls.mount_id` has it."""

    point: str
    kind: str
    source: str
    device: int
    options: frozenset[str]
    device_options: frozenset[str]
    root: str = "/"
    id: int = -1

    @property
    def remote(self) -> bool:
        """Whether it may hang for reasons other than this host's disks."""
        return self.kind.startswith(_REMOTE)


def mounts(process: int | str = "self") -> list[Mount]:
    """Every mount that the process sees, later ones after (and on top of) earlier ones. Raises OSError if the table
    cannot be read."""
    with open(f"/proc/{process}/mountinfo", "rb") as file:
        return parse_mounts(file)


def parse_mounts(lines: Iterable[bytes]) -> list[Mount]:
    """The mounts in a `mountinfo`; malformed lines are skipped."""
    return [m for line in lines if (m := _mount(line)) is not None]


def mount_of(path: str, table: Iterable[Mount]) -> Mount | None:
    """The mount that `path` (absolute, without symlinks) is on: the one with the longest mount point, and of those the
    last."""
    best: Mount | None = None
    for mount in table:
        below = path == mount.point or path.startswith(f"{mount.point.rstrip('/')}/")
        if below and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def kind_of(fd: int) -> str:
    """The kind of the file system that `fd` is on; empty if the mount table does not say."""
    with suppress(OSError):
        own = mount_id(fd)
        return next((m.kind for m in mounts() if m.id == own), "")
    return ""


def mounted_children(dir_fd: int) -> frozenset[str]:
    """Names in the directory `dir_fd` that are mount points or have one below them. Raises OSError as `mounts` does."""
    prefix = os.readlink(f"/proc/self/fd/{dir_fd}").rstrip("/") + "/"
    below = (mount.point for mount in mounts())
    return frozenset(point[len(prefix) :].split("/", 1)[0] for point in below if point.startswith(prefix))


class RemoteMounts:
    """The file systems visible to a process that may hang, except those on `devices`.

    Empty if the mount table cannot be read.
    """

    def __init__(self, pid: int | str, devices: Collection[int]) -> None:
        try:
            # The last file system mounted at a point is the visible one.
            self._remote = {m.point: m.remote and m.device not in devices for m in mounts(pid)}
        except OSError:
            self._remote = {}
        self._prefixes = tuple(point.rstrip("/") + "/" for point, remote in self._remote.items() if remote)

    def holds(self, path: str) -> bool:
        """Whether `path`, as that process sees it, is on one of them."""
        if not f"{path}/".startswith(self._prefixes):
            return False
        place = path
        while place not in self._remote and place != "/":
            place = os.path.dirname(place)
        return self._remote.get(place, False)


def _mount(line: bytes) -> Mount | None:
    # Not split at runs of blanks: the source of a user's FUSE mount may be empty, its type any bytes.
    words = line.rstrip(b"\n").split(b" ")
    try:
        end = words.index(b"-", 6)
        kind, source, device_options = words[end + 1 : end + 4]
        major, minor = words[2].split(b":")
        device = os.makedev(int(major), int(minor))
    except ValueError:
        return None
    number = int(words[0]) if words[0].isdigit() else -1
    root, point = (os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), word)) for word in words[3:5])
    options = _options(words[5]), _options(device_options)
    return Mount(point, os.fsdecode(kind), os.fsdecode(source), device, *options, root, number)


def _options(word: bytes) -> frozenset[str]:
    return frozenset(os.fsdecode(word).split(","))


_FSTAB_ESCAPE = re.compile(r"\\([0-7]{3})")


def mount_points(unit_dirs: Iterable[str], content: Callable[[str], bytes]) -> list[str]:
    """Every mount point: the current ones, those in /etc/fstab, and those of `*.mount` units in `unit_dirs`; at boot
    the disks may not be mounted yet, nor those of a stopped broker.

    `content` reads a file; it returns nothing for one that cannot or must not be read. Raises OSError if the current
    mounts cannot be read.
    """
    points = [mount.point for mount in mounts()]
    for line in _lines(content("/etc/fstab")):
        fields = line.split()
        if len(fields) > 2 and not fields[0].startswith("#"):
            points.append(_FSTAB_ESCAPE.sub(lambda m: chr(int(m[1], 8)), fields[1]))
    for folder in unit_dirs:
        for name in listed(folder):
            if name.endswith(".mount"):
                lines = _lines(content(f"{folder}/{name}"))
                points += [line.partition("=")[2].strip() for line in lines if line.startswith("Where=")]
    return list(dict.fromkeys(os.path.normpath(m) for m in points if m.startswith("/")))


def _lines(data: bytes) -> list[str]:
    return os.fsdecode(data).splitlines()
