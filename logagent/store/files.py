"""Files of the fleet store's `landing/`: data first, manifest last, each renamed into place when it is whole.

No pyspark here: agents write with this, and the fleet's own generator does too. A file is made in one pass over its
lines, which are never in memory together. In the spool files are written by path; in the store, which others can write,
through a `StoreTree`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from logagent.errors import UnreadableError
from logagent.store.contract import MANIFEST_SCHEMA
from logagent.store.names import ASSIGNMENTS, DATA, MANIFEST, PART
from logagent.store.tree import LANDING, StoreTree, fsync_fd

__all__ = [
    "DATA",
    "MANIFEST",
    "PART",
    "Claim",
    "claim_of",
    "deliver",
    "has_recent_assignments",
    "land",
    "put",
    "snapshot_row",
]
GZIP_LEVEL = 1
FUTURE_SECONDS = 300
"""How far ahead of our clock a store's own may be. What is from later than that proves nothing."""
# Lines are compressed in pieces of about so many bytes: one call per line would take twice as long.
_PIECE = 1 << 16
_COPY = 1 << 18


@dataclass(frozen=True, slots=True)
class Claim:
    """What a manifest says of its file, apart from what is counted while it is written."""

    snapshot_id: str
    kind: str
    cluster_id: str
    node_id: int | None
    host: str
    at: datetime


def rfc3339(at: datetime) -> str:
    """RFC 3339 in UTC with milliseconds. `at` must be aware."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def millis(at: datetime) -> int:
    """Milliseconds since 1970, as `logagent.snapshot/2` has its times. `at` must be aware."""
    return round(at.timestamp() * 1000)


def place(claim: Claim) -> tuple[str, ...]:
    """The directories below the store in which the file of `claim` lies."""
    where = ASSIGNMENTS if claim.kind == ASSIGNMENTS else str(claim.node_id)
    return (LANDING, claim.cluster_id, f"{claim.at:%Y-%m-%d}", where)


def manifest_of(data: Path) -> Path:
    """The manifest of a data file."""
    return data.with_name(data.name.removesuffix(DATA) + MANIFEST)


def put(
    stem: Path,
    claim: Claim,
    lines: Iterable[str | bytes],
    *,
    received_at: datetime | None = None,
    durable: bool = True,
) -> Path:
    """Write `stem` + `.jsonl.gz` and its manifest; the data file's path. The same lines give the same bytes.

    Lines have no newline at their end. `received_at` sets the modification time (by default the moment of writing).
    With `durable`, the data is on the disk before the manifest appears, and both are when this returns.
    Raises OSError; then neither name is new.
    """
    data = stem.with_name(stem.name + DATA)
    sink = _Counting()
    with whole_file(data, received_at, durable=durable) as file:
        sink.file = file
        rows = _pack(sink, lines)
    manifest = {
        "schema": MANIFEST_SCHEMA,
        "snapshot_id": claim.snapshot_id,
        "kind": claim.kind,
        "cluster_id": claim.cluster_id,
        "node_id": claim.node_id,
        "host": claim.host,
        "at": rfc3339(claim.at),
        "rows": rows,
        "bytes": sink.count,
        "sha256": sink.digest.hexdigest(),
    }
    with whole_file(manifest_of(data), received_at, durable=durable) as file:
        file.write(json.dumps(manifest).encode())
    return data


def land(store: Path, claim: Claim, lines: Iterable[str], *, received_at: datetime | None = None) -> Path:
    """Write a file of a made-up fleet where an agent would, without waiting for the disk; the data file's path.

    `received_at` sets the modification time (by default the moment of writing). Raises OSError.
    """
    stem = store.joinpath(*place(claim), claim.snapshot_id)
    stem.parent.mkdir(parents=True, exist_ok=True)
    return put(stem, claim, lines, received_at=received_at, durable=False)


def snapshot_row(row: dict[str, Any]) -> dict[str, Any]:
    """A directory as `logagent scan` prints it, as `logagent.snapshot/2` has it: times in milliseconds since 1970."""
    times = {name: _millis(row[name]) for name in ("newest_mtime", "marked_at", "first_seen")}
    return {**row, **times, "window": row.get("window"), "due_at": row.get("due_at"), "covered": row.get("covered")}


def _millis(text: str | None) -> int | None:
    return None if text is None else millis(datetime.fromisoformat(text))


class _Counting:
    """A file to write to that counts and digests what goes through it."""

    file: IO[bytes]

    def __init__(self) -> None:
        self.count = 0
        self.digest = hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.count += len(content)
        self.digest.update(content)
        return self.file.write(content)

    def flush(self) -> None:
        pass  # closing the file does it


def _pack(sink: _Counting, lines: Iterable[str | bytes]) -> int:
    """Compress the lines into `sink`; how many there were."""
    rows, held, size = 0, list[bytes](), 0
    with gzip.GzipFile("", "wb", GZIP_LEVEL, sink, mtime=0) as packed:
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


@contextmanager
def whole_file(path: Path, modified: datetime | None = None, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """A file that appears under its name when the block has ended well, and not at all otherwise.

    What is written first carries the suffix `.tmp`; one that a kill left behind is overwritten by the next attempt.
    """
    part = path.with_name(path.name + PART)
    try:
        with open(part, "wb", opener=_open_part) as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if modified is not None:
            os.utime(part, (modified.timestamp(), modified.timestamp()))
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    if durable:
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fsync_fd(fd)
        finally:
            os.close(fd)


def _open_part(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def claim_of(manifest: bytes, origin: str) -> Claim:
    """What a manifest of ours says. Raises UnreadableError for anything else."""
    try:
        read = json.loads(manifest)
        return Claim(
            read["snapshot_id"],
            read["kind"],
            read["cluster_id"],
            read["node_id"],
            read["host"],
            datetime.fromisoformat(read["at"]),
        )
    except (ValueError, KeyError, TypeError) as e:
        raise UnreadableError(f"{origin}: it is no manifest of ours") from e


def deliver(store: StoreTree, claim: Claim, data: Path, manifest: bytes, beat: Callable[[], None]) -> None:
    """Copy a spooled file and its manifest into the store: data first, manifest last, each whole or not there.

    `beat` is called between pieces. Doing it again gives the same bytes under the same names. Raises OSError, also
    where something that is not a directory of ours is in the way.
    """
    names = place(claim)
    with open(data, "rb") as source, store.whole_file([*names, claim.snapshot_id + DATA]) as target:
        while piece := source.read(_COPY):
            beat()
            target.write(piece)
    beat()
    with store.whole_file([*names, claim.snapshot_id + MANIFEST]) as target:
        target.write(manifest)


def has_recent_assignments(store: StoreTree, claim: Claim, since: float, now: float) -> bool:
    """Whether another host's assignments arrived between `since` and `now` (seconds since 1970): whole ones.

    A manifest without bytes, without its data, of another cluster, or from the future does not keep anybody from
    publishing.
    """
    try:
        found = dict(store.entries(place(claim)))
    except FileNotFoundError:
        return False
    for name, seen in found.items():
        data = found.get(name.removesuffix(MANIFEST) + DATA)
        if not name.endswith(MANIFEST) or data is None or not data.st_size:
            continue
        if since < seen.st_mtime <= now + FUTURE_SECONDS and seen.st_size < _PIECE:
            with suppress(OSError, UnreadableError):
                with store.open_file([*place(claim), name]) as file:
                    said = claim_of(file.read(_PIECE), name)
                if (said.cluster_id, said.kind) == (claim.cluster_id, ASSIGNMENTS):
                    return True
    return False
