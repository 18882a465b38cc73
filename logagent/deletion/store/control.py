"""`control/<cluster>/` of the fleet store: files that appear complete, are created once and are never overwritten.

Only commands of key holders write here (`prepare` first); agents read. Callers match names against their patterns
before passing them here.
"""

from __future__ import annotations

import errno
import io
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from logagent.base.errors import ConfigError, LogAgentError, ServiceUnreachable, UnreadableError
from logagent.base.files.safe_open import MIB, FileLimit
from logagent.store.contract import is_plain
from logagent.store.shared import SharedStore, open_store, refuse_loose
from logagent.store.tree import StoredFile

CONTROL, PROBES = "control", "probe"
CONTROL_FILE = FileLimit("a file of the store's control folder", 16 * MIB)
MAX_NAMES = 1_000_000
LATEST_SECONDS = float(1 << 36)
"""In the year 4147: whoever owns a file can give it any time, also one that no `datetime` can hold."""
_FOLDER_UNREADABLE = (errno.ELOOP, errno.ENOTDIR, errno.EACCES)
_CANNOT_LINK = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FolderUnreadable(ServiceUnreachable):
    """A folder of the store is not a directory, or we have no permission to read it."""


UNREADABLE = (UnreadableError, FolderUnreadable)
"""What concerns one file or folder, and not the store."""


class TooLarge(LogAgentError):
    """A file would be larger than what readers accept. Nothing was written."""

    slug = "too-large"


class Control:
    """One cluster's control folder. Its subfolders are created on the first write.

    Raises ServiceUnreachable if the store is absent or fails: an unreadable folder is never taken for an empty one.
    """

    root = "control"

    def __init__(self, store: str | Path, cluster_id: str) -> None:
        if not is_plain(cluster_id):
            raise ConfigError(f"{cluster_id!r} is not a cluster id that a folder can be named after")
        self.store = str(store)
        self.cluster_id = cluster_id

    def names(self, folder: str) -> list[str]:
        """All names in a folder; empty if the folder does not exist yet."""
        with self._opened(folder) as store:
            names = store.names(self._path(folder))
        if len(names) > MAX_NAMES:
            raise UnreadableError(f"more than {MAX_NAMES} files in {folder} of {self._where()}")
        return names

    def files(self, folder: str) -> list[StoredFile]:
        """The regular files of a folder, with size and time; empty if the folder does not exist yet."""
        with self._opened(folder) as store:
            return store.files(self._path(folder), MAX_NAMES)

    def read(self, folder: str, name: str, limit: FileLimit = CONTROL_FILE) -> bytes | None:
        """A file's content, None if absent. Raises UnreadableError if it is not a regular file or too big."""
        with self._opened(folder) as store, suppress(FileNotFoundError):
            return store.read([*self._path(folder), name], limit)
        return None

    def exists(self, folder: str, name: str) -> bool:
        with self._opened(folder) as store:
            return store.exists([*self._path(folder), name])

    def modified(self, folder: str, name: str) -> datetime | None:
        """When a file was written, by the store's clock; None if absent. A time that no file can have is moved to the
        nearest that one can have."""
        with self._opened(folder) as store, suppress(FileNotFoundError):
            seconds = store.modified([*self._path(folder), name])
            return datetime.fromtimestamp(min(max(seconds, 0.0), LATEST_SECONDS), UTC)
        return None

    def create(self, folder: str, name: str, content: bytes) -> bool:
        """Create a file durably; False if the name is taken. Readers never see it half written. Raises TooLarge."""
        if len(content) > CONTROL_FILE.max_bytes:
            most = CONTROL_FILE.max_bytes // MIB
            raise TooLarge(f"{folder}/{name} would have {len(content)} bytes, and no more than {most} MiB are read")
        with self._opened(folder) as store:
            try:
                return store.create_new([*self._path(folder), name], content, keyed=True)
            except OSError as error:
                if error.errno in _CANNOT_LINK:
                    raise ConfigError(
                        "the store cannot create a file only if absent: it has no hard links",
                        hint="use a store on a file system with hard links",
                    ) from error
                raise

    def replace(self, folder: str, name: str, content: bytes) -> None:
        """Write a file that only informs: it is replaced whole."""
        with self._opened(folder) as store:
            store.put([*self._path(folder), name], io.BytesIO(content), keyed=True)

    def prepare(self) -> datetime:
        """Before a key holder's command writes: the folders are closed to others, and a file that exists is not created
        again. Returns the time by the store's clock. Raises ConfigError, ServiceUnreachable."""
        with self._opened(PROBES) as store:
            refuse_loose(self.store, store)
            for folder in ([CONTROL], [CONTROL, self.cluster_id], self._path("requests")):
                found = store.open_to_others(folder)
                if found is not None:
                    where, (why, hint) = "/".join(folder), found
                    raise ConfigError(
                        f"{where} in {self.store} is not closed: {why}; there, decisions could be removed", hint=hint
                    )
        name = f"{secrets.token_hex(16)}.json"
        first, second = self.create(PROBES, name, b"1"), self.create(PROBES, name, b"2")
        kept, at = self.read(PROBES, name), self.modified(PROBES, name)
        self.remove(PROBES, name)
        if not first or second or kept != b"1" or at is None:
            raise ConfigError(
                f"the store {self.store} overwrites a file that exists already: two could decide on one request",
                hint="a local or NFS directory holds it, and object stores that support If-None-Match",
            )
        return at

    def remove(self, folder: str, name: str) -> None:
        """Remove a file that is no longer needed; it need not exist."""
        with self._opened(folder) as store:
            store.remove_file([*self._path(folder), name])

    def _path(self, folder: str) -> list[str]:
        return [self.root, self.cluster_id, *filter(None, folder.split("/"))]

    @contextmanager
    def _opened(self, folder: str) -> Iterator[SharedStore]:
        try:
            with open_store(self.store) as store:
                yield store
        except OSError as error:
            kind = FolderUnreadable if error.errno in _FOLDER_UNREADABLE else ServiceUnreachable
            raise kind(f"{folder} of {self._where()}: {error.strerror or error}") from error

    def _where(self) -> str:
        return f"{self.root}/{self.cluster_id} in {self.store}"
