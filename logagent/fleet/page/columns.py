"""Which columns of each report table the page shows, in which order, and what they mean.

A page is for reading: identifiers that only programs need (directory ids, snapshot ids) stay in the CSV. The first
column is the row's name and stays visible while the others scroll.
"""

from __future__ import annotations

from dataclasses import dataclass


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
_CLUSTER = Show("cluster_id", "Cluster", pick=True, mono=True)
_NODE = Show("node_id", "Node", "id", "node.id of the broker")
_HOST = Show("host", "Host", to="usage_log_dirs", by=_HOST_KEY, mono=True)
_LOG_DIR = Show("log_dir", "Log dir", to="places", by=_LOG_DIR_KEY, mono=True)
_NAME = Show("name", "Directory", help="name of the directory on disk", mono=True)
_TOPIC = Show("topic", "Topic", to="directories", by=("cluster_id", "topic"), mono=True)
_PARTITION = Show("partition", "Part.", "id", "partition number")
_BYTES = Show("bytes", "Bytes", "bytes", "sum of file sizes")
_WINDOWS = (
    ("now", "Now", "can be reclaimed now"),
    ("restart", "At restart", "can be reclaimed at the next start of the broker"),
    ("approval", "Approval", "can be reclaimed only with approval: the only copies left"),
    ("later", "Not yet due", "can be reclaimed when its retention is over"),
)


def _reclaim(by: tuple[str, ...]) -> tuple[Show, ...]:
    """What can be reclaimed, by window: each figure leads to its directories."""
    return tuple(
        Show(f"reclaim_{window}", label, "bytes", said, to="directories", by=by, only=(("window", window),))
        for window, label, said in _WINDOWS
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
        _BYTES,
        *_FULLNESS,
        *_reclaim(("cluster_id",)),
        *_LEDGER,
        Show("orphans", "Orphans", "int", to="directories", by=("cluster_id",)),
        Show("log_dirs", "Log dirs", "int"),
        _DIRS,
        Show("host_skew", "Skew", "ratio", "fullest host: largest against the mean; 1.00× is even"),
    ),
    "usage_hosts": (
        Show("host", "Host", mono=True, to="usage_log_dirs", by=_HOST_KEY),
        _BYTES,
        *_FULLNESS,
        *_reclaim(_HOST_KEY),
        *_LEDGER,
        Show("orphans", "Orphans", "int", to="directories", by=_HOST_KEY),
        Show("log_dirs", "Log dirs", "int", to="usage_log_dirs", by=_HOST_KEY),
        Show("offline_log_dirs", "Offline", "int", "log dirs that are offline"),
        _DIRS,
        Show("skew", "Skew", "ratio", "this host's bytes against the mean of its cluster; 1.00× is even"),
        Show("log_dir_skew", "Dir skew", "ratio", "its fullest log dir against the mean; 1.00× is even"),
        Show("snapshot_age_seconds", "Snapshot", "seconds", "age of the snapshot that counts"),
        Show("agent_version", "Agent", pick=True),
        Show("kafka_version", "Kafka", pick=True),
        _NODE,
        _CLUSTER,
    ),
    "usage_log_dirs": (
        Show("log_dir", "Log dir", mono=True, to="places", by=_LOG_DIR_KEY),
        Show("host", "Host", mono=True),
        Show("health", "Health", "badge", pick=True),
        _BYTES,
        *_FULLNESS,
        *_reclaim(_LOG_DIR_KEY),
        *_LEDGER,
        Show("size", "Size", "bytes", "of the file system"),
        Show("orphans", "Orphans", "int", to="directories", by=_LOG_DIR_KEY),
        _DIRS,
        Show("skew", "Skew", "ratio", "against the mean of the log dirs of its host; 1.00× is even"),
        _NODE,
        _CLUSTER,
        Show("reason", "Reason", help="why it is not online"),
    ),
    "usage_topics": (
        Show("topic", "Topic", mono=True, to="directories", by=("cluster_id", "topic")),
        _BYTES,
        Show("partitions", "Partitions", "int"),
        Show("copies", "Copies", "int", "partition dirs over all hosts"),
        *_reclaim(("cluster_id", "topic")),
        *(column for column in _LEDGER if column.key in ("current", "future", "stray", "delete")),
        Show("largest_partition", "Largest part.", "bytes"),
        Show("skew", "Skew", "ratio", "largest partition against the mean; 1.00× is even"),
        Show("orphans", "Orphans", "int"),
        _CLUSTER,
        _TOPIC_ID,
    ),
    "directories": (
        _NAME,
        _BYTES,
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
        Show("sightings", "Seen", "int", "in how many inventories it was an orphan"),
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
        Show("what", "What grows", mono=True, help="a log dir or a topic"),
        _HOST,
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
        Show("log_dir", "Log dir", hidden=True),
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
        _CLUSTER,
        _TOPIC_ID,
    ),
    "duplicates": (
        _TOPIC,
        _PARTITION,
        _BYTES,
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
        Show("date", "Date", "date"),
        _NODE,
        _CLUSTER,
    ),
}
