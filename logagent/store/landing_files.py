"""Files of the fleet store's `landing/`: data first, manifest last, each renamed into place when it is complete.

No pyspark here: agents write with this, and so does the generator of made-up fleets. A file is written in one pass over
its lines, which are never all in memory. Files in the spool are written by path; files in the store, which others can
write to, through a `SharedStore`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

from logagent.base.errors import UnreadableError
from logagent.base.files.safe_open import KIB, FileLimit, parse_json
from logagent.base.files.whole_file import whole_file
from logagent.base.times import instant
from logagent.store.contract import ASSIGNMENTS, CLOCKS_APART, DATA, MANIFEST, MANIFEST_SCHEMA
from logagent.store.shared import SharedStore
from logagent.store.snapshots import Base, base_named
from logagent.store.tree import LANDING

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
