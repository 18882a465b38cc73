"""A plan: what would be done, what was refused and by which guard, what waits and until when. An immutable value.

A dry run prints the plan, `--execute` carries out exactly the same plan. `assemble` makes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self, get_args

from logagent.base.claims import Claim, Proof
from logagent.base.records import ActionKind, DirKey, Kind, Outcome, PartitionDir, Reason, Verdict
from logagent.verdict.facts import Facts, Ruling, StrayRuling

PlanGuard = Literal[
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
    "changeable",
    "clock",
]
"""The guards that refuse an action of a plan, or a whole plan (`logagent.plan/1`)."""
GUARD_NAMES: tuple[PlanGuard, ...] = get_args(PlanGuard)
# Items that `first_of_plan` joins again when one of them goes: 20,000 actions are 40 blocks.
_BLOCK = 512
NO_DIRECTORY: Final = DirKey("", "")
"""The key of a refusal of the whole plan."""


@dataclass(frozen=True, slots=True)
class Flags:
    """What the operator allowed explicitly. `only_copy`: a request of the fleet approves the loss of exactly this copy
    of a partition that is known. `only_deleted` forbids: a stray goes only if its topic is deleted, however well
    another copy covers it."""

    allow_assigned: bool = False
    even_last_copy: bool = False
    include_internal: bool = False
    by_topic: bool = False
    only_deleted: bool = False
    only_copy: bool = False


NO_FLAGS = Flags()


@dataclass(frozen=True, slots=True)
class Proposal:
    """A possible action on one directory, before any guard has checked it.

    `new_dir`: the directory that it moves to if that is not its own log dir (a quarantine for brokers before 3.6.1).
    `approved`: an operator approved this directory by plan id earlier. `removal_started`: part of it is gone.
    `makes_room_for`: the (log dir, name) of a restore in the same plan; both happen or neither, and `through` is where
    the displaced directory is in between. `rebuild_all`: the broker must rebuild the indexes of all restored segments,
    not only of those that need it. `duplicate`: it is assigned, but another log dir of this host has all of it, and it
    may be set aside as long as that is true. `then_removed`: the same run removes it once it is set aside. `leftovers`:
    the files in it that are removed, with `bytes` in all (`REMOVE_LEFTOVERS`); everything else in it stays.
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
    removal_started: bool = False
    flags: Flags = NO_FLAGS
    makes_room_for: DirKey | None = None
    through: DirKey | None = None
    rebuild_all: bool = False
    duplicate: bool = False
    then_removed: bool = False
    leftovers: tuple[str, ...] = ()

    @property
    def key(self) -> DirKey:
        return self.dir.key

    @property
    def on_the_way_back(self) -> bool:
        """Whether this sets a marked directory aside before a restore: the directory that it is swapped with must not
        get its `-delete` name."""
        return self.action is ActionKind.QUARANTINE and self.dir.kind is Kind.DELETE


@dataclass(frozen=True, slots=True)
class Refusal:
    """An action that is not done: `why.code` is the guard. With `NO_DIRECTORY` the whole plan is refused."""

    why: Reason
    key: DirKey = NO_DIRECTORY
    bytes: int = 0
    allocated: int = 0

    @classmethod
    def of(cls, d: PartitionDir, why: Reason) -> Self:
        return cls(why, d.key, d.bytes, d.allocated)

    @classmethod
    def of_plan(cls, fact: str, hint: str, proposals: Iterable[Proposal]) -> Self:
        """Of a whole plan that has to be approved first."""
        dirs = [p.dir for p in proposals]
        size, allocated = sum(d.bytes for d in dirs), sum(d.allocated for d in dirs)
        return cls(refused("blast-radius", fact, hint), bytes=size, allocated=allocated)


def refused(guard: PlanGuard, fact: str, hint: str, claim: Claim | None = None) -> Reason:
    """What `guard` says, with the claim that is lacking, if that is one (`base.claims`)."""
    return Reason(fact, hint, guard, claim=claim)


