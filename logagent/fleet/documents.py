"""What the fleet job prints and what manifests contain, each defined once, for `logagent schema` and the tests.

The answers in a fleet report: what an operator asks first, each schema defined once.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, Required

from pydantic import Field

from logagent.documents.base import Size, Time, TypedDict, strict
from logagent.documents.inventory import AssignmentsUsed, LogDirDoc
from logagent.model.assignments.verdict import Reason
from logagent.model.records import Kind, Verdict

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
    """`requestable`: how many of the directories `topics purge` can request."""

    hosts: int
    requestable: int


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
    """`no_copy`: partitions that no reporting host has; `missing_elsewhere`: missing replicas with copies elsewhere;
    `full_soon` and `full_later`: log dirs that are full within 7 and 30 days at their present rate."""

    no_copy: int
    missing_elsewhere: int
    only_copies: DirsAndBytes
    full_soon: int
    full_later: int
    next_full_days: float | None
    offline: int
    read_only: int
    full: int
    unknown: list[UnknownCause]


@strict
class Step(TypedDict):
    """What to do next: it frees `bytes` in `window`. `days`: until the log dir is full. `requestable`: how many
    directories of the topic `topics purge` can request."""

    what: Literal["log-dir", "host", "topic", "offline"]
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
    steps: list[Step]
    changes: list[Change]


Millis = int


@strict
class ReportAssignments(TypedDict):
    source: str | None
    at: Time
    age_seconds: float
    topics: int
    partitions: int


@strict
class ReportCluster(TypedDict):
    """`verdicts` is `unknown` if there are no usable assignments; `why` gives the reason. `name`: the operators' name
    for it."""

    cluster_id: str
    name: str | None
    hosts: int
    unknown_hosts: int
    assignments: ReportAssignments | None
    verdicts: Literal["decided", "unknown"]
    why: str | None


@strict
class UnknownHost(TypedDict):
    cluster_id: str
    node_id: int
    why: str


@strict
class ReportHosts(TypedDict):
    """`unknown` may be truncated; `unknown_total` is the full number, and the table `log_dir_health` lists them all."""

    reporting: int
    unknown: list[UnknownHost]
    unknown_total: int


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


@strict
class BaseNamed(TypedDict):
    """The whole snapshot of the same folder that a delta changes; `sha256` is that of its manifest."""

    snapshot_id: str
    sha256: str


@strict
class Manifest(TypedDict):
    """Vouches for one file of landing: `rows` counts all its lines, `bytes` and `sha256` are of the compressed file. A
    delta is a snapshot that has only what has changed since its `base`."""

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


class SnapshotHead(TypedDict):
    """The first line of a snapshot file: who saw what follows, and when.

    `as_of`: of each source that verdicts rest on, until when it is known. `seen`: ids of the deletion requests and
    decisions that the agent has seen. Of a delta, `dirs` and `dirs_sha256` are the number of the `dir` lines that its
    base and its changes give together, and the SHA-256 of their text in that order, without line ends.
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
    base: BaseNamed | None
    dirs: NotRequired[int]
    dirs_sha256: NotRequired[str]


class SnapshotLogDir(LogDirDoc):
    """`device`: of the file system that it is on (`st_dev`), the same for all log dirs that share it."""

    row: Literal["log_dir"]
    device: int | None


class SnapshotDir(TypedDict, total=False):
    """A directory as `logagent scan` has it, its times in milliseconds since 1970; and what only snapshots have. What
    is null there is left out.

    `window`: when the agent's next step on it is open (now, at the broker's next restart, with approval, later),
    `due_at`: when that is or was, `obstacle`: the guard or rule that prevents it, `covered`: whether another copy
    contains what a stray contains. `claim`: what its verdict rests on, `witness`: the source that says so (see `as_of`
    of the head). `inode` and `end_offset` (where its log ends) tell it from another directory of the same name.
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
    reason: Reason
    claim: str
    witness: str
    error: str
    window: Literal["now", "restart", "approval", "later"]
    due_at: Millis
    covered: Literal["yes", "no", "unknown"]
    obstacle: str
    bytes: Required[Size]
    allocated: Size
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


SnapshotLine = Annotated[SnapshotHead | SnapshotLogDir | SnapshotDir | SnapshotChanges, Field(discriminator="row")]
"""One line of a snapshot file, by its `row`: first the head, then a line per log dir and per directory."""


SCHEMAS: dict[str, Any] = {
    "fleet-report": FleetReport,
    "fleet-ingest": FleetIngest,
    "snapshot": SnapshotLine,
    "manifest": Manifest,
}
