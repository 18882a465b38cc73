"""A small cluster that lives: what it decides goes into a metadata log, and its brokers answer as they would.

Node 1 is the host of a test, whose broker is stopped; node 2 leads `orders` and answers for the cluster. The answers
stand in for the connection (`kafka.admin.client`), so what is made of them is the product's own. They are the truth of
the moment, which the log on the host's disk need not be.
"""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from logagent.base.errors import ServiceUnreachable
from tests import metadata_writer as writer
from tests.metadata_writer import id_of, raw_id

CLUSTER_ID = "abcdefghijklmnopqrstuv"
HERE, OTHER, THIRD, CONTROLLER = 1, 2, 3, 100
DIRECTORY_IDS = ("FirstDirFirstDirFirstA", "SecondDirSecondDirSecA")
NAME, KEPT = "orders", "kept"
METADATA_VERSION = 11
NOT_LEADER, UNKNOWN_TOPIC, UNKNOWN_ID, FENCED_EPOCH = 6, 3, 100, 74
MINUTE_MS = 60_000


@dataclass
class LeaderLog:
    """The log of `orders-0` where it is led: (leader epoch, first offset), where it begins and ends, and up to where
    it is committed."""

    epochs: tuple[tuple[int, int], ...] = ((0, 0),)
    end: int = 200
    start: int = 0
    high_watermark: int = 200

    def has(self, epoch: int, end: int) -> bool:
        """Whether it has, committed, the records of that epoch up to `end`. (What it deleted of them from below counts
        as had, as long as it begins before the end: of more than that, retention is said.)"""
        known, ends_at = self.end_offset_for(epoch)
        return known == epoch and min(ends_at, self.high_watermark) >= end > self.start

    def truncates(self, epoch: int, end: int) -> bool:
        """Whether a follower with these records gives up some of them."""
        known, ends_at = self.end_offset_for(epoch)
        return known != epoch or ends_at < end

    def end_offset_for(self, asked: int) -> tuple[int, int]:
        """As `LeaderEpochFileCache.endOffsetFor`."""
        if self.epochs and asked == self.epochs[-1][0]:
            return asked, self.end
        later = [start for epoch, start in self.epochs if epoch > asked]
        if not later:
            return -1, -1
        return max((epoch for epoch, _ in self.epochs if epoch <= asked), default=asked), later[0]


@dataclass
class TopicNow:
    """One partition of one topic, as the cluster has it now."""

    topic_id: str
    replicas: tuple[int, ...] = (HERE, OTHER)
    isr: tuple[int, ...] = (HERE, OTHER)
    leader: int = OTHER
    epoch: int = 0
    retention: dict[str, int] = field(default_factory=lambda: {"retention.ms": -1, "retention.bytes": -1})


