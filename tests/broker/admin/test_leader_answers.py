"""What leaders and the quorum answer on real brokers: the end of a leader epoch, and how far a broker is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from logagent.broker.admin.reader import AdminReader
from logagent.broker.files.log_look import look_at_log
from logagent.broker.files.meta_properties import read_topic_id
from logagent.model.assignments.commitment import quorum_known_until_ms
from logagent.model.assignments.covered import covers
from logagent.model.records import TopicPartition
from tests.broker.rig.kafka import KafkaNode

ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize("version", ["3.5.2", "4.3.1"])
def test_a_leader_says_where_an_epoch_ends(kafka: Callable[..., KafkaNode], version: str) -> None:
    node = kafka(version).start()
    node.create_topic("orders")
    node.produce("orders", 0, n=50)
    folder = next(d / "orders-0" for d in node.log_dirs if (d / "orders-0").is_dir())
    fd = os.open(folder, os.O_RDONLY)
    try:
        own, topic_id = look_at_log(fd), read_topic_id(fd)
    finally:
        os.close(fd)
    assert topic_id is not None and own.last_epoch == 0 and own.log_end == 50
    with AdminReader(node.bootstrap) as reader:
        answer = reader.epoch_ends({"x": (ORDERS, 0)}, {"orders": topic_id})["x"]
        assert (answer.epoch, answer.end_offset, answer.log_start) == (0, 50, 0)
        assert covers(answer, own)
        # Two copies of one partition; another incarnation; a partition that is not there; an epoch that never was.
        two = reader.epoch_ends({"x": (ORDERS, 0), "y": (ORDERS, 99)}, {"orders": topic_id})
        assert two["x"] == answer and two["y"].end_offset is None
        assert reader.epoch_ends({"x": (ORDERS, 0)}, {"orders": "AAAAAAAAAAAAAAAAAAAAEA"}) == {}
        assert reader.epoch_ends({"x": (ORDERS, 0)}, {"orders": topic_id}, but_not=node.node_id) == {}
        assert reader.epoch_ends({"x": (TopicPartition("orders", 7), 0)}, {"orders": topic_id}) == {}
        assert reader.has_quorum(1)
        now_ms = time.time_ns() // 1_000_000
        until = quorum_known_until_ms(reader.quorum(), 1, now_ms)
        assert isinstance(until, int) and now_ms - 62_000 < until <= now_ms - 58_000
