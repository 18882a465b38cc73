"""Opens and reads files that others can write: the broker, an operator, another host, any local user.

A log dir, a state dir and a store are places where somebody else may put a FIFO, a device, a symlink or a sparse file
of 200 GB under the name that we read. So a file is opened without any effect first (O_PATH), must be a regular one,
and only then is opened for reading; it must still be that one, and no more than its kind may hold is read. Nothing here
waits for the other end of a FIFO. A disk that hangs is not for here: see `logagent.host.log_dir.calls`.

Messages name the file and what is wrong with it, never what it holds.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

from logagent.errors import UnreadableError
from logagent.files.limits import FileLimit

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a symlink"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_READ_SIZE = 1 << 20
# The broker replaces its small files by renames, which is no reason to give up.
_ATTEMPTS = 3

Name = str | PathLike[str]


def kind_of(mode: int) -> str | None:
    """What a file that is not a regular one is ("a FIFO"); None for a regular one."""
    if stat.S_ISREG(mode):
        return None
    return next((name for test, name in _KINDS if test(mode)), "not a file")


def open_regular(
    name: Name, limit: FileLimit, *, dir_fd: int | None = None, follow: bool = False, flags: int = os.O_RDONLY
) -> int:
    """A descriptor of the regular file `name`; the caller closes it.

    `follow`: a symlink in the last place is followed; only for what an operator named (`server.properties` may well be
    one) and for what the broker itself follows. Parents are always followed: open those you do not trust with
    `logagent.files.dir_walk` and give the descriptor as `dir_fd`.

    Raises UnreadableError for what is not a regular file or too large, and OSError as the disk raises it
    (FileNotFoundError, PermissionError, EIO, …).
    """
    links = 0 if follow else os.O_NOFOLLOW
    for _ in range(_ATTEMPTS):
        handle = os.open(name, os.O_PATH | os.O_CLOEXEC | links, dir_fd=dir_fd)
        try:
            seen = check_regular(handle, name, limit)
            fd = os.open(name, flags | links | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=dir_fd)
        except OSError as error:
            if error.errno == errno.ELOOP:
                continue
            raise
        finally:
            os.close(handle)
        if os.path.samestat(seen, os.fstat(fd)):
            return fd
        os.close(fd)
    raise UnreadableError(f"{os.fspath(name)} was replaced while it was opened", hint="try again")


def check_regular(fd: int, name: Name, limit: FileLimit) -> os.stat_result:
    """The status of an open file; UnreadableError unless it is a regular one within `limit`."""
    found = os.fstat(fd)
    other = kind_of(found.st_mode)
    if other is not None:
        raise UnreadableError(f"{os.fspath(name)} is {other}, not a regular file")
    if found.st_size > limit.max_bytes:
        raise _too_large(name, f"has {found.st_size} bytes", limit)
    return found


@contextmanager
def opened_regular(name: Name, limit: FileLimit, *, dir_fd: int | None = None, follow: bool = False) -> Iterator[int]:
    """`open_regular`, closed at the end."""
    fd = open_regular(name, limit, dir_fd=dir_fd, follow=follow)
    try:
        yield fd
    finally:
        os.close(fd)


def read_regular(name: Name, limit: FileLimit, *, dir_fd: int | None = None, follow: bool = False) -> bytes:
    """All bytes of the regular file `name`; raises as `open_regular`, and UnreadableError if it changes meanwhile."""
    with opened_regular(name, limit, dir_fd=dir_fd, follow=follow) as fd:
        return read_open(fd, name, limit)


def read_open(fd: int, name: Name, limit: FileLimit) -> bytes:
    """The same of a file that was just opened."""
    before = check_regular(fd, name, limit)
    data = bytearray()
    while piece := os.read(fd, _READ_SIZE):
        data += piece
        if len(data) > limit.max_bytes:
            raise _too_large(name, "grew while it was read", limit)
    after = os.fstat(fd)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise UnreadableError(f"{os.fspath(name)} changed while it was read", hint="try again")
    return bytes(data)


def _too_large(name: Name, what: str, limit: FileLimit) -> UnreadableError:
    return UnreadableError(f"{os.fspath(name)} {what}; {limit.what} has at most {limit.max_bytes}")
