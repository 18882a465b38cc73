"""The daemon's answer to `logagent status`."""

from __future__ import annotations

from typing import Literal

from logagent.base.documents import Size, Time, TypedDict, strict
from logagent.base.records import ActionKind, Health, Outcome
from logagent.kafka.image import Source
from logagent.verdict.evidence.documents import LogDoubtDoc


@strict
class StatusLogDir(TypedDict):
    """`watch`: whether inotify reports new names in it, or it is polled (`watch_problem` says why)."""

    path: str
    health: Health | None
    reason: str | None
    since: Time | None
    probe_ms: float | None
    watch: Literal["inotify", "polling"]
    watch_problem: str | None


@strict
class StatusBroker(TypedDict):
    """The process that holds the log dirs. `command` omits the options between program and main class. Values that the
    daemon's user may not read are null, and so is `open_files_limit` if there is no limit."""

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


@strict
class StatusQueue(TypedDict):
    entries: int
    bytes: Size
    oldest_marked_at: Time | None
    next_due_at: Time | None


@strict
class StatusAssignments(TypedDict):
    source: Source | None
    at: Time | None
    usable: bool
    problem: str | None
    log_doubt: LogDoubtDoc | None


@strict
class StatusResult(TypedDict):
    action: ActionKind
    outcome: Outcome
    dirs: int


@strict
class StatusRefusal(TypedDict):
    """The first refusal of a guard."""

    guard: str
    fact: str
    hint: str


@strict
class StatusCycle(TypedDict):
    """The last cycle of a job. `refusals`: how many by guard, `refused_because`: why, by guard. `needs_approval`: the
    plan id to pass to `logagent cleanup --execute --approve`."""

    job: Literal["cleanup", "queue", "inventory", "requests"]
    started_at: Time
    seconds: float
    plan_id: str | None
    planned: int
    results: list[StatusResult]
    refusals: dict[str, int]
    refused_because: list[StatusRefusal]
    waiting: int
    freed_bytes: Size
    needs_approval: str | None
    error: str | None


@strict
class StatusPublish(TypedDict):
    at: Time
    last_sent_at: Time | None
    waiting: int
    waiting_bytes: Size
    dropped: int
    error: str | None


@strict
class StatusFailed(TypedDict):
    """A job whose last run ended by an error that was not foreseen (the log has more)."""

    job: str
    at: Time
    error: str


@strict
class StatusReload(TypedDict):
    """A reload that was not taken: the daemon runs with its configuration of before."""

    at: Time
    error: str


@strict
class StatusDoc(TypedDict):
    """The state of the running daemon; null for anything it has not looked at yet. `open_exchanges`: paths of what an
    interrupted `restore --replace` displaced, as of the last cycle; `clock_doubt`: why nothing is done that depends on
    an age."""

    schema: Literal["logagent.status/1"]
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
    clock_doubt: str | None
    open_exchanges: list[str]
    cycles: list[StatusCycle]
    failed: list[StatusFailed]
    reload_failed: StatusReload | None
    running: Literal["cleanup", "queue", "inventory", "requests"] | None
    next: dict[Literal["cleanup", "queue", "health", "publish"], Time | None]
    publish: StatusPublish | None
