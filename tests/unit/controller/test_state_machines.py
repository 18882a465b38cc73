"""Which replica and partition states may follow which: every pair tried, as in `kafka.controller`."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest

from logagent.controller.controller_context import (
    ControllerContext,
    PartitionState,
    Replica,
    ReplicaState,
    Topic,
)
from logagent.controller.partition_state_machine import PartitionStateMachine
from logagent.controller.replica_state_machine import ReplicaStateMachine

NOW = datetime(2026, 11, 21, tzinfo=UTC)
TOPIC = Topic("request-1", "A" * 22)
REPLICA = Replica(TOPIC, 0, 1)

# Written down from Kafka's own classes, not computed from ours.
LEGAL_REPLICA_MOVES = {
    "NonExistentReplica": ["NewReplica"],
    "NewReplica": ["OnlineReplica", "OfflineReplica"],
    "OnlineReplica": ["OnlineReplica", "OfflineReplica"],
    "OfflineReplica": ["OnlineReplica", "OfflineReplica", "ReplicaDeletionStarted", "ReplicaDeletionIneligible"],
    "ReplicaDeletionStarted": ["ReplicaDeletionSuccessful", "ReplicaDeletionIneligible"],
    "ReplicaDeletionSuccessful": ["NonExistentReplica"],
    "ReplicaDeletionIneligible": ["OnlineReplica", "OfflineReplica"],
}
LEGAL_PARTITION_MOVES = {
    "NonExistentPartition": ["NewPartition"],
    "NewPartition": ["OnlinePartition", "OfflinePartition"],
    "OnlinePartition": ["OnlinePartition", "OfflinePartition"],
    "OfflinePartition": ["OnlinePartition", "OfflinePartition", "NonExistentPartition"],
}


@pytest.mark.parametrize(("before", "after"), list(product(ReplicaState, ReplicaState)))
def test_each_replica_move_is_kafkas(before: ReplicaState, after: ReplicaState) -> None:
    context, refused = ControllerContext(), list[str]()
    context.add_topic(TOPIC, "clicks", "topics", [0], NOW)
    context.add_replica(REPLICA, before, NOW)
    moved = ReplicaStateMachine(context, refused.append).handle_state_changes([REPLICA], after, NOW)
    legal = after in LEGAL_REPLICA_MOVES[before]
    assert moved == ([REPLICA] if legal else [])
    assert context.replicas[REPLICA].state is (after if legal else before)
    assert context.topics_to_be_deleted[TOPIC].counts[context.replicas[REPLICA].state] == 1
    assert len(refused) == (0 if legal else 1)
    if not legal:
        assert before in refused[0] and after in refused[0] and TOPIC.topic_id in refused[0]


@pytest.mark.parametrize(("before", "after"), list(product(PartitionState, PartitionState)))
def test_each_partition_move_is_kafkas(before: PartitionState, after: PartitionState) -> None:
    context, refused = ControllerContext(), list[str]()
    context.add_topic(TOPIC, "clicks", "topics", [0], NOW)
    context.put_partition_state(TOPIC, 0, before)
    moved = PartitionStateMachine(context, refused.append).handle_state_changes(TOPIC, [0], after)
    legal = after in LEGAL_PARTITION_MOVES[before]
    assert moved == ([0] if legal else [])
    assert context.topics_to_be_deleted[TOPIC].partitions[0] is (after if legal else before)
    assert len(refused) == (0 if legal else 1)


def test_a_replica_that_nobody_queued_moves_nowhere() -> None:
    refused = list[str]()
    machine = ReplicaStateMachine(ControllerContext(), refused.append)
    assert machine.handle_state_changes([REPLICA], ReplicaState.OFFLINE, NOW) == []
    assert "NonExistentReplica" in refused[0]
