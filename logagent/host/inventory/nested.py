"""Disk usage of directories below a partition directory. Kafka makes none, so this only has to be safe and bounded."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass

from logagent.host.log_dir.log_dir import OPEN_CHILD
from logagent.model.space import NOTHING, Space


@dataclass(slots=True)
class Usage:
    """files: entries that are not directories. bytes: sizes of regular files. allocated: blocks of everything. alone:
    what its removal frees, so directories and files without another hard link."""

    files: int = 0
    bytes: int = 0
    allocated: int = 0
    alone: Space = NOTHING


def nested_usage(parent_fd: int, name: str, device: int) -> Usage:
    """Add up the directory `name` and all below it on `device`.

    Uses no recursion, one descriptor whatever the depth, and follows no symlinks. Entries that vanish or change type
    during the walk are left out. Raises `OSError` for what cannot be read, EAGAIN if directories are moved during the
    walk.
    """
    usage = Usage()
    entered = _open(parent_fd, name, device)
    if entered is None:
        return usage
    fd, identity = entered
    levels = [(identity, _count(fd, usage))]
    try:
        while levels:
            subdirs = levels[-1][1]
            if subdirs:
                entered = _open(fd, subdirs.pop(), device)
                if entered is not None:
                    os.close(fd)
                    fd, identity = entered
                    levels.append((identity, _count(fd, usage)))
                continue
            levels.pop()
            if levels:
                up = os.open("..", OPEN_CHILD, dir_fd=fd)
                os.close(fd)
                fd = up
                found = os.fstat(fd)
                if (found.st_dev, found.st_ino) != levels[-1][0]:
                    raise OSError(errno.EAGAIN, "directories were moved while being read", name)
        return usage
    finally:
        os.close(fd)


def _open(parent_fd: int, name: str, device: int) -> tuple[int, tuple[int, int]] | None:
    try:
        fd = os.open(name, OPEN_CHILD, dir_fd=parent_fd)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise
    found = os.fstat(fd)
    if found.st_dev != device:
        os.close(fd)
        return None
    return fd, (found.st_dev, found.st_ino)


def _count(fd: int, usage: Usage) -> list[str]:
    """Add the entries of the open directory to `usage`; returns the names of its subdirectories."""
    subdirs: list[str] = []
    own = os.fstat(fd).st_blocks * 512
    usage.allocated += own
    usage.alone += Space(own, 1)
    for name in os.listdir(fd):
        try:
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(found.st_mode):
            subdirs.append(name)
            continue
        usage.files += 1
        usage.allocated += found.st_blocks * 512
        if found.st_nlink == 1:
            usage.alone += Space(found.st_blocks * 512, 1)
        if stat.S_ISREG(found.st_mode):
            usage.bytes += found.st_size
    return subdirs
