"""Carries a rescue out: what is removed directly, what is set aside and then removed in the same run, and more of what
is due if that freed less than is needed.

One step after the other: no copy of another step is read before a marked directory is gone, and on a full disk a rename
may need what the removals before it have freed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from logagent.agent.execute.log_manager import LogManager
from logagent.agent.rescue.plan_rescue import Rescue, plan_rescue
from logagent.agent.session.session import Session
from logagent.model.planning.plan import Execution, Plan, Proposal, Refusal, action_id
from logagent.model.planning.rescue_steps import removal_of
from logagent.model.records import Kind, Outcome


def carry_out_rescue(
    session: Session, rescue: Rescue, manager: LogManager, *, approved: bool, include_internal: bool
) -> tuple[Rescue, Execution]:
    """Execute the plan, and then, while less was freed than is needed, what else is due: a guard may refuse at the act
    what it let pass before. Returns the rescue with everything that was tried, and the outcome. Raises JournalError.

    `approved`: the plan was approved by its id. Then exactly that plan is carried out.
    """
    plan, execution = _with_removals(session, rescue.plan, manager)
    rescue = replace(rescue, plan=plan)
    if approved or plan.needs_approval is not None:
        return rescue, execution
    tried = set(rescue.offers)
    while (missing := rescue.missing(execution.freed_bytes)) and not manager.control.stop():
        session.take_inventory()
        found = plan_rescue(
            session, session.facts(), need=missing, only_due=True, include_internal=include_internal, leave_out=tried
        )
        tried.update(found.offers)
        rescue = _joined(rescue, found)
        if not found.plan.actions or found.plan.needs_approval is not None:
            break
        execution = _together(execution, manager.execute(replace(found.plan, plan_id=rescue.plan.plan_id)))
    return rescue, execution


def _joined(rescue: Rescue, found: Rescue) -> Rescue:
    """`rescue` with the actions of `found`; if those would need an approval, with a refusal of each instead."""
    actions, refusals, offers, more = found.plan.actions, found.plan.refusals, found.offers, found.more
    stop = found.plan.needs_approval
    if stop is not None:
        refusals = (*(r for r in refusals if r != stop), *(_needs_approval(p, stop.fact) for p in actions))
        actions, offers, more = (), {}, found.more + found.gives_back
    plan = replace(
        rescue.plan,
        actions=(*rescue.plan.actions, *actions),
        refusals=tuple(dict.fromkeys((*rescue.plan.refusals, *refusals))),
    )
    return replace(
        rescue,
        plan=plan,
        offers=rescue.offers | offers,
        more=more,
        by_broker=found.by_broker,
    )


def _needs_approval(p: Proposal, fact: str) -> Refusal:
    hint = (
        "logagent rescue without --need shows all that can be freed; --execute --approve PLAN_ID carries that plan out"
    )
    return Refusal(p.dir.log_dir, p.dir.name, "blast-radius", fact, hint, p.dir.bytes)


def _with_removals(session: Session, plan: Plan, manager: LogManager) -> tuple[Plan, Execution]:
    """Execute `plan`, and remove what it has set aside: an approval covers that too. Returns the plan with those
    removals, and the outcome of everything."""
    whole, execution = plan, Execution()
    if plan.needs_approval is not None:
        return whole, execution
    for _, group in groupby(plan.actions, key=_step):
        left = list(group)
        while left:
            execution = _together(execution, manager.execute(replace(plan, actions=tuple(left))))
            aside = [p for p in left if p.then_removed and _outcome(execution, p) is Outcome.DONE]
            if not aside:
                break
            then = _removals(session, whole, aside)
            if then.needs_approval is None:
                execution = _together(execution, manager.execute(then))
            whole = replace(
                whole,
                actions=(*whole.actions, *then.actions),
                refusals=(*whole.refusals, *then.refusals),
                needs_approval=then.needs_approval,
            )
            if whole.needs_approval is not None:
                return whole, execution
            # Renames, too, need some space, and there is more of it now.
            left = [p for p in left if _outcome(execution, p) is Outcome.FAILED]
    return whole, execution


def _step(p: Proposal) -> tuple[bool, bool, Kind | None]:
    return p.then_removed, p.double, None if p.then_removed else p.dir.kind


def _removals(session: Session, plan: Plan, aside: Sequence[Proposal]) -> Plan:
    """The removal of what `plan` has just set aside."""
    session.take_inventory()
    before = {(p.new_dir or p.dir.log_dir, p.new_name): p for p in aside}
    removals = [removal_of(d, p) for d in session.dirs if (p := before.get((d.log_dir, d.name))) is not None]
    return replace(session.plan(removals, facts=session.facts()), plan_id=plan.plan_id)


def _together(first: Execution, then: Execution) -> Execution:
    return Execution(first.results | then.results, [*first.refusals, *then.refusals])


def _outcome(execution: Execution, p: Proposal) -> Outcome | None:
    result = execution.results.get(action_id(p))
    return result.outcome if result is not None else None
