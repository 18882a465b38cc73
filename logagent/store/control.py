"""`control/<cluster>/` of the fleet store: files that are created once, whole, and never overwritten.

Reached step by step with descriptors below the store's root, no symlink followed; names must have been matched against
their patterns before they get here.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from logagent.errors import ConfigError, ServiceUnreachable, UnreadableError
from logagent.files.dir_walk import open_directory, opened_below, opened_directory
from logagent.files.limits import MIB, FileLimit
from logagent.files.safe_open import read_regular

CONTROL_FILE = FileLimit("a file of the store's control folder", 16 * MIB)
MAX_NAMES = 1_000_000
_CLUSTER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_CANNOT_LINK = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Control:
    """One cluster's control folder. The folders in it appear when they are first written to, writable for the group.

    Raises ServiceUnreachable where the store is not there or fails: an unreadable folder is never an empty one.
    """

    def __init__(self, store: Path, cluster_id: str) -> None:
        if not _CLUSTER.fullmatch(cluster_id):
            raise ConfigError(f"{cluster_id!r} is not a cluster id that a folder can be named after")
        self.store = store
        self.cluster_id = cluster_id

    def names(self, folder: str) -> list[str]:
        """All names in a folder; none if it is not there yet."""
        with self._reached(folder) as fd:
            if fd is None:
                return []
            with os.scandir(fd) as listing:
                names = []
                for entry in listing:
                    names.append(entry.name)
                    if len(names) > MAX_NAMES:
                        raise UnreadableError(f"more than {MAX_NAMES} files lie in {folder} of {self._where()}")
                return names

    def read(self, folder: str, name: str, limit: FileLimit = CONTROL_FILE) -> bytes | None:
        """A file's content; None if it is not there. Raises UnreadableError for what is no regular file or too big."""
        with self._reached(folder) as fd:
            if fd is None:
                return None
            try:
                return read_regular(name, limit, dir_fd=fd)
            except FileNotFoundError:
                return None

    def there(self, folder: str, name: str) -> bool:
        with self._reached(folder) as fd:
            if fd is None:
                return False
            try:
                os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                return False
            return True

    def create(self, folder: str, name: str, content: bytes) -> bool:
        """Create a whole file, durably; False if the name is taken. It is never seen half written."""
        self._make(folder)
        with self._reached(folder) as fd:
            if fd is None:
                raise ServiceUnreachable(f"{folder} of {self._where()} vanished")
            part = f".{name}.{secrets.token_hex(8)}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with open(os.open(part, flags, 0o644, dir_fd=fd), "wb") as file:
                    os.fchmod(file.fileno(), 0o644)
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                created = _link(part, name, fd)
            finally:
                with suppress(OSError):
                    os.unlink(part, dir_fd=fd)
            _fsync(fd)
            return created

    def remove(self, folder: str, name: str) -> None:
        """Collect a file as garbage; nothing if it is gone."""
        with self._reached(folder) as fd:
            if fd is not None:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=fd)

    @contextmanager
    def _reached(self, folder: str) -> Iterator[int | None]:
        """The open folder, or None while it is not there. The root must be."""
        with ExitStack() as opened:
            try:
                root = opened.enter_context(opened_directory(self.store, follow=True))
            except OSError as error:
                raise ServiceUnreachable(f"the store {self.store} cannot be read: {error.strerror}") from error
            try:
                fd: int | None = opened.enter_context(opened_below(root, f"control/{self.cluster_id}/{folder}"))
            except FileNotFoundError:
                fd = None
            except OSError as error:
                raise self._failed(folder, error) from error
            try:
                yield fd
            except OSError as error:
                raise self._failed(folder, error) from error

    def _failed(self, folder: str, error: OSError) -> ServiceUnreachable:
        return ServiceUnreachable(f"{folder} of {self._where()}: {error.strerror}")

    def _make(self, folder: str) -> None:
        """Make what is missing of a folder, durably."""
        try:
            with opened_directory(self.store, follow=True) as root:
                fd = os.dup(root)
                try:
                    for name in ("control", self.cluster_id, *folder.split("/")):
                        with suppress(FileExistsError):
                            os.mkdir(name, 0o775, dir_fd=fd)
                            os.chmod(name, 0o2775, dir_fd=fd)
                            _fsync(fd)
                        below = open_directory(name, dir_fd=fd)
                        os.close(fd)
                        fd = below
                finally:
                    os.close(fd)
        except OSError as error:
            raise ServiceUnreachable(f"{folder} of {self._where()} cannot be made: {error.strerror}") from error

    def _where(self) -> str:
        return f"control/{self.cluster_id} in {self.store}"


def _link(part: str, name: str, fd: int) -> bool:
    try:
        os.link(part, name, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _CANNOT_LINK:
            raise ConfigError(
                "the store cannot create a file only if it is absent: it has no hard links",
                hint="use a store on a file system that has them",
            ) from error
        raise
    return True


def _fsync(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF):
            raise
