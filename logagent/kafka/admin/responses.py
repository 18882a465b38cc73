"""Interprets a broker's answers: topics, topic ids, log dirs and quorums from kafka-python's response objects.

No I/O and no import of kafka-python: an answer is anything with the fields of Kafka's response schemas. A partial
answer raises `UnreadableError`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from logagent.base.dir_names import METADATA_TOPIC
from logagent.base.errors import UnreadableError
from logagent.base.records import TopicPartition, id_to_text
from logagent.kafka.commitment import QuorumRead, QuorumReplica
from logagent.kafka.image import PartitionAssignment, Topic
from logagent.kafka.retention.reasons import OpenTransaction
from logagent.kafka.retention.settings import ASKED, DescribedConfig

if TYPE_CHECKING:
    from logagent.kafka.admin.client import AdminClient

# Kafka's error codes (`org.apache.kafka.common.protocol.Errors`).
NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
REPLICA_NOT_AVAILABLE = 9
TOPIC_AUTHORIZATION_FAILED = 29
CLUSTER_AUTHORIZATION_FAILED = 31
LISTENER_NOT_FOUND = 72
UNKNOWN_TOPIC_ID = 100

# A partition with one of these errors still lists its replicas; only the leader is missing.
HARMLESS_PARTITION_ERRORS = frozenset({NONE, LEADER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE, LISTENER_NOT_FOUND})


class IdAnswer(StrEnum):
    """A broker's answer about one topic id. Only UNKNOWN means that the topic is gone. NO_TOPIC: it remembers the id,
    and has no topic of it any more: the ZooKeeper generation is deleting it, or has (seen on 3.5.2)."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    NO_TOPIC = "no-topic"
    NOT_AUTHORISED = "not-authorised"
    CANNOT_TELL = "cannot-tell"


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log dir as its broker describes it: `error_code` 0 means serving, 56 offline. `partitions`: those of its
    current logs (neither futures, nor `-delete`, nor strays); None if the log dir is offline."""

    path: str
    error_code: int
    partitions: frozenset[tuple[str, int]] | None


class HeldLog(NamedTuple):
    """A log as its broker has it: bytes of its segments, and by how many records it is behind: a current log behind the
    high watermark, a future one behind the current one."""

    size: int
    lag: int


@dataclass(frozen=True, slots=True)
class HeldLogDir:
    """What a broker has in one log dir: current and future logs, by topic and number. `error_code`: 0 if it serves it,
    56 if it took it offline, until its next start."""

    error_code: int
    current: Mapping[TopicPartition, HeldLog]
    future: Mapping[TopicPartition, HeldLog]


@dataclass(frozen=True, slots=True)
class BrokerSays:
    """What the running broker itself said of its logs. `log_dirs`: by path, None if it did not describe them.
    `transactions`: by partition, its oldest open one, None if it has none; a partition that is missing was not asked
    about, or there was no answer. `unknown`: what was asked in vain, and why, in words."""

    log_dirs: Mapping[str, HeldLogDir] | None = None
    transactions: Mapping[TopicPartition, OpenTransaction | None] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


def id_answer(error_code: int) -> IdAnswer:
    known = {
        NONE: IdAnswer.KNOWN,
        UNKNOWN_TOPIC_ID: IdAnswer.UNKNOWN,
        UNKNOWN_TOPIC_OR_PARTITION: IdAnswer.NO_TOPIC,
        TOPIC_AUTHORIZATION_FAILED: IdAnswer.NOT_AUTHORISED,
    }
    return known.get(error_code, IdAnswer.CANNOT_TELL)


def topic_id_of(topic: Any) -> str | None:
    """The id of a topic in a metadata answer; None before 2.8 (absent, or zero)."""
    topic_id: uuid.UUID | None = topic.topic_id
    return None if topic_id is None or topic_id.int == 0 else id_to_text(topic_id.bytes)


def topic_of(answer: Any, moving: Mapping[tuple[str, int], Any]) -> Topic:
    if answer.error_code != NONE or not answer.name:
        raise UnreadableError(f"a partial answer: topic {answer.name} has error {answer.error_code}")
    topic = Topic(answer.name, topic_id_of(answer))
    for partition in answer.partitions:
        where = f"{answer.name}-{partition.partition_index}"
        if partition.error_code not in HARMLESS_PARTITION_ERRORS or not partition.replica_nodes:
            raise UnreadableError(f"a partial answer: partition {where} has error {partition.error_code}")
        topic.partitions[partition.partition_index] = _assignment(
            partition, moving.get((answer.name, partition.partition_index))
        )
    # In ZooKeeper mode brokers learn of a topic's partitions one by one; a gap means that some are still missing.
    if sorted(topic.partitions) != list(range(len(answer.partitions))) or not topic.partitions:
        raise UnreadableError(f"a partial answer: topic {answer.name} has the partitions {sorted(topic.partitions)}")
    return topic


def _assignment(partition: Any, moving: Any | None) -> PartitionAssignment:
    replicas = tuple(partition.replica_nodes)
    adding = tuple(moving.adding_replicas) if moving is not None else ()
    removing = tuple(moving.removing_replicas) if moving is not None else ()
    # The two answers are from two moments; a node that is in either counts as a replica.
    both = tuple(dict.fromkeys((*replicas, *adding, *removing)))
    return PartitionAssignment(
        replicas=both,
        isr=tuple(partition.isr_nodes),
        adding=adding,
        removing=removing,
        leader=partition.leader_id,
    )


def quorum_of(response: Any) -> QuorumRead:
    """A DescribeQuorum answer; `UnreadableError` if it is refused, partial or of version 0 (which has no times)."""
    partitions = [p for t in response.topics for p in t.partitions if t.topic_name == METADATA_TOPIC]
    code = response.error_code or next((p.error_code for p in partitions), NONE)
    if code != NONE or len(partitions) != 1:
        raise UnreadableError(f"the quorum is not described: error {code}")
    (partition,) = partitions

    def replica(state: Any) -> QuorumReplica:
        return QuorumReplica(state.replica_id, state.last_fetch_timestamp, state.last_caught_up_timestamp)

    return QuorumRead(
        partition.leader_id,
        tuple(map(replica, partition.current_voters)),
        tuple(map(replica, partition.observers)),
        partition.high_watermark,
        partition.leader_epoch,
    )


def log_dir_of(result: Any) -> LogDirDescription:
    current = frozenset((t.name, p.partition_index) for t in result.topics for p in t.partitions if not p.is_future_key)
    return LogDirDescription(result.log_dir, result.error_code, current if result.error_code == NONE else None)


def held_log_dir(result: Any) -> HeldLogDir:
    """One result of a DescribeLogDirs answer (KIP-113)."""
    found: dict[bool, dict[TopicPartition, HeldLog]] = {False: {}, True: {}}
    for topic in result.topics:
        for p in topic.partitions:
            log = HeldLog(p.partition_size, p.offset_lag)
            found[p.is_future_key][TopicPartition(topic.name, p.partition_index)] = log
    return HeldLogDir(result.error_code, found[False], found[True])


def transactions_of(
    response: Any,
) -> tuple[dict[TopicPartition, OpenTransaction | None], dict[int, list[TopicPartition]]]:
    """A DescribeProducers answer (KIP-664): by partition its oldest open transaction, and by error code who has it."""
    found: dict[TopicPartition, OpenTransaction | None] = {}
    refused: dict[int, list[TopicPartition]] = {}
    for topic in response.topics:
        for p in topic.partitions:
            partition = TopicPartition(topic.name, p.partition_index)
            if p.error_code != NONE:
                refused.setdefault(p.error_code, []).append(partition)
                continue
            started = (a for a in p.active_producers if a.current_txn_start_offset >= 0)
            opened = (OpenTransaction(a.current_txn_start_offset, a.producer_id, a.last_timestamp) for a in started)
            found[partition] = min(opened, default=None)
    return found, refused


_TOPIC, _BROKER = 2, 4  # `ConfigResource.Type`
# `ConfigSource`: of the topic; of this broker, dynamic; the dynamic default of all brokers; of `server.properties`.
_OWN, _DYNAMIC, _COMMON, _STATIC = 1, 2, 3, 4
_TOPICS_A_REQUEST = 500


def ask_topic_settings(client: AdminClient, topics: Iterable[str]) -> dict[str, dict[str, DescribedConfig]]:
    """By topic, the settings that `TopicConfigs` consists of (DescribeConfigs, KIP-133). Topics that do not exist, or
    that the principal may not describe (DESCRIBE_CONFIGS), are missing. Raises ServiceUnreachable and
    UnreadableError."""
    from logagent.kafka.admin.client import DescribeConfigsRequest

    wanted, settings = sorted(set(topics)), dict[str, dict[str, DescribedConfig]]()
    for start in range(0, len(wanted), _TOPICS_A_REQUEST):
        resource = DescribeConfigsRequest.DescribeConfigsResource
        resources = [
            resource(resource_type=_TOPIC, resource_name=topic, configuration_keys=list(ASKED))
            for topic in wanted[start : start + _TOPICS_A_REQUEST]
        ]
        # With the source of each value, which version 0 (before 1.1) lacks.
        response = client.send(lambda asked=resources: DescribeConfigsRequest(resources=asked, min_version=1))  # type: ignore[misc]
        for result in response.results:
            if result.error_code == NONE:
                settings[result.resource_name] = {
                    c.name: DescribedConfig(c.value, c.config_source == _OWN, c.config_source == _COMMON)
                    for c in result.configs
                }
    return settings


def ask_broker_settings(client: AdminClient, node_id: int) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """What is in force for that broker, by its own account: its dynamic settings, the dynamic default of all brokers,
    and what it read from `server.properties` when it started (DescribeConfigs with synonyms). Without those that it
    keeps secret. Raises ServiceUnreachable and UnreadableError, also if it may not be asked."""
    from logagent.kafka.admin.client import DescribeConfigsRequest

    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(node_id), configuration_keys=None
    )
    response = client.send(
        lambda: DescribeConfigsRequest(resources=[resource], include_synonyms=True, min_version=1), node_id
    )
    by_source: dict[int, dict[str, str]] = {_DYNAMIC: {}, _COMMON: {}, _STATIC: {}}
    for result in response.results:
        if result.error_code != NONE:
            raise UnreadableError(f"node {node_id} does not describe its settings: error {result.error_code}")
        for config in result.configs:
            for each in (*config.synonyms, config):
                value = each.value
                source = each.config_source if each is config else each.source
                if value is not None and source in by_source:
                    by_source[source][each.name] = value
    if not by_source[_STATIC]:
        raise UnreadableError(f"node {node_id} describes no settings")
    return by_source[_DYNAMIC], by_source[_COMMON], by_source[_STATIC]
