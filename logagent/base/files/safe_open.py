"""The one way to open and read files that others can write (the broker, an operator, another host, any local user), and
to write a file as a whole.

In a log dir, a state dir or a store, somebody else may put a FIFO, a device, a symlink or a 200 GB sparse file under
the name that we read. So a file is first opened without side effects (O_PATH) and must be a regular file; only then is
it opened for reading. The second open must reach the same file, and no more is read than the limit of its kind. Nothing
here waits for the other end of a FIFO. Hung disks are handled elsewhere: see `logagent.disk.calls`.

Messages name the file and what is wrong with it, never its content.

A file larger than the limit of its kind was not written by Kafka or by us. Each limit is well above what a host with a
million partitions needs: they guard against sparse files and disks that return garbage, and do not judge a cluster.

A call that takes a path resolves it again, so anyone who can write to a directory on the way can redirect it. Below a
root that others can write to, directories are therefore opened by descriptor, one component at a time.

The one way to parse JSON that this process did not just write: for any input, the only error is ValueError.

What is written appears complete or not at all, also in a folder that others can write to: nothing is followed. The
content goes to a temporary file beside the file (O_EXCL: nobody can have prepared it), is fsynced, and is renamed
over the old file; then the folder is fsynced. A kill or a crash at any point leaves the old or the new file; a failure
also leaves no temporary file. Mirrors Kafka's `CheckpointFile.write` and `Utils.atomicMoveWithFallback`, but never
falls back to a move that is not atomic.

A caller whose temporary file always has the same name has to be the only writer: if another one starts all the same,
neither renames what the other has half written.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from typing import IO, Any, Final, NamedTuple, NoReturn

from logagent.base.errors import UnreadableError

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


class FileLimit(NamedTuple):
    """What a file is called in messages, and the most bytes that are read from it."""

    what: str
    max_bytes: int


CONFIG: Final = FileLimit("a configuration file", MIB)
PROPERTIES: Final = FileLimit("a properties file", MIB)
META_PROPERTIES: Final = FileLimit("a meta.properties", 64 * KIB)
PARTITION_METADATA: Final = FileLimit("a partition.metadata", 64 * KIB)
QUORUM_STATE: Final = FileLimit("a quorum-state", 256 * KIB)
# About 250,000 entries with the longest topic names, a million with usual ones.
CHECKPOINT: Final = FileLimit("an offset checkpoint", 64 * MIB)
LEADER_EPOCHS: Final = FileLimit("a leader-epoch-checkpoint", 16 * MIB)
# `metadata.log.segment.bytes` and `segment.bytes` are ints; the index of a segment is far smaller than the segment.
SEGMENT: Final = FileLimit("a segment", 2 * GIB)
INDEX: Final = FileLimit("an index file", 2 * GIB)
EXPORTED_ASSIGNMENTS: Final = FileLimit("exported assignments", 256 * MIB)
PEM: Final = FileLimit("a PEM file", MIB)
SCRIPT: Final = FileLimit("a start script", MIB)
UNIT: Final = FileLimit("a systemd unit", MIB)
MARKER: Final = FileLimit("a file of logagent's", MIB)
DATABASE: Final = FileLimit("a journal", GIB)
REPORT_TABLE: Final = FileLimit("a table of a fleet report", 4 * GIB)
STORE_FILE: Final = FileLimit("a file of the fleet job's", 256 * MIB)

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
_SEEN_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def kind_of(mode: int) -> str | None:
    """What kind of file `mode` says it is ("a FIFO"); None for a regular file."""
    if stat.S_ISREG(mode):
        return None
    return next((name for test, name in _KINDS if test(mode)), "not a file")


NOWHERE: Final = "a symlink that leads nowhere"


def leads_nowhere(name: Name, dir_fd: int | None = None) -> bool:
    """Whether `name`, which could not be found, is a symlink all the same."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def open_regular(
    name: Name, limit: FileLimit, *, dir_fd: int | None = None, follow: bool = False, flags: int = os.O_RDONLY
) -> int:
    """Open the regular file `name`. The caller closes the descriptor.

    `follow`: follow a symlink in the last component; only for files that an operator named (`server.properties` may
    well be a symlink) and for those where the broker itself follows one. Symlinks in parent directories are always
    followed: open untrusted parents with `logagent.base.files.safe_open` and pass the descriptor as `dir_fd`.

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


def open_seen(name: str, seen: os.stat_result, limit: FileLimit, *, dir_fd: int) -> int:
    """Open a file for reading that was just `lstat`ed as `seen`: as `open_regular` does, with half its calls, for what
    is opened a hundred thousand times. The caller closes the descriptor.

    Raises UnreadableError if it is not regular, too large, or was replaced meanwhile; OSError from the file system.
    """
    other = kind_of(seen.st_mode)
    if other is not None:
        raise UnreadableError(f"{name} is {other}, not a regular file")
    if seen.st_size > limit.max_bytes:
        raise _too_large(name, f"has {seen.st_size} bytes", limit)
    try:
        fd = os.open(name, _SEEN_FLAGS, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a symlink, or a socket, by now
            raise UnreadableError(f"{name} was replaced while it was opened", hint="try again") from None
        raise
    status = os.fstat(fd)
    if status.st_ino == seen.st_ino and status.st_dev == seen.st_dev and stat.S_ISREG(status.st_mode):
        return fd
    os.close(fd)
    raise UnreadableError(f"{name} was replaced while it was opened", hint="try again")


def check_regular(fd: int, name: Name, limit: FileLimit) -> os.stat_result:
    """`fstat` an open file; UnreadableError unless it is a regular file within `limit`."""
    status = os.fstat(fd)
    other = kind_of(status.st_mode)
    if other is not None:
        raise UnreadableError(f"{os.fspath(name)} is {other}, not a regular file")
    if status.st_size > limit.max_bytes:
        raise _too_large(name, f"has {status.st_size} bytes", limit)
    return status


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


def listed(directory: Name) -> list[str]:
    """The names in a directory, sorted; none if it is missing or cannot be listed."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def entries(dir_fd: int, most: int) -> list[tuple[str, os.stat_result]]:
    """Names and `lstat` results of an open directory, sorted by name; entries that vanish meanwhile are left out.

    Raises UnreadableError if there are more than `most`.
    """
    named: list[tuple[str, os.stat_result]] = []
    with opened_directory(".", dir_fd=dir_fd) as fd, os.scandir(fd) as listing:
        for entry in listing:
            try:
                named.append((entry.name, os.stat(entry.name, dir_fd=fd, follow_symlinks=False)))
            except FileNotFoundError:
                continue
            if len(named) > most:
                raise UnreadableError(f"there are more than {most} entries in {_path_of(fd)}")
    return sorted(named, key=lambda pair: pair[0])


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


