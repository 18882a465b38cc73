"""The window between a broker's stop and its start, which is the safest: only renames, and never beyond the budget.

Due orphans become `-stray` (3.6.1 and later, or into a quarantine directory), strays past their retention become
`-delete`, which the starting broker purges itself after its own delay. Only if a log dir has too little space for a
start is anything removed: what is due, until there is enough. No sighting is counted.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from logagent.agent.evidence.copy_reads import PRESTART_BYTES
from logagent.agent.planning.plan_cleanup import until_trusted
from logagent.agent.rescue.rescue_looks import free_room
from logagent.agent.session.session import Session, new_uuid
from logagent.model.facts import Facts
from logagent.model.planning.plan import Plan, Proposal
from logagent.model.planning.proposals import Ages, kept_while_offline, orphans, removals, rename_away, strays
from logagent.model.planning.room import needed_to_start, until_it_starts
from logagent.model.records import Kind


class BudgetSpent(BaseException):
    """The time budget ran out while we were still looking: nothing was done.

    Like KeyboardInterrupt it is not an `Exception`: code that turns every failure of a network client into its own
    error must not swallow it and go on.
    """


@contextmanager
def looking_at_most(seconds: float) -> Iterator[None]:
    """Raise BudgetSpent in the body when `seconds` are over. Only for code that reads: it can strike anywhere.

    Only in the main thread, where Python delivers signals.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        raise BudgetSpent

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def plan_prestart(session: Session, facts: Facts) -> Plan:
    """What is due and can be renamed now; on a log dir with too little space for a start, what is due is removed
    first."""
    cleanup, session.ask_leaders = session.settings.cleanup, False
    session.reads.left = PRESTART_BYTES
    marks, started = session.marks(), session.removal_intents()
    ages = Ages(cleanup.sightings, cleanup.min_age)
    orphan, waiting = orphans(session.dirs, facts, session.sightings(), ages, new_uuid)
    inside = [d for d in session.of_kind(Kind.STRAY) if not facts.log_dirs[d.log_dir].quarantine]
    corrected = session.clock_watch.corrected
    stray, stray_waiting = strays(inside, marks, started, cleanup.stray_retention, facts.now_ms, corrected=corrected)
    marked, _ = removals(kept_while_offline(session.queue(), facts)[1], facts.now_ms)
    freeing = _room_to_start(session, [*marked, *stray])
    proposals = [*freeing, *orphan, *(as_mark(p, new_uuid) for p in stray if p not in freeing)]
    waiting += stray_waiting
    doubt = session.clock_watch.doubt()
    if doubt is not None:
        proposals, waiting = [], [*until_trusted(proposals, doubt), *waiting]
    return session.plan(proposals, waiting, facts=facts)


def _room_to_start(session: Session, due: Sequence[Proposal]) -> list[Proposal]:
    """Due removals, as many as each log dir needs until a broker can load it."""
    found: list[Proposal] = []
    for path, (free, inodes) in free_room(session).items():
        need, need_inodes = needed_to_start(d for d in session.dirs if d.log_dir == path)
        here = [p for p in due if p.dir.log_dir == path]
        found += until_it_starts(here, need - free, need_inodes - inodes)
    return found


def as_mark(removal: Proposal, uuid: Callable[[], str]) -> Proposal:
    """The mark for deletion of a stray that could be removed; approved if the stray was."""
    mark = rename_away(removal.dir, is_stray=False, reason=removal.reason, new_uuid=uuid, due_at_ms=removal.due_at_ms)
    return replace(
        mark, full_topic=removal.full_topic, approved=removal.approved, removal_started=removal.removal_started
    )
