"""Makes a plan from proposals: every guard checks every proposal, then the blast radius the whole plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from logagent.model.facts import Facts
from logagent.model.planning.blast_radius import BlastRadius, blast_radius
from logagent.model.planning.plan import Guard, Plan, Proposal, Refusal, Waiting, first_of_plan, plan_id
from logagent.model.records import ActionKind


def assemble(
    proposals: Sequence[Proposal],
    waiting: Sequence[Waiting],
    facts: Facts,
    guards: Sequence[Guard],
    limits: BlastRadius,
    *,
    approve: str | None = None,
    refusals: Sequence[Refusal] = (),
) -> Plan:
    """The plan: the proposals that pass every guard, and the first refusal of each of the others.

    With `approve` (a plan id), exactly the actions of that plan are kept and marked approved; what fell due since is
    left out. If they are no longer all there, the plan says so and needs a new approval.
    """
    refused = list(refusals)
    permitted: list[Proposal] = []
    for proposal in proposals:
        refusal = next((r for guard in guards if (r := guard(proposal, facts)) is not None), None)
        if refusal is None:
            permitted.append(proposal)
        else:
            refused.append(refusal)
    permitted, alone = keep_pairs(permitted, [p for p in proposals if p.makes_room_for is not None])
    refused += alone
    permitted = _with_their_restores(permitted)
    if approve is not None:
        found = approved_subset(permitted, approve)
        if found is None:
            stop = _not_that_plan(permitted, approve)
            refused.append(stop)
            return _plan(permitted, facts, refused, waiting, stop)
        permitted = [replace(p, approved=True) for p in found]
    tripped = blast_radius(permitted, facts, limits)
    if tripped is not None:
        refused.append(tripped)
    return _plan(permitted, facts, refused, waiting, tripped)


def _plan(
    actions: Sequence[Proposal],
    facts: Facts,
    refused: Sequence[Refusal],
    waiting: Sequence[Waiting],
    needs_approval: Refusal | None,
) -> Plan:
    permitted, id_ = tuple(actions), plan_id(actions)
    return Plan(id_, facts.now_ms, permitted, tuple(refused), tuple(waiting), needs_approval, facts.strays)


def keep_pairs(permitted: Sequence[Proposal], making_room: Sequence[Proposal]) -> tuple[list[Proposal], list[Refusal]]:
    """`permitted` without those whose partner was refused; a restore and what makes room for it are partners.

    Setting a live partition aside for a restore that does not happen would only do harm.
    """
    there = {(p.dir.log_dir, p.dir.name) for p in permitted}
    partner: dict[tuple[str, str], tuple[str, str]] = {}
    for p in making_room:
        if p.makes_room_for is not None:
            partner[p.dir.log_dir, p.dir.name] = p.makes_room_for
            partner[p.makes_room_for] = (p.dir.log_dir, p.dir.name)
    kept: list[Proposal] = []
    refused: list[Refusal] = []
    for p in permitted:
        other = partner.get((p.dir.log_dir, p.dir.name))
        if other is None or other in there:
            kept.append(p)
            continue
        fact = f"it goes together with {'/'.join(other)}, which was refused"
        refused.append(Refusal(p.dir.log_dir, p.dir.name, "policy", fact, "see that refusal", p.dir.bytes))
    return kept, refused


def _with_their_restores(permitted: Sequence[Proposal]) -> list[Proposal]:
    """`permitted` without marked directories that would leave the queue for a restore that does not happen."""
    comes_back = {(p.dir.log_dir, p.dir.name) for p in permitted if p.action is ActionKind.RESTORE}
    return [
        p for p in permitted if not p.on_the_way_back or (p.new_dir or p.dir.log_dir, p.new_name or "") in comes_back
    ]


def approved_subset(permitted: Sequence[Proposal], approve: str) -> list[Proposal] | None:
    """The actions of the plan with id `approve`: all of `permitted`, or all but those that fell due last; None if that
    plan can no longer be made."""
    by_due = sorted(permitted, key=lambda p: p.due_at_ms or 0)
    keep = first_of_plan(by_due, approve)
    if keep is None:
        return None
    chosen = {id(p) for p in by_due[:keep]}
    return [p for p in permitted if id(p) in chosen]


def _not_that_plan(permitted: Sequence[Proposal], approve: str) -> Refusal:
    hint = f"look at the new plan {plan_id(permitted)} and approve that one"
    if not permitted:
        hint = "nothing is left that can be done: there is no new plan to approve"
    return Refusal(
        "",
        "",
        "blast-radius",
        f"plan {approve} can no longer be carried out: a directory in it is gone, has changed or is refused now",
        hint,
        sum(p.dir.bytes for p in permitted),
    )
