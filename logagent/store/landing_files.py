"""The files of the fleet store's `landing/`, written and read back. No pyspark here: agents write with this, and so
does the generator of made-up fleets.

Data first, manifest last, each renamed into place when it is complete. A file is written in one pass over its lines,
which are never all in memory. Files in the spool are written by path; files in the store, which others can write to,
through a `SharedStore`.

What the newest snapshots say about each host: when it last reported, and its directories. Each recent manifest is read
once. Times are the modification times of the files in the store; a host's clock, which may be wrong, decides only in
which day's folder its files are.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import IO, Any, NamedTuple

from pydantic_core import from_json

from logagent.base.errors import ServiceUnreachable, UnreadableError
from logagent.base.files.safe_open import KIB, MIB, FileLimit, parse_json, whole_file
from logagent.base.units import instant
from logagent.store.contract import (
    ASSIGNMENTS,
    CLOCKS_APART,
    DATA,
    MANIFEST,
    MANIFEST_SCHEMA,
    SNAPSHOT_KINDS,
    as_node,
    stem_and_suffix,
)
from logagent.store.shared import SharedStore, open_store
from logagent.store.snapshots import Base, base_named, snapshot_lines
from logagent.store.tree import LANDING, StoredFile

_QUICK, _SMALL = 1, 6
"""Levels of gzip. Assignments are large and seldom sent; of snapshots a store has thousands."""
# Lines are compressed in pieces of about this many bytes: one call per line would take twice as long.
_PIECE = 1 << 16
_MANIFEST_FILE = FileLimit("a manifest", 64 * KIB)


@dataclass(frozen=True, slots=True)
class ManifestHead:
    """What a manifest says about its file, except what is counted while the file is written."""

    snapshot_id: str
    kind: str
    cluster_id: str
    node_id: int | None
    host: str
    at: datetime
    base: Base | None = None
    """Of a delta: the whole snapshot in the same folder that it changes."""
    boot_id: str | None = None
    """Of a snapshot: that of the machine. It, the time of that boot and the ids of the log dirs tell a reboot or a
    broker that was moved from two machines on one node id, also within one date, of which only the newest snapshot is
    read."""
    booted_at: datetime | None = None
    directory_ids: tuple[str, ...] = ()


def millis(at: datetime) -> int:
    """Milliseconds since 1970, as in snapshots. `at` must be aware."""
    return round(at.timestamp() * 1000)


def place(claim: ManifestHead) -> tuple[str, ...]:
    """The path, as components below the store, of the directory for `claim`'s file."""
    where = ASSIGNMENTS if claim.kind == ASSIGNMENTS else str(claim.node_id)
    return (LANDING, claim.cluster_id, f"{claim.at:%Y-%m-%d}", where)


def manifest_of(data: Path) -> Path:
    """The manifest of a data file."""
    return data.with_name(data.name.removesuffix(DATA) + MANIFEST)


def put(
    stem: Path,
    claim: ManifestHead,
    lines: Iterable[str | bytes],
    *,
    received_at: datetime | None = None,
    durable: bool = True,
) -> Path:
    """Write `stem` + `.jsonl.gz` and its manifest; returns the data file's path. The same lines give the same bytes.

    Lines come without a trailing newline. `received_at` sets the modification time (default: the time of writing).
    With `durable`, the data is on disk before the manifest appears, and both are on disk on return.
    Raises OSError; the file being written then does not appear.
    """
    data = stem.with_name(stem.name + DATA)
    sink = _Counting()
    with whole_file(data, durable=durable) as file:
        sink.file = file
        rows = _pack(sink, lines, _QUICK if claim.kind == ASSIGNMENTS else _SMALL)
        _date(file, received_at)
    manifest: dict[str, object] = {
        "schema": MANIFEST_SCHEMA,
        "snapshot_id": claim.snapshot_id,
        "kind": claim.kind,
        "cluster_id": claim.cluster_id,
        "node_id": claim.node_id,
        "host": claim.host,
        "at": instant(claim.at),
        "rows": rows,
        "bytes": sink.count,
        "sha256": sink.digest.hexdigest(),
    }
    if claim.boot_id is not None:
        manifest["boot_id"] = claim.boot_id
    if claim.booted_at is not None:
        manifest["booted_at"] = instant(claim.booted_at)
    if claim.directory_ids:
        manifest["directory_ids"] = list(claim.directory_ids)
    if claim.base is not None:
        manifest["base"] = {"snapshot_id": claim.base.snapshot_id, "sha256": claim.base.sha256}
    with whole_file(manifest_of(data), durable=durable) as file:
        file.write(json.dumps(manifest).encode())
        _date(file, received_at)
    return data


