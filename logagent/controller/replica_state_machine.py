"""Kafka's `ReplicaStateMachine`: moves replicas, refuses illegal moves, and collects the orders to the hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from logagent.controller.controller_context import (
    VALID_PREVIOUS_REPLICA_STATES,
    ControllerContext,
    Replica,
    ReplicaState,
)

IllegalMove = Callable[[str], None]


class ControllerBrokerRequestBatch:
    """The orders of one round (Kafka's StopReplica), by node: which replicas to stop and which to delete."""

    def __init__(self) -> None:
        self.stop: dict[int, list[Replica]] = {}
        self.delete: dict[int, list[Replica]] = {}

    def add_stop_replica(self, replica: Replica, *, delete: bool) -> None:
        (self.delete if delete else self.stop).setdefault(replica.node_id, []).append(replica)

    def __bool__(self) -> bool:
        return bool(self.stop or self.delete)


class ReplicaStateMachine:
    """Changes replica states. An illegal move leaves the state unchanged and calls `refused` with one line."""

    def __init__(self, context: ControllerContext, refused: IllegalMove) -> None:
        self._context = context
        self._refused = refused
        self.batch = ControllerBrokerRequestBatch()

    def take_batch(self) -> ControllerBrokerRequestBatch:
        """What was collected since the last call, to be sent."""
        batch, self.batch = self.batch, ControllerBrokerRequestBatch()
        return batch

    def handle_state_changes(
        self, replicas: Iterable[Replica], target: ReplicaState, now: datetime, *, tell: bool = True
    ) -> list[Replica]:
        """Move `replicas` to `target`; returns those that moved. With `tell`, a move to `OfflineReplica` collects a
        `stop` order if the host is live, a move to `ReplicaDeletionStarted` a `delete` order if the host holds
        something."""
        moved = []
        for replica in replicas:
            known = self._context.replicas.get(replica)
            state = ReplicaState.NON_EXISTENT if known is None else known.state
            if known is None or state not in VALID_PREVIOUS_REPLICA_STATES[target]:
                self._refused(f"{_named(replica)} cannot go from {state} to {target}")
                continue
            self._context.put_replica_state(replica, target, now)
            self._do(replica, target, now, tell)
            moved.append(replica)
        return moved

    def _do(self, replica: Replica, target: ReplicaState, now: datetime, tell: bool) -> None:
        known = self._context.replicas[replica]
        if target is ReplicaState.OFFLINE:
            known.held, known.reason, known.retry_at, known.result = None, None, None, None
            known.asked_at = now
            if tell and self._context.is_replica_online(replica.node_id):
                self.batch.add_stop_replica(replica, delete=False)
        elif target is ReplicaState.STARTED and known.held and tell:
            known.asked_at = now
            self.batch.add_stop_replica(replica, delete=True)
        elif target is ReplicaState.SUCCESSFUL:
            known.held, known.reason, known.retry_at, known.attempts = None, None, None, 0


def _named(replica: Replica) -> str:
    where = f" {replica.log_dir}/{replica.name}" if replica.name is not None else ""
    return f"replica {replica.topic.topic_id}-{replica.partition} of node {replica.node_id}{where}"
