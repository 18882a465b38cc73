"""Which columns of each report table the page shows, in which order, and what they mean.

A page is for reading: identifiers that only programs need (directory ids, snapshot ids) stay in the CSV. The first
column is the row's name and stays visible while the others scroll.

The rows of the page's tables, made from those of the report: what is read together is put together.

The rows as compressed columns in the page, which the browser unpacks when somebody looks at the table.

Texts are spelled by `visible`, so that the page shows, filters and searches the same text.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from types import NoneType
from typing import Any

from logagent.base.dir_names import why_spared
from logagent.fleet.page.text import LONG_AHEAD, parse_time, visible
from logagent.fleet.page.words import MEANT
from logagent.store.contract import PageTable


@dataclass(frozen=True, slots=True)
class Show:
    """One column of the page.

    `key` names the column of the rows (and the filter of the page), `label` heads it, `help` explains it. `unit` is the
    contract's unit, "id" for numbers that name something, "badge" for words with a tone. `to` is the table that the
    cell leads to, filtered by this row's columns `by` and by the values `only`. `pick` offers the column's values in a
    list. `mono` is for names from disks. `hidden` columns are only there for links, filters and commands.
    """

    key: str
    label: str
    unit: str = "text"
    help: str = ""
    to: str | None = None
    by: tuple[str, ...] = ()
    only: tuple[tuple[str, str], ...] = ()
    pick: bool = False
    mono: bool = False
    hidden: bool = False


_HOST_KEY = ("cluster_id", "node_id")
_LOG_DIR_KEY = (*_HOST_KEY, "log_dir")
_ORPHANS = (("list", "orphan"),)
_CLUSTER = Show("cluster_id", "Cluster", pick=True, mono=True)
_NODE = Show("node_id", "Node", "id", "node.id of the broker")
_HOST = Show("host", "Host", to="usage_log_dirs", by=_HOST_KEY, mono=True)
_LOG_DIR = Show("log_dir", "Log dir", to="places", by=_LOG_DIR_KEY, mono=True)
_NAME = Show("name", "Directory", help="name of the directory on disk", mono=True)
_TOPIC = Show("topic", "Topic", to="directories", by=("cluster_id", "topic"), mono=True)
_PARTITION = Show("partition", "Part.", "id", "partition number")
_ALLOCATED = Show(
    "allocated", "Allocated", "bytes", "what the file system gave the files, and removing them gives back"
)
_SIZES = Show("bytes", "File sizes", "bytes", "their sum; a preallocated index counts whole")
_WINDOWS = (
    ("now", "Now"),
    ("restart", "At restart"),
    ("approval", "Approval"),
    ("later", "Not yet due"),
)


def _reclaim(by: tuple[str, ...]) -> tuple[Show, ...]:
    """What can be reclaimed, by window: each figure leads to its directories."""
    return tuple(
        Show(f"reclaim_{window}", label, "bytes", MEANT[window], to="directories", by=by, only=(("window", window),))
        for window, label in _WINDOWS
    )


_FULLNESS = (
    Show("used_share", "Full", "share", "used of size"),
    Show("used", "Used", "bytes", "of the file system, as statvfs gives it"),
    Show("free", "Free", "bytes", "of the file system, as statvfs gives it"),
)
_LEDGER = (
    Show("current", "Current", "bytes", "partitions that the broker serves"),
    Show("future", "Future", "bytes", "copies being moved between log dirs"),
    Show("stray", "Stray", "bytes", "set aside, never removed by the broker"),
    Show("delete", "Delete", "bytes", "marked for deletion, not yet removed"),
    Show("other", "Other", "bytes", "indexes, metadata and foreign files"),
    Show(
        "open_removed",
        "Removed, open",
        "bytes",
        "removed, but held open; before ending the process: logagent rescue",
    ),
    Show("unexplained", "Unexplained", "bytes", "used by nothing that could be seen"),
)
_DIRS = Show("dirs", "Dirs", "int", "partition dirs of every kind")
_TOPIC_ID = Show("topic_id", "Topic id", mono=True)

LAYOUT: dict[str, tuple[Show, ...]] = {
    "usage_clusters": (
        Show("cluster_id", "Cluster", mono=True, to="usage_hosts", by=("cluster_id",)),
        Show("hosts", "Hosts", "int"),
        Show("unknown_hosts", "Unknown", "int", "hosts without a usable snapshot"),
        Show("verdicts", "Verdicts", "badge", "whether orphans could be decided"),
        Show("assignments_age", "Assignments", "seconds", "age of the newest complete assignment file"),
        _ALLOCATED,
        _SIZES,
        *_FULLNESS,
        *_reclaim(("cluster_id",)),
        *_LEDGER,
        Show("orphans", "Orphans", "int", to="directories", by=("cluster_id",), only=_ORPHANS),
        Show("log_dirs", "Log dirs", "int"),
        _DIRS,
        Show("expected", "Replicas", "int", "that are assigned: all those of the next columns together"),
        Show("found", "Found", "int", "on the disks of their host"),
        Show("missing", "Missing", "int", to="missing_replicas", by=("cluster_id",)),
        *(
            Show(state, label, "int", meant, to="undecided_replicas", by=("cluster_id",), only=(("state", state),))
            for state, label, meant in (
                ("not_yet", "Not yet", "only assignments that are younger than the snapshot have them"),
                ("unproven", "Unproven", "not found, and nothing shows whether they had to be there"),
                ("not_read", "Not read", "perhaps in a log dir that could not be read"),
            )
        ),
        Show("gone", "Gone", "int", "not assigned any more when their host looked"),
        Show("not_heard", "Not heard", "int", "replicas on unknown hosts"),
        Show("host_skew", "Skew", "ratio", "fullest host: largest against the mean; 1.00× is even"),
    ),
    "usage_hosts": (
        Show("host", "Host", mono=True, to="usage_log_dirs", by=_HOST_KEY),
        _ALLOCATED,
        _SIZES,
        *_FULLNESS,
        *_reclaim(_HOST_KEY),
        *_LEDGER,
        Show("orphans", "Orphans", "int", to="directories", by=_HOST_KEY, only=_ORPHANS),
        Show("log_dirs", "Log dirs", "int", to="usage_log_dirs", by=_HOST_KEY),
        Show("offline_log_dirs", "Offline", "int", "log dirs that are offline"),
        _DIRS,
        Show("skew", "Skew", "ratio", "allocated on this host against the mean of its cluster; 1.00× is even"),
        Show("log_dir_skew", "Dir skew", "ratio", "its fullest log dir against the mean; 1.00× is even"),
        Show("snapshot_age_seconds", "Snapshot", "seconds", "age of the snapshot that counts"),
        Show("agent_version", "Agent", pick=True),
        Show("kafka_version", "Kafka", pick=True),
        _NODE,
        _CLUSTER,
    ),
    "usage_log_dirs": (
        # Log dirs are called the same on every host: the row is known by its host.
        Show("host", "Host", mono=True, to="places", by=_LOG_DIR_KEY),
        _LOG_DIR,
        Show("health", "Health", "badge", pick=True),
        _ALLOCATED,
        _SIZES,
        *_FULLNESS,
        *_reclaim(_LOG_DIR_KEY),
        *_LEDGER,
        Show("size", "Size", "bytes", "of the file system"),
        Show("orphans", "Orphans", "int", to="directories", by=_LOG_DIR_KEY, only=_ORPHANS),
        _DIRS,
        Show("skew", "Skew", "ratio", "against the mean of the log dirs of its host; 1.00× is even"),
        _NODE,
        _CLUSTER,
        Show("reason", "Reason", help="why it is not online"),
        Show(
            "shares_with", "Shares with", mono=True, help="the log dir on the same file system: its size counts there"
        ),
    ),
    "usage_topics": (
        Show("topic", "Topic", mono=True, to="directories", by=("cluster_id", "topic")),
        _ALLOCATED,
        _SIZES,
        Show("partitions", "Partitions", "int"),
        Show("copies", "Copies", "int", "partition dirs over all hosts"),
        *_reclaim(("cluster_id", "topic", "topic_id")),
        *(column for column in _LEDGER if column.key in ("current", "future", "stray", "delete")),
        Show("largest_partition", "Largest part.", "bytes", "allocated by its largest copy"),
        Show("skew", "Skew", "ratio", "largest partition against the mean; 1.00× is even"),
        Show("orphans", "Orphans", "int"),
        _CLUSTER,
        _TOPIC_ID,
    ),
    "directories": (
        _NAME,
        _ALLOCATED,
        Show("window", "When", "badge", "when its bytes can come back", pick=True),
        Show("standing", "This copy", "badge", "among all copies of this topic id and partition", pick=True),
        Show("copies_elsewhere", "Elsewhere", "int", "other copies of this topic id and partition in the fleet"),
        Show("list", "Is", pick=True, help="orphan, leftover, or undecided"),
        Show("reason", "Why", pick=True),
        Show("age_seconds", "Age", "seconds", "since first seen as an orphan, or set aside; by its host's clock"),
        _HOST,
        _LOG_DIR,
        Show("due_at", "Due", "time"),
        Show("obstacle", "In the way", help="the guard or rule that prevents it", pick=True),
        Show("obstacle_detail", "In words", help="what is in the way, as its host's agent says it"),
        Show("sightings", "Seen", "int", "in how many inventories it was an orphan"),
        _SIZES,
        Show("newest_mtime", "Last write", "time"),
        Show("agent_verdict", "The agent", help="verdict of the host's own agent"),
        Show("kind", "Kind", pick=True),
        _TOPIC,
        _PARTITION,
        _NODE,
        _CLUSTER,
        _TOPIC_ID,
        Show("id", "Id", hidden=True),
    ),
    "growth": (
        Show("what", "What grows", mono=True, help="the host of a log dir, or a topic"),
        _LOG_DIR,
        Show("days_to_full", "Full in", "days", "free bytes at this pace; no number where growth is 0 or less"),
        Show("full_on", "Full on", "date", "the last date, and as many days"),
        Show("bytes_per_day", "Per day", "bytes"),
        Show("bytes", "Bytes", "bytes", "on the last date"),
        Show("free", "Free", "bytes"),
        Show("scope", "Scope", pick=True),
        Show("dates", "Dates", "int", "how many dates the pace is taken from"),
        Show("first_date", "From", "date"),
        Show("last_date", "To", "date"),
        _NODE,
        _CLUSTER,
        Show("host", "Host", hidden=True),
        Show("topic", "Topic", hidden=True),
    ),
    "log_dir_health": (
        Show("finding", "Finding", "badge", pick=True),
        _HOST,
        _NODE,
        _LOG_DIR,
        Show("since", "Since", "date", "first stored date on which it was so, and on every one since; may be older"),
        Show("cause", "Cause", help="why nothing is known of the host", pick=True),
        Show("detail", "Detail"),
        _CLUSTER,
        Show("snapshot_at", "Snapshot", "time"),
    ),
    "missing_replicas": (
        _TOPIC,
        _PARTITION,
        Show("copies_elsewhere", "Elsewhere", "int", "copies on other brokers that report"),
        _HOST,
        _NODE,
        Show("in_isr", "In sync", "bool", "the controller counts this replica as in sync", pick=True),
        Show("adding", "Adding", "bool", "being added by a reassignment", pick=True),
        Show("left", "Left", help="stray: one that was set aside is still there", pick=True),
        _CLUSTER,
        _TOPIC_ID,
        Show("snapshot_at", "Snapshot", "time"),
    ),
    "undecided_replicas": (
        _TOPIC,
        _PARTITION,
        Show("copies_elsewhere", "Elsewhere", "int", "copies on other brokers that report"),
        Show("state", "State", "badge", "not_yet, unproven or not_read", pick=True),
        Show("reason", "Why", pick=True),
        _HOST,
        _NODE,
        Show("in_isr", "In sync", "bool", "the controller counts this replica as in sync", pick=True),
        Show("adding", "Adding", "bool", "being added by a reassignment", pick=True),
        _CLUSTER,
        _TOPIC_ID,
        Show("snapshot_at", "Snapshot", "time"),
    ),
    "duplicates": (
        _TOPIC,
        _PARTITION,
        _ALLOCATED,
        _SIZES,
        Show("copies", "Copies", "int"),
        _HOST,
        Show("log_dirs", "Log dirs", mono=True),
        _NODE,
        _CLUSTER,
    ),
    "deletion_progress": (
        _TOPIC,
        Show("done_share", "Done", "share", "copies done of copies asked for"),
        Show("marked", "Asked for", "int", "copies that the requests ask for"),
        Show("removed", "Done copies", "int", "set aside, removed or absent"),
        Show("remaining", "Left", "int"),
        Show("marked_bytes", "Asked bytes", "bytes"),
        Show("removed_bytes", "Freed", "bytes"),
        Show("hosts", "Hosts", "int"),
        Show("hosts_done", "Hosts done", "int"),
        Show("since", "Since", "date"),
        _CLUSTER,
    ),
    "quarantined_input": (
        Show("file", "File", mono=True),
        Show("reason", "Reason", pick=True),
        Show("detail", "Detail"),
        Show("kind", "Kind", pick=True),
        Show("record", "Record", mono=True),
        Show("landing_date", "Date", "date", "its date in landing"),
        _NODE,
        _CLUSTER,
    ),
}


def _cluster_second(columns: tuple[Show, ...]) -> tuple[Show, ...]:
    """Where there are several clusters (else it is hidden), the cluster tells rows of the same name apart."""
    if _CLUSTER not in columns:
        return columns
    return (columns[0], _CLUSTER, *(column for column in columns[1:] if column is not _CLUSTER))


LAYOUT = {name: _cluster_second(columns) for name, columns in LAYOUT.items()}

Row = dict[str, Any]
Tables = Mapping[str, PageTable]


def page_rows(report: Mapping[str, Any], tables: Tables) -> dict[str, tuple[list[Row], int]]:
    """Rows of every table of the page, and how many there are in all."""
    usage = ("usage_hosts", "usage_log_dirs", "usage_topics")
    plain = (*usage, "log_dir_health", "missing_replicas", "undecided_replicas", "duplicates", "deletion_progress")
    made = {name: (tables[name]["rows"], tables[name]["total"]) for name in plain}
    made["usage_clusters"] = _clusters(report, tables["usage_clusters"])
    made["directories"] = _directories(tables)
    made["growth"] = (
        [
            {**row, "what": row["topic"] if row["scope"] == "topic" else row["host"], "full_on": full_on(row)}
            for row in tables["growth"]["rows"]
        ],
        tables["growth"]["total"],
    )
    made["quarantined_input"] = (tables["quarantined_input"]["rows"], tables["quarantined_input"]["total"])
    return made


def full_on(row: Mapping[str, Any]) -> str | None:
    """The date on which a row of `growth` is full at its pace; none if that is far off, or no date is known."""
    ahead = row.get("days_to_full")
    if ahead is None or ahead > LONG_AHEAD:
        return None
    try:
        return (date.fromisoformat(str(row.get("last_date"))) + timedelta(days=round(ahead))).isoformat()
    except ValueError:
        return None


def _clusters(report: Mapping[str, Any], table: PageTable) -> tuple[list[Row], int]:
    """The table of clusters, with what the report says about their assignments and their fullness."""
    known = {cluster["cluster_id"]: cluster for cluster in report["clusters"]}
    rows = []
    for row in table["rows"]:
        cluster = known.get(row.get("cluster_id"), {})
        used, size = row.get("used"), row.get("size")
        share = used / size if isinstance(used, int) and size else None
        age = (cluster.get("assignments") or {}).get("age_seconds")
        rows.append({**row, "verdicts": cluster.get("verdicts"), "assignments_age": age, "used_share": share})
    return rows, table["total"]


def _directories(tables: Tables) -> tuple[list[Row], int]:
    """Orphans, leftovers and undecided ones in one table; an abandoned move is an orphan, and is listed once."""
    orphans = tables["orphans"]["rows"]
    rows = [{**row, "list": "orphan", "standing": _standing(row), "id": _id_to_ask(row)} for row in orphans]
    leftovers = tables["leftovers"]["rows"]
    others = [row for row in leftovers if row.get("why") != "abandoned"]
    rows += [
        {
            **row,
            "list": "leftover",
            "reason": row.get("why"),
            "standing": None if row.get("copies_elsewhere") is None else _standing(row),
            "id": _id_to_ask(row),
        }
        for row in others
    ]
    rows += [{**row, "list": "undecided"} for row in tables["undecided"]["rows"]]
    rows.sort(key=lambda row: -(row.get("allocated") or 0))
    total = sum(tables[name]["total"] for name in ("orphans", "leftovers", "undecided"))
    return rows, total - (len(leftovers) - len(others))


def _id_to_ask(row: Mapping[str, Any]) -> str | None:
    """The id of a row for commands of the page; None for what `topics purge` would leave out of its plan without
    another option, so that a command plans what it stands beside."""
    if row.get("inode") is None or why_spared(str(row.get("topic") or ""), include_internal=False):
        return None
    return row.get("id")


def _standing(row: Mapping[str, Any]) -> str:
    """What would be lost with this copy: the first thing to know before anybody deletes it."""
    if row.get("only_copy"):
        return "only copy"
    longest = row.get("longest_copy")
    if longest:
        return "longest copy"
    return "shorter copy" if longest is False else "length unknown"


PackedRow = Mapping[str, Any]
EXACT = frozenset({"allocated", "size"})
"""Byte figures kept exact, among them what can be reclaimed. Others keep four digits, one more than is shown: the
remaining digits would be a third of the page, and are in the CSV."""


def packed(rows: Sequence[PackedRow], columns: Sequence[Show]) -> str:
    """gzip and base64 of a JSON list with one entry a column: `[values]`, or `{"d": distinct texts, "i": indexes}` (-1:
    none). Times are seconds since 1970. A directory name that follows from its topic and partition is null."""
    made = [_column(rows, column) for column in columns]
    text = json.dumps(made, separators=(",", ":"), ensure_ascii=True)
    # Level 9 takes four times as long for 0.8% less.
    compressor = zlib.compressobj(6, zlib.DEFLATED, 31)
    return base64.b64encode(compressor.compress(text.encode()) + compressor.flush()).decode()


def _column(rows: Sequence[PackedRow], column: Show) -> list[Any] | dict[str, list[Any]]:
    if column.key == "name":
        return [None if _is_plain(row) else visible(str(row.get("name"))) for row in rows]
    is_exact = column.unit != "bytes" or column.key in EXACT or column.key.startswith("reclaim_")
    values = [row.get(column.key) for row in rows]
    if not {*map(type, values)} <= {int, NoneType} or column.unit == "time":
        values = [_value(value, column.unit) for value in values]
    if not is_exact:
        values = [_rounded(value) if isinstance(value, int) else value for value in values]
    if not any(isinstance(value, str) for value in values) or column.key == "id":
        return values
    places: dict[str, int] = {}
    indexes = [-1 if value is None else places.setdefault(str(value), len(places)) for value in values]
    return {"d": list(places), "i": indexes}


def _is_plain(row: PackedRow) -> bool:
    name = row.get("name")
    return row.get("topic") is not None and visible(str(row["topic"])) + f"-{row.get('partition')}" == visible(
        str(name)
    )


def _value(value: Any, unit: str) -> Any:
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "time":
        return _seconds(str(value))
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return round(value) if unit == "seconds" else round(value, {"share": 4}.get(unit, 2))
    return visible(str(value))


def _rounded(value: int) -> int:
    digits = len(str(abs(value))) - 4
    return value if digits <= 0 else round(value, -digits)


def _seconds(text: str) -> int | str:
    """Seconds since 1970; anything but a time stays as it is."""
    parsed = parse_time(text)
    return visible(text) if parsed is None else int(parsed.timestamp())
