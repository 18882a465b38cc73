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
from logagent.fleet.page.words import LONG_AHEAD, MEANT, parse_time, visible
from logagent.fleet.report.columns import COLUMNS
from logagent.store.contract import WINDOWS, PageTable


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


def _show(key: str, help: str = "", *, label: str = "", unit: str = "", **more: Any) -> Show:
    """A column with the label and unit that it has in the tables of a report, unless it has its own here."""
    known = COLUMNS.get(key)
    if known is not None:
        label, unit = label or known.label, unit or known.unit
    return Show(key, label, unit or "text", help, **more)


_HOST_KEY = ("cluster_id", "node_id")
_LOG_DIR_KEY = (*_HOST_KEY, "log_dir")
_ORPHANS = (("list", "orphan"),)
_CLUSTER = _show("cluster_id", pick=True, mono=True)
_NODE = _show("node_id", "node.id of the broker", unit="id")
_HOST = _show("host", to="usage_log_dirs", by=_HOST_KEY, mono=True)
_LOG_DIR = _show("log_dir", to="places", by=_LOG_DIR_KEY, mono=True)
_NAME = _show("name", "name of the directory on disk", mono=True)
_TOPIC = _show("topic", to="directories", by=("cluster_id", "topic"), mono=True)
_PARTITION = _show("partition", "partition number", unit="id")
_ALLOCATED = _show("allocated", "what the file system gave the files, and removing them gives back")
_SIZES = _show("bytes", "their sum; a preallocated index counts whole")


def _reclaim(by: tuple[str, ...]) -> tuple[Show, ...]:
    """What can be reclaimed, by window: each figure leads to its directories."""
    return tuple(
        _show(f"reclaim_{window}", MEANT[window], to="directories", by=by, only=(("window", window),))
        for window in WINDOWS
    )


_FULLNESS = (
    _show("used_share", "used of size"),
    _show("used", "of the file system, as statvfs gives it"),
    _show("free", "of the file system, as statvfs gives it"),
)
_LEDGER = (
    _show("current", "partitions that the broker serves"),
    _show("future", "copies being moved between log dirs"),
    _show("stray", "set aside, never removed by the broker"),
    _show("delete", "marked for deletion, not yet removed"),
    _show("other", "indexes, metadata and foreign files"),
    _show("open_removed", "removed, but held open; before ending the process: logagent rescue"),
    _show("open_unread", "of unexplained: the most that processes hold open which the agent could not read"),
    _show("unexplained", "used by nothing that could be seen"),
)
_DIRS = _show("dirs", "partition dirs of every kind")
_TOPIC_ID = _show("topic_id", mono=True)

