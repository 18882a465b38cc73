"""Makes a plan from proposals: every guard checks every proposal, then the blast radius the whole plan.

Guard "blast-radius": how much of the host a plan takes away, together with what was taken in the last 24 hours. What
was taken comes from the journal and from the disk: with a second state dir, or a lost or older journal, the count
must not start from zero. On disk, a directory counts if a logagent gave it its name within the 24 hours
(`rename_uuid`). The ctime is not used: every broker start renews it for every stray, which would stop every
cleanup for a day. What a broker marked or set aside itself was not our doing, so it counts only when we remove it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from logagent.base.claims import Claim
from logagent.base.dir_names import renamed_at_ms
from logagent.base.records import (
    LIVE_KINDS,
    LOADED_KINDS,
    ActionKind,
    DirKey,
    Identity,
    Kind,
    PartitionDir,
    Reason,
    Verdict,
)
from logagent.base.units import human_time
from logagent.cleanup.plan.plan import Guard, Plan, Proposal, Refusal, Waiting, first_of_plan, plan_id, refused
from logagent.cleanup.plan.proposals import by_word_alone, proof_of
from logagent.verdict.clock_doubt import MOST_DRIFT_MS
from logagent.verdict.facts import Facts, RecentAction, Ruling

Key = tuple[Identity, str | None, int | None]


class RecentDirs:
    """The directories of `recent`, by a key that identifies them across renames and moves.

    A directory keeps its inode when renamed; topic id and partition distinguish it from a later one with the same
    inode. An interrupted removal may have removed the topic id: then inode and partition must suffice. sizes: the most
    that each was seen to have allocated. approved: those that an operator allowed and that were not restored since (a
    restore ends the approval).
    """

    def __init__(self, recent: Iterable[RecentAction]) -> None:
        rows = tuple(recent)
        self._with_id = {(r.identity, r.partition): r.topic_id for r in rows if r.topic_id is not None}
        self.sizes: dict[Key, int] = {}
        self.approved: set[Key] = set()
        for r in rows:
            key = self._key(r.identity, r.topic_id, r.partition)
            if r.restored:
                self.approved.discard(key)
                continue
            self.sizes[key] = max(r.allocated, self.sizes.get(key, 0))
            if r.approved:
                self.approved.add(key)

    def key(self, directory: PartitionDir) -> Key:
        """The key of a directory that is still on disk."""
        return self._key(directory.identity, directory.topic_id, directory.partition)

    def _key(self, identity: Identity, topic_id: str | None, partition: int | None) -> Key:
        if topic_id is None:
            topic_id = self._with_id.get((identity, partition))
        return (identity, topic_id, partition)


def on_disk(dirs: Iterable[PartitionDir], taken: RecentDirs, since_ms: int) -> tuple[RecentAction, ...]:
    """Directories that a logagent renamed since `since_ms` and that `taken` does not know: those of another state
    dir."""
    return tuple(
        RecentAction(d.identity, d.topic_id, d.partition, d.allocated, approved=False)
        for d in dirs
        if d.kind in (Kind.STRAY, Kind.DELETE)
        and (at_ms := renamed_at_ms(d.uuid)) is not None
        and at_ms >= since_ms
        and taken.key(d) not in taken.sizes
    )


def dirs_of_a_day(dirs: Iterable[PartitionDir], taken: RecentDirs) -> tuple[int, int]:
    """Partition dirs and allocated bytes that the host had within the 24 hours: those among `dirs`, and those taken
    since.

    A partly removed directory counts with its full size, as it does in the blast radius.
    """
    gone = dict(taken.sizes)
    count = size = 0
    for d in dirs:
        if d.kind in LOADED_KINDS:
            count += 1
            size += max(d.allocated, gone.pop(taken.key(d), 0)) if gone else d.allocated
    return count + len(gone), size + sum(gone.values())


@dataclass(frozen=True, slots=True)
class BlastRadius:
    """The limits over 24 hours: `max_dirs` directories, `max_fraction` of the host's partition dirs or allocated bytes
    (a broker preallocates 20 MiB of indexes for each active segment: by file sizes a third of a host can pass as a
    tenth). One is always within them. The controller, which knows no host's settings, applies the defaults, to topics
    too."""

    max_dirs: int = 20
    max_fraction: float = 0.1

    def are_too_many(self, count: int) -> bool:
        return count > max(1, self.max_dirs)

    def is_too_large_a_part(self, count: int, whole: int) -> bool:
        """Whether `count` of `whole` directories (or topics) is more than the fraction."""
        return count > max(1.0, self.max_fraction * whole)


def blast_radius(permitted: Sequence[Proposal], facts: Facts, limits: BlastRadius) -> Refusal | None:
    """Why the whole plan is refused; None if it is within `limits`.

    A directory counts once, whatever was done to it (`RecentDirs`). If an operator approved an earlier step, its later
    steps do not count; but a current or future directory always counts, even if it was approved before and came back.
    One directory is always allowed.
    """
    counted = _counted(permitted)
    if not counted:
        return None
    dirs, size = _Day(counted, facts).totals
    fact = _over_limit(dirs, size, facts, limits)
    if fact is not None and dirs != len(permitted):
        fact += " (what this plan and the last 24 hours take, without what was approved before)"
    fact = fact or _leaves_nothing(counted, facts)
    if fact is None:
        return None
    hint = f"read the plan; if it is what you want, run it again with --execute --approve {plan_id(permitted)}"
    return Refusal.of_plan(fact, hint, permitted)


def within_limits(permitted: Sequence[Proposal], facts: Facts, limits: BlastRadius) -> Callable[[Proposal], bool]:
    """Which removals may join a plan of `permitted`, which can do without them: a function that is asked about one
    after the other, and counts those that may. None may if the plan is stopped anyway."""
    stopped = blast_radius(permitted, facts, limits) is not None
    day = _Day(_counted(permitted), facts)

    def may_join(p: Proposal) -> bool:
        if stopped:
            return False
        if not _counted([p]):
            return True
        if _over_limit(*day.totals_with(p), facts, limits) is not None:
            return False
        day.count(p)
        return True

    return may_join


def _counted(permitted: Sequence[Proposal]) -> list[Proposal]:
    keeps = (ActionKind.RESTORE, ActionKind.REMOVE_LEFTOVERS)
    return [p for p in permitted if p.action not in keeps and not p.approved and not p.on_the_way_back]


class _Day:
    """What counts for the limits: the directories of the last 24 hours and those of a plan, with their sizes.

    `totals`: how many there are, and their allocated bytes."""

    def __init__(self, counted: Sequence[Proposal], facts: Facts) -> None:
        self._taken = RecentDirs(facts.recent)
        present = {self._taken.key(p.dir) for p in counted if p.dir.kind in LIVE_KINDS}
        self._approved = self._taken.approved - present
        self._sizes = {key: size for key, size in self._taken.sizes.items() if key not in self._approved}
        self.totals = len(self._sizes), sum(self._sizes.values())
        for p in counted:
            self.count(p)

    def totals_with(self, p: Proposal) -> tuple[int, int]:
        key, (dirs, size) = self._taken.key(p.dir), self.totals
        if key in self._approved:
            return dirs, size
        known = self._sizes.get(key)
        return dirs + (known is None), size + max(0, p.dir.allocated - (known or 0))

    def count(self, p: Proposal) -> None:
        self.totals = self.totals_with(p)
        key = self._taken.key(p.dir)
        if key not in self._approved:
            self._sizes[key] = max(p.dir.allocated, self._sizes.get(key, 0))


def _over_limit(dirs: int, size: int, facts: Facts, limits: BlastRadius) -> str | None:
    if dirs <= 1:
        return None
    if limits.are_too_many(dirs):
        return f"{dirs} directories within 24 hours exceed cleanup.max_dirs = {limits.max_dirs}"
    if limits.is_too_large_a_part(dirs, facts.partition_dirs):
        return (
            f"{dirs} of the host's {facts.partition_dirs} partition dirs within 24 hours are more than"
            f" cleanup.max_fraction = {limits.max_fraction:g}"
        )
    if size > limits.max_fraction * facts.partition_bytes:
        return (
            f"{size} of the host's {facts.partition_bytes} allocated bytes within 24 hours are more than"
            f" cleanup.max_fraction = {limits.max_fraction:g}"
        )
    return None


def _on_word_alone(permitted: Sequence[Proposal], facts: Facts) -> Refusal | None:
    found = [p for p in permitted if not p.approved and by_word_alone(p, facts)]
    if not found:
        return None
    fact = f"{len(found)} of these strays may be the only copy of their records: {found[0].dir.name}"
    id_ = plan_id(permitted)
    return Refusal.of_plan(fact, f"if exactly this is to be lost: --execute --approve {id_}", found)


def _leaves_nothing(counted: Sequence[Proposal], facts: Facts) -> str | None:
    taken = {p.dir.key for p in counted if p.dir.kind in LIVE_KINDS}
    if taken and all(key in taken for key in facts.assigned_dirs()):
        return "it would leave this host without any assigned partition dir"
    return None


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
    stopped = list(refusals)
    permitted: list[Proposal] = []
    for proposal in proposals:
        why = next((r for guard in guards if (r := guard(proposal, facts)) is not None), None)
        if why is None:
            permitted.append(proposal)
        else:
            stopped.append(Refusal.of(proposal.dir, why))
    permitted, alone = keep_pairs(permitted, [p for p in proposals if p.makes_room_for is not None])
    stopped += alone
    permitted = _with_their_restores(permitted)
    if approve is not None:
        found = approved_subset(permitted, approve)
        if found is None:
            stop = _not_that_plan(permitted, approve)
            stopped.append(stop)
            return _plan(permitted, facts, stopped, waiting, stop)
        permitted = [replace(p, approved=True) for p in found]
    tripped = blast_radius(permitted, facts, limits) or _on_word_alone(permitted, facts)
    if tripped is not None:
        stopped.append(tripped)
    return _plan(permitted, facts, stopped, waiting, tripped)


def _plan(
    actions: Sequence[Proposal],
    facts: Facts,
    refusals: Sequence[Refusal],
    waiting: Sequence[Waiting],
    needs_approval: Refusal | None,
) -> Plan:
    id_ = plan_id(actions)
    proofs = {p.key: proof for p in actions if (proof := proof_of(p, facts))}
    stop = needs_approval
    rulings = {p.key: r for p in actions if (r := facts.ruling_to_act(p.dir)) is not None}
    named = [each.key for some in (actions, refusals, waiting) for each in some]
    return Plan(
        id_,
        facts.now_ms,
        tuple(actions),
        tuple(refusals),
        tuple(waiting),
        stop,
        facts.strays,
        proofs,
        rulings,
        facts.booted_ms,
        {key: r.verdict for key in named if (r := facts.verdict_of(key)) is not None},
    )


def as_planned(plan: Plan, p: Proposal, facts: Facts) -> Reason | None:
    """The guard before all others at the act: clock and verdict are those that the plan rests on. Any other verdict is
    a reason to stop: an operator has read, or approved, the plan with the first. Not known twice is not different."""
    return _clock_was_set(plan, facts) or _other_verdict(plan, p, facts)


def _clock_was_set(plan: Plan, facts: Facts) -> Reason | None:
    """Ages were counted by the plan's clock, but how old a witness is counts now: set back, a clock makes stale
    assignments look fresh. And the journal would date what is set aside or marked by it: from a clock that is set right
    later, retention would be over at once. A plan that was made in doubt says so, and is made again, too."""
    drift = facts.booted_ms - plan.booted_ms
    if abs(drift) <= MOST_DRIFT_MS:
        return None
    fact = (
        f"the wall clock was set by {drift // 60_000} minutes since the plan was made, at {human_time(plan.made_at_ms)}"
    )
    return refused("clock", fact, "run it again: the new plan says whether ages can be trusted", Claim.CLOCK)


def _other_verdict(plan: Plan, p: Proposal, facts: Facts) -> Reason | None:
    before, now = plan.rulings.get(p.key), facts.ruling_to_act(p.dir)
    if before is None or (now is not None and (now.verdict, now.reason) == (before.verdict, before.reason)):
        return None
    if before.verdict is Verdict.UNKNOWN and (now is None or now.verdict is Verdict.UNKNOWN):
        return None

    def said(ruling: Ruling) -> str:
        return ruling.verdict.value + (f" ({ruling.reason})" if ruling.reason is not None else "")

    fact = f"its verdict is {said(now) if now is not None else 'unknown'} as of {human_time(facts.now_ms)}"
    fact += f"; when the plan was made, at {human_time(plan.made_at_ms)}, it was {said(before)}"
    return refused("assigned", fact, "run it again: the new plan rests on what is known now")


def keep_pairs(permitted: Sequence[Proposal], making_room: Sequence[Proposal]) -> tuple[list[Proposal], list[Refusal]]:
    """`permitted` without those whose partner was refused; a restore and what makes room for it are partners.

    Setting a live partition aside for a restore that does not happen would only do harm.
    """
    there = {p.dir.key for p in permitted}
    partner: dict[DirKey, DirKey] = {}
    for p in making_room:
        if p.makes_room_for is not None:
            partner[p.dir.key] = p.makes_room_for
            partner[p.makes_room_for] = p.dir.key
    kept: list[Proposal] = []
    alone: list[Refusal] = []
    for p in permitted:
        other = partner.get(p.dir.key)
        if other is None or other in there:
            kept.append(p)
            continue
        fact = f"it goes together with {'/'.join(other)}, which was refused"
        alone.append(Refusal.of(p.dir, refused("policy", fact, "see that refusal")))
    return kept, alone


def _with_their_restores(permitted: Sequence[Proposal]) -> list[Proposal]:
    """`permitted` without marked directories that would leave the queue for a restore that does not happen."""
    comes_back = {p.dir.key for p in permitted if p.action is ActionKind.RESTORE}
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
    hint = f"read the new plan {plan_id(permitted)} and approve that one"
    if not permitted:
        hint = "nothing is left that can be done: there is no new plan to approve"
    fact = (
        f"no plan {approve} can be made now: the id is wrong, or a directory of that plan is gone, has changed or is"
        " refused"
    )
    return Refusal.of_plan(fact, hint, permitted)
