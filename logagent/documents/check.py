"""What would keep a broker from starting: `check`, `prestart`."""

from __future__ import annotations

from typing import Literal

from logagent.documents.base import Time, TypedDict, strict
from logagent.documents.plans import PlanDoc
from logagent.model.records import Health


@strict
class CheckLogDir(TypedDict):
    path: str
    health: Health
    reason: str | None
    probe_ms: float | None


@strict
class FindingDoc(TypedDict):
    severity: Literal["fatal", "warning", "info"]
    code: str
    path: str
    kafka_versions: str
    says: str
    hint: str


@strict
class CheckDoc(TypedDict):
    schema: Literal["logagent.check/1"]
    at: Time
    kafka_version: str | None
    log_dirs: list[CheckLogDir]
    findings: list[FindingDoc]


@strict
class PrestartDoc(TypedDict):
    """If time or permissions did not suffice for a plan, `plan` is null and `skipped` says why; `hint`, where there is
    one, what to do about it. `settled_by_plan`: those of `findings` that keep a broker from starting only until a
    plan that was not carried out (a dry run) makes room."""

    schema: Literal["logagent.prestart/1"]
    at: Time
    budget_ms: int
    spent_ms: int
    skipped: str | None
    hint: str | None
    plan: PlanDoc | None
    findings: list[FindingDoc]
    settled_by_plan: list[FindingDoc]
