"""`logagent check`: what would make this broker refuse to start, and how its log dirs are."""

from __future__ import annotations

from typing import Any

import click

from logagent.agent.check.check import CheckReport, run_check
from logagent.agent.session.session import Session
from logagent.agent.session.target import parse_version
from logagent.cli.options import Call, common
from logagent.cli.render import dump, table
from logagent.cli.session import Progress, session_of
from logagent.errors import ConfigError, Exit, UsageError
from logagent.host.linux.access import User, user_named
from logagent.model.check.check import any_fatal
from logagent.model.finding import Finding, Severity
from logagent.model.records import Health
from logagent.model.times import rfc3339

_COUNTED = ((Severity.FATAL, "fatal"), (Severity.WARNING, "to warn of"), (Severity.INFO, "to know"))


@click.command()
@click.option("--kafka-version", metavar="V", help="Check for this release (before an upgrade or a way back).")
@click.option("--broker-user", metavar="USER", help="Check owners and modes for this user, a name or a number.")
@click.option("--quick", is_flag=True, help="Do not look into the partition directories.")
@common
def check(call: Call, kafka_version: str | None, broker_user: str | None, quick: bool) -> None:
    """Say what would make this broker refuse to start or lose a log dir, and how its log dirs are.

    Exit status 6: something is fatal. 5: a log dir is offline. Nothing is changed; each log dir is probed with a file
    that has no name.
    """
    version = _version(kafka_version)
    user = _user(broker_user)
    with session_of(call) as session, Progress(call, "Scanning", total=None) as progress:
        timeout = session.settings.health.probe_timeout / 1000
        report = run_check(
            session,
            version,
            timeout=timeout,
            user=user,
            deep=not quick,
            before_inventory=lambda: _read_assignments(session, call),
            on_progress=progress.set_count,
        )
        at = rfc3339(session.clock.now_ms())
    if any(d.health is Health.OFFLINE for d in report.log_dirs):
        call.came_to(Exit.OFFLINE)
    if any_fatal(report.findings):
        call.came_to(Exit.CHECK_FATAL)
    if call.json:
        dump(document(report, at))
    else:
        _show(call, report)


def document(report: CheckReport, at: str) -> dict[str, Any]:
    """`logagent.check/1`."""
    version = report.kafka_version
    return {
        "schema": "logagent.check/1",
        "at": at,
        "kafka_version": ".".join(map(str, version)) if version is not None else None,
        "log_dirs": [
            {"path": d.path, "health": d.health.value, "reason": d.reason, "probe_ms": d.probe_ms}
            for d in report.log_dirs
        ],
        "findings": [finding_row(f) for f in report.findings],
    }


def finding_row(finding: Finding) -> dict[str, str]:
    """One finding of the document; `prestart` has the same rows."""
    return {
        "severity": finding.severity.value,
        "code": finding.code,
        "path": finding.path,
        "kafka_versions": finding.kafka_versions,
        "says": finding.says,
        "hint": finding.hint,
    }


def _version(text: str | None) -> tuple[int, ...] | None:
    try:
        return parse_version(text) if text is not None else None
    except ConfigError as e:
        raise UsageError(f"--kafka-version: {text!r} is no version of Apache Kafka", hint=e.hint) from e


def _read_assignments(session: Session, call: Call) -> None:
    """Without any, only a few findings are vaguer: nothing to trouble anybody with."""
    session.read_assignments()
    for problem in session.assignments.problems:
        call.detail(f"assignments: {problem}")


def _user(text: str | None) -> User | None:
    if text is None:
        return None
    try:
        return user_named(text)
    except LookupError as e:
        raise UsageError(f"--broker-user: {e.args[0]}", hint="give its number instead") from e


def _show(call: Call, report: CheckReport) -> None:
    rows = [
        [d.path, d.health.value, "" if d.probe_ms is None else f"{d.probe_ms:.1f} ms", d.reason or d.limited or ""]
        for d in report.log_dirs
    ]
    headings = [("log dir", "path"), ("health", "left"), ("probe", "right"), ("", "text")]
    table("Log dirs", headings, rows, color=call.color)
    of = _releases(report)
    if not report.findings:
        call.say(f"nothing would keep this broker from starting ({of})")
        return
    lines = [line for f in report.findings for line in _lines(f)]
    columns = [("", "left"), ("code", "left"), ("Kafka", "left"), ("finding", "text")]
    table(f"Findings for {of}", columns, lines, color=call.color)
    counts = (f"{sum(f.severity is s for f in report.findings)} {words}" for s, words in _COUNTED)
    call.say(", ".join(counts))


def _releases(report: CheckReport) -> str:
    if report.kafka_version is not None:
        return f"Kafka {'.'.join(map(str, report.kafka_version))}"
    if report.at_least is not None:
        return f"Kafka {'.'.join(map(str, report.at_least))} or later"
    return "every supported release of Kafka"


def _lines(f: Finding) -> list[list[str]]:
    return [[f.severity.value, f.code, f.kafka_versions, f.path], ["", "", "", f.says], ["", "", "", f"→ {f.hint}"]]
