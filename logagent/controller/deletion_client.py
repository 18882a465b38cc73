"""Kafka's `DeletionClient`: what `TopicDeletionManager` wants done outside (Admin API and store)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from logagent.controller.controller_context import Topic


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """The cluster's answer to DeleteTopics for one topic id.

    `deleted`: acknowledged, or the id is no longer known. `again`: ask later (quota, timeout, unreachable, deletion
    in progress). `disabled`: TOPIC_DELETION_DISABLED. `lives`: its request was closed before, and the cluster still has
    the topic. `refused`: anything else (not authorised, too old for ids, …).
    """

    outcome: Literal["deleted", "again", "disabled", "lives", "refused"]
    why: str = ""
    live_brokers: frozenset[int] | None = None
    """With `again`: the brokers that are up; None if that was not asked."""


class DeletionClient(Protocol):
    def delete_topic(self, topics: Mapping[Topic, str]) -> Mapping[Topic, TopicOutcome]:
        """DeleteTopics by id (topic → its name, for messages). A topic missing from the answer is asked again later."""

    def drop(self, topics: Mapping[Topic, str]) -> None:
        """Record for good that these topics are not deleted, each with why: no controller asks about them again."""

    def delete_topic_deletions(self, topics: Collection[Topic]) -> None:
        """These topics are complete: write the `done` entry of each request that has no topics left."""

    def mute_partition_modifications(self, topic: Topic) -> None:
        """The deletion was acknowledged: ignore further changes to this topic's partitions."""

    def send_metadata_update(self, topics: Collection[Topic]) -> None:
        """These topics were removed from the cluster's metadata: tell those who cache it."""
