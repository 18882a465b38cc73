"""A plan: what would be done, what was refused and by which guard, what waits and until when. An immutable value.

A dry run prints the plan, `--execute` carries out the very same one. `assemble` makes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from logagent.model.facts import Facts
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
    `approved`: an operator allowed this very directory by plan id in an earlier step. `begun`: something of it is gone.
    `makes_room_for`: the (log dir, name) of a restore in the same plan; the two happen together or not at all, and
    `through` is where what is displaced stands in between. `rebuild_all`: the broker is to rebuild the indexes of all
    segments of what is restored, not only of those that need it.
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
    through: tuple[str, str] | None = None
    rebuild_all: bool = False

    @property
    def on_the_way_back(self) -> bool:
        """A marked directory that is set aside first, for what it changes places with must bear no `-delete` name."""
        return self.action is ActionKind.QUARANTINE and self.dir.kind is Kind.DELETE


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


@dataclass(slots=True)
class Execution:
    """What came of a plan: a result per action id, and the refusals that came up on the way."""

    results: dict[str, ActionResult] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def freed_bytes(self) -> int:
        return sum(r.freed_bytes for r in self.results.values())


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