@dataclass
class LivingCluster:
    """`written`: the metadata log, batch by batch. `deposed`: node 2 was cut off, and answers as it did before."""

    port: int
    topics: dict[str, TopicNow] = field(default_factory=dict)
    log: LeaderLog = field(default_factory=LeaderLog)
    written: list[bytes] = field(default_factory=list)
    offset: int = 0
    epoch: int = 1
    deposed: bool = False
    reachable: bool = True
    made: int = 0

    def __post_init__(self) -> None:
        self.begins_ms = now_ms() - 30 * MINUTE_MS
        lead = (writer.LEADER_CHANGE, writer.leader_change([CONTROLLER])[1])
        self._append([lead], at_ms=self.begins_ms, control=True)
        brokers = [self.registration(HERE, DIRECTORY_IDS), self.registration(OTHER), self.registration(THIRD)]
        self._append([writer.feature_level("metadata.version", METADATA_VERSION), *brokers], at_ms=self.begins_ms)
        self.create(KEPT, at_ms=self.begins_ms)

    def registration(self, node: int, directories: Sequence[str] = (), *, incarnation: bytes = b"\1" * 16) -> bytes:
        address = ("127.0.0.1", self.port)
        return writer.register_broker(node, directories, fenced=False, incarnation=incarnation, address=address)

    def _append(self, values: Sequence[Any], *, at_ms: int | None = None, control: bool = False) -> None:
        at_ms = now_ms() if at_ms is None else at_ms
        self.written.append(writer.batch(self.offset, values, at_ms, epoch=self.epoch, control=control))
        self.offset += len(values)

    # What happens in it

    def beat(self) -> None:
        """Half a second in which nothing is decided."""
        self._append([writer.NO_OP])

    def create(self, name: str, *, at_ms: int | None = None) -> TopicNow:
        made = TopicNow(id_of(500 + self.made))
        self.made, self.topics[name] = self.made + 1, made
        partition = writer.partition(made.topic_id, 0, made.replicas, leader=made.leader, version=0)
        self._append([writer.topic(name, made.topic_id), partition], at_ms=at_ms)
        return made

    def delete(self, name: str) -> None:
        self._append([writer.remove_topic(self.topics.pop(name).topic_id)])

    def reassign(self, name: str, *replicas: int) -> None:
        found = self.topics[name]
        found.replicas = found.isr = replicas
        found.leader = found.leader if found.leader in replicas else replicas[0]
        self._append([writer.partition_change(found.topic_id, 0, replicas=replicas, isr=replicas, version=0)])

    def elect_uncleanly(self, name: str, since: int) -> None:
        """Who leads now has had nothing from `since` on, and goes on from there, longer than before."""
        found = self.topics[name]
        found.epoch += 1
        self.log = LeaderLog((*(e for e in self.log.epochs if e[1] < since), (found.epoch, since)), 900, 0, 900)
        self._append([writer.partition_change(found.topic_id, 0, leader=found.leader, isr=(OTHER,), version=0)])

    def keep(self, name: str, setting: str, value: int) -> None:
        self.topics[name].retention[setting] = value
        self._append([writer.config(2, name, setting, str(value))])

    def has(self, topic_id: str, epoch: int, end: int) -> bool:
        """Whether the leader, whoever that is by now, has these records of `orders-0` for good, up to `end`."""
        found = self.topics.get(NAME)
        return (
            found is not None
            and found.topic_id == topic_id
            and not self.deposed
            and found.leader == OTHER
            and self.log.has(epoch, end)
        )

    def lives(self, topic_id: str) -> bool:
        return any(topic.topic_id == topic_id for topic in self.topics.values())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def write_log(directory: Path, batches: Sequence[bytes]) -> None:
    """What a broker's disk has of it, as if it were written now."""
    directory.mkdir(parents=True, exist_ok=True)
    writer.write_segment(directory, 0, b"".join(batches))
    writer.write_quorum_state(directory, CONTROLLER, [CONTROLLER])


def offsets(batches: Sequence[bytes]) -> int:
    """Where a log of these batches ends."""
    return sum(struct.unpack_from(">i", each, 57)[0] for each in batches)


