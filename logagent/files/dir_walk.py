"""Walks directories below a root that others can write to: one component at a time by descriptor, no symlinks followed.

Every call that takes a path resolves it again, so anyone who can write to a directory on the way can redirect it. A
descriptor keeps referring to the same directory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from logagent.errors import UnreadableError

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def open_directory(name: str | os.PathLike[str], *, dir_fd: int | None = None, follow: bool = False) -> int:
    """Open the directory `name`, which must not be a symlink unless `follow`. The caller closes the descriptor.

    `follow` is for a root that an operator named. Raises OSError; a symlink gives ENOTDIR or ELOOP.
    """
    return os.open(name, _FLAGS & ~os.O_NOFOLLOW if follow else _FLAGS, dir_fd=dir_fd)


@contextmanager
def opened_directory(name: str | os.PathLike[str], *, dir_fd: int | None = None, follow: bool = False) -> Iterator[int]:
    """`open_directory` as a context manager."""
    fd = open_directory(name, dir_fd=dir_fd, follow=follow)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_below(root_fd: int, relative: str) -> Iterator[int]:
    """Open the directory `relative` (`a/b/c`) below an open root; no component may be a symlink or `..`.

    Raises ValueError for a path that is not plain (see `plain_parts`), OSError if a component cannot be opened.
    """
    fd = os.open(".", _FLAGS, dir_fd=root_fd)
    try:
        for name in plain_parts(relative):
            below = open_directory(name, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def plain_parts(relative: str) -> list[str]:
    """The components of `relative`; ValueError for an absolute path, an empty component, `.` or `..`."""
    parts = relative.split("/")
    if any(name in ("", ".", "..") or "\0" in name for name in parts):
        raise ValueError(f"{relative!r} is not a plain relative path")
    return parts


def entries(dir_fd: int, most: int) -> list[tuple[str, os.stat_result]]:
    """Names and `lstat` results of an open directory, sorted by name; entries that vanish meanwhile are left out.

    Raises UnreadableError if there are more than `most`.
    """
    found: list[tuple[str, os.stat_result]] = []
    with opened_directory(".", dir_fd=dir_fd) as fd, os.scandir(fd) as listing:
        for entry in listing:
            try:
                found.append((entry.name, os.stat(entry.name, dir_fd=fd, follow_symlinks=False)))
            except FileNotFoundError:
                continue
            if len(found) > most:
                raise UnreadableError(f"there are more than {most} entries in {_path_of(fd)}")
    return sorted(found, key=lambda pair: pair[0])


def files_and_directories(dir_fd: int, most: int) -> tuple[list[str], list[str], list[str]]:
    """The names in an open directory: regular files, directories, and everything else (links, FIFOs, devices)."""
    files: list[str] = []
    directories: list[str] = []
    others: list[str] = []
    for name, found in entries(dir_fd, most):
        if stat.S_ISREG(found.st_mode):
            files.append(name)
        elif stat.S_ISDIR(found.st_mode):
            directories.append(name)
        else:
            others.append(name)
    return files, directories, others


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")
