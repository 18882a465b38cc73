"""What is due on this host, as one plan: all of it, or the delete queue alone. The CLI and the daemon carry it out."""

from __future__ import annotations

import sys
from dataclasses import replace

from logagent.agent.session.session import Session, new_uuid
from logagent.model.facts import Facts
from logagent.model.planning.plan import Plan
from logagent.model.planning.proposals import Ages, held_back, kept_while_offline, orphans, removals, strays, uncounted
from logagent.model.records import Kind


def plan_cleanup(session: Session, facts: Facts, *, approve: str | None = None) -> Plan:
    """Removals first (they free space), oldest first, then strays past their retention, then proven orphans.

    An acting session counts this inventory as a sighting of every orphan in it. Where a clock was set, nothing
    is due.
    """
    cleanup = session.settings.cleanup
    clock_trouble = session.count_sightings(facts) if session.acting else None
    marks, begun = session.marks(), session.begun()
    kept, queue = kept_while_offline(session.queue(), facts)
    marked, marked_waiting = removals(queue, facts.now_ms)
    stray, stray_waiting = strays(
        session.of_kind(Kind.STRAY), marks, begun, cleanup.stray_retention, facts.now_ms, session.attempts()
    )
    ages = Ages(cleanup.sightings, cleanup.min_age)
    orphan, orphan_waiting = orphans(session.dirs, facts, session.journal.sightings(), ages, new_uuid)
    proposals, waiting = [*marked, *stray, *orphan], [*kept, *marked_waiting, *stray_waiting, *orphan_waiting]
    if clock_trouble is not None:
        proposals, waiting = [], [*held_back(proposals, clock_trouble), *waiting]
    return session.plan(
        proposals,
        waiting,
        facts=facts,
        approve=approve,
    )


def plan_queue(session: Session, facts: Facts, *, host_counted: bool) -> Plan:
    """The delete queue alone, what is due of it: `LogManager.deleteLogs`. Counts no sightings.

    host_counted: `facts` hold what the whole host has. Where they do not (no whole inventory was taken yet), only that
    is removed now which the blast radius has counted already; the rest waits for the inventory.
    """
    kept, queue = kept_while_offline(session.queue(), facts)
    proposals, waiting = removals(queue, facts.now_ms)
    trouble = session.clock_problem()
    if trouble is not None:
        proposals, waiting = [], [*held_back(proposals, trouble), *waiting]
    if not host_counted:
        new = uncounted(proposals, facts)
        waiting += held_back(new, "the first whole inventory")
        proposals = [p for p in proposals if p not in new]
        facts = replace(facts, partition_dirs=sys.maxsize, partition_bytes=sys.maxsize)
    return session.plan(proposals, [*kept, *waiting], facts=facts)