@dataclass(frozen=True, slots=True)
class Waiting:
    """An action that is not due yet, or not possible in this window. `why.code`: the setting, guard or verdict that it
    waits for, in one word; `why.until_ms`: the date, if there is one."""

    why: Reason
    action: ActionKind
    dir: PartitionDir
    sightings: int = 0

    @property
    def key(self) -> DirKey:
        return self.dir.key


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of one proposal. `freed_bytes` is what the file system gained: blocks, not file sizes."""

    outcome: Outcome
    error: str | None = None
    freed_bytes: int = 0


@dataclass(slots=True)
class Execution:
    """The results of a plan: one per action id, and the refusals that came up during execution."""

    results: dict[str, ActionResult] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def freed_bytes(self) -> int:
        return sum(r.freed_bytes for r in self.results.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions are in the order of execution. `strays`: the rulings on strays that the plan is based on; `proofs`: what
    each action rests on; `rulings`: the verdict on each directory, where an action needs one. `verdicts`: the
    ones that are printed, on all that the plan names. `booted_ms`: as in the facts that it was made on."""

    plan_id: str
    made_at_ms: int
    actions: tuple[Proposal, ...]
    refusals: tuple[Refusal, ...]
    waiting: tuple[Waiting, ...] = ()
    needs_approval: Refusal | None = None
    strays: Mapping[DirKey, StrayRuling] = field(default_factory=dict, compare=False)
    proofs: Mapping[DirKey, Proof] = field(default_factory=dict, compare=False)
    rulings: Mapping[DirKey, Ruling] = field(default_factory=dict, compare=False)
    booted_ms: int = field(default=0, compare=False)
    verdicts: Mapping[DirKey, Verdict] = field(default_factory=dict, compare=False)

    @property
    def allocated(self) -> int:
        return sum(p.dir.allocated for p in self.actions)


Guard = Callable[[Proposal, Facts], Reason | None]


def action_id(proposal: Proposal) -> str:
    """A stable id of one action: 12 hex digits over what identifies it."""
    return hashlib.sha256(_identifying(proposal)).hexdigest()[:12]


def plan_id(proposals: Iterable[Proposal]) -> str:
    """16 hex digits over the sorted (action, log_dir, name, device, inode, topic_id) of all actions, for a restored
    directory which restore that was (an approval left in a script or a shell history then no longer matches), and
    whether what is set aside is then removed (an approval to set it aside does not cover that), and whether that is
    because of its copy (which is not why an orphan goes).

    New names (they are random), sizes, times and sightings do not count: a plan made again a minute later has the same
    id exactly if it would do the same to the same directories.
    """
    items = sorted(map(_identifying, proposals))
    return _id_of(hashlib.sha256(b"".join(map(_framed, items))))


def first_of_plan(proposals: Sequence[Proposal], id_: str) -> int | None:
    """How many of the first `proposals` the plan with id `id_` has, the most first; None if there is no such number.

    As fast as thousands of them need: from one number to the next only one item goes, and what was hashed before it is
    not hashed again.
    """
    items = [_identifying(p) for p in proposals]
    order = sorted(range(len(items)), key=items.__getitem__)
    place = {index: number for number, index in enumerate(order)}
    blocks = [[_framed(items[index]) for index in order[at : at + _BLOCK]] for at in range(0, len(order), _BLOCK)]
    joined = [b"".join(block) for block in blocks]
    hashed = [hashlib.sha256()]  # before each block, and at the end
    for count in range(len(items), 0, -1):
        for block in joined[len(hashed) - 1 :]:
            after = hashed[-1].copy()
            after.update(block)
            hashed.append(after)
        if _id_of(hashed[-1]) == id_:
            return count
        number, within = divmod(place[count - 1], _BLOCK)
        blocks[number][within] = b""
        joined[number] = b"".join(blocks[number])
        del hashed[number + 1 :]
    return None


def _framed(item: bytes) -> bytes:
    return len(item).to_bytes(4, "big") + item


def _id_of(digest: hashlib._Hash) -> str:
    return digest.hexdigest()[:16]


def _identifying(p: Proposal) -> bytes:
    d = p.dir
    parts = [p.action.value, d.log_dir, d.name, str(d.device), str(d.inode), d.topic_id or ""]
    parts += [str(d.brought_back.action)] if d.brought_back is not None else []
    parts += ["then removed"] if p.then_removed else []
    parts += ["double"] if p.duplicate else []
    parts += p.leftovers
    return "\0".join(parts).encode("utf-8", "surrogateescape")


NextStep = Proposal | Refusal | Waiting


def next_steps(
    actions: Iterable[Proposal], refusals: Iterable[Refusal], waiting: Iterable[Waiting]
) -> dict[DirKey, NextStep]:
    """By directory: what is done, why that is refused, or what it waits for."""
    steps: dict[DirKey, NextStep] = {w.key: w for w in waiting}
    steps |= {r.key: r for r in refusals if r.key.name}
    return steps | {p.key: p for p in actions}
