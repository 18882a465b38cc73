"""Lists landing once: the names that are ours, and everything else.

Local and mounted stores are walked below their root without following symlinks; other stores have none. A name that is
not ours is skipped and reported; a folder that cannot be read makes only that host unknown.

A manifest vouches for each file. What is wrong with either, before the file is read, is said in this order: place,
manifest, file, identity.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import IO, Any

from py4j.protocol import Py4JError

from logagent.base.files.safe_open import PART, parse_json
from logagent.base.units import FIRST_MS, LAST_MS
from logagent.fleet.tables.files import BucketFiles, Files, write_local
from logagent.store.contract import (
    ASSIGNMENTS,
    DATA,
    DELTA,
    MANIFEST,
    SNAPSHOT_KINDS,
    as_date,
    as_node,
    is_place,
    is_plain,
    stem_and_suffix,
)
from logagent.store.snapshots import Base, base_named
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


Folders = dict[tuple[str, ...], set[_Entry]]


def by_folder(files: Iterable[tuple[str, int, int]]) -> Folders:
    """The entries of every folder, down to those of hosts, from the path, bytes and time of each file. Pure."""
    found: Folders = {(): set()}
    for path, size, modified in files:
        *above, name = path.split("/", 4)
        for depth, folder in enumerate(above):
            found.setdefault(tuple(above[:depth]), set()).add((folder, True, 0, 0))
        here = found.setdefault(tuple(above), set())
        if name:  # else it is the marker of this folder
            here.add((name, False, size, modified))
    return found


class Landing:
    """Reads landing. Open one in a `with` block. `files`: for what is not a mounted path; executors have their own."""

    def __init__(self, store: str, files: Files | BucketFiles | None = None) -> None:
        self._remote: Any = files
        self.uri = f"{store}/{LANDING}"
        local = Files.local(store)
        self._tree = StoreTree(local) if local is not None else None
        self._markers: set[str] = set()
        """Folders below landing of which an object store has a marker: what others made, we long ago among them."""

    @property
    def is_mounted(self) -> bool:
        return self._tree is not None

    def __enter__(self) -> Landing:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tree is not None:
            self._tree.__exit__()

    def listed(self, only: date | None = None) -> Listing:
        """Everything in landing (of one date). Raises what the file system does if landing itself is unreadable."""
        listing = Listing()
        self._below: Folders | None = None
        if self._tree is None:
            # Where not all of it can be read: folder by folder.
            with suppress(Py4JError):
                listed = list(self._remote.below(self.uri))
                self._markers = {path.removesuffix("/") for path, *_ in listed if path.endswith("/")}
                self._below = by_folder(listed)
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
            found = self._remote.statuses("/".join([self.uri, *names])) if self._below is None else self._below[*names]
            for entry in sorted(found):
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
        known = landed.data if suffix == DATA else landed.manifest
        uri = "/".join([self.uri, *names])
        with self._remote.opened(uri, known.bytes if known is not None else None) as remote:
            yield remote

    def write(self, uri: str, content: bytes) -> None:
        """Writes what Spark is to read, in a place of ours. Raises OSError, Py4JError."""
        if (local := Files.local(uri)) is not None:
            write_local(local, content, durable=False)
        else:
            self._remote.write_in_place(uri, content)

    def remove(self, landed: list[Landed]) -> dict[str, str]:
        """Removes data files and their manifests, these first: data without one does not count as arrived. Returns
        why not, by file."""
        kept: dict[str, str] = {}
        for suffix in (MANIFEST, DATA):
            paths = {each.file: each.file.removesuffix(DATA) + suffix for each in landed if each.file not in kept}
            failed: dict[str, str] = {}
            try:
                if self._tree is None:
                    failed = self._remote.delete_many(self.uri, list(paths.values()))
            except Py4JError as error:
                failed = dict.fromkeys(paths.values(), str(error).splitlines()[0])
            for file, path in paths.items():
                try:
                    if self._tree is not None:
                        self._tree.remove_file([LANDING, *path.split("/")])
                except OSError as error:
                    failed[path] = str(error).splitlines()[0]
                if path in failed:
                    kept[file] = failed[path]
        return kept

    def remove_empty(self, folders: list[list[str]]) -> None:
        """Removes those of these folders below landing that are empty; of an object store their markers. Nobody needs
        to: what cannot be removed stays."""
        if self._tree is None:
            with suppress(Py4JError):
                marked = [path for path in map("/".join, folders) if path in self._markers]
                self._remote.delete_markers(self.uri, marked)
            return
        for folder in folders:
            with suppress(OSError):
                self._tree.remove_empty([LANDING, *folder])


def _unreadable(names: list[str], day: date | None, error: BaseException, node_id: int | None = None) -> Skipped:
    why = error.strerror or str(error) if isinstance(error, OSError) else str(error).splitlines()[0][:200]
    return Skipped("/".join(names), UNREADABLE, f"the folder cannot be read: {why}", names[0], day, node_id)


Problem = tuple[str, str]
LARGEST_PACKED = 256 << 20
LARGEST_MANIFEST = 64 << 10
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class ParsedManifest:
    snapshot_id: str
    kind: str
    cluster_id: str
    node_id: int | None
    host: str | None
    at_ms: int
    rows: int
    bytes: int
    sha256: str
    base: Base | None
    boot_id: str | None = None
    booted_at_ms: int | None = None
    directory_ids: tuple[str, ...] = ()


def millis(value: object) -> int | None:
    """Milliseconds since 1970 of RFC 3339 text with an offset, or of a whole number; None for anything else, and for
    what is not in the years 1 to 9999."""
    if isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value)
            return None if parsed.tzinfo is None else millis(round(parsed.timestamp() * 1000))
        except (ValueError, OverflowError, OSError):
            return None
    if isinstance(value, int) and not isinstance(value, bool):
        return value if FIRST_MS <= value <= LAST_MS else None
    return None


def parsed(content: bytes) -> ParsedManifest | None:
    """A complete manifest of a schema that we know, None for anything else."""
    try:
        read: dict[str, Any] = parse_json(content)
        at = millis(read["at"])
        node, host, boot = read.get("node_id"), read.get("host"), read.get("boot_id")
        booted, ids = read.get("booted_at"), read.get("directory_ids", [])
        texts = [read[name] for name in ("schema", "snapshot_id", "kind", "cluster_id", "sha256")]
        numbers = [read["rows"], read["bytes"]]
        base = base_named(read)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    whole = (
        at is not None
        and all(isinstance(text, str) for text in texts)
        and texts[0].startswith("logagent.manifest/")
        and texts[2] in (*SNAPSHOT_KINDS, ASSIGNMENTS)
        and (texts[2] == DELTA) == (base is not None)
        and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers)
        and (node is None or (isinstance(node, int) and not isinstance(node, bool)))
        and (host is None or isinstance(host, str))
        and (boot is None or isinstance(boot, str))
        and (booted is None or millis(booted) is not None)
        and isinstance(ids, list)
        and all(isinstance(one, str) for one in ids)
        and _SHA256.fullmatch(texts[4]) is not None
    )
    if not whole or at is None:
        return None
    return ParsedManifest(
        texts[1], texts[2], texts[3], node, host, at, numbers[0], numbers[1], texts[4].lower(), base, boot,
        millis(booted), tuple(ids),
    )  # fmt: skip


def problem_of(landed: Landed, manifest: ParsedManifest | None) -> Problem | None:
    """What is wrong with a file that has not been read yet."""
    if landed.manifest is None:
        return "no-manifest", "not complete yet: the manifest is written last"
    if manifest is None:
        return "bad-manifest", "the manifest is damaged, incomplete or of an unknown schema"
    size = landed.data.bytes if landed.data is not None else 0
    kinds = (ASSIGNMENTS,) if landed.place == ASSIGNMENTS else SNAPSHOT_KINDS
    node_id, snapshot_id = manifest.node_id, manifest.snapshot_id
    wrong = (
        (size == 0, "no-data-file", "its file is missing or empty"),
        (size > LARGEST_PACKED, "too-large", f"{size} bytes"),
        (size != manifest.bytes, "bytes-differ", f"{size} bytes, its manifest says {manifest.bytes}"),
        (manifest.kind not in kinds, "wrong-kind", f"manifest of {manifest.kind}"),
        (landed.cluster_id != manifest.cluster_id, "wrong-cluster", f"manifest of cluster {manifest.cluster_id}"),
        (landed.node_id not in (None, node_id), "wrong-host", f"manifest of node {node_id}"),
        (landed.stem != snapshot_id and landed.node_id is not None, "wrong-snapshot", f"manifest of {snapshot_id}"),
    )
    return first_of(wrong)


def first_of(wrong: Iterable[tuple[bool, str, str]]) -> Problem | None:
    """The first that applies."""
    return next(((reason, detail) for applies, reason, detail in wrong if applies), None)
