"""What can be freed on a full disk now, from the safest step to the least safe one. Decides; no I/O.

A plan like any other: every step is a `Proposal` that passes every guard before it is shown and again before it is
done. A step that shortens a wait (`cleanup.min_age`, `cleanup.stray_retention`, a delay of the queue) needs approval of
exactly that plan. The only directories offered are those marked, set aside, proven to be orphans, or duplicates of
a partition that another log dir of this host holds in full. Everything else is kept, with the reason: an only copy, an
assigned directory, anything uncertain.

**Removed files that a process keeps open** are room to be had, or may be the only copy of records. A broker never
unlinks a segment that it serves: it renames it to `.deleted` first (`LogSegment.changeFileSuffixes`), or its whole
directory to `-delete` (`LogManager.asyncDelete`). What is unlinked under another name was removed by somebody else
while the broker goes on serving it from its descriptor; a restart is what loses it. So only what has one of those
names, is below a `-stray`, in the cache of remote indexes, or in no directory at all is room, or belongs to a directory
of a topic that is proven to be gone; everything else is data at risk: of a topic that lives on other nodes, these may
lack what is here. Nobody knows whose a directory was that is gone with its `partition.metadata`, so its files are at
risk too.

**A lower `retention.ms`** on the largest topics: what it would free on this host. Only a broker can apply it. It is the
answer of `explain --what-if` (`kafka/retention/reasons.py: bytes_due`): what the next checks delete then and not now.

What a tiered topic has on this host goes by `local.retention.ms`, once it has been copied; its `retention.ms` governs
the remote copies too, so none is ever advised for a topic that may be tiered.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from logagent.base import dir_names
from logagent.base.dir_names import NEVER_DELETED, classify, is_internal, is_valid_topic
from logagent.base.records import ActionKind, DirKey, Health, Identity, Kind, PartitionDir, RemovedFile, Verdict
from logagent.base.units import Space, counted
from logagent.cleanup.plan.plan import Flags, Plan, PlanGuard, Proposal, Refusal, first_of_plan
from logagent.cleanup.plan.proposals import NewUuid, rename_away
from logagent.kafka.retention.settings import (
    RETENTION,
    UNKNOWN_CONFIGS,
    TopicConfigs,
)
from logagent.verdict.copies import Duplicate, Duplicates, needs_cover
from logagent.verdict.facts import Facts

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
    if refusal.why.code not in _WANT_A_STOP:
        return refusal
    return replace(refusal, why=replace(refusal.why, hint=_COPY_FIRST))


# How the fact of a refusal begins where only an approval is missing.
EARLY = "it would be removed early"


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
    short (this needs approval), None if it is due; `goes_at_ms`: when it goes without a rescue, None if unknown."""

    step: Step
    proposal: Proposal
    gives_back: int
    shortens: str | None = None
    goes_at_ms: int | None = None

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
    fact = f"{len(early)} of {counted(len(plan.actions), 'directory')} would be removed early ({waits})"
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
    found += [Kept(*key, _NOT_KAFKAS, size) for key, size in files]
    return sorted(found, key=lambda k: (-k.bytes, k.log_dir, k.name))


def _why_unknown(d: PartitionDir, facts: Facts) -> str | None:
    ruling = facts.rulings.get(d.key)
    return ruling.detail if ruling is not None and ruling.verdict is Verdict.UNKNOWN else None


_FREES_NOTHING = "removing it frees nothing now: the broker keeps its files open, or they have other hard links"
_NOT_KAFKAS = "a file that is not Kafka's: not for logagent to remove"
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


# What only a running broker frees

LARGEST_TOPICS = 5


