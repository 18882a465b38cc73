"""What is due on a host, and what waits for what: one answer, from values alone, for cleanup, the queue, prestart,
rescue and the snapshot; `Session.due` gathers what it rests on. `Planner` chooses from it: what is in the queue, what
is due, a plan, and what is said of one directory.

Marked directories wait for `file.delete.delay.ms`, strays for `cleanup.stray_retention`, orphans for
`cleanup.sightings`, `cleanup.min_age` and the broker's next stop; what failed waits before the next try. While the
clock is in doubt no age counts, so nothing is due.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

from logagent.base.claims import Claim
from logagent.base.records import LIVE_KINDS, ActionKind, DirKey, Health, Kind, PartitionDir, Reason, Verdict
from logagent.base.units import counted
from logagent.cleanup.plan.assemble import BlastRadius, RecentDirs, assemble
from logagent.cleanup.plan.guards import GUARDS, online
from logagent.cleanup.plan.plan import NO_FLAGS, Flags, NextStep, Plan, Proposal, Refusal, Waiting, next_steps
from logagent.cleanup.plan.proposals import NewUuid, not_online, rename_away
from logagent.cleanup.plan.queue import (
    Attempts,
    Corrected,
    QueueEntry,
    Recalled,
    RemovalIntents,
    as_written,
    backoff_ms,
    for_removal,
    full_topic,
    marked_at_ms,
    queue_of,
    removal_has_started,
)
from logagent.verdict.clock_doubt import TRUST_CLOCK
from logagent.verdict.copies import needs_cover
from logagent.verdict.facts import Facts, LogDirFacts, Ruling
from logagent.verdict.marks import Mark, Sighting, of_directory

Window = Literal["now", "restart", "approval", "later"]
_OPENS: dict[str, Window] = {
    "window": "restart",
    "in-use": "restart",
    "policy": "approval",
    "assigned": "approval",
    "blast-radius": "approval",
}
"""What lifts a guard's refusal: the broker's next restart, or a person's approval. The other guards refuse until
something is fixed."""


@dataclass(frozen=True, slots=True)
class Told:
    """What every command says of one directory: the verdict and what it rests on (None for what has none), how it got
    its name, and how often it was seen as an orphan.

    `step`: what is done next, why that is refused, or what it waits for; None where nothing was planned, or nothing is
    done with it. `goes_at_ms`: when it goes, or went due; None if no date is known. `stop`: what has to be approved
    first. `covered`: `StrayRuling.covered`. The fleet's page shows step and date as the host says them; the host
    decides again when somebody acts on it."""

    dir: PartitionDir
    ruling: Ruling | None
    mark: Mark | None
    sighting: Sighting | None
    step: NextStep | None = None
    goes_at_ms: int | None = None
    stop: Refusal | None = None
    covered: Literal["yes", "no", "unknown"] | None = None

    @property
    def verdict(self) -> Verdict | None:
        return self.ruling.verdict if self.ruling is not None else None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """In order of weight: why it cannot be trusted at all, why its verdict is what it is, and what keeps its next
        step from being taken."""
        unread = Reason(self.dir.error, code="error") if self.dir.error is not None else None
        r = self.ruling
        why = Reason(r.detail or r.reason, code=r.reason) if r is not None and r.reason is not None else None
        return tuple(reason for reason in (unread, why, self.obstacle) if reason is not None)

    @property
    def obstacle(self) -> Reason | None:
        """What keeps the next step from being taken: the rule, or the guard that refuses it."""
        match self.step:
            case Waiting() as w:
                return w.why
            case Refusal() as r:
                return replace(r.why, until_ms=self.goes_at_ms)
        return self.stop.why if self.step is not None and self.stop is not None else None

    @property
    def window(self) -> Window | None:
        """When the next step (set aside, mark, remove) is possible: `now`, at the broker's next `restart`, with a
        person's `approval`, `later` (at `goes_at_ms`); None if something has to be fixed first, or there is none."""
        match self.step:
            case Proposal():
                return "now" if self.stop is None else "approval"
            case Waiting() | Refusal() if self.goes_at_ms is not None:
                return "later"
        obstacle = self.obstacle
        return _OPENS.get(obstacle.code) if obstacle is not None else None