# Larger integers are never real counts, and overflow when they are divided, shown or stored.
_MOST_DIGITS = 19


def parse_json(
    text: bytes | str,
    *,
    object_hook: Callable[[dict[str, Any]], Any] | None = None,
    integers: Callable[[str], Any] | None = None,
) -> Any:
    """Parse a document; its strings may contain lone surrogates. Raises ValueError for anything but JSON, for documents
    that are nested too deeply, and for NaN, Infinity and fractions too large for a float.

    `integers`: parses an integer (use `bounded` for short documents; it is too slow for long ones).
    """
    try:
        return json.loads(
            text, object_hook=object_hook, parse_int=integers, parse_float=_finite, parse_constant=_refused
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def bounded(digits: str) -> int:
    """Parse an integer of at most 19 digits. Raises ValueError for a longer one."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError("a number in it is too long")
    return int(digits)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refused(text[:20])


def _refused(word: str) -> NoReturn:
    raise ValueError(f"a number in it is {word}")


PART = ".tmp"
"""A temporary file is the file's name with this at its end, unless the caller names it."""

# What network file systems that cannot fsync a directory answer.
_NO_FSYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)


@contextmanager
def whole_file(
    name: Name, *, dir_fd: int | None = None, temp: str | None = None, mode: int | None = None, durable: bool = True
) -> Iterator[IO[bytes]]:
    """Replace the file `name` (a path, or a name in the directory `dir_fd`) with what the block writes.

    `temp`: the name of the temporary file; anything there already, such as what a kill left, is removed first. `mode`:
    set whatever the umask is; None: what the umask leaves of 0666. Raises OSError; only if the very last step fails,
    the fsync of the folder, may the new file be in place all the same.
    """
    with _folder(name, dir_fd, durable) as (folder, last):
        part = temp or last + PART
        with suppress(FileNotFoundError):  # the usual case: no kill has left one
            os.unlink(part, dir_fd=folder)
        with replacement(folder, last, part, mode=mode, durable=durable) as file:
            yield file


