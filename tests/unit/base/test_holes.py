"""The table of claims, held against the holes that it closes. `test_claims` walks the table: a line that is taken out
of it only makes the walk shorter. So here the table stands once more, written by hand, and below it the signs that have
passed for facts, each with the act that must refuse and the claim that it must miss. No line of the table can be taken
out without one of these turning red."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import pytest

from logagent.base import claims
from logagent.base.claims import ENOUGH, NEEDS, Act, Claim, Held, Lasts, Need, Witness
from logagent.base.records import Holder, HolderState
from tests.hosts import NOW, directory, facts
from tests.unit.base.test_claims import LATER, PLACES, SAID_AT, STARTED, Place, World, nothing_known

SOURCE = "our-lineage + in-this-mode + not-contradicted"
GONE = f"topic-absent + {SOURCE} | topic-recreated + {SOURCE}"
MOVED, COPY = f"not-a-replica + {SOURCE}", f"copy-of + {SOURCE}"
COVERED = f"{MOVED} + covered | {COPY} + covered"
ORPHAN = f"{GONE} | {MOVED} | {COPY}"
ORPHAN_GOES = f"{GONE} | {COVERED} | {MOVED} + given-up | {COPY} + given-up"
STRAY_GOES = f"{GONE} | {COVERED} | lives-here + covered | removal-started | given-up"
HOST = "same-directory, online, our-broker, holder-known, changeable"
STOPPED = f"{HOST}, stopped, not-open"

# Act: what it needs, all of it (","), each in one of several ways ("|"), of claims that are enough together ("+").
TABLE = {
    "set-aside-orphan": f"{STOPPED}, version, {ORPHAN}, clock, stood",
    "set-aside-to-remove": f"{STOPPED}, version, {ORPHAN_GOES}",
    "mark-orphan": f"{STOPPED}, {ORPHAN_GOES}",
    "mark-assigned": f"{STOPPED}, allowed-assigned + covered | allowed-assigned + given-up",
    "displace": f"{STOPPED}, version, others-in-sync | given-up | {ORPHAN}",
    "set-aside-duplicate": f"{STOPPED}, version, covered",
    "take-back": f"{STOPPED}, version",
    "mark-stray": f"{STOPPED}, {STRAY_GOES}, clock, kept",
    "remove-stray": f"{HOST}, stopped | serving, not-open, {STRAY_GOES}, clock, kept",
    "remove-leftovers": f"{STOPPED}, lives-here",
    "remove-duplicate": f"{STOPPED}, covered",
    "remove-marked": f"{STOPPED}, configuration, clock, kept",
    "restore": f"{STOPPED}, whole",
}
READ = "while-assignments-count"
GONE_BY = "kraft-log, kraft-log-never-shown, admin, file: since-it-was-made; journal: for-ever"
READ_BY = f"kraft-log, admin, file: {READ}"

# Claim: who is enough for it, and how long what they said stays true.
WITNESSES = {
    "same-directory": "inventory: ten-seconds",
    "online": "probe: ten-seconds",
    "our-broker": "meta.properties: ten-seconds",
    "holder-known": "lock: ten-seconds",
    "changeable": "kernel: the-plan",
    "stopped": "lock: ten-seconds",
    "serving": "describe-log-dirs, registration, seen-serving: while-it-runs",
    "not-open": "processes: ten-seconds",
    "version": "version-sources, quarantine-dir: ten-seconds",
    "clock": "clocks: the-plan",
    "configuration": "every-log-dir: the-plan",
    "stood": "sightings: the-plan",
    "kept": "name, journal: the-plan",
    "topic-absent": GONE_BY,
    "topic-recreated": GONE_BY,
    "not-a-replica": READ_BY,
    "copy-of": READ_BY,
    "lives-here": READ_BY,
    "our-lineage": f"state-dir, registration, own-disk, cluster: {READ}; journal: for-ever",
    "in-this-mode": f"process.roles, admin, file: {READ}; journal: for-ever",
    "not-contradicted": f"every-source: {READ}",
    "covered": "leader, led-here, other-log-dir, no-records: a-minute",
    "others-in-sync": READ_BY,
    "removal-started": "mark-and-count: for-ever",
    "whole": "inventory: the-plan",
    "allowed-assigned": "operator: for-ever",
    "given-up": "operator: for-ever",
}

Ways = tuple[tuple[Claim, ...], ...]


def way_of(text: str) -> tuple[Claim, ...]:
    return tuple(Claim(claim) for claim in text.split(" + ")) if text else ()


BY_HAND: Mapping[Act, tuple[Ways, ...]] = {
    Act(act): tuple(tuple(way_of(way) for way in need.split(" | ")) for need in text.split(", "))
    for act, text in TABLE.items()
}
SAYS: Mapping[Claim, Mapping[Witness, Lasts]] = {
    Claim(claim): {
        Witness(witness): Lasts[lasts.replace("-", "_").upper()]
        for witnesses, lasts in (line.split(": ") for line in text.split("; "))
        for witness in witnesses.split(", ")
    }
    for claim, text in WITNESSES.items()
}


class Hole(NamedTuple):
    """What stood for the claim that is lacking, in the words of where it was seen. `has`: what is known of whose the
    directory is all the same; `sign`: how the weaker sign looks here."""

    seen: str
    acts: str
    lacks: str
    has: str = ""
    sign: Place | None = None


def _where(holder: Holder, **changes: object) -> Place:
    def place(w: World, _: Held) -> None:
        w.log_dir = replace(w.log_dir, holder=holder, **changes)  # type: ignore[arg-type]

    return place


def _bit_alone(w: World, _: Held) -> None:
    w.dir = replace(w.dir, removal_started=True)


def _says(claim: Claim, witness: Witness, at_ms: int) -> Place:
    return lambda w, _: w.said.append(Held(claim, witness, at_ms))


BROKER_THERE = _where(Holder(HolderState.HELD, 4711, STARTED), open_by={})
CRASHED = Held(Claim.SERVING, Witness.REGISTRATION, STARTED - LATER)
STILL_UNFENCED = _where(Holder(HolderState.HELD, 4711, STARTED, serving=CRASHED))
UNSEEN = _where(Holder(HolderState.UNREADABLE))
LIVING_ISR = _says(Claim.OTHERS_IN_SYNC, Witness.KRAFT_LOG, NOW)
ISR_AS_COVER = _says(Claim.COVERED, Witness.CLUSTER, NOW)
OLD_COVER = _says(Claim.COVERED, Witness.LEADER, NOW - 60_000 - LATER)
UNTORN_TAIL = _says(Claim.TOPIC_ABSENT, Witness.KRAFT_LOG, SAID_AT[Lasts.SINCE_IT_WAS_MADE] - LATER)

EVERY = ", ".join(TABLE)
BUT_STRAYS = ", ".join(act for act in TABLE if act != "remove-stray")
ORPHANS_GO, STRAYS_GO = "set-aside-to-remove, mark-orphan", "mark-stray, remove-stray"
GOES = f"{ORPHANS_GO}, {STRAYS_GO}"
BY_VERDICT = f"set-aside-orphan, displace, {GOES}"
TO_STRAY = "set-aside-orphan, set-aside-to-remove, displace, set-aside-duplicate, take-back"
HAS_WAITED = "set-aside-orphan, mark-stray, remove-stray, remove-marked"
VERDICTS = ("topic-absent", "topic-recreated", "not-a-replica", "copy-of")


def _of_each_verdict(seen: str, lacks: str) -> Iterator[Hole]:
    """A source that does not count, whatever it says and whoever covers or gives up the directory."""
    for verdict in VERDICTS:
        yield Hole(seen, BY_VERDICT, lacks, f"{verdict} + {SOURCE} + covered")
        yield Hole(f"{seen}, given up", ORPHANS_GO, lacks, f"{verdict} + {SOURCE} + given-up")


# fmt: off
HOLES = (
    Hole("every directory has a file open, but a stray loads last", "remove-stray", "serving", sign=BROKER_THERE),
    Hole("a crashed broker stays unfenced until its session ends", "remove-stray", "serving", sign=STILL_UNFENCED),
    Hole("the broker is alive", BUT_STRAYS, "stopped", sign=BROKER_THERE),
    Hole("a PID that is not visible here stood for nobody", EVERY, "holder-known", sign=UNSEEN),
    Hole("a process of another mount namespace has it open", EVERY, "not-open"),
    Hole("kafka.version was left over from a rollback", TO_STRAY, "version"),
    Hole("a name stood for the directory", EVERY, "same-directory"),
    Hole("its disk is one that only reads", EVERY, "online"),
    Hole("a dry run that root could have carried out", EVERY, "changeable"),
    Hole("the configuration is another broker's", EVERY, "our-broker"),
    Hole("a clock that was set made an age", HAS_WAITED, "clock"),
    Hole("an orphan of a moment", "set-aside-orphan", "stood"),
    Hole("it was set aside a moment ago", "mark-stray, remove-stray, remove-marked", "kept"),
    Hole("a torn server.properties forgot a log dir", "remove-marked", "configuration"),
    *_of_each_verdict("a rolled-back metadata volume", "our-lineage"),
    *_of_each_verdict("a metadata log left by a reverted migration", "in-this-mode"),
    *_of_each_verdict("a source not yet seen was dropped", "not-contradicted"),
    Hole("an untorn tail stood for 'up to now'", BY_VERDICT, "topic-absent", SOURCE, UNTORN_TAIL),
    Hole("an approval stood for the verdict", ORPHANS_GO, "topic-absent", f"{SOURCE} + covered + given-up"),
    Hole("a source stood for what it says", f"set-aside-orphan, {STRAYS_GO}", "topic-absent", f"{SOURCE} + covered"),
    Hole("a restore takes the place of who knows what", "displace", "others-in-sync", f"{SOURCE} + covered"),
    Hole("a living ISR, after an unclean election", GOES, "covered", MOVED, LIVING_ISR),
    Hole("a living ISR as its witness", GOES, "covered", MOVED, ISR_AS_COVER),
    Hole("a deposed leader's answer of a while ago", GOES, "covered", MOVED, OLD_COVER),
    Hole("a copy that was not read", GOES, "covered", COPY),
    Hole("assigned here stood for covered", STRAYS_GO, "covered", "lives-here"),
    Hole("a copy in another log dir that nobody read", "set-aside-duplicate, remove-duplicate", "covered"),
    Hole("one approval stood for two", "mark-assigned", "covered", "allowed-assigned"),
    Hole("'may be lost' stood for 'delete the assigned'", "mark-assigned", "allowed-assigned", "covered + given-up"),
    Hole("chmod -R ug+s stood for a removal", STRAYS_GO, "topic-absent", sign=_bit_alone),
    Hole("leftovers below what is not assigned here", "remove-leftovers", "lives-here", "covered"),
    Hole("whole segments leave no gap", "restore", "whole"),
)
# fmt: on
ROWS = [(hole, Act(act)) for hole in HOLES for act in hole.acts.split(", ")]


def with_all_else(hole: Hole, act: Act) -> World:
    """All that the act needs is known, the first way of each need; of the need that is not met, only what `has` says.
    On top of that comes what stood for it."""
    lacks, known = Claim(hole.lacks), list[Claim]()
    for need in BY_HAND[act]:
        of_it = any(lacks in way for way in need)
        known += way_of(hole.has) if of_it else need[0]
    w = nothing_known(act)
    for claim in known:
        if claim is not lacks:
            witness, lasts = next(iter(SAYS[claim].items()))
            PLACES[claim](w, Held(claim, witness, SAID_AT[lasts]))
    if hole.sign is not None:
        hole.sign(w, Held(lacks, Witness.OPERATOR, NOW))
    return w


def named(row: tuple[Hole, Act]) -> str:
    return f"{row[1].value}, lacking {row[0].lacks}: {row[0].seen} ({row[0].has})"


def closed(hole: Hole, act: Act) -> str | None:
    """What is wrong: the act is not refused, or for another reason, or the table does not say so."""
    # In the words of the guard, a broker that does not serve is one that is not stopped.
    by = {Claim.STOPPED, Claim.SERVING} if hole.lacks == "serving" else {Claim(hole.lacks)}
    refused = with_all_else(hole, act).refused()
    if refused not in by:
        return f"it is {'done' if refused is None else f'refused for {refused}'}"
    in_table = any(Claim(hole.lacks) in need.claims for need in NEEDS[act])
    return None if in_table else "the table does not ask for it"


@pytest.mark.parametrize(("hole", "act"), ROWS, ids=map(named, ROWS))
def test_what_stood_for_a_fact_is_refused_for_lack_of_it(hole: Hole, act: Act) -> None:
    assert closed(hole, act) is None


@pytest.mark.parametrize("act", Act)
def test_an_act_needs_what_stands_here(act: Act) -> None:
    assert tuple(need.ways for need in NEEDS[act]) == BY_HAND[act]


@pytest.mark.parametrize("claim", Claim)
def test_only_who_stands_here_is_believed_and_for_as_long(claim: Claim) -> None:
    moment = facts().moment(directory("orders-0"))._replace(made_ms=NOW - 100, process_started_ms=NOW - 100)
    forgotten = NOW - 10 * 365 * 86_400_000
    longest = {
        Lasts.SINCE_IT_WAS_MADE: 100,
        Lasts.WHILE_IT_RUNS: 100,
        Lasts.WHILE_ASSIGNMENTS_COUNT: 900_000,
        Lasts.A_MINUTE: 60_000,
        Lasts.TEN_SECONDS: 10_000,
    }
    assert ENOUGH[claim] == SAYS[claim]
    for witness in Witness:
        lasts = SAYS[claim].get(witness)
        just = NOW - longest[lasts] if lasts in longest else forgotten
        assert (claims.holds(Held(claim, witness, just), moment) is None) is (lasts is not None), witness
        if lasts in longest:
            assert claims.holds(Held(claim, witness, just - LATER), moment) is not None, witness


def _weaker_tables() -> Iterator[tuple[str, Act, tuple[Need, ...]]]:
    """Each need of each act taken out, and each claim of each of its ways."""
    for act, needs in BY_HAND.items():
        for number, ways in enumerate(needs):
            rest = [*map(Need, needs[:number])], [*map(Need, needs[number + 1 :])]
            yield f"{act.value} without {ways[0][0].value}", act, (*rest[0], *rest[1])
            for at, way in enumerate(ways):
                for claim in way if len(way) > 1 else ():
                    shorter = tuple(other for other in way if other is not claim)
                    weaker = Need((*ways[:at], shorter, *ways[at + 1 :]))
                    what = f"{act.value} without {claim.value} in {' + '.join(way)}"
                    yield what, act, (*rest[0], weaker, *rest[1])


def test_whatever_is_taken_out_of_an_act_opens_one_of_these_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each need, each claim of each way: without it, one of the rows above is red."""
    weaker, open_still = list(_weaker_tables()), []
    for what, act, needs in weaker:
        with monkeypatch.context() as patched:
            patched.setitem(NEEDS, act, needs)
            if all(closed(hole, of) is None for hole, of in ROWS if of is act):
                open_still.append(what)
    assert not open_still
    assert len(weaker) > 200
