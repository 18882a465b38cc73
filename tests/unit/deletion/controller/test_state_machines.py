"""Which replica and partition states may follow which: every pair tried, as in `kafka.controller`."""

from __future__ import annotations

from itertools import product

import pytest

from logagent.deletion.controller.topic_deletion_manager import (
    IllegalTransition,
    PartitionState,
    PartitionStateMachine,
    ReplicaState,
    ReplicaStateMachine,
)

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
    if after in LEGAL_REPLICA_MOVES[before]:
        assert ReplicaStateMachine.state_after(before, after) is after
    else:
        with pytest.raises(IllegalTransition, match=f"{after} cannot follow {before}"):
            ReplicaStateMachine.state_after(before, after)


@pytest.mark.parametrize(("before", "after"), list(product(PartitionState, PartitionState)))
def test_each_partition_move_is_kafkas(before: PartitionState, after: PartitionState) -> None:
    if after in LEGAL_PARTITION_MOVES[before]:
        assert PartitionStateMachine.state_after(before, after) is after
    else:
        with pytest.raises(IllegalTransition, match=f"{after} cannot follow {before}"):
            PartitionStateMachine.state_after(before, after)
