"""`logagent check`: what would keep this broker from starting or cost it data, and the state of its log dirs."""

from __future__ import annotations

from functools import partial

import click

from logagent.advice.check.command_leave import check_leave
from logagent.advice.check.document import check_document
from logagent.advice.check.run_check import CheckReport, run_check
from logagent.advice.finding import Finding, Severity, any_fatal
from logagent.base.console.options import Call, common, reads_assignments
from logagent.base.console.render import dump, table
from logagent.base.errors import Exit, UsageError
from logagent.base.kafka_version import parse_version, version_text
from logagent.base.linux.access import User, user_named
from logagent.base.records import Health
from logagent.base.times import rfc3339
from logagent.cleanup.session.of_command import Progress, read_assignments, session_of
from logagent.cleanup.session.session import Session
from logagent.disk.wrong_user import needs_log_dirs

_COUNTED = ((Severity.FATAL, "fatal"), (Severity.WARNING, "warnings"), (Severity.INFO, "notes"))


@click.command()
@click.option("--kafka-version", metavar="V", help="Check for this release (before an upgrade or a downgrade).")
@click.option("--broker-user", metavar="USER", help="Check owners and modes for this user (name or uid).")
@click.option("--quick", is_flag=True, help="Do not inspect the partition directories.")
@click.option(
    "--leave", metavar="LOG_DIR", help="Instead: may this log dir be taken out of log.dirs? What is left in it?"
)
@click.option(
    "--reassignment", metavar="FILE", help="With --leave: write the JSON for kafka-reassign-partitions.sh to FILE."
)
@reads_assignments
@common
@needs_log_dirs
def check(
    call: Call,
    kafka_version: str | None,
    broker_user: str | None,
    quick: bool,
    leave: str | None,
    reassignment: str | None,
) -> None:
    """Show what would keep this broker from starting or cost it a log dir or records, and the state of its log dirs.

    Exit status 6: something is fatal. 5: a log dir is offline. Nothing is changed; the probe of a log dir writes to an
    unnamed temporary file.

    With --leave, status 3: the log dir may not be taken away yet.
    """
    if leave is not None and (quick or kafka_version is not None or broker_user is not None):
        raise UsageError("--leave takes none of --quick, --kafka-version, --broker-user")
    if leave is not None:
        check_leave(call, leave, reassignment)
        return
    if reassignment is not None:
        raise UsageError("--reassignment applies to --leave only", hint="logagent check --leave LOG_DIR")
    version = _version(kafka_version)
    user = _user(broker_user)
    with session_of(call) as session, Progress(call, "Scanning", total=None) as progress:
        timeout = session.settings.health.probe_timeout / 1000
        read_all = partial(_read_all, session, call, progress)
        report = run_check(session, version, timeout=timeout, user=user, deep=not quick, read_all=read_all)
        at = rfc3339(session.clock.now_ms())
    if any(d.health is Health.OFFLINE for d in report.log_dirs):
        call.record_status(Exit.OFFLINE)
    if any_fatal(report.findings):
        call.record_status(Exit.CHECK_FATAL)
    if call.json:
        dump(check_document(report, at))
    else:
        _show(call, report)


def _read_all(session: Session, call: Call, progress: Progress) -> None:
    # Without them a few findings are less exact, which is not worth a message.
    read_assignments(session, call, quiet=True)
    session.take_inventory(progress.set_count)


def _version(text: str | None) -> tuple[int, ...] | None:
    version = parse_version(text) if text is not None else None
    if text is not None and version is None:
        hint = "for example 3.9.1 (Confluent's version numbers are known too)"
        raise UsageError(f"--kafka-version: {text!r} is not an Apache Kafka version", hint=hint)
    return version


def _user(text: str | None) -> User | None:
    if text is None:
        return None
    try:
        return user_named(text)
    except LookupError as e:
        raise UsageError(f"--broker-user: {e.args[0]}", hint="give the uid instead") from e


def _show(call: Call, report: CheckReport) -> None:
    rows = [
        [d.path, d.health.value, "" if d.probe_ms is None else f"{d.probe_ms:.1f} ms", d.reason or d.limited or ""]
        for d in report.log_dirs
    ]
    headings = [("log dir", "path"), ("health", "left"), ("probe", "right"), ("", "text")]
    table("Log dirs", headings, rows, color=call.color)
    of = _releases(report)
    if not report.findings:
        call.say(f"nothing keeps this broker from starting, and nothing is known to cost it data ({of})")
        return
    lines = [line for f in report.findings for line in _lines(f)]
    columns = [("", "left"), ("code", "left"), ("Kafka", "left"), ("finding", "text")]
    table(f"Findings for {of}", columns, lines, color=call.color)
    counts = (f"{sum(f.severity is s for f in report.findings)} {words}" for s, words in _COUNTED)
    call.say(", ".join(counts))


def _releases(report: CheckReport) -> str:
    if report.kafka_version is not None:
        return f"Kafka {version_text(report.kafka_version)}"
    if report.at_least is not None:
        return f"Kafka {version_text(report.at_least)} or later"
    return "every supported release of Kafka"


def _lines(f: Finding) -> list[list[str]]:
    return [[f.severity.value, f.code, str(f.releases), f.path], ["", "", "", f.says], ["", "", "", f"→ {f.hint}"]]
