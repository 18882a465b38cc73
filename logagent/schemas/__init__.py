"""The JSON documents that other programs rely on, each defined once. `logagent schema NAME` prints their JSON Schema.

Additions are free; a change of meaning or a removal needs a new number in the schema name and a line in the CHANGELOG.
Times are RFC 3339 in UTC with milliseconds, sizes are integers in bytes.
"""

from __future__ import annotations

from typing import Any

from logagent.advice.documents import CheckDoc, LeaveDoc, PrestartDoc, Scan
from logagent.advice.explain.documents import ExplainDoc, NameDoc
from logagent.cleanup.commands.documents import HistoryDoc, PlanDoc, QueueDoc
from logagent.deletion.store.answers import SCHEMAS as TOPICS
from logagent.service.doctor.command import DoctorDoc
from logagent.service.status.documents import StatusDoc
from logagent.verdict.evidence.documents import AssignmentsDoc

__all__ = ["SCHEMAS", "AssignmentsDoc", "CheckDoc", "ExplainDoc", "NameDoc", "StatusDoc"]

SCHEMAS: dict[str, Any] = {
    "scan": Scan,
    "plan": PlanDoc,
    "queue": QueueDoc,
    "history": HistoryDoc,
    "check": CheckDoc,
    "leave": LeaveDoc,
    "prestart": PrestartDoc,
    "doctor": DoctorDoc,
    "status": StatusDoc,
    "explain": ExplainDoc,
    "explain-name": NameDoc,
    "assignments": AssignmentsDoc,
    **TOPICS,
}
