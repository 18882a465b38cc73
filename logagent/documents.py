"""The JSON documents that other programs rely on, each defined once. `logagent schema NAME` prints their JSON Schema.

Commands build plain dicts (fast, and streamable); the tests validate what they print against these models. Additions
are free; a change of meaning or a removal needs a new number in the schema name and a line in the CHANGELOG.
Times are RFC 3339 in UTC with milliseconds, sizes are integers in bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from logagent.model.plan import GuardName

Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]
Size = Annotated[int, Field(ge=0)]
KindName = Literal["current", "future", "stray", "delete", "metadata", "cache", "invalid"]
ActionName = Literal["quarantine", "mark", "remove", "restore", "drop-checkpoint-entry"]
OutcomeName = Literal["done", "failed", "yielded", "skipped"]
HealthName = Literal["online", "read-only", "full", "offline", "unformatted"]
ReasonName = Literal[
    "topic-absent", "topic-recreated", "not-a-replica", "wrong-directory", "no-topic-id", "no-assignments",
    "stale-assignments", "foreign-cluster", "reassigning", "internal", "uncommitted", "sources-disagree",
]  # fmt: skip


class Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Assignments(Document):
    """Which assignments the verdicts come from. `source` is `none` where there were none."""

    source: Literal["kraft-log", "admin", "file", "none"]
    cluster_id: str | None
    at: Time | None
    offset: int | None
    age_seconds: float | None
    topics: int
    partitions: int


class HolderDoc(Document):
    state: Literal["free", "held", "starting", "hidden", "unreadable"]
    pid: int | None
    start_time: Time | None


class Ledger(Document):
    """Where the bytes of a log dir's file system are. `unexplained` = used − all the others (it may be negative)."""

    size: Size
    used: Size
    free: Size
    current: Size
    future: Size
    stray: Size
    delete: Size
    other: Size
    open_removed: Size
    unexplained: int


class LogDirDoc(Document):
    path: str
    directory_id: str | None
    health: HealthName
    reason: str | None
    holder: HolderDoc
    ledger: Ledger | None


class DirDoc(Document):
    log_dir: str
    name: str
    kind: KindName
    topic: str | None
    topic_truncated: bool
    full_topic: str | None
    partition: int | None
    uuid: str | None
    topic_id: str | None
    bytes: Size
    allocated: Size
    files: Size
    segments: Size
    newest_mtime: Time | None
    marked_at: Time | None
    first_offset: int | None
    last_segment_offset: int | None
    sightings: int
    first_seen: Time | None
    in_use: bool | None
    verdict: Literal["assigned", "orphan", "unknown"] | None
    reason: ReasonName | None
    error: str | None


class Scan(Document):
    schema_: Literal["logagent.scan/1"] = Field(alias="schema")
    at: Time
    host: str
    agent_version: str
    cluster_id: str | None
    node_id: int | None
    kafka_version: str | None
    assignments: Assignments
    log_dirs: list[LogDirDoc]
    dirs: list[DirDoc]


class ActionDoc(Document):
    id: str
    action: ActionName
    log_dir: str
    name: str
    new_name: str | None
    topic: str | None
    partition: int | None
    topic_id: str | None
    reason: str
    bytes: Size
    allocated: Size
    sightings: int
    due_at: Time | None
    outcome: OutcomeName | None
    error: str | None


class RefusalDoc(Document):
    log_dir: str
    name: str
    guard: GuardName
    fact: str
    hint: str
    bytes: Size


class WaitingDoc(Document):
    log_dir: str
    name: str
    action: ActionName
    reason: str
    until: Time | None
    sightings: int


class PlanTotals(Document):
    """`actions` counts directories: the rows `drop-checkpoint-entry`, which go with a rename, are not among them."""

    actions: int
    bytes: Size
    refusals: int
    waiting: int
    freed_bytes: Size


