"""Chooses, from values alone: what is in the queue, what is due, a plan, and what is said of one directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logagent.base.reason import Reason
from logagent.base.records import DirKey, PartitionDir, Verdict
from logagent.cleanup.plan.assemble import BlastRadius, assemble
from logagent.cleanup.plan.due import Ages, Candidates, Due, what_is_due
from logagent.cleanup.plan.guards import GUARDS
from logagent.cleanup.plan.plan import NO_FLAGS, Flags, Plan, Proposal, Refusal, Waiting
from logagent.cleanup.plan.proposals import NewUuid
from logagent.cleanup.plan.queue import QueueEntry, Recalled, for_removal, queue_of
from logagent.verdict.clock_doubt import TRUST_CLOCK
from logagent.verdict.facts import Facts, Ruling
from logagent.verdict.marks import Mark
from logagent.verdict.sightings import Sighting


@dataclass(frozen=True, slots=True)
class Told:
    """What every command says of one directory: the verdict and what it rests on (None for what has none), how it got
    its name, and how often it was seen as an orphan."""

    dir: PartitionDir
    ruling: Ruling | None
    mark: Mark | None
    sighting: Sighting | None

    @property
    def verdict(self) -> Verdict | None:
        return self.ruling.verdict if self.ruling is not None else None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """In order of weight: why it cannot be trusted at all, then why its verdict is what it is."""
        unread = Reason(self.dir.error, code="error") if self.dir.error is not None else None
        r = self.ruling
        why = Reason(r.detail or r.reason, code=r.reason) if r is not None and r.reason is not None else None
        return tuple(reason for reason in (unread, why) if reason is not None)


@dataclass(frozen=True, slots=True)
class Planner:
    """`dirs`: the inventory; `recalled`: what the journal says of it; `evidence`: whose each directory is, and what
    else the guards decide on. `delay_ms`: `file.delete.delay.ms`, `broker_delay_ms`: the broker's own; the other
    figures are those of `cleanup.*`. `spared`: log dirs that are left out."""

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

    def says(self, d: PartitionDir) -> Told:
        key, recalled = d.key, self.recalled
        return Told(d, self.evidence.verdict_on(d), recalled.marks.get(key), recalled.sightings.get(key))

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
            [w for w in waiting if w.log_dir not in self.spared],
            self.evidence,
            GUARDS,
            self.limits,
            approve=approve,
            refusals=refusals,
        )
