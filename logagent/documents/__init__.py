"""The JSON documents that other programs rely on, each defined once. `logagent schema NAME` prints their JSON Schema.

Additions are free; a change of meaning or a removal needs a new number in the schema name and a line in the CHANGELOG.
Times are RFC 3339 in UTC with milliseconds, sizes are integers in bytes.
"""

from __future__ import annotations

from typing import Any

from logagent.documents.assignments import AssignmentsDoc
from logagent.documents.check import CheckDoc, LeaveDoc
from logagent.documents.doctor import DoctorDoc
from logagent.documents.explain import ExplainDoc, NameDoc
from logagent.documents.inventory import Scan
from logagent.documents.plans import HistoryDoc, PlanDoc, QueueDoc
from logagent.documents.prestart import PrestartDoc
from logagent.documents.status import StatusDoc
from logagent.documents.topics import SCHEMAS as TOPICS

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
