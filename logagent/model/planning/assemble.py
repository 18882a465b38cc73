"""Makes a plan of proposals: every guard over every proposal, then the blast radius over the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from logagent.model.facts import Facts
from logagent.model.planning.blast_radius import BlastRadius, blast_radius
from logagent.model.planning.plan import Guard, Plan, Proposal, Refusal, Waiting, plan_id
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
    """The plan: each proposal that every guard lets pass, the first refusal of each other one.

    With `approve` (a plan id) exactly the actions of that plan are kept, and marked approved; what fell due later is
    left out. Where they cannot be found again, the plan needs approval anew and says so.
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
            return Plan(plan_id(permitted), facts.now_ms, tuple(permitted), (*refused, stop), tuple(waiting), stop)
        permitted = [replace(p, approved=True) for p in found]
    tripped = blast_radius(permitted, facts, limits)
    if tripped is not None:
        refused.append(tripped)
    return Plan(plan_id(permitted), facts.now_ms, tuple(permitted), tuple(refused), tuple(waiting), tripped)


def keep_pairs(permitted: Sequence[Proposal], making_room: Sequence[Proposal]) -> tuple[list[Proposal], list[Refusal]]:
    """`permitted` without the halves of pairs (a restore and what makes room for it) of which the other was refused.

    Setting a living partition aside for a restore that does not come would only do harm.
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
    """Without the marked directories that are taken out of the queue for a restore which does not come."""
    comes_back = {(p.dir.log_dir, p.dir.name) for p in permitted if p.action is ActionKind.RESTORE}
    return [
        p for p in permitted if not p.on_the_way_back or (p.new_dir or p.dir.log_dir, p.new_name or "") in comes_back
    ]


def approved_subset(permitted: Sequence[Proposal], approve: str) -> list[Proposal] | None:
    """The actions of the plan with id `approve`: all of `permitted`, or all but those that fell due last."""
    by_due = sorted(permitted, key=lambda p: p.due_at_ms or 0)
    for keep in range(len(by_due), 0, -1):
        if plan_id(by_due[:keep]) == approve:
            chosen = {id(p) for p in by_due[:keep]}
            return [p for p in permitted if id(p) in chosen]
    return None


def _not_that_plan(permitted: Sequence[Proposal], approve: str) -> Refusal:
    return Refusal(
        "",
        "",
        "blast-radius",
        f"plan {approve} cannot be carried out any more: a directory in it is gone, has changed or is refused now",
        f"look at the new plan {plan_id(permitted)} and approve that one",
        sum(p.dir.bytes for p in permitted),
    )