class PlanDoc(Document):
    """`name` and `log_dir` of a refusal are empty where the plan as a whole is refused (guard blast-radius)."""

    schema_: Literal["logagent.plan/1"] = Field(alias="schema")
    at: Time
    host: str
    cluster_id: str | None
    node_id: int | None
    plan_id: str
    mode: Literal["dry-run", "execute"]
    assignments: Assignments
    actions: list[ActionDoc]
    refusals: list[RefusalDoc]
    waiting: list[WaitingDoc]
    totals: PlanTotals


class QueueEntryDoc(Document):
    log_dir: str
    name: str
    topic: str | None
    full_topic: str | None
    partition: int | None
    bytes: Size
    marked_at: Time
    due_at: Time
    overdue_seconds: float
    attempts: int
    last_error: str | None
    owner: Literal["broker", "logagent"]


class QueueDoc(Document):
    schema_: Literal["logagent.queue/1"] = Field(alias="schema")
    at: Time
    delay_ms: int
    next_due_at: Time | None
    entries: list[QueueEntryDoc]


class HistoryEntry(Document):
    id: int
    at: Time
    action: ActionName
    log_dir: str
    name: str
    new_name: str | None
    topic: str | None
    partition: int | None
    topic_id: str | None
    bytes: Size
    plan_id: str
    actor: str
    outcome: OutcomeName | None
    finished_at: Time | None
    error: str | None


class HistoryDoc(Document):
    schema_: Literal["logagent.history/1"] = Field(alias="schema")
    at: Time
    entries: list[HistoryEntry]


class CheckLogDir(Document):
    path: str
    health: HealthName
    reason: str | None
    probe_ms: float | None


class Finding(Document):
    severity: Literal["fatal", "warning", "info"]
    code: str
    path: str
    kafka_versions: str
    says: str
    hint: str


class CheckDoc(Document):
    schema_: Literal["logagent.check/1"] = Field(alias="schema")
    at: Time
    kafka_version: str | None
    log_dirs: list[CheckLogDir]
    findings: list[Finding]


class PrestartDoc(Document):
    """`plan` is null, and `skipped` says why, where there was no time or no right to look."""

    schema_: Literal["logagent.prestart/1"] = Field(alias="schema")
    at: Time
    budget_ms: int
    spent_ms: int
    skipped: str | None
    plan: PlanDoc | None
    findings: list[Finding]


class DoctorBroker(Document):
    """A configuration of a broker on this host. `chosen`: the one that logagent uses; `how`: how it was found."""

    config: str
    how: str
    pid: int | None
    user: str | None
    unit: str | None
    kafka_version: str | None
    chosen: bool


class DoctorLogDir(Document):
    """`lacks`: permissions that the agent's user does not have on it, in words."""

    path: str
    health: HealthName
    reason: str | None
    holder: HolderDoc
    owner: str | None
    lacks: str | None
    mount_point: str | None
    file_system: str | None


class DoctorUser(Document):
    """Whose rights were looked at, and how that user was found. `service`: the daemon runs as that user."""

    name: str
    uid: int
    how: str
    service: bool


class DoctorService(Document):
    """The unit of the daemon: as the running systemd has it in force, or as its files say (then `active` is null)."""

    unit: str
    known_by: Literal["systemd", "files"]
    user: str | None
    file: str
    active: str | None
    main_pid: int | None


class DoctorChange(Document):
    """`line` (several where it has newlines) goes into `file`, in place of line `number` where that is given, below
    `section`; without a file it is a command for root. `then`: what makes it effective."""

    file: str | None
    number: int | None
    section: str | None
    line: str
    then: str | None


class DoctorFindingDoc(Document):
    """Codes are stable; new ones may come."""

    area: str
    state: Literal["works", "info", "warning", "fails"]
    code: str
    path: str
    says: str
    hint: str
    change: DoctorChange | None


class DoctorDoc(Document):
    """`kafka_config` and what follows from it is null or empty where no broker, or several, were found. `at_least`: the
    broker is of `kafka_version` or later."""

    schema_: Literal["logagent.doctor/1"] = Field(alias="schema")
    at: Time
    host: str
    agent_version: str
    config: str | None
    kafka_config: str | None
    state_dir: str
    user: DoctorUser
    brokers: list[DoctorBroker]
    kafka_version: str | None
    kafka_version_from: str | None
    at_least: bool
    cluster_id: str | None
    node_id: int | None
    log_dirs: list[DoctorLogDir]
    service: DoctorService | None
    daemon: Literal["running", "none", "dead", "refused", "silent"]
    assignments_source: Literal["kraft-log", "admin", "file", "none"]
    assignments_age_seconds: float | None
    findings: list[DoctorFindingDoc]


