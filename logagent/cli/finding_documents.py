"""Fills the documents of check and doctor from what the agent found; mypy compares them with their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from logagent import __version__
from logagent.model.finding import Finding, Severity
from logagent.model.health.kafka_version import Version, version_text
from logagent.model.times import rfc3339_or_none

if TYPE_CHECKING:
    # Only their types are needed here: pydantic, which they bring, is slow to import.
    from logagent.agent.check.run_check import CheckReport
    from logagent.documents.doctor import CheckDoc, DoctorDoc, DoctorFindingDoc, DoctorLogDir, FindingDoc
    from logagent.model.doctor.doctor_facts import DoctorFacts, LogDirLook


_CHECK_WORDS: dict[Severity, Literal["fatal", "warning", "info"]] = {
    Severity.FATAL: "fatal",
    Severity.WARNING: "warning",
    Severity.INFO: "info",
}
_DOCTOR_WORDS: dict[Severity, Literal["works", "info", "warning", "fails"]] = {
    Severity.FATAL: "fails",
    Severity.WARNING: "warning",
    Severity.INFO: "info",
    Severity.WORKS: "works",
}


def check_document(report: CheckReport, at: str) -> CheckDoc:
    """`logagent.check/1`."""
    return {
        "schema": "logagent.check/1",
        "at": at,
        "kafka_version": _text(report.kafka_version),
        "log_dirs": [
            {"path": d.path, "health": d.health, "reason": d.reason, "probe_ms": d.probe_ms} for d in report.log_dirs
        ],
        "findings": [finding_row(f) for f in report.findings],
    }


def finding_row(finding: Finding) -> FindingDoc:
    """One finding of `check` and `prestart`."""
    return {
        "severity": _CHECK_WORDS[finding.severity],
        "code": finding.code,
        "path": finding.path,
        "kafka_versions": str(finding.releases),
        "says": finding.says,
        "hint": finding.hint,
    }


def doctor_document(facts: DoctorFacts, findings: Sequence[Finding], host: str, at: str) -> DoctorDoc:
    """`logagent.doctor/1`."""
    s, subject = facts.service, facts.subject
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
                "kafka_version": _text(b.version),
                "chosen": b.chosen,
            }
            for b in facts.brokers
        ],
        "kafka_version": _text(facts.kafka_version.version),
        "kafka_version_from": facts.kafka_version.says(),
        "at_least": facts.kafka_version.exact is None,
        "cluster_id": facts.cluster_id,
        "node_id": facts.node_id,
        "log_dirs": [_doctor_log_dir(d) for d in facts.log_dirs],
        "service": None
        if s is None
        else {
            "unit": s.unit,
            "known_by": s.known_by,
            "user": s.user,
            "file": s.file,
            "active": s.active,
            "main_pid": s.main_pid,
        },
        "daemon": facts.daemon.state if facts.daemon is not None else "none",
        "assignments_source": facts.assignments.source if facts.assignments is not None else "none",
        "assignments_age_seconds": facts.assignments.age_seconds if facts.assignments is not None else None,
        "findings": [_doctor_finding(f) for f in findings],
    }


def _doctor_log_dir(d: LogDirLook) -> DoctorLogDir:
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


def _text(version: Version | None) -> str | None:
    return version_text(version) if version is not None else None
