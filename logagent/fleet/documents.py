"""What the fleet job prints, each document defined once, for `logagent schema` and the tests.

The answers in a fleet report: what an operator asks first, each schema defined once.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from logagent.base.documents import Size, Time, TypedDict, strict
from logagent.fleet.snapshot_documents import SCHEMAS as PUBLISHED

DateText = str


@strict
class DiskAnswer(TypedDict):
    """Where the bytes are; `fullness`: number of log dirs by fullness of their file system, in steps of 5 %; `unread`:
    those without figures."""

    size: Size
    used: Size
    free: Size
    log_dirs: int
    fullness: list[int]
    nearly_full: int
    unread: int


@strict
class DirsAndBytes(TypedDict):
    dirs: int
    bytes: Size


@strict
class WindowAnswer(DirsAndBytes):
    """`requestable`: how many of the directories `topics purge` plans, and their `asked_bytes`."""

    hosts: int
    requestable: int
    asked_bytes: Size


@strict
class ReclaimAnswer(TypedDict):
    """What can be reclaimed, by what it has to wait for (`WINDOWS` of the contract). `barred`: what needs a repair
    first. The windows do not include `barred` and the figures after it."""

    now: WindowAnswer
    restart: WindowAnswer
    approval: WindowAnswer
    later: WindowAnswer
    next_due: Time | None
    barred: Size
    marked: Size
    open_removed: Size
    unexplained: Size


@strict
class UnknownCause(TypedDict):
    cause: str
    hosts: int


@strict
class RiskAnswer(TypedDict):
    """`no_copy`: partitions that no reporting host has, with `no_copy_replicas` replicas; `missing_elsewhere`: missing
    replicas with copies elsewhere; `full_soon` and `full_later`: log dirs that are full within 7 and 30 days at their
    present rate; `pace_unknown`: those whose rate is not known, without figures of two dates."""

    no_copy: int
    no_copy_replicas: int
    missing_elsewhere: int
    only_copies: DirsAndBytes
    full_soon: int
    full_later: int
    next_full_days: float | None
    pace_unknown: int
    offline: int
    read_only: int
    full: int
    unknown: list[UnknownCause]


@strict
class ReplicaCounts(TypedDict):
    """Where the replicas are that are expected, which are all of the others together. `missing`: assigned before its
    host looked and afterwards, and not there. `not_yet`: only in assignments that are younger than that; `gone`: only
    in older ones; `unproven`: nothing shows whether it had to be there; `not_heard`: of hosts that do not report;
    `not_read`: it may be in a log dir that could not be read."""

    expected: int
    found: int
    missing: int
    not_yet: int
    unproven: int
    gone: int
    not_heard: int
    not_read: int


@strict
class NotCompared(TypedDict):
    state: Literal["not_yet", "unproven", "not_read"]
    reason: str
    replicas: int
    hosts: int


@strict
class ReplicaAnswer(TypedDict):
    """`total`: of all clusters that have verdicts. `not_compared`: what is not known to be missing, nor not to be;
    while there is any, "0 missing" is no all-clear. `no_copy`: partitions of which no copy was found, with such a
    replica and none that is known to be missing."""

    total: ReplicaCounts
    not_compared: list[NotCompared]
    no_copy: int


@strict
class Step(TypedDict):
    """What to do next: it frees `bytes` in `window`. `days`: until the log dir is full (0: it is; null: its pace is
    not known). `requestable`: how many directories of the topic `topics purge` plans. `hosts`: where log dirs are
    offline or read-only, and partitions without any copy, how many these are."""

    what: Literal["log-dir", "host", "topic", "offline", "read-only", "no-copy"]
    cluster_id: str | None
    node_id: int | None
    host: str | None
    log_dir: str | None
    topic: str | None
    bytes: Size
    window: Literal["now", "restart"] | None
    days: float | None
    hosts: int
    requestable: int | None


@strict
class Change(TypedDict):
    """Since an earlier date, on the hosts that reported on both: used bytes of `log_dirs` log dirs; new orphans; former
    orphans, strays and marked directories that are none of these any more; log dirs that went offline; partitions that
    lost their last copy (null: too many to check)."""

    date: DateText
    days: int
    log_dirs: int
    used: int
    offline: int
    orphans: int
    orphan_bytes: Size
    cleared: int
    cleared_bytes: Size
    no_copy: int | None


@strict
class ReportAnswers(TypedDict):
    """What an operator asks first; every figure is over all rows of its table."""

    disks: DiskAnswer
    reclaim: ReclaimAnswer
    risk: RiskAnswer
    replicas: ReplicaAnswer
    steps: list[Step]
    changes: list[Change]


@strict
class ReportAssignments(TypedDict):
    source: str | None
    at: Time
    age_seconds: float
    topics: int
    partitions: int


@strict
class ReportCluster(TypedDict):
    """`verdicts` is `unknown` if there are no usable assignments; `why` gives the reason, and `replicas` is null.
    `name`: the operators' name for it."""

    cluster_id: str
    name: str | None
    hosts: int
    unknown_hosts: int
    assignments: ReportAssignments | None
    replicas: ReplicaCounts | None
    verdicts: Literal["decided", "unknown"]
    why: str | None


