"""Lists landing once: the names that are ours, and everything else.

Local and mounted stores are walked below their root without following symlinks; other stores have none. A name that is
not ours is skipped and reported; a folder that cannot be read makes only that host unknown.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import IO, Any

from py4j.protocol import Py4JError

from logagent.fleet.tables.store import Store
from logagent.store.names import DATA, MANIFEST, PART, as_date, as_node, is_place, is_plain, stem_and_suffix
from logagent.store.tree import LANDING, StoreTree

SHOWN_SKIPPED = 1000
UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Stat:
    bytes: int
    modified_ms: int


@dataclass(slots=True)
class Landed:
    """A data file, its manifest, or both."""

    cluster_id: str
    day: date
    place: str
    stem: str
    data: Stat | None = None
    manifest: Stat | None = None

    @property
    def file(self) -> str:
        return f"{self.cluster_id}/{self.day}/{self.place}/{self.stem}{DATA}"

    @property
    def node_id(self) -> int | None:
        return as_node(self.place)


@dataclass(frozen=True, slots=True)
class Skipped:
    """What was not read. `day` and `node_id` if the path contains them."""

    path: str
    reason: str
    detail: str
    cluster_id: str | None = None
    day: date | None = None
    node_id: int | None = None


@dataclass
class Listing:
    """`landed` by date. `folders`: below landing, by date, the inner ones first; empty ones too."""

    landed: dict[date, list[Landed]] = field(default_factory=dict)
    folders: dict[date, list[list[str]]] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)


_Entry = tuple[str, bool, int, int]


class Landing:
    """Reads landing. Open one in a `with` block."""

    def __init__(self, store: Store) -> None:
        self._store = store
        local = store.files.local(store.uri)
        self._tree = StoreTree(local) if local is not None else None

    def __enter__(self) -> Landing:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tree is not None:
            self._tree.__exit__()

    def listed(self, only: date | None = None) -> Listing:
        """Everything in landing (of one date). Raises what the file system does if landing itself is unreadable."""
        listing = Listing()
        for cluster in self._folders(listing, [], is_plain):
            for name in self._folders(listing, [cluster], lambda n: as_date(n) is not None):
                day = as_date(name)
                if day is None or only not in (None, day):
                    continue
                folders = listing.folders.setdefault(day, [])
                for place in self._folders(listing, [cluster, name], is_place, day):
                    self._files(listing, cluster, day, place)
                    folders.append([cluster, name, place])
                folders.append([cluster, name])
        return listing

    def _entries(self, names: list[str]) -> Iterator[tuple[_Entry, str | None]]:
        """Entries, each with the reason why it is not a usable directory or file (a symlink, a FIFO)."""
        if self._tree is None:
            uri = "/".join([self._store.landing, *names])
            for entry in self._store.files.statuses(uri):
                yield entry, None
            return
        for name, seen in self._tree.entries([LANDING, *names]):
            plain = stat.S_ISDIR(seen.st_mode) or stat.S_ISREG(seen.st_mode)
            entry = (name, stat.S_ISDIR(seen.st_mode), seen.st_size, seen.st_mtime_ns // 1_000_000)
            yield entry, None if plain else "neither a directory nor a plain file"

    def _folders(self, listing: Listing, above: list[str], is_ours: Any, day: date | None = None) -> list[str]:
        found = []
        try:
            for (name, is_directory, *_), wrong in self._entries(above):
                if is_directory and is_ours(name):
                    found.append(name)
                elif len(listing.skipped) < SHOWN_SKIPPED:
                    why = wrong or "not <cluster>/<date>/<node or assignments>/<file>"
                    cluster = above[0] if above else None
                    listing.skipped.append(Skipped("/".join([*above, name]), "not-ours", why, cluster, day))
        except (OSError, Py4JError) as error:
            if not above:
                raise
            listing.skipped.append(_unreadable(above, day, error))
        return found

    def _files(self, listing: Listing, cluster: str, day: date, place: str) -> None:
        found: dict[str, Landed] = {}
        above = [cluster, day.isoformat(), place]
        try:
            for (name, is_directory, size, modified), wrong in self._entries(above):
                split = stem_and_suffix(name)
                if split is None or is_directory or wrong:
                    if not name.endswith(PART) and len(listing.skipped) < SHOWN_SKIPPED:
                        why = wrong or "not <stem>.jsonl.gz or <stem>.manifest.json"
                        path = "/".join([*above, name])
                        listing.skipped.append(Skipped(path, "not-ours", why, cluster, day, as_node(place)))
                    continue
                stem, suffix = split
                landed = found.setdefault(stem, Landed(cluster, day, place, stem))
                if suffix == DATA:
                    landed.data = Stat(size, modified)
                else:
                    landed.manifest = Stat(size, modified)
        except (OSError, Py4JError) as error:
            listing.skipped.append(_unreadable(above, day, error, as_node(place)))
        listing.landed.setdefault(day, []).extend(found.values())

    @contextmanager
    def opened(self, landed: Landed, suffix: str = DATA) -> Iterator[IO[bytes]]:
        """One file, for reading. Raises OSError, Py4JError."""
        names = [landed.cluster_id, landed.day.isoformat(), landed.place, landed.stem + suffix]
        if self._tree is not None:
            with self._tree.open_file([LANDING, *names]) as file:
                yield file
            return
        with _Remote(self._store, "/".join([self._store.landing, *names])) as remote:
            yield remote  # type: ignore[misc]

    def remove(self, landed: Landed) -> None:
        """Removes a data file and its manifest, the manifest first: data without one does not count as arrived."""
        names = [landed.cluster_id, landed.day.isoformat(), landed.place]
        for suffix in (MANIFEST, DATA):
            if self._tree is not None:
                self._tree.remove_file([LANDING, *names, landed.stem + suffix])
            else:
                self._store.files.delete("/".join([self._store.landing, *names, landed.stem + suffix]))

    def remove_empty(self, folder: list[str]) -> None:
        """Removes a folder below landing if it is empty."""
        if self._tree is not None:
            self._tree.remove_empty([LANDING, *folder])


class _Remote:
    """A file on another file system, read through the JVM."""

    def __init__(self, store: Store, uri: str) -> None:
        jvm: Any = store.spark._jvm
        self._utils = jvm.org.apache.commons.io.IOUtils
        self._bytes = jvm.java.io.ByteArrayOutputStream
        system, path = store.files._at(uri)
        self._stream = system.open(path)

    def __enter__(self) -> _Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def read(self, size: int) -> bytes:
        sink = self._bytes()
        self._utils.copyLarge(self._stream, sink, 0, size)
        return bytes(sink.toByteArray())


def _unreadable(names: list[str], day: date | None, error: BaseException, node_id: int | None = None) -> Skipped:
    why = error.strerror or str(error) if isinstance(error, OSError) else str(error).splitlines()[0][:200]
    return Skipped("/".join(names), UNREADABLE, f"the folder cannot be read: {why}", names[0], day, node_id)
