"""Kafka's replica and partition states, and which may follow which (`ReplicaStateMachine`, `PartitionStateMachine`).

Pure. Nothing is stored: each look begins with everything online, as a controller does after a failover, and goes as far
as what is seen permits.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import TypeVar

S = TypeVar("S", bound=StrEnum)


class ReplicaState(StrEnum):
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    STARTED = "ReplicaDeletionStarted"
    SUCCESSFUL = "ReplicaDeletionSuccessful"
    INELIGIBLE = "ReplicaDeletionIneligible"
    NON_EXISTENT = "NonExistentReplica"


class PartitionState(StrEnum):
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"
    NON_EXISTENT = "NonExistentPartition"


_R, _P = ReplicaState, PartitionState
VALID_PREVIOUS_REPLICA_STATES: dict[ReplicaState, frozenset[ReplicaState]] = {
    _R.NEW: frozenset({_R.NON_EXISTENT}),
    _R.ONLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.INELIGIBLE}),
    _R.OFFLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.INELIGIBLE}),
    _R.STARTED: frozenset({_R.OFFLINE}),
    _R.SUCCESSFUL: frozenset({_R.STARTED}),
    _R.INELIGIBLE: frozenset({_R.OFFLINE, _R.STARTED}),
    _R.NON_EXISTENT: frozenset({_R.SUCCESSFUL}),
}
VALID_PREVIOUS_PARTITION_STATES: dict[PartitionState, frozenset[PartitionState]] = {
    _P.NEW: frozenset({_P.NON_EXISTENT}),
    _P.ONLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.OFFLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.NON_EXISTENT: frozenset({_P.OFFLINE}),
}


class IllegalTransition(Exception):
    """A state that cannot follow the one before: a fault of ours, never of what was seen."""


def _moved(state: S, targets: tuple[S, ...], valid: Mapping[S, frozenset[S]]) -> S:
    for target in targets:
        if state not in valid[target]:
            raise IllegalTransition(f"{target} cannot follow {state}")
        state = target
    return state


class ReplicaStateMachine:
    @staticmethod
    @cache
    def state_after(state: ReplicaState, *targets: ReplicaState) -> ReplicaState:
        """The state of a replica that goes from `state` through `targets`. Raises IllegalTransition."""
        return _moved(state, targets, VALID_PREVIOUS_REPLICA_STATES)


class PartitionStateMachine:
    @staticmethod
    @cache
    def state_after(state: PartitionState, *targets: PartitionState) -> PartitionState:
        """The state of a partition that goes from `state` through `targets`. Raises IllegalTransition."""
        return _moved(state, targets, VALID_PREVIOUS_PARTITION_STATES)
