"""`logagent doctor`: what was found on this host, what does not work yet, and the exact line to change."""

from __future__ import annotations

import click

from logagent.advice.finding import Change, Finding, Severity, any_fatal
from logagent.base.clock import SystemClock
from logagent.base.config.settings import Settings
from logagent.base.console.options import Call, common, reads_assignments
from logagent.base.console.render import dump, table
from logagent.base.errors import ConfigError, Exit
from logagent.base.times import rfc3339
from logagent.service.doctor.document import doctor_document, doctor_word
from logagent.service.doctor.examine import Question, examine
from logagent.service.doctor.rules.diagnose import diagnose, exit_config

_COUNTED = ((Severity.FATAL, "not working"), (Severity.WARNING, "to improve"), (Severity.WORKS, "working"))


@click.command()
@click.option("--user", metavar="USER", help="Check the rights of this user (name or uid; root only).")
@reads_assignments
@common
def doctor(call: Call, user: str | None) -> None:
    """Check everything logagent needs on this host: what works, what does not, and what to change.

    \b
    It checks
      the configuration, and every broker on this host (running, started by a
        unit, or configured in a usual place);
      who holds the log dirs, and whether their open files can be seen;
      the Kafka version, the source of the assignments and their age;
      the agent user's rights on each log dir and file, and the mounts;
      what the service's unit would block, and the running daemon;
      the state dir and its journal, the metrics port, other instances.

    Each problem comes with the file, the line and what it should say.

    \b
    Exit status:
      0   everything needed works
      1   something does not work yet
      78  configuration error, or it is not clear which broker to serve

    Run by root, it checks the rights of the user the service runs as (or --user); otherwise your own. Nothing is
    changed on disk.
    """
    clock = SystemClock()
    facts = examine(_question(call, user), clock)
    findings = diagnose(facts)
    if exit_config(facts):
        call.record_status(Exit.CONFIG)
    elif any_fatal(findings):
        call.record_status(Exit.FAILED)
    if call.json:
        dump(doctor_document(facts, findings, call.host, rfc3339(clock.now_ms())))
    else:
        _show(call, findings)


def _question(call: Call, user: str | None) -> Question:
    settings, wrong = _settings(call)
    return Question(
        settings=settings,
        loaded=call.loaded_settings,
        wrong=wrong,
        config_file=call.config_file,
        log_dirs=call.log_dirs,
        state_dir=call.state_dir,
        user=user,
    )


def _settings(call: Call) -> tuple[Settings, ConfigError | None]:
    """The settings, or their valid part and the errors: doctor checks the rest all the same."""
    try:
        return call.settings(), None
    except ConfigError as wrong:
        try:
            return call.valid_part(), wrong
        except ConfigError:  # the file is not readable: only what the command line says is known
            return call.overridden(Settings()), wrong


def _show(call: Call, findings: tuple[Finding, ...]) -> None:
    rows: list[list[str]] = []
    for f in findings:
        what = f"{f.path}: {f.says}" if f.path and f.path not in f.says else f.says
        rows.append([doctor_word(f.severity) if f.severity is not Severity.INFO else "", f.area or "", what])
        if f.hint:
            rows.append(["", "", f"→ {f.hint}"])
        if f.change is not None:
            rows += [["", "", line] for line in _change(f.change)]
    table("What logagent needs on this host", [("", "left"), ("", "left"), ("", "text")], rows, color=call.color)
    counts = [(sum(f.severity is severity for f in findings), words) for severity, words in _COUNTED]
    call.say(", ".join(f"{count} {words}" for count, words in counts if count))


def _change(c: Change) -> list[str]:
    lines = [f"    {line}" for line in c.line.splitlines()]
    return [f"  {c.where}:", *lines, *([f"    then: {c.then}"] if c.then is not None else [])]
