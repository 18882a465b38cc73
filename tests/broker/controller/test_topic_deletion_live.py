"""Topics deleted across a real cluster of three brokers with an agent beside each: one of them down in between.

The clusters are their own: brokers are killed, and agents beside them remember.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.kafka import ZooKeeperNode
from tests.broker.rig.ordered_cluster import ASKED, Backup, OrderedCluster, approving, current
from tests.broker.rig.process import wait_until
from tests.broker.rig.rig import Rig
from tests.long_form import long_form, versions

VERSIONS = versions("4.4.0", "4.3.1", "3.9.1")


@pytest.fixture
def ordered(kafka_cluster: Callable[..., KafkaCluster], version: str, tmp_path: Path) -> Iterator[OrderedCluster]:
    cluster = kafka_cluster(version, nodes=3).start()
    ordered = OrderedCluster(tmp_path, {node.node_id: node for node in cluster.nodes})
    ordered.cluster = cluster
    with ordered.daemons:
        yield ordered


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_go_from_every_broker_also_from_one_that_was_down(ordered: OrderedCluster, version: str) -> None:
    cluster = ordered.cluster
    for topic in ("clicks", "views", "kept"):
        cluster.create_topic(topic, partitions=3, rf=3)
        for partition in range(3):
            cluster.produce(topic, partition, n=10)
    for node in (1, 2, 3):
        ordered.agent(node)
    ordered.heard(1, 2, 3)

    status, plan, said = ordered.topics("delete", "--topic", "clicks,nobody")
    assert [t["topic"] for t in plan["topics"]] == ["clicks"] and plan["mode"] == "dry-run", said
    assert status == 4, said  # one of three topics is more than 10%
    assert "clicks" in cluster.topics()
    status, done, said = ordered.topics(
        "delete", "--topic", "clicks,nobody", "--execute", *approving(plan), "--timeout", "2m"
    )
    assert status == 0, (said, done, ordered.status())
    assert "clicks" not in cluster.topics() and {"views", "kept"} <= set(cluster.topics())
    assert [r["state"] for r in ordered.status()["requests"]] == ["done"]
    wait_until(lambda: not any(current(node, "clicks") for node in cluster.nodes), 60, "no copy is left")

    ordered.stop_agent(3)
    cluster.node(3).kill()
    plan = ordered.topics("delete", "--topic", "views")[1]
    status, done, said = ordered.topics("delete", "--topic", "views", "--execute", *approving(plan), "--timeout", "5s")
    assert status == 3, said

    def asked_for() -> Any:
        ordered.topics("run", "--once")
        return ordered.status()["requests"][-1]

    def waits_for_three() -> bool:
        (topic,) = asked_for()["topics"]
        why = [m["why"] for m in topic["missing"] if m["node_id"] == 3]
        found = topic["states"], len(topic["missing"]), "silent since" in "".join(why)
        return bool(found == ({"ReplicaDeletionIneligible": 3, "ReplicaDeletionSuccessful": 6}, len(why), True))

    wait_until(waits_for_three, 300, "it waits for node 3 alone, of which nothing is heard", interval=1)
    request = asked_for()
    files = ordered.store / "control" / cluster.nodes[0].cluster_id / "requests" / request["request_id"]
    asked = {name: (files / name).read_bytes() for name in ("request.json", "decision.json")}

    cluster.node(3).start_async()
    ordered.agent(3)
    wait_until(lambda: cluster.live_nodes() >= {1, 2, 3}, 120, "node 3 is back")

    wait_until(lambda: asked_for()["state"] == "done", 180, "the request completes", interval=1)
    assert not current(cluster.node(3), "views") and len(current(cluster.node(3), "kept")) == 3
    assert {name: (files / name).read_bytes() for name in asked} == asked, "what is irreversible is asked once"
    assert {len(cluster.read_all("kept", p)) for p in range(3)} == {10}


def test_the_last_topic_of_a_cluster_is_closed_by_any_process(
    kafka_cluster: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    """Whoever sent DeleteTopics is gone, and the cluster lists nothing that would show that it knows ids."""
    cluster = kafka_cluster("3.9.1", nodes=1).start()
    ordered = OrderedCluster(tmp_path, {1: cluster.node(1)})
    ordered.cluster = cluster
    with ordered.daemons:
        cluster.create_topic("only", partitions=2, rf=1)
        ordered.agent(1)
        ordered.heard(1)
        plan = ordered.topics("delete", "--topic", "only")[1]
        words = ["--execute", *approving(plan), "--timeout", "0"]
        status, _, said = ordered.topics("delete", "--topic", "only", *words)
        assert status == 0, said
        wait_until(lambda: not cluster.topics(), 30, "the topic is gone")
        (known,) = ordered.status()["requests"]
        # The agent may have answered by now.
        waits = known["state"] == "deleting" and "topics run" in known["topics"][0]["waits_for"]
        assert waits or known["state"] == "done", known

        def complete() -> bool:
            ordered.topics("run", "--once")
            return bool(ordered.status()["requests"][0]["state"] == "done")

        wait_until(complete, 180, "the request completes", interval=2)


def test_a_cancelled_request_deletes_nothing_once_its_store_is_put_back(
    kafka_cluster: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    """Its process was killed before it decided; the cancellation is lost. Three brokers, and what else can be lost:
    `test_requests_withstand_live`."""
    cluster = kafka_cluster("4.3.1", nodes=1).start()
    ordered = OrderedCluster(tmp_path, {1: cluster.node(1)})
    ordered.cluster = cluster
    with ordered.daemons:
        cluster.create_topic("orders")
        cluster.produce("orders", n=10)
        ordered.agent(1)
        ordered.heard(1)
        request = ordered.asked_and_killed("orders", ASKED)
        backup = Backup(ordered.store)
        assert ordered.topics("cancel", request["request_id"])[0] == 0
        assert [r["state"] for r in ordered.status()["requests"]] == ["cancelled"]
        backup.put_back()
        for _ in range(3):
            ordered.topics("run", "--once")
        (known,) = ordered.status()["requests"]
        assert known["state"] == "open", known
        assert cluster.topics() == ["orders"] and len(cluster.read_all("orders")) == 10


@long_form
def test_the_zookeeper_generation_waits_for_its_broker(rig: Rig, tmp_path: Path) -> None:
    one = rig.kafka("3.5.2", mode="zookeeper", node_id=1)
    assert isinstance(one, ZooKeeperNode)
    one.start()
    two = rig.kafka("3.5.2", mode="zookeeper", node_id=2, zookeeper=one.zookeeper)
    two.start()
    wait_until(lambda: one.live_nodes() == {1, 2}, 30, "both brokers are registered")
    # A cluster that lists no topic at all does not show that it knows ids, so one stays.
    for topic in ("clicks", "views", "kept"):
        one.create_topic(topic, partitions=2, rf=2)
    ordered = OrderedCluster(tmp_path, {1: one, 2: two})
    with ordered.daemons:
        for node in (1, 2):
            ordered.agent(node)
        ordered.heard(1, 2)
        plan = ordered.topics("delete", "--topic", "clicks")[1]
        words = ["--execute", *approving(plan), "--timeout"]
        status, _, said = ordered.topics("delete", "--topic", "clicks", *words, "2m")
        assert status == 0, (said, ordered.status())
        assert sorted(one.topics()) == ["kept", "views"] and not current(one, "clicks") + current(two, "clicks")

        two.kill()
        wait_until(lambda: one.live_nodes() == {1}, 60, "the controller knows that node 2 is down")
        plan = ordered.topics("delete", "--topic", "views")[1]
        words = ["--execute", *approving(plan), "--timeout"]
        status, _, said = ordered.topics("delete", "--topic", "views", *words, "20s")
        assert status == 3, said
        (topic,) = ordered.status()["requests"][-1]["topics"]
        assert 2 in {m["node_id"] for m in topic["missing"]}, topic
        two.start()

        def complete() -> bool:
            ordered.topics("run", "--once")
            return bool(ordered.status()["requests"][-1]["state"] == "done")

        wait_until(complete, 240, "the request completes", interval=2)
        assert one.topics() == ["kept"] and not current(one, "views") + current(two, "views")
