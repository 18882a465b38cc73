"""What a proposal is in the table of claims (`base.claims`), what it needs, and what is known of that: whose the
directory is, what covers it, and who has its log dir. Decides without I/O."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from logagent.base.claims import JUST, NEEDS, Act, Ask, Claim, Held, Need, Proof, Unmet, Witness, from_proof, met
from logagent.base.records import ActionKind, Holder, HolderState, Kind, Verdict
from logagent.cleanup.plan.plan import Proposal
from logagent.cleanup.plan.proposals import is_given_up
from logagent.verdict.facts import Facts


def act_of(p: Proposal, facts: Facts) -> Act | None:
    """What `p` is in the table of claims; None for what no guard lets pass."""
    kind = p.dir.kind
    match p.action:
        case ActionKind.REMOVE:
            if kind is Kind.DELETE:
                return Act.REMOVE_MARKED
            of_stray = Act.REMOVE_DUPLICATE if p.duplicate else Act.REMOVE_STRAY
            return of_stray if kind is Kind.STRAY else None
        case ActionKind.REMOVE_LEFTOVERS:
            return Act.REMOVE_LEFTOVERS
        case ActionKind.RESTORE:
            return Act.RESTORE
        case ActionKind.MARK if kind is Kind.STRAY:
            return Act.MARK_STRAY
        case ActionKind.MARK:
            return Act.MARK_ORPHAN if facts.ruling(p.dir).verdict is Verdict.ORPHAN else Act.MARK_ASSIGNED
        case ActionKind.QUARANTINE if p.on_the_way_back:
            return Act.TAKE_BACK
        case ActionKind.QUARANTINE if p.duplicate:
            return Act.SET_ASIDE_DUPLICATE
        case ActionKind.QUARANTINE if p.flags.allow_assigned:
            return Act.DISPLACE
        case ActionKind.QUARANTINE:
            return Act.SET_ASIDE_TO_REMOVE if p.then_removed else Act.SET_ASIDE_ORPHAN
    return None


def need_of(p: Proposal, facts: Facts, claims: frozenset[Claim]) -> Need | None:
    """What the act of `p` needs that has to do with any of `claims`."""
    act = act_of(p, facts)
    return _first_with(NEEDS[act], claims) if act is not None else None


@cache
def _first_with(needs: tuple[Need, ...], claims: frozenset[Claim]) -> Need | None:
    return next((need for need in needs if not need.claims.isdisjoint(claims)), None)


WHOSE = frozenset(
    {
        Claim.TOPIC_ABSENT,
        Claim.TOPIC_RECREATED,
        Claim.NOT_A_REPLICA,
        Claim.COPY_OF,
        Claim.LIVES_HERE,
        Claim.COVERED,
        Claim.OTHERS_IN_SYNC,
        Claim.REMOVAL_STARTED,
    }
)
"""What says whose a directory is, and whether its records are elsewhere."""


def by_rulings(p: Proposal, facts: Facts) -> Ask:
    """Whose the directory is and what covers it, by the rulings on it, and what the operator says to that."""
    asked = (facts.duplicates if p.duplicate else facts.strays).get(p.dir.key)
    proof = list(asked.proof) if asked is not None else []
    if p.dir.kind is not Kind.STRAY:
        # Whose a current directory is, its verdict says, which knows its log dir and spares internal topics.
        proof = [held for held in proof if held.claim is Claim.COVERED]
        proof += () if p.duplicate else facts.ruling(p.dir).proof
    claims = (
        (p.removal_started, Claim.REMOVAL_STARTED, Witness.MARK_AND_COUNT),
        (p.flags.allow_assigned, Claim.ALLOWED, Witness.OPERATOR),
        (is_given_up(p, facts), Claim.GIVEN_UP, Witness.OPERATOR),
    )
    proof += [Held(claim, witness, facts.now_ms) for yes, claim, witness in claims if yes]
    if p.flags.only_deleted:
        # A word that the fleet deleted its topic says nothing of a topic that lives.
        proof = [held for held in proof if held.claim not in (Claim.COVERED, Claim.GIVEN_UP)]
    return from_proof(proof, facts.moment(p.dir))


def by_holder(holder: Holder, p: Proposal, facts: Facts) -> Ask:
    """Whether a log dir is nobody's, or its holder says that it serves it."""
    held: list[Held] = []
    if not holder.state.is_broker:
        held.append(Held(Claim.STOPPED, Witness.LOCK, facts.now_ms))
    if holder.state is HolderState.HELD and holder.serving is not None:
        held.append(holder.serving)
    return from_proof(held, facts.moment(p.dir)._replace(process_started_ms=holder.start_time_ms))


def proof_of(p: Proposal, facts: Facts) -> Proof:
    """What a proposal that every guard has passed rests on, as far as it concerns the directory and its broker: what
    plan and journal keep of it."""
    proof: list[Held] = []
    where = facts.log_dirs.get(p.dir.log_dir)
    needs: list[tuple[Need | None, Callable[[], Ask]]] = [(need_of(p, facts, WHOSE), lambda: by_rulings(p, facts))]
    if where is not None:
        needs.append((need_of(p, facts, JUST[Claim.STOPPED]), lambda: by_holder(where.holder, p, facts)))
    for need, ask in needs:
        found = met(need, ask()) if need is not None else ()
        proof += () if isinstance(found, Unmet) else found
    return tuple(proof)
