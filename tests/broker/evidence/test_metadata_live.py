"""The metadata log of a broker that runs, changes, drops old segments, and is killed, while we read it.

The brokers are their own, as they drop segments and snapshots every few moments, and are stopped or killed.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.base.records import id_to_text
from logagent.kafka.metadata_log.log import MetadataImage, read_metadata_log
from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.kafka import KraftNode
from tests.broker.rig.process import wait_until
from tests.long_form import long_form, versions

VERSIONS = versions("4.4.0", "4.3.1", "4.1.0", "3.9.1", "3.7.0", "3.6.0", "3.3.2")
# Snapshots, new segments and the deletion of old ones every few moments, where the defaults are hours.
CHURN = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.log.segment.ms": "1000",
    "metadata.max.retention.bytes": "6000",
}


def read(node: KraftNode) -> MetadataImage:
    return read_metadata_log(
        str(node.metadata_dir / "__cluster_metadata-0"),
        node_id=node.node_id,
        cluster_id=node.cluster_id,
        now_ms=time.time_ns() // 1_000_000,
    )


class Readings:
    """Reads a node's log over and over in a thread of its own, every so many seconds."""

    def __init__(self, node: KraftNode, interval: float) -> None:
        self._node, self._interval = node, interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.images: list[MetadataImage] = []
        self.failure: BaseException | None = None
        read(node)

    def __enter__(self) -> Readings:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._interval):
                self.images.append(read(self._node))
        except BaseException as error:
            self.failure = error


def told_by_admin(node: KraftNode | KafkaCluster) -> dict[str, tuple[str, dict[int, list[int]]]]:
    """Topics with ids and replicas as the Admin API gives them."""
    described = node.ask(lambda admin: admin.describe_topics())
    return {
        topic["name"]: (
            id_to_text(uuid.UUID(str(topic["topic_id"])).bytes),
            {p["partition_index"]: list(p["replica_nodes"]) for p in topic["partitions"]},
        )
        for topic in described
    }


def told_by_log(image: MetadataImage) -> dict[str, tuple[str | None, dict[int, list[int]]]]:
    topics = image.assignments.by_name.values()
    return {t.name: (t.topic_id, {n: list(p.replicas) for n, p in t.partitions.items()}) for t in topics}


@pytest.mark.parametrize("version", VERSIONS)
def test_beside_a_live_broker(kafka: Callable[..., KraftNode], version: str) -> None:
    node = kafka(version, props=CHURN).start()
    # The names that live after each step; an image must be one of these, and never an earlier one than before.
    steps: list[frozenset[str]] = [frozenset()]
    with Readings(node, 0.02) as readings:
        for number in range(12):
            node.create_topic(f"topic-{number}", partitions=2)
            steps.append(steps[-1] | {f"topic-{number}"})
            if number % 3 == 2:
                node.delete_topic(f"topic-{number - 2}")
                steps.append(steps[-1] - {f"topic-{number - 2}"})
        wait_until(lambda: frozenset(read(node).assignments.by_name) == steps[-1], 10, "the last step is read")
    assert readings.failure is None
    assert len(readings.images) > 20
    reached = 0
    for image in readings.images:
        names = frozenset(image.assignments.by_name)
        reached = next(n for n in range(reached, len(steps)) if steps[n] == names)
        assert image.voters == 1
        assert not image.assignments.uncommitted
    offsets = [image.assignments.offset or 0 for image in readings.images]
    assert offsets == sorted(offsets)
    assert told_by_log(read(node)) == told_by_admin(node)
    age_ms = read(node).assignments.age_ms(time.time_ns() // 1_000_000)
    assert age_ms < 10_000
    node.kill()
    assert told_by_log(read(node)) == told_by_log(readings.images[-1])


@long_form
def test_old_segments_vanish_while_we_read(kafka: Callable[..., KraftNode]) -> None:
    """The broker's cleaner, which comes once a minute, renames segments and snapshots to `.deleted`."""
    node = kafka("4.4.0", props=CHURN).start()
    folder = node.metadata_dir / "__cluster_metadata-0"
    node.create_topic("topic", partitions=3)
    told = told_by_admin(node)
    with Readings(node, 0.1) as readings:
        wait_until(lambda: not (folder / f"{0:020}.log").exists(), 150, "the log no longer begins at 0")
        wait_until(lambda: any(folder.glob("*.deleted")), 10, "what was renamed is still there")
    assert readings.failure is None
    assert told_by_log(readings.images[-1]) == told
    assert readings.images[-1].snapshot is not None


@long_form
def test_three_nodes_tell_the_same(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster("4.3.1", nodes=3, props=CHURN).start()
    for number in range(4):
        cluster.create_topic(f"topic-{number}", assignments={0: [1, 2], 1: [2, 3], 2: [3, 1]})
    cluster.reassign("topic-0", {0: [2, 3]})
    cluster.wait_reassigned()
    cluster.delete_topic("topic-1")
    told = told_by_admin(cluster)
    assert told["topic-0"][1][0] == [2, 3]
    for node in cluster.nodes:
        wait_until(lambda node=node: told_by_log(read(node)) == told, 20, f"node {node.node_id} has it all")  # type: ignore[misc]
        image = read(node).assignments
        assert not image.uncommitted
        assert {n: len(b.directory_ids) for n, b in image.brokers.items()} == {1: 2, 2: 2, 3: 2}
        for number, log_dir in enumerate(node.log_dirs):
            own = _directory_id(log_dir)
            assert own in image.brokers[node.node_id].directory_ids, number
            _assert_directories(image.by_name.values(), node, log_dir, own)
    cluster.stop()
    assert {node.node_id: told_by_log(read(node)) for node in cluster.nodes} == dict.fromkeys((1, 2, 3), told)


def _directory_id(log_dir: Path) -> str:
    lines = (log_dir / "meta.properties").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))


def _assert_directories(topics: object, node: KraftNode, log_dir: Path, own: str) -> None:
    """Where the metadata names this directory for a replica of this node, its log lies there."""
    for topic in topics:  # type: ignore[attr-defined]
        for number, partition in topic.partitions.items():
            if partition.directory_of(node.node_id) == own:
                assert (log_dir / f"{topic.name}-{number}").is_dir()
