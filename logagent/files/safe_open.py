"""Opens and reads files that others can write: the broker, an operator, another host, any local user.

In a log dir, a state dir or a store, somebody else may put a FIFO, a device, a symlink or a 200 GB sparse file under
the name that we read. So a file is first opened without side effects (O_PATH) and must be a regular file; only then is
it opened for reading. The second open must reach the same file, and no more is read than the limit of its kind. Nothing
here waits for the other end of a FIFO. Hung disks are handled elsewhere: see `logagent.host.log_dir.calls`.

Messages name the file and what is wrong with it, never its content.
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
# The broker replaces its small files by rename, so one that was replaced while being opened is tried again.
_ATTEMPTS = 3

Name = str | PathLike[str]


def kind_of(mode: int) -> str | None:
    """What kind of file `mode` says it is ("a FIFO"); None for a regular file."""
    if stat.S_ISREG(mode):
        return None
    return next((name for test, name in _KINDS if test(mode)), "not a file")


def open_regular(
    name: Name, limit: FileLimit, *, dir_fd: int | None = None, follow: bool = False, flags: int = os.O_RDONLY
) -> int:
    """Open the regular file `name`. The caller closes the descriptor.

    `follow`: follow a symlink in the last component; only for files that an operator named (`server.properties` may
    well be a symlink) and for those where the broker itself follows one. Symlinks in parent directories are always
    followed: open untrusted parents with `logagent.files.dir_walk` and pass the descriptor as `dir_fd`.

    Raises UnreadableError if the file is not regular or too large, and OSError from the file system
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
    """`fstat` an open file; UnreadableError unless it is a regular file within `limit`."""
    found = os.fstat(fd)
    other = kind_of(found.st_mode)
    if other is not None:
        raise UnreadableError(f"{os.fspath(name)} is {other}, not a regular file")
    if found.st_size > limit.max_bytes:
        raise _too_large(name, f"has {found.st_size} bytes", limit)
    return found


@contextmanager
def opened_regular(name: Name, limit: FileLimit, *, dir_fd: int | None = None, follow: bool = False) -> Iterator[int]:
    """`open_regular` as a context manager."""
    fd = open_regular(name, limit, dir_fd=dir_fd, follow=follow)
    try:
        yield fd
    finally:
        os.close(fd)


def read_regular(name: Name, limit: FileLimit, *, dir_fd: int | None = None, follow: bool = False) -> bytes:
    """Read the regular file `name`; raises like `open_regular`, and UnreadableError if it changes meanwhile."""
    with opened_regular(name, limit, dir_fd=dir_fd, follow=follow) as fd:
        return read_open(fd, name, limit)


def read_open(fd: int, name: Name, limit: FileLimit) -> bytes:
    """Like `read_regular`, for a file that was just opened."""
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
