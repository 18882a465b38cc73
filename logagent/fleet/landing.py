"""Writes files of `landing/` as the agents do: data first, manifest last, each renamed into place when it is whole."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from logagent.fleet.contract import MANIFEST_SCHEMA

GZIP_LEVEL = 1


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


def place(store: Path, claim: Claim) -> Path:
    """Where the file of `claim` lies, without its suffix."""
    where = "assignments" if claim.kind == "assignments" else str(claim.node_id)
    return store / "landing" / claim.cluster_id / f"{claim.at:%Y-%m-%d}" / where / claim.snapshot_id


def put(store: Path, claim: Claim, lines: Iterable[str], *, received_at: datetime | None = None) -> Path:
    """Writes one file and its manifest; the data file's path. The same lines give the same bytes.

    `received_at` sets the modification time (by default the moment of writing). Raises OSError.
    """
    stem = place(store, claim)
    stem.parent.mkdir(parents=True, exist_ok=True)
    content = list(lines)
    packed = gzip.compress("".join(f"{line}\n" for line in content).encode(), GZIP_LEVEL, mtime=0)
    manifest = {
        "schema": MANIFEST_SCHEMA,
        "snapshot_id": claim.snapshot_id,
        "kind": claim.kind,
        "cluster_id": claim.cluster_id,
        "node_id": claim.node_id,
        "host": claim.host,
        "at": rfc3339(claim.at),
        "rows": len(content),
        "bytes": len(packed),
        "sha256": hashlib.sha256(packed).hexdigest(),
    }
    data = stem.with_name(stem.name + ".jsonl.gz")
    _whole(data, packed, received_at)
    _whole(stem.with_name(stem.name + ".manifest.json"), json.dumps(manifest).encode(), received_at)
    return data


def _whole(path: Path, content: bytes, modified: datetime | None) -> None:
    part = path.with_name(path.name + ".tmp")
    part.write_bytes(content)
    if modified is not None:
        os.utime(part, (modified.timestamp(), modified.timestamp()))
    part.replace(path)


def manifest_of(data: Path) -> Path:
    """The manifest of a data file."""
    return data.with_name(data.name.removesuffix(".jsonl.gz") + ".manifest.json")
