"""The columns of the fleet's tables: name, unit, label on the page and meaning, each once. No pyspark here.

What is made of them: the types in Spark and Parquet and the form in CSV (`output.py`), what the page is given and heads
its columns with (`fleet/page/columns.py`), `logagent schema fleet-tables` and `docs/reference/report.md`
(`packaging/reference.py`). A column that means another thing in one table is explained there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from logagent.store.contract import LEDGER, NOT_COMPARED, REPLICA_COUNTS, WINDOWS
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
"""The Parquet type of each unit, and what a reader is told of it. In CSV times are RFC 3339 texts, booleans true and
false, and null is an empty field."""

_COLUMNS = {
    "text": {
        "cluster_id": "Cluster | Kafka's id of the cluster",
        "host": "name of the host, as it calls itself",
        "log_dir": "path of the log dir on that host",
        "directory_id": "directory.id of the log dir (Kafka 3.7 on)",
        "topic": "name of the topic; null where a directory does not tell it",
        "topic_id": "id of the topic; null where the directory has none (before inter.broker.protocol.version 2.8)",
        "name": "Directory | name of the directory on disk; a byte that is not UTF-8 is spelled \\udcXX",
        "kind": "current, future, stray or delete, by the directory's name",
        "id": "what topics purge --id takes; null: no request can name it",
        "snapshot_id": "name of the snapshot that counts",
        "agent_version": "Agent | version of logagent there",
        "mode": "Mode | cleanup.mode of its agent: report or enforce; null: it does not say",
        "accepts": "Accepts | ids of the keys whose requests its agent carries out; none: orders.accept is off",
        "kafka_version": "Kafka | version of Kafka that counts there",
        "health": "online, offline, read-only, full or unformatted",
        "shares_with": "the log dir of this host at which their common file system counts; null: here",
        "agent_verdict": "The agent | what its host's agent says: assigned, orphan or unknown",
        "agent_reason": "why the agent says so",
        "window": "When | when it can be freed: now, restart, approval or later; null: something has to be fixed first",
        "obstacle": "In the way | the guard or rule that is in the way",
        "obstacle_detail": "In words | the same in a sentence of its host's agent, where one word does not say it",
        "why": "stray, overdue (marked, and past its delay) or abandoned (a move that nobody finishes)",
        "state": "not_yet, unproven or not_read, as usage_clusters counts them",
        "left": "stray: one that was set aside is there; null: nothing is",
        "covered": "whether another copy has all that a stray has, according to the agent",
        "finding": "offline, read-only, full, unformatted, unknown-host, old-agent, clock-skew, perhaps-two-machines "
        "or verdicts-differ",
        "detail": "the particulars, for a person",
        "cause": "of an unknown host: silent, never heard, broken file, contradiction or moved",
        "scope": "what grows: log_dir or topic",
        "file": "path in landing",
        "reason": "why; see the table",
        "record": "the beginning of the rejected row",
        "run_id": "the report, as its folder is named",
        "action": "quarantine (set aside), mark, remove, restore, remove-leftovers or drop-checkpoint-entry",
        "outcome": "done, failed, or yielded (stopped by a start of the broker or by a command)",
        "new_name": "Becomes | name that it was given; null where it was removed",
        "actor": "By | who did it: daemon, cli: and the name of a user, or request and its id",
        "claim": "what was decisive of all that the act rested on; null where that was not noted",
        "witness": "who or what said so",
        "claims": "all that it rested on, each with who said so",
        "plan_id": "Plan | id of the plan, which logagent history on the host and approvals name",
        "error": "why it was not done",
    },
    "int": {
        "node_id": "Node | node.id (broker.id) of the broker",
        "partition": "Part. | number of the partition",
        "inode": "inode of the directory, by which a request finds the same one again",
        "hosts": "hosts with a snapshot that counts",
        "unknown_hosts": "Unknown | hosts without a snapshot that counts",
        "log_dirs": "log dirs of these hosts",
        "offline_log_dirs": "Offline | log dirs that are offline",
        "dirs": "partition directories of every kind",
        "orphans": "directories with the verdict orphan",
        "partitions": "partitions of which a copy was seen",
        "copies": "current directories of it, over all hosts",
        "assigned": "replicas that are assigned to hosts that count; null without a verdict",
        "sightings": "Seen | in how many inventories the agent has seen it as an orphan",
        "copies_elsewhere": "Elsewhere | other directories of the same topic id and partition, over all hosts",
        "dates": "stored dates that the slope is taken from",
        "marked": "Asked for | copies that requests ask for",
        "removed": "Done copies | of these, set aside, removed or absent",
        "remaining": "Left | of these, not done yet",
        "hosts_done": "hosts that have done all that was asked of them",
        "last_segment_offset": "base offset of its last segment, which tells how long a copy is",
        "unread_processes": "Unread | processes that its agent could not read: open_removed lacks what they hold open; "
        "null: it does not say",
        "expected": "Replicas | replicas that are assigned, whatever came of them; null without a verdict, like "
        "those after it",
        "found": "of these, on the disks of their host",
        "missing": "of these, assigned before their host looked and afterwards, and not there",
        "not_yet": "of these, only in assignments that are younger than what their host saw",
        "unproven": "of these, not found, and nothing shows whether they had to be there",
        "gone": "of these, not assigned any more when their host looked, and not there",
        "not_heard": "of these, on hosts that do not count",
        "not_read": "of these, perhaps in a log dir that could not be read",
        "act_id": "Entry | its id in the journal of its host's agent, as logagent history has it",
        "end_offset": "offset after its last record, as the agent read it; null where it did not",
    },
    "bytes": {
        "bytes": "File sizes | sum of file sizes",
        "allocated": "space that the file system gave these files",
        "size": "size of the file system; of several log dirs on one it counts once in sums",
        "used": "used on the file system, as statvfs gives it; counted once like size",
        "free": "free on the file system for an unprivileged user; counted once like size",
        "current": "allocated by partitions that the broker serves",
        "future": "allocated by copies that are being moved between log dirs",
        "stray": "allocated by directories that were set aside",
        "delete": "allocated by directories that are marked for deletion and still there",
        "other": "allocated by indexes, metadata and foreign files in the log dir",
        "open_removed": "Removed, open | removed files that a process still holds open",
        "open_unread": "Open, unread | the most that open_removed lacks: what is unexplained, where an agent could not "
        "read every process",
        "unexplained": "used on the file system and in none of its log dirs; may be negative",
        "orphan_bytes": "allocated by these orphans",
        "reclaim_now": "Now | allocated by orphans and leftovers that can be freed now",
        "reclaim_restart": "At restart | allocated by what can be freed at the next start of the broker",
        "reclaim_approval": "Approval | allocated by only copies: freed with an approval alone",
        "reclaim_later": "Not yet due | allocated by what is not due yet",
        "largest_partition": "Largest part. | allocated by the largest copy of a partition",
        "smallest_copy": "allocated by the smallest copy",
        "largest_copy": "allocated by the largest copy",
        "bytes_per_day": "Per day | slope over the stored dates; null where it does not grow",
        "marked_bytes": "Asked bytes | allocated by the copies that requests ask for",
        "removed_bytes": "Freed | freed of these: what was removed, not what is only set aside",
        "was": "used on that date by the log dirs that have figures on both",
        "now": "used by the same log dirs on the newest date",
    },
    "seconds": {
        "snapshot_age_seconds": "Snapshot | age of the snapshot when the report was made",
        "clock_skew_seconds": "host's clock minus the store's when the snapshot arrived",
        "age_seconds": "Age | since it was first seen as an orphan, or set aside, or marked; by its host's clock",
    },
    "days": {
        "days_to_full": "Full in | free bytes at this pace; null where it does not grow",
    },
    "share": {
        "used_share": "Full | used of size",
        "done_share": "Done | removed of marked",
    },
    "ratio": {
        "skew": "allocated, against the mean of its peers: log dirs of a host, hosts of a cluster, partitions of "
        "a topic",
        "host_skew": "Skew | largest skew of its hosts",
        "log_dir_skew": "Dir skew | largest skew of its log dirs",
    },
    "time": {
        "snapshot_at": "Snapshot | when the snapshot was taken, by its host's clock",
        "newest_mtime": "Last write | when a file in it was last written",
        "marked_at": "when it was marked or set aside; null if that is not known",
        "began_at": "Began | when it began, by its host's clock",
        "finished_at": "When | when its outcome was known, by its host's clock",
        "as_of": "until when the witness knew",
        "due_at": "Due | when it falls due; null where it waits for something else",
    },
    "date": {
        "since": "first of the stored dates in a row that say so",
        "first_date": "From | first stored date that counts",
        "last_date": "To | last stored date that counts",
        "landing_date": "Date | date of its folder in landing",
        "date": "date of the report",
    },
    "bool": {
        "as_assigned": "whether its copies are where the assignments have them; null without a verdict",
        "longest_copy": "whether no other copy is longer; null if its length is not known",
        "only_copy": "whether there is no other copy in the fleet",
        "in_isr": "In sync | whether the cluster has this replica in sync",
        "approved": "whether an operator approved its plan",
        "adding": "whether a reassignment is adding this replica",
    },
}
"""By unit and name: `label | meaning`, the label only where the page does not call the column by its name."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `unit`: one of `UNITS`."""

    name: str
    unit: str
    label: str
    meaning: str

    @classmethod
    def told(cls, name: str, unit: str, text: str) -> Column:
        label, _, meaning = text.rpartition(" | ")
        return cls(name, unit, label or name.replace("_", " ").capitalize(), meaning)


