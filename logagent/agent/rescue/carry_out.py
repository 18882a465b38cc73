"""Carries a rescue out: what is removed directly, and what is set aside and then removed in the same run."""

from __future__ import annotations

from dataclasses import replace

from logagent.agent.execute.log_manager import LogManager
from logagent.agent.rescue.plan_rescue import Rescue
from logagent.agent.session.session import Session
from logagent.model.planning.plan import Execution, Plan, Proposal, action_id
from logagent.model.planning.rescue_steps import removal_of
from logagent.model.records import Outcome


def carry_out_rescue(session: Session, rescue: Rescue, manager: LogManager) -> tuple[Plan, Execution]:
    """Execute the plan, and then remove what it has set aside: an approval covers that too. Returns the plan with those
    removals, and the outcome of everything. Raises JournalError."""
    execution = manager.execute(rescue.plan)
    aside = {
        (p.new_dir or p.dir.log_dir, p.new_name): p
        for p in rescue.plan.actions
        if p.then_removed and _is_done(execution, p)
    }
    if not aside or manager.control.stop():
        return rescue.plan, execution
    session.take_inventory()
    facts = session.facts()
    removals = [removal_of(d, before) for d in session.dirs if (before := aside.get((d.log_dir, d.name))) is not None]
    plan = replace(session.plan(removals, facts=facts), plan_id=rescue.plan.plan_id)
    if plan.needs_approval is None:
        more = manager.execute(plan)
        execution = Execution(execution.results | more.results, [*execution.refusals, *more.refusals])
    whole = replace(
        rescue.plan,
        actions=(*rescue.plan.actions, *plan.actions),
        refusals=(*rescue.plan.refusals, *plan.refusals),
        needs_approval=rescue.plan.needs_approval or plan.needs_approval,
    )
    return whole, execution


def _is_done(execution: Execution, p: Proposal) -> bool:
    result = execution.results.get(action_id(p))
    return result is not None and result.outcome is Outcome.DONE
