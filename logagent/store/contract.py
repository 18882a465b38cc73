"""What the agents publish, what the fleet job stores and reports, and what the page receives. No pyspark here.

Both sides of `landing/` share this one file, and it names every report table and column.

`logagent.fleet.page.render(report, tables)` makes the page, on the driver. `report` is the content of `report.json`
(`FleetReport` in `logagent.fleet.documents` has its fields). `tables` has every table of `TABLES` but
`usage_partitions`, and every one of `CHARTS`, also if it is empty: rows in reading order, times as RFC 3339 text.

Every text in them may come from a disk: escape all of it. A byte of a name that is not UTF-8 arrives as the six
characters `\\udcXX`.

A name in the store that none of the functions at the beginning accepts is not ours: what has it is skipped and
reported, never read or removed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `unit`: text, int, bytes, seconds, days, share (0..1), ratio (1.0 = the mean), time, date or bool."""

    name: str
    unit: str = "text"


@dataclass(frozen=True, slots=True)
class Table:
    """One report table: title, columns in the order of the files, and sort order (`-` = descending)."""

    title: str
    columns: tuple[Column, ...]
    order: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def _columns(text: str) -> tuple[Column, ...]:
    """`"name other:bytes"` → columns; the unit defaults to text."""
    return tuple(Column(*word.split(":")) for word in text.split())


WINDOWS = ("now", "restart", "approval", "later")
"""When the bytes of an orphan or leftover can be freed: now, at the broker's next start, only with approval (it is the
only copy left), later (not yet due)."""
_RECLAIM = " ".join(f"reclaim_{window}:bytes" for window in WINDOWS)

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

_LEDGER = " ".join(f"{name}:bytes" for name in LEDGER)
_HOST = "cluster_id node_id:int host"
_PARTITION = "topic topic_id partition:int"

