"""What the reader makes of answers that real brokers give only at bad moments."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logagent.base.errors import ServiceUnreachable, UnreadableError
from logagent.base.records import ZERO_ID, id_to_text
from logagent.kafka.admin.client import AdminClient
from logagent.kafka.admin.reader import AdminReader, IdAnswer

ALIVE = [uuid.UUID(int=n) for n in range(1000, 1005)]
GONE = [uuid.UUID(int=n) for n in range(2000, 2003)]


def text(topic_id: uuid.UUID) -> str:
    return id_to_text(topic_id.bytes)


def topic(topic_id: uuid.UUID, error_code: int = 0) -> SimpleNamespace:
    partition = SimpleNamespace(error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
    return SimpleNamespace(error_code=error_code, name=f"t{topic_id.int}", topic_id=topic_id, partitions=[partition])


class Cluster:
    """Stands in for the connection: answers like a broker that lists `living` and says `by_id` about ids."""

    bootstrap_servers = "b:1"
    principal = "User:agent"
    timeout = 1.0

    def __init__(self, living: list[uuid.UUID], by_id: Mapping[uuid.UUID, int], version: int = 12) -> None:
        self.living, self.by_id, self.version = living, by_id, version
        self.asked: list[list[uuid.UUID]] = []
        self.changes: dict[str, Any] = {}

    def reader(self) -> AdminReader:
        return AdminReader("b:1", client=cast(AdminClient, self))

    def request_version(self, request_class: object, node_id: int) -> int:
        return self.version

    def send(self, make_request: Callable[[], Any], node_id: int | None = None) -> SimpleNamespace:
        topics = make_request().topics
        if topics is None:
            answers = [topic(i) for i in self.living]
        else:
            self.asked.append([t.topic_id for t in topics])
            answers = [topic(t.topic_id, self.by_id[t.topic_id]) for t in topics if t.topic_id in self.by_id]
        brokers = [SimpleNamespace(node_id=1)]
        fields = {"error_code": 0, "brokers": brokers, "cluster_id": "c", "topics": answers, **self.changes}
        return SimpleNamespace(**fields)

    def send_to_controller(self, make_request: Callable[[], Any]) -> SimpleNamespace:
        return SimpleNamespace(error_code=0, topics=[])


KNOWN = dict.fromkeys(ALIVE, 0)


def test_unknown_counts_beside_topics_that_are_known() -> None:
    cluster = Cluster(ALIVE, {**KNOWN, **dict.fromkeys(GONE, 100)})
    ids = [*map(text, GONE), text(ALIVE[0])]
    expected = {**dict.fromkeys(map(text, GONE), IdAnswer.UNKNOWN), text(ALIVE[0]): IdAnswer.KNOWN}
    assert cluster.reader().topic_ids_known(1, ids) == expected
    assert cluster.asked == [[*GONE, ALIVE[0], *ALIVE[1:4]]]


def test_a_broker_that_does_not_know_living_topics_either_cannot_tell() -> None:
    cluster = Cluster(ALIVE, {**dict.fromkeys(ALIVE, 100), **dict.fromkeys(GONE, 100)})
    answers = cluster.reader().topic_ids_known(1, map(text, GONE))
    assert set(answers.values()) == {IdAnswer.CANNOT_TELL}


def test_one_living_topic_unknown_is_enough_to_doubt() -> None:
    cluster = Cluster(ALIVE, {**KNOWN, ALIVE[1]: 100, GONE[0]: 100})
    reader = cluster.reader()
    assert reader.image(0).topic_count == 5
    assert reader.topic_ids_known(1, [text(GONE[0])]) == {text(GONE[0]): IdAnswer.CANNOT_TELL}


def test_without_any_living_topic_nothing_is_proven() -> None:
    cluster = Cluster([], dict.fromkeys(GONE, 100))
    assert set(cluster.reader().topic_ids_known(1, map(text, GONE)).values()) == {IdAnswer.CANNOT_TELL}
    only = Cluster(ALIVE[:1], {ALIVE[0]: 0, GONE[0]: 100})
    assert only.reader().topic_ids_known(1, [text(ALIVE[0]), text(GONE[0])]) == {
        text(ALIVE[0]): IdAnswer.KNOWN,
        text(GONE[0]): IdAnswer.UNKNOWN,
    }


def test_no_answer_and_other_errors_cannot_tell() -> None:
    cluster = Cluster(ALIVE, {**KNOWN, GONE[0]: 3, GONE[1]: 29})
    assert cluster.reader().topic_ids_known(1, [*map(text, GONE), ZERO_ID]) == {
        text(GONE[0]): IdAnswer.NO_TOPIC,
        text(GONE[1]): IdAnswer.NOT_AUTHORISED,
        text(GONE[2]): IdAnswer.CANNOT_TELL,
        ZERO_ID: IdAnswer.CANNOT_TELL,
    }


@pytest.mark.parametrize("version", [-1, 9, 11])
def test_brokers_that_take_no_ids_are_not_asked(version: int) -> None:
    cluster = Cluster(ALIVE, {}, version=version)
    assert cluster.reader().topic_ids_known(1, [text(GONE[0])]) == {text(GONE[0]): IdAnswer.CANNOT_TELL}
    assert cluster.asked == []


def test_many_ids_are_asked_in_parts() -> None:
    many = [uuid.UUID(int=n) for n in range(10_000, 12_500)]
    cluster = Cluster(ALIVE, {**KNOWN, **dict.fromkeys(many, 100)})
    answers = cluster.reader().topic_ids_known(1, map(text, many))
    assert answers == dict.fromkeys(map(text, many), IdAnswer.UNKNOWN)
    assert [len(part) for part in cluster.asked] == [1003, 1003, 503]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"error_code": 129}, "refuses to describe the cluster: error 129"),
        ({"brokers": []}, "lists no brokers"),
        ({"cluster_id": None}, "does not say its cluster id"),
        ({"topics": []}, "lists no topics"),
        ({"topics": [topic(ALIVE[0]), topic(ALIVE[1], 5)]}, "a partial answer"),
        ({"topics": [topic(ALIVE[0]), topic(ALIVE[0])]}, "twice"),
    ],
)
def test_an_image_is_whole_or_an_error(changes: dict[str, Any], says: str) -> None:
    cluster = Cluster(ALIVE, {})
    cluster.changes = changes
    with pytest.raises(UnreadableError, match=says):
        cluster.reader().image(0)


def test_what_an_image_carries() -> None:
    image = Cluster(ALIVE, {}).reader().image(100_000, node_id=1, lag_ms=500)
    assert (image.at_ms, image.known_until_ms, image.complete) == (100_000, 99_500, False)
    assert image.origin == "the Admin API at b:1, node 1"
    assert set(image.by_id) == set(map(text, ALIVE))
    assert image.brokers[1].fenced is False


@pytest.mark.parametrize(
    "changes", [{"results": []}, {"error_code": 31, "results": []}, {"error_code": 31, "results": [object()]}]
)
def test_log_dirs_that_nobody_may_see_are_no_answer(changes: dict[str, Any]) -> None:
    class Refusing(Cluster):
        def send(self, make_request: Callable[[], Any], node_id: int | None = None) -> SimpleNamespace:
            return SimpleNamespace(**changes)

    reader = Refusing([], {}).reader()
    with pytest.raises(UnreadableError, match=r"does not describe its log dirs|lacks Describe on Cluster"):
        reader.log_dirs(1)
    assert reader.log_dir_served(1, "/d1") is None


def test_nobody_there_is_not_served() -> None:
    class Silent(Cluster):
        def send(self, make_request: Callable[[], Any], node_id: int | None = None) -> SimpleNamespace:
            raise ServiceUnreachable("nobody")

    reader = Silent([], {}).reader()
    assert reader.log_dir_served(1, "/d1") is None
    with pytest.raises(ServiceUnreachable):
        reader.image(0)


@pytest.mark.parametrize(
    ("leader", "isr", "live", "says"),
    [(1, [1, 2], {1, 2, 3}, {1, 2}), (1, [1, 2], {1, 3}, {1}), (1, [1], {1, 2}, {1}), (-1, [2], {1, 3}, set()),
     (2, [1, 2], {1, 3}, set()), (-1, [], {1, 2}, set())],
)  # fmt: skip
def test_in_sync_are_live_brokers_of_the_isr_behind_a_live_leader(
    leader: int, isr: list[int], live: set[int], says: set[int]
) -> None:
    """An ISR keeps its last member when that dies: leader -1, ISR [2], and nobody has the records."""
    answer = topic(ALIVE[0])
    answer.partitions[0].__dict__.update(leader_id=leader, isr_nodes=isr, replica_nodes=[1, 2], error_code=0)
    if leader < 0:
        answer.partitions[0].error_code = 5  # LEADER_NOT_AVAILABLE
    cluster = Cluster(ALIVE, KNOWN)
    cluster.changes = {"topics": [answer, topic(ALIVE[1])], "brokers": [SimpleNamespace(node_id=n) for n in live]}
    said = cluster.reader().in_sync({text(ALIVE[0]), text(GONE[0])})
    assert said == {(text(ALIVE[0]), 0): frozenset(says)}


def test_topics_now_are_those_that_were_asked_for_and_live() -> None:
    cluster = Cluster(ALIVE, KNOWN)
    now = cluster.reader().topics_now({text(ALIVE[0]), text(GONE[0])})
    assert {i: (t.name, t.partitions[0].replicas) for i, t in now.items()} == {text(ALIVE[0]): ("t1000", (1,))}
    assert Cluster([], {}).reader().topics_now({text(GONE[0])}) == {}