def land(
    store: Path, claim: ManifestHead, lines: Iterable[str | bytes], *, received_at: datetime | None = None
) -> Path:
    """Write a file of a made-up fleet where an agent would, without fsync; returns the data file's path.

    `received_at` sets the modification time (default: the time of writing). Raises OSError.
    """
    stem = store.joinpath(*place(claim), claim.snapshot_id)
    stem.parent.mkdir(parents=True, exist_ok=True)
    return put(stem, claim, lines, received_at=received_at, durable=False)


class _Counting:
    """A file object that counts and hashes the bytes written to it."""

    file: IO[bytes]

    def __init__(self) -> None:
        self.count = 0
        self.digest = hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.count += len(content)
        self.digest.update(content)
        return self.file.write(content)

    def flush(self) -> None:
        pass  # closing the file flushes it


def _pack(sink: _Counting, lines: Iterable[str | bytes], level: int) -> int:
    """Compress the lines into `sink`; returns their number."""
    rows, held, size = 0, list[bytes](), 0
    with gzip.GzipFile("", "wb", level, sink, mtime=0) as packed:
        for line in lines:
            content = line if isinstance(line, bytes) else line.encode()
            held.append(content)
            rows += 1
            size += len(content)
            if size >= _PIECE:
                packed.write(b"\n".join(held) + b"\n")
                held, size = [], 0
        if held:
            packed.write(b"\n".join(held) + b"\n")
    return rows


def _date(file: IO[bytes], modified: datetime | None) -> None:
    if modified is not None:
        file.flush()
        os.utime(file.fileno(), (modified.timestamp(), modified.timestamp()))


def claim_of(manifest: bytes, origin: str) -> ManifestHead:
    """Parse one of our manifests. Raises UnreadableError for anything else."""
    try:
        read = parse_json(manifest)
        return ManifestHead(
            read["snapshot_id"],
            read["kind"],
            read["cluster_id"],
            read["node_id"],
            read["host"],
            datetime.fromisoformat(read["at"]),
            base_named(read),
            read.get("boot_id"),
        )
    except (ValueError, KeyError, TypeError) as e:
        raise UnreadableError(f"{origin}: it is not one of our manifests") from e


def sha256_of(manifest: bytes) -> str:
    """The SHA-256 that one of our manifests vouches for. Raises UnreadableError."""
    try:
        return str(parse_json(manifest)["sha256"])
    except (ValueError, KeyError, TypeError) as e:
        raise UnreadableError("a manifest has no SHA-256") from e


def deliver(store: SharedStore, claim: ManifestHead, data: Path, manifest: bytes, beat: Callable[[], None]) -> None:
    """Copy a spooled file and its manifest into the store: data first, manifest last, each complete or not at all.

    `beat` is called between pieces. Repeating it gives the same bytes under the same names. Raises OSError, also if
    something other than a directory is in the way.
    """
    names = place(claim)
    with open(data, "rb") as source:
        store.put([*names, claim.snapshot_id + DATA], source, beat)
    beat()
    store.put([*names, claim.snapshot_id + MANIFEST], io.BytesIO(manifest))


def has_base(store: SharedStore, delta: ManifestHead) -> bool:
    """Whether the base of a delta is in the store, with its manifest."""
    if delta.base is None:
        return False
    stem = delta.base.snapshot_id
    return all(store.exists([*place(delta), stem + suffix]) for suffix in (DATA, MANIFEST))


def has_recent_assignments(store: SharedStore, claim: ManifestHead, since: float, now: float) -> bool:
    """Whether another host's complete assignments arrived between `since` and `now` (seconds since 1970).

    An empty manifest, one without its data, of another cluster or from the future does not count, so it keeps no host
    from publishing.
    """
    found = {file.name: file for file in store.files(place(claim))}
    for name, seen in found.items():
        data = found.get(name.removesuffix(MANIFEST) + DATA)
        if not name.endswith(MANIFEST) or data is None or not data.bytes:
            continue
        if since < seen.modified <= now + CLOCKS_APART.total_seconds():
            with suppress(OSError, UnreadableError):
                claimed = claim_of(store.read([*place(claim), name], _MANIFEST_FILE), name)
                if (claimed.cluster_id, claimed.kind) == (claim.cluster_id, ASSIGNMENTS):
                    return True
    return False