LAYOUT: dict[str, tuple[Show, ...]] = {
    "usage_clusters": (
        _show("cluster_id", mono=True, to="usage_hosts", by=("cluster_id",)),
        _show("hosts"),
        _show("unknown_hosts", "hosts without a usable snapshot"),
        _show("verdicts", "whether orphans could be decided", label="Verdicts", unit="badge"),
        _show("assignments_age", "age of the newest complete assignment file", label="Assignments", unit="seconds"),
        _ALLOCATED,
        _SIZES,
        *_FULLNESS,
        *_reclaim(("cluster_id",)),
        *_LEDGER,
        _show("orphans", to="directories", by=("cluster_id",), only=_ORPHANS),
        _show("log_dirs"),
        _DIRS,
        _show("expected", "that are assigned: all those of the next columns together"),
        _show("found", "on the disks of their host"),
        _show("missing", to="missing_replicas", by=("cluster_id",)),
        *(
            _show(state, meant, to="undecided_replicas", by=("cluster_id",), only=(("state", state),))
            for state, meant in (
                ("not_yet", "only assignments that are younger than the snapshot have them"),
                ("unproven", "not found, and nothing shows whether they had to be there"),
                ("not_read", "perhaps in a log dir that could not be read"),
            )
        ),
        _show("gone", "not assigned any more when their host looked"),
        _show("not_heard", "replicas on unknown hosts"),
        _show("host_skew", "fullest host: largest against the mean; 1.00× is even"),
    ),
    "usage_hosts": (
        _show("host", mono=True, to="usage_log_dirs", by=_HOST_KEY),
        _ALLOCATED,
        _SIZES,
        *_FULLNESS,
        *_reclaim(_HOST_KEY),
        *_LEDGER,
        _show("orphans", to="directories", by=_HOST_KEY, only=_ORPHANS),
        _show("log_dirs", to="usage_log_dirs", by=_HOST_KEY),
        _show("offline_log_dirs", "log dirs that are offline"),
        _DIRS,
        _show("skew", "allocated on this host against the mean of its cluster; 1.00× is even"),
        _show("log_dir_skew", "its fullest log dir against the mean; 1.00× is even"),
        _show("snapshot_age_seconds", "age of the snapshot that counts"),
        _show("agent_version", pick=True),
        _show("mode", "report: the agent only looks; enforce: it acts by itself", pick=True),
        _show("unread_processes", "processes that its agent could not read"),
        _show("accepts", "keys whose requests it carries out; none: orders.accept is off", pick=True),
        _show("kafka_version", pick=True),
        _NODE,
        _CLUSTER,
    ),
    "usage_log_dirs": (
        # Log dirs are called the same on every host: the row is known by its host.
        _show("host", mono=True, to="places", by=_LOG_DIR_KEY),
        _LOG_DIR,
        _show("health", unit="badge", pick=True),
        _ALLOCATED,
        _SIZES,
        *_FULLNESS,
        *_reclaim(_LOG_DIR_KEY),
        *_LEDGER,
        _show("size", "of the file system"),
        _show("orphans", to="directories", by=_LOG_DIR_KEY, only=_ORPHANS),
        _DIRS,
        _show("skew", "against the mean of the log dirs of its host; 1.00× is even"),
        _NODE,
        _CLUSTER,
        _show("reason", "why it is not online"),
        _show("shares_with", "the log dir on the same file system: its size counts there", mono=True),
    ),
    "usage_topics": (
        _show("topic", mono=True, to="directories", by=("cluster_id", "topic")),
        _ALLOCATED,
        _SIZES,
        _show("partitions"),
        _show("copies", "partition dirs over all hosts"),
        *_reclaim(("cluster_id", "topic", "topic_id")),
        *(column for column in _LEDGER if column.key in ("current", "future", "stray", "delete")),
        _show("largest_partition", "allocated by its largest copy"),
        _show("skew", "largest partition against the mean; 1.00× is even"),
        _show("orphans"),
        _CLUSTER,
        _TOPIC_ID,
    ),
    "directories": (
        _NAME,
        _ALLOCATED,
        _show("window", "when its bytes can come back", unit="badge", pick=True),
        _show(
            "standing", "among all copies of this topic id and partition", label="This copy", unit="badge", pick=True
        ),
        _show("copies_elsewhere", "other copies of this topic id and partition in the fleet"),
        _show("list", "orphan, leftover, or undecided", label="Is", pick=True),
        _show("reason", label="Why", pick=True),
        _show("age_seconds", "since first seen as an orphan, or set aside; by its host's clock"),
        _HOST,
        _LOG_DIR,
        _show("due_at"),
        _show("obstacle", "the guard or rule that prevents it", pick=True),
        _show("obstacle_detail", "what is in the way, as its host's agent says it"),
        _show("sightings", "in how many inventories it was an orphan"),
        _SIZES,
        _show("newest_mtime"),
        _show("agent_verdict", "verdict of the host's own agent"),
        _show("kind", pick=True),
        _TOPIC,
        _PARTITION,
        _NODE,
        _CLUSTER,
        _TOPIC_ID,
        _show("id", hidden=True),
    ),
    "growth": (
        _show("what", "the host of a log dir, or a topic", label="What grows", mono=True),
        _LOG_DIR,
        _show("days_to_full", "free bytes at this pace; no number where growth is 0 or less"),
        _show("full_on", "the last date, and as many days", label="Full on", unit="date"),
        _show("bytes_per_day"),
        _show("bytes", "on the last date", label="Bytes"),
        _show("free"),
        _show("scope", pick=True),
        _show("dates", "how many dates the pace is taken from"),
        _show("hosts", "of a topic: those that reported on each of these dates, over which it is counted"),
        _show("first_date"),
        _show("last_date"),
        _NODE,
        _CLUSTER,
        _show("host", hidden=True),
        _show("topic", hidden=True),
    ),
    "log_dir_health": (
        _show("finding", unit="badge", pick=True),
        _HOST,
        _NODE,
        _LOG_DIR,
        _show("since", "first stored date on which it was so, and on every one since; may be older"),
        _show("cause", "why nothing is known of the host", pick=True),
        _show("detail"),
        _CLUSTER,
        _show("snapshot_at"),
    ),
    "missing_replicas": (
        _TOPIC,
        _PARTITION,
        _show("copies_elsewhere", "copies on other brokers that report"),
        _HOST,
        _NODE,
        _show("in_isr", "the controller counts this replica as in sync", pick=True),
        _show("adding", "being added by a reassignment", pick=True),
        _show("left", "stray: one that was set aside is still there", pick=True),
        _CLUSTER,
        _TOPIC_ID,
        _show("snapshot_at"),
    ),
    "undecided_replicas": (
        _TOPIC,
        _PARTITION,
        _show("copies_elsewhere", "copies on other brokers that report"),
        _show("state", "not_yet, unproven or not_read", unit="badge", pick=True),
        _show("reason", label="Why", pick=True),
        _HOST,
        _NODE,
        _show("in_isr", "the controller counts this replica as in sync", pick=True),
        _show("adding", "being added by a reassignment", pick=True),
        _CLUSTER,
        _TOPIC_ID,
        _show("snapshot_at"),
    ),
    "duplicates": (
        _TOPIC,
        _PARTITION,
        _ALLOCATED,
        _SIZES,
        _show("copies"),
        _HOST,
        _show("log_dirs", mono=True, unit="text"),
        _NODE,
        _CLUSTER,
    ),
    "deletion_progress": (
        _TOPIC,
        _show("done_share", "copies done of copies asked for"),
        _show("marked", "copies that the requests ask for"),
        _show("removed", "set aside, removed or absent"),
        _show("remaining"),
        _show("marked_bytes"),
        _show("removed_bytes"),
        _show("hosts"),
        _show("hosts_done"),
        _show("since"),
        _CLUSTER,
    ),
    "audit": (
        _NAME,
        _show("finished_at"),
        _show("action", "set aside (quarantine), marked, removed, restored", unit="badge", pick=True),
        _show("outcome", pick=True),
        _ALLOCATED,
        _show("actor", "daemon, a user at the command line (cli:), or a request", pick=True),
        _show("claim", "what was decisive of all that it rested on", pick=True),
        _show("witness", "who or what said so", pick=True),
        _show("as_of", "until when the witness knew"),
        _show("approved", "whether an operator approved its plan", pick=True),
        _HOST,
        _show("log_dir", mono=True),
        _show("new_name", mono=True),
        _show("error", "why it was not done"),
        _SIZES,
        _show("since", "done after its host's snapshot of this date, which changes are counted from", pick=True),
        _show("plan_id", mono=True),
        _show("claims", "all that it rested on, and who said so"),
        _show("act_id", "its id in logagent history on the host", unit="id"),
        _show("topic", mono=True),
        _PARTITION,
        _NODE,
        _CLUSTER,
        _TOPIC_ID,
    ),
    "quarantined_input": (
        _show("file", mono=True),
        _show("reason", pick=True),
        _show("detail"),
        _show("kind", pick=True),
        _show("record", mono=True),
        _show("landing_date", "its date in landing"),
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
    made = {name: (tables[name]["rows"], tables[name]["total"]) for name in (*plain, "audit", "quarantined_input")}
    made["usage_clusters"] = _clusters(report, tables["usage_clusters"])
    made["directories"] = _directories(tables)
    made["growth"] = (
        [
            {**row, "what": row["topic"] if row["scope"] == "topic" else row["host"], "full_on": full_on(row)}
            for row in tables["growth"]["rows"]
        ],
        tables["growth"]["total"],
    )
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
