"""Which witness is enough to call a replica gone, and what is said where none is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from logagent.base.units import human_time, instant
from logagent.deletion.controller.topic_deletion_manager import (
    AgentSeen,
    BrokerLogs,
    ClusterSeen,
    HostSeen,
    PartitionState,
    ReplicaState,
    Sightings,
    SnapshotSeen,
    TopicDeletionManager,
    TopicProgress,
)
from logagent.deletion.store.answers import Answer, Seen, SeenLogDirs, TopicAnswer
from logagent.deletion.store.requests import Decision, Filed, Request, RequestedPartition, RequestedTopic, moment_ms

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DECIDED = NOW - timedelta(hours=1)
ID, NUMBER = "A" * 22, "f" * 64
TOPIC = RequestedTopic("clicks", ID, (RequestedPartition(0, (1,)),))
ASKED = Request("c", "topics", "0" * 24, "ops", instant(DECIDED), instant(NOW), "0" * 32, topics=(TOPIC,))
FILED = Filed(NUMBER, ASKED, Decision(NUMBER, "c", "delete", "ops", instant(DECIDED), topics=(TOPIC,)))
DELETED = ClusterSeen({}, frozenset({ID}), frozenset(), frozenset({1}))


def progress(
    cluster: ClusterSeen = DELETED, host: HostSeen | None = None, answer: Answer | None = None
) -> TopicProgress:
    answers = {(NUMBER, 1): answer} if answer is not None else {}
    hosts = {1: host} if host is not None else {}
    seen = Sightings(NOW, {NUMBER: FILED}, answers=answers, hosts=hosts, cluster=cluster)
    (topic,) = TopicDeletionManager(seen, timedelta(hours=2)).progress(FILED)
    return topic


def logs(*current: tuple[str, int], offline: tuple[str, ...] = (), ids: dict[str, str] | None = None) -> ClusterSeen:
    return replace(DELETED, logs={1: BrokerLogs(frozenset(current), ids or {}, offline)})


def snapshot(at: datetime, *current: tuple[str, int], offline: tuple[str, ...] = ()) -> HostSeen:
    return HostSeen(("kafka-1",), NOW, SnapshotSeen(at, frozenset(current), offline))


def answer(live: int | None, at: datetime = NOW) -> Answer:
    return Answer("c", 1, NUMBER, "kafka-1", "0" * 32, instant(at), (), (TopicAnswer(ID, live, 0),))


ENOUGH: dict[str, dict[str, Any]] = {
    "the agent's answer after the decision": {"answer": answer(0)},
    "the agent's answer, its clock a little behind": {"answer": answer(0, DECIDED - timedelta(minutes=3))},
    "the broker lists nothing": {"cluster": logs()},
    "the broker lists other topics": {"cluster": logs(("views", 0))},
    "a snapshot after the decision": {"host": snapshot(NOW)},
}


@pytest.mark.parametrize("seen", ENOUGH.values(), ids=ENOUGH)
def test_a_witness_is_enough(seen: dict[str, Any]) -> None:
    topic = progress(**seen)
    assert topic.complete and not topic.missing
    assert topic.states == {ReplicaState.NON_EXISTENT: 1} and topic.partitions == {PartitionState.NON_EXISTENT: 1}


NEVER_ENOUGH: dict[str, tuple[dict[str, Any], str]] = {
    "nobody": ({}, "its host was never heard from"),
    "an answer from before the decision": ({"answer": answer(0, DECIDED - timedelta(minutes=6))}, "never heard"),
    "an answer that has some": ({"answer": answer(2)}, "it still has 2 directories there"),
    "an answer with a log dir unread": ({"answer": answer(None)}, "not every log dir could be read"),
    "a broker that lists it": ({"cluster": logs(("clicks", 0))}, "broker 1 still has it"),
    "a broker with a log dir offline": ({"cluster": logs(offline=("/d2",))}, "/d2 is offline"),
    "a broker that lists the name's new topic": (
        {"cluster": logs(("clicks", 0), ids={"clicks": "B" * 22})},
        "never heard",
    ),
    "a snapshot from before the decision": ({"host": snapshot(DECIDED)}, "no agent has checked it"),
    "a snapshot with a log dir offline": ({"host": snapshot(NOW, offline=("/d2",))}, "no agent has checked it"),
    "a snapshot with a directory of its name and no id": (
        {"host": HostSeen(("kafka-1",), NOW, SnapshotSeen(NOW, frozenset(), unread=frozenset({"clicks"})))},
        "could not be read at",
    ),
    "a snapshot that shows it": ({"host": snapshot(NOW, (ID, 0))}, "it was there at"),
    "a witness refuted by its broker": (
        {"answer": answer(0), "cluster": logs(("clicks", 0))},
        "broker 1 still has it",
    ),
    "two hosts": ({"host": HostSeen(("a", "b"), NOW), "answer": answer(0)}, "two hosts claim node id 1: a and b"),
    "a broker that is down": (
        {"cluster": replace(DELETED, live_brokers=frozenset())},
        "broker 1 is down, and its host was never heard from",
    ),
    "a broker that is down, its agent is not": (
        {"cluster": replace(DELETED, live_brokers=frozenset()), "answer": answer(2)},
        "broker 1 is down: it still has 2 directories there",
    ),
}


@pytest.mark.parametrize(("seen", "why"), NEVER_ENOUGH.values(), ids=NEVER_ENOUGH)
def test_no_witness_is_enough(seen: dict[str, Any], why: str) -> None:
    topic = progress(**seen)
    (missing,) = topic.missing
    assert not topic.complete and why in missing.reason.fact, missing
    assert topic.partitions == {PartitionState.OFFLINE: 1}


@pytest.mark.parametrize(("unread", "hint"), [(1, "logagent scan"), (0, "repair the log dir")])
@pytest.mark.parametrize("words", ["", "a log dir named after the topic id of clicks is offline"])
def test_what_helps_follows_from_what_was_counted_and_not_from_the_words_of_the_answer(
    unread: int, hint: str, words: str
) -> None:
    given = replace(answer(None), topics=(TopicAnswer(ID, None, 0, words=words, unread=unread),))
    (missing,) = progress(answer=given).missing
    assert hint in missing.reason.hint


CLUSTERS: dict[str, tuple[ClusterSeen, str]] = {
    "lists it": (ClusterSeen({ID: TOPIC}, live_brokers=frozenset({1})), "has not deleted it yet"),
    "lists it, its broker down": (ClusterSeen({ID: TOPIC}, live_brokers=frozenset()), "down is broker 1"),
    "lists it and knows no such id": (ClusterSeen({ID: TOPIC}, frozenset({ID})), "has not deleted it yet"),
    "shows no topic": (ClusterSeen(live_brokers=frozenset({1})), "topics run"),
    "was not asked": (ClusterSeen(why_not="nobody listens"), "nobody listens"),
    "is moving it": (ClusterSeen({ID: TOPIC}, moving=frozenset({ID})), "being reassigned"),
}


@pytest.mark.parametrize(("cluster", "why"), CLUSTERS.values(), ids=CLUSTERS)
def test_only_the_cluster_says_that_a_topic_is_deleted(cluster: ClusterSeen, why: str) -> None:
    """Not a host that has nothing of it."""
    topic = progress(cluster, snapshot(NOW), answer(0))
    assert not topic.complete and topic.result is None and why in (topic.waits or "")
    assert topic.states == {ReplicaState.OFFLINE: 1}


def test_directories_of_a_node_that_is_no_replica_are_waited_for_too() -> None:
    """It was one when the request was made, or became one after it."""
    answers = {(NUMBER, 1): answer(0), (NUMBER, 2): replace(answer(1), node_id=2), (NUMBER, 3): answer(0)}
    seen = Sightings(NOW, {NUMBER: FILED}, answers=answers, cluster=DELETED)
    (topic,) = TopicDeletionManager(seen, timedelta(hours=2)).progress(FILED)
    assert [(m.node_id, m.partition) for m in topic.missing] == [(2, 0)] and not topic.complete


def test_of_a_broker_that_is_down_no_more_is_said_than_is_known() -> None:
    """Its agent was heard a moment ago; with a log dir offline, that is what has to be repaired first."""
    down = replace(DELETED, live_brokers=frozenset())
    (missing,) = progress(down, HostSeen(("kafka-1",), NOW)).missing
    assert missing.reason.fact == "broker 1 is down"
    log_dirs = SeenLogDirs(instant(NOW), False, instant(DECIDED), ("/d2",))
    agent = AgentSeen(Seen("c", 1, "kafka-1", "0" * 32, instant(DECIDED), instant(NOW), log_dirs=log_dirs), NOW)
    seen = Sightings(NOW, {NUMBER: FILED}, {1: agent}, cluster=down)
    (missing,) = TopicDeletionManager(seen, timedelta(hours=2)).progress(FILED)[0].missing
    assert (
        missing.reason.fact == f"log dir /d2 is offline since {human_time(DECIDED)}" and missing.reason.code == "online"
    )


def test_a_replica_says_since_when_its_host_is_silent() -> None:
    (missing,) = progress(host=HostSeen((), NOW - timedelta(hours=3))).missing
    assert "its host has been silent since 2026-11-21 09:00:00Z" in missing.reason.fact
    assert missing.reason.as_of_ms == moment_ms("2026-11-21T09:00:00.000Z") and missing.state is ReplicaState.INELIGIBLE