@contextmanager
def replacement(
    dir_fd: int,
    name: str,
    temp: str,
    *,
    mode: int | None = None,
    owner: tuple[int, int] | None = None,
    durable: bool = True,
    before_rename: Callable[[], None] = lambda: None,
) -> Iterator[IO[bytes]]:
    """`whole_file` for a folder in which every change needs a check first: raises FileExistsError if there is a
    temporary file already. `owner`: user and group, set before anything is written. `before_rename` is called
    immediately before the rename, and prevents it by raising.
    """
    # 0600 until the owner is set: nobody else may read or write it in between.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temp, flags, 0o666 if mode is None else 0o600, dir_fd=dir_fd), "wb") as file:
        try:
            _give(file.fileno(), mode, owner)
            yield file
            _flush(file, durable)
            before_rename()
            # It is still open, so its inode number cannot be another file's by now.
            if not _is_ours(file.fileno(), dir_fd, temp):
                raise OSError(errno.EAGAIN, "another process replaced it before it was renamed", temp)
            os.rename(temp, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        except BaseException:
            # The first error counts; a temporary file that stays is removed by the next call.
            with suppress(OSError):
                if _is_ours(file.fileno(), dir_fd, temp):
                    os.unlink(temp, dir_fd=dir_fd)
            raise
    if durable:
        fsync_directory(dir_fd)


def create_file(name: Name, content: bytes, *, dir_fd: int | None = None, mode: int | None = None) -> bool:
    """Create the file `name`, complete and durable, if its name is free; whether it was. Of two callers, one wins.

    Links a temporary file with a name of its own: atomic on local file systems and NFS. `mode` as for `whole_file`.
    Raises OSError.
    """
    with _folder(name, dir_fd, durable=True) as (folder, last):
        part = f"{last}.{os.urandom(16).hex()}{PART}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(part, flags, 0o666 if mode is None else 0o600, dir_fd=folder), "wb") as file:
                _give(file.fileno(), mode, None)
                file.write(content)
                _flush(file, durable=True)
            os.link(part, last, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return False
        finally:
            with suppress(FileNotFoundError):  # it could not even be created
                os.unlink(part, dir_fd=folder)
        fsync_directory(folder)
        return True


def fsync_directory(fd: int) -> None:
    """Make the names in a directory durable, if its file system supports that (some network file systems do not)."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise


@contextmanager
def _folder(name: Name, dir_fd: int | None, durable: bool) -> Iterator[tuple[int, str]]:
    """The open folder of the file, and the file's name in it. Opened once: everything happens in the same folder."""
    if dir_fd is not None:
        yield dir_fd, os.fspath(name)
        return
    above, last = os.path.split(os.fspath(name))
    # What is not made durable needs no permission to read the folder.
    fd = open_directory(above or ".", follow=True) if durable else os.open(above or ".", _LOOK_UP)
    try:
        yield fd, last
    finally:
        os.close(fd)


_LOOK_UP = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def _give(fd: int, mode: int | None, owner: tuple[int, int] | None) -> None:
    if owner is not None:
        made = os.fstat(fd)
        if (made.st_uid, made.st_gid) != owner:
            os.fchown(fd, *owner)
    if mode is not None:
        os.fchmod(fd, mode)


def _flush(file: IO[bytes], durable: bool) -> None:
    file.flush()
    if durable:
        os.fsync(file.fileno())


def _is_ours(fd: int, dir_fd: int, temp: str) -> bool:
    """Whether the temporary name still leads to the file open as `fd`. A second writer takes it for a leftover, and
    starts its own under the same name."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(temp, dir_fd=dir_fd, follow_symlinks=False))
    except FileNotFoundError:
        return False
