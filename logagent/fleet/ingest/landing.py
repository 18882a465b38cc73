"""Writes files of `landing/` as the agents do, for fleets that are made up."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from logagent.store import files as landing
from logagent.store.files import Claim, manifest_of, place, rfc3339

__all__ = ["Claim", "manifest_of", "place", "put", "rfc3339"]


def put(store: Path, claim: Claim, lines: Iterable[str], *, received_at: datetime | None = None) -> Path:
    """Writes one file and its manifest; the data file's path. The same lines give the same bytes.

    `received_at` sets the modification time (by default the moment of writing). Raises OSError.
    """
    stem = place(store, claim)
    stem.parent.mkdir(parents=True, exist_ok=True)
    return landing.put(stem, claim, lines, received_at=received_at, durable=False)
