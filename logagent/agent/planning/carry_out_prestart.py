"""Carries a prestart out: removals until the broker has space to start, then the renames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from logagent.agent.execute.log_manager import LogManager
from logagent.agent.planning.plan_prestart import Prestart, lacks
from logagent.agent.session.session import Session
from logagent.model.planning.plan import Execution, Plan, Proposal
from logagent.model.planning.room import still_lacking, until_it_starts
from logagent.model.records import ActionKind
from logagent.model.space import NOTHING, Space

# xfs frees in the background: how long statvfs may take to show what was removed, in all.
_BACKGROUND_SECONDS = 0.5
_LOOK_SECONDS = 0.01


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
            session.clock.sleep(_LOOK_SECONDS)
            lacking = lacks(session)
        tried = {p.key for p in removed}
        chosen = until_it_starts([p for p in found.removals if p.key not in tried], lacking, found.gains)
    gone = {p.key for p in removed}
    renames = execute(p for p in plan.actions if p.key not in gone)
    return replace(plan, actions=(*removed, *renames)), execution


def _exceeds(lacking: Mapping[int, Space], expected: Mapping[int, Space]) -> bool:
    return any(lack.less(expected.get(device, NOTHING)) for device, lack in lacking.items())
