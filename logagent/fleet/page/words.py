"""The page's own sentences: what each table is, how its rows are ordered, and why it is empty when it is.

How much of the fleet a report covers: hosts about which nothing is known, clusters without verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from logagent.fleet.page.text import days, exact, plural
from logagent.store.contract import NOT_COMPARED
from logagent.verdict.rules import ORPHAN_REASONS

Report = Mapping[str, Any]
UNKNOWN_WORDS = {
    "silent": "silent",
    "never heard": "never heard of",
    "broken file": "with a broken file",
    "contradiction": "that contradict each other",
}


def unknown_total(report: Report) -> int:
    return int(report["hosts"]["unknown_total"])


def undecided_clusters(report: Report) -> list[Mapping[str, Any]]:
    return [cluster for cluster in report["clusters"] if cluster.get("verdicts") == "unknown"]


def nobody_reported(report: Report) -> bool:
    """Whether no host at all has reported: then a zero on the page does not mean "none"."""
    return not report["hosts"]["reporting"]


def cluster_name(report: Report, cluster_id: str | None) -> str:
    """The operators' name for a cluster, else its id."""
    names = {one["cluster_id"]: one.get("name") for one in report["clusters"]}
    return str(names.get(cluster_id) or cluster_id)


def at_least(report: Report) -> str:
    unread = report["answers"]["disks"]["unread"]
    return "at least " if unknown_total(report) or undecided_clusters(report) or unread else ""


WINDOWS = (
    ("now", "Now"),
    ("restart", "At next broker restart"),
    ("approval", "Only with approval"),
    ("later", "Not yet due"),
)
"""What stands in the way of reclaiming, as the page calls it."""
MEANT = {
    "now": "can be reclaimed now: the host would remove it",
    "restart": "can be reclaimed at the next start of the broker",
    "approval": "can be reclaimed only with approval: the only copy left, or its host refuses it without",
    "later": "can be reclaimed when its retention is over",
}


def not_compared(report: Mapping[str, Any]) -> int:
    """How many replicas are not known to be missing, nor not to be, on hosts that report."""
    return sum(row["replicas"] for row in report["answers"]["replicas"]["not_compared"])


def not_compared_words(report: Mapping[str, Any]) -> str:
    """How many these are, on how many hosts, and why."""
    rows = report["answers"]["replicas"]["not_compared"]
    if not rows:
        return "0 replicas could not be compared"
    each = (
        f"{plural(row['replicas'], 'replica')} on {plural(row['hosts'], 'host')} ({NOT_COMPARED[row['reason']]})"
        for row in rows
    )
    some = report["answers"]["replicas"]["no_copy"]
    lost = f"; of {plural(some, 'partition')} among them no copy was found" if some else ""
    return f"could not be compared: {', '.join(each)}{lost}"


def replica_words(report: Mapping[str, Any]) -> str:
    """What the expected replicas come to: all of them, in one line."""
    total = report["answers"]["replicas"]["total"]
    known = (
        f"{exact(total['found'])} found, {exact(total['missing'])} missing, {exact(not_compared(report))} not compared"
    )
    others = f"{exact(total['gone'])} not assigned any more, {exact(total['not_heard'])} on unknown hosts"
    return f"{plural(total['expected'], 'replica')} expected: {known}, {others}"


def is_all_compared(report: Mapping[str, Any]) -> bool:
    """Whether nothing is left that could not be compared, and nothing to know before the figures are believed: else no
    figure of zero is an all-clear."""
    answers, tables = report["answers"], report["tables"]
    left = (
        not_compared(report),
        answers["disks"]["unread"],
        answers["risk"]["pace_unknown"],
        tables["undecided"]["rows"],
        report["warnings"],
    )
    return not (any(left) or unknown_total(report) or undecided_clusters(report))


def full_words(ahead: float | None) -> str:
    """How full a log dir is that is one of the first things to do: `ahead` days until it is full, if that is known."""
    if ahead is None:
        return "nearly full"
    if not ahead:
        return "full"
    return f"full in {max(round(ahead * 24), 1)} h" if ahead < 2 else f"full in {days(ahead)}"


class Words(NamedTuple):
    """`title` heads the section, `lead` says what it shows, `order` completes "All 12 rows, …", `empty` says why there
    are none."""

    title: str
    lead: str
    order: str
    empty: str


