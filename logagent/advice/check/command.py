"""`logagent check`: what would keep this broker from starting or cost it data, and the state of its log dirs; with
`--leave LOG_DIR`, whether that log dir may be taken out of `log.dirs`, and what moves what is in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from logagent.advice.check.run_check import CheckReport, finding_row, run_check
from logagent.advice.finding import Finding, Severity, any_fatal
from logagent.base.console.options import Call, common, reads_assignments
from logagent.base.console.render import dump, human_bytes, table, whoever_reads
from logagent.base.errors import Exit, LogAgentError, UsageError
from logagent.base.files.safe_open import whole_file
from logagent.base.kafka_version import parse_version, version_text, version_text_or_none
from logagent.base.linux.access import user_named
from logagent.base.records import Health, HolderState
from logagent.base.units import counted, rfc3339, rfc3339_or_none
from logagent.cleanup.plan_documents import move_in_words, move_row
from logagent.cleanup.session.of_command import Progress, needs_log_dirs, read_assignments, session_of, take_inventory
from logagent.cleanup.session.session import Session
from logagent.kafka.retention.settings import CORDONED_LOG_DIRS
from logagent.verdict.copies import Move, moves_of
from logagent.verdict.facts import Facts
from logagent.verdict.leaving import Leave, Leaving, RemainingDir, TargetLogDir, may_leave

if TYPE_CHECKING:
    from logagent.advice.documents import CheckDoc, LeaveDirDoc, LeaveDoc

_COUNTED = ((Severity.FATAL, "fatal finding"), (Severity.WARNING, "warning"), (Severity.INFO, "note"))


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
    unnamed temporary file. On a file system that may not do for a broker (NFS, CIFS, FUSE, 9p …), and while nobody
    holds the log dir, a file .logagent-trial-… is made, renamed and removed.

    With --leave, status 3: the log dir may not be taken away yet.
    """
    if leave is not None and (quick or kafka_version is not None or broker_user is not None):
        raise UsageError(
            "--leave takes none of --quick, --kafka-version, --broker-user", hint="run check once for each"
        )
    if leave is not None:
        check_leave(call, leave, reassignment)
        return
    if reassignment is not None:
        raise UsageError("--reassignment applies to --leave only", hint="logagent check --leave LOG_DIR")
    version = parse_version(kafka_version) if kafka_version is not None else None
    if kafka_version is not None and version is None:
        hint = "for example 3.9.1 (Confluent's version numbers are known too)"
        raise UsageError(f"--kafka-version: {kafka_version!r} is not an Apache Kafka version", hint=hint)
    try:
        user = user_named(broker_user) if broker_user is not None else None
    except LookupError as e:
        raise UsageError(f"--broker-user: {e.args[0]}", hint="give the uid instead") from e
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
    counts = (counted(sum(f.severity is s for f in report.findings), what) for s, what in _COUNTED)
    call.say(", ".join(counts))


def _releases(report: CheckReport) -> str:
    if report.kafka_version is not None:
        return f"Kafka {version_text(report.kafka_version)}"
    if report.at_least is not None:
        return f"Kafka {version_text(report.at_least)} or later"
    return "every supported release of Kafka"


def _lines(f: Finding) -> list[list[str]]:
    why = f.why
    return [
        [f.severity.value, why.code, str(f.releases), f.path],
        ["", "", "", why.fact],
        ["", "", "", f"→ {why.hint}"],
    ]


_SHOWN = 25


