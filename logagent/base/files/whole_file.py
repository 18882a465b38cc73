"""Writes files that appear complete or not at all, and in a folder that others can write to: nothing is followed.

The content goes to a temporary file beside the file (O_EXCL: nobody can have prepared it), is fsynced, and is renamed
over the old file; then the folder is fsynced. A kill or a crash at any point leaves the old or the new file; a failure
also leaves no temporary file. Mirrors Kafka's `CheckpointFile.write` and `Utils.atomicMoveWithFallback`, but never
falls back to a move that is not atomic.

A caller whose temporary file always has the same name has to be the only writer: if another one starts all the same,
neither renames what the other has half written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from logagent.base.files.safe_open import Name, open_directory

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
