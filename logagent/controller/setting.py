"""What a controller is constructed with: its cluster, store, key and clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from logagent.controller.deletion_client import TopicOutcome
from logagent.controller.replica_deletions import Pauses
from logagent.store.control import Control
from logagent.store.deletion import RequestedTopic
from logagent.store.signing import PrivateKey, PublicKey


class ClusterAdmin(Protocol):
    """The cluster's Admin API, as far as deletions need it."""

    def topics_now(self, topics: Mapping[str, str]) -> Mapping[str, RequestedTopic]:
        """Those of these topic ids that exist, with their current name and replicas (during a reassignment both the old
        and the new ones)."""

    def unknown_ids(self, topics: Mapping[str, str]) -> Collection[str]:
        """Which of these topic ids the cluster, asked by id, does not know: as they existed once, they are deleted.
        Those that it may only hide are left out."""

    def delete_topics(self, topics: Mapping[str, str]) -> Mapping[str, TopicOutcome]:
        """DeleteTopics by id (topic id → name); returns each outcome. Topics that cannot be asked for now are left
        out."""

    def in_sync(self, topics: Mapping[str, str]) -> Mapping[tuple[str, int], frozenset[int]]:
        """For each (topic id, partition) of these topics that exists: the live brokers in its ISR; none if its leader
        is not live. Raises ConfigError if it is not known where to ask."""

    def reassigning(self, topics: Mapping[str, str]) -> Collection[str]:
        """Which of these topic ids have a reassignment that holds up their deletion (ZooKeeper-based Kafka only)."""


@dataclass(slots=True)
class Setting:
    """The identity and dependencies of a controller."""

    control: Control
    key: PrivateKey
    keys: tuple[PublicKey, ...]
    admin: ClusterAdmin
    clock: Callable[[], datetime]
    by: str
    host: str
    silent_after: timedelta = timedelta(hours=2)
    warn: Callable[[str], None] = lambda line: None
    pauses: Pauses = field(default_factory=Pauses)
