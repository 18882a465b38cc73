"""Which columns of each report table the page shows, in which order, and what they mean.

A page is for reading: identifiers that only programs need (directory ids, snapshot ids) stay in the CSV. The first
column is the row's name and stays in sight while the others scroll.
"""

from __future__ import annotations

from logagent.fleet.page.cells import NOTHING, Row, Show, badge, number_title, value_text
from logagent.fleet.page.text import esc, name_html


def _bytes_cell(row: Row) -> str:
    """Bytes, with the space allocated for them: the two differ for sparse and preallocated files."""
    size = row.get("bytes")
    if size is None:
        return NOTHING
    text = value_text(size, "bytes")
    allocated = row.get("allocated")
    if allocated is None:
        return text
    exact = number_title(size, "bytes") or text
    on_disk = number_title(allocated, "bytes") or value_text(allocated, "bytes")
    return f'<span title="{exact} in files, {on_disk} allocated">{text}</span>'


def _standing(row: Row) -> str:
    """What would be lost with this copy: the first thing to know before anybody deletes it."""
    if row.get("only_copy"):
        return badge("only copy", "bad")
    longest = row.get("longest_copy")
    if longest:
        return badge("longest copy", "warn")
    return "shorter copy" if longest is False else "length unknown"


def _agent_says(row: Row) -> str:
    verdict, reason = row.get("agent_verdict"), row.get("agent_reason")
    if verdict is None:
        return NOTHING
    if verdict == "orphan":
        return "agrees" if reason == row.get("reason") else "agrees: " + esc(str(reason))
    return badge(f"{verdict}: {reason}" if reason else str(verdict), "warn")


def _health(row: Row) -> str:
    value = row.get("health")
    if value is None:
        return NOTHING
    tones = {"online": "good", "offline": "bad"}
    return badge(str(value), tones.get(str(value), "warn"))


def _finding(row: Row) -> str:
    value = str(row.get("finding"))
    return badge(value, "bad" if value in ("offline", "unknown-host") else "warn")


def _offline(row: Row) -> str:
    value = row.get("offline_log_dirs")
    return str(value) if not value else badge(str(value), "bad")


def _verdicts(row: Row) -> str:
    if row.get("verdicts") is None:
        return NOTHING
    return badge(str(row["verdicts"]), "good" if row["verdicts"] == "decided" else "bad")


def _grows(row: Row) -> str:
    """What grows: a log dir of a host, or a topic."""
    return name_html(str(row.get("topic") if row.get("scope") == "topic" else row.get("log_dir")))


def _scope(row: Row) -> str:
    return esc(str(row.get("scope")).replace("_", " "))


_HOST_KEY = ("cluster_id", "node_id")
_CLUSTER = Show("cluster_id", "Cluster", pick=True, mono=True)
_NODE = Show("node_id", "Node", "id", "node.id of the broker")
_HOST = Show("host", "Host", link="usage_hosts", by=_HOST_KEY, mono=True)
_LOG_DIR = Show("log_dir", "Log dir", link="usage_log_dirs", by=(*_HOST_KEY, "log_dir"), mono=True)
_NAME = Show("name", "Directory", help="name of the directory on disk", mono=True)
_TOPIC = Show("topic", "Topic", link="usage_topics", by=("cluster_id", "topic"), mono=True)
_PARTITION = Show("partition", "Part.", "id", "partition number")
_BYTES = Show("bytes", "Bytes", "bytes", "sum of file sizes; the title has the space allocated too", html=_bytes_cell)
_AGE = Show("age_seconds", "Age", "seconds", "on the host's own clock, at the time of its snapshot")
_SKEW = "largest against the mean; 1.00× is even"
_LEDGER = (
    Show("used_share", "Full", "share", "used of size"),
    Show("used", "Used", "bytes", "of the file system, as statvfs gives it"),
    Show("free", "Free", "bytes", "of the file system, as statvfs gives it"),
    Show("current", "Current", "bytes", "partitions that the broker serves"),
    Show("future", "Future", "bytes", "copies being moved between log dirs"),
    Show("stray", "Stray", "bytes", "set aside, never removed by the broker"),
    Show("delete", "Delete", "bytes", "marked for deletion, not yet removed"),
    Show("other", "Other", "bytes", "indexes, metadata and foreign files"),
    Show("open_removed", "Removed, open", "bytes", "removed, but still held open by a process"),
    Show("unexplained", "Unexplained", "bytes", "used by nothing that could be seen"),
)
_ORPHANS = Show("orphans", "Orphans", "int", link="orphans", by=_HOST_KEY)
_DIRS = Show("dirs", "Dirs", "int", "partition dirs of every kind")
_TOPIC_ID = Show("topic_id", "Topic id", mono=True)
_ORPHAN_BYTES = Show("orphan_bytes", "Orphan bytes", "bytes")

