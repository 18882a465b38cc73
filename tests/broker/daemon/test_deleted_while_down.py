"""A topic is deleted across the fleet while one host is down; when it is back, its broker makes strays of its copies.

Their agent runs in report mode. It removes them after their retention, because a request decided to delete the topic
and its own broker's metadata log says that it is deleted; nothing else goes. The cluster is its own, as one of its
brokers is stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from logagent.deletion.store.answers import Answers
from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.ordered_cluster import OrderedCluster, current
from tests.broker.rig.process import wait_until
from tests.long_form import long_form


def strays(node: KafkaNode) -> list[str]:
    names = [entry.name for path in node.log_dirs for entry in path.iterdir() if entry.is_dir()]
    return sorted(name for name in names if name.endswith("-stray"))


@long_form
def test_the_strays_of_a_host_that_was_down_go_after_retention_in_report_mode(
    kafka_cluster: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    cluster = kafka_cluster("3.9.1", nodes=2)
    cluster.start()
    one, two = cluster.nodes
    for topic in ("clicks", "orders"):
        cluster.create_topic(topic, partitions=3, rf=2)
        for partition in range(3):
            cluster.produce(topic, partition, n=50)
        cluster.wait_in_sync(topic)
    written = [[r.value for r in cluster.read_all("orders", p)] for p in range(3)]

    root = tmp_path / "ordered"
    root.mkdir()
    ordered = OrderedCluster(root, {node.node_id: node for node in cluster.nodes})
    ordered.cluster = cluster
    ordered.settings = {"LOGAGENT_CLEANUP__STRAY_RETENTION": "20s"}
    with ordered.daemons:
        for node in (1, 2):
            ordered.agent(node)
        answers = Answers(ordered.store, one.cluster_id)
        memories = [root / f"agent{node}" / "state" / "requests.json" for node in (1, 2)]
        wait_until(
            lambda: all(m.exists() and b'"stood"' in m.read_bytes() for m in memories),
            120,
            "both remember a first look",
        )
        ordered.heard(1, 2)

        ordered.stop_agent(2)
        two.stop()
        _, plan, said = ordered.topics("delete", "--topic", "clicks")
        assert plan is not None, said
        words = ("--approve", f"{plan['plan_id']}:limit", "--timeout", "20s")
        status, _, said = ordered.topics("delete", "--topic", "clicks", "--execute", *words)
        assert status in (0, 3), said
        wait_until(lambda: "clicks" not in cluster.topics(), 120, "the topic is deleted")
        assert len(current(two, "clicks")) == 3

        two.start()
        wait_until(lambda: len(strays(two)) == 3, 60, "the broker's start makes strays of its copies")
        ordered.agent(2)
        wait_until(lambda: strays(two) == [], 120, "they go after their retention")
        ordered.topics("run", "--once")
        (request,) = ordered.status()["requests"]
        wait_until(
            lambda: (
                (answer := answers.answer(2, request["request_id"])) is not None
                and [(t.live, t.strays_left) for t in answer.topics] == [(0, 0)]
            ),
            60,
            "the answer says so",
        )
        answer = answers.answer(2, request["request_id"])
        assert answer is not None and answer.topics[0].bytes_back > 0
        assert len(current(two, "orders")) == 3
    cluster.wait_in_sync("orders")
    assert [[r.value for r in cluster.read_all("orders", p)] for p in range(3)] == written
    assert two.offline_dirs() == []
