"""The table of claims and witnesses, walked: whatever an act rests on is taken away, or made too old, and the act is
refused with the name of that claim. Nothing here is listed by hand: an act, a claim or a witness that has no refusal
fails the walk. That no line is missing in the table itself, `test_holes` shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pytest

from logagent.base import claims
from logagent.base.claims import ENOUGH, NEEDS, Act, Claim, Held, Lasts, Need, Witness
from logagent.base.dir_names import stray_name
from logagent.base.records import ActionKind, DirKey, Health, Holder, HolderState, Kind, PartitionDir, Reason, Verdict
from logagent.cleanup.plan.assemble import BlastRadius, assemble
from logagent.cleanup.plan.guards import (
    GUARDS,
    assigned,
    changeable,
    cluster,
    in_use,
    inside,
    lock,
    online,
    version,
    window,
)
from logagent.cleanup.plan.plan import NO_FLAGS, Flags, Guard, Proposal
from logagent.cleanup.plan.planner import Ages, Candidates, what_is_due
from logagent.cleanup.plan.proposals import OWNERSHIP, act_of, proof_of
from logagent.cleanup.plan.queue import RemovalIntent, build_queue
from logagent.cleanup.restore.rules import CopyRead, Owner, RestoreOptions, Wanted, restorations
from logagent.kafka.extents import LogExtent
from logagent.service.prestart.command import as_mark
from logagent.verdict.facts import Facts, LogDirFacts, Ruling, StrayRuling
from logagent.verdict.marks import Mark, Sighting
from tests.hosts import HEX, LOG_DIR, NOW, TOPIC_ID, directory, facts, log_dir, proposal

HOUR = 3_600_000
MADE = NOW - 100 * HOUR
STARTED = NOW - HOUR
QUARANTINE = "/data/quarantine"
WIDE = BlastRadius(1000, 1.0)
STRAY, MARKED = f"orders-0.{HEX}-stray", f"orders-0.{HEX}-delete"
UNDER = {Act.MARK_STRAY: STRAY, Act.REMOVE_STRAY: STRAY, Act.REMOVE_MARKED: MARKED, Act.RESTORE: STRAY}
UNDER |= {Act.REMOVE_DUPLICATE: STRAY}
UNDER |= {Act.TAKE_BACK: MARKED}
UNKNOWN = Ruling(Verdict.UNKNOWN, "no-topic-id", last_copy=None)
ORPHANS = (Act.SET_ASIDE_ORPHAN, Act.SET_ASIDE_TO_REMOVE, Act.MARK_ORPHAN)

# When a witness said so, such that it is just enough.
SAID_AT = {
    Lasts.FOR_EVER: MADE - HOUR,
    Lasts.THE_PLAN: NOW,
    Lasts.SINCE_IT_WAS_MADE: MADE,
    Lasts.WHILE_ASSIGNMENTS_COUNT: NOW - 900_000,
    Lasts.WHILE_IT_RUNS: STARTED,
    Lasts.A_MINUTE: NOW - 60_000,
    Lasts.TEN_SECONDS: NOW,
}
AGES_WITH_THE_FACTS = {Lasts.TEN_SECONDS: 10_001}
LATER = 1


@dataclass
class World:
    """One directory on one host, on which an act rests on nothing yet."""

    act: Act
    dir: PartitionDir
    log_dir: LogDirFacts
    said: list[Held] = field(default_factory=list)
    flags: Flags = NO_FLAGS
    new_dir: str | None = None
    version: tuple[int, ...] | None = None
    doubt: str | None = "the wall clock was set"
    left_out: tuple[str, ...] = ("/data/d2",)
    sightings: int = 0
    mark: Mark | None = None
    gone_files: bool = False
    halved: bool = True
    foreign: bool = True
    fixed: bool = True
    age_ms: int = 0

    def facts(self) -> Facts:
        proof = tuple(held for held in self.said if held.claim is not Claim.SERVING)
        stray = self.dir.kind is Kind.STRAY
        covered = tuple(held for held in proof if held.claim is Claim.COVERED)
        verdict = Verdict.ORPHAN if self.act in ORPHANS else Verdict.ASSIGNED
        places = {LOG_DIR: self.log_dir, QUARANTINE: replace(log_dir(QUARANTINE), quarantine=True)}
        return facts(
            rulings={self.dir.key: Ruling(verdict, "topic-absent", last_copy=None, proof=proof)},
            strays={self.dir.key: StrayRuling(True, Reason("said"), ruling=UNKNOWN, proof=proof if stray else covered)},
            duplicates={self.dir.key: StrayRuling(True, Reason("said"), proof=covered)},
            log_dirs=places,
            cluster_problems={LOG_DIR: "it is of another cluster"} if self.foreign else {},
            kafka_version=self.version,
            quarantine_dirs={} if self.new_dir is None else {LOG_DIR: self.new_dir},
            left_out=self.left_out,
            unchangeable={self.dir.key: Reason("it is immutable", "chattr -i")} if self.fixed else {},
            age_ms=self.age_ms,
        )

    def refused(self, guards: tuple[Guard, ...] = GUARDS) -> Claim | str | None:
        """The claim that is lacking, or another reason in words; None if it is done."""
        seen = self.facts()
        p = self.proposal(seen)
        if not isinstance(p, Proposal):
            return p
        assert act_of(p, seen) is self.act
        plan = assemble([p], [], seen, guards, WIDE)
        return next((r.why.claim or f"{r.why.code}: {r.why.fact}" for r in plan.refusals), None)

    def proposal(self, seen: Facts) -> Proposal | Claim | None:
        d, stray = self.dir, stray_name("orders", 0, HEX)
        aside = proposal(ActionKind.QUARANTINE, d, new_name=stray, new_dir=self.new_dir, flags=self.flags)
        match self.act:
            case Act.REMOVE_LEFTOVERS:
                return proposal(ActionKind.REMOVE_LEFTOVERS, d, leftovers=("00000000000000000000.log.deleted",))
            case Act.SET_ASIDE_ORPHAN | Act.MARK_STRAY | Act.REMOVE_STRAY | Act.REMOVE_MARKED:
                return self.falls_due(seen)
            case Act.RESTORE:
                return self.comes_back(seen)
            case Act.MARK_ORPHAN | Act.MARK_ASSIGNED:
                return proposal(ActionKind.MARK, d, new_name=MARKED, flags=self.flags)
            case Act.SET_ASIDE_TO_REMOVE:
                return replace(aside, then_removed=True)
            case Act.DISPLACE:
                return replace(aside, flags=replace(self.flags, allow_assigned=True))
            case Act.SET_ASIDE_DUPLICATE:
                return replace(aside, duplicate=True)
            case Act.REMOVE_DUPLICATE:
                return proposal(ActionKind.REMOVE, d, duplicate=True)
        return aside

    def falls_due(self, seen: Facts) -> Proposal | Claim | None:
        marks = {} if self.mark is None else {self.dir.key: self.mark}
        intents = {self.dir.key: [RemovalIntent(files=9, bytes=9_000)]} if self.gone_files else {}
        marked = [self.dir] if self.dir.kind is Kind.DELETE else []
        sighting = Sighting(
            LOG_DIR, self.dir.name, self.dir.identity, TOPIC_ID, 0, "topic-absent", 3, NOW - 48 * HOUR, NOW
        )
        known = Candidates(
            queue=build_queue(marked, marks, {}, intents, delay_ms=HOUR, leftover_grace_ms=HOUR),
            dirs=[self.dir],
            marks=marks,
            removal_intents=intents,
            sightings={self.dir.key: replace(sighting, count=self.sightings)},
            retention_ms=2 * HOUR,
            ages=Ages(3, 24 * HOUR),
            doubt=self.doubt,
            flags=self.flags,
        )
        due = what_is_due(known, seen, lambda: HEX)
        if due.waiting:
            return due.waiting[0].why.claim
        (p,) = due.proposals
        return replace(as_mark(p, lambda: HEX), flags=self.flags) if self.act is Act.MARK_STRAY else p

    def comes_back(self, seen: Facts) -> Proposal | Claim | None:
        """Of which a removal took half of the files, or had only begun. What else is wrong, the guards see."""
        meant = {self.dir.key: [RemovalIntent(files=9 if self.halved else self.dir.files, bytes=self.dir.bytes)]}
        copies = {self.dir.key: CopyRead(LogExtent(0, 100, ((0, 0),)))}
        wanted = Wanted([replace(self.dir, removal_started=True, error=None)], [], {}, copies, meant)
        sound = replace(seen, left_out=(), log_dirs={LOG_DIR: log_dir()})
        proposals, refusals = restorations(wanted, sound, Owner(), RestoreOptions(), lambda: HEX)
        return replace(proposals[0], dir=self.dir) if proposals else refusals[0].why.claim


def nothing_known(act: Act) -> World:
    young = NOW * 1_000_000
    found = directory(UNDER.get(act, "orders-0"), ctime_ns=young, mtime_ns=MADE * 1_000_000, newest_mtime_ns=0)
    found = replace(found, error="somebody else's", removal_started=False)
    nobody_knows = log_dir(
        health=Health.READ_ONLY, holder=Holder(HolderState.STARTING, 4711, STARTED), open_by={found.name: (17,)}
    )
    return World(act, found, nobody_knows)


Place = Callable[[World, Held], None]


def _dir(**changes: Any) -> Place:
    def place(w: World, _: Held) -> None:
        w.dir = replace(w.dir, **changes)

    return place


def _where(**changes: Any) -> Place:
    def place(w: World, _: Held) -> None:
        w.log_dir = replace(w.log_dir, **changes)

    return place


def _world(**changes: Any) -> Place:
    def place(w: World, _: Held) -> None:
        for name, value in changes.items():
            setattr(w, name, value)

    return place


def _said(w: World, held: Held) -> None:
    w.said.append(held)


def _serving(w: World, held: Held) -> None:
    w.log_dir = replace(w.log_dir, holder=Holder(HolderState.HELD, 4711, STARTED, serving=held))


def _kept(w: World, held: Held) -> None:
    old = NOW - 90 * HOUR
    if held.witness is Witness.JOURNAL:
        w.mark = Mark(old, "orders")
    else:
        w.dir = replace(w.dir, ctime_ns=old * 1_000_000)


def _version(w: World, held: Held) -> None:
    if held.witness is Witness.QUARANTINE_DIR:
        w.new_dir = QUARANTINE
    else:
        w.version = (3, 9, 1)


def _flag(name: str) -> Place:
    def place(w: World, held: Held) -> None:
        w.flags = replace(w.flags, **{name: True})

    return place


def _removal_started(w: World, _: Held) -> None:
    w.dir, w.gone_files = replace(w.dir, removal_started=True), True


def _known_holder(w: World, _: Held) -> None:
    if w.log_dir.holder.state is HolderState.UNREADABLE:
        w.log_dir = replace(w.log_dir, holder=Holder(HolderState.STARTING, 4711, STARTED))


PLACES: Mapping[Claim, Place] = {
    Claim.SAME_DIRECTORY: _dir(error=None),
    Claim.ONLINE: _where(health=Health.ONLINE),
    Claim.OUR_BROKER: _world(foreign=False),
    Claim.HOLDER_KNOWN: _known_holder,
    Claim.STOPPED: _where(holder=Holder(HolderState.FREE)),
    Claim.SERVING: _serving,
    Claim.NOT_OPEN: _where(open_by={}),
    Claim.CHANGEABLE: _world(fixed=False),
    Claim.VERSION: _version,
    Claim.CLOCK: _world(doubt=None),
    Claim.CONFIGURATION: _world(left_out=()),
    Claim.STOOD: _world(sightings=3),
    Claim.KEPT: _kept,
    **dict.fromkeys(
        (
            Claim.TOPIC_ABSENT,
            Claim.TOPIC_RECREATED,
            Claim.NOT_A_REPLICA,
            Claim.COPY_OF,
            Claim.LIVES_HERE,
            Claim.OUR_LINEAGE,
            Claim.IN_THIS_MODE,
            Claim.NOT_CONTRADICTED,
            Claim.COVERED,
            Claim.OTHERS_IN_SYNC,
        ),
        _said,
    ),
    Claim.REMOVAL_STARTED: _removal_started,
    Claim.WHOLE: _world(halved=False),
    Claim.ALLOWED: _flag("allow_assigned"),
    Claim.GIVEN_UP: _flag("even_last_copy"),
}
# For what ages with the facts, all of which are as old: the one guard that asks for it.
ASKED_BY: Mapping[Claim, Guard] = {
    Claim.SAME_DIRECTORY: inside,
    Claim.ONLINE: online,
    Claim.OUR_BROKER: cluster,
    Claim.HOLDER_KNOWN: lock,
    Claim.STOPPED: window,
    Claim.NOT_OPEN: in_use,
    Claim.VERSION: version,
    Claim.CHANGEABLE: changeable,
}


class Step(NamedTuple):
    """One claim of one way in which an act may rest on its needs, and one witness of it."""

    act: Act
    ways: tuple[tuple[Claim, ...], ...]
    claim: Claim
    witness: Witness

    def world(self, *, without: bool = False, late: bool = False) -> World:
        """Where all of it holds, or all but this claim."""
        w = nothing_known(self.act)
        chosen = [claim for way in self.ways for claim in way]
        for claim in chosen:
            # It asks for what is late by one millisecond, or not at all.
            if claim is self.claim and without:
                continue
            witness = self.witness if claim is self.claim else next(iter(ENOUGH[claim]))
            at_ms = SAID_AT[ENOUGH[claim][witness]] - (LATER if late and claim is self.claim else 0)
            PLACES[claim](w, Held(claim, witness, at_ms))
        if without and self.claim is Claim.HOLDER_KNOWN:
            w.log_dir = replace(w.log_dir, holder=Holder(HolderState.UNREADABLE))
        return w


def walk() -> list[Step]:
    """Every act, each way of each of its needs (the others in their first way), each claim, each witness."""
    steps: list[Step] = []
    for act, needs in NEEDS.items():
        firsts = [need.ways[0] for need in needs]
        for number, need in enumerate(needs):
            for way in need.ways:
                ways = (*firsts[:number], way, *firsts[number + 1 :])
                steps += [Step(act, ways, claim, witness) for claim in way for witness in ENOUGH[claim]]
    return list(dict.fromkeys(steps))


def name(step: Step) -> str:
    return f"{step.act.value}-{step.claim.value}-{step.witness.value}"


STEPS = walk()


def test_nothing_in_the_table_is_left_out_of_the_walk() -> None:
    assert set(NEEDS) == set(Act) and set(ENOUGH) == set(Claim) == set(PLACES)
    assert {step.claim for step in STEPS} == set(Claim)
    assert {step.witness for step in STEPS} == set(Witness)


@pytest.mark.parametrize("step", STEPS, ids=name)
def test_with_all_of_it_an_act_is_done_and_without_one_claim_refused_with_its_name(step: Step) -> None:
    assert step.world().refused() is None
    assert step.world(without=True).refused() in lacking(step)


def lacking(step: Step) -> set[Claim]:
    """The name of the claim; where other ways lead to the same need, that of any as far along."""
    need = next(need for need in NEEDS[step.act] if step.claim in need.claims)
    if len(need.ways) == 1:
        return {step.claim}
    way = next(way for way in step.ways if step.claim in way)
    at = way.index(step.claim)
    return {other[at] for other in need.ways if other[:at] == way[:at] and len(other) > at}


AGING = [s for s in STEPS if ENOUGH[s.claim][s.witness] not in (Lasts.FOR_EVER, Lasts.THE_PLAN, Lasts.TEN_SECONDS)]


@pytest.mark.parametrize("step", AGING, ids=name)
def test_a_witness_that_is_too_old_is_refused_with_the_name_of_its_claim(step: Step) -> None:
    assert step.world(late=True).refused() is step.claim


LOOKED = [s for s in STEPS if ENOUGH[s.claim][s.witness] is Lasts.TEN_SECONDS]


@pytest.mark.parametrize("step", LOOKED, ids=name)
def test_what_was_looked_at_too_long_ago_is_refused_with_the_name_of_its_claim(step: Step) -> None:
    w = step.world()
    w.age_ms = AGES_WITH_THE_FACTS[Lasts.TEN_SECONDS]
    assert w.refused((ASKED_BY[step.claim],)) is step.claim
    assert w.refused() is not None


@pytest.mark.parametrize("claim", Claim)
def test_a_witness_of_something_else_is_none(claim: Claim) -> None:
    """Who is not in the line of a claim says nothing about it, in whichever act."""
    for witness in set(Witness) - set(ENOUGH[claim]):
        unmet = claims.holds(Held(claim, witness, NOW), facts().moment(directory("orders-0")))
        assert unmet is not None and unmet.claim is claim


BY_THE_TABLE = [
    (act, need)
    for act, needs in NEEDS.items()
    for need in needs
    if need.claims & (OWNERSHIP | {Claim.STOPPED, Claim.VERSION})
    # An orphan waits for the broker's stop before a guard is asked.
    if not (act is Act.SET_ASIDE_ORPHAN and Claim.STOPPED in need.claims)
]


@pytest.mark.parametrize(("act", "need"), BY_THE_TABLE, ids=lambda x: x.value if isinstance(x, Act) else "")
def test_nothing_decides_beside_the_table(act: Act, need: Need, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken out of it, just that need is not asked for any more."""
    step = next(s for s in STEPS if s.act is act and s.claim in need.claims)
    way = next(way for way in step.ways if step.claim in way)
    w = replace_ways(step, tuple(other for other in step.ways if other is not way))
    assert w.refused() is not None
    rest = tuple(other for other in NEEDS[act] if other is not need)
    monkeypatch.setitem(NEEDS, act, rest)
    assert w.refused() is None


