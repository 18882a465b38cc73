"""What `prestart` did while the broker was about to start."""

from __future__ import annotations

from typing import Literal

from logagent.advice.documents import FindingDoc
from logagent.base.documents import Time, TypedDict, strict
from logagent.cleanup.commands.documents import PlanDoc


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
