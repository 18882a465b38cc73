"""Asks the leaders of partitions where a leader epoch ends in their logs (OffsetForLeaderEpoch, KIP-101)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from logagent.broker.admin.client import AdminClient, ListOffsetsRequest, OffsetForLeaderEpochRequest
from logagent.broker.admin.responses import NONE
from logagent.errors import ServiceUnreachable, UnreadableError
from logagent.model.assignments.covered import EpochEnd
from logagent.model.records import TopicPartition

_CONSUMER = -1
_EARLIEST = -2
_UNDEFINED = -1


def ask_epoch_ends(
    client: AdminClient, leaders: Mapping[TopicPartition, int], wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, EpochEnd]:
    """For each of `wanted` (partition: leader epoch) that its leader answers, where that epoch ends in its log."""
    answers: dict[TopicPartition, EpochEnd] = {}
    for node_id in sorted({leaders[p] for p in wanted if p in leaders}):
        mine = {p: epoch for p, epoch in wanted.items() if leaders.get(p) == node_id}
        try:
            starts = _starts(client, node_id, mine)
            ends = _ends(client, node_id, mine)
        except (ServiceUnreachable, UnreadableError):
            continue
        for partition, (epoch, end) in ends.items():
            start, oldest = starts.get(partition, (None, _UNDEFINED))
            # For an epoch below all those it knows, a leader returns the start of the first known epoch as the end of
            # the requested one (`LeaderEpochFileCache.endOffsetFor`): this proves nothing about earlier records.
            known = 0 <= oldest <= epoch
            answers[partition] = EpochEnd(
                f"the leader (node {node_id})", epoch if known else None, end if known else None, start
            )
    return answers


def _ends(
    client: AdminClient, node_id: int, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    if not wanted:
        return {}
    topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition_type = topic_type.OffsetForLeaderPartition
    topics = [
        topic_type(
            topic=topic,
            partitions=[
                partition_type(partition=p.partition, current_leader_epoch=-1, leader_epoch=wanted[p])
                for p in partitions
            ],
        )
        for topic, partitions in _by_topic(wanted)
    ]
    # As a consumer (replica id -1): a broker shows it only what is below the high watermark.
    response = client.send(lambda: OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics), node_id)
    return {
        TopicPartition(t.topic, p.partition): (p.leader_epoch, p.end_offset)
        for t in response.topics
        for p in t.partitions
        if p.error_code == NONE
    }


def _starts(
    client: AdminClient, node_id: int, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Where each log begins, and the leader epoch of its first record (-1 if the leader does not know it)."""
    topic_type = ListOffsetsRequest.ListOffsetsTopic
    partition_type = topic_type.ListOffsetsPartition
    topics = [
        topic_type(
            name=topic,
            partitions=[
                partition_type(partition_index=p.partition, current_leader_epoch=-1, timestamp=_EARLIEST)
                for p in partitions
            ],
        )
        for topic, partitions in _by_topic(wanted)
    ]
    response: Any = client.send(
        lambda: ListOffsetsRequest(replica_id=_CONSUMER, isolation_level=0, topics=topics), node_id
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
