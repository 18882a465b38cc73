"""Asks the leaders of partitions where a leader epoch ends in their logs (OffsetForLeaderEpoch, KIP-101), and what of
them is committed (ListOffsets).

Every question names the leader epoch in which its receiver is believed to lead (KIP-320): a broker that does not lead
in just that one refuses. With epoch -1, as tools ask, one that was deposed and has not noticed answers for its own log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from logagent.broker.admin.client import AdminClient, ListOffsetsRequest, OffsetForLeaderEpochRequest
from logagent.broker.admin.responses import NONE
from logagent.errors import ServiceUnreachable, UnreadableError
from logagent.model.assignments.covered import EpochEnd
from logagent.model.records import TopicPartition

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