LAYOUT: dict[str, tuple[Show, ...]] = {
    "usage_clusters": (
        Show("cluster_id", "Cluster", mono=True, link="usage_hosts", by=("cluster_id",)),
        Show("hosts", "Hosts", "int"),
        Show("unknown_hosts", "Unknown", "int", "hosts without a usable snapshot"),
        Show("verdicts", "Verdicts", "badge", "whether orphans could be decided", html=_verdicts),
        Show("assignments_age", "Assignments", "seconds", "age of the newest complete assignment file"),
        _BYTES,
        *_LEDGER,
        Show("orphans", "Orphans", "int", link="orphans", by=("cluster_id",)),
        _ORPHAN_BYTES,
        Show("log_dirs", "Log dirs", "int"),
        _DIRS,
        Show("host_skew", "Skew", "ratio", "fullest host: " + _SKEW),
    ),
    "usage_hosts": (
        Show("host", "Host", mono=True),
        _BYTES,
        *_LEDGER,
        _ORPHANS,
        _ORPHAN_BYTES,
        Show("log_dirs", "Log dirs", "int", link="usage_log_dirs", by=_HOST_KEY),
        Show("offline_log_dirs", "Offline", "int", "log dirs that are offline", html=_offline),
        _DIRS,
        Show("skew", "Skew", "ratio", "this host's bytes against the mean of its cluster; 1.00× is even"),
        Show("log_dir_skew", "Dir skew", "ratio", "its fullest log dir: " + _SKEW),
        Show("snapshot_age_seconds", "Snapshot", "seconds", "age of the snapshot that counts"),
        Show("agent_version", "Agent", pick=True),
        Show("kafka_version", "Kafka", pick=True),
        _NODE,
        _CLUSTER,
    ),
    "usage_log_dirs": (
        _HOST,
        Show("log_dir", "Log dir", mono=True),
        Show("health", "Health", "badge", pick=True, html=_health),
        _BYTES,
        *_LEDGER,
        Show("size", "Size", "bytes", "of the file system"),
        Show("orphans", "Orphans", "int", link="orphans", by=(*_HOST_KEY, "log_dir")),
        _ORPHAN_BYTES,
        _DIRS,
        Show("skew", "Skew", "ratio", "against the mean of the log dirs of its host; 1.00× is even"),
        _NODE,
        _CLUSTER,
        Show("reason", "Reason", help="why it is not online"),
    ),
    "usage_topics": (
        Show("topic", "Topic", mono=True),
        _BYTES,
        Show("partitions", "Partitions", "int"),
        Show("copies", "Copies", "int", "partition dirs over all hosts"),
        *(column for column in _LEDGER if column.key in ("current", "future", "stray", "delete")),
        Show("largest_partition", "Largest part.", "bytes"),
        Show("skew", "Skew", "ratio", "largest partition against the mean; 1.00× is even"),
        Show("orphans", "Orphans", "int", link="orphans", by=("cluster_id", "topic")),
        _ORPHAN_BYTES,
        _CLUSTER,
        _TOPIC_ID,
    ),
    "orphans": (
        _NAME,
        _BYTES,
        Show("standing", "This copy", "badge", "among all copies of this topic id and partition", html=_standing),
        Show("reason", "Reason", pick=True),
        _AGE,
        _HOST,
        _LOG_DIR,
        Show("sightings", "Seen", "int", "in how many inventories it was an orphan"),
        Show("copies_elsewhere", "Elsewhere", "int", "other copies of this topic id and partition in the fleet"),
        Show("newest_mtime", "Last write", "time"),
        Show("agent_verdict", "The agent", "badge", "verdict of the host's own agent", html=_agent_says),
        Show("kind", "Kind", pick=True),
        _TOPIC,
        _PARTITION,
        _NODE,
        _CLUSTER,
        _TOPIC_ID,
    ),
    "leftovers": (
        _NAME,
        _BYTES,
        Show("why", "Why", pick=True),
        Show("kind", "Kind", pick=True),
        _AGE,
        _HOST,
        _LOG_DIR,
        Show("marked_at", "Marked", "time"),
        _TOPIC,
        _PARTITION,
        _NODE,
        _CLUSTER,
    ),
    "missing_replicas": (
        _TOPIC,
        _PARTITION,
        _HOST,
        _NODE,
        Show("copies_elsewhere", "Elsewhere", "int", "copies on other brokers"),
        Show("in_isr", "In sync", "bool", "the controller counts this replica as in sync", pick=True),
        Show("adding", "Adding", "bool", "being added by a reassignment", pick=True),
        _CLUSTER,
        _TOPIC_ID,
    ),
    "undecided": (
        _NAME,
        _BYTES,
        Show("reason", "Reason", help="why it is neither assigned nor an orphan", pick=True),
        Show("kind", "Kind", pick=True),
        _HOST,
        _LOG_DIR,
        Show("agent_verdict", "The agent", "badge", "verdict of the host's own agent", html=_agent_says),
        _TOPIC,
        _PARTITION,
        _NODE,
        _CLUSTER,
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
    "log_dir_health": (
        Show("finding", "Finding", "badge", pick=True, html=_finding),
        Show("detail", "Detail"),
        _HOST,
        _LOG_DIR,
        _NODE,
        _CLUSTER,
        Show("snapshot_at", "Snapshot", "time"),
    ),
    "growth": (
        Show("what", "What grows", "text", "a log dir or a topic", mono=True, html=_grows),
        Show("days_to_full", "Full in", "days", "free bytes at this pace; no number where growth is 0 or less"),
        Show("bytes_per_day", "Per day", "bytes"),
        Show("bytes", "Bytes", "bytes", "on the last date"),
        Show("free", "Free", "bytes"),
        Show("scope", "Scope", pick=True, html=_scope),
        _HOST,
        Show("dates", "Dates", "int", "how many dates the pace is taken from"),
        Show("first_date", "From", "date"),
        Show("last_date", "To", "date"),
        _NODE,
        _CLUSTER,
    ),
    "deletion_progress": (
        _TOPIC,
        Show("done_share", "Done", "share", "removed of marked"),
        Show("marked", "Marked", "int", "directories marked for deletion"),
        Show("removed", "Removed", "int"),
        Show("remaining", "Remaining", "int"),
        Show("marked_bytes", "Marked bytes", "bytes"),
        Show("removed_bytes", "Removed bytes", "bytes"),
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
