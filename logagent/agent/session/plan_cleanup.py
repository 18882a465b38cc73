"""What is due on this host, as one plan: all of it, or the delete queue alone. The CLI and the daemon carry it out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from logagent.agent.session.session import Session, new_uuid
from logagent.model.facts import Facts
from logagent.model.health.clock import ClockDoubt
from logagent.model.planning.plan import Flags, Plan, Proposal, Waiting
from logagent.model.planning.proposals import Ages, held_back, kept_while_offline, orphans, removals, strays, uncounted
from logagent.model.records import Kind


def plan_cleanup(
    session: Session,
    facts: Facts,
    *,
    approve: str | None = None,
    trust_clock: bool = False,
    include_internal: bool = False,
) -> Plan:
    """Removals first (they free space), oldest first, then strays past their retention, then proven orphans.

    This inventory counts as a sighting of every orphan in it, in a dry run too: it shows what would be done now. While
    the clock is in doubt nothing is due; `trust_clock` is the operator's word that it is right. Strays of internal
    topics go with `include_internal` only.
    """
    cleanup = session.settings.cleanup
    if trust_clock:
        session.clock_watch.trust()
        # Those given were gathered in doubt: "within 24 hours" means something else now, and the limits count by it.
        facts = session.facts()
    doubt, sightings = session.clock_watch.doubt(), session.count_sightings(facts)
    marks, begun = session.marks(), session.begun()
    kept, queue = kept_while_offline(session.queue(), facts)
    marked, marked_waiting = removals(queue, facts.now_ms)
    stray, stray_waiting = strays(
        session.of_kind(Kind.STRAY),
        marks,
        begun,
        cleanup.stray_retention,
        facts.now_ms,
        session.attempts(),
        corrected=session.clock_watch.corrected,
        flags=Flags(include_internal=include_internal),
    )
    ages = Ages(cleanup.sightings, cleanup.min_age)
    orphan, orphan_waiting = orphans(session.dirs, facts, sightings, ages, new_uuid)
    proposals, waiting = [*marked, *stray, *orphan], [*kept, *marked_waiting, *stray_waiting, *orphan_waiting]
    if doubt is not None:
        proposals, waiting = [], [*until_trusted(proposals, doubt), *waiting]
    return session.plan(proposals, waiting, facts=facts, approve=approve)


def until_trusted(proposals: Sequence[Proposal], doubt: ClockDoubt) -> list[Waiting]:
    return held_back(proposals, f"{doubt.why} (logagent cleanup --trust-clock if it is right now)")


def plan_queue(session: Session, facts: Facts, *, host_counted: bool) -> Plan:
    """The delete queue alone, what is due of it: `LogManager.deleteLogs`. Counts no sightings.

    host_counted: `facts` hold what the whole host has. Where they do not (no whole inventory was taken yet), only that
    is removed now which the blast radius has counted already; the rest waits for the inventory.
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
