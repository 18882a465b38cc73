"""What would hinder a start: `check`, `prestart`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from logagent.documents.base import Document, HealthName, Time
from logagent.documents.plans import PlanDoc


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