def check_leave(call: Call, log_dir: str, file: str | None) -> None:
    """Print the answer; `file`: where the JSON for `kafka-reassign-partitions.sh` goes."""
    if call.log_dirs:
        raise UsageError("--leave asks about all log dirs of the broker", hint="leave out --log-dir")
    with session_of(call) as session:
        read_assignments(session, call)
        take_inventory(session, call)
        facts = session.facts(to_plan=False)
        answer = ask_leave(session, facts, log_dir)
        moves = [move for move in moves_of(session.dirs) if move.concerns(answer.log_dir)]
        holders = {path: log_dir.holder.state for path, log_dir in facts.log_dirs.items()}
        as_of_ms = max((image.at_ms for image in session.assignments.usable), default=None)
        document = _leave_document(call, answer, moves, session.clock.now_ms(), as_of_ms)
        config = session.target.config
    if not answer.may_leave:
        call.record_status(Exit.REFUSED)
    with whoever_reads(call.say, lambda: call.record_status(Exit.FAILED)):
        if call.json:
            dump(document)
        else:
            _show_leave(call, answer)
            for move in moves[:_SHOWN]:
                call.say(move_in_words(move, holders[move.future.log_dir]))
            if len(moves) > _SHOWN:
                call.say(f"{counted(len(moves) - _SHOWN, 'more move')} between log dirs; --json has all")
    if answer.cordon is not None and not call.json:
        call.say(f"first, so that it gets no new partition: {answer.cordon}")
    if file is not None:
        _write(call, file, answer)
    if not call.json:
        _close(call, answer, file, config)


def _close(call: Call, answer: Leave, file: str | None, config: str | None) -> None:
    for obstacle in answer.obstacles:
        call.tell(obstacle if file is None or obstacle.code != "assigned" else replace(obstacle, hint=""))
    if answer.may_leave:
        stop = "" if answer.stopped else "stop the broker, and "
        call.say(f"it is empty: {stop}in {config} change the line to")
        call.say(f"  {answer.line}")
        if answer.uncordon is not None:
            when = "after the start" if answer.stopped else "right before the stop"
            call.say(
                f"take the cordon back {when}: while it names a log dir that log.dirs lacks, the broker applies none of"
                " its dynamic settings"
            )
            call.say(f"  {answer.uncordon}")
    elif file is None and (moves := answer.reassignment) is not None:
        call.say(f"it may not leave yet: {len(moves['partitions'])} can be moved, --reassignment FILE writes the JSON")
    else:
        call.say("it may not leave yet: see above")


def _write(call: Call, file: str, answer: Leave) -> None:
    moves = answer.reassignment
    if moves is None:
        call.say(f"{file} is not written: there is nothing that can be moved")
        return
    try:
        with whole_file(file) as out:
            out.write(json.dumps(moves, indent=1).encode() + b"\n")
    except OSError as e:
        raise LogAgentError(f"cannot write {file}: {e.strerror}", hint="name a file in a folder that exists") from e
    call.say(
        f"{file}: {counted(len(moves['partitions']), 'partition')}, with all present replicas. While the broker runs:"
    )
    call.say(f"  kafka-reassign-partitions.sh --bootstrap-server HOST:PORT --reassignment-json-file {file} --execute")


def _show_leave(call: Call, answer: Leave) -> None:
    rows = [
        [
            f"{e.dir.log_dir}/{e.dir.name}",
            e.dir.kind.value,
            human_bytes(e.dir.allocated),
            (e.ruling.verdict.value if e.ruling is not None else "") + (", only copy" if e.only_copy else ""),
            e.to or e.stays or "",
        ]
        for e in answer.left[:_SHOWN]
    ]
    headings = [
        ("directory", "dir"),
        ("kind", "left"),
        ("allocated", "right"),
        ("verdict", "left"),
        ("goes to", "text"),
    ]
    if rows:
        table("Still in it", headings, rows, color=call.color)
    if (rest := len(answer.left) - len(rows)) > 0:
        call.say(f"showing the largest {len(rows)} of {len(answer.left)}; --json has all, {rest} more")