@dataclass(frozen=True, slots=True)
class Planner:
    """`dirs`: the inventory; `recalled`: what the journal says of it; `evidence`: whose each directory is, and what
    else the guards decide on. `delay_ms`: `file.delete.delay.ms`, `broker_delay_ms`: the broker's own; the other
    figures are those of `cleanup.*`. `spared`: log dirs that are left out. Once there is a plan (`after`), `steps`: the
    next one of each directory, `stop`: what has to be approved first, `marked`: the queue."""

    dirs: Sequence[PartitionDir]
    recalled: Recalled
    evidence: Facts
    delay_ms: int
    broker_delay_ms: int
    leftover_grace_ms: int
    retention_ms: int
    sightings: int
    min_age_ms: int
    max_dirs: int
    max_fraction: float
    new_uuid: NewUuid
    spared: frozenset[str] = frozenset()
    steps: Mapping[DirKey, NextStep] = field(default_factory=dict)
    stop: Refusal | None = None
    marked: Mapping[DirKey, QueueEntry] = field(default_factory=dict)

    def queue(self) -> list[QueueEntry]:
        """What is marked for deletion, in the order in which it falls due."""
        return queue_of(
            self.dirs,
            self.recalled,
            delay_ms=self.delay_ms,
            leftover_grace_ms=self.leftover_grace_ms,
            broker_delay_ms=self.broker_delay_ms,
        )

    def due(
        self,
        flags: Flags = NO_FLAGS,
        *,
        sightings: Mapping[DirKey, Sighting] | None = None,
        waits_over: bool = False,
    ) -> Due:
        """What is due on this host, and what waits (`what_is_due`). `sightings`: those that count (default: those of
        earlier cycles). `waits_over`: as if all time had passed."""
        recalled, doubt = self.recalled, self.recalled.doubt
        known = Candidates(
            queue=self.queue(),
            dirs=self.dirs,
            marks=for_removal(recalled.marks),
            removal_intents=recalled.removal_intents,
            failures=recalled.failures,
            sightings=recalled.sightings if sightings is None else sightings,
            retention_ms=self.retention_ms,
            ages=Ages(self.sightings, self.min_age_ms),
            corrected=recalled.corrected,
            doubt=f"{doubt.why} ({TRUST_CLOCK})" if doubt is not None else None,
            flags=flags,
            never_shown=self.evidence.never_shown,
            stray_verdicts=self.evidence.stray_verdicts,
        )
        return what_is_due(known, self.evidence, self.new_uuid, waits_over=waits_over)

    def after(self, plan: Plan | Due) -> Planner:
        """The same, which says of each directory what `plan` does with it, too."""
        marked = {e.dir.key: e for e in self.queue()}
        if isinstance(plan, Due):
            return replace(self, steps=next_steps(plan.proposals, (), plan.waiting), marked=marked)
        evidence = replace(self.evidence, strays=plan.strays)
        steps = next_steps(plan.actions, plan.refusals, plan.waiting)
        return replace(self, evidence=evidence, steps=steps, stop=plan.needs_approval, marked=marked)

    def says(self, d: PartitionDir) -> Told:
        key, recalled, step = d.key, self.recalled, self.steps.get(d.key)
        stop = self.stop if isinstance(step, Proposal) and not step.approved else None
        stray = self.evidence.strays.get(key) if not isinstance(step, Waiting) else None
        return Told(
            d,
            self.evidence.verdict_on(d),
            recalled.marks.get(key),
            recalled.sightings.get(key),
            step,
            self._goes_at_ms(d, step),
            stop,
            stray.covered if stray is not None else None,
        )

    def _goes_at_ms(self, d: PartitionDir, step: NextStep | None) -> int | None:
        match step:
            case Proposal():
                return step.due_at_ms
            case Waiting():
                return step.why.until_ms
            case Refusal(why=Reason(code="window")) if (entry := self.marked.get(d.key)) is not None:
                # It is not refused, but left to the broker, which removes it itself.
                return entry.goes_at_ms(self.evidence.log_dirs.get(d.log_dir))
        return None

    @property
    def limits(self) -> BlastRadius:
        return BlastRadius(self.max_dirs, self.max_fraction)

    def plan(
        self,
        proposals: Sequence[Proposal],
        waiting: Sequence[Waiting] = (),
        refusals: Sequence[Refusal] = (),
        *,
        approve: str | None = None,
    ) -> Plan:
        """The plan of `proposals` (`assemble`), on evidence that has been asked about each that goes."""
        return assemble(
            [p for p in proposals if p.dir.log_dir not in self.spared],
            [w for w in waiting if w.dir.log_dir not in self.spared],
            self.evidence,
            GUARDS,
            self.limits,
            approve=approve,
            refusals=refusals,
        )


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
        held = "clock", known.doubt, "the clock is trusted", Claim.CLOCK
        parts = [DuePart([], [*_held_back(part.due, *held), *part.waiting]) for part in parts]
    (marked, late), *others = parts
    whole = DuePart(marked, [*kept, *late]), *others
    return Due(*(DuePart(part.due, _waiting_online(part.waiting, facts)) for part in whole))


