"""What the daemon answers to `logagent status`."""

from __future__ import annotations

from typing import Literal

from logagent.documents.base import Size, Time, TypedDict, strict
from logagent.model.assignments.image import Source
from logagent.model.records import ActionKind, Health, Outcome


@strict
class StatusLogDir(TypedDict):
    """`watch`: whether inotify reports new names there, or it is polled (`watch_problem` says why)."""

    path: str
    health: Health | None
    reason: str | None
    since: Time | None
    probe_ms: float | None
    watch: Literal["inotify", "polling"]
    watch_problem: str | None


@strict
class StatusBroker(TypedDict):
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


@strict
class StatusResult(TypedDict):
    action: ActionKind
    outcome: Outcome
    dirs: int


@strict
class StatusCycle(TypedDict):
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


@strict
class StatusPublish(TypedDict):
    at: Time
    last_sent_at: Time | None
    waiting: int
    waiting_bytes: Size
    dropped: int
    error: str | None


@strict
class StatusDoc(TypedDict):
    """The state of the running daemon; what it has not looked at yet is null."""

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
    cycles: list[StatusCycle]
    running: Literal["cleanup", "queue", "inventory"] | None
    next: dict[Literal["cleanup", "queue", "health", "publish"], Time | None]
    publish: StatusPublish | None
