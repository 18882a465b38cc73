"""Kafka's `DeletionClient`: what `TopicDeletionManager` wants done outside (Admin API and store)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from logagent.controller.controller_context import Topic


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """What the cluster said to DeleteTopics for one topic id.

    `deleted`: acknowledged, or the id is unknown now. `again`: ask later (quota, time-out, not reachable, Kafka is
    still at it). `disabled`: TOPIC_DELETION_DISABLED. `refused`: it will not (not authorised, too old for ids, …).
    """

    outcome: Literal["deleted", "again", "disabled", "refused"]
    why: str = ""


class DeletionClient(Protocol):
    def delete_topic(self, topics: Mapping[Topic, str]) -> Mapping[Topic, TopicOutcome]:
        """DeleteTopics by id (topic → its name, for messages). A topic left out of the answer is asked again later."""

    def delete_topic_deletions(self, topics: Collection[Topic]) -> None:
        """These topics of their requests are complete: write the `done` entry of each request that has none left."""

    def mute_partition_modifications(self, topic: Topic) -> None:
        """The deletion was acknowledged: changes to this topic's partitions are no longer looked at."""

    def send_metadata_update(self, topics: Collection[Topic]) -> None:
        """These topics are gone from the cluster's metadata: whoever counts on what they hold looks anew."""
