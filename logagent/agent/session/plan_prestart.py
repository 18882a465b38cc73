"""The window between a broker's stop and its start, the safest there is: renames only, and never over the budget.

Due orphans become `-stray` (3.6.1 and later, or into a quarantine directory), strays past their retention become
`-delete`, which the starting broker purges itself after its own delay. Nothing is removed and no sighting is counted.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from logagent.agent.session.plan_cleanup import until_trusted
from logagent.agent.session.session import Session, new_uuid
from logagent.model.facts import Facts
from logagent.model.planning.plan import Plan, Proposal
from logagent.model.planning.proposals import Ages, orphans, rename_away, strays
from logagent.model.records import Kind


class BudgetSpent(BaseException):
    """The budget ended while we were still looking: nothing was done.

    No `Exception`, as KeyboardInterrupt is none: whoever turns every failure of a network client into an error of its
    own must not turn this into one, and go on.
    """


@contextmanager
def looking_at_most(seconds: float) -> Iterator[None]:
    """Raise BudgetSpent in the body when `seconds` are over. For reading only: it can strike anywhere.

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
    """What is due and can be renamed now."""
    cleanup, session.ask_leaders = session.settings.cleanup, False
    marks, begun = session.marks(), session.begun()
    ages = Ages(cleanup.sightings, cleanup.min_age)
    orphan, waiting = orphans(session.dirs, facts, session.sightings(), ages, new_uuid)
    inside = [d for d in session.of_kind(Kind.STRAY) if not facts.log_dirs[d.log_dir].quarantine]
    corrected = session.clock_watch.corrected
    stray, stray_waiting = strays(inside, marks, begun, cleanup.stray_retention, facts.now_ms, corrected=corrected)
    proposals = [*orphan, *(as_mark(p, new_uuid) for p in stray)]
    waiting += stray_waiting
    doubt = session.clock_watch.doubt()
    if doubt is not None:
        proposals, waiting = [], [*until_trusted(proposals, doubt), *waiting]
    return session.plan(proposals, waiting, facts=facts)


def as_mark(removal: Proposal, uuid: Callable[[], str]) -> Proposal:
    """The mark for deletion of a stray that could be removed; approved if the stray was."""
    mark = rename_away(removal.dir, is_stray=False, reason=removal.reason, new_uuid=uuid, due_at_ms=removal.due_at_ms)
    return replace(mark, full_topic=removal.full_topic, approved=removal.approved, begun=removal.begun)