LONG_AGO = datetime.min.replace(tzinfo=UTC)


class When(NamedTuple):
    """The times of a snapshot. `order`: by which of them a node's snapshots follow each other."""

    taken_at: datetime
    arrived_at: datetime

    def order(self) -> tuple[datetime, datetime]:
        return (self.arrived_at if self.taken_at == LONG_AGO else self.taken_at, self.arrived_at)


def taken_at_of(at_text: object, arrived: datetime) -> datetime:
    """When a snapshot was taken: by its host's clock, as it may be sent hours later, but before it arrived. Without a
    valid time, or with one that shows that the clock is wrong, `LONG_AGO`: then it proves nothing."""
    try:
        at = datetime.fromisoformat(at_text) if isinstance(at_text, str) else LONG_AGO
        return min(at, arrived) if at <= arrived + CLOCKS_APART else LONG_AGO
    except (ValueError, TypeError, OverflowError):
        return LONG_AGO


def is_newer(snapshot: When, other: When, window: timedelta) -> bool:
    """Whether a snapshot is newer than another one of its node: whether it was taken later, for a spool arrives newest
    first. Without a valid time, it counts as taken when it arrived. What arrived more than `window` later is newer in
    any case: the host's clock was set back."""
    if abs(snapshot.arrived_at - other.arrived_at) > window:
        return snapshot.arrived_at > other.arrived_at
    return snapshot.order() > other.order()


MANIFEST_FILE = FileLimit("a manifest", 64 * KIB)
SNAPSHOT_FILE = FileLimit("a snapshot", 256 * MIB)
MAX_ENTRIES = 100_000
MAX_ROWS = 200_000
"""The most rows of the wanted topics in one snapshot: no broker has more, and one host must not fill our memory."""
MAX_BYTES = 1 << 53
"""The most bytes of one directory: more than any file system holds, and sums of them are far from overflowing."""
FACTS = ("verdict", "reason", "error", "window", "obstacle", "covered", "in_use")
"""What an agent says about a directory."""
_KEPT = frozenset(
    ("row", "path", "health", "log_dir", "name", "kind", "topic", "topic_id", "partition", "bytes", "allocated", *FACTS)
)
READ_BACK = timedelta(days=30)
_SETTLED_SECONDS = 2.0
"""A folder that changed this recently is read again: it may change once more within one tick of its timestamp."""
_NO_FOLDER_OF_OURS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES)


@dataclass(slots=True)
class HostPublications:
    """A node's snapshots: when one arrived last; when the newest one arrived, when it was taken and where it is (a
    spool is sent hours later, the newest one first); and the last arrival from each host that published for this node
    id."""

    node_id: int
    at: datetime
    arrived_at: datetime
    taken_at: datetime
    folder: tuple[str, ...]
    stem: str
    hosts: dict[str, datetime] = field(default_factory=dict)
    owners: set[int] = field(default_factory=set)
    """The user ids that the newest one and its folder belong to; none where the store has no owners."""