def _waiting_online(waiting: Iterable[Waiting], facts: Facts) -> list[Waiting]:
    """The same; but where a log dir is offline, neither time nor another look ends a wait, so what does is said: what
    is due there is refused with the same words. What a running broker removes there, it removes."""
    found = []
    for w in waiting:
        where = facts.log_dirs.get(w.dir.log_dir)
        why = not_online(where) if where is not None else None
        if where is not None and where.health is not Health.OFFLINE and where.holder.state.is_broker:
            why = why if w.dir.kind is not Kind.DELETE else None
        found.append(w if why is None else replace(w, why=replace(why, until="its log dir is online")))
    return found


def until_counted(marked: DuePart, facts: Facts) -> DuePart:
    """Before the first whole inventory: only what the blast radius has already counted is due."""
    new = _uncounted(marked.due, facts)
    until = "the first whole inventory is taken"
    waiting = [*marked.waiting, *_held_back(new, "first-inventory", "the first whole inventory", until, None)]
    return DuePart([p for p in marked.due if p not in new], waiting)


def removals(
    queue: Iterable[QueueEntry], now_ms: int, log_dirs: Mapping[str, LogDirFacts] = MappingProxyType({})
) -> DuePart:
    """Marked directories: those that are due, oldest first, and those that wait, beside a running broker for that, also
    where we would remove it earlier."""
    proposals: list[Proposal] = []
    waiting: list[Waiting] = []
    for entry in queue:
        ready_at = max(entry.due_at_ms, entry.marked_at_ms)
        by_broker_ms = entry.by_broker_ms(log_dirs.get(entry.dir.log_dir))
        if max(ready_at, by_broker_ms or 0) <= now_ms:
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
            if by_broker_ms is not None:
                by_broker = _broker_removes(by_broker_ms, now_ms)
                ready_at, why = by_broker_ms, by_broker if why is None else f"{why}; {by_broker}"
            waiting.append(_waits(entry.dir, ActionKind.REMOVE, rule, ready_at, why=why, claim=Claim.KEPT))
    return DuePart(proposals, waiting)


def kept_while_offline(queue: Sequence[QueueEntry], facts: Facts) -> tuple[list[Waiting], list[QueueEntry]]:
    """Returns the removals that wait while a log dir is not seen (what the broker marked), and the rest of the queue.

    The source of a finished move between log dirs is marked; if the target has failed, it is the node's only readable
    copy. (A broker that starts purges it all the same, and one that runs, when its own delay is over: that is said.)
    """
    kept = [e for e in queue if e.owner == "broker" and not e.removal_started]
    hidden = facts.not_seen() if kept else None
    if hidden is None:
        return [], list(queue)
    unseen = f"{hidden.fact}: this may be the source of a move to it; {hidden.hint}"
    waiting = []
    for e in kept:
        by_broker = e.by_broker_ms(facts.log_dirs.get(e.dir.log_dir))
        if by_broker is not None:
            rule, why = "file.delete.delay.ms", _broker_removes(by_broker, facts.now_ms)
            waiting.append(_waits(e.dir, ActionKind.REMOVE, rule, by_broker, why=why, claim=Claim.KEPT))
        else:
            rule, until, claim = "log-dir-not-seen", "every log dir is seen", Claim.CONFIGURATION
            waiting.append(_waits(e.dir, ActionKind.REMOVE, rule, None, why=unseen, until=until, claim=claim))
    return waiting, [e for e in queue if e.owner != "broker" or e.removal_started]


def _broker_removes(goes_at_ms: int, now_ms: int) -> str:
    if goes_at_ms <= now_ms:
        return "the running broker should have removed it by then: its log says why not"
    return "the running broker removes it"


