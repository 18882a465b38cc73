"""The rows of a file that the driver reads: header, log dirs, brokers. Pure."""

from __future__ import annotations

from typing import Any

from logagent.fleet.ingest.landing import Landed
from logagent.fleet.ingest.manifests import Manifest, Problem, millis
from logagent.fleet.ingest.unpack import Unpacked
from logagent.fleet.tables.plausible import is_removal
from logagent.store.contract import LEDGER

LARGEST_SIZE = 1 << 53
"""The most bytes that a directory, a file system or all of a host can have; more is false, and sums would overflow."""
_OF_FILE_SYSTEM = ("size", "used", "free")
"""What all log dirs on one file system say alike: each is bounded, and so is how many there are."""
TOO_MANY_BYTES = "too-many-bytes"
MOST_NODES = 20_000
TOO_MANY_NODES = "too-many-nodes"
"""No cluster has more: each is a host that the report would list as missing."""
MOST_LOG_DIRS = 1_000
"""No host has more; each is a row that the driver and every report keep."""
TOO_MANY_LOG_DIRS = "too-many-log-dirs"
Row = dict[str, Any]


def inside(landed: Landed, manifest: Manifest, seen: Unpacked) -> Problem | None:
    """The first contradiction between a file and its manifest or its place."""
    if seen.sha256 and seen.sha256 != manifest.sha256:
        return "sha256-differs", f"SHA-256 is {seen.sha256}, its manifest says {manifest.sha256}"
    if seen.problem is not None:
        return seen.problem
    if seen.rows != manifest.rows:
        return "rows-differ", f"{seen.rows} rows, its manifest says {manifest.rows}"
    kind = "snapshot" if landed.node_id is not None else "assignments"
    heads = [row for row in seen.others if row["row"] == kind]
    bad = len(seen.bad) + sum(not _is_good(row) for row in seen.others)
    if bad:
        return "bad-rows", f"{bad} of {seen.rows} rows"
    brokers = sum(row["row"] == "broker" for row in seen.others)
    if brokers > MOST_NODES:
        return TOO_MANY_NODES, f"{brokers} brokers"
    if len(heads) != 1:
        return "header-differs", f"{len(heads)} header rows"
    head = heads[0]
    if head["cluster_id"] != landed.cluster_id:
        return "wrong-cluster", f"its header says {head['cluster_id']}"
    if kind == "snapshot":
        if head["node_id"] != landed.node_id:
            return "wrong-host", f"its header says node {head['node_id']}"
        if head["snapshot_id"] != manifest.snapshot_id:
            return "wrong-snapshot", f"its header says {head['snapshot_id']}"
        paths = [row["path"] for row in seen.others if row["row"] == "log_dir"]
        if len(paths) > MOST_LOG_DIRS:
            return TOO_MANY_LOG_DIRS, f"it lists {len(paths)} log dirs, more than {MOST_LOG_DIRS}"
        for name in [name for name in LEDGER if name not in _OF_FILE_SYSTEM]:
            if sum(abs((row.get("ledger") or {}).get(name) or 0) for row in seen.others) > LARGEST_SIZE:
                return TOO_MANY_BYTES, f"`{name}` of its log dirs adds up to more than {LARGEST_SIZE} bytes"
        if len(set(paths)) != len(paths):
            return "log-dir-twice", "it lists a log dir twice"
    return None


def bad_rows(seen: Unpacked) -> list[tuple[str, str]]:
    """(what is wrong, the row) for the bad rows that the driver found."""
    found = [("not JSON, or not a row", text) for text in seen.bad]
    wrong = [row for row in seen.others if not _is_good(row)]
    return found + [(f"{row['row']}: a required field is missing or bad", str(row)[:200]) for row in wrong]


def _is_good(row: Row) -> bool:
    try:
        if row["row"] == "snapshot":
            return (
                str(row["schema"]).startswith("logagent.snapshot/")
                and _is_int(row["node_id"])
                and isinstance(row["snapshot_id"], str)
                and isinstance(row["cluster_id"], str)
                and millis(row["at"]) is not None
            )
        if row["row"] == "assignments":
            known = str(row["schema"]).startswith("logagent.assignments/") and isinstance(row["cluster_id"], str)
            return known and millis(row["at"]) is not None
        if row["row"] == "broker":
            return _is_int(row["node_id"])
        if row["row"] == "uncommitted":
            return is_removal(row["topic_id"], row.get("partition"))
        if row["row"] == "log_dir":
            return isinstance(row["path"], str) and isinstance(row["health"], str) and _is_ledger(row.get("ledger"))
    except (KeyError, TypeError):
        return False
    return True  # a kind of a newer schema


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _is_ledger(ledger: object) -> bool:
    if ledger is None:
        return True
    if not isinstance(ledger, dict):
        return False
    for name in LEDGER:
        value = ledger.get(name)
        least = -LARGEST_SIZE if name == "unexplained" else 0
        if value is not None and not (isinstance(value, int) and least <= value <= LARGEST_SIZE):
            return False
    return True


def header(seen: Unpacked) -> Row:
    """The fields of the header that the store keeps. `image_at`: how recent the agent's own assignments were; of
    assignments, until when their source is known to be complete, which may be before they were read."""
    head = next(row for row in seen.others if row["row"] in ("snapshot", "assignments"))
    image = head.get("assignments")
    image = image if isinstance(image, dict) else {}
    texts = {name: _text(head.get(name)) for name in ("agent_version", "kafka_version", "source", "boot_id", "schema")}
    offset = head.get("offset")
    return {
        **texts,
        "host": _text(head.get("host")),
        "offset": offset if isinstance(offset, int) and abs(offset) < 1 << 62 else None,
        "image_at": millis(head.get("known_until") if head["row"] == "assignments" else image.get("at")),
    }


def uncommitted(seen: Unpacked) -> list[list[Any]]:
    """Removals in the metadata log that were not committed: `[topic id, partition or null]` each."""
    rows = [row for row in seen.others if row["row"] == "uncommitted"]
    return [[row["topic_id"], row.get("partition")] for row in rows]


def log_dirs(landed: Landed, seen: Unpacked) -> list[Row]:
    """Log dir rows for the store; a ledger that the agent could not compute is null throughout."""
    rows = []
    for row in seen.others:
        if row["row"] == "log_dir":
            ledger = row.get("ledger") or {}
            rows.append(
                {
                    "cluster_id": landed.cluster_id,
                    "node_id": landed.node_id,
                    "log_dir": row["path"],
                    "directory_id": _text(row.get("directory_id")),
                    "health": row["health"],
                    "reason": _text(row.get("reason")),
                    **{name: ledger.get(name) for name in LEDGER},
                }
            )
    return rows


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
