"""What leaders and the quorum answer on real brokers: the end of a leader epoch, and how far a broker is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from kafka import KafkaProducer

from logagent.base.records import TopicPartition
from logagent.kafka.admin.reader import AdminReader, Leader, ask_epoch_ends
from logagent.kafka.commitment import quorum_known_until_ms
from logagent.kafka.extents import EpochEnd, LogExtent
from logagent.kafka.files.log_extent import read_log_extent
from logagent.kafka.files.properties import read_topic_id
from logagent.verdict.copies import covers, why_not_covered
from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.long_form import versions

ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize("version", versions("4.4.0", "4.3.1", "3.5.2", "3.9.1"))
def test_a_leader_says_where_an_epoch_ends(shared_node: Callable[..., KafkaNode], version: str) -> None:
    node = shared_node(version)
    node.create_topic("orders")
    node.produce("orders", 0, n=50)
    own, topic_id = look(node)
    assert own.last_epoch == 0 and own.log_end == 50
    with AdminReader(node.bootstrap) as reader:
        answer = reader.epoch_ends({"x": (ORDERS, 0)}, {"orders": topic_id})["x"]
        assert (answer.epoch, answer.end_offset, answer.log_start, answer.high_watermark) == (0, 50, 0, 50)
        assert covers(answer, own)
        # Two copies of one partition; another incarnation; a partition that is not there; an epoch that never was.
        two = reader.epoch_ends({"x": (ORDERS, 0), "y": (ORDERS, 99)}, {"orders": topic_id})
        assert two["x"] == answer and two["y"].end_offset is None
        assert reader.epoch_ends({"x": (ORDERS, 0)}, {"orders": "AAAAAAAAAAAAAAAAAAAAEA"}) == {}
        # What this host's own broker leads, its files answer for.
        (here,) = reader.epoch_ends({"x": (ORDERS, 0)}, {"orders": topic_id}, but_not=node.node_id).values()
        assert here.led_here and not covers(here, own)
        # Who does not lead, or not in that leader epoch, says nothing; nor does who is asked without one.
        epoch = reader._leaders([ORDERS], {"orders": topic_id})[ORDERS].epoch
        for asked, answers in ((epoch, True), (epoch + 1, False), (epoch - 1, False), (-1, False)):
            found = ask_epoch_ends(reader._client, {ORDERS: Leader(node.node_id, asked)}, {ORDERS: 0})
            assert bool(found) is answers, asked
        assert reader.epoch_ends({"x": (TopicPartition("orders", 7), 0)}, {"orders": topic_id}) == {}
        assert reader.has_quorum(1)
        now_ms = time.time_ns() // 1_000_000
        until = quorum_known_until_ms(reader.quorum(), 1, now_ms)
        assert isinstance(until, int) and now_ms - 62_000 < until <= now_ms - 58_000
    node.delete_topic("orders")


@pytest.mark.parametrize("version", versions("3.9.1", "4.4.0", "4.3.1"))
def test_what_the_leader_has_not_committed_covers_nothing(
    kafka_cluster: Callable[..., KafkaCluster], version: str
) -> None:
    """Its log ends at 100, and so does the epoch, whoever asks; but a failover now would leave 50. The two brokers are
    its own: they are set to wait long for each other, and one is paused."""
    patient = {"broker.session.timeout.ms": "600000", "replica.lag.time.max.ms": "600000"}
    cluster = kafka_cluster(version, nodes=2, log_dirs=1, props=patient).start()
    leader, follower = cluster.node(1), cluster.node(2)
    cluster.create_topic("orders", assignments={0: [1, 2]})
    cluster.produce("orders", 0, n=50)
    cluster.wait_in_sync("orders")
    # It learns where the leader is while both answer: else it may ask the paused one, and wait for that.
    producer = KafkaProducer(bootstrap_servers=leader.bootstrap, acks=1)
    assert producer.partitions_for("orders") == {0}
    follower.pause()
    try:
        for future in [producer.send("orders", value=b"x" * 100, partition=0) for _ in range(50)]:
            future.get(timeout=60)
        producer.close()
        own, topic_id = look(leader)
        assert own.log_end == 100
        answers: dict[str, EpochEnd] = {}

        def answered() -> bool:
            # The client may have asked the paused one about the cluster: then nobody has answered.
            with AdminReader(leader.bootstrap) as reader:
                answers.update(reader.epoch_ends({"x": (ORDERS, 0)}, {"orders": topic_id}))
            return "x" in answers

        wait_until(answered, 120, "the leader answers", 0.5)
        answer = answers["x"]
        assert (answer.epoch, answer.end_offset, answer.high_watermark) == (0, 100, 50)
        assert not covers(answer, own)
        assert "only what is below 50 is committed" in why_not_covered(own, (answer,))
    finally:
        follower.resume()

    def committed() -> bool:
        with AdminReader(leader.bootstrap) as reader:
            return covers(reader.epoch_ends({"x": (ORDERS, 0)}, {"orders": topic_id})["x"], own)

    wait_until(committed, 60, "the follower has it, too", 0.5)


def look(node: KafkaNode) -> tuple[LogExtent, str]:
    """The log of orders-0 on the disk of a broker, and its topic id."""
    folder = next(d / "orders-0" for d in node.log_dirs if (d / "orders-0").is_dir())
    fd = os.open(folder, os.O_RDONLY)
    try:
        own, topic_id = read_log_extent(fd), read_topic_id(fd)
    finally:
        os.close(fd)
    assert topic_id is not None
    return own, topic_id
