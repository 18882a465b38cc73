"""`logagent doctor`: what was found on this host, what does not work yet, and the exact line to change."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import click

from logagent import __version__
from logagent.agent.clock import SystemClock
from logagent.agent.doctor.doctor import Question, examine
from logagent.cli.options import Call, common
from logagent.cli.render import dump, table
from logagent.config import load_what_holds
from logagent.errors import ConfigError, Exit
from logagent.host.state.state_dir import default_state_dir
from logagent.model.doctor.diagnose import any_fails, diagnose, exit_config
from logagent.model.doctor.facts import DoctorFacts, LogDirLook, Version
from logagent.model.doctor.finding import Change, DoctorFinding, State
from logagent.model.times import rfc3339
from logagent.settings import Settings

_COUNTED = ((State.FAILS, "do not work yet"), (State.WARNING, "could be better"), (State.WORKS, "work"))


@click.command()
@click.option("--user", metavar="USER", help="Look at the rights of this user, a name or a number (root only).")
@common
def doctor(call: Call, user: str | None) -> None:
    """Look at everything that logagent needs on this host and say what works, what does not, and what to change.

    \b
    It looks at
      the configuration, and every broker on this host (running, started by a
        unit, or configured in a usual place);
      who holds the log dirs, and whether their open files can be seen;
      Kafka's version, and the source of assignments and its age;
      the rights of the agent's user on each log dir and file, and mounts;
      what the service's unit would block, and what its daemon says of itself;
      the state dir and its journal, the metrics port, other instances.

    Each finding that needs something names the file, the line and what it should say.

    \b
    Exit status:
      0   everything that is needed works
      1   something does not work yet
      78  the configuration is wrong, or it is not clear which broker is meant

    The rights are those of the user that the service runs as when root asks (or --user), else of whoever asks. Nothing
    is changed on any disk, and logagent stays who it is: a child process looks as the other user.
    """
    settings, wrong = _settings(call)
    question = Question(
        settings=settings,
        loaded=call.loaded_settings,
        wrong=wrong,
        config_file=call.config_file,
        log_dirs=call.log_dirs,
        state_dir=call.state_dir if call.state_dir is not None else default_state_dir(os.environ),
        user=user,
    )
    clock = SystemClock()
    facts = examine(question, clock)
    findings = diagnose(facts)
    if exit_config(facts):
        call.came_to(Exit.CONFIG)
    elif any_fails(findings):
        call.came_to(Exit.FAILED)
    if call.json:
        dump(document(facts, findings, call.host, rfc3339(clock.now_ms())))
    else:
        _show(call, findings)


def _settings(call: Call) -> tuple[Settings, ConfigError | None]:
    """The settings, or defaults with what is wrong: doctor looks at the rest all the same."""
    try:
        return call.settings(), None
    except ConfigError as e:
        settings = _what_holds(call)
        if call.kafka_config is not None:
            settings = replace(settings, kafka=replace(settings.kafka, config=call.kafka_config))
        return settings, e


def _what_holds(call: Call) -> Settings:
    if call.loaded_settings is not None:
        return call.loaded_settings.settings
    try:
        return load_what_holds(call.config_file)[0].settings
    except ConfigError:
        return Settings()


def document(facts: DoctorFacts, findings: tuple[DoctorFinding, ...], host: str, at: str) -> dict[str, Any]:
    """`logagent.doctor/1`."""
    s = facts.service
    return {
        "schema": "logagent.doctor/1",
        "at": at,
        "host": host,
        "agent_version": __version__,
        "config": facts.config.file,
        "kafka_config": facts.config.kafka_config,
        "state_dir": facts.state.path if facts.state is not None else "",
        "user": {
            "name": facts.subject.name,
            "uid": facts.subject.uid,
            "how": facts.subject.how,
            "service": facts.subject.service,
        },
        "brokers": [
            {
                "config": b.config,
                "how": b.how,
                "pid": b.pid,
                "user": b.user,
                "unit": b.unit,
                "kafka_version": _dotted(b.version),
                "chosen": b.chosen,
            }
            for b in facts.brokers
        ],
        "kafka_version": _dotted(facts.kafka_version.version),
        "kafka_version_from": facts.kafka_version.says(),
        "at_least": facts.kafka_version.exact is None,
        "cluster_id": facts.cluster_id,
        "node_id": facts.node_id,
        "log_dirs": [_log_dir(d) for d in facts.log_dirs],
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
        "findings": [_finding(f) for f in findings],
    }


def _log_dir(d: LogDirLook) -> dict[str, Any]:
    return {
        "path": d.path,
        "health": d.health.value,
        "reason": d.reason,
        "holder": {
            "state": d.holder.value,
            "pid": d.pid,
            "start_time": rfc3339(d.started_ms) if d.started_ms is not None else None,
        },
        "owner": d.owner,
        "lacks": d.access.lacks if d.access is not None else None,
        "mount_point": d.mount.point if d.mount is not None else None,
        "file_system": d.mount.kind if d.mount is not None else None,
    }


def _finding(f: DoctorFinding) -> dict[str, Any]:
    c = f.change
    change = None
    if c is not None:
        change = {"file": c.file, "number": c.number, "section": c.section, "line": c.line, "then": c.then}
    return {
        "area": f.area.value,
        "state": f.state.value,
        "code": f.code,
        "path": f.path,
        "says": f.says,
        "hint": f.hint,
        "change": change,
    }


def _dotted(version: Version | None) -> str | None:
    return ".".join(map(str, version)) if version is not None else None


def _show(call: Call, findings: tuple[DoctorFinding, ...]) -> None:
    rows: list[list[str]] = []
    for f in findings:
        what = f"{f.path}: {f.says}" if f.path and f.path not in f.says else f.says
        rows.append([f.state.value if f.state is not State.INFO else "", f.area.value, what])
        if f.hint:
            rows.append(["", "", f"→ {f.hint}"])
        if f.change is not None:
            rows += [["", "", line] for line in _change(f.change)]
    table("What logagent needs on this host", [("", "left"), ("", "left"), ("", "text")], rows, color=call.color)
    counts = [(sum(f.state is state for f in findings), words) for state, words in _COUNTED]
    call.say(", ".join(f"{count} {words}" for count, words in counts if count))


def _change(c: Change) -> list[str]:
    lines = [f"    {line}" for line in c.line.splitlines()]
    return [f"  {c.where}:", *lines, *([f"    then: {c.then}"] if c.then is not None else [])]