def _leave_document(call: Call, answer: Leave, moves: Iterable[Move], now_ms: int, as_of_ms: int | None) -> LeaveDoc:
    return {
        "schema": "logagent.leave/1",
        "at": rfc3339(now_ms),
        "host": call.host,
        "log_dir": answer.log_dir,
        "may_leave": answer.may_leave,
        "assignments_as_of": rfc3339_or_none(as_of_ms),
        "obstacles": [{"code": o.code, "says": o.fact, "hint": o.hint} for o in answer.obstacles],
        "dirs": [_left_row(each) for each in answer.left],
        "moves": [move_row(move) for move in moves],
        "reassignment": answer.reassignment,
        "cordon": answer.cordon,
        "uncordon": answer.uncordon,
        "line": answer.line,
    }


def _left_row(each: RemainingDir) -> LeaveDirDoc:
    d = each.dir
    return {
        "name": d.name,
        "kind": d.kind,
        "topic": d.topic,
        "partition": d.partition,
        "topic_id": d.topic_id,
        "allocated": d.allocated,
        "verdict": each.ruling.verdict if each.ruling is not None else None,
        "only_copy": each.only_copy,
        "to": each.to,
        "stays": each.stays,
    }


def ask_leave(session: Session, facts: Facts, log_dir: str) -> Leave:
    """Whether `log_dir` may be taken out of `log.dirs`. The session has read assignments and taken its inventory.
    Raises UsageError for what is no log dir of this host."""
    path = _named(session, facts, log_dir)
    images = session.assignments.usable
    server, version = session.target.server, facts.known_version
    return may_leave(
        Leaving(
            log_dir=path,
            unseen=_unseen(session, facts, path),
            dirs=session.dirs,
            rulings={d.key: r for d in session.dirs if (r := facts.verdict_on(d)) is not None},
            image=max(images, key=lambda image: image.at_ms, default=None),
            no_image="; ".join(session.assignments.problems) or "no source of assignments is usable",
            node_id=session.log_dirs.cluster.node_id,
            configured=server.log_dirs if session.target.config is not None else (),
            metadata_log_dir=server.metadata_log_dir if server.process_roles else None,
            rooms=tuple(_rooms(session, facts, path)),
            stopped=_stopped(facts),
            cordoned=session.assignments.layers.cordoned,
            cordon_is_dynamic=CORDONED_LOG_DIRS in session.assignments.layers.broker,
            version=version.version,
        )
    )


def _named(session: Session, facts: Facts, log_dir: str) -> str:
    """`log_dir` as this session calls it, also if it was named by another path."""
    known = [path for path, f in facts.log_dirs.items() if not f.quarantine]
    wanted = os.path.abspath(log_dir)
    if wanted in known:
        return wanted
    real = {os.path.realpath(path): path for path in known if facts.log_dirs[path].health is not Health.OFFLINE}
    if (found := real.get(os.path.realpath(wanted))) is not None:
        return found
    raise UsageError(f"--leave: {log_dir} is no log dir of this broker", hint=f"its log dirs are {', '.join(known)}")


def _unseen(session: Session, facts: Facts, path: str) -> str | None:
    where = facts.log_dirs[path]
    if where.health is Health.OFFLINE:
        return f"it is offline: {where.health_reason}"
    inventory = session.inventory.by_log_dir.get(path)
    if inventory is None:
        return "it was not read"
    errors = inventory.errors
    return next((f"{name}: {why}" for name, why in errors.items()), None)


def _rooms(session: Session, facts: Facts, leaving: str) -> Iterator[TargetLogDir]:
    """The other log dirs that take partitions now."""
    cordoned = session.assignments.layers.cordoned
    for path, where in facts.log_dirs.items():
        inventory = session.inventory.by_log_dir.get(path)
        if path == leaving or where.quarantine or where.health is not Health.ONLINE or inventory is None:
            continue
        if path not in cordoned and "*" not in cordoned:
            yield TargetLogDir(path, inventory.identity.device, inventory.size, inventory.free)


def _stopped(facts: Facts) -> bool | None:
    """By the locks of all log dirs: a broker that lost one still runs with the others."""
    states = {f.holder.state for f in facts.log_dirs.values() if not f.quarantine}
    if any(state.is_broker for state in states):
        return False
    return True if states == {HolderState.FREE} else None
