"""Which of the files of one date, and which rows of assignments, to trust. Pure: entries in, reasons out.

An entry is a row of the `files` table. The newest is the latest by the earlier of the host's clock and the arrival, so
that a fast clock does not outrank newer files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from logagent.store.names import publisher_of

AHEAD_MS = 3_600_000
_ID = re.compile(r"[A-Za-z0-9_-]{22}")
Row = dict[str, Any]


def happened(entry: Row) -> int:
    return int(min(entry["at"], entry["received_at"]))


def newest_first(entries: Iterable[Row]) -> list[Row]:
    return sorted(entries, key=lambda e: (happened(e), e["at"], e["snapshot_id"], e["file"]), reverse=True)


def reject_implausible(entries: list[Row], pinned: frozenset[int] | None) -> None:
    """Rejects assignments that decide nothing: from a publisher that is not pinned, or more than an hour newer than
    every snapshot of their cluster unless another node has published some within that hour."""
    snapshots: dict[str, int] = {}
    for entry in entries:
        if entry["kind"] == "snapshot" and entry["status"] == "whole":
            cluster = entry["cluster_id"]
            snapshots[cluster] = max(snapshots.get(cluster, 0), happened(entry))
    images = [e for e in entries if e["kind"] == "assignments" and e["status"] == "whole"]
    for entry in images:
        publisher = publisher_of(entry["stem"])
        if pinned is not None and publisher not in pinned:
            _reject(entry, "not-a-publisher", f"node {publisher} is not one of --assignments-from")
            continue
        limit = int(snapshots.get(entry["cluster_id"]) or entry["received_at"]) + AHEAD_MS
        if entry["at"] > limit:
            others = (
                e
                for e in images
                if e["cluster_id"] == entry["cluster_id"]
                and publisher_of(e["stem"]) != publisher
                and abs(e["at"] - entry["at"]) <= AHEAD_MS
            )
            if next(others, None) is None:
                _reject(entry, "from-the-future", "over 1 h newer than every snapshot, and no other source confirms it")


def _reject(entry: Row, reason: str, detail: str) -> None:
    entry.update(status="rejected", reason=reason, detail=detail)


def claimants(entries: list[Row]) -> str | None:
    """Why it is unclear which machine the intact snapshots of a node id come from; None if it is clear. Newest first.

    Two host names on one date; or two boot ids that alternate: a machine never returns to an earlier boot.
    """
    hosts = sorted({str(e["host"]) for e in entries if e["host"] is not None})
    if len(hosts) > 1:
        return f"{len(hosts)} hosts claim this node id: {', '.join(hosts[:3])}"
    boots = [e["boot_id"] for e in reversed(entries) if e.get("boot_id")]
    turns = [boot for n, boot in enumerate(boots) if n == 0 or boot != boots[n - 1]]
    if len(turns) != len(set(turns)):
        return "two machines with the same host name claim this node id: their boot ids alternate"
    return None


def is_removal(topic_id: object, partition: object) -> bool:
    """Whether these are what an `uncommitted` row has: a topic id, and a partition or null."""
    if not isinstance(topic_id, str) or _ID.fullmatch(topic_id) is None:
        return False
    if partition is None:
        return True
    return isinstance(partition, int) and not isinstance(partition, bool) and 0 <= partition < 1 << 31
