"""What is due and what waits: one answer for cleanup, the queue, prestart, rescue and the snapshot."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.config.settings import CleanupSettings
from logagent.base.records import ActionKind, BroughtBack, DirKey, Health, Holder, HolderState, PartitionDir, Verdict
from logagent.cleanup.plan.guards import assigned, online
from logagent.cleanup.plan.planner import (
    Ages,
    Candidates,
    DuePart,
    kept_while_offline,
    not_removed,
    orphans,
    removals,
    strays,
    until_counted,
    what_is_due,
)
from logagent.cleanup.plan.queue import NO_REMOVALS, Attempts, QueueEntry, RemovalIntent, build_queue
from logagent.cleanup.session.recall import since_brought_back
from logagent.verdict.facts import RecentAction, Ruling
from logagent.verdict.marks import Mark, Sighting
from tests.hosts import HEX, LOG_DIR, NOW, TOPIC_ID, directory, facts, log_dir, proposal
from tests.verdict_table import STRAYS_DUE

HOUR, DAY = 3_600_000, 86_400_000
# In ns: a time before 1970, by which a clock read as 0 would find everything due.
OLD = -(10**18)
STRAY = f"orders-0.{HEX}-stray"
MARKED = f"orders-0.{HEX}-delete"
COUNTER = itertools.count(1)


def new_uuid() -> str:
    return f"{next(COUNTER):032x}"


# Hypothesis draws mostly small numbers from a wide range: the thresholds are named.
SPANS = st.sampled_from([-DAY, -1, 0, 1, HOUR, DAY - 1, DAY, DAY + 1, 2 * DAY]) | st.integers(-10 * DAY, 10 * DAY)


def test_marked_directories_due_or_waiting() -> None:
    found = [
        directory(f"orders-{n}.{HEX}-delete", ctime_ns=(NOW - n * 1000) * 10**6, mtime_ns=0, newest_mtime_ns=0)
        for n in range(4)
    ]
    failed = {found[3].key: Attempts(9, NOW, "EBUSY")}
    queue = build_queue(found, {}, failed, NO_REMOVALS, delay_ms=1000, leftover_grace_ms=1000)
    due, waiting = removals(queue, NOW)
    assert [(p.dir.name, p.reason, p.action) for p in due] == [(found[2].name, "marked by broker", ActionKind.REMOVE)]
    assert [(w.dir.name, w.why.until_ms, w.why.code, w.why.fact) for w in waiting] == [
        (found[1].name, NOW + 1000, "file.delete.delay.ms", "file.delete.delay.ms"),
        (found[0].name, NOW + 2000, "file.delete.delay.ms", "file.delete.delay.ms"),
        (found[3].name, NOW + 256_000, "retry", "retry after: EBUSY"),
    ]


@pytest.mark.parametrize(("files", "reason"), [(5, "removal started"), (4, "marked by broker")])
def test_what_is_half_removed_is_called_so(files: int, reason: str) -> None:
    found = directory(MARKED, removal_started=True, segments=0)
    begun = {found.key: [RemovalIntent(files=files, bytes=1000)]}
    (due,), _ = removals(build_queue([found], {}, {}, begun, delay_ms=0, leftover_grace_ms=0), NOW)
    assert due.reason == reason


def test_before_the_host_is_counted_only_what_adds_nothing_to_the_blast_radius_goes() -> None:
    """A single directory may, but not one after the other all day."""
    counted, approved, *new = (proposal(ActionKind.REMOVE, directory(f"orders-{n}", inode=n)) for n in range(4))
    approved = replace(approved, approved=True)
    recent = (RecentAction(counted.dir.identity, TOPIC_ID, 0, 1000, approved=False),)
    kept = until_counted(DuePart([counted, approved, *new], []), facts(recent=recent))
    assert kept.due == [counted, approved] and [w.dir.name for w in kept.waiting] == [p.dir.name for p in new]
    assert until_counted(DuePart(new[:1], []), facts()).waiting == []
    assert until_counted(DuePart(new[:1], []), facts(recent=recent)).due == []


def test_while_a_log_dir_is_not_seen_what_the_broker_marked_waits_unless_its_removal_has_begun() -> None:
    theirs = QueueEntry(directory(MARKED), "broker", NOW - 1000, NOW, "orders")
    ours = replace(theirs, owner="logagent")
    started = replace(theirs, removal_started=True)
    waiting, rest = kept_while_offline([theirs, ours, started], facts(log_dir(), log_dir("/d2", health=Health.OFFLINE)))
    assert [(w.dir.name, w.why.until_ms) for w in waiting] == [(MARKED, None)] and rest == [ours, started]
    assert kept_while_offline([theirs, ours, started], facts()) == ([], [theirs, ours, started])
    assert not_removed([theirs, ours], facts()) == {}
    for away, said in (("/d2", ["log-dir-not-seen"]), (LOG_DIR, ["online"] * 3)):
        partly = facts(*(log_dir(p, health=Health.OFFLINE if p == away else Health.ONLINE) for p in (LOG_DIR, "/d2")))
        waits = [why.code for e in (theirs, ours, started) for why in not_removed([e], partly).values()]
        assert waits == said
    # Beside a running broker it goes when that removes it: nobody keeps it for the log dir that is not there.
    beside = log_dir(holder=Holder(HolderState.HELD, 4711, start_time_ms=NOW))
    (by_broker,), _ = kept_while_offline([theirs, ours, started], facts(beside, log_dir("/d2", health=Health.OFFLINE)))
    assert (by_broker.dir.name, by_broker.why.until_ms) == (MARKED, theirs.goes_at_ms(beside))
    missing = facts(directory_ids=lambda: frozenset({"B" * 22}))
    (wait,), rest = kept_while_offline([theirs, ours, started], missing)
    assert "B" * 22 in wait.why.fact and "--kafka-config" in wait.why.fact and rest == [ours, started]


@pytest.mark.parametrize("holder", [HolderState.FREE, HolderState.HELD])
def test_where_a_log_dir_is_offline_a_wait_says_what_the_guard_says(holder: HolderState) -> None:
    """Whatever time or looks are still to come: no date, and no count of looks, of what they do not let go."""
    names = ("orders-1", STRAY, MARKED)
    dirs = [directory(name, ctime_ns=NOW * 10**6, mtime_ns=0, newest_mtime_ns=0) for name in names]
    away = log_dir(health=Health.OFFLINE, health_reason="EIO", holder=Holder(holder, 4711))
    there = facts(away, log_dir("/d2"), rulings={dirs[0].key: Ruling(Verdict.ORPHAN, "topic-absent")})
    queue = build_queue(dirs[2:], {}, {}, NO_REMOVALS, delay_ms=HOUR, leftover_grace_ms=HOUR)
    known = Candidates(queue, dirs, retention_ms=HOUR, ages=Ages(3, HOUR))
    waiting = what_is_due(known, there, new_uuid).waiting
    refused = {guard_says.fact for d in dirs if (guard_says := online(proposal(ActionKind.REMOVE, d), there))}
    assert {w.key: (w.why.fact, w.why.until_ms) for w in waiting} == {d.key: (*refused, None) for d in dirs}
    assert {key: why.fact for key, why in not_removed(queue, there).items()} == {dirs[2].key: refused.pop()}
    # What only time keeps, in a log dir that is there.
    dated = what_is_due(known, replace(there, log_dirs={LOG_DIR: log_dir()}), new_uuid).waiting
    assert [w.key for w in dated if (w.why.until_ms or 0) > NOW] == [w.key for w in waiting]


@given(SPANS, st.booleans(), st.booleans(), st.booleans(), SPANS.filter(lambda span: span >= 0))
def test_strays_are_kept_for_their_retention(age: int, ours: bool, started: bool, marked: bool, retention: int) -> None:
    found = directory(STRAY, ctime_ns=(NOW - age) * 10**6, mtime_ns=0, newest_mtime_ns=0, removal_started=marked)
    marks = {DirKey(LOG_DIR, STRAY): Mark(NOW - age, "orders", approved=True)} if ours else {}
    begun_keys = {DirKey(LOG_DIR, STRAY): [RemovalIntent(files=5, bytes=1000)]} if started else NO_REMOVALS
    due, waiting = strays(Candidates(dirs=[found], marks=marks, removal_intents=begun_keys), retention, NOW)
    # Never one from the future: a clock was set back.
    assert bool(due) == (age >= 0 and ((started and marked) or age >= retention))
    assert len(due) + len(waiting) == 1
    if due:
        assert (due[0].removal_started, due[0].approved) == (started and marked, ours)
    else:
        assert waiting[0].why.until_ms is not None and waiting[0].why.until_ms > NOW


@pytest.mark.parametrize(("age", "due"), STRAYS_DUE)
def test_a_stray_is_due_when_the_fleet_says_so(age: int, due: bool) -> None:
    """`tests/spark/report/test_verdict_table.py` reads the same table."""
    found = directory(STRAY, ctime_ns=(NOW - age) * 10**6, mtime_ns=0, newest_mtime_ns=0)
    part = strays(Candidates(dirs=[found]), CleanupSettings().stray_retention, NOW)
    assert bool(part.due) is due
    assert due or part.waiting[0].why.until_ms == NOW - age + 7 * DAY


def test_a_stray_whose_removal_failed_waits_before_the_next_try() -> None:
    found = directory(STRAY, ctime_ns=(NOW - DAY) * 10**6, mtime_ns=0, newest_mtime_ns=0)
    known = Candidates(dirs=[found], failures={found.key: Attempts(3, NOW - 1000, "EBUSY")})
    due, (wait,) = strays(known, HOUR, NOW)
    assert (due, wait.why.until_ms, wait.why.fact) == ([], NOW + 3000, "retry after: EBUSY")
    (again,), _ = strays(known, HOUR, NOW + 3000)
    assert again.dir is found
    # Its retention comes first.
    _, (wait,) = strays(known, 2 * DAY, NOW)
    assert wait.why.fact == "stray-retention"


@pytest.mark.parametrize(
    ("ruling", "dated"),
    [
        (Ruling(Verdict.ORPHAN, "topic-absent"), True),
        (Ruling(Verdict.ORPHAN, "not-a-replica"), True),
        (Ruling(Verdict.ASSIGNED, None), True),
        (Ruling(Verdict.UNKNOWN, "no-assignments", "no assignments were read"), False),
        (Ruling(Verdict.UNKNOWN, "sources-disagree", "two sources differ"), False),
    ],
)
def test_a_date_is_given_only_where_the_verdict_lets_a_stray_go_then(ruling: Ruling, dated: bool) -> None:
    found = directory(STRAY, ctime_ns=(NOW - DAY) * 10**6, mtime_ns=0, newest_mtime_ns=0)
    due, (wait,) = strays(Candidates(dirs=[found], stray_verdicts={found.key: ruling}), 7 * DAY, NOW)
    assert due == [] and (wait.why.until_ms is not None) is dated
    # Its topic lives: only then is a leader asked.
    covered = ruling.reason in (None, "not-a-replica")
    assert wait.why.fact.startswith("stray-retention") is dated
    assert ("its leader has all of it" in wait.why.fact) is (dated and covered)
    assert dated or (ruling.detail or "") in wait.why.fact
    assert wait.why.code == ("stray-retention" if dated else ruling.reason)


def test_a_stray_is_approved_only_if_its_mark_was() -> None:
    found = directory(STRAY, ctime_ns=(NOW - DAY) * 10**6, mtime_ns=0, newest_mtime_ns=0)
    (due,), _ = strays(Candidates(dirs=[found], marks={found.key: Mark(NOW - DAY, "orders")}), HOUR, NOW)
    assert not due.approved


def test_a_stray_is_asked_whose_it_is_until_something_of_it_went() -> None:
    """The broker took its lock between our intent and the first unlink. Days later the stray is the only copy of a
    partition that was assigned here again: the intent alone must not let it go."""
    started = {DirKey(LOG_DIR, STRAY): [RemovalIntent(files=5, bytes=1000)]}
    (whole,), _ = strays(Candidates(dirs=[directory(STRAY)], removal_intents=started), 0, NOW)
    (half,), _ = strays(Candidates(dirs=[directory(STRAY, removal_started=True)], removal_intents=started), 0, NOW)
    nobody_asked = replace(facts(), strays={})
    refusal = assigned(whole, nobody_asked)
    assert refusal is not None and refusal.code == "assigned"
    assert assigned(half, nobody_asked) is None


AGES = Ages(sightings=3, min_age_ms=DAY)


def seen_before(dirs: list[PartitionDir], count: int, first_ms: int) -> Candidates:
    """These directories, and what was seen of orders-0."""
    found = directory("orders-0")
    seen = Sighting(
        LOG_DIR, "orders-0", found.identity, TOPIC_ID, 0, "topic-absent", count, first_ms, max(first_ms, NOW)
    )
    return Candidates(dirs=dirs, sightings={found.key: seen})


@given(st.integers(0, 5), SPANS)
def test_an_orphan_is_set_aside_only_when_seen_often_and_long_enough(count: int, age: int) -> None:
    seen = facts(orphans=[DirKey(LOG_DIR, "orders-0")])
    proposals, waiting = orphans(seen_before([directory("orders-0")], count, NOW - age), AGES, seen, new_uuid)
    assert bool(proposals) == (count >= 3 and age >= DAY)
    assert len(proposals) + len(waiting) == 1
    if proposals:
        assert proposals[0].action is ActionKind.QUARANTINE
        assert (proposals[0].sightings, proposals[0].reason) == (count, "topic-absent")
    else:
        assert waiting[0].why.code == ("sightings" if count < 3 or age < 0 else "min_age")


@pytest.mark.parametrize("holder", [Holder(HolderState.HELD, 7), Holder(HolderState.FREE)])
def test_what_is_old_enough_and_not_seen_often_enough_has_no_date(holder: Holder) -> None:
    """It said "until 12:30:08Z (in 0s)", and that no date but those of others was the first."""
    seen = facts(log_dir(holder=holder), orphans=[DirKey(LOG_DIR, "orders-0")])
    _, (wait,) = orphans(seen_before([directory("orders-0")], 1, NOW - HOUR), Ages(3, 2 * HOUR), seen, new_uuid)
    assert wait.why.until_ms == NOW + HOUR
    assert ("then for the broker's next stop" in wait.why.fact) is (holder.state is HolderState.HELD)
    if holder.state is HolderState.FREE:
        _, (wait,) = orphans(seen_before([directory("orders-0")], 1, NOW - HOUR), Ages(3, 0), seen, new_uuid)
        assert (wait.why.until_ms, wait.why.until) == (None, "seen 3 times by runs that act")


def test_an_orphan_never_seen_before_waits() -> None:
    seen = facts(orphans=[DirKey(LOG_DIR, "orders-0")])
    proposals, (wait,) = orphans(Candidates(dirs=[directory("orders-0")]), AGES, seen, new_uuid)
    assert (proposals, wait.why.until_ms, wait.sightings) == ([], NOW + DAY, 0)


@pytest.mark.parametrize(("count", "is_due"), [(1, False), (2, True)])
def test_what_was_brought_back_is_not_set_aside_at_the_first_look(count: int, is_due: bool) -> None:
    d = replace(directory("orders-0"), brought_back=BroughtBack(7, NOW - DAY))
    seen = facts(orphans=[DirKey(LOG_DIR, "orders-0")])
    proposals, _ = orphans(seen_before([d], count, NOW - HOUR), Ages(1, 0), seen, new_uuid)
    assert bool(proposals) == is_due


@pytest.mark.parametrize(("back_ms", "counts"), [(NOW - DAY, True), (NOW - HOUR, False), (NOW, False)])
def test_what_was_seen_before_it_was_brought_back_does_not_count(back_ms: int, counts: bool) -> None:
    d = directory("orders-0")
    known = seen_before([d], 9, NOW - HOUR).sightings
    assert since_brought_back(known, [d]) == known
    assert bool(since_brought_back(known, [replace(d, brought_back=BroughtBack(7, back_ms))])) is counts


def test_the_sightings_of_another_directory_of_that_name_do_not_count() -> None:
    seen = facts(orphans=[DirKey(LOG_DIR, "orders-0")])
    for other in (directory("orders-0", inode=9), directory("orders-0", topic_id="9" * 22)):
        proposals, (wait,) = orphans(seen_before([other], 9, NOW - 9 * DAY), AGES, seen, new_uuid)
        assert (proposals, wait.sightings) == ([], 0)


@pytest.mark.parametrize("state", [HolderState.HELD, HolderState.STARTING])
def test_an_orphan_under_a_broker_waits_for_its_stop(state: HolderState) -> None:
    seen = facts(log_dir(holder=Holder(state, 7)), orphans=[DirKey(LOG_DIR, "orders-0")])
    proposals, (wait,) = orphans(seen_before([directory("orders-0")], 3, NOW - DAY), AGES, seen, new_uuid)
    assert proposals == []
    assert wait.why.fact == "topic-absent: waiting for the broker's next stop" and wait.why.until == "the broker stops"
    _, (wait,) = orphans(seen_before([directory("orders-0")], 1, NOW - DAY), Ages(3, 0), seen, new_uuid)
    assert wait.why.fact == "topic-absent: seen 1 of 3 times, and waiting for the broker's next stop"
    assert wait.why.until == "seen 3 times by runs that act, and the broker stops"


def test_only_orphans_are_proposed() -> None:
    """What is assigned, unknown, or marked already is not; nor anything of which there is no verdict."""
    dirs = [directory(n) for n in ("orders-0", "orders-1", MARKED, STRAY)]
    seen = facts(orphans=[DirKey(LOG_DIR, MARKED), DirKey(LOG_DIR, STRAY)])
    assert orphans(seen_before(dirs, 9, 0), AGES, seen, new_uuid) == ([], [])


# All of it


def everything(**changes: Any) -> Candidates:
    """A marked directory, a stray and an orphan, all of them old."""
    dirs = [directory(n, ctime_ns=0, mtime_ns=0, newest_mtime_ns=0) for n in (MARKED, STRAY, "orders-0")]
    queue = build_queue(dirs[:1], {}, {}, NO_REMOVALS, delay_ms=1000, leftover_grace_ms=1000)
    seen = seen_before(dirs[1:], 3, NOW - DAY)
    return replace(seen, **{"queue": queue, "ages": AGES, "retention_ms": DAY, **changes})


def test_removals_come_first_and_every_kind_is_in_the_one_answer() -> None:
    due = what_is_due(everything(), facts(orphans=[DirKey(LOG_DIR, "orders-0")]), new_uuid)
    assert [p.dir.name for p in due.proposals] == [MARKED, STRAY, "orders-0"] and due.waiting == []


def test_nothing_of_any_kind_is_due_while_the_clock_is_in_doubt() -> None:
    seen = facts(orphans=[DirKey(LOG_DIR, "orders-0")])
    dirs = [directory(n, ctime_ns=OLD, mtime_ns=OLD, newest_mtime_ns=OLD) for n in (MARKED, STRAY)]
    before_1970 = build_queue(dirs[:1], {}, {}, NO_REMOVALS, delay_ms=1000, leftover_grace_ms=1000)
    due = what_is_due(
        everything(doubt="the clock jumped", dirs=[dirs[1], directory("orders-0")], queue=before_1970), seen, new_uuid
    )
    assert due.proposals == []
    assert [(w.dir.name, w.why.code, w.why.fact, w.why.until_ms) for w in due.waiting] == [
        (name, "clock", "the clock jumped", None) for name in (MARKED, STRAY, "orders-0")
    ]


def test_with_all_waits_over_only_what_waits_for_something_else_is_left() -> None:
    young = everything(doubt="the clock jumped", retention_ms=9 * NOW, ages=Ages(99, 9 * NOW))
    failed = replace(young, failures={DirKey(LOG_DIR, STRAY): Attempts(9, NOW, "EBUSY")})
    held = log_dir(holder=Holder(HolderState.HELD, 7))
    due = what_is_due(failed, facts(held, orphans=[DirKey(LOG_DIR, "orders-0")]), new_uuid, waits_over=True)
    assert [p.dir.name for p in due.proposals] == [MARKED, STRAY]
    assert [w.dir.name for w in due.waiting] == ["orders-0"] and "next stop" in due.waiting[0].why.fact
