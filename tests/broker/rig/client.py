"""What a test asks of a running cluster, through kafka-python: topics, records, log dirs.

Each call makes a client of its own and closes it: a client that outlives a broker's restart keeps stale addresses.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.broker.rig.process import wait_until

REQUEST_TIMEOUT_MS = 30_000

T = TypeVar("T")


@dataclass(frozen=True)
class Record:
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


@dataclass(frozen=True)
class Replica:
    """One log as `DescribeLogDirs` reports it."""

    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True)
class LogDirState:
    """One log dir as `DescribeLogDirs` reports it: error code (0 none, 56 offline) and (topic, partition) in it."""

    error: int
    replicas: dict[tuple[str, int], Replica]


class KafkaClient:
    """The calls; `bootstrap` is `host:port`."""

    def __init__(self, bootstrap: str, **properties: Any) -> None:
        self.bootstrap = bootstrap
        self._properties = properties

    @contextlib.contextmanager
    def admin(self) -> Iterator[Any]:
        """A `kafka.KafkaAdminClient`, for whatever has no method here."""
        from kafka import KafkaAdminClient

        client = KafkaAdminClient(
            bootstrap_servers=self.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS, **self._properties
        )
        try:
            yield client
        finally:
            client.close()

    def ask(self, question: Callable[[Any], T], timeout: float = 30) -> T:
        """What `question` returns for an admin client; asked again while a broker that just died is still listed.

        kafka-python sends to any broker of its list (the "controller" of a KRaft cluster is one of them too).
        """
        from kafka.errors import KafkaConnectionError, NodeNotReadyError

        deadline = time.monotonic() + timeout
        while True:
            try:
                with self.admin() as admin:
                    return question(admin)
            except (KafkaConnectionError, NodeNotReadyError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        rf: int = 1,
        config: Mapping[str, str] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """Create a topic and wait until every partition has a leader and every live replica its directory.

        `assignments` names the replicas by hand.
        """
        topic: dict[str, Any] = {"configs": dict(config or {})}
        if assignments:
            topic["assignments"] = {p: list(replicas) for p, replicas in assignments.items()}
        else:
            topic.update(num_partitions=partitions, replication_factor=rf)
        self.ask(lambda admin: admin.create_topics({name: topic}))
        self.ask(lambda admin: admin.wait_for_topics([name], timeout_ms=REQUEST_TIMEOUT_MS))
        (described,) = self.ask(lambda admin: admin.describe_topics([name]))
        wanted = {(node, p["partition_index"]) for p in described["partitions"] for node in p["replica_nodes"]}

        def made() -> bool:
            logs = self._logs_of(name)
            return all((node, partition) in logs[node] for node, partition in wanted if node in logs)

        wait_until(made, 30, f"the brokers make the directories of {name}", interval=0.05)

    def delete_topic(self, name: str, timeout: float = 30) -> None:
        """Delete a topic and wait until no live broker has it any more (its directories are then marked, not gone)."""
        self.ask(lambda admin: admin.delete_topics([name]))
        wait_until(
            lambda: name not in self.topics() and not any(self._logs_of(name).values()),
            timeout,
            f"the brokers forget {name}",
            interval=0.05,
        )

    def _logs_of(self, topic: str) -> dict[int, set[tuple[int, int]]]:
        """(node, partition) of every log of a topic, by node; nodes that do not answer are left out."""
        from kafka.errors import KafkaError

        logs: dict[int, set[tuple[int, int]]] = {}
        for node in self.live_nodes():
            with contextlib.suppress(KafkaError):
                states = self.log_dirs_of(node).values()
                logs[node] = {(node, p) for state in states for name, p in state.replicas if name == topic}
        return logs

    def live_nodes(self) -> set[int]:
        """The brokers that the cluster lists as alive."""
        described = self.ask(lambda admin: admin._manager.run(admin._get_cluster_metadata, []))
        return {broker["node_id"] for broker in described["brokers"]}

    def topics(self) -> list[str]:
        return sorted(self.ask(lambda admin: admin.list_topics()))

    def topic_id(self, name: str) -> uuid.UUID | None:
        """The topic's id (None where the broker is older than topic ids)."""
        (topic,) = self.ask(lambda admin: admin.describe_topics([name]))
        return uuid.UUID(str(topic["topic_id"])) if topic.get("topic_id") else None

    def produce(
        self, topic: str, partition: int = 0, n: int = 10, size: int = 100, prefix: str = "record"
    ) -> list[bytes]:
        """Write `n` records of about `size` bytes with acks=all; their values (all different), in order."""
        from kafka import KafkaProducer

        values = [f"{prefix}-{topic}-{partition}-{i}".encode().ljust(size, b".") for i in range(n)]
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, acks="all", linger_ms=5, **self._properties)
        try:
            sent = [producer.send(topic, value=value, partition=partition) for value in values]
            producer.flush(timeout=60)
            for future in sent:
                future.get(timeout=60)
        finally:
            producer.close()
        return values

    def read_all(self, topic: str, partition: int = 0, timeout: float = 60) -> list[Record]:
        """Every record from the log's start to its end now."""
        from kafka import KafkaConsumer, TopicPartition

        here = TopicPartition(topic, partition)
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            group_id=None,
            **self._properties,
        )
        records: list[Record] = []
        deadline = time.monotonic() + timeout
        try:
            consumer.assign([here])
            consumer.seek_to_beginning(here)
            end = consumer.end_offsets([here])[here]
            while consumer.position(here) < end:
                if time.monotonic() > deadline:
                    raise AssertionError(f"read {len(records)} records of {here} in {timeout:g} s, the end is {end}")
                for batch in consumer.poll(timeout_ms=500).values():
                    records += [Record(r.offset, r.key, r.value, r.timestamp) for r in batch]
        finally:
            consumer.close()
        return records

    def log_dirs_of(self, node_id: int) -> dict[str, LogDirState]:
        """What node `node_id` says about its log dirs, by path."""
        with self.admin() as admin:
            (answer,) = admin.describe_log_dirs(brokers=[node_id])
        states: dict[str, LogDirState] = {}
        for one in answer["log_dirs"]:
            replicas = {
                (topic["name"], p["partition_index"]): Replica(p["partition_size"], p["offset_lag"], p["is_future_key"])
                for topic in one["topics"]
                for p in topic["partitions"]
            }
            states[one["log_dir"]] = LogDirState(one["error_code"], replicas)
        return states

    def reassign(self, topic: str, replicas: Mapping[int, Sequence[int] | None]) -> None:
        """Start moving partitions to other nodes (`{partition: [node ids]}`; None cancels)."""
        from kafka import TopicPartition

        wanted = {TopicPartition(topic, p): list(r) if r else None for p, r in replicas.items()}
        answers = self.ask(lambda admin: admin.alter_partition_reassignments(wanted))
        refused = {str(where): error for where, error in answers.items() if error is not None}
        assert not refused, refused

    def reassignments(self) -> dict[tuple[str, int], dict[str, list[int]]]:
        """Reassignments under way."""
        moving = self.ask(lambda admin: admin.list_partition_reassignments())
        return {(where.topic, where.partition): how for where, how in moving.items()}

    def move_replica(self, topic: str, partition: int, node_id: int, log_dir: str) -> None:
        """Start moving a replica to another log dir of the same node."""
        from kafka.structs import TopicPartitionReplica

        with self.admin() as admin:
            answer = admin.alter_replica_log_dirs({TopicPartitionReplica(topic, partition, node_id): log_dir})
        refused = {str(where): error.__name__ for where, error in answer.items() if error.errno != 0}
        assert answer and not refused, refused

    def wait_moved(self, topic: str, partition: int, node_id: int, log_dir: str, timeout: float = 60) -> None:
        """Return when the replica lies in `log_dir` and its future copy has taken its place."""

        def moved() -> bool:
            dirs = self.log_dirs_of(node_id)
            logs = {path: s.replicas.get((topic, partition)) for path, s in dirs.items()}
            here = logs.pop(log_dir, None)
            return here is not None and not here.is_future and not any(logs.values())

        wait_until(moved, timeout, f"{topic}-{partition} moves to {log_dir} on node {node_id}", interval=0.1)
