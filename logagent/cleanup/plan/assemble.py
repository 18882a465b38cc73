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

from logagent.base.dir_names import renamed_at_ms
from logagent.base.records import LIVE_KINDS, LOADED_KINDS, ActionKind, DirKey, Identity, Kind, PartitionDir, Verdict
from logagent.base.times import rfc3339
from logagent.cleanup.plan.acts import proof_of
from logagent.cleanup.plan.plan import Guard, Plan, Proposal, Refusal, Waiting, first_of_plan, plan_id
from logagent.cleanup.plan.proposals import by_word_alone
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
    fact = _over_limit(*_Day(counted, facts).totals, facts, limits) or _leaves_nothing(counted, facts)
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
    tripped = blast_radius(permitted, facts, limits) or _on_word_alone(permitted, facts)
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
    id_ = plan_id(actions)
    proofs = {p.key: proof for p in actions if (proof := proof_of(p, facts))}
    stop = needs_approval
    rulings = {p.key: r for p in actions if (r := facts.ruling_to_act(p.dir)) is not None}
    return Plan(id_, facts.now_ms, tuple(actions), tuple(refused), tuple(waiting), stop, facts.strays, proofs, rulings)


def as_planned(plan: Plan, p: Proposal, facts: Facts) -> Refusal | None:
    """The guard before all others at the act: the verdict is the one that the plan rests on. Any other one is a reason
    to stop: an operator has read, or approved, the plan with the first. Not known twice is not different."""
    before, now = plan.rulings.get(p.key), facts.ruling_to_act(p.dir)
    if before is None or (now is not None and (now.verdict, now.reason) == (before.verdict, before.reason)):
        return None
    if before.verdict is Verdict.UNKNOWN and (now is None or now.verdict is Verdict.UNKNOWN):
        return None

    def said(ruling: Ruling) -> str:
        return ruling.verdict.value + (f" ({ruling.reason})" if ruling.reason is not None else "")

    fact = f"its verdict is {said(now) if now is not None else 'unknown'} as of {rfc3339(facts.now_ms)}"
    fact += f"; when the plan was made, at {rfc3339(plan.made_at_ms)}, it was {said(before)}"
    return Refusal.of(p.dir, "assigned", fact, "run it again: the new plan rests on what is known now")


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
    refused: list[Refusal] = []
    for p in permitted:
        other = partner.get(p.dir.key)
        if other is None or other in there:
            kept.append(p)
            continue
        fact = f"it goes together with {'/'.join(other)}, which was refused"
        refused.append(Refusal.of(p.dir, "policy", fact, "see that refusal"))
    return kept, refused


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
    hint = f"look at the new plan {plan_id(permitted)} and approve that one"
    if not permitted:
        hint = "nothing is left that can be done: there is no new plan to approve"
    fact = (
        f"there is no plan {approve}: there never was one, or it can no longer be carried out because a directory in it"
        " is gone, has changed or is refused now"
    )
    return Refusal.of_plan(fact, hint, permitted)