class Connection:
    """Stands in for `AdminClient`: what the brokers of `cluster` answer."""

    timeout = 5.0
    until: float | None = None

    def __init__(self, cluster: LivingCluster) -> None:
        self.cluster, self.bootstrap_servers = cluster, f"127.0.0.1:{cluster.port}"

    def close(self) -> None:
        """Nothing is open."""

    def request_version(self, request_class: object, node_id: int) -> int:
        return 12

    def send_to_controller(self, make_request: Callable[[], Any]) -> Any:
        return self.send(make_request)

    def send(self, make_request: Callable[[], Any], node_id: int | None = None) -> Any:
        if not self.cluster.reachable or node_id == HERE:
            raise ServiceUnreachable("nobody answers there")
        request = make_request()
        return getattr(self, f"_{type(request).__name__}")(request)

    def _MetadataRequest(self, request: Any) -> Any:  # noqa: N802
        by_id = {uuid.UUID(bytes=raw_id(t.topic_id)): n for n, t in self.cluster.topics.items()}
        topics = [self._topic(name) for name in self.cluster.topics] if request.topics is None else []
        for asked in request.topics or ():
            name = asked.name or by_id.get(asked.topic_id)
            missing = SimpleNamespace(error_code=UNKNOWN_ID, name=asked.name, topic_id=asked.topic_id, partitions=[])
            topics.append(self._topic(name) if name in self.cluster.topics else missing)
        brokers = [SimpleNamespace(node_id=n, host="127.0.0.1", port=self.cluster.port) for n in (OTHER, THIRD)]
        return SimpleNamespace(error_code=0, cluster_id=CLUSTER_ID, brokers=brokers, topics=topics)

    def _topic(self, name: str) -> Any:
        found = self.cluster.topics[name]
        live = [n for n in found.isr if n != HERE]
        partition = SimpleNamespace(
            error_code=0 if found.leader != HERE else 5,
            partition_index=0,
            leader_id=found.leader if found.leader != HERE else -1,
            leader_epoch=found.epoch,
            replica_nodes=list(found.replicas),
            isr_nodes=live or list(found.isr),
        )
        topic_id = uuid.UUID(bytes=raw_id(found.topic_id))
        return SimpleNamespace(error_code=0, name=name, topic_id=topic_id, partitions=[partition])

    def _DescribeQuorumRequest(self, _: Any) -> Any:  # noqa: N802
        now = now_ms()

        def replica(node: int, at_ms: int) -> Any:
            return SimpleNamespace(replica_id=node, last_fetch_timestamp=at_ms, last_caught_up_timestamp=at_ms)

        cut_off = now - 10 * MINUTE_MS if self.cluster.deposed else now
        partition = SimpleNamespace(
            error_code=0,
            leader_id=CONTROLLER,
            leader_epoch=self.cluster.epoch,
            high_watermark=self.cluster.offset,
            current_voters=[replica(CONTROLLER, now)],
            observers=[replica(OTHER, cut_off), replica(THIRD, now)],
        )
        topic = SimpleNamespace(topic_name="__cluster_metadata", partitions=[partition])
        return SimpleNamespace(error_code=0, topics=[topic])

    def _ListPartitionReassignmentsRequest(self, _: Any) -> Any:  # noqa: N802
        return SimpleNamespace(error_code=0, error_message=None, topics=[])

    def _refuses(self, name: str, asked: Any) -> int:
        """As `Partition.checkCurrentLeaderEpoch`."""
        found = self.cluster.topics.get(name)
        if found is None:
            return UNKNOWN_TOPIC
        if found.leader != OTHER:
            return NOT_LEADER
        return 0 if asked.current_leader_epoch in (-1, found.epoch) else FENCED_EPOCH

    def _OffsetForLeaderEpochRequest(self, request: Any) -> Any:  # noqa: N802
        def answer(topic: str, asked: Any) -> Any:
            epoch, end = self.cluster.log.end_offset_for(asked.leader_epoch)
            refused = self._refuses(topic, asked)
            return SimpleNamespace(partition=asked.partition, error_code=refused, leader_epoch=epoch, end_offset=end)

        return SimpleNamespace(
            topics=[
                SimpleNamespace(topic=t.topic, partitions=[answer(t.topic, p) for p in t.partitions])
                for t in request.topics
            ]
        )

    def _ListOffsetsRequest(self, request: Any) -> Any:  # noqa: N802
        def answer(topic: str, asked: Any) -> Any:
            log = self.cluster.log
            first = next((epoch for epoch, start in reversed(log.epochs) if start <= log.start), -1)
            offset, epoch = (log.start, first) if asked.timestamp == -2 else (log.high_watermark, log.epochs[-1][0])
            refused = self._refuses(topic, asked)
            return SimpleNamespace(
                partition_index=asked.partition_index, error_code=refused, offset=offset, leader_epoch=epoch
            )

        return SimpleNamespace(
            topics=[
                SimpleNamespace(name=t.name, partitions=[answer(t.name, p) for p in t.partitions])
                for t in request.topics
            ]
        )

    def _DescribeConfigsRequest(self, request: Any) -> Any:  # noqa: N802
        def result(name: str) -> Any:
            found = self.cluster.topics.get(name)
            if found is None:
                return SimpleNamespace(error_code=UNKNOWN_TOPIC, resource_name=name, configs=[])
            rest = {"cleanup.policy": "delete", "local.retention.ms": "-2"}
            configs = [SimpleNamespace(name=k, value=str(v), config_source=1) for k, v in found.retention.items()]
            configs += [SimpleNamespace(name=k, value=v, config_source=5) for k, v in rest.items()]
            return SimpleNamespace(error_code=0, resource_name=name, configs=configs)

        return SimpleNamespace(results=[result(r.resource_name) for r in request.resources])


@contextmanager
def listening() -> Iterator[int]:
    """A port at which somebody listens, and nobody speaks."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as server:
        yield server.getsockname()[1]


@contextmanager
def answering(cluster: LivingCluster) -> Iterator[None]:
    """Whoever connects gets the answers of `cluster`."""
    with mock.patch("logagent.kafka.admin.reader.AdminClient", lambda *_, **__: Connection(cluster)):
        yield
