"""What is due on a host, and what waits for what. Cleanup, the queue, prestart, rescue and the snapshot choose from
this one answer; `Session.due` gathers what it rests on.

Marked directories wait for `file.delete.delay.ms`, strays for `cleanup.stray_retention`, orphans for
`cleanup.sightings`, `cleanup.min_age` and the broker's next stop; what failed waits before the next try. While the
clock is in doubt no age counts, so nothing is due.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from logagent.base.claims import Claim
from logagent.base.records import LIVE_KINDS, ActionKind, DirKey, Kind, PartitionDir, Verdict
from logagent.cleanup.plan.assemble import RecentDirs
from logagent.cleanup.plan.plan import NO_FLAGS, Flags, Proposal, Waiting
from logagent.cleanup.plan.proposals import NewUuid, rename_away
from logagent.cleanup.plan.queue import (
    Attempts,
    Corrected,
    QueueEntry,
    RemovalIntents,
    as_written,
    backoff_ms,
    full_topic,
    marked_at_ms,
    removal_has_started,
)
from logagent.verdict.facts import Facts, LogDirFacts, Ruling
from logagent.verdict.marks import Mark
from logagent.verdict.sightings import Sighting, of_directory

# Later than any clock: every wait is over by then.
_WAITS_OVER_MS = 1 << 62
# The rule of a wait after a failed removal.
RETRY = "retry"


class Ages(NamedTuple):
    """The sightings and the minimum age, in ms, that `cleanup.*` requires of an orphan."""

    sightings: int
    min_age_ms: int


AT_ONCE = Ages(0, 0)


@dataclass(frozen=True, slots=True)
class Candidates:
    """What may fall due, and what the journal knows of it. `queue`: the marked directories, in their order. `dirs`: the
    inventory. `retention_ms`: of strays; `stray_verdicts`: on each of them. `never_shown`: topic ids that the metadata
    log of this host never had. `doubt`: why no age can be trusted now, if so. `flags`: what the operator allowed."""

    queue: Sequence[QueueEntry] = ()
    dirs: Sequence[PartitionDir] = ()
    marks: Mapping[DirKey, Mark] = field(default_factory=dict)
    removal_intents: RemovalIntents = field(default_factory=dict)
    failures: Mapping[DirKey, Attempts] = field(default_factory=dict)
    sightings: Mapping[DirKey, Sighting] = field(default_factory=dict)
    retention_ms: int = 0
    ages: Ages = AT_ONCE
    corrected: Corrected = as_written
    doubt: str | None = None
    flags: Flags = NO_FLAGS
    never_shown: Collection[str] = ()
    stray_verdicts: Mapping[DirKey, Ruling] = field(default_factory=dict)


class DuePart(NamedTuple):
    """Of one kind: what is due, in the order in which it goes, and what waits."""

    due: list[Proposal]
    waiting: list[Waiting]


@dataclass(frozen=True, slots=True)
class Due:
    """`marked` and `strays` are removed, `orphans` set aside; removals come first, because they free space."""

    marked: DuePart
    strays: DuePart
    orphans: DuePart

    @property
    def proposals(self) -> list[Proposal]:
        return [*self.marked.due, *self.strays.due, *self.orphans.due]

    @property
    def waiting(self) -> list[Waiting]:
        return [*self.marked.waiting, *self.strays.waiting, *self.orphans.waiting]


def what_is_due(known: Candidates, facts: Facts, new_uuid: NewUuid, *, waits_over: bool = False) -> Due:
    """What is due at `facts.now_ms`. `waits_over`: as if every delay, retention, minimum age and pause after a failure
    were over and the clock were right; what remains waiting waits for something other than time."""
    now_ms, retention_ms, ages = facts.now_ms, known.retention_ms, known.ages
    if waits_over:
        now_ms, retention_ms, ages = _WAITS_OVER_MS, 0, AT_ONCE
    kept, queue = kept_while_offline(known.queue, facts)
    parts = [
        removals(queue, now_ms, facts.log_dirs),
        strays(known, retention_ms, now_ms),
        orphans(known, ages, facts, new_uuid),
    ]
    if known.doubt is not None and not waits_over:
        parts = [
            DuePart([], [*_held_back(part.due, "clock", known.doubt, Claim.CLOCK), *part.waiting]) for part in parts
        ]
    marked, of_strays, of_orphans = parts
    return Due(DuePart(marked.due, [*kept, *marked.waiting]), of_strays, of_orphans)


def until_counted(marked: DuePart, facts: Facts) -> DuePart:
    """Before the first whole inventory: only what the blast radius has already counted is due."""
    new = _uncounted(marked.due, facts)
    waiting = [*marked.waiting, *_held_back(new, "first-inventory", "the first whole inventory", None)]
    return DuePart([p for p in marked.due if p not in new], waiting)


def removals(
    queue: Iterable[QueueEntry], now_ms: int, log_dirs: Mapping[str, LogDirFacts] = MappingProxyType({})
) -> DuePart:
    """Marked directories: those that are due, oldest first, and those that wait, beside a running broker for that."""
    proposals: list[Proposal] = []
    waiting: list[Waiting] = []
    for entry in queue:
        ready_at = max(entry.due_at_ms, entry.marked_at_ms)
        if ready_at <= now_ms:
            reason = "removal started" if entry.removal_started else f"marked by {entry.owner}"
            proposals.append(
                Proposal(
                    ActionKind.REMOVE,
                    entry.dir,
                    reason,
                    full_topic=entry.full_topic,
                    due_at_ms=entry.due_at_ms,
                    approved=entry.approved,
                    removal_started=entry.removal_started,
                )
            )
        else:
            rule, why = _after(entry.attempts) if entry.attempts else ("file.delete.delay.ms", None)
            goes_at = entry.goes_at_ms(log_dirs.get(entry.dir.log_dir))
            if goes_at != entry.due_at_ms:
                by_broker = "the running broker removes it"
                if goes_at <= now_ms:
                    by_broker = "the running broker was to remove it then and has not: its log says why"
                ready_at, why = goes_at, by_broker if why is None else f"{why}; {by_broker}"
            waiting.append(_waits(entry.dir, ActionKind.REMOVE, rule, ready_at, why=why, claim=Claim.KEPT))
    return DuePart(proposals, waiting)


def kept_while_offline(queue: Sequence[QueueEntry], facts: Facts) -> tuple[list[Waiting], list[QueueEntry]]:
    """Returns the removals that wait while a log dir is not seen (what the broker marked), and the rest of the queue.

    The source of a finished move between log dirs is marked; if the target has failed, it is the node's only readable
    copy. (A broker that starts purges it all the same.)
    """
    kept = [e for e in queue if e.owner == "broker" and not e.removal_started]
    hidden = facts.not_seen() if kept else None
    if hidden is None:
        return [], list(queue)
    why = f"{hidden.fact}: this may be the source of a move to it; {hidden.hint}"
    waiting = [
        _waits(e.dir, ActionKind.REMOVE, "log-dir-not-seen", None, why=why, claim=Claim.CONFIGURATION) for e in kept
    ]
    return waiting, [e for e in queue if e.owner != "broker" or e.removal_started]


def stray_due_ms(set_aside_ms: int, retention_ms: int, *, started: bool = False) -> int:
    """When a stray is due that was set aside at that time. The fleet says the same of one whose agent says nothing
    (`fleet.report.answers`); `tests/verdict_table.py` holds the two equal."""
    return set_aside_ms if started else set_aside_ms + retention_ms


def strays(known: Candidates, retention_ms: int, now_ms: int) -> DuePart:
    """Strays past their retention, and those that wait. For what the broker set aside, retention counts from the ctime,
    and what its metadata log never knew waits for as long as an orphan, too: it may be of another cluster.

    After a failed removal, a stray waits as long as a marked directory does.
    """
    proposals: list[Proposal] = []
    waiting: list[Waiting] = []
    found = [(marked_at_ms(d, known.marks.get(d.key), known.corrected), d) for d in known.dirs if d.kind is Kind.STRAY]
    for at, d in sorted(found, key=lambda dated: (dated[0], dated[1].key)):
        mark, failed = known.marks.get(d.key), known.failures.get(d.key)
        started = removal_has_started(d, known.removal_intents)
        strange = mark is None and d.topic_id in known.never_shown
        kept_ms = max(retention_ms, known.ages.min_age_ms) if strange else retention_ms
        due_at = stray_due_ms(at, kept_ms, started=started)
        if failed is not None and due_at <= now_ms < failed.last_at_ms + backoff_ms(failed.count):
            until, (rule, why) = failed.last_at_ms + backoff_ms(failed.count), _after(failed)
            waiting.append(_waits(d, ActionKind.REMOVE, rule, until, why=why, claim=Claim.KEPT))
        elif max(due_at, at) <= now_ms:
            proposals.append(
                Proposal(
                    ActionKind.REMOVE,
                    d,
                    "removal started" if started else "stray-retention",
                    full_topic=full_topic(d, mark),
                    due_at_ms=due_at,
                    approved=mark is not None and mark.approved,
                    removal_started=started,
                    flags=known.flags,
                )
            )
        else:
            waiting.append(_kept(d, max(due_at, at), known.stray_verdicts.get(d.key)))
    return DuePart(proposals, waiting)


def _kept(stray: PartitionDir, until_ms: int, ruling: Ruling | None) -> Waiting:
    """The end of its retention is a date only if its verdict, as it is now, lets it go then."""
    if ruling is None or ruling.verdict is not Verdict.UNKNOWN:
        return _waits(stray, ActionKind.REMOVE, "stray-retention", until_ms, claim=Claim.KEPT)
    why = f"whose it is is not known ({ruling.reason}: {ruling.detail}), which stray-retention does not change"
    return _waits(stray, ActionKind.REMOVE, ruling.reason or "unknown", None, why=why, claim=Claim.KEPT)


def _after(failed: Attempts) -> tuple[str, str]:
    """Rule and reason of the wait after a failed removal."""
    return RETRY, f"retry after: {failed.last_error}"


def orphans(known: Candidates, ages: Ages, facts: Facts, new_uuid: NewUuid) -> DuePart:
    """Proven orphans: those old enough and seen often enough are quarantined, the others wait."""
    proposals: list[Proposal] = []
    waiting: list[Waiting] = []
    for d in known.dirs:
        if d.kind not in LIVE_KINDS:
            continue
        ruling = facts.ruling(d)
        if ruling.verdict is not Verdict.ORPHAN:
            continue
        seen = of_directory(known.sightings.get(d.key), d, ruling.reason or "", facts.now_ms)
        count = seen.count if seen is not None else 0
        until = seen.first_ms + ages.min_age_ms if seen is not None else facts.now_ms + ages.min_age_ms
        reason = ruling.reason or "orphan"
        if count < ages.sightings or until > facts.now_ms:
            why = f"{reason}: seen {count} of {ages.sightings} times"
            if count >= ages.sightings:
                why = f"{reason}: waits for cleanup.min_age"
            until, rule = max(until, facts.now_ms), "sightings" if count < ages.sightings else "min_age"
            waiting.append(_waits(d, ActionKind.QUARANTINE, rule, until, count, why=why, claim=Claim.STOOD))
        elif _broker_there(facts, d.log_dir):
            why = f"{reason}: waiting for the broker's next stop"
            waiting.append(_waits(d, ActionKind.QUARANTINE, "window", None, count, why=why, claim=Claim.STOPPED))
        else:
            quarantine, flags = facts.quarantine_dirs.get(d.log_dir), known.flags
            away = rename_away(
                d, is_stray=True, reason=reason, new_uuid=new_uuid, quarantine_dir=quarantine, flags=flags
            )
            proposals.append(replace(away, due_at_ms=until, sightings=count))
    return DuePart(proposals, waiting)


def _uncounted(proposals: Sequence[Proposal], facts: Facts) -> list[Proposal]:
    """The proposals that would add to the blast radius of the last 24 hours.

    The others were renamed by us within that time and counted then, so their removal adds nothing, however small the
    host is. A single directory is always allowed.
    """
    if len(proposals) == 1 and not facts.recent:
        return []
    taken = RecentDirs(facts.recent)
    return [p for p in proposals if not p.approved and taken.key(p.dir) not in taken.sizes]


def _held_back(proposals: Iterable[Proposal], rule: str, why: str, claim: Claim | None) -> list[Waiting]:
    """Make all proposals wait, for a reason that concerns the whole cycle."""
    return [_waits(p.dir, p.action, rule, None, p.sightings, why=why, claim=claim) for p in proposals]


def _waits(
    d: PartitionDir,
    action: ActionKind,
    rule: str,
    until_ms: int | None,
    sightings: int = 0,
    *,
    why: str | None = None,
    claim: Claim | None = None,
) -> Waiting:
    """`why`: where the rule's name does not say it."""
    return Waiting(d.log_dir, d.name, action, rule, why or rule, until_ms, sightings, d.bytes, d.allocated, claim)


def _broker_there(facts: Facts, log_dir: str) -> bool:
    where = facts.log_dirs.get(log_dir)
    return where is not None and where.holder.state.is_broker
