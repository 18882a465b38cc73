"""What is proposed before any guard has seen it: what is due, what is asked for, what is restored to which name."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.dir_names import classify
from logagent.base.errors import KafkaStorageError
from logagent.base.records import ActionKind, DirKey, Health, Kind, PartitionDir, TopicPartition, Verdict
from logagent.cleanup.plan.proposals import compile_topics, find_partitions, matching, orphan_because, rename_away
from logagent.verdict.facts import Ruling
from tests.hosts import HEX, LOG_DIR, directory, facts, log_dir, proposal

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
    assert [t for t in matches if not topics.fullmatch(t)] == []
    assert [t for t in does_not if topics.fullmatch(t)] == []


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
