"""What is due on this host, as one plan: everything, or only the delete queue. The CLI and the daemon carry it out.

Kafka's `LogManager.asyncDelete`, as a plan: what `logagent delete` renames. `LogManager.execute` carries it out.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from logagent.agent.session.session import Session, new_uuid
from logagent.model.assignments.sightings import Sighting
from logagent.model.facts import Facts
from logagent.model.health.clock_doubt import ClockDoubt
from logagent.model.planning.plan import Flags, Plan, Proposal, Waiting
from logagent.model.planning.proposals import (
    Ages,
    find_partitions,
    held_back,
    kept_while_offline,
    orphans,
    removals,
    rename_away,
    strays,
    uncounted,
)
from logagent.model.records import DirKey, Kind, TopicPartition

NO_FLAGS = Flags()


def async_delete(
    session: Session,
    facts: Facts,
    partitions: Collection[TopicPartition],
    *,
    is_future: bool = False,
    is_stray: bool = False,
    flags: Flags = NO_FLAGS,
    approve: str | None = None,
) -> tuple[Plan, list[TopicPartition]]:
    """The plan that renames the (future) logs of `partitions` to `-delete` or, with `is_stray`, to `-stray`; and those
    of `partitions` that do not exist (Kafka's `None`).

    Raises KafkaStorageError if one is not found but may be in an offline log dir.
    """
    found, absent = find_partitions(partitions, session.dirs, facts, is_future=is_future)
    proposals = [
        rename_away(
            d,
            is_stray=is_stray,
            reason="asked for",
            new_uuid=new_uuid,
            quarantine_dir=facts.quarantine_dirs.get(d.log_dir),
            flags=flags,
        )
        for d in sorted(found, key=lambda d: d.key)
    ]
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
    now. While the clock is in doubt nothing is due; `trust_clock` is the operator's confirmation that it is right.
    Strays of internal topics are removed only with `include_internal`.
    """
    if trust_clock:
        session.clock_watch.trust()
        # The given facts were gathered in doubt: "within 24 hours" has changed its meaning, and the limits depend on
        # it.
        facts = session.facts()
    doubt, sightings = session.clock_watch.doubt(), session.count_sightings(facts)
    proposals, waiting = _due(session, facts, sightings, doubt, Flags(include_internal=include_internal))
    return session.plan(proposals, waiting, facts=facts, approve=approve)


def look_ahead(session: Session, facts: Facts) -> Plan:
    """What `plan_cleanup` would plan now, for information only: no sighting counts."""
    proposals, waiting = _due(session, facts, session.sightings(), session.clock_watch.doubt(), Flags())
    return session.plan(proposals, waiting, facts=facts)


def _due(
    session: Session,
    facts: Facts,
    sightings: Mapping[DirKey, Sighting],
    doubt: ClockDoubt | None,
    flags: Flags,
) -> tuple[list[Proposal], list[Waiting]]:
    cleanup, marks, started = session.settings.cleanup, session.marks(), session.removal_intents()
    kept, queue = kept_while_offline(session.queue(), facts)
    marked, marked_waiting = removals(queue, facts.now_ms)
    stray, stray_waiting = strays(
        session.of_kind(Kind.STRAY),
        marks,
        started,
        cleanup.stray_retention,
        facts.now_ms,
        session.attempts(),
        corrected=session.clock_watch.corrected,
        flags=flags,
    )
    ages = Ages(cleanup.sightings, cleanup.min_age)
    orphan, orphan_waiting = orphans(session.dirs, facts, sightings, ages, new_uuid)
    proposals, waiting = [*marked, *stray, *orphan], [*kept, *marked_waiting, *stray_waiting, *orphan_waiting]
    if doubt is not None:
        return [], [*until_trusted(proposals, doubt), *waiting]
    return proposals, waiting


def until_trusted(proposals: Sequence[Proposal], doubt: ClockDoubt) -> list[Waiting]:
    return held_back(proposals, f"{doubt.why} (logagent cleanup --trust-clock if it is right now)")


def plan_queue(session: Session, facts: Facts, *, host_counted: bool) -> Plan:
    """The due part of the delete queue only: `LogManager.deleteLogs`. Counts no sightings.

    host_counted: `facts` cover the whole host. If they do not (no full inventory was taken yet), only what the blast
    radius has already counted is removed now; the rest waits for the inventory.
    """
    kept, queue = kept_while_offline(session.queue(), facts)
    proposals, waiting = removals(queue, facts.now_ms)
    doubt = session.clock_watch.doubt()
    if doubt is not None:
        proposals, waiting = [], [*until_trusted(proposals, doubt), *waiting]
    if not host_counted:
        new = uncounted(proposals, facts)
        waiting += held_back(new, "the first whole inventory")
        proposals = [p for p in proposals if p not in new]
        facts = replace(facts, partition_dirs=sys.maxsize, partition_bytes=sys.maxsize)
    return session.plan(proposals, [*kept, *waiting], facts=facts)