WORDS: dict[str, Words] = {
    "log_dir_health": Words(
        "Log dirs, hosts and agents that need a look",
        "Offline, read-only and full log dirs; hosts not heard from; agents that are too old, whose clock "
        "is off, or whose verdicts differ from this report's.",
        "by finding",
        "Every host that reported has its log dirs online and writable, a current agent and a clock in step.",
    ),
    "usage_clusters": Words(
        "Clusters",
        "What the disks of each cluster hold. Verdicts are “unknown” where no complete, current assignment "
        "file of the cluster was there to decide by.",
        "largest first",
        "No cluster has a snapshot that counts.",
    ),
    "usage_hosts": Words(
        "Hosts",
        "What the disks of each host hold, and what can be reclaimed there. A host leads to its log dirs.",
        "largest first",
        "No host has a snapshot that counts.",
    ),
    "usage_log_dirs": Words(
        "Log dirs",
        "Everything used is accounted for; what remains is called unexplained. A log dir leads to the topics that "
        "have something to reclaim in it.",
        "fullest first",
        "No host has a snapshot that counts.",
    ),
    "usage_topics": Words(
        "Topics",
        "All copies of all partitions of a topic, on every host that reported.",
        "largest first",
        "No partition directory was seen on any host that reported.",
    ),
    "growth": Words(
        "Growth and days until full",
        "By least squares over the stored figures of at least two dates. A topic is counted over the hosts that "
        "reported on each of its dates: one that is new, or was silent, is no growth and no shrinkage.",
        "soonest full first",
        "No figure yet: growth needs snapshots of at least two dates of the same log dir or topic.",
    ),
    "directories": Words(
        "Directories: orphans, leftovers, undecided",
        "Orphans: their topic is gone, was created anew, or has no replica on this broker. Leftovers: strays, overdue "
        "deletions. Undecided ones are never acted on. A copy that is the only or the longest one left in the fleet is "
        "marked: removing it may lose records.",
        "largest first",
        "No orphan, no leftover and nothing undecided on the hosts that reported.",
    ),
    "missing_replicas": Words(
        "Missing replicas",
        "Assigned to a broker before its agent looked and afterwards, and on none of its disks.",
        "by topic and partition",
        "Every assigned replica that could be compared was found on the disks of its broker.",
    ),
    "undecided_replicas": Words(
        "Replicas that could not be compared",
        "Assigned and not found, but not known to be missing: only assignments that are younger than the snapshot have "
        "them (not_yet), they may be in a log dir that could not be read (not_read), or nothing shows whether they had "
        "to be there (unproven). Those without any copy elsewhere come first.",
        "fewest copies first",
        "Every assigned replica of the hosts that reported was found, or is known to be missing.",
    ),
    "duplicates": Words(
        "Duplicates",
        "The same partition in two log dirs of one host: older brokers refuse to start with it.",
        "largest first",
        "No partition lies in two log dirs of one host.",
    ),
    "deletion_progress": Words(
        "Deletion progress",
        "Copies that requests of logagent topics ask for, open or ended within 30 days. Done: set aside, removed or "
        "absent.",
        "least done first",
        "No request of logagent topics that this report could read is open or ended within 30 days (it reads them "
        "with orders.keys). Directories that brokers marked themselves are in Log dirs, column Delete.",
    ),
    "quarantined_input": Words(
        "Rejected input",
        "Files and rows of the landing area that were set aside at ingest, and why. A host with such input "
        "counts as unknown until it delivers a whole snapshot.",
        "by cluster and node",
        "Everything that the agents delivered was taken.",
    ),
}

# The order of the sections, and the short names that lead to them.
NAVIGATION: tuple[tuple[str, str], ...] = (
    ("usage_clusters", "Clusters"),
    ("usage_hosts", "Hosts"),
    ("usage_log_dirs", "Log dirs"),
    ("usage_topics", "Topics"),
    ("directories", "Directories"),
    ("growth", "Growth"),
    ("log_dir_health", "Health"),
    ("missing_replicas", "Missing"),
    ("undecided_replicas", "Not compared"),
    ("duplicates", "Duplicates"),
    ("deletion_progress", "Deletion"),
    ("quarantined_input", "Input"),
)

READING: tuple[tuple[str, str], ...] = (
    (
        "Bytes and allocated",
        "Every figure of bytes is allocated space: what the file system gave the files, and what removing them gives "
        "back. File sizes stand beside it where they differ most: Kafka preallocates the indexes of each active "
        "segment, up to 20 MiB that are hardly there. Point at a figure for the exact one.",
    ),
    (
        "Unknown host",
        "A host whose newest snapshot is missing, incomplete, damaged or too old. It is listed, and left "
        "out of every verdict that would need it.",
    ),
    (
        "Orphan",
        " ".join(f"{reason}: {meaning}." for reason, meaning in ORPHAN_REASONS.items())
        + " __cluster_metadata and caches are never orphans.",
    ),
    (
        "Only copy, longest copy",
        "Among all directories of the same topic id and partition in the fleet, by largest last segment "
        "offset, then newest write. Never remove one without knowing why.",
    ),
    (
        "When",
        "now: the host would remove it. at restart: when its broker starts next, which loads or sets aside what it has "
        "open. approval: only if a person approves it, because it is the only copy left, or no other copy is known to "
        "have all of it. not yet due: when its retention is over.",
    ),
    (
        "Age",
        "How long an orphan has been seen as one, and since when a stray or marked directory has been set aside, on "
        "the host's own clock at the time of its snapshot: a wrong clock does not make anything look old.",
    ),
    (
        "Hidden bytes",
        "Strays, marked deletions, other files, removed files still open, and what nothing explains. "
        "DescribeLogDirs counts current and future logs only.",
    ),
    (
        "Days until full",
        "Free bytes at the pace of all stored dates together (least squares). There is no number where growth is zero "
        "or less.",
    ),
)