COLUMNS = {name: Column.told(name, unit, text) for unit, each in _COLUMNS.items() for name, text in each.items()}
STAMP = (COLUMNS["date"], COLUMNS["run_id"])
"""The last columns of every table in the files of a report: its date and run, so that several can be read as one."""


@dataclass(frozen=True, slots=True)
class Table:
    """One report table: title, columns in the order of the files, and sort order (`-` = descending)."""

    title: str
    columns: tuple[Column, ...]
    order: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def units(self) -> dict[str, str]:
        return {column.name: column.unit for column in self.columns}


def _table(title: str, names: str, order: tuple[str, ...], **meanings: str) -> Table:
    """`names`: with spaces between them; `name:unit` where it is another unit than elsewhere. `meanings`: of columns
    that mean something of their own here."""
    columns = []
    for word in names.split():
        name, _, unit = word.partition(":")
        known = COLUMNS[name]
        columns.append(replace(known, unit=unit or known.unit, meaning=meanings.get(name, known.meaning)))
    return Table(title, tuple(columns), order)


_RECLAIM = " ".join(f"reclaim_{window}" for window in WINDOWS)
_LEDGER = " ".join(LEDGER)
_HOST = "cluster_id node_id host"
_PARTITION = "topic topic_id partition"

TABLES: dict[str, Table] = {
    "usage_clusters": _table(
        "Disk usage by cluster",
        f"""
        cluster_id hosts unknown_hosts log_dirs dirs bytes allocated {_LEDGER} open_unread orphans orphan_bytes
        host_skew {_RECLAIM} {" ".join(REPLICA_COUNTS)}
        """,
        ("-allocated", "cluster_id"),
    ),
    "usage_hosts": _table(
        "Disk usage by host",
        f"""
        {_HOST} agent_version mode accepts kafka_version snapshot_id snapshot_at snapshot_age_seconds clock_skew_seconds
        log_dirs offline_log_dirs dirs bytes allocated {_LEDGER} open_unread unread_processes used_share orphans
        orphan_bytes skew log_dir_skew {_RECLAIM}
        """,
        ("-allocated", "cluster_id", "node_id"),
    ),
    "usage_log_dirs": _table(
        "Disk usage by log dir, with the hidden bytes",
        f"""
        {_HOST} log_dir directory_id health reason dirs bytes allocated {_LEDGER} open_unread used_share
        orphans orphan_bytes skew {_RECLAIM} shares_with
        """,
        ("-used_share", "-allocated", "cluster_id", "node_id", "log_dir"),
        reason="why it is not online",
    ),
    "usage_topics": _table(
        "Disk usage by topic",
        f"""
        cluster_id topic topic_id partitions copies bytes allocated current future stray delete
        largest_partition skew orphans orphan_bytes {_RECLAIM}
        """,
        ("-allocated", "cluster_id", "topic", "topic_id"),
        copies="directories of it, over all partitions and hosts",
    ),
    "usage_partitions": _table(
        "Disk usage by partition",
        f"""
        cluster_id {_PARTITION} copies assigned as_assigned bytes allocated smallest_copy largest_copy
        """,
        ("cluster_id", "topic", "topic_id", "partition"),
    ),
    "orphans": _table(
        "Orphaned directories",
        f"""
        {_HOST} log_dir name {_PARTITION} reason bytes allocated age_seconds sightings copies_elsewhere
        longest_copy only_copy last_segment_offset newest_mtime kind agent_verdict agent_reason window due_at
        obstacle obstacle_detail directory_id inode end_offset snapshot_at id
        """,
        ("-allocated", "cluster_id", "node_id", "log_dir", "name"),
        reason=" or ".join((", ".join([*ORPHAN_REASONS][:-1]), [*ORPHAN_REASONS][-1])),
    ),
    "missing_replicas": _table(
        "Assigned, and on no disk of that broker",
        f"{_HOST} {_PARTITION} in_isr adding copies_elsewhere left snapshot_at",
        ("cluster_id", "topic", "topic_id", "partition", "node_id"),
    ),
    "undecided_replicas": _table(
        "Replicas that could not be compared",
        f"{_HOST} {_PARTITION} state reason copies_elsewhere in_isr adding snapshot_at",
        ("copies_elsewhere", "cluster_id", "topic", "topic_id", "partition", "node_id"),
        reason="; ".join(f"{reason}: {why}" for reason, why in NOT_COMPARED.items()),
    ),
    "leftovers": _table(
        "Strays, overdue deletions, abandoned moves",
        f"""
        {_HOST} log_dir name kind {_PARTITION} bytes allocated age_seconds marked_at why copies_elsewhere
        longest_copy only_copy window due_at covered obstacle obstacle_detail directory_id inode end_offset
        snapshot_at id
        """,
        ("-allocated", "cluster_id", "node_id", "log_dir", "name"),
    ),
    "undecided": _table(
        "Directories that could not be decided",
        f"""
        {_HOST} log_dir name kind {_PARTITION} reason bytes allocated agent_verdict agent_reason snapshot_at
        """,
        ("reason", "-allocated", "cluster_id", "node_id", "log_dir", "name"),
        reason="why it is no orphan although it is not assigned here, such as no-assignments or reassigning",
    ),
    "duplicates": _table(
        "The same partition in two log dirs of one host",
        f"{_HOST} {_PARTITION} copies log_dirs:text bytes allocated",
        ("-allocated", "cluster_id", "node_id", "topic", "topic_id", "partition"),
        log_dirs="the log dirs that have it, with commas between them",
        copies="in how many log dirs of the host it is",
    ),
    "log_dir_health": _table(
        "Log dirs, hosts and agents that need attention",
        f"{_HOST} log_dir finding detail snapshot_at cause since",
        ("finding", "cluster_id", "node_id", "log_dir", "detail"),
    ),
    "growth": _table(
        "Growth, and days until full",
        f"""
        scope {_HOST} log_dir topic topic_id first_date last_date dates hosts bytes bytes_per_day free days_to_full
        """,
        ("days_to_full", "-bytes_per_day", "scope", "cluster_id", "node_id", "log_dir", "topic", "topic_id"),
        hosts="of a topic: over how many hosts it is counted, those that reported on each of these dates",
        bytes="used on the file system, or allocated by the topic, on the last date",
        free="free on the file system on the last date",
    ),
    "deletion_progress": _table(
        "Deletion progress by topic",
        """
        cluster_id topic marked marked_bytes removed removed_bytes hosts hosts_done remaining since done_share
        """,
        ("done_share", "-marked_bytes", "cluster_id", "topic"),
        hosts="hosts that have something to do",
        since="date of the oldest request",
    ),
    "audit": _table(
        "What agents did",
        f"""
        {_HOST} finished_at action outcome log_dir name new_name {_PARTITION} bytes allocated actor approved claim
        witness as_of claims plan_id error act_id began_at since
        """,
        ("-finished_at", "cluster_id", "node_id", "-act_id", "log_dir", "name"),
        since="newest of the earlier dates that the report compares with, if it was done after its host's snapshot of "
        "that date; null: it was before them, or its host did not report on both dates",
        topic_id="id of the topic; null where the directory had none",
    ),
    "quarantined_input": _table(
        "Rejected input",
        "cluster_id node_id landing_date kind file reason detail record",
        ("cluster_id", "node_id", "file", "reason", "record"),
        reason="why it was rejected, such as truncated, bad-rows or late",
        kind="snapshot, assignments or file",
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
`audit` has what the snapshots of the stored dates say that agents did or tried in the 90 days before the report.
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
    "chart_growth": _table(
        "Bytes by day", "cluster_id date hosts bytes used size log_dirs was now", ("cluster_id", "date"),
        log_dirs="how many have figures on that date and on the newest one of their cluster",
    ),
}  # fmt: skip

NO_CSV = frozenset({"usage_partitions"})
"""Written as Parquet only, and not given to the page."""

_JSON = {"string": "string", "bigint": "integer", "double": "number", "boolean": "boolean"}


def json_schema() -> dict[str, object]:
    """The JSON Schema of the tables, each an array of rows; `unit` says what a number counts."""
    tables = {}
    for name, table in TABLES.items():
        rows = {}
        for column in (*table.columns, *STAMP):
            kind, unit = UNITS[column.unit]
            form = {"timestamp": {"format": "date-time"}, "date": {"format": "date"}}.get(kind, {})
            made = {"type": [_JSON.get(kind, "string"), "null"], "description": column.meaning, **form}
            rows[column.name] = made | ({"unit": unit} if unit else {})
        items = {"type": "object", "properties": rows, "required": list(rows), "additionalProperties": False}
        tables[name] = {"title": table.title, "type": "array", "items": items}
    schema = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": schema, "title": "Tables of a fleet report", "type": "object", "properties": tables}
