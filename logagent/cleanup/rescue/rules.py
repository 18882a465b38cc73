"""What can be freed on a full disk now, from the safest step to the least safe one. Decides; no I/O.

A plan like any other: every step is a `Proposal` that passes every guard before it is shown and again before it is
done. A step that shortens a wait (`cleanup.min_age`, `cleanup.stray_retention`, a delay of the queue) needs approval of
exactly that plan. The only directories offered are those marked, set aside, proven to be orphans, or doubles of a
partition that another log dir of this host holds in full. Everything else is kept, with the reason: an only copy, an
assigned directory, anything uncertain.

Which removed files that a process keeps open are room to be had, and which may be the only copy of records.

A broker never unlinks a segment that it serves: it renames it to `.deleted` first (`LogSegment.changeFileSuffixes`), or
its whole directory to `-delete` (`LogManager.asyncDelete`). What is unlinked under another name was removed by somebody
else while the broker goes on serving it from its descriptor; a restart is what loses it. So only what has one of those
names, is below a `-stray`, in the cache of remote indexes, or in no directory at all is room, or belongs to a directory
of a topic that is proven to be gone; everything else is data at risk: of a topic that lives on other nodes, these may
lack what is here. Nobody knows whose a directory was that is gone with
its `partition.metadata`, so its files are at risk too. Decides; no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from logagent.base import dir_names
from logagent.base.dir_names import classify
from logagent.base.records import ActionKind, DirKey, Kind, PartitionDir, RemovedFile, Verdict
from logagent.cleanup.plan.plan import Flags, Plan, PlanGuard, Proposal, Refusal, first_of_plan
from logagent.cleanup.plan.proposals import NewUuid, rename_away
from logagent.verdict.duplicates import Duplicate, Duplicates
from logagent.verdict.facts import Facts
from logagent.verdict.strays import needs_cover

_ROOM = frozenset({Kind.STRAY, Kind.DELETE, Kind.CACHE})
# Their hints are to stop the broker, or whatever uses the log dir.
_WANT_A_STOP: frozenset[PlanGuard] = frozenset({"lock", "window"})
_COPY_FIRST = "copy what was removed by hand (/proc/PID/fd/N, see removed_by_hand) before anything restarts"


def at_risk(facts: Facts) -> list[tuple[str, RemovedFile]]:
    """What is lost when a process ends, with its log dir, in the order of its names."""
    found = [(path, file) for path, where in facts.log_dirs.items() for file in where.open_removed]
    found = [(path, file) for path, file in found if not _is_room(path, file, facts)]
    return sorted(found, key=lambda f: (f[0], f[1].path, f[1].pid, f[1].fd))


def _is_room(log_dir: str, file: RemovedFile, facts: Facts) -> bool:
    if file.path.endswith(".deleted"):
        return True
    name, below, _ = file.path.partition("/")
    if not below:
        return True  # a plain file in the log dir: of no partition
    if classify(name).kind in _ROOM:
        return True
    ruling = facts.rulings.get(DirKey(log_dir, name))
    return ruling is not None and ruling.verdict is Verdict.ORPHAN and not needs_cover(ruling)


def without_a_stop(refusal: Refusal) -> Refusal:
    """`refusal` with a hint that does not lead to a loss, while anything is at risk."""
    return replace(refusal, hint=_COPY_FIRST) if refusal.guard in _WANT_A_STOP else refusal


class Step(StrEnum):
    """The steps, in the order in which they are taken."""

    MARKED = "marked"
    STRAY_PAST_RETENTION = "stray-past-retention"
    STRAY_WITHIN_RETENTION = "stray-within-retention"
    LEFTOVERS = "leftovers"
    ORPHAN = "orphan"
    DUPLICATE = "double"


_COSTS: Mapping[Step, str] = {
    Step.MARKED: "none: it was deleted already, and only its files are left",
    Step.STRAY_PAST_RETENTION: "it can no longer be restored; its retention is over",
    Step.STRAY_WITHIN_RETENTION: "it can no longer be restored, although its retention is not over",
    Step.LEFTOVERS: "what retention or compaction took, and its broker drops at its next start; after a retention that"
    " was set by mistake these files are the last copy",
    Step.ORPHAN: "it is removed at once, without the period in which an orphan can be restored",
    Step.DUPLICATE: "this host keeps one copy of the partition, in the other log dir",
}


@dataclass(frozen=True, slots=True)
class Offer:
    """One step on one directory. `gives_back`: bytes that its file system gains. `shortens`: the wait that would be cut
    short (this needs approval), None if it is due."""

    step: Step
    proposal: Proposal
    gives_back: int
    shortens: str | None = None

    @property
    def key(self) -> DirKey:
        return self.proposal.dir.key

    @property
    def helps(self) -> bool:
        """Whether it helps to meet a need: it gives something back. A removal that has begun counts all the same."""
        return bool(self.gives_back) or self.proposal.removal_started

    @property
    def cost(self) -> str:
        if self.step is Step.MARKED and self.shortens is not None and not self.proposal.removal_started:
            return "it can no longer be restored, although its delay is not over"
        return _COSTS[self.step]


@dataclass(frozen=True, slots=True)
class Kept:
    """A directory or file that is not offered, and why. `detail`: the fact behind it that concerns only this one."""

    log_dir: str
    name: str
    reason: str
    bytes: int
    detail: str | None = None


def in_order(offers: Iterable[Offer]) -> list[Offer]:
    """From safest to least safe; within a step, what has waited longest comes first."""
    order = {step: number for number, step in enumerate(Step)}
    return sorted(offers, key=lambda o: (order[o.step], o.shortens is not None, o.proposal.due_at_ms or 0, o.key))


def up_to(offers: Sequence[Offer], need: int | None) -> list[Offer]:
    """The first offers that help and together free `need` bytes; all that help if they do not suffice; all if `need` is
    None."""
    if need is None:
        return list(offers)
    chosen: list[Offer] = []
    given = 0
    for offer in offers:
        if not offer.helps:
            continue
        if given >= need:
            break
        chosen.append(offer)
        given += offer.gives_back
    return chosen


def approved(offers: Sequence[Offer], approve: str) -> list[Offer] | None:
    """The offers of the plan with id `approve`, which are the first ones in order (of those that help to meet a need,
    if there was one); None if there is no such plan (any more)."""
    helpful = [o for o in offers if o.helps]
    for some in (offers, helpful) if len(helpful) < len(offers) else (offers,):
        count = first_of_plan([o.proposal for o in some], approve)
        if count is not None:
            return [replace(o, proposal=replace(o.proposal, approved=True)) for o in some[:count]]
    return None


def with_approval(plan: Plan, offers: Mapping[DirKey, Offer], approve: str | None) -> Plan:
    """`plan`, made to need approval if anything in it would be removed early."""
    early = [o for p in plan.actions if (o := offers[p.dir.key]).shortens is not None]
    if approve is not None or not early or plan.needs_approval is not None:
        return plan
    waits = ", ".join(dict.fromkeys(o.shortens for o in early if o.shortens is not None))
    fact = f"{len(early)} of {len(plan.actions)} directories would be removed early ({waits})"
    hint = f"read the plan; if it is what you want, run it again with --execute --approve {plan.plan_id}"
    if len(early) < len(plan.actions):
        hint += "; --execute alone removes only what is due"
    stop = Refusal.of_plan(fact, hint, [o.proposal for o in early])
    return replace(plan, refusals=(*plan.refusals, stop), needs_approval=stop)


def offer_leftovers(d: PartitionDir, names: Sequence[str], size: int) -> Offer:
    """Always with an approval, which lists the files."""
    files = replace(d, bytes=size, allocated=size, files=len(names))
    what = Proposal(ActionKind.REMOVE_LEFTOVERS, files, "dropped at its broker's next start", leftovers=tuple(names))
    return Offer(Step.LEFTOVERS, what, size, "files that a start would drop: may be the last copy after a mistake")


def offer_duplicate(duplicate: Duplicate, gives_back: int, new_uuid: NewUuid, flags: Flags, facts: Facts) -> Offer:
    away = rename_away(
        duplicate.dir,
        is_stray=True,
        reason=f"duplicate of {duplicate.other.log_dir}/{duplicate.other.name}",
        new_uuid=new_uuid,
        quarantine_dir=facts.quarantine_dirs.get(duplicate.dir.log_dir),
        flags=flags,
    )
    return Offer(
        Step.DUPLICATE, replace(away, duplicate=True, then_removed=True), gives_back, "a second copy is removed"
    )


# What is kept


def kept(
    dirs: Iterable[PartitionDir],
    files: Iterable[tuple[DirKey, int]],
    facts: Facts,
    concerned: Iterable[DirKey],
    duplicates: Duplicates,
    idle: Iterable[PartitionDir] = (),
) -> list[Kept]:
    """Everything in the log dirs that is not `concerned` (offered, refused or waiting), largest first, with the reason.
    `files`: plain files in them, with their bytes; `idle`: what is concerned, but does not help to meet the need."""
    known = frozenset(concerned)
    details = duplicates.kept | duplicates.covering
    found = [
        Kept(
            d.log_dir,
            d.name,
            _why_kept(d, facts, duplicates),
            d.allocated,
            details.get(d.key) or d.error or _why_unknown(d, facts),
        )
        for d in dirs
        if d.kind not in (Kind.STRAY, Kind.DELETE) and d.key not in known
    ]
    found += [Kept(d.log_dir, d.name, _FREES_NOTHING, d.allocated) for d in idle]
    found += [Kept(*key, "a file that is not Kafka's: not for logagent to remove", size) for key, size in files]
    return sorted(found, key=lambda k: (-k.bytes, k.log_dir, k.name))


def _why_unknown(d: PartitionDir, facts: Facts) -> str | None:
    ruling = facts.rulings.get(d.key)
    return ruling.detail if ruling is not None and ruling.verdict is Verdict.UNKNOWN else None


_FREES_NOTHING = "removing it frees nothing now: the broker keeps its files open, or they have other hard links"
_NO_PARTITION = {
    Kind.INVALID: "not a partition directory: not for logagent to remove",
    Kind.CACHE: "the broker's cache of remote indexes",
    Kind.METADATA: "the metadata log",
}


def _why_kept(d: PartitionDir, facts: Facts, duplicates: Duplicates) -> str:
    if d.kind in _NO_PARTITION:
        return _NO_PARTITION[d.kind]
    ruling = facts.ruling(d)
    if d.topic is not None and dir_names.is_internal(d.topic) and ruling.verdict is not Verdict.ASSIGNED:
        return f"internal topic ({ruling.reason or ruling.verdict.value})"
    if ruling.verdict is Verdict.ASSIGNED:
        return "assigned: the only live copy" if ruling.last_copy and d.key not in duplicates.covering else "assigned"
    return f"{ruling.verdict.value}: {ruling.reason or 'no verdict'}"


def removal_of(set_aside: PartitionDir, before: Proposal) -> Proposal:
    """The removal with which an approved rescue continues after it has set a directory aside."""
    return Proposal(
        ActionKind.REMOVE,
        set_aside,
        before.reason,
        full_topic=before.full_topic,
        approved=before.approved,
        flags=before.flags,
        duplicate=before.duplicate,
    )
