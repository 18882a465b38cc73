"""What is proposed before any guard has seen it: what is due, what is asked for, what is restored to which name."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.errors import KafkaStorageError
from logagent.model.assignments.sightings import Sighting
from logagent.model.facts import RecentAction, Ruling
from logagent.model.naming.dir_names import classify
from logagent.model.planning.guards import assigned
from logagent.model.planning.proposals import (
    Ages,
    compile_topics,
    find_partitions,
    kept_while_offline,
    matching,
    orphan_because,
    orphans,
    removals,
    rename_away,
    strays,
    uncounted,
)
from logagent.model.planning.queue import NO_REMOVALS, Attempts, Mark, QueueEntry, RemovalIntent, build_queue
from logagent.model.records import (
    ActionKind,
    DirKey,
    Health,
    Holder,
    HolderState,
    Kind,
    PartitionDir,
    TopicPartition,
    Verdict,
)
from tests.hosts import HEX, LOG_DIR, NOW, TOPIC_ID, directory, facts, log_dir, proposal

HOUR, DAY = 3_600_000, 86_400_000
STRAY = f"orders-0.{HEX}-stray"
MARKED = f"orders-0.{HEX}-delete"


def new_uuid() -> str:
    return f"{next(COUNTER):032x}"


COUNTER = itertools.count(1)


# What is asked for


@pytest.mark.parametrize(
    ("expression", "matches", "does_not"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", "Orders"]),
        ("orders.*", ["orders", "orders2"], ["my-orders"]),
        ("a, b|c ,", ["a", "b", "c"], ["d", "ab"]),
        # As Kafka's tools read it: nothing is cut apart at a comma. Cut apart, it matched `prod`.
        ("prod(,-test)-logs", ["prod-logs", "prod-test-logs"], ["prod", "prod(", "-test)-logs", "-logs"]),
        ("(a,b)-(c,d)", ["a-c", "a-d", "b-c", "b-d"], ["a", "b", "d", "(a", "b)-(c"]),
        ("'orders'", ["orders"], ["'orders'"]),
        ("x.y", ["x.y", "xzy"], ["x.yz"]),
        ("a|b", ["a", "b"], ["ab", "a|b"]),
        (r"prod-[^\[x]", ["prod-a"], ["prod-x"]),
    ],
)
def test_topic_expressions_match_whole_names(expression: str, matches: list[str], does_not: list[str]) -> None:
    topics = compile_topics(expression)
    assert all(topics.fullmatch(t) for t in matches)
    assert not any(topics.fullmatch(t) for t in does_not)


@pytest.mark.parametrize("expression", ["a{1,3}", "a{,3}", "a{1,}b", "(", "a(,", "", " , "])
def test_what_kafka_would_not_compile_or_names_no_topic_is_refused(expression: str) -> None:
    with pytest.raises(re.error):
        compile_topics(expression)


@pytest.mark.parametrize(
    "expression", ["prod-[a-z&&[^x]]*", "[a-c&&b]", "prod-[[a-c]b]*", "[a[b]]", r"[\\[]", "a[b]c[d[e]"]
)
def test_what_java_would_read_as_another_set_is_refused(expression: str) -> None:
    """`[a-z&&[^x]]` leaves x out in Java; Python would take it in."""
    with pytest.raises(re.error, match="combines sets"):
        compile_topics(expression)


def found(dirs: list[PartitionDir], *partitions: TopicPartition, offline: bool = False) -> tuple[list[str], list[str]]:
    health = Health.OFFLINE if offline else Health.ONLINE
    dirs_found, absent = find_partitions(partitions, dirs, facts(log_dir(health=health)), is_future=False)
    return [d.name for d in dirs_found], [str(tp) for tp in absent]


def test_what_is_selected() -> None:
    dirs = [
        directory(n) for n in ("orders-0", "orders-1", "x-0", MARKED, STRAY, f"orders-2.{HEX}-future", "lost+found")
    ]
    topics = {"orders"}
    assert matching(dirs, topics, is_future=False) == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    assert matching(dirs, topics, is_future=True) == {TopicPartition("orders", 2)}
    assert found(dirs, TopicPartition("x", 0), TopicPartition("x", 9)) == (["x-0"], ["x-9"])


def test_every_spelling_of_a_partition_is_found() -> None:
    dirs = [directory(n) for n in ("zzz-1", "zzz-01", "zzz-+1", "zzz-2")]
    assert found(dirs, TopicPartition("zzz", 1)) == (["zzz-1", "zzz-01", "zzz-+1"], [])


def test_one_that_may_be_in_an_offline_log_dir_is_an_error() -> None:
    dirs = [directory("x-0")]
    assert found(dirs, TopicPartition("x", 0), offline=True) == (["x-0"], [])
    with pytest.raises(KafkaStorageError, match="x-9 because it may be in one of the offline directories"):
        found(dirs, TopicPartition("x", 0), TopicPartition("x", 9), offline=True)


TOPIC = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda t: t not in (".", ".."))


@given(TOPIC, st.integers(0, 2**31 - 1), st.booleans())
def test_a_new_name_is_read_as_what_it_is_and_the_full_topic_is_remembered(
    topic: str, number: int, stray: bool
) -> None:
    p = rename_away(directory(f"{topic}-{number}"), is_stray=stray, reason="", new_uuid=new_uuid, quarantine_dir="/q")
    assert p.new_name is not None and len(p.new_name) <= 255
    read = classify(p.new_name)
    assert (read.kind, read.partition) == (Kind.STRAY if stray else Kind.DELETE, number)
    assert read.topic is not None and topic.startswith(read.topic)
    assert p.full_topic == topic
    assert p.new_dir == ("/q" if stray else None)
    assert p.action is (ActionKind.QUARANTINE if stray else ActionKind.MARK)


# What is due

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
    assert [(w.name, w.until_ms, w.reason) for w in waiting] == [
        (found[1].name, NOW + 1000, "file.delete.delay.ms"),
        (found[0].name, NOW + 2000, "file.delete.delay.ms"),
        (found[3].name, NOW + 256_000, "retry after: EBUSY"),
    ]


def test_before_the_host_is_counted_only_what_adds_nothing_to_the_blast_radius_goes() -> None:
    """A single directory may, but not one after the other all day."""
    counted, approved, *new = (proposal(ActionKind.REMOVE, directory(f"orders-{n}", inode=n)) for n in range(4))
    approved = replace(approved, approved=True)
    recent = (RecentAction(counted.dir.identity, TOPIC_ID, 0, 1000, approved=False),)
    assert uncounted([counted, approved, *new], facts(recent=recent)) == new
    assert uncounted(new[:1], facts()) == []
    assert uncounted(new[:1], facts(recent=recent)) == new[:1]


def test_while_a_log_dir_is_not_seen_what_the_broker_marked_waits_unless_its_removal_has_begun() -> None:
    theirs = QueueEntry(directory(MARKED), "broker", NOW - 1000, NOW, "orders")
    ours = replace(theirs, owner="logagent")
    begun = replace(theirs, removal_started=True)
    waiting, rest = kept_while_offline([theirs, ours, begun], facts(log_dir(), log_dir("/d2", health=Health.OFFLINE)))
    assert [(w.name, w.until_ms) for w in waiting] == [(MARKED, None)] and rest == [ours, begun]
    assert kept_while_offline([theirs, ours, begun], facts()) == ([], [theirs, ours, begun])
    missing = facts(directory_ids=lambda: frozenset({"B" * 22}))
    (wait,), rest = kept_while_offline([theirs, ours, begun], missing)
    assert "B" * 22 in wait.reason and "--kafka-config" in wait.reason and rest == [ours, begun]


@given(SPANS, st.booleans(), st.booleans(), st.booleans(), SPANS.filter(lambda span: span >= 0))
def test_strays_are_kept_for_their_retention(age: int, ours: bool, begun: bool, marked: bool, retention: int) -> None:
    found = directory(STRAY, ctime_ns=(NOW - age) * 10**6, mtime_ns=0, newest_mtime_ns=0, removal_started=marked)
    marks = {DirKey(LOG_DIR, STRAY): Mark(NOW - age, "orders", approved=True)} if ours else {}
    begun_keys = {DirKey(LOG_DIR, STRAY): [RemovalIntent(files=5, bytes=1000)]} if begun else NO_REMOVALS
    due, waiting = strays([found], marks, begun_keys, retention, NOW)
    # Never one from the future: a clock was set back.
    assert bool(due) == (age >= 0 and ((begun and marked) or age >= retention))
    assert len(due) + len(waiting) == 1
    if due:
        assert (due[0].removal_started, due[0].approved) == (begun and marked, ours)
    else:
        assert waiting[0].until_ms is not None and waiting[0].until_ms > NOW


def test_a_stray_whose_removal_failed_waits_before_the_next_try() -> None:
    found = directory(STRAY, ctime_ns=(NOW - DAY) * 10**6, mtime_ns=0, newest_mtime_ns=0)
    failed = {DirKey(LOG_DIR, STRAY): Attempts(3, NOW - 1000, "EBUSY")}
    due, (wait,) = strays([found], {}, NO_REMOVALS, HOUR, NOW, failed)
    assert (due, wait.until_ms, wait.reason) == ([], NOW + 3000, "retry after: EBUSY")
    (again,), _ = strays([found], {}, NO_REMOVALS, HOUR, NOW + 3000, failed)
    assert again.dir is found
    # Its retention comes first.
    _, (wait,) = strays([found], {}, NO_REMOVALS, 2 * DAY, NOW, failed)
    assert wait.reason == "stray-retention"


def test_a_stray_is_approved_only_if_its_mark_was() -> None:
    found = directory(STRAY, ctime_ns=(NOW - DAY) * 10**6, mtime_ns=0, newest_mtime_ns=0)
    (due,), _ = strays([found], {DirKey(LOG_DIR, STRAY): Mark(NOW - DAY, "orders")}, NO_REMOVALS, HOUR, NOW)
    assert not due.approved


def test_why_it_is_an_orphan_is_said_of_orphans_only() -> None:
    assigned_here = Ruling(Verdict.ASSIGNED, "assigned")
    rulings = {
        DirKey(LOG_DIR, "orders-0"): Ruling(Verdict.ORPHAN, "topic-absent"),
        DirKey(LOG_DIR, "orders-1"): assigned_here,
    }
    seen = replace(facts(), rulings=rulings)
    marks = [proposal(ActionKind.MARK, directory(name)) for name in ("orders-0", "orders-1", STRAY)]
    assert [orphan_because(p, seen) for p in marks] == ["topic-absent", None, None]
    assert orphan_because(proposal(ActionKind.REMOVE, directory("orders-0")), seen) is None


def test_a_stray_is_asked_whose_it_is_until_something_of_it_went() -> None:
    """The broker took its lock between our intent and the first unlink. Days later the stray is the only copy of a
    partition that was assigned here again: the intent alone must not let it go."""
    begun = {DirKey(LOG_DIR, STRAY): [RemovalIntent(files=5, bytes=1000)]}
    (whole,), _ = strays([directory(STRAY)], {}, begun, 0, NOW)
    (half,), _ = strays([directory(STRAY, removal_started=True)], {}, begun, 0, NOW)
    nobody_asked = replace(facts(), strays={})
    refusal = assigned(whole, nobody_asked)
    assert refusal is not None and refusal.guard == "assigned"
    assert assigned(half, nobody_asked) is None


AGES = Ages(sightings=3, min_age_ms=DAY)


def sighting(count: int, first_ms: int) -> dict[DirKey, Sighting]:
    found = directory("orders-0")
    seen = Sighting(
        LOG_DIR, "orders-0", found.identity, TOPIC_ID, 0, "topic-absent", count, first_ms, max(first_ms, NOW)
    )
    return {DirKey(LOG_DIR, "orders-0"): seen}


@given(st.integers(0, 5), SPANS)
def test_an_orphan_is_set_aside_only_when_seen_often_and_long_enough(count: int, age: int) -> None:
    seen = facts(orphans=[DirKey(LOG_DIR, "orders-0")])
    proposals, waiting = orphans([directory("orders-0")], seen, sighting(count, NOW - age), AGES, new_uuid)
    assert bool(proposals) == (count >= 3 and age >= DAY)
    assert len(proposals) + len(waiting) == 1
    if proposals:
        assert proposals[0].action is ActionKind.QUARANTINE
        assert (proposals[0].sightings, proposals[0].reason) == (count, "topic-absent")


def test_an_orphan_never_seen_before_waits() -> None:
    seen = facts(orphans=[DirKey(LOG_DIR, "orders-0")])
    proposals, (wait,) = orphans([directory("orders-0")], seen, {}, AGES, new_uuid)
    assert (proposals, wait.until_ms, wait.sightings) == ([], NOW + DAY, 0)


def test_the_sightings_of_another_directory_of_that_name_do_not_count() -> None:
    seen = facts(orphans=[DirKey(LOG_DIR, "orders-0")])
    for other in (directory("orders-0", inode=9), directory("orders-0", topic_id="9" * 22)):
        proposals, (wait,) = orphans([other], seen, sighting(9, NOW - 9 * DAY), AGES, new_uuid)
        assert (proposals, wait.sightings) == ([], 0)


@pytest.mark.parametrize("state", [HolderState.HELD, HolderState.STARTING])
def test_an_orphan_under_a_broker_waits_for_its_stop(state: HolderState) -> None:
    seen = facts(log_dir(holder=Holder(state, 7)), orphans=[DirKey(LOG_DIR, "orders-0")])
    proposals, (wait,) = orphans([directory("orders-0")], seen, sighting(3, NOW - DAY), AGES, new_uuid)
    assert proposals == []
    assert "next stop" in wait.reason


def test_only_orphans_are_proposed() -> None:
    """What is assigned, unknown, or marked already is not; nor anything of which there is no verdict."""
    dirs = [directory(n) for n in ("orders-0", "orders-1", MARKED, STRAY)]
    seen = facts(orphans=[DirKey(LOG_DIR, MARKED), DirKey(LOG_DIR, STRAY)])
    assert orphans(dirs, seen, sighting(9, 0), AGES, new_uuid) == ([], [])