class StatusLogDir(Document):
    """`watch`: whether inotify tells of new names there, or it is only looked at now and then (`watch_problem`)."""

    path: str
    health: HealthName | None
    reason: str | None
    since: Time | None
    probe_ms: float | None
    watch: Literal["inotify", "polling"]
    watch_problem: str | None


class StatusBroker(Document):
    """The process that holds the log dirs. `command` without the options between program and main class; what the
    daemon's user may not read is null, and so is a limit that there is not."""

    pid: int
    start_time: Time
    user: str
    command: str
    cpu_seconds: float | None
    resident_bytes: Size | None
    read_bytes: Size | None
    written_bytes: Size | None
    open_files: int | None
    open_files_limit: int | None


class StatusQueue(Document):
    entries: int
    bytes: Size
    oldest_marked_at: Time | None
    next_due_at: Time | None


class StatusAssignments(Document):
    source: Literal["kraft-log", "admin", "file"] | None
    at: Time | None
    usable: bool
    problem: str | None


class StatusResult(Document):
    action: ActionName
    outcome: OutcomeName
    dirs: int


class StatusCycle(Document):
    """The last one of its job. `needs_approval`: the plan id that `logagent cleanup --execute --approve` takes."""

    job: Literal["cleanup", "queue", "inventory"]
    started_at: Time
    seconds: float
    plan_id: str | None
    planned: int
    results: list[StatusResult]
    refusals: dict[str, int]
    waiting: int
    freed_bytes: Size
    needs_approval: str | None
    error: str | None


class StatusPublish(Document):
    at: Time
    last_sent_at: Time | None
    waiting: int
    waiting_bytes: Size
    dropped: int
    error: str | None


class StatusDoc(Document):
    """What the running daemon says of itself; what it has not looked at yet is null."""

    schema_: Literal["logagent.status/1"] = Field(alias="schema")
    at: Time
    host: str
    agent_version: str
    pid: int
    started_at: Time
    state_dir: str
    mode: Literal["report", "enforce"]
    config: str | None
    kafka_config: str | None
    log_dirs: list[StatusLogDir]
    brokers: list[StatusBroker]
    queue: StatusQueue | None
    assignments: StatusAssignments | None
    cycles: list[StatusCycle]
    running: Literal["cleanup", "queue", "inventory"] | None
    next: dict[Literal["cleanup", "queue", "health", "publish"], Time | None]
    publish: StatusPublish | None


class ExplainDoc(Document):
    schema_: Literal["logagent.explain/1"] = Field(alias="schema")
    name: str
    kind: KindName
    topic: str | None
    partition: int | None
    uuid: str | None
    topic_truncated: bool
    valid: bool
    error: str | None


class BrokerDoc(Document):
    node_id: int
    directory_ids: list[str]


class PartitionDoc(Document):
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    isr: list[int]
    directories: list[str]


class TopicDoc(Document):
    topic: str
    topic_id: str | None
    partitions: list[PartitionDoc]


class AssignmentsDoc(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    schema_: Literal["logagent.assignments/1"] = Field(alias="schema")
    cluster_id: str | None
    at: Time
    source: Literal["kraft-log", "admin", "file"]
    offset: int | None
    metadata_version: Any = None
    brokers: list[BrokerDoc]
    topics: list[TopicDoc]


SCHEMAS: dict[str, type[BaseModel]] = {
    "scan": Scan,
    "plan": PlanDoc,
    "queue": QueueDoc,
    "history": HistoryDoc,
    "check": CheckDoc,
    "prestart": PrestartDoc,
    "doctor": DoctorDoc,
    "status": StatusDoc,
    "explain": ExplainDoc,
    "assignments": AssignmentsDoc,
}
