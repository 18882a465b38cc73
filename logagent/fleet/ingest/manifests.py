"""What a manifest says about its file, and what is wrong with either, before the file is read. No I/O.

Problems are checked in this order, and the first one is the reason: place, manifest, file, identity.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from logagent.files.safe_open import parse_json
from logagent.fleet.ingest.landing import Landed
from logagent.fleet.ingest.unpack import LARGEST_PACKED
from logagent.model.times import FIRST_MS, LAST_MS
from logagent.store.names import ASSIGNMENTS

LARGEST_MANIFEST = 64 << 10
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
Problem = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Manifest:
    snapshot_id: str
    kind: str
    cluster_id: str
    node_id: int | None
    host: str | None
    at_ms: int
    rows: int
    bytes: int
    sha256: str


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


def parsed(content: bytes) -> Manifest | None:
    """A complete manifest of a schema that we know, None for anything else."""
    try:
        read: dict[str, Any] = parse_json(content)
        at = millis(read["at"])
        node, host = read.get("node_id"), read.get("host")
        texts = [read[name] for name in ("schema", "snapshot_id", "kind", "cluster_id", "sha256")]
        numbers = [read["rows"], read["bytes"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    whole = (
        at is not None
        and all(isinstance(text, str) for text in texts)
        and texts[0].startswith("logagent.manifest/")
        and texts[2] in ("snapshot", ASSIGNMENTS)
        and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers)
        and (node is None or (isinstance(node, int) and not isinstance(node, bool)))
        and (host is None or isinstance(host, str))
        and _SHA256.fullmatch(texts[4]) is not None
    )
    if not whole or at is None:
        return None
    return Manifest(texts[1], texts[2], texts[3], node, host, at, numbers[0], numbers[1], texts[4].lower())


def problem_of(landed: Landed, manifest: Manifest | None) -> Problem | None:
    """What is wrong with a file that has not been read yet."""
    kind = ASSIGNMENTS if landed.place == ASSIGNMENTS else "snapshot"
    if landed.manifest is None:
        return "no-manifest", "not complete yet: the manifest is written last"
    if manifest is None:
        return "bad-manifest", "the manifest is damaged, incomplete or of an unknown schema"
    if landed.data is None or landed.data.bytes == 0:
        return "no-data-file", "its file is missing or empty"
    size = landed.data.bytes
    if size > LARGEST_PACKED:
        return "too-large", f"{size} bytes"
    if size != manifest.bytes:
        return "bytes-differ", f"{size} bytes, its manifest says {manifest.bytes}"
    if kind != manifest.kind:
        return "wrong-kind", f"manifest of {manifest.kind}"
    if landed.cluster_id != manifest.cluster_id:
        return "wrong-cluster", f"manifest of cluster {manifest.cluster_id}"
    if kind == "snapshot" and landed.node_id != manifest.node_id:
        return "wrong-host", f"manifest of node {manifest.node_id}"
    if kind == "snapshot" and landed.stem != manifest.snapshot_id:
        return "wrong-snapshot", f"manifest of snapshot {manifest.snapshot_id}"
    return None
