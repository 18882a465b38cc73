"""Kafka's `PartitionStateMachine`, for partitions being deleted: on their way to `NonExistentPartition`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from logagent.controller.controller_context import (
    VALID_PREVIOUS_PARTITION_STATES,
    ControllerContext,
    PartitionState,
    Topic,
)


class PartitionStateMachine:
    """Changes partition states. An illegal move leaves the state unchanged and calls `refused` with one line."""

    def __init__(self, context: ControllerContext, refused: Callable[[str], None]) -> None:
        self._context = context
        self._refused = refused

    def handle_state_changes(self, topic: Topic, partitions: Iterable[int], target: PartitionState) -> list[int]:
        """Move partitions of one topic to `target`; returns those that moved."""
        states = self._context.topics_to_be_deleted[topic].partitions
        moved = []
        for partition in partitions:
            state = states.get(partition, PartitionState.NON_EXISTENT)
            if state not in VALID_PREVIOUS_PARTITION_STATES[target]:
                self._refused(f"partition {topic.topic_id}-{partition} cannot go from {state} to {target}")
                continue
            self._context.put_partition_state(topic, partition, target)
            moved.append(partition)
        return moved
