"""A running cluster's topics, replicas, reassignments and log dirs, through the Admin API.

Works with KRaft and ZooKeeper-mode clusters (tested from 2.5.1 to 4.4.0). An answer is complete or an error: an empty
list of topics or of log dirs is how Kafka answers a principal that may not see them, so it never means "there are
none".

A topic that is merely missing from a list proves nothing. Only the broker that owns the disk can say that a topic id is
gone (`AdminReader.topic_ids_known`): it learns of a topic before it creates the directory, while other brokers lag by
seconds.

Leaders are asked where a leader epoch ends in their logs (OffsetForLeaderEpoch, KIP-101), and what of them is committed
(ListOffsets). Every such question names the leader epoch in which its receiver is believed to lead (KIP-320): a broker
that does not lead in just that one refuses. With epoch -1, as tools ask, one that was deposed and has not noticed
answers for its own log.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Self, TypeVar

from logagent.base.dir_names import METADATA_TOPIC
from logagent.base.errors import ServiceUnreachable, UnreadableError
from logagent.base.records import ZERO_ID, TopicPartition, id_from_text
from logagent.kafka.admin.client import (
    AdminClient,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeQuorumRequest,
    ListOffsetsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)
from logagent.kafka.admin.responses import (
    CLUSTER_AUTHORIZATION_FAILED,
    NONE,
    HeldLogDir,
    IdAnswer,
    LogDirDescription,
    ask_broker_settings,
    ask_topic_settings,
    held_log_dir,
    id_answer,
    log_dir_of,
    quorum_of,
    topic_id_of,
    topic_of,
    transactions_of,
)
from logagent.kafka.commitment import QuorumRead, why_may_be_deposed
from logagent.kafka.extents import EpochEnd
from logagent.kafka.identity import BrokerPlace
from logagent.kafka.image import AssignmentImage, BrokerRegistration, Source, Topic, make_image
from logagent.kafka.retention.reasons import OpenTransaction
from logagent.kafka.retention.settings import DescribedConfig

_CONSUMER = -1
_LATEST = -1
_EARLIEST = -2
_UNDEFINED = -1


class Leader(NamedTuple):
    """Who leads a partition, and in which leader epoch (-1: the broker that was asked does not say, before 2.1)."""

    node_id: int
    epoch: int

    @property
    def where(self) -> str:
        return f"the leader (node {self.node_id})"


Leaders = Mapping[TopicPartition, Leader]


def ask_epoch_ends(
    client: AdminClient, leaders: Leaders, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, EpochEnd]:
    """For each of `wanted` (partition: leader epoch) that its leader answers, where that epoch ends in its log, and up
    to where that is committed."""
    answers: dict[TopicPartition, EpochEnd] = {}
    asked = {p: epoch for p, epoch in wanted.items() if p in leaders and leaders[p].epoch >= 0}
    for node_id in sorted({leaders[p].node_id for p in asked}):
        mine = {p: epoch for p, epoch in asked.items() if leaders[p].node_id == node_id}
        try:
            starts = _offsets(client, node_id, mine, leaders, _EARLIEST)
            ends = _ends(client, node_id, mine, leaders)
            # Last: what is committed by now includes what was there when it was asked for.
            committed = _offsets(client, node_id, mine, leaders, _LATEST)
        except (ServiceUnreachable, UnreadableError):
            continue
        for partition, (epoch, end) in ends.items():
            start, oldest = starts.get(partition, (None, _UNDEFINED))
            # For an epoch below all those it knows, a leader returns the start of the first known epoch as the end of
            # the requested one (`LeaderEpochFileCache.endOffsetFor`): this proves nothing about earlier records.
            known = 0 <= oldest <= epoch
            answers[partition] = EpochEnd(
                leaders[partition].where,
                epoch if known else None,
                end if known else None,
                start,
                high_watermark=committed.get(partition, (None, _UNDEFINED))[0],
            )
    return answers


def _ends(
    client: AdminClient, node_id: int, wanted: Mapping[TopicPartition, int], leaders: Leaders
) -> dict[TopicPartition, tuple[int, int]]:
    topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition_type = topic_type.OffsetForLeaderPartition
    topics = [
        topic_type(
            topic=topic,
            partitions=[
                partition_type(partition=p.partition, current_leader_epoch=leaders[p].epoch, leader_epoch=wanted[p])
                for p in partitions
            ],
        )
        for topic, partitions in _by_topic(wanted)
    ]
    # The end of its newest epoch is that of its log, committed or not, whoever asks (`UnifiedLog.endOffsetForEpoch`).
    # From version 2 on (Kafka 2.1) the request has the current epoch.
    response = client.send(
        lambda: OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics, min_version=2), node_id
    )
    return {
        TopicPartition(t.topic, p.partition): (p.leader_epoch, p.end_offset)
        for t in response.topics
        for p in t.partitions
        if p.error_code == NONE
    }


def _offsets(
    client: AdminClient, node_id: int, wanted: Iterable[TopicPartition], leaders: Leaders, timestamp: int
) -> dict[TopicPartition, tuple[int, int]]:
    """Where each log begins, or up to where a consumer may read it (its high watermark), and the leader epoch of the
    record there (-1 if the leader does not know it)."""
    topic_type = ListOffsetsRequest.ListOffsetsTopic
    partition_type = topic_type.ListOffsetsPartition
    topics = [
        topic_type(
            name=topic,
            partitions=[
                partition_type(partition_index=p.partition, current_leader_epoch=leaders[p].epoch, timestamp=timestamp)
                for p in partitions
            ],
        )
        for topic, partitions in _by_topic(wanted)
    ]
    # As a consumer: to a replica a leader says where its log ends. From version 4 on the request has the current epoch.
    response: Any = client.send(
        lambda: ListOffsetsRequest(replica_id=_CONSUMER, isolation_level=0, topics=topics, min_version=4), node_id
    )
    return {
        TopicPartition(t.name, p.partition_index): (p.offset, p.leader_epoch)
        for t in response.topics
        for p in t.partitions
        if p.error_code == NONE and p.offset > _UNDEFINED
    }


def _by_topic(wanted: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in wanted:
        by_topic.setdefault(partition.topic, []).append(partition)
    return sorted(by_topic.items())


__all__ = ["AdminReader", "IdAnswer", "LogDirDescription"]

K = TypeVar("K")

BY_ID_VERSION = 12
"""Metadata requests name topics by id from this version on (Kafka 3.1); older brokers drop the connection."""

IDS_A_REQUEST = 1000
CANARIES = 3
LAG_MS = 60_000
"""How long a broker may take to learn what happened elsewhere; 15 s was observed on a busy machine."""


class AdminReader:
    """One round of requests to one cluster; close it afterwards and create a new one for the next round.

    `client_config` is the result of `client_properties`; `timeout` (seconds) limits each request, not the round (a hung
    name server is limited only by the system's resolver). `client` is used instead of a new connection.
    Unless it says otherwise, every method raises `ServiceUnreachable` if nobody answers (also for wrong credentials)
    and `UnreadableError` if an answer is partial, empty or refused.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        client_config: Mapping[str, Any] | None = None,
        timeout: float = 10.0,
        *,
        client: AdminClient | None = None,
    ) -> None:
        self._client = client or AdminClient(bootstrap_servers, client_config or {}, timeout)
        self._living_ids: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    @property
    def principal(self) -> str:
        return self._client.principal

    def stop_at(self, until: float) -> None:
        """Wait for nobody any more after that time on the monotonic clock."""
        self._client.until = until

    def cluster_id(self) -> str:
        """The cluster's id, as in every `meta.properties` of its brokers."""
        return self._cluster_id(self._metadata(topics=[]))

    def nodes(self) -> tuple[int, ...]:
        """The ids of the cluster's live brokers, in order."""
        return tuple(sorted(broker.node_id for broker in self._metadata(topics=[]).brokers))

    def image(self, at_ms: int, *, node_id: int | None = None, lag_ms: int = LAG_MS) -> AssignmentImage:
        """Every topic that the principal may describe, from `node_id` (or from any broker).

        `at_ms` is the current time; directories younger than `at_ms - lag_ms` are not judged. During a reassignment,
        `replicas` contains old and new ones. `brokers` are the live ones. Topic ids are None before 2.8. For log dirs
        see `log_dirs`. The image is never `complete`: what is missing may be hidden from the principal.
        """
        # In this order, a reassignment that ends in between still counts, which is the safe side.
        moving = self._reassignments()
        response = self._metadata(topics=None, node_id=node_id)
        topics = [topic_of(answer, moving) for answer in response.topics]
        if not topics:
            raise UnreadableError(
                f"{self._origin(node_id)} lists no topics: there are none, or the principal may describe none",
                hint="let it describe all topics: " + self._allow("--topic '*'"),
            )
        brokers = {b.node_id: BrokerRegistration(b.node_id, (), fenced=False) for b in response.brokers}
        image = make_image(
            topics,
            AssignmentImage(
                source=Source.ADMIN,
                cluster_id=self._cluster_id(response),
                at_ms=at_ms,
                known_until_ms=at_ms - lag_ms,
                complete=False,
                brokers=brokers,
                origin=self._origin(node_id),
            ),
        )
        self._living_ids = tuple(image.by_id)
        return image

    def topics_now(self, topic_ids: Container[str]) -> dict[str, Topic]:
        """Those of these topic ids that the cluster lists now, possibly none. `replicas` as in `image`."""
        moving = self._reassignments()
        topics = (topic_of(answer, moving) for answer in self._metadata(topics=None).topics)
        return {topic.topic_id: topic for topic in topics if topic.topic_id is not None and topic.topic_id in topic_ids}

    def in_sync(self, topic_ids: Container[str]) -> dict[tuple[str, int], frozenset[int]]:
        """For each partition of these topic ids that the cluster lists now: the live brokers in its ISR; none where its
        leader is not live, because an ISR keeps its last member when that dies."""
        response = self._metadata(topics=None)
        live = frozenset(broker.node_id for broker in response.brokers)
        by_partition: dict[tuple[str, int], frozenset[int]] = {}
        for answer in response.topics:
            topic_id = topic_id_of(answer)
            if topic_id is None or topic_id not in topic_ids:
                continue
            with suppress(UnreadableError):  # a partial answer about one topic says nothing of that topic
                for number, p in topic_of(answer, {}).partitions.items():
                    by_partition[topic_id, number] = live.intersection(p.isr) if p.leader in live else frozenset()
        return by_partition

    def topic_ids_known(
        self, node_id: int, topic_ids: Iterable[str], *, canaries: Iterable[str] | None = None
    ) -> dict[str, IdAnswer]:
        """What node `node_id` itself says about each topic id (22-character text).

        There is an answer for every id. It is `CANNOT_TELL` if the broker does not support the request (before 3.1),
        returns another error or no answer, or does not know all of a few living topics that are added to each request:
        a broker that has just started in ZooKeeper mode knows nothing yet, and a principal may not be allowed to see
        anything. `canaries`: the ids of these living topics, if it is not enough that the cluster lists them.
        """
        ids = list(dict.fromkeys(topic_ids))
        if not ids or self._client.request_version(MetadataRequest, node_id) < BY_ID_VERSION:
            return dict.fromkeys(ids, IdAnswer.CANNOT_TELL)
        if canaries is None and not self._living_ids:
            response = self._metadata(topics=None, node_id=node_id)
            self._living_ids = tuple(i for t in response.topics if (i := topic_id_of(t)) is not None)
        alive = [i for i in (self._living_ids if canaries is None else canaries) if i not in ids][:CANARIES]
        wanted = [i for i in ids if i != ZERO_ID]
        answers: dict[str, IdAnswer] = {}
        for start in range(0, len(wanted), IDS_A_REQUEST):
            part = wanted[start : start + IDS_A_REQUEST]
            answers.update(_sure(self._ask_ids(node_id, part + alive), alive))
        return {i: answers.get(i, IdAnswer.CANNOT_TELL) for i in ids}

    def ids_of_names(self, node_id: int, names: Iterable[str]) -> dict[str, str]:
        """The topic id that this node gives for each of these names; one that it does not know is missing."""
        topics = [
            MetadataRequest.MetadataRequestTopic(name=name, topic_id=uuid.UUID(int=0)) for name in sorted(set(names))
        ]
        answers = self._metadata(topics=topics, node_id=node_id).topics if topics else ()
        return {t.name: i for t in answers if t.error_code == NONE and (i := topic_id_of(t)) is not None}

    def places(self) -> frozenset[BrokerPlace]:
        """Where the cluster's live brokers listen, for clients that connect through our bootstrap servers."""
        return frozenset(BrokerPlace(b.node_id, b.host, b.port) for b in self._metadata(topics=[]).brokers)

    def has_quorum(self, node_id: int) -> bool:
        """Whether that broker supports DescribeQuorum with times (version 1, Kafka 3.3); not in ZooKeeper mode."""
        return self._client.request_version(DescribeQuorumRequest, node_id) >= 1

    def quorum(self) -> QuorumRead:
        """The active controller's description of its quorum; version 1 or later (Kafka 3.3), which has the times."""
        request = DescribeQuorumRequest.TopicData
        partition = request.PartitionData(partition_index=0)
        topic = request(topic_name=METADATA_TOPIC, partitions=[partition])
        return quorum_of(self._client.send(lambda: DescribeQuorumRequest(topics=[topic], min_version=1)))

    def epoch_ends(
        self,
        asked: Mapping[K, tuple[TopicPartition, int]],
        topic_ids: Mapping[str, str],
        but_not: int | None = None,
    ) -> dict[K, EpochEnd]:
        """For each key, where its leader epoch ends in the log of the partition's leader, where that log begins, and up
        to where it is committed.

        `topic_ids`: the topic ids by name; a topic that now has another id is not asked about. `but_not`: this host's
        own node, which is not asked: what it leads is `led_here`. Partitions without a leader or without an answer are
        missing; does not raise ServiceUnreachable or UnreadableError. An epoch below that of the leader's first record
        has no end (see `covered.end_of_epoch`); if that one is unknown, none has.

        An answer counts only if the same broker led in the same leader epoch before and after the question, and its
        quorum knows that it has not been cut off since (`why_may_be_deposed`).
        """
        left, answers = dict(asked), dict[K, EpochEnd]()
        # Two copies of one partition can end in different epochs: each pass asks for one epoch per partition.
        while left:
            wanted = dict(left.values())
            try:
                leaders = self._leaders(wanted, topic_ids)
                deposed = self._may_be_deposed({leader.node_id for leader in leaders.values()})
                others = {p: leader for p, leader in leaders.items() if leader.node_id != but_not}
                ends = ask_epoch_ends(self._client, others, wanted)
                after = self._leaders(wanted, topic_ids)
            except (ServiceUnreachable, UnreadableError):
                break
            for p, leader in leaders.items():
                changed = "its leader changed while it was asked" if after.get(p) != leader else None
                if (problem := changed or deposed.get(leader.node_id)) is not None:
                    ends[p] = EpochEnd(leader.where, None, None, problem=problem)
                elif leader.node_id == but_not:
                    ends[p] = EpochEnd("this node", None, None, led_here=True)
            for key in [k for k, (p, epoch) in left.items() if wanted[p] == epoch]:
                partition, _ = left.pop(key)
                if partition in ends:
                    answers[key] = ends[partition]
        return answers

    def _may_be_deposed(self, nodes: Iterable[int]) -> dict[int, str]:
        """Of these nodes, those that may no longer lead what the cluster's metadata says they lead, and why."""
        asked = [node for node in nodes if self.has_quorum(node)]
        if not asked:
            return {}
        quorum = self.quorum()
        return {node: why for node in asked if (why := why_may_be_deposed(quorum, node)) is not None}

    def topic_settings(self, topics: Iterable[str]) -> dict[str, dict[str, DescribedConfig]]:
        """By topic, its settings that say what is kept of it; missing where no broker answers for it. Does not raise
        ServiceUnreachable or UnreadableError."""
        try:
            return ask_topic_settings(self._client, topics)
        except (ServiceUnreachable, UnreadableError):
            return {}

    def broker_settings(self, node_id: int) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """As `ask_broker_settings`."""
        return ask_broker_settings(self._client, node_id)

    def _leaders(self, wanted: Iterable[TopicPartition], topic_ids: Mapping[str, str]) -> dict[TopicPartition, Leader]:
        """Of those partitions whose topic has that id, the leaders."""
        topics = [
            MetadataRequest.MetadataRequestTopic(name=name, topic_id=uuid.UUID(int=0))
            for name in sorted({p.topic for p in wanted})
        ]
        return {
            TopicPartition(topic.name, p.partition_index): Leader(p.leader_id, _epoch(p))
            for topic in self._metadata(topics=topics).topics
            if topic.error_code == NONE and topic_id_of(topic) == topic_ids.get(topic.name)
            for p in topic.partitions
            if p.error_code == NONE and p.leader_id >= 0
        }

    def log_dirs(self, node_id: int) -> dict[str, LogDirDescription]:
        """The log dirs of one broker by path, including offline ones (which have an error code)."""
        described = (log_dir_of(result) for result in self._log_dirs(node_id))
        return {log_dir.path: log_dir for log_dir in described}

    def held_log_dirs(self, node_id: int) -> dict[str, HeldLogDir]:
        """The same with every log, its size and lag, by normalised path."""
        return {posixpath.normpath(result.log_dir): held_log_dir(result) for result in self._log_dirs(node_id)}

    def transactions(
        self, node_id: int, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, OpenTransaction | None], dict[int, list[TopicPartition]]]:
        """As `transactions_of`, of a broker since 2.8 that has replicas of them. It tells only whom it lets read."""
        topics = [
            DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[p.partition for p in found])
            for topic, found in _by_topic(partitions)
        ]
        return transactions_of(self._client.send(lambda: DescribeProducersRequest(topics=topics), node_id))

    def _log_dirs(self, node_id: int) -> Any:
        response = self._client.send(lambda: DescribeLogDirsRequest(topics=None), node_id)
        # Before version 3 there is no top-level error code, and a refusal is just an empty answer.
        code = getattr(response, "error_code", NONE) or NONE
        if code == CLUSTER_AUTHORIZATION_FAILED:
            raise self._lacks_describe()
        if code != NONE or not response.results:
            why = f"error {code}" if code else "no log dirs, which is how a refusal looks"
            raise UnreadableError(
                f"node {node_id} does not describe its log dirs: {why}",
                hint=f"the principal needs DESCRIBE on the cluster: {self._allow('--cluster')}",
            )
        return response.results

    def log_dir_served(self, node_id: int, path: str) -> bool | None:
        """Whether node `node_id` serves the log dir `path`: True if it describes it without an error, False with one.

        None if unknown: the node does not answer, refuses, or has no such log dir. Does not raise ServiceUnreachable or
        UnreadableError, because a starting broker is one that does not answer yet; anything but True means "starting".
        """
        try:
            described = self.log_dirs(node_id)
        except (ServiceUnreachable, UnreadableError):
            return None
        wanted = posixpath.normpath(path)
        for log_dir in described.values():
            if posixpath.normpath(log_dir.path) == wanted:
                return log_dir.error_code == NONE
        return None

    def _metadata(self, *, topics: list[Any] | None, node_id: int | None = None) -> Any:
        response = self._client.send(lambda: MetadataRequest(topics=topics, allow_auto_topic_creation=False), node_id)
        code = getattr(response, "error_code", NONE) or NONE
        if code != NONE:
            raise UnreadableError(f"{self._origin(node_id)} refuses to describe the cluster: error {code}")
        if not response.brokers:
            raise UnreadableError(f"{self._origin(node_id)} lists no brokers")
        return response

    def _cluster_id(self, response: Any) -> str:
        if not response.cluster_id:
            raise UnreadableError(f"{self._origin(None)} does not say its cluster id")
        return str(response.cluster_id)

    def _origin(self, node_id: int | None) -> str:
        who = "" if node_id is None else f", node {node_id}"
        return f"the Admin API at {self._client.bootstrap_servers}{who}"

    def _reassignments(self) -> dict[tuple[str, int], Any]:
        timeout_ms = int(self._client.timeout * 1000)
        response = self._client.send_to_controller(
            lambda: ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None)
        )
        if response.error_code != NONE:
            if (
                response.error_code == CLUSTER_AUTHORIZATION_FAILED
            ):  # its message is the broker's request, as Java prints it
                raise self._lacks_describe()
            why = f"error {response.error_code} {response.error_message}"
            raise UnreadableError(f"the controller does not list reassignments: {why}")
        return {(t.name, p.partition_index): p for t in response.topics for p in t.partitions}

    def _allow(self, what: str) -> str:
        who = self._client.principal if self._client.principal.startswith("User:") else "User:NAME"
        tool = f"kafka-acls.sh --bootstrap-server {self._client.bootstrap_servers} --command-config admin.properties"
        return f"{tool} --add --allow-principal {who} --operation Describe {what}"

    def _lacks_describe(self) -> UnreadableError:
        who = self._client.principal
        return UnreadableError(
            f"{who} lacks Describe on Cluster (docs/how-to/sasl-tls.md)", hint=f"allow it: {self._allow('--cluster')}"
        )

    def _ask_ids(self, node_id: int, ids: list[str]) -> dict[str, IdAnswer]:
        wanted = [
            MetadataRequest.MetadataRequestTopic(name=None, topic_id=uuid.UUID(bytes=id_from_text(text)))
            for text in ids
        ]
        answers: dict[str, IdAnswer] = {}
        for topic in self._metadata(topics=wanted, node_id=node_id).topics:
            if (topic_id := topic_id_of(topic)) is not None:
                answers[topic_id] = id_answer(topic.error_code)
        return answers


def _epoch(partition: Any) -> int:
    """The leader epoch in a Metadata answer; -1 before version 7 (Kafka 2.1)."""
    epoch = getattr(partition, "leader_epoch", None)
    return -1 if epoch is None else int(epoch)


def _sure(answers: dict[str, IdAnswer], alive: list[str]) -> dict[str, IdAnswer]:
    """The `answers` to one request; unless they prove that the broker knows living topics, UNKNOWN and NO_TOPIC
    become CANNOT_TELL."""
    knows = IdAnswer.KNOWN in answers.values() and all(answers.get(i) is IdAnswer.KNOWN for i in alive)
    if knows:
        return answers
    unproven = (IdAnswer.UNKNOWN, IdAnswer.NO_TOPIC)
    return {i: IdAnswer.CANNOT_TELL if answer in unproven else answer for i, answer in answers.items()}
