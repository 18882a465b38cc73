"""What is to be done and was done: plans, queue, history."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from logagent.documents.base import ActionName, Document, OutcomeName, Size, Time
from logagent.documents.inventory import Assignments
from logagent.model.planning.plan import GuardName


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
