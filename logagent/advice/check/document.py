"""Fills `logagent.check/1`; mypy compares it with its type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from logagent.advice.finding import Finding, Severity
from logagent.base.kafka_version import version_text_or_none

if TYPE_CHECKING:
    from logagent.advice.check.documents import CheckDoc, FindingDoc
    from logagent.advice.check.run_check import CheckReport

_CHECK_WORDS: dict[Severity, Literal["fatal", "warning", "info"]] = {
    Severity.FATAL: "fatal",
    Severity.WARNING: "warning",
    Severity.INFO: "info",
}


def check_document(report: CheckReport, at: str) -> CheckDoc:
    """`logagent.check/1`."""
    return {
        "schema": "logagent.check/1",
        "at": at,
        "kafka_version": version_text_or_none(report.kafka_version),
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
