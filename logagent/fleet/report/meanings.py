"""What each column of the report tables means, once for all tables that have it. No pyspark here.

`logagent schema fleet-tables` and `docs/reference/report.md` (`packaging/reference.py`) are made from it.
"""

from __future__ import annotations

from logagent.store.contract import NOT_COMPARED, STAMP, TABLES, Column
from logagent.verdict.rules import ORPHAN_REASONS

UNITS = {
    "text": ("string", ""),
    "int": ("bigint", ""),
    "bytes": ("bigint", "bytes"),
    "seconds": ("double", "seconds"),
    "days": ("double", "days"),
    "share": ("double", "0 to 1"),
    "ratio": ("double", "1 is the mean"),
    "time": ("timestamp", "UTC"),
    "date": ("date", ""),
    "bool": ("boolean", ""),
}
"""The Parquet type of each unit of `Column`, and what a reader is told of it. In CSV times are RFC 3339 texts, booleans
true and false, and null is an empty field."""

_PLACES = {
    "cluster_id": "Kafka's id of the cluster",
    "node_id": "node.id (broker.id) of the broker",
    "host": "name of the host, as it calls itself",
    "log_dir": "path of the log dir on that host",
    "directory_id": "directory.id of the log dir (Kafka 3.7 on)",
    "topic": "name of the topic; null where a directory does not tell it",
    "topic_id": "id of the topic; null where the directory has none (before inter.broker.protocol.version 2.8)",
    "partition": "number of the partition",
    "name": "name of the directory on disk; a byte that is not UTF-8 is spelled \\udcXX",
    "kind": "current, future, stray or delete, by the directory's name",
    "inode": "inode of the directory, by which a request finds the same one again",
    "id": "what topics purge --id takes; null: no request can name it",
}
_SIZES = {
    "bytes": "sum of file sizes",
    "allocated": "space that the file system gave these files",
    "size": "size of the file system; of several log dirs on one it counts once in sums",
    "used": "used on the file system, as statvfs gives it; counted once like size",
    "free": "free on the file system for an unprivileged user; counted once like size",
    "current": "allocated by partitions that the broker serves",
    "future": "allocated by copies that are being moved between log dirs",
    "stray": "allocated by directories that were set aside",
    "delete": "allocated by directories that are marked for deletion and still there",
    "other": "allocated by indexes, metadata and foreign files in the log dir",
    "open_removed": "removed files that a process still holds open",
    "unexplained": "used on the file system and in none of its log dirs; may be negative",
    "orphan_bytes": "allocated by these orphans",
    "reclaim_now": "allocated by orphans and leftovers that can be freed now",
    "reclaim_restart": "allocated by what can be freed at the next start of the broker",
    "reclaim_approval": "allocated by only copies: freed with an approval alone",
    "reclaim_later": "allocated by what is not due yet",
    "largest_partition": "allocated by the largest copy of a partition",
    "smallest_copy": "allocated by the smallest copy",
    "largest_copy": "allocated by the largest copy",
    "bytes_per_day": "slope over the stored dates; null where it does not grow",
    "marked_bytes": "allocated by the copies that requests ask for",
    "removed_bytes": "freed of these: what was removed, not what is only set aside",
}
_COUNTS = {
    "hosts": "hosts with a snapshot that counts",
    "unknown_hosts": "hosts without a snapshot that counts",
    "log_dirs": "log dirs of these hosts",
    "offline_log_dirs": "log dirs that are offline",
    "dirs": "partition directories of every kind",
    "orphans": "directories with the verdict orphan",
    "partitions": "partitions of which a copy was seen",
    "copies": "current directories of it, over all hosts",
    "assigned": "replicas that are assigned to hosts that count; null without a verdict",
    "sightings": "in how many inventories the agent has seen it as an orphan",
    "copies_elsewhere": "other directories of the same topic id and partition, over all hosts",
    "dates": "stored dates that the slope is taken from",
    "marked": "copies that requests ask for",
    "removed": "of these, set aside, removed or absent",
    "remaining": "of these, not done yet",
    "hosts_done": "hosts that have done all that was asked of them",
    "last_segment_offset": "base offset of its last segment, which tells how long a copy is",
    "expected": "replicas that are assigned, whatever came of them; null without a verdict, like those after it",
    "found": "of these, on the disks of their host",
    "missing": "of these, assigned before their host looked and afterwards, and not there",
    "not_yet": "of these, only in assignments that are younger than what their host saw",
    "unproven": "of these, not found, and nothing shows whether they had to be there",
    "gone": "of these, not assigned any more when their host looked, and not there",
    "not_heard": "of these, on hosts that do not count",
    "not_read": "of these, perhaps in a log dir that could not be read",
    "end_offset": "offset after its last record, as the agent read it; null where it did not",
}
_SHARES = {
    "used_share": "used of size",
    "done_share": "removed of marked",
    "skew": "allocated, against the mean of its peers: log dirs of a host, hosts of a cluster, partitions of a topic",
    "host_skew": "largest skew of its hosts",
    "log_dir_skew": "largest skew of its log dirs",
    "days_to_full": "free bytes at this pace; null where it does not grow",
}
_TIMES = {
    "snapshot_id": "name of the snapshot that counts",
    "snapshot_at": "when the snapshot was taken, by its host's clock",
    "snapshot_age_seconds": "age of the snapshot when the report was made",
    "clock_skew_seconds": "host's clock minus the store's when the snapshot arrived",
    "age_seconds": "since it was first seen as an orphan, or set aside, or marked; by its host's clock",
    "newest_mtime": "when a file in it was last written",
    "marked_at": "when it was marked or set aside; null if that is not known",
    "due_at": "when it falls due; null where it waits for something else",
    "since": "first of the stored dates in a row that say so",
    "first_date": "first stored date that counts",
    "last_date": "last stored date that counts",
    "landing_date": "date of its folder in landing",
    "date": "date of the report",
}
_WORDS = {
    "agent_version": "version of logagent there",
    "kafka_version": "version of Kafka that counts there",
    "health": "online, offline, read-only, full or unformatted",
    "shares_with": "the log dir of this host at which their common file system counts; null: here",
    "as_assigned": "whether its copies are where the assignments have them; null without a verdict",
    "longest_copy": "whether no other copy is longer; null if its length is not known",
    "only_copy": "whether there is no other copy in the fleet",
    "agent_verdict": "what its host's agent says: assigned, orphan or unknown",
    "agent_reason": "why the agent says so",
    "window": "when it can be freed: now, restart, approval or later; null: something has to be fixed first",
    "obstacle": "the guard or rule that is in the way",
    "obstacle_detail": "the same in a sentence of its host's agent, where one word does not say it",
    "in_isr": "whether the cluster has this replica in sync",
    "adding": "whether a reassignment is adding this replica",
    "why": "stray, overdue (marked, and past its delay) or abandoned (a move that nobody finishes)",
    "state": "not_yet, unproven or not_read, as usage_clusters counts them",
    "left": "stray: one that was set aside is there; null: nothing is",
    "covered": "whether another copy has all that a stray has, according to the agent",
    "finding": "offline, read-only, full, unformatted, unknown-host, old-agent, clock-skew, perhaps-two-machines or "
    "verdicts-differ",
    "detail": "the particulars, for a person",
    "cause": "of an unknown host: silent, never heard, broken file or contradiction",
    "scope": "what grows: log_dir or topic",
    "file": "path in landing",
    "reason": "why; see the table",
    "record": "the beginning of the row that was not taken",
    "run_id": "the report, as its folder is named",
}
_COMMON = {**_PLACES, **_SIZES, **_COUNTS, **_SHARES, **_TIMES, **_WORDS}
_OWN = {
    ("usage_log_dirs", "reason"): "why it is not online",
    ("orphans", "reason"): " or ".join((", ".join([*ORPHAN_REASONS][:-1]), [*ORPHAN_REASONS][-1])),
    (
        "undecided",
        "reason",
    ): "why it is no orphan although it is not assigned here, such as no-assignments or reassigning",
    ("undecided_replicas", "reason"): "; ".join(f"{reason}: {why}" for reason, why in NOT_COMPARED.items()),
    ("quarantined_input", "reason"): "why it was not taken, such as truncated, bad-rows or late",
    ("quarantined_input", "kind"): "snapshot, assignments or file",
    ("duplicates", "log_dirs"): "the log dirs that have it, with commas between them",
    ("duplicates", "copies"): "in how many log dirs of the host it is",
    ("growth", "bytes"): "used on the file system, or allocated by the topic, on the last date",
    ("growth", "free"): "free on the file system on the last date",
    ("usage_topics", "copies"): "directories of it, over all partitions and hosts",
    ("deletion_progress", "hosts"): "hosts that have something to do",
    ("deletion_progress", "since"): "date of the oldest request",
}


def columns(table: str) -> list[tuple[Column, str]]:
    """Every column in a report's files of a table, with its meaning. Raises `KeyError` for an unknown table."""
    return [(c, _OWN.get((table, c.name)) or _COMMON[c.name]) for c in (*TABLES[table].columns, *STAMP)]


_JSON = {"string": "string", "bigint": "integer", "double": "number", "boolean": "boolean"}


def json_schema() -> dict[str, object]:
    """The JSON Schema of the tables, each an array of rows; `unit` says what a number counts."""
    tables = {}
    for name, table in TABLES.items():
        rows = {column.name: _property(column, meaning) for column, meaning in columns(name)}
        items = {"type": "object", "properties": rows, "required": list(rows), "additionalProperties": False}
        tables[name] = {"title": table.title, "type": "array", "items": items}
    schema = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": schema, "title": "Tables of a fleet report", "type": "object", "properties": tables}


def _property(column: Column, meaning: str) -> dict[str, object]:
    kind, unit = UNITS[column.unit]
    made: dict[str, object] = {"type": [_JSON.get(kind, "string"), "null"], "description": meaning}
    if kind in ("timestamp", "date"):
        made["format"] = "date-time" if kind == "timestamp" else "date"
    return made | ({"unit": unit} if unit else {})
