"""Fills `logagent.doctor/1`; mypy compares it with its type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from logagent import __version__
from logagent.advice.finding import Finding, Severity
from logagent.base.kafka_version import version_text_or_none
from logagent.base.times import rfc3339_or_none

if TYPE_CHECKING:
    from logagent.service.doctor.documents import DoctorDoc, DoctorFindingDoc, DoctorLogDir, DoctorService
    from logagent.service.doctor.rules.host import DoctorFacts, DoctorLogDirFacts, ServiceFacts

_DOCTOR_WORDS: dict[Severity, Literal["works", "info", "warning", "fails"]] = {
    Severity.FATAL: "fails",
    Severity.WARNING: "warning",
    Severity.INFO: "info",
    Severity.WORKS: "works",
}


def doctor_document(facts: DoctorFacts, findings: Sequence[Finding], host: str, at: str) -> DoctorDoc:
    """`logagent.doctor/1`."""
    subject = facts.subject
    return {
        "schema": "logagent.doctor/1",
        "at": at,
        "host": host,
        "agent_version": __version__,
        "config": facts.config.file,
        "kafka_config": facts.config.kafka_config,
        "state_dir": facts.state.path if facts.state is not None else "",
        "user": {"name": subject.name, "uid": subject.uid, "how": subject.how, "service": subject.service},
        "brokers": [
            {
                "config": b.config,
                "how": b.how,
                "pid": b.pid,
                "user": b.user,
                "unit": b.unit,
                "kafka_version": version_text_or_none(b.version),
                "chosen": b.chosen,
            }
            for b in facts.brokers
        ],
        "kafka_version": version_text_or_none(facts.kafka_version.version),
        "kafka_version_from": facts.kafka_version.says(),
        "at_least": facts.kafka_version.exact is None,
        "cluster_id": facts.cluster_id,
        "node_id": facts.node_id,
        "log_dirs": [_doctor_log_dir(d) for d in facts.log_dirs],
        "service": _doctor_service(facts.service) if facts.service is not None else None,
        "daemon": facts.daemon.state if facts.daemon is not None else "none",
        "assignments_source": facts.assignments.source if facts.assignments is not None else "none",
        "assignments_age_seconds": facts.assignments.age_seconds if facts.assignments is not None else None,
        "findings": [_doctor_finding(f) for f in findings],
    }


def _doctor_log_dir(d: DoctorLogDirFacts) -> DoctorLogDir:
    return {
        "path": d.path,
        "health": d.health,
        "reason": d.reason,
        "holder": {"state": d.holder, "pid": d.pid, "start_time": rfc3339_or_none(d.started_ms)},
        "owner": d.owner,
        "lacks": d.access.lacks if d.access is not None else None,
        "mount_point": d.mount.point if d.mount is not None else None,
        "file_system": d.mount.kind if d.mount is not None else None,
    }


def _doctor_service(s: ServiceFacts) -> DoctorService:
    return {
        "unit": s.unit,
        "known_by": s.known_by,
        "user": s.user,
        "file": s.file,
        "active": s.active,
        "main_pid": s.main_pid,
    }


def doctor_word(severity: Severity) -> str:
    """The word `doctor` uses: `works`, `info`, `warning`, `fails`."""
    return _DOCTOR_WORDS[severity]


def _doctor_finding(f: Finding) -> DoctorFindingDoc:
    assert f.area is not None, f
    c = f.change
    return {
        "area": f.area,
        "state": _DOCTOR_WORDS[f.severity],
        "code": f.code,
        "path": f.path,
        "says": f.says,
        "hint": f.hint,
        "change": None
        if c is None
        else {"file": c.file, "number": c.number, "section": c.section, "line": c.line, "then": c.then},
    }
