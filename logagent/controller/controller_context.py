"""Kafka's `ControllerContext`: what the controller knows about the topics being deleted, their replicas and the hosts.

One context per cluster. The replica and partition states and their valid transitions are Kafka's (`ReplicaState`,
`PartitionState`). Replicas are counted by state per topic, so that questions about a topic need not walk its replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from logagent.store.deletion import Identity, Kind


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


class Topic(NamedTuple):
    """A topic of one request, identified by topic id: a topic recreated under the same name is another topic."""

    request_id: str
    topic_id: str


class Replica(NamedTuple):
    """A copy to be deleted; `log_dir` and `name` are set only for a directory of a `directories` request."""

    topic: Topic
    partition: int
    node_id: int
    log_dir: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a replica is ineligible, in words, with the guard that refused. `final` (a restore): not retried."""

    why: str
    guard: str | None = None
    hint: str | None = None
    final: bool = False


@dataclass(slots=True)
class ReplicaProgress:
    """The state of one replica's deletion. `held`: the directories its host reported in answer to `stop` (empty: none;
    None: not asked or not answered yet). `told`: what it reported to a controller before this one. `result`: how the
    deletion ended."""

    state: ReplicaState
    since: datetime
    held: tuple[Identity, ...] | None = None
    told: tuple[Identity, ...] | None = None
    asked_at: datetime | None = None
    reason: Reason | None = None
    result: str | None = None
    attempts: int = 0
    retry_at: datetime | None = None


@dataclass(slots=True)
class TopicProgress:
    """A topic of an open request: its replicas and partitions, and what holds up the whole topic."""

    name: str
    kind: Kind
    since: datetime
    replicas: list[Replica] = field(default_factory=list)
    partitions: dict[int, PartitionState] = field(default_factory=dict)
    counts: dict[ReplicaState, int] = field(default_factory=dict)
    started: bool = False
    """Kafka's `topicsWithDeletionStarted`: the cluster has deleted the topic, or the request is for directories."""
    ineligible: dict[str, str] = field(default_factory=dict)
    """Kafka's `topicsIneligibleForDeletion`: what holds up the whole topic, and why in words."""
    retry_at: datetime | None = None
    """When this topic is due to be processed again."""
    waits_for_cluster: str | None = None
    """The cluster's last answer to DeleteTopics while it has not acknowledged the deletion."""


class ControllerContext:
    """The state of one cluster's deletions. Only the state machines change states (`put_*_state`)."""

    def __init__(self) -> None:
        self.live_nodes: set[int] = set()
        self.silent_nodes: dict[int, str] = {}
        self.topics_to_be_deleted: dict[Topic, TopicProgress] = {}
        self.replicas: dict[Replica, ReplicaProgress] = {}
        self._on_node: dict[int, set[Replica]] = {}
        self._by_topic_id: dict[str, set[Topic]] = {}

    def add_topic(self, topic: Topic, name: str, kind: Kind, partitions: Iterable[int], now: datetime) -> TopicProgress:
        """Enqueue a topic, unless it is queued already; returns its progress."""
        known = self.topics_to_be_deleted.get(topic)
        if known is None:
            states = dict.fromkeys(partitions, PartitionState.ONLINE) if kind == "topics" else {}
            known = self.topics_to_be_deleted[topic] = TopicProgress(name, kind, now, partitions=states)
            self._by_topic_id.setdefault(topic.topic_id, set()).add(topic)
        return known

    def add_replica(self, replica: Replica, state: ReplicaState, now: datetime) -> bool:
        """Add a replica of a queued topic in its initial state; False if it is known already."""
        if replica in self.replicas:
            return False
        progress = self.topics_to_be_deleted[replica.topic]
        self.replicas[replica] = ReplicaProgress(state, now)
        progress.replicas.append(replica)
        progress.counts[state] = progress.counts.get(state, 0) + 1
        self._on_node.setdefault(replica.node_id, set()).add(replica)
        return True

    def remove_topic(self, topic: Topic) -> None:
        """Forget a topic that is complete or cancelled."""
        progress = self.topics_to_be_deleted.pop(topic)
        for replica in progress.replicas:
            del self.replicas[replica]
            on_node = self._on_node[replica.node_id]
            on_node.discard(replica)
            if not on_node:
                del self._on_node[replica.node_id]
        queued = self._by_topic_id[topic.topic_id]
        queued.discard(topic)
        if not queued:
            del self._by_topic_id[topic.topic_id]

    def put_replica_state(self, replica: Replica, state: ReplicaState, now: datetime) -> None:
        known = self.replicas[replica]
        counts = self.topics_to_be_deleted[replica.topic].counts
        counts[known.state] -= 1
        counts[state] = counts.get(state, 0) + 1
        if state is not known.state:
            known.state, known.since = state, now

    def put_partition_state(self, topic: Topic, partition: int, state: PartitionState) -> None:
        self.topics_to_be_deleted[topic].partitions[partition] = state

    def replicas_in_state(self, topic: Topic, *states: ReplicaState) -> list[Replica]:
        if not self.is_any_replica_in_state(topic, *states):
            return []
        return [r for r in self.topics_to_be_deleted[topic].replicas if self.replicas[r].state in states]

    def is_any_replica_in_state(self, topic: Topic, *states: ReplicaState) -> bool:
        counts = self.topics_to_be_deleted[topic].counts
        return any(counts.get(state, 0) for state in states)

    def are_all_replicas_in_state(self, topic: Topic, state: ReplicaState) -> bool:
        progress = self.topics_to_be_deleted[topic]
        return progress.counts.get(state, 0) == len(progress.replicas)

    def replicas_on_node(self, node_id: int) -> Iterator[Replica]:
        yield from tuple(self._on_node.get(node_id, ()))

    def topics_of(self, topic_id: str) -> tuple[Topic, ...]:
        """The queued topics with this id (one per request)."""
        return tuple(self._by_topic_id.get(topic_id, ()))

    def is_replica_online(self, node_id: int) -> bool:
        return node_id in self.live_nodes

    def nodes(self) -> frozenset[int]:
        """Every node that has a replica to be deleted."""
        return frozenset(self._on_node)
