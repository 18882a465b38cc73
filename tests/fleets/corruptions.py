"""Damages an intact file on purpose, in the ways in which files are damaged on their way into the store."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from pathlib import Path

from logagent.store.landing_files import manifest_of

CORRUPTIONS = ("truncated", "flipped", "empty", "half-manifest", "no-manifest", "bad-row", "lost-row")
"""Each leaves the host without a complete snapshot. `bad-row` and `lost-row` agree with their manifest's SHA-256."""


def corrupt(data: Path, kind: str) -> None:
    """Applies the damage `kind` to a data file in landing or to its manifest; modification times are kept. Raises
    OSError, ValueError."""
    manifest = manifest_of(data)
    stat = data.stat()
    packed = data.read_bytes()
    if kind == "truncated":
        data.write_bytes(packed[: len(packed) // 2])
    elif kind == "flipped":
        middle = len(packed) // 2
        data.write_bytes(
            packed[:middle] + bytes(b ^ 0xFF for b in packed[middle : middle + 20]) + packed[middle + 20 :]
        )
    elif kind == "empty":
        data.write_bytes(b"")
    elif kind == "half-manifest":
        manifest.write_bytes(manifest.read_bytes()[:60])
    elif kind == "no-manifest":
        manifest.unlink()
    elif kind in ("bad-row", "lost-row"):
        lines = gzip.decompress(packed).split(b"\n")
        lines = [*lines[:-2], b'{"row":"dir","log_dir":"/d', b""] if kind == "bad-row" else [*lines[:-2], b""]
        _vouch(data, manifest, gzip.compress(b"\n".join(lines), mtime=0))
    else:
        raise ValueError(f"no corruption is called {kind}")
    for path in (data, manifest):
        if path.exists():
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _vouch(data: Path, manifest: Path, packed: bytes) -> None:
    """Replaces the content and updates the manifest's bytes and SHA-256, but not its rows."""
    data.write_bytes(packed)
    claim = json.loads(manifest.read_text())
    claim |= {"bytes": len(packed), "sha256": hashlib.sha256(packed).hexdigest()}
    manifest.write_text(json.dumps(claim))