TABLES: dict[str, Table] = {
    "usage_clusters": Table(
        "Disk usage by cluster",
        _columns(
            f"""
            cluster_id hosts:int unknown_hosts:int log_dirs:int dirs:int bytes:bytes
            allocated:bytes {_LEDGER} orphans:int orphan_bytes:bytes host_skew:ratio {_RECLAIM}
            {" ".join(f"{name}:int" for name in REPLICA_COUNTS)}
            """
        ),
        ("-allocated", "cluster_id"),
    ),
    "usage_hosts": Table(
        "Disk usage by host",
        _columns(
            f"""
            {_HOST} agent_version kafka_version snapshot_id snapshot_at:time
            snapshot_age_seconds:seconds clock_skew_seconds:seconds log_dirs:int
            offline_log_dirs:int dirs:int bytes:bytes allocated:bytes {_LEDGER} used_share:share
            orphans:int orphan_bytes:bytes skew:ratio log_dir_skew:ratio {_RECLAIM}
            """
        ),
        ("-allocated", "cluster_id", "node_id"),
    ),
    "usage_log_dirs": Table(
        "Disk usage by log dir, with the hidden bytes",
        _columns(
            f"""
            {_HOST} log_dir directory_id health reason dirs:int bytes:bytes allocated:bytes
            {_LEDGER} used_share:share orphans:int orphan_bytes:bytes skew:ratio {_RECLAIM} shares_with
            """
        ),
        ("-used_share", "-allocated", "cluster_id", "node_id", "log_dir"),
    ),
    "usage_topics": Table(
        "Disk usage by topic",
        _columns(
            f"""
            cluster_id topic topic_id partitions:int copies:int bytes:bytes allocated:bytes
            current:bytes future:bytes stray:bytes delete:bytes largest_partition:bytes
            skew:ratio orphans:int orphan_bytes:bytes {_RECLAIM}
            """
        ),
        ("-allocated", "cluster_id", "topic", "topic_id"),
    ),
    "usage_partitions": Table(
        "Disk usage by partition",
        _columns(
            f"""
            cluster_id {_PARTITION} copies:int assigned:int as_assigned:bool bytes:bytes
            allocated:bytes smallest_copy:bytes largest_copy:bytes
            """
        ),
        ("cluster_id", "topic", "topic_id", "partition"),
    ),
    "orphans": Table(
        "Orphaned directories",
        _columns(
            f"""
            {_HOST} log_dir name {_PARTITION} reason bytes:bytes allocated:bytes
            age_seconds:seconds sightings:int copies_elsewhere:int longest_copy:bool
            only_copy:bool last_segment_offset:int newest_mtime:time kind agent_verdict
            agent_reason window due_at:time obstacle obstacle_detail directory_id inode:int end_offset:int
            snapshot_at:time id
            """
        ),
        ("-allocated", "cluster_id", "node_id", "log_dir", "name"),
    ),
    "missing_replicas": Table(
        "Assigned, and on no disk of that broker",
        _columns(f"{_HOST} {_PARTITION} in_isr:bool adding:bool copies_elsewhere:int left snapshot_at:time"),
        ("cluster_id", "topic", "topic_id", "partition", "node_id"),
    ),
    "undecided_replicas": Table(
        "Replicas that could not be compared",
        _columns(f"{_HOST} {_PARTITION} state reason copies_elsewhere:int in_isr:bool adding:bool snapshot_at:time"),
        ("copies_elsewhere", "cluster_id", "topic", "topic_id", "partition", "node_id"),
    ),
    "leftovers": Table(
        "Strays, overdue deletions, abandoned moves",
        _columns(
            f"""
            {_HOST} log_dir name kind {_PARTITION} bytes:bytes allocated:bytes
            age_seconds:seconds marked_at:time why copies_elsewhere:int longest_copy:bool only_copy:bool
            window due_at:time covered obstacle obstacle_detail directory_id inode:int
            end_offset:int snapshot_at:time id
            """
        ),
        ("-allocated", "cluster_id", "node_id", "log_dir", "name"),
    ),
    "undecided": Table(
        "Directories that could not be decided",
        _columns(
            f"""
            {_HOST} log_dir name kind {_PARTITION} reason bytes:bytes allocated:bytes
            agent_verdict agent_reason snapshot_at:time
            """
        ),
        ("reason", "-allocated", "cluster_id", "node_id", "log_dir", "name"),
    ),
    "duplicates": Table(
        "The same partition in two log dirs of one host",
        _columns(f"{_HOST} {_PARTITION} copies:int log_dirs bytes:bytes allocated:bytes"),
        ("-allocated", "cluster_id", "node_id", "topic", "topic_id", "partition"),
    ),
    "log_dir_health": Table(
        "Log dirs, hosts and agents that need a look",
        _columns(f"{_HOST} log_dir finding detail snapshot_at:time cause since:date"),
        ("finding", "cluster_id", "node_id", "log_dir", "detail"),
    ),
    "growth": Table(
        "Growth, and days until full",
        _columns(
            f"""
            scope {_HOST} log_dir topic topic_id first_date:date last_date:date dates:int
            bytes:bytes bytes_per_day:bytes free:bytes days_to_full:days
            """
        ),
        ("days_to_full", "-bytes_per_day", "scope", "cluster_id", "node_id", "log_dir", "topic", "topic_id"),
    ),
    "deletion_progress": Table(
        "Deletion progress by topic",
        _columns(
            """
            cluster_id topic marked:int marked_bytes:bytes removed:int removed_bytes:bytes
            hosts:int hosts_done:int remaining:int since:date done_share:share
            """
        ),
        ("done_share", "-marked_bytes", "cluster_id", "topic"),
    ),
    "quarantined_input": Table(
        "Input that was not taken",
        _columns("cluster_id node_id:int landing_date:date kind file reason detail record"),
        ("cluster_id", "node_id", "file", "reason", "record"),
    ),
}
"""Every report table.

`usage_log_dirs.shares_with`: the log dir of the same host and file system that has the figures of both
(`OF_FILE_SYSTEM`): sums of those leave this row out.
`log_dir_health.finding` is one of offline, read-only, full, unformatted (log dirs), unknown-host, old-agent,
clock-skew, perhaps-two-machines, verdicts-differ; `cause` is that of an unknown host (see `answers.risk.unknown` of
`report.json`), `since` the first stored date on which the log dir was found so, and on every one after it that has it.
`growth.scope` is `log_dir` or `topic`. `orphans.reason` is one of
`logagent.verdict.rules.ORPHAN_REASONS`.
`undecided_replicas.state` is one of `UNDECIDED`, its `reason` one of `NOT_COMPARED`.
`undecided.reason` says why a directory that the assignments do not place here is not called an orphan: no-assignments,
no-topic-id, sources-disagree, wrong-directory, reassigning, internal, uncommitted, stale-assignments,
assignments-doubted.
`window` (see `WINDOWS`) and `due_at` are what the agent reported, otherwise derived from kind and age; an orphan that
is the only copy needs approval, and so does a stray of which nothing shows that its host would remove it (its topic id
lives and no other copy is longer, or is not proven to be gone); null if something has to be fixed first. `obstacle`:
the guard or rule that prevents removal, in one word; `obstacle_detail`: in the agent's sentence. `covered`: whether
another copy has all that a stray has, according to the agent. `directory_id` (of its log dir), `inode` and `end_offset`
say which directory it is; `id` names it for `topics purge`; null: it cannot be requested.
"""

CHARTS: dict[str, Table] = {
    "chart_growth": Table(
        "Bytes by day",
        _columns("cluster_id date:date hosts:int bytes:bytes used:bytes size:bytes log_dirs:int was:bytes now:bytes"),
        ("cluster_id", "date"),
    ),
}

STAMP = (Column("date", "date"), Column("run_id"))
"""The last columns of every table in the files of a report: its date and run, so that several can be read as one."""

"""`log_dirs` of `chart_growth`: how many have figures on that date and on the newest one of their cluster; `was` and
`now`: what these used on each of the two."""

NO_CSV = frozenset({"usage_partitions"})
"""Written as Parquet only, and not given to the page."""
