"""What the agents publish, what the fleet job stores, and what the page receives. No pyspark here.

Both sides of `landing/` share this one file; tables and columns of reports are in `fleet/report/columns.py`.

`logagent.fleet.page.render(report, tables)` makes the page, on the driver. `report` is the content of `report.json`
(`FleetReport` in `logagent.fleet.documents` has its fields). `tables` has every table of `TABLES` there but
`usage_partitions`, and every one of `CHARTS`, also if it is empty: rows in reading order, times as RFC 3339 text.

Every text in them may come from a disk: escape all of it. A byte of a name that is not UTF-8 arrives as the six
characters `\\udcXX`.

A name in the store that none of the functions at the beginning accepts is not ours: what has it is skipped and
reported, never read or removed.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any, TypedDict

ASSIGNMENTS = "assignments"
SNAPSHOT, DELTA = "snapshot", "delta"
SNAPSHOT_KINDS = (SNAPSHOT, DELTA)
"""Kinds of snapshots in manifests."""
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


ASSIGNMENTS_SCHEMA = "logagent.assignments/1"
MANIFEST_SCHEMA = "logagent.manifest/1"
REPORT_SCHEMA = "logagent.fleet-report/1"

PAGE_ROWS = 100_000
"""The most rows of one table that the page is given; the CSV has all of them."""
DRIVER_ROWS = 200_000
"""The driver sorts a table of up to this many rows and writes its CSV; Spark does that for larger ones."""
SHOWN_UNKNOWN_HOSTS = 1000
GROWTH_DATES = 90
SOON_DAYS, LATER_DAYS = 7, 30
"""Within how many days a log dir that fills up is a risk, and one to plan for."""
CLOCKS_APART = timedelta(minutes=5)
"""How far apart the clocks of hosts, stores and operators may be. What differs more proves nothing."""


class PageTable(TypedDict):
    """The first rows of a table, in its order, and the number of all its rows."""

    columns: list[str]
    rows: list[dict[str, Any]]
    total: int


WINDOWS = ("now", "restart", "approval", "later")
"""When the bytes of an orphan or leftover can be freed: now, at the broker's next start, only with approval (it is the
only copy left), later (not yet due)."""

LEDGER = ("size", "used", "free", "current", "future", "stray", "delete", "other", "open_removed", "unexplained")
"""The ledger of a log dir, in bytes. On a file system: used = unexplained + `OWN_LEDGER` of all log dirs there."""
OWN_LEDGER = ("current", "future", "stray", "delete", "other", "open_removed")
"""What a log dir's file system is used for by that log dir."""
OF_FILE_SYSTEM = ("size", "used", "free")
"""What all log dirs on one file system have in common."""

REPLICA_COUNTS = ("expected", "found", "missing", "not_yet", "unproven", "gone", "not_heard", "not_read")
"""What the replicas of a cluster come to: expected are all the others together. `missing`: assigned before its host
looked and afterwards, and not there. `not_yet`: only in assignments that are younger than that; `gone`: only in older
ones; `unproven`: nothing shows whether it had to be there; `not_heard`: of hosts that do not count; `not_read`: it may
be in a log dir that could not be read."""
UNDECIDED = ("not_yet", "not_read", "unproven")
"""What is not known to be missing, nor not to be."""
NOT_COMPARED = {
    "assigned-since": "only assignments that are younger than their snapshots have them",
    "no-older-assignments": "no assignments were read from before their snapshots",
    "no-younger-assignments": "their snapshots are younger than the newest assignments",
    "assignments-between": "the assignments are of the time of their snapshots",
    "assignments-doubted": "the assignments of their cluster are in doubt",
    "metadata-version": "the metadata.version of their cluster is newer than the tested ones",
    "marked": "all that is there is marked for deletion",
    "log-dir-not-read": "they may be in a log dir that could not be read",
}
"""Why replicas could not be compared, by `undecided_replicas.reason`."""