@dataclass(slots=True)
class FleetPublications:
    """Which hosts of a cluster have published. `read` is cheap if nothing has changed."""

    store: str
    cluster_id: str
    window: timedelta
    warn: Callable[[str], None] = lambda line: None
    nodes: dict[int, HostPublications] = field(default_factory=dict)
    unsure: dict[int, set[tuple[str, ...]]] = field(default_factory=dict)
    """The nodes with manifests from the future, each with their folders: our clock may be behind, and what we take for
    a node's newest snapshot may be an old one."""
    _folders: dict[tuple[str, ...], tuple[int, float]] = field(default_factory=dict)
    _read: set[tuple[str, ...]] = field(default_factory=set)
    _read_back: set[int] = field(default_factory=set)
    _warned: set[int | tuple[str, ...]] = field(default_factory=set)

    def read(self, now: datetime) -> None:
        """Read what arrived within `window` before `now`. Raises ServiceUnreachable if the store cannot be read."""
        # Hosts name the day's folder by their own clocks: look one day further on either side.
        first = (now - self.window).astimezone(UTC).date() - timedelta(days=1)
        days = (now.astimezone(UTC).date() - first).days + 2
        for node_id, folders in list(self.unsure.items()):
            self._note_unsure(node_id, {folder for folder in folders if folder[2] >= first.isoformat()})
        with self._opened() as store:
            for day in (first + timedelta(days=n) for n in range(days)):
                self._day(store, day, now)

    def read_back(self, nodes: Collection[int], now: datetime) -> None:
        """Find when these nodes, of which `read` has found nothing, were heard last, up to `READ_BACK` ago. Each is
        looked for once. Raises ServiceUnreachable."""
        left = set(nodes) - self.nodes.keys() - self._read_back
        if not left:
            return
        self._read_back |= left
        first = (now - self.window).astimezone(UTC).date() - timedelta(days=2)
        with self._opened() as store:
            for day in (first - timedelta(days=n) for n in range(READ_BACK.days)):
                self._day(store, day, now, left - self.nodes.keys())

    def _day(self, store: SharedStore, day: date, now: datetime, only: Collection[int] | None = None) -> None:
        folder = (LANDING, self.cluster_id, day.isoformat())
        for name, stamp in store.folders(folder).items() if only is None or only else ():
            node_id = as_node(name)
            if node_id is None or (only is not None and node_id not in only):
                continue
            if self._folders.get((*folder, name)) == stamp:
                continue
            self._node(store, (*folder, name), node_id, now)
            if stamp[1] < now.timestamp() - _SETTLED_SECONDS:
                self._folders[*folder, name] = stamp

    @contextmanager
    def _opened(self) -> Iterator[SharedStore]:
        try:
            with open_store(self.store) as store:
                yield store
        except OSError as error:
            why = error.strerror or error
            raise ServiceUnreachable(f"{LANDING}/{self.cluster_id} in {self.store} cannot be read: {why}") from error

    def _node(self, store: SharedStore, folder: tuple[str, ...], node_id: int, now: datetime) -> None:
        """Read one day of one node: its newest manifest and those within the window. A folder that cannot be listed
        silences only this host."""
        try:
            found = store.files(folder, MAX_ENTRIES)
        except UnreadableError:
            return
        except OSError as error:
            if error.errno in _NO_FOLDER_OF_OURS:
                return
            raise
        # A file whose time is further in the future was given that time on purpose.
        latest = (now + CLOCKS_APART).timestamp()
        of_node = [f for f in found if _is_manifest(f.name)]
        manifests = [f for f in of_node if 0 <= f.modified <= latest]
        ahead = {folder} if any(f.modified > latest for f in of_node) else set()
        self._note_unsure(node_id, self.unsure.get(node_id, set()) - {folder} | ahead)
        if len(manifests) < len(of_node):
            count, where = len(of_node) - len(manifests), "/".join(folder)
            self._warn_once(
                folder,
                f"{count} manifests in {where} are ignored: their times are in the future, or before 1970"
                + (f"; while there are some from the future, no copy of node {node_id} counts" if ahead else ""),
            )
        since, newest = (now - self.window).timestamp(), True
        for file in sorted(manifests, key=lambda f: f.modified, reverse=True):
            if file.modified < since and not newest:
                break
            newest = not self._manifest(store, folder, file, node_id) and newest

    def _note_unsure(self, node_id: int, folders: set[tuple[str, ...]]) -> None:
        if folders:
            self.unsure[node_id] = folders
        else:
            self.unsure.pop(node_id, None)

    def _manifest(self, store: SharedStore, folder: tuple[str, ...], file: StoredFile, node_id: int) -> bool:
        """Read one manifest; returns whether it is of one of this node's snapshots."""
        stem = file.name.removesuffix(MANIFEST)
        if (*folder, stem) in self._read:
            return True
        try:
            content, owners = store.read_owned([*folder, file.name], MANIFEST_FILE)
            read = parse_json(content)
        except FileNotFoundError:
            return False
        except (ValueError, UnreadableError):
            read = None
        self._read.add((*folder, stem))
        if not isinstance(read, dict) or read.get("kind") not in SNAPSHOT_KINDS:
            return False
        if (read.get("node_id"), read.get("cluster_id")) != (node_id, self.cluster_id):
            return False
        at, known = datetime.fromtimestamp(file.modified, UTC), self.nodes.get(node_id)
        taken_at = taken_at_of(read.get("at"), at)
        if known is None:
            known = self.nodes[node_id] = HostPublications(node_id, at, at, taken_at, folder, stem, owners={*owners})
        elif is_newer(When(taken_at, at), When(known.taken_at, known.arrived_at), self.window):
            known.arrived_at, known.taken_at, known.folder, known.stem = at, taken_at, folder, stem
            known.owners = {*owners}
        if known.stem == stem:
            # Warn if the newest snapshot has no valid time; again only after one that has.
            if taken_at != LONG_AGO:
                self._warned.discard(node_id)
            else:
                self._warn_once(
                    node_id,
                    f"node {node_id} publishes snapshots with impossible times: none of its copies counts "
                    "until its host's clock is right",
                )
        known.at = max(at, known.at)
        host = str(read.get("host"))[:255]
        known.hosts[host] = max(at, known.hosts.get(host, at))
        return True

    def _warn_once(self, about: int | tuple[str, ...], line: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            self.warn(line)

    def directories(
        self, node_id: int, topic_ids: Collection[str], names: Collection[str] = ()
    ) -> Iterator[dict[str, Any]]:
        """The `log_dir` rows, and the `dir` rows of these topic ids, of a node's newest snapshot: of each the keys that
        identify it, and `FACTS`. `names`: also the directories under these topic names whose topic id is not known;
        their `topic_id` is None (agents leave out what is null).

        `topic_ids` is searched once per line: pass a set or a dict. Raises UnreadableError for a snapshot that is
        incomplete, is not what it says, or whose base is missing or has changed, and for more than `MAX_ROWS` such
        rows; then no row counts. Raises ServiceUnreachable for one that cannot be read.
        """
        heard = self.nodes[node_id]
        where, rows = "/".join((*heard.folder, heard.stem)), 0
        for line in self._lines(heard):
            if b'"log_dir"' not in line and b'"dir"' not in line:
                continue
            try:
                row = from_json(line) if _may_matter(line, topic_ids) or (names and _has_no_id(line)) else None
            except ValueError as error:
                raise UnreadableError(f"{where} has a line that is not JSON") from error
            if isinstance(row, dict) and (_is_log_dir(row) or _is_of(row, topic_ids) or _is_unread(row, names)):
                rows += 1
                if rows > MAX_ROWS:
                    raise UnreadableError(f"{where} has more than {MAX_ROWS} directories of the topics asked for")
                kept = {k: v for k, v in row.items() if k in _KEPT and not isinstance(v, (list, dict))}
                yield kept if _is_log_dir(row) else {"topic_id": None, **kept}

    def _lines(self, heard: HostPublications) -> Iterator[bytes]:
        where = "/".join((*heard.folder, heard.stem))
        try:
            with open_store(self.store) as store:

                def read(stem: str) -> bytes:
                    content, owners = store.read_owned([*heard.folder, stem + DATA], SNAPSHOT_FILE)
                    heard.owners |= owners
                    return content

                yield from snapshot_lines(read, heard.stem)
        except OSError as error:
            raise ServiceUnreachable(f"{where}: {error.strerror or error}") from error
        except UnreadableError as error:
            raise UnreadableError(f"{where}: {error}") from error


def _is_manifest(name: str) -> bool:
    parts = stem_and_suffix(name)
    return parts is not None and parts[1] == MANIFEST


def _is_log_dir(row: dict[str, Any]) -> bool:
    return row.get("row") == "log_dir" and all(isinstance(row.get(key), str) for key in ("path", "health"))


def _is_of(row: dict[str, Any], topic_ids: Collection[str]) -> bool:
    """Whether a row is a valid directory of one of these topics. One host's bad row must not stop the controller."""
    get = row.get
    topic_id, partition, size = get("topic_id"), get("partition"), get("bytes")
    if get("row") != "dir" or not isinstance(topic_id, str) or topic_id not in topic_ids:
        return False
    if (
        type(partition) is not int
        or not 0 <= partition < 1 << 31
        or type(size) is not int
        or not 0 <= size <= MAX_BYTES
    ):
        return False
    return isinstance(get("name"), str) and isinstance(get("log_dir"), str) and isinstance(get("kind"), str)


def _is_unread(row: dict[str, Any], names: Collection[str]) -> bool:
    """Whether a row is a directory under one of these topic names whose topic id is not known: it may be a replica of
    any topic that had the name."""
    get = row.get
    if get("row") != "dir" or get("topic_id") is not None or not isinstance(get("kind"), str):
        return False
    return isinstance(get("topic"), str) and get("topic") in names


def _has_no_id(line: bytes) -> bool:
    return line[line.find(b'"topic_id"') + 10 :].lstrip(b": ").startswith(b"null")


def _may_matter(line: bytes, topic_ids: Collection[str]) -> bool:
    """Whether a line may be wanted, without parsing it: most lines are not."""
    at = line.find(b'"topic_id"')
    if at < 0:
        return True
    start = line.find(b'"', at + 10) + 1
    return line[start : start + 22].decode("ascii", "replace") in topic_ids