def replace_ways(step: Step, ways: tuple[tuple[Claim, ...], ...]) -> World:
    return step._replace(ways=ways).world()


def test_what_can_be_undone_needs_the_verdict_and_what_cannot_needs_cover_too() -> None:
    """But for topics that are proven to be gone, and what an operator gives up."""
    for act in (Act.SET_ASIDE_TO_REMOVE, Act.MARK_ORPHAN, Act.MARK_ASSIGNED, Act.MARK_STRAY, Act.REMOVE_STRAY):
        (whose,) = (need for need in NEEDS[act] if need.claims & OWNERSHIP)
        for way in whose.ways:
            gone = {Claim.TOPIC_ABSENT, Claim.TOPIC_RECREATED, Claim.GIVEN_UP, Claim.REMOVAL_STARTED}
            assert Claim.COVERED in way or gone & set(way), (act, way)
    (whose,) = (need for need in NEEDS[Act.SET_ASIDE_ORPHAN] if need.claims & OWNERSHIP)
    assert (Claim.NOT_A_REPLICA, Claim.OUR_LINEAGE, Claim.IN_THIS_MODE, Claim.NOT_CONTRADICTED) in whose.ways


def test_every_need_is_asked_for_somewhere() -> None:
    when_due = {Claim.CLOCK, Claim.STOOD, Claim.KEPT, Claim.CONFIGURATION}
    guarded = set(ASKED_BY) | OWNERSHIP | {Claim.SERVING} | when_due | {Claim.WHOLE}
    for act, needs in NEEDS.items():
        for need in needs:
            assert need.claims & guarded, (act, need)
    assert assigned in GUARDS


