"""What is to be done and was done: plans, queue, history."""

from __future__ import annotations

from typing import Literal

from logagent.documents.base import Size, Time, TypedDict, strict
from logagent.documents.inventory import AssignmentsUsed
from logagent.model.planning.plan import GuardName
from logagent.model.planning.queue import Owner
from logagent.model.records import ActionKind, Outcome


@strict
class ActionDoc(TypedDict):
    id: str
    action: ActionKind
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
    outcome: Outcome | None
    error: str | None


@strict
class RefusalDoc(TypedDict):
    log_dir: str
    name: str
    guard: GuardName
    fact: str
    hint: str
    bytes: Size


@strict
class WaitingDoc(TypedDict):
    log_dir: str
    name: str
    action: ActionKind
    reason: str
    until: Time | None
    sightings: int


@strict
class PlanTotals(TypedDict):
    """`actions` counts directories: the rows `drop-checkpoint-entry`, which go with a rename, are not among them."""

    actions: int
    bytes: Size
    refusals: int
    waiting: int
    freed_bytes: Size


@strict
class PlanDoc(TypedDict):
    """`name` and `log_dir` of a refusal are empty where the plan as a whole is refused (guard blast-radius)."""

    schema: Literal["logagent.plan/1"]
    at: Time
    host: str
    cluster_id: str | None
    node_id: int | None
    plan_id: str
    mode: Literal["dry-run", "execute"]
    assignments: AssignmentsUsed
    actions: list[ActionDoc]
    refusals: list[RefusalDoc]
    waiting: list[WaitingDoc]
    totals: PlanTotals


@strict
class QueueEntryDoc(TypedDict):
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
    owner: Owner


@strict
class QueueDoc(TypedDict):
    schema: Literal["logagent.queue/1"]
    at: Time
    delay_ms: int
    next_due_at: Time | None
    entries: list[QueueEntryDoc]


@strict
class HistoryEntry(TypedDict):
    id: int
    at: Time
    action: ActionKind
    log_dir: str
    name: str
    new_name: str | None
    topic: str | None
    partition: int | None
    topic_id: str | None
    bytes: Size
    plan_id: str
    actor: str
    outcome: Outcome | None
    finished_at: Time | None
    error: str | None


@strict
class HistoryDoc(TypedDict):
    schema: Literal["logagent.history/1"]
    at: Time
    entries: list[HistoryEntry]
