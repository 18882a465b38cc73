"""The documents of the fleet, each defined once, for `logagent schema` and the tests: what agents publish in the store
(manifests, and the lines of snapshots; `store/snapshots.py` says how one is read from its changes and its base), and
what the job prints, with the answers to what an operator asks first.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, Required

from pydantic import Field

from logagent.advice.documents import LogDirDoc
from logagent.base.documents import Size, Time, TypedDict, strict
from logagent.base.records import ActionKind, Kind, Outcome, Verdict
from logagent.verdict.evidence.documents import AssignmentsUsed
from logagent.verdict.rules import VerdictReason

Millis = int


@strict
class BaseNamed(TypedDict):
    """The whole snapshot of the same folder that a delta changes; `sha256` is that of its manifest."""

    snapshot_id: str
    sha256: str


@strict
class Manifest(TypedDict):
    """Vouches for one file of landing: `rows` counts all its lines, `bytes` and `sha256` are of the compressed file. A
    delta is a snapshot that has only what has changed since its `base`. `boot_id`: of the machine that took a
    snapshot; `booted_at`: when that boot began, by the same clock as `at`; `directory_ids`: of its log dirs, where
    they have one (Kafka 3.7 on)."""

    schema: Literal["logagent.manifest/1"]
    snapshot_id: str
    kind: Literal["snapshot", "delta", "assignments"]
    cluster_id: str
    node_id: int | None
    host: str
    at: Time
    rows: int
    bytes: Size
    sha256: str
    base: NotRequired[BaseNamed]
    boot_id: NotRequired[str]
    booted_at: NotRequired[Time]
    directory_ids: NotRequired[list[str]]


@strict
class ImageUsed(TypedDict):
    """An image of the assignments: `at` and `offset` say how recent it is (`offset`: of the metadata log)."""

    source: str
    at: Time
    offset: int | None


@strict
class ImagesUsed(TypedDict):
    before: ImageUsed
    after: ImageUsed


@strict
class ActsTold(TypedDict):
    """The `act` lines of a snapshot: how many there are (`rows`), and that they are all whose outcome is of `since` or
    later. `left_out`: those of the last 8 days that are older than that, and that `logagent history` on the host has.
    `last_id`: the highest id that the agent's journal ever gave: if it goes back, the journal was lost, or replaced by
    a copy, and what was done in between is in no snapshot."""

    since: Time
    rows: int
    left_out: int
    last_id: int


class SnapshotHead(TypedDict):
    """The first line of a snapshot file: who saw what follows, and when.

    `mode`: cleanup.mode; `accepts`: ids of the keys whose requests the agent carries out, with commas between them;
    none: orders.accept is false, or it has no key. `began`: when the inventory did. `images`: the assignments as
    they were read before it and after it, where both are of one source and one lineage. `absent`: how many `absent`
    lines there are; null where no image or not every log dir could be read, so that it is not known what is
    missing. `acts`: what the `act` lines are; null where the agent has no journal that it could read; older agents
    have no such field. Either way it is not known what they did: that is not nothing. `unread_processes`: as `logagent
    scan` has it; older agents have no such field, and nobody knows what `open_removed` of their log dirs lacks.
    `as_of`: of each source that verdicts rest on, until when it is known. `seen`: ids of the deletion requests without
    an outcome that the agent knew before it looked at its disks. Of a delta, `dirs` and `dirs_sha256` are the number of
    the `dir` lines that its base and its changes give together, and the SHA-256 of their text in that order, without
    line ends.
    """

    row: Literal["snapshot"]
    schema: Literal["logagent.snapshot/3"]
    snapshot_id: str
    at: Time
    host: str
    cluster_id: str
    node_id: int
    agent_version: str
    kafka_version: str | None
    boot_id: str | None
    assignments: AssignmentsUsed | None
    as_of: dict[str, Time]
    seen: list[str]
    mode: NotRequired[Literal["report", "enforce"]]
    accepts: NotRequired[str]
    began: NotRequired[Time | None]
    images: NotRequired[ImagesUsed | None]
    absent: NotRequired[int | None]
    acts: NotRequired[ActsTold | None]
    unread_processes: NotRequired[int | None]
    base: BaseNamed | None
    dirs: NotRequired[int]
    dirs_sha256: NotRequired[str]


class SnapshotLogDir(LogDirDoc):
    row: Literal["log_dir"]


class SnapshotAbsent(TypedDict):
    """A replica that both `images` of the head assign to this node, and of which no log dir has a current or future
    directory, though every one was read, nor one that is marked for deletion. `left`: whether one that was set aside
    is there; null: nothing is."""

    row: Literal["absent"]
    topic: str
    topic_id: str | None
    partition: int
    left: Literal["stray"] | None


class SnapshotAct(TypedDict):
    """What logagent did, or tried, on this host, whose outcome is known: an entry of its journal, as `logagent history`
    has it, with times in milliseconds since 1970. `at`: when it began. `claim`: what of all that it rested on
    (`claims`) was decisive for this directory, `witness`: who said so, `as_of`: until when that was known. `actor`:
    daemon, `cli:` and the name of a user, or `request` and its id; `approved`: whether its plan was approved."""

    row: Literal["act"]
    id: int
    at: Millis
    finished_at: Millis
    action: ActionKind
    outcome: Outcome | None
    log_dir: str
    name: str
    new_name: str | None
    topic: str | None
    topic_id: str | None
    partition: int | None
    bytes: Size
    allocated: Size | None
    actor: str
    approved: bool
    plan_id: str
    claim: str | None
    witness: str | None
    as_of: Millis | None
    claims: str
    error: str | None


class SnapshotDir(TypedDict, total=False):
    """A directory as `logagent scan` has it, its times in milliseconds since 1970; and what only snapshots have. What
    is null there is left out.

    `window`: when the agent's next step on it is open (now, at the broker's next restart, with approval, later),
    `due_at`: when that is or was, `obstacle`: the guard or rule that prevents it, `obstacle_detail`: in a sentence,
    where one word does not say it, `covered`: whether another copy contains what a stray contains. `claim`: what its
    verdict rests on, `witness`: the source that says so (see `as_of` of the head). `inode` and, of orphans and strays,
    `end_offset` (where its log ends) tell it from another directory of the same name.
    """

    row: Required[Literal["dir"]]
    log_dir: Required[str]
    name: Required[str]
    kind: Required[Kind]
    topic: str
    topic_truncated: bool
    full_topic: str
    partition: int
    uuid: str
    topic_id: str
    inode: int
    marked_at: Millis
    first_seen: Millis
    in_use: bool
    verdict: Verdict
    reason: VerdictReason
    claim: str
    witness: str
    error: str
    window: Literal["now", "restart", "approval", "later"]
    due_at: Millis
    covered: Literal["yes", "no", "unknown"]
    obstacle: str
    obstacle_detail: str
    bytes: Required[Size]
    allocated: Required[Size]
    files: Size
    segments: Size
    sightings: int
    newest_mtime: Millis
    first_offset: int
    last_segment_offset: int
    end_offset: int


class SnapshotChanges(TypedDict):
    """Of a delta: the directories of its base that are not as they were, in its order. Each is an array: how many after
    the last one are as they were; then by how much each number of its line, from `bytes` on, has grown (`allocated`: by
    how much more than `bytes`), without the zeros at the end. One without such numbers is gone. Directories that are
    new follow as `dir` lines."""

    row: Literal["changes"]
    dirs: list[list[int]]


SnapshotLine = Annotated[
    SnapshotHead | SnapshotLogDir | SnapshotAbsent | SnapshotAct | SnapshotDir | SnapshotChanges,
    Field(discriminator="row"),
]
"""One line of a snapshot file, by its `row`: first the head, then a line per log dir, per replica that is absent, per
act, and per directory."""


PUBLISHED: dict[str, Any] = {"snapshot": SnapshotLine, "manifest": Manifest}


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
    first. The windows do not include `barred` and the figures after it. `open_removed` may be up to `open_unread` more,
    on `unread_hosts` hosts whose agents could not read every process, or do not say."""

    now: WindowAnswer
    restart: WindowAnswer
    approval: WindowAnswer
    later: WindowAnswer
    next_due: Time | None
    barred: Size
    marked: Size
    open_removed: Size
    open_unread: Size
    unread_hosts: int
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
class ReportStep(TypedDict):
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
class ByAgents(TypedDict):
    """What agents removed since an earlier date, as `audit` has it (`since` on that date or later, action remove,
    outcome done): directories, and what they took up. `otherwise`: of what was `cleared` in that time, what no agent is
    known to have removed or restored: their broker or somebody else did, or the agent of one of `unknown_hosts`, which
    do not say what they did since, or not all; `left_out`: how many acts of the last 8 days the agents of these have
    left out, where they say so."""

    dirs: int
    bytes: Size
    otherwise: int
    otherwise_bytes: Size
    unknown_hosts: int
    left_out: int


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
    by_agents: ByAgents
    no_copy: int | None


@strict
class ReportAnswers(TypedDict):
    """What an operator asks first; every figure is over all rows of its table."""

    disks: DiskAnswer
    reclaim: ReclaimAnswer
    risk: RiskAnswer
    replicas: ReplicaAnswer
    steps: list[ReportStep]
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
    do not say. `acts_unknown`: hosts whose agents do not say what they did, because they are older or have no journal.
    """

    reporting: int
    unknown: list[UnknownHost]
    unknown_total: int
    enforcing: int
    accepting: int
    refusing: int
    acts_unknown: int


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