@dataclass(frozen=True, slots=True)
class RetentionAdvice:
    """`gives_back`: for each retention in ms that may be set (longest first), the bytes on this host that only this
    would free: what is past the present retention does not count. `retention_ms`: the one to set; `now_ms`: the present
    one (below 0: unlimited), and where that is unknown (None) it may be lower already, and then nothing is freed.
    `policy`: its `cleanup.policy`; where that is unknown (None) it may free nothing. `setting`: which retention; of a
    tiered topic (LOCAL_RETENTION) only what was copied already is freed. `command`: the `kafka-configs.sh` line that
    sets it, for a shell."""

    topic: str
    bytes: int
    retention_ms: int
    gives_back: Mapping[int, int]
    policy: str | None = None
    now_ms: int | None = None
    setting: str = RETENTION
    command: str = ""


@dataclass(frozen=True, slots=True)
class Expired:
    """Bytes of a topic on this host that are past its retention, which a running broker deletes by itself."""

    topic: str
    bytes: int
    retention_ms: int


def loaded(dirs: Iterable[PartitionDir], facts: Facts, planned: Container[DirKey]) -> list[PartitionDir]:
    """The directories in which retention would free anything on this host: assigned replicas of topics that are
    neither internal nor `NEVER_DELETED`, in log dirs that their broker can use, without those that the plan
    removes (`planned`).

    No broker starts with two copies of a partition, so neither of them counts.
    """
    found: dict[tuple[str | None, int | None], list[PartitionDir]] = {}
    for d in dirs:
        where = facts.log_dirs.get(d.log_dir)
        if (
            d.kind is Kind.CURRENT
            and d.topic is not None
            # Topics that exist have legal names; a directory can have any.
            and is_valid_topic(d.topic)
            and not is_internal(d.topic)
            and d.topic not in NEVER_DELETED
            and not d.removal_started
            and d.key not in planned
            and where is not None
            and where.health in (Health.ONLINE, Health.FULL)
            and d.log_dir not in facts.cluster_problems
            and facts.ruling(d).verdict is Verdict.ASSIGNED
        ):
            found.setdefault((d.topic_id, d.partition), []).append(d)
    return [copies[0] for copies in found.values() if len(copies) == 1]


def advise(
    freed: Callable[[str, Mapping[str, str]], int],
    topics: Iterable[str],
    sizes: Mapping[str, int],
    need: int | None,
    configs: TopicConfigs = UNKNOWN_CONFIGS,
) -> tuple[list[RetentionAdvice], list[Expired]]:
    """Advice for each topic that could free anything, the largest gain first; and what is past the retention of its
    topic already. `freed(topic, settings)`: the bytes that the next checks delete of a topic with these settings.

    The suggested retention is the longest that frees `need` (less what is past retention); if none does, the shortest
    that frees anything; if `need` is None, the longest that frees anything. There is none if nothing more is needed.
    What a tiered topic has past its local retention does not count as needed: it may not have been copied yet.
    """
    settings = {topic: setting for topic in topics if (setting := configs.setting_of(topic)) is not None}
    past = [
        Expired(topic, size, now)
        for topic, setting in settings.items()
        if (now := configs.retention_of(topic)) is not None
        and now >= 0
        and configs.policy_of(topic) is not None
        and (size := freed(topic, {setting: str(now)})) > 0
    ]
    gone, expired = {e.topic: e.bytes for e in past}, [e for e in past if settings[e.topic] == RETENTION]
    if need is not None:
        need -= sum(e.bytes for e in expired)
        if need <= 0:
            return [], expired
    found: list[RetentionAdvice] = []
    for topic, setting in settings.items():
        gives = {step: freed(topic, {setting: str(step)}) - gone.get(topic, 0) for step in configs.steps(topic)}
        chosen = _step_to_set(gives, need)
        if chosen is not None:
            policy, present = configs.policy_of(topic), configs.retention_of(topic)
            found.append(RetentionAdvice(topic, sizes.get(topic, 0), chosen, gives, policy, present, setting))
    return sorted(found, key=lambda a: (-a.gives_back[a.retention_ms], a.topic)), expired