def not_removed(queue: Sequence[QueueEntry], facts: Facts) -> dict[DirKey, Reason]:
    """What of the queue nobody removes although its time is over, or whenever that is, and why."""
    kept, rest = kept_while_offline(queue, facts)
    due, late = removals(rest, facts.now_ms, facts.log_dirs)
    found = {w.key: w.why for w in _waiting_online([*kept, *late], facts) if w.why.until_ms is None}
    return found | {p.key: why for p in due if (why := online(p, facts)) is not None}


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
    """The end of its retention is a date only if its verdict, as it is now, lets it go then; what else it needs is said
    beside it."""
    if ruling is None or ruling.verdict is not Verdict.UNKNOWN:
        covered = f"stray-retention, and that {COVERED_FIRST}" if ruling is not None and needs_cover(ruling) else None
        return _waits(stray, ActionKind.REMOVE, "stray-retention", until_ms, why=covered, claim=Claim.KEPT)
    why = f"its owner is unknown ({ruling.reason}: {ruling.detail}), however long it is kept"
    rule, until = ruling.reason or "unknown", "its owner is known"
    return _waits(stray, ActionKind.REMOVE, rule, None, why=why, until=until, claim=Claim.KEPT)


COVERED_FIRST = "its leader has all of it"
"""What the removal of a stray needs besides its time, where its topic lives: asked only when it is due."""


def _after(failed: Attempts) -> tuple[str, str]:
    """Rule and reason of the wait after a failed removal."""
    return RETRY, f"retry after: {failed.last_error}"


def orphans(known: Candidates, ages: Ages, facts: Facts, new_uuid: NewUuid) -> DuePart:
    """Proven orphans: those old enough and seen often enough are quarantined, the others wait. What was brought back is
    counted anew (`recall.since_brought_back`), and never set aside by the first look, whatever `cleanup.sightings` is:
    that would undo what an operator just did."""
    proposals: list[Proposal] = []
    waiting: list[Waiting] = []
    for d in known.dirs:
        if d.kind not in LIVE_KINDS:
            continue
        ruling = facts.ruling(d)
        if ruling.verdict is not Verdict.ORPHAN:
            continue
        seen = of_directory(known.sightings.get(d.key), d, ruling.reason or "", facts.now_ms)
        wanted = max(ages.sightings, 2) if ages.sightings and d.brought_back is not None else ages.sightings
        count = seen.count if seen is not None else 0
        until = seen.first_ms + ages.min_age_ms if seen is not None else facts.now_ms + ages.min_age_ms
        reason = ruling.reason or "orphan"
        if until <= facts.now_ms and _broker_there(facts, d.log_dir):
            why, stops = "waiting for the broker's next stop", "the broker stops"
            if count < wanted:  # A stop alone would be for nothing.
                why = f"seen {count} of {counted(wanted, 'time')}, and {why}"
                stops = f"seen {counted(wanted, 'time')} by runs that act, and {stops}"
            why = f"{reason}: {why}"
            wait = _waits(d, ActionKind.QUARANTINE, "window", None, count, why=why, until=stops, claim=Claim.STOPPED)
            waiting.append(wait)
        elif count < wanted or until > facts.now_ms:
            why = f"{reason}: seen {count} of {counted(wanted, 'time')}"
            if count >= wanted:
                why = f"{reason}: waits for cleanup.min_age"
            if _broker_there(facts, d.log_dir):
                why += ", then for the broker's next stop"
            rule = "sightings" if count < wanted else "min_age"
            # Once it is old enough, no date decides but the next looks: those of the service, and of `--execute`.
            enough = f"seen {counted(wanted, 'time')} by runs that act"
            at, ends = (until, None) if until > facts.now_ms else (None, enough)
            wait = _waits(d, ActionKind.QUARANTINE, rule, at, count, why=why, until=ends, claim=Claim.STOOD)
            waiting.append(wait)
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


def _held_back(proposals: Iterable[Proposal], rule: str, why: str, until: str, claim: Claim | None) -> list[Waiting]:
    """Make all proposals wait, for a reason that concerns the whole cycle."""
    return [_waits(p.dir, p.action, rule, None, p.sightings, why=why, until=until, claim=claim) for p in proposals]


def _waits(
    d: PartitionDir,
    action: ActionKind,
    rule: str,
    until_ms: int | None,
    sightings: int = 0,
    *,
    why: str | None = None,
    until: str | None = None,
    claim: Claim | None = None,
) -> Waiting:
    """`why`: where the rule's name does not say it. `until`: what ends it, where that is no date."""
    return Waiting(Reason(why or rule, code=rule, claim=claim, until_ms=until_ms, until=until), action, d, sightings)


def _broker_there(facts: Facts, log_dir: str) -> bool:
    where = facts.log_dirs.get(log_dir)
    return where is not None and where.holder.state.is_broker
