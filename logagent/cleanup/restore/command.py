"""`logagent restore`: undo -stray, and -delete as long as the directory exists."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from logagent.base.console.options import Call, Consent, carries_out, common, gathered, reads_assignments
from logagent.base.dir_names import classify, validate_topic
from logagent.base.errors import UsageError
from logagent.base.records import Kind, PartitionDir
from logagent.cleanup.commands.names import exactly, meant, no_such
from logagent.cleanup.commands.names_on_disk import restorable
from logagent.cleanup.plan.plan import Plan
from logagent.cleanup.restore.plan_restore import plan_restore
from logagent.cleanup.restore.rules import RestoreOptions
from logagent.cleanup.run_plan import run_plan
from logagent.cleanup.session.recall import renamed_by
from logagent.cleanup.session.session import Session
from logagent.disk.wrong_user import needs_log_dirs
from logagent.verdict.facts import Facts


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=restorable)
@click.option("--plan", "plan_id", metavar="PLAN_ID", help="Everything this plan marked or set aside.")
@click.option(
    "--topic-name", "topic", metavar="TOPIC", help="The full topic of a truncated name, where it is not known."
)
@click.option("--replace", is_flag=True, help="Swap with the directory that has the name now.")
@click.option("--even-last-copy", is_flag=True, help="With --replace: even if that is the last live copy.")
@click.option("--leader-will-truncate", is_flag=True, help="Even if the leader has fewer records and truncates it.")
@click.option("--broker-will-delete", is_flag=True, help="Even if the broker deletes it at its next start.")
@click.option(
    "--retention-will-delete", is_flag=True, help="Even if the broker's retention deletes it after its start."
)
@carries_out
@reads_assignments
@gathered("options", RestoreOptions)
@gathered("consent", Consent)
@common
@needs_log_dirs
def restore(call: Call, names: tuple[str, ...], plan_id: str | None, options: RestoreOptions, consent: Consent) -> None:
    """Rename marked and stray directories back to their full names.

    NAME is a directory's name or path, the same as a table prints it (with its …), TOPIC-PARTITION, or a beginning that
    only one of them has.
    """
    if not names and plan_id is None:
        raise UsageError("say what to restore: directory names, or --plan PLAN_ID", hint="logagent queue shows them")
    if options.topic is not None and (len(names) != 1 or plan_id is not None):
        raise UsageError("--topic-name goes with exactly one NAME", hint="logagent restore --help")
    if options.even_last_copy and not options.replace:
        raise UsageError("--even-last-copy goes with --replace", hint="without it, nothing that has the name is moved")
    if options.topic is not None:
        try:
            validate_topic(options.topic)
        except ValueError as e:
            raise UsageError(f"--topic-name: {e}", hint="name the topic as Kafka knows it, in full") from e

    def make_plan(session: Session, facts: Facts) -> Plan:
        moved = set(renamed_by(session.journal, session.dirs, plan_id)) if plan_id is not None else set()
        candidates = [d for d in session.dirs if d.log_dir not in session.spared]
        if plan_id is not None and not moved:
            raise UsageError(f"plan {plan_id} left nothing that could be restored", hint="logagent history shows it")
        chosen = {d.key: d for d in candidates if d.key in moved}
        for name in names:
            chosen |= {d.key: d for d in _named(name, candidates)}
        return plan_restore(session, facts, chosen.values(), options, approve=consent.approve)

    run_plan(call, make_plan, execute=consent.execute)


def _named(name: str, dirs: Sequence[PartitionDir]) -> list[PartitionDir]:
    """The directories that this names. A marked directory may be a stray by now, with the same UUID, if a restore was
    cut short. Raises UsageError if it names none, or does not decide between several."""
    matches = exactly(name, dirs)
    movable = [d for d in dirs if d.kind in (Kind.STRAY, Kind.DELETE)]
    if not matches or all(d.kind is Kind.CURRENT for d in matches):
        # Of a partition that is current again, what is to be restored is the other one.
        one = meant(name, movable)
        matches = [one] if one is not None else matches
    parsed = classify(os.path.basename(name))
    if not matches and parsed.kind is Kind.DELETE and parsed.uuid is not None:
        same = (parsed.uuid, parsed.partition)
        matches = [d for d in dirs if d.kind is Kind.STRAY and (d.uuid, d.partition) == same]
    if not matches:
        raise no_such(name, movable)
    return matches
