"""Names in the fleet store. Whatever does not match is not ours: it is skipped and reported, never read or removed."""

from __future__ import annotations

import re
from datetime import date

ASSIGNMENTS = "assignments"
SNAPSHOT, DELTA = "snapshot", "delta"
SNAPSHOT_KINDS = (SNAPSHOT, DELTA)
"""Kinds of snapshots in manifests. A job from before there were deltas takes none for a whole snapshot."""
DATA = ".jsonl.gz"
MANIFEST = ".manifest.json"

_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NODE = re.compile(r"0|[1-9][0-9]{0,9}")
MAX_NODE = 2**31 - 1


def is_plain(name: str) -> bool:
    """Whether `name` can be one component of a path in the store: ASCII letters, digits, `.`, `_`, `-`; not hidden.

    No colon (Hadoop takes what precedes it for a scheme), no bracket or star (Spark takes them for a pattern).
    """
    return _PLAIN.fullmatch(name) is not None


def as_date(name: str) -> date | None:
    """The date in a directory name of exactly the form `YYYY-MM-DD`; None for any other name, such as `2026-W01-1`, and
    for dates before 1970 or after 9998: no snapshot is from then, and the calendar ends near them."""
    if _DATE.fullmatch(name) is None:
        return None
    try:
        found = date.fromisoformat(name)
    except ValueError:
        return None
    return found if 1970 <= found.year <= 9998 else None


def as_node(name: str) -> int | None:
    """The node id that a directory is named after; None for any other name."""
    return int(name) if _NODE.fullmatch(name) is not None and int(name) <= MAX_NODE else None


def is_place(name: str) -> bool:
    """Whether a directory below a date may hold files: it is a node's or that of the assignments."""
    return name == ASSIGNMENTS or as_node(name) is not None


def stem_and_suffix(name: str) -> tuple[str, str] | None:
    """`(stem, suffix)` of a data file or manifest, None for any other name."""
    for suffix in (DATA, MANIFEST):
        stem = name.removesuffix(suffix)
        if stem != name and is_plain(stem):
            return stem, suffix
    return None


def publisher_of(stem: str) -> int | None:
    """The node that published an assignment file, from the end of its name (so no two hosts write the same name)."""
    return as_node(stem.rpartition("-")[2]) if "-" in stem else None
