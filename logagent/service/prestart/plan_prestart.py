"""The window between a broker's stop and its start, which is the safest: only renames, and never beyond the budget.

Due orphans become `-stray` (3.6.1 and later, or into a quarantine directory), strays past their retention become
`-delete`, which the starting broker purges itself after its own delay. Only if a file system has too little space for a
start is anything removed: what is due, until there is enough; instead of the renames, where the blast radius does not
allow both. No sighting is counted.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType

from logagent.base.records import ActionKind, DirKey
from logagent.base.sizes import NOTHING, Space
from logagent.cleanup.execute.log_manager import LogManager
from logagent.cleanup.plan.plan import Execution, Plan, Proposal, Waiting
from logagent.cleanup.plan.proposals import rename_away
from logagent.cleanup.rescue.plan_rescue import free_room, room_given_back
from logagent.cleanup.session.gather import reads_of
from logagent.cleanup.session.session import Session, new_uuid
from logagent.service.prestart.rules import StartRoom, room_to_start, still_lacking, to_make_room, until_it_starts
from logagent.verdict.evidence.copy_reads import PRESTART_BYTES
from logagent.verdict.facts import Facts

# Nobody is asked during a start, so a hint must not say how to approve its plan.
_NO_APPROVAL = "prestart takes no approval; logagent cleanup shows a plan that can be approved"


class BudgetSpent(BaseException):
    """The time budget ran out while we were still looking: nothing was done.

    Like KeyboardInterrupt it is not an `Exception`: code that turns every failure of a network client into its own
    error must not swallow it and go on.
    """


@contextmanager
def reading_at_most(seconds: float) -> Iterator[None]:
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


@dataclass(frozen=True, slots=True)
class Prestart:
    """`plan`: what is done now. The rest is empty unless a file system lacks space for a start: `lacking`, how much, by
    device; `removals`, what may be removed there, in order, of which the plan has as much as should be enough; `gains`,
    what each removal gives back; `marked`, every removal of a marked directory that the guards permit, due or not;
    `beyond`, what would help too, but exceeds the blast radius."""

    plan: Plan
    lacking: Mapping[int, Space] = field(default_factory=dict)
    removals: Sequence[Proposal] = ()
    gains: Mapping[DirKey, Space] = field(default_factory=dict)
    marked: Sequence[Proposal] = ()
    beyond: Sequence[Proposal] = ()


def plan_prestart(session: Session, facts: Facts) -> Prestart:
    """What is due and can be renamed now; on a file system with too little space for a start, what is due is removed
    first."""
    session.ask_leaders, reads_of(session).left = False, PRESTART_BYTES
    planner = session.planner(facts)
    due = planner.due()
    inside = [p for p in due.strays.due if not facts.log_dirs[p.dir.log_dir].quarantine]
    renames = [*due.orphans.due, *(as_mark(p, new_uuid) for p in inside)]
    waiting = [w for w in due.strays.waiting if not facts.log_dirs[w.log_dir].quarantine]
    waiting = [*due.orphans.waiting, *waiting]
    lacking = lacks(session)
    if not lacking:
        return Prestart(_without_approval(session.plan(renames, waiting, facts=facts)))
    whole = planner.due(waits_over=True).marked.due
    removals = [*due.marked.due, *due.strays.due]
    return _making_room(session, facts, removals, whole, renames, [*waiting, *due.marked.waiting], lacking)


def _making_room(
    session: Session,
    facts: Facts,
    due: Sequence[Proposal],
    marked: Sequence[Proposal],
    renames: Sequence[Proposal],
    waiting: Sequence[Waiting],
    lacking: Mapping[int, Space],
) -> Prestart:
    """The guards judge first, so that only what can really be removed counts."""
    due = [p for p in due if p.dir.device in lacking]
    removing = {p.key: p for p in (*marked, *due)}
    whole = session.plan([*removing.values(), *renames], facts=facts)
    limits = session.planner(facts).limits
    passed = {p.key: p for p in whole.actions if p.action is ActionKind.REMOVE}
    renamed = [p for p in whole.actions if p.action is not ActionKind.REMOVE]
    gains = room_given_back(session, facts, [p.dir for p in passed.values()])
    found = to_make_room([p for p in due if p.key in passed], renamed, lacking, gains, facts, limits)
    refused = {p.key for p in due} - {p.key for p in renames}
    refusals = [r for r in whole.refusals if r.key in refused]
    if found.stop is not None:
        fact = f"{found.stop.fact}; only what makes room for a start is removed"
        refusals.append(replace(found.stop, fact=fact, hint=_NO_APPROVAL))
    left_out = {p.key for p in (*renamed, *found.chosen)} - {p.key for p in found.renames}
    proposals = [*found.chosen, *(p for p in renames if p.key not in left_out)]
    plan = session.plan(proposals, waiting, refusals, facts=facts)
    marked_here = [passed[p.key] for p in marked if p.key in passed]
    return Prestart(_without_approval(plan), lacking, found.possible, gains, marked_here, found.beyond)


def _without_approval(plan: Plan) -> Plan:
    stop = plan.needs_approval
    if stop is None:
        return plan
    refusal = replace(stop, hint=_NO_APPROVAL)
    return replace(plan, needs_approval=refusal, refusals=tuple(refusal if r == stop else r for r in plan.refusals))


def room_for_start(session: Session) -> dict[int, StartRoom]:
    """By device: what is free now, and what a start may need."""
    devices = {path: log_dir.identity.device for path, log_dir in session.log_dirs.by_path.items()}
    return room_to_start(session.dirs, devices, free_room(session))


def lacks(session: Session) -> dict[int, Space]:
    """What each file system that has too little space for a start lacks now."""
    return {device: room.lacks for device, room in room_for_start(session).items() if room.lacks}


def as_mark(removal: Proposal, uuid: Callable[[], str]) -> Proposal:
    """The mark for deletion of a stray that could be removed; approved if the stray was."""
    mark = rename_away(removal.dir, is_stray=False, reason=removal.reason, new_uuid=uuid)
    return replace(
        mark,
        full_topic=removal.full_topic,
        due_at_ms=removal.due_at_ms,
        approved=removal.approved,
        removal_started=removal.removal_started,
        flags=removal.flags,
    )


# xfs frees in the background: how long statvfs may take to show what was removed, in all.
_BACKGROUND_SECONDS = 0.5
_CLOSING_SECONDS = 0.01


def carry_out_prestart(session: Session, found: Prestart, manager: LogManager) -> tuple[Plan, Execution]:
    """Execute the plan. If statvfs shows too little space after its removals, go on with those that are left. Returns
    the plan with everything that was removed, and the outcome. Raises JournalError.

    What is removed in addition adds nothing to the blast radius: it would be renamed otherwise, or it was counted.
    """
    plan, execution, stop = found.plan, Execution(), manager.control.stop
    if plan.needs_approval is not None:
        return plan, execution

    def execute(actions: Iterable[Proposal]) -> tuple[Proposal, ...]:
        part = replace(plan, actions=tuple(actions))
        done = manager.execute(part)
        execution.results.update(done.results)
        execution.refusals.extend(done.refusals)
        return part.actions

    removed: tuple[Proposal, ...] = ()
    chosen = [p for p in plan.actions if p.action is ActionKind.REMOVE]
    lacking, until = found.lacking, session.clock.monotonic() + _BACKGROUND_SECONDS
    while chosen and not stop():
        removed += execute(chosen)
        expected = still_lacking(lacking, chosen, found.gains)
        lacking = lacks(session)
        while _exceeds(lacking, expected) and not stop() and session.clock.monotonic() < until:
            session.clock.sleep(_CLOSING_SECONDS)
            lacking = lacks(session)
        tried = {p.key for p in removed}
        chosen = until_it_starts([p for p in found.removals if p.key not in tried], lacking, found.gains)
    gone = {p.key for p in removed}
    renames = execute(p for p in plan.actions if p.key not in gone)
    return replace(plan, actions=(*removed, *renames)), execution


def _exceeds(lacking: Mapping[int, Space], expected: Mapping[int, Space]) -> bool:
    return any(lack.less(expected.get(device, NOTHING)) for device, lack in lacking.items())
