"""`control/<cluster>/` of the fleet store: files that are created once, whole, and never overwritten.

Reached with descriptors below the store's root (`StoreTree`); names must have been matched against their patterns
before they get here.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from logagent.errors import ConfigError, ServiceUnreachable, UnreadableError
from logagent.files.limits import MIB, FileLimit
from logagent.files.safe_open import read_regular
from logagent.store.names import is_plain
from logagent.store.tree import StoreTree

CONTROL_FILE = FileLimit("a file of the store's control folder", 16 * MIB)
MAX_NAMES = 1_000_000
_CANNOT_LINK = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Control:
    """One cluster's control folder. The folders in it appear when they are first written to.

    Raises ServiceUnreachable where the store is not there or fails: an unreadable folder is never an empty one.
    """

    def __init__(self, store: Path, cluster_id: str) -> None:
        if not is_plain(cluster_id):
            raise ConfigError(f"{cluster_id!r} is not a cluster id that a folder can be named after")
        self.store = store
        self.cluster_id = cluster_id

    def names(self, folder: str) -> list[str]:
        """All names in a folder; none if it is not there yet."""
        with self._tree(folder) as tree, suppress(FileNotFoundError), tree.directory(self._path(folder)) as fd:
            names = os.listdir(fd)
            if len(names) > MAX_NAMES:
                raise UnreadableError(f"more than {MAX_NAMES} files lie in {folder} of {self._where()}")
            return names
        return []

    def read(self, folder: str, name: str, limit: FileLimit = CONTROL_FILE) -> bytes | None:
        """A file's content; None if it is not there. Raises UnreadableError for what is no regular file or too big."""
        with self._tree(folder) as tree, suppress(FileNotFoundError), tree.directory(self._path(folder)) as fd:
            return read_regular(name, limit, dir_fd=fd)
        return None

    def there(self, folder: str, name: str) -> bool:
        with self._tree(folder) as tree, suppress(FileNotFoundError), tree.directory(self._path(folder)) as fd:
            os.stat(name, dir_fd=fd, follow_symlinks=False)
            return True
        return False

    def create(self, folder: str, name: str, content: bytes) -> bool:
        """Create a whole file, durably; False if the name is taken. It is never seen half written."""
        with self._tree(folder) as tree:
            try:
                return tree.create_new([*self._path(folder), name], content)
            except OSError as error:
                if error.errno in _CANNOT_LINK:
                    raise ConfigError(
                        "the store cannot create a file only if it is absent: it has no hard links",
                        hint="use a store on a file system that has them",
                    ) from error
                raise

    def remove(self, folder: str, name: str) -> None:
        """Collect a file as garbage; nothing if it is gone."""
        with self._tree(folder) as tree:
            tree.remove_file([*self._path(folder), name])

    def _path(self, folder: str) -> list[str]:
        return ["control", self.cluster_id, *folder.split("/")]

    @contextmanager
    def _tree(self, folder: str) -> Iterator[StoreTree]:
        try:
            with StoreTree(self.store) as tree:
                yield tree
        except OSError as error:
            raise ServiceUnreachable(f"{folder} of {self._where()}: {error.strerror or error}") from error

    def _where(self) -> str:
        return f"control/{self.cluster_id} in {self.store}"