@strict
class UnknownHost(TypedDict):
    cluster_id: str
    node_id: int
    why: str


@strict
class ReportHosts(TypedDict):
    """`unknown` may be truncated; `unknown_total` is the full number, and the table `log_dir_health` lists them all.
    Of the agents that report `enforcing` act by themselves, `accepting` carry out requests, `refusing` do not; the rest
    do not say."""

    reporting: int
    unknown: list[UnknownHost]
    unknown_total: int
    enforcing: int
    accepting: int
    refusing: int


@strict
class ReportTotals(TypedDict):
    """Bytes of the directories, of the ledgers (`current` … `other`) and of orphans; the rest are counts."""

    bytes: Size
    allocated: Size
    current: Size
    future: Size
    stray: Size
    delete: Size
    other: Size
    orphans: int
    orphan_bytes: Size
    missing_replicas: int
    duplicates: int
    leftovers: int


@strict
class ReportTable(TypedDict):
    """Paths are relative to the report directory; `shown` rows of `rows` are on the page."""

    rows: int
    csv: str | None
    parquet: str
    shown: int


@strict
class ReportedRun(TypedDict):
    """The run of the store that the report is based on, and when it was ingested."""

    run: str
    commit: int
    at: Time


@strict
class ReportCommands(TypedDict):
    """What the page's commands are given. `host` made the report; `store`: as `topics` takes it, null for a file system
    that it cannot reach; `key`: file of the private key that was configured there; `bootstrap`: by cluster id."""

    host: str
    store: str | None
    key: str | None
    bootstrap: dict[str, str]


@strict
class FleetReport(TypedDict):
    schema: Literal["logagent.fleet-report/1"]
    run_id: str
    at: Time
    as_of: Time
    date: DateText
    ingested: ReportedRun
    clusters: list[ReportCluster]
    hosts: ReportHosts
    totals: ReportTotals
    tables: dict[str, ReportTable]
    warnings: list[str]
    place: str
    commands: ReportCommands
    answers: ReportAnswers


@strict
class IngestedDate(TypedDict):
    date: DateText
    taken: int
    superseded: int
    waiting: int
    rejected: int
    rows: int


@strict
class FleetIngest(TypedDict):
    schema: Literal["logagent.fleet-ingest/1"]
    dates: list[IngestedDate]
    trimmed: list[DateText]
    report: NotRequired[str]


SCHEMAS: dict[str, Any] = {
    "fleet-report": FleetReport,
    "fleet-ingest": FleetIngest,
    **PUBLISHED,
}