def _step_to_set(gives: Mapping[int, int], need: int | None) -> int | None:
    """Of the retentions, from the longest to the shortest, the one to suggest; None if none frees anything."""
    useful = [step for step in gives if gives[step] > 0]
    enough = [step for step in useful if need is None or gives[step] >= need]
    return enough[0] if enough else useful[-1] if useful else None


# What a rescue reports

# What a file system's own books take.
BOOKS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BrokersPart:
    """What only a running broker can free, of the largest topics. `local_retention`: of tiered ones. `compacted`:
    (topic, bytes, `cleanup.policy`) of those of which retention frees nothing; `no_retention`: (topic, bytes, why) of
    those for which none may be advised."""

    retention: Sequence[RetentionAdvice] = ()
    local_retention: Sequence[RetentionAdvice] = ()
    expired: Sequence[Expired] = ()
    compacted: Sequence[tuple[str, int, str]] = ()
    no_retention: Sequence[tuple[str, int, str]] = ()


@dataclass(frozen=True, slots=True)
class CameBack:
    """By how many bytes more is free now than before. `reserved`: what root's reserve took of it. `shares_blocks`:
    kinds of file systems that may keep blocks for other files. `unread`: how many did not answer before or now; nothing
    is known to have come there."""

    bytes: int
    reserved: int
    shares_blocks: tuple[str, ...]
    unread: int


@dataclass(frozen=True, slots=True)
class OpenRemoved:
    """Removed files that one process keeps open; they are freed when it ends, and nothing else is lost. `files`: the
    blocks of each, in bytes."""

    log_dir: str
    pid: int
    program: str | None
    files: Mapping[Identity, int]
    is_holder: bool

    @property
    def bytes(self) -> int:
        return sum(self.files.values())


@dataclass(frozen=True, slots=True)
class RemovedByHand:
    """A file that one process keeps open, and that may be the only copy of its records."""

    log_dir: str
    file: RemovedFile
    program: str | None
    is_holder: bool


@dataclass(frozen=True, slots=True)
class Rescue:
    """`plan`: what would be done now; `offers`: which step each of its actions is. `more`: what could be freed beyond
    the need. `unread_processes`: how many `open_removed` lacks; None: all. `free`: by log dir. `removed_by_hand`: what
    is lost when a process ends; while there is any, no stop or restart is advised. `came`: what the file system got
    back, once the plan was carried out, `expected`: the blocks of what was removed, and `kept_open`: of what was
    removed meanwhile where it acted, what processes keep open."""

    plan: Plan
    offers: dict[DirKey, Offer]
    more: int
    need: int | None
    kept: list[Kept]
    open_removed: list[OpenRemoved]
    unread_processes: int | None
    by_broker: BrokersPart
    free: dict[str, Space]
    removed_by_hand: list[RemovedByHand]
    came: CameBack | None = None
    expected: int = 0
    kept_open: int = 0

    @property
    def gives_back(self) -> int:
        return given_back(self.offers.values())

    @property
    def missing(self) -> int:
        """What of the need the plan leaves, or left when it was carried out."""
        return max(0, (self.need or 0) - (self.gives_back if self.came is None else self.came.bytes))

    @property
    def not_kafkas(self) -> list[Kept]:
        """Files and directories that no broker made, the largest first, if they are most of what is in the log dirs."""
        others = [k for k in self.kept if k.reason in (_NOT_KAFKAS, _NO_PARTITION[Kind.INVALID])]
        size, of_others = sum(k.bytes for k in self.kept), sum(k.bytes for k in others)
        plan = self.plan
        size += sum(r.allocated for r in plan.refusals if r.key.name) + sum(p.dir.allocated for p in plan.actions)
        return others if 2 * of_others > size + sum(w.dir.allocated for w in plan.waiting) else []

    @property
    def came_less(self) -> int:
        """By how many bytes less came than was removed; 0 up to what a file system's own books take."""
        lacks = self.expected - self.came.bytes if self.came is not None else 0
        return max(0, lacks - BOOKS_BYTES)


def given_back(offers: Iterable[Offer]) -> int:
    return sum(o.gives_back for o in offers)
