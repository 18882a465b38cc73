"""A plan: what would be done, what was refused and by which guard, what waits and until when. An immutable value.

`assemble` runs every guard over every proposal and then the blast radius over the whole. A dry run prints the plan,
`--execute` carries out the very same one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from logagent.model.facts import Facts
from logagent.model.planning.blast_radius import Taken
from logagent.model.records import ActionKind, Kind, Outcome, PartitionDir

GuardName = Literal[
    "inside",
    "cluster",
    "online",
    "in-use",
    "assigned",
    "blast-radius",
    "lock",
    "journal",
    "window",
    "version",
    "policy",
]
GUARD_NAMES: tuple[GuardName, ...] = get_args(GuardName)


@dataclass(frozen=True, slots=True)
class Flags:
    """What the operator allowed in words."""

    allow_assigned: bool = False
    even_last_copy: bool = False
    include_internal: bool = False
    by_topic: bool = False


@dataclass(frozen=True, slots=True)
class Proposal:
    """Something that could be done to one directory, before any guard has seen it.

    `new_dir` is the directory that a quarantined one moves to where that is not its log dir (brokers before 3.6.1).
    `approved`: an operator allowed this very directory by plan id in an earlier step. `begun`: its removal had begun.
    `makes_room_for`: the (log dir, name) of a restore in the same plan; the two happen together or not at all.
    """

    action: ActionKind
    dir: PartitionDir
    reason: str
    new_name: str | None = None
    new_dir: str | None = None
    full_topic: str | None = None
    due_at_ms: int | None = None
    sightings: int = 0
    approved: bool = False
    begun: bool = False
    flags: Flags = Flags()
    makes_room_for: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """`guard` saw `fact`; `hint` is what the operator can do. `name` is empty where the whole plan is refused."""

    log_dir: str
    name: str
    guard: GuardName
    fact: str
    hint: str
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """Something that is not due yet, or not possible in this window; `until_ms` where that is known."""

    log_dir: str
    name: str
    action: ActionKind
    reason: str
    until_ms: int | None
    sightings: int = 0


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What came of one proposal. `freed_bytes` is what the filesystem got back."""

    outcome: Outcome
    error: str | None = None
    freed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in the order in which they are carried out."""

    plan_id: str
    made_at_ms: int
    actions: tuple[Proposal, ...]
    refusals: tuple[Refusal, ...]
    waiting: tuple[Waiting, ...] = ()
    needs_approval: Refusal | None = None

    @property
    def bytes(self) -> int:
        return sum(p.dir.bytes for p in self.actions)


Guard = Callable[[Proposal, Facts], Refusal | None]


def action_id(proposal: Proposal) -> str:
    """A stable id of one action: 12 hex digits over what identifies it."""
    return hashlib.sha256(_identifying(proposal)).hexdigest()[:12]


def plan_id(proposals: Iterable[Proposal]) -> str:
    """16 hex digits over the sorted (action, log_dir, name, device, inode, topic_id) of all actions.

    New names (they are random), sizes, times and sightings do not count: a plan made again a minute later has the same
    id exactly when it would do the same to the same directories.
    """
    digest = hashlib.sha256()
    for item in sorted(map(_identifying, proposals)):
        digest.update(len(item).to_bytes(4, "big") + item)
    return digest.hexdigest()[:16]


def _identifying(p: Proposal) -> bytes:
    d = p.dir
    parts = (p.action.value, d.log_dir, d.name, str(d.device), str(d.inode), d.topic_id or "")
    return b"\0".join(part.encode("utf-8", "surrogateescape") for part in parts)


@dataclass(frozen=True, slots=True)
class BlastRadius:
    """The limits over 24 hours: `max_dirs` directories, `max_fraction` of the host's partition dirs or bytes."""

    max_dirs: int
    max_fraction: float


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


def blast_radius(permitted: Sequence[Proposal], facts: Facts, limits: BlastRadius) -> Refusal | None:
    """Guard "blast-radius": over the plan as a whole, with what was done in the last 24 hours.

    A directory counts once, whatever was done to it (`Taken`), and not at all once an operator has approved it. One
    directory is always allowed.
    """
    counted = [p for p in permitted if p.action is not ActionKind.RESTORE and not p.approved]
    if not counted:
        return None
    taken = Taken(facts.recent)
    sizes = {key: size for key, size in taken.sizes.items() if key not in taken.approved}
    for p in counted:
        key = taken.key(p.dir)
        if key not in taken.approved:
            sizes[key] = max(p.dir.bytes, sizes.get(key, 0))
    fact = _over_limit(len(sizes), sum(sizes.values()), facts, limits) or _leaves_nothing(counted, facts)
    if fact is None:
        return None
    hint = f"read the plan; if all of it is meant, run it again with --execute --approve {plan_id(permitted)}"
    return Refusal("", "", "blast-radius", fact, hint, sum(p.dir.bytes for p in permitted))


def _over_limit(dirs: int, size: int, facts: Facts, limits: BlastRadius) -> str | None:
    if dirs <= 1:
        return None
    if dirs > limits.max_dirs:
        return f"{dirs} directories within 24 hours are more than cleanup.max_dirs = {limits.max_dirs}"
    most_dirs = limits.max_fraction * facts.partition_dirs
    if dirs > most_dirs:
        return (
            f"{dirs} of the host's {facts.partition_dirs} partition dirs within 24 hours are more than"
            f" cleanup.max_fraction = {limits.max_fraction:g}"
        )
    if size > limits.max_fraction * facts.partition_bytes:
        return (
            f"{size} of the host's {facts.partition_bytes} bytes within 24 hours are more than"
            f" cleanup.max_fraction = {limits.max_fraction:g}"
        )
    return None


def _leaves_nothing(counted: Sequence[Proposal], facts: Facts) -> str | None:
    taken = {(p.dir.log_dir, p.dir.name) for p in counted if p.dir.kind in (Kind.CURRENT, Kind.FUTURE)}
    if taken and all(key in taken for key in facts.assigned_dirs):
        return "it would leave this host without a single assigned partition dir"
    return None
