"""`logagent delete`: LogManager.asyncDelete by hand, for a stopped broker."""

from __future__ import annotations

import re
from dataclasses import replace

import click

from logagent.base import dir_names
from logagent.base.console.options import (
    Call,
    Consent,
    carries_out,
    common,
    gathered,
    includes_internal,
    reads_assignments,
)
from logagent.base.console.render import did_you_mean
from logagent.base.errors import UsageError
from logagent.base.linux.access import work_in_child
from logagent.base.records import Kind, PartitionDir, TopicPartition, Verdict
from logagent.cleanup.commands.cleanup import async_delete
from logagent.cleanup.commands.names import CUT, deletable, meant, no_such
from logagent.cleanup.plan.plan import Flags, Plan
from logagent.cleanup.plan.proposals import compile_topics, matching
from logagent.cleanup.plan.queue import full_topic
from logagent.cleanup.run_plan import run_plan
from logagent.cleanup.session.of_command import needs_log_dirs
from logagent.cleanup.session.session import Session
from logagent.disk.scan import topics_in
from logagent.kafka.processes.target import named_target
from logagent.verdict.facts import Facts

MATCHING_SECONDS = 5.0
MOST_SHOWN = 10
# It says the partition, and of which of its strays.
_BEGINNING = re.compile(r".+-[0-9]+\.[0-9a-f]{1,32}", re.ASCII | re.DOTALL)


@click.command()
@click.option("--topic", metavar="REGEX", help="Topics whose full name matches.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="T-P",
    shell_complete=deletable,
    help="One partition, or one stray by the name of its directory, as printed too (repeatable).",
)
@includes_internal
@click.option(
    "--future", is_flag=True, help="Delete -future directories (moves between log dirs) instead of current ones."
)
@click.option("--quarantine", is_flag=True, help="Rename to -stray, which the broker keeps, not to -delete.")
@click.option("--allow-assigned", is_flag=True, help="Even if it is not proven to be an orphan.")
@click.option("--even-last-copy", is_flag=True, help="Even if no other live copy is known.")
@carries_out
@reads_assignments
@gathered("flags", Flags)
@gathered("consent", Consent)
@common
@needs_log_dirs
def delete(
    call: Call,
    topic: str | None,
    partitions: tuple[str, ...],
    future: bool,
    quarantine: bool,
    flags: Flags,
    consent: Consent,
) -> None:
    """Mark partitions for deletion (rename to -delete). `cleanup` removes them after file.delete.delay.ms.

    A stray of which nothing shows that it may go (it has no topic id, say) is marked by its full name, with
    --even-last-copy and an approval of exactly that plan.
    """
    if (topic is None) == (not partitions):
        raise UsageError("say what to delete: either --topic REGEX or --partition T-P", hint="logagent delete --help")
    topics = _topics(call, topic) if topic is not None else None
    strays = frozenset(text for text in partitions if _is_of_stray(text))
    if strays and (future or quarantine):
        hint = "leave them out: a stray is set aside already, and is removed"
        raise UsageError(f"{min(strays)} is a stray: neither --future nor --quarantine applies to it", hint=hint)
    wanted = frozenset(_partition(text) for text in partitions if text not in strays)
    flags = replace(flags, by_topic=topic is not None)

    def make_plan(session: Session, facts: Facts) -> Plan:
        partitions = wanted if topics is None else matching(session.dirs, topics, is_future=future)
        plan, absent = async_delete(
            session,
            facts,
            partitions,
            strays={_stray(text, session.of_kind(Kind.STRAY)) for text in strays},
            is_future=future,
            is_stray=quarantine,
            flags=flags,
            approve=consent.approve,
        )
        kind = Kind.FUTURE if future else Kind.CURRENT
        for name in absent:
            what = "future log" if future else "log"
            call.say(f"{name}: no such {what} here{instead_of(str(name), kind, session, facts)}")
        if topics is not None and not topics:
            call.say(f"no topic here matches {topic!r}{instead_of(str(topic), kind, session, facts)}")
        return plan

    run_plan(call, make_plan, execute=consent.execute)


def instead_of(name: str, kind: Kind, session: Session, facts: Facts) -> str:
    """What to say of a partition, stray or topic that is not here: where it is by now, if it was set aside or marked,
    else the nearest names. Never that of a living one: what follows is a deletion, so only orphans are named."""
    parsed, marks = dir_names.classify(name), session.recalled.marks
    now: list[str] = []
    for d in session.of_kind(Kind.STRAY, Kind.DELETE):
        topic = full_topic(d, marks.get(d.key)) or d.topic
        if (topic, d.partition) == (parsed.topic, parsed.partition) or topic == name:
            done = "set aside" if d.kind is Kind.STRAY else "marked for deletion"
            now.append(f"already {done} as {d.name} at {d.log_dir}")
    if now:
        more = f", and {len(now) - MOST_SHOWN} more" if len(now) > MOST_SHOWN else ""
        return f"; {'; '.join(sorted(now)[:MOST_SHOWN])}{more}"
    named = [
        (facts.ruling(d).verdict, d.topic or "" if parsed.partition is None else d.name) for d in session.of_kind(kind)
    ]
    return did_you_mean(name, {n for _, n in named} - {n for verdict, n in named if verdict is not Verdict.ORPHAN})


def _is_of_stray(text: str) -> bool:
    """Whether this is the name of a stray, whole, as a table prints it, or its beginning."""
    named = dir_names.classify(text).kind is Kind.STRAY or CUT in text or _BEGINNING.fullmatch(text) is not None
    return named and "/" not in text


def _stray(text: str, strays: list[PartitionDir]) -> str:
    """The full name of the stray. Raises UsageError if it is not that and means none of them, or several."""
    if CUT not in text and dir_names.classify(text).kind is Kind.STRAY:
        return text
    found = meant(text, strays)
    if found is None:
        raise no_such(text, strays)
    return found.name


def _topics(call: Call, expression: str) -> frozenset[str]:
    """The topics here that the expression matches. Evaluated in a child before the executor lock is taken, because an
    expression that backtracks may take forever."""
    try:
        pattern = compile_topics(expression)
    except re.error as e:
        hint = "it must match whole names"
        raise UsageError(f"--topic {expression!r} is not a regular expression: {e}", hint=hint) from e
    known = topics_in(named_target(call.settings(), call.log_dirs).log_dirs)
    try:
        return work_in_child(lambda: frozenset(t for t in known if pattern.fullmatch(t)), MATCHING_SECONDS)
    except TimeoutError as e:
        raise UsageError(
            f"--topic {expression!r} was not matched against {len(known)} topics within {MATCHING_SECONDS:g} s",
            hint="write it without nested repetitions such as (a+)+",
        ) from e


def _partition(text: str) -> TopicPartition:
    parsed = dir_names.classify(text)
    if "/" in text or parsed.kind is not Kind.CURRENT or parsed.topic is None or parsed.partition is None:
        why = "that is a path" if "/" in text else parsed.error or f"that is a {parsed.kind.value} dir"
        raise UsageError(f"--partition {text!r} is not TOPIC-PARTITION: {why}", hint="for example orders-0")
    return TopicPartition(parsed.topic, parsed.partition)