def test_what_an_act_rests_on_is_kept_with_its_witnesses() -> None:
    step = next(s for s in STEPS if s.act is Act.REMOVE_STRAY and s.claim is Claim.COVERED)
    w = step.world()
    seen = w.facts()
    p = w.proposal(seen)
    assert isinstance(p, Proposal)
    assert [(h.claim, h.witness) for h in proof_of(p, seen)] == [
        (Claim.NOT_A_REPLICA, Witness.KRAFT_LOG),
        (Claim.OUR_LINEAGE, Witness.STATE_DIR),
        (Claim.IN_THIS_MODE, Witness.PROCESS_ROLES),
        (Claim.NOT_CONTRADICTED, Witness.EVERY_SOURCE),
        (Claim.COVERED, Witness.LEADER),
        (Claim.STOPPED, Witness.LOCK),
    ]
    assert assemble([p], [], seen, GUARDS, WIDE).proofs == {DirKey(LOG_DIR, STRAY): proof_of(p, seen)}


def test_the_decisive_claim_is_about_the_directory_not_its_host() -> None:
    """An operator's word comes before a verdict, a verdict before what holds for any directory of the host."""
    host = [("online", "probe", 1), ("stopped", "lock", 2), ("clock", "clocks", 3)]
    verdict, word = ("topic-absent", "kraft-log", 4), ("given-up", "operator", 5)
    assert claims.decisive([]) is None and claims.decisive(host) is None
    assert claims.decisive([*host, verdict, ("kept", "name", 6)]) == verdict
    assert claims.decisive([*host, verdict, word]) == word
    assert claims.decisive([("of-a-later-release", "x", 7)]) is None
