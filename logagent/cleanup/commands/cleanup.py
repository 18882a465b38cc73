"""What is due on this host, as one plan: everything, or only the delete queue. `logagent cleanup` and the daemon carry
it out. And Kafka's `LogManager.asyncDelete`, as a plan: what `logagent delete` renames.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import replace

import click

from logagent.base.console.options import Call, carries_out, common, includes_internal, reads_assignments
from logagent.base.records import DirKey, Kind, TopicPartition
from logagent.cleanup.plan.plan import NO_FLAGS, Flags, Plan
from logagent.cleanup.plan.planner import until_counted
from logagent.cleanup.plan.proposals import find_partitions, rename_away
from logagent.cleanup.plan.queue import full_topic
from logagent.cleanup.run_plan import run_plan
from logagent.cleanup.session.of_command import needs_log_dirs
from logagent.cleanup.session.recall import by_todays_clock, since_brought_back
from logagent.cleanup.session.session import Session, new_uuid
from logagent.verdict.facts import Facts
from logagent.verdict.marks import Sighting, orphans_seen
from logagent.verdict.marks import count_sightings as sightings_with


def async_delete(
    session: Session,
    facts: Facts,
    partitions: Collection[TopicPartition],
    *,
    strays: Collection[str] = (),
    is_future: bool = False,
    is_stray: bool = False,
    flags: Flags = NO_FLAGS,
    approve: str | None = None,
) -> tuple[Plan, list[TopicPartition | str]]:
    """The plan that renames the (future) logs of `partitions` to `-delete` or, with `is_stray`, to `-stray`, and those
    of `strays`, which are full names, to `-delete`; and those of both that do not exist (Kafka's `None`).

    Raises KafkaStorageError if one is not found but may be in an offline log dir.
    """
    found, missing = find_partitions(partitions, session.dirs, facts, is_future=is_future)
    proposals = [
        rename_away(
            d,
            is_stray=is_stray,
            reason="requested",
            new_uuid=new_uuid,
            quarantine_dir=facts.quarantine_dirs.get(d.log_dir),
            flags=flags,
        )
        for d in sorted(found, key=lambda d: d.key)
    ]
    marks = session.recalled.marks
    named = [d for d in session.of_kind(Kind.STRAY) if d.name in strays]
    for d in sorted(named, key=lambda d: d.key):
        mark = rename_away(d, is_stray=False, reason="requested", new_uuid=new_uuid, flags=flags)
        proposals.append(replace(mark, full_topic=full_topic(d, marks.get(d.key))))
    absent: list[TopicPartition | str] = [*missing, *sorted({*strays} - {d.name for d in named})]
    return session.plan(proposals, facts=facts, approve=approve), absent


def plan_cleanup(
    session: Session,
    facts: Facts,
    *,
    approve: str | None = None,
    trust_clock: bool = False,
    include_internal: bool = False,
) -> Plan:
    """Removals first (they free space), oldest first, then strays past their retention, then proven orphans.

    This inventory counts as a sighting of every orphan in it, even in a dry run, so that it shows what would be done
    now. `trust_clock` is the operator's confirmation that the clock is right. Strays of internal topics are removed
    only with `include_internal`.
    """
    if trust_clock:
        session.clock_watch.trust()
        # The given facts were gathered in doubt: "within 24 hours" has changed its meaning, and the limits depend on
        # it.
        facts = session.facts()
    flags = Flags(include_internal=include_internal)
    due = session.planner(facts).due(flags, sightings=count_sightings(session, facts))
    return session.plan(due.proposals, due.waiting, facts=facts, approve=approve)


def count_sightings(session: Session, facts: Facts) -> Mapping[DirKey, Sighting]:
    """Every orphan with the number of its sightings, this inventory included, and the first one's time by the current
    clock.

    While the clock is in doubt nothing counts. Only a session that acts remembers the sightings.
    """
    recalled, journal = session.recalled, session.journal
    complete = frozenset(session.log_dirs.online()) & session.inventory.by_log_dir.keys()
    if recalled.doubt is not None or not session.assignments.usable:
        complete = frozenset()
    known = journal.sightings()
    since = since_brought_back(known, session.dirs)
    counted = sightings_with(since, orphans_seen(session.dirs, facts), complete, facts.now_ms)
    todays = by_todays_clock(counted, recalled.jumps)
    if session.acting:
        session.clock_watch.note()
        if counted != known:
            journal.replace_sightings(counted.values())
        session.recalled = replace(recalled, sightings=todays)
    return todays


def plan_ahead(session: Session, facts: Facts) -> Plan:
    """What `plan_cleanup` would plan now, for information only: no sighting counts."""
    due = session.planner(facts).due()
    return session.plan(due.proposals, due.waiting, facts=facts)


def plan_queue(session: Session, facts: Facts, *, host_counted: bool) -> Plan:
    """The due part of the delete queue only: `LogManager.deleteLogs`. Counts no sightings.

    host_counted: `facts` cover the whole host. If they do not (no full inventory was taken yet), only what the blast
    radius has already counted is removed now; the rest waits for the inventory.
    """
    marked = session.planner(facts).due().marked
    if not host_counted:
        marked = until_counted(marked, facts)
        facts = replace(facts, partition_dirs=sys.maxsize, partition_bytes=sys.maxsize)
    return session.plan(marked.due, marked.waiting, facts=facts)


@click.command()
@carries_out
@includes_internal
@click.option("--trust-clock", is_flag=True, help="Confirm that the wall clock is right now, although it was changed.")
@reads_assignments
@common
@needs_log_dirs
def cleanup(call: Call, execute: bool, approve: str | None, include_internal: bool, trust_clock: bool) -> None:
    """Show or (with --execute) do what is due: marked directories past their delay, strays past theirs, orphans."""

    def make_plan(session: Session, facts: Facts) -> Plan:
        return plan_cleanup(session, facts, approve=approve, trust_clock=trust_clock, include_internal=include_internal)

    run_plan(call, make_plan, execute=execute)
