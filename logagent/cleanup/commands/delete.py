"""`logagent delete`: LogManager.asyncDelete by hand, for a stopped broker."""

from __future__ import annotations

import re
from collections.abc import Iterable
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
from logagent.base.linux.child import work_in_child
from logagent.base.records import Kind, PartitionDir, TopicPartition
from logagent.cleanup.commands.names import CUT, meant, no_such
from logagent.cleanup.commands.names_on_disk import deletable
from logagent.cleanup.plan.plan import Flags, Plan
from logagent.cleanup.plan.proposals import compile_topics, matching
from logagent.cleanup.run_plan import run_plan
from logagent.cleanup.session.plan_cleanup import async_delete
from logagent.cleanup.session.session import Session
from logagent.disk.scan import topics_in
from logagent.disk.wrong_user import needs_log_dirs
from logagent.kafka.processes.target import named_target
from logagent.verdict.facts import Facts

MATCHING_SECONDS = 5.0
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
@click.option("--future", is_flag=True, help="The future logs (moves between log dirs), not the current ones.")
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
        raise UsageError(f"{min(strays)} is a stray: neither --future nor --quarantine applies to it")
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
        _say_absent(call, session, absent, "future log" if future else "log")
        return plan

    run_plan(call, make_plan, execute=consent.execute)


def _say_absent(call: Call, session: Session, absent: Iterable[TopicPartition | str], what: str) -> None:
    for partition in absent:
        near = did_you_mean(str(partition), (d.name for d in session.of_kind(Kind.CURRENT)))
        call.say(f"{partition}: no such {what} here{near}")


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
    pattern = _regex(expression)
    known = topics_in(named_target(call.settings(), call.log_dirs).log_dirs)
    try:
        found = work_in_child(lambda: frozenset(t for t in known if pattern.fullmatch(t)), MATCHING_SECONDS)
    except TimeoutError as e:
        raise UsageError(
            f"--topic {expression!r} was not matched against {len(known)} topics within {MATCHING_SECONDS:g} s",
            hint="write it without nested repetitions such as (a+)+",
        ) from e
    if not found:
        call.say(f"no topic here matches {expression!r}{did_you_mean(expression, known)}")
    return found


def _regex(text: str) -> re.Pattern[str]:
    try:
        return compile_topics(text)
    except re.error as e:
        raise UsageError(f"--topic {text!r} is not a regular expression: {e}", hint="it must match whole names") from e


def _partition(text: str) -> TopicPartition:
    parsed = dir_names.classify(text)
    if "/" in text or parsed.kind is not Kind.CURRENT or parsed.topic is None or parsed.partition is None:
        why = "that is a path" if "/" in text else parsed.error or f"that is a {parsed.kind.value} dir"
        raise UsageError(f"--partition {text!r} is not TOPIC-PARTITION: {why}", hint="for example orders-0")
    return TopicPartition(parsed.topic, parsed.partition)
