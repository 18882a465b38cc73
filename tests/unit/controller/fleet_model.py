"""A fleet as plain data, for the manager to be run against: hosts that hold directories, a cluster, and a mailbox each.

It knows nothing of states or of the manager: what is on a disk, who is up, what was said.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from logagent.controller.controller_context import Replica, Topic
from logagent.controller.deletion_client import TopicOutcome
from logagent.store.deletion import Action, Identity, Result

Said = tuple[Replica, Action, tuple[Result, ...]]


@dataclass
class Host:
    """One broker host. `silent`: it does not run; `dumb`: it reads orders and never answers."""

    node_id: int
    disk: dict[tuple[str, int], Identity] = field(default_factory=dict)
    silent: bool = False
    dumb: bool = False
    broker_live: bool = False
    refuses: bool = False
    disk_offline: bool = False
    restored: set[tuple[str, int]] = field(default_factory=set)
    mailbox: list[tuple[Replica, Action, tuple[Identity, ...]]] = field(default_factory=list)
    acted: set[tuple[str, int]] = field(default_factory=set)

    def obey(self) -> list[Said]:
        """Read all orders; what is answered. Orders that wait for the broker's stop stay in the mailbox."""
        if self.silent:
            return []
        said = list[Said]()
        kept: list[tuple[Replica, Action, tuple[Identity, ...]]] = []
        for replica, action, held in self.mailbox:
            result = self._result(replica, action, held)
            if result.result == "waiting" and action == "delete":
                kept.append((replica, action, held))
            said.append((replica, action, (result,)))
        self.mailbox = kept
        return [] if self.dumb else said

    def _result(self, replica: Replica, action: Action, held: tuple[Identity, ...]) -> Result:
        key = (replica.topic.topic_id, replica.partition)
        base = Result(replica.topic.request_id, *key, "absent", asked_log_dir=replica.log_dir, asked_name=replica.name)
        found = self.disk.get(key)
        if self.disk_offline:
            return replace(base, result="offline", fact="/d1 is offline")
        if found is None:
            return base
        if action == "stop":
            return replace(base, result="waiting", directory=found)
        if key in self.restored:
            return replace(base, result="refused", guard="restored", fact="restored at 12:00")
        if self.refuses:
            return replace(base, result="refused", guard="assigned", fact="the metadata here still lists it")
        difference = held[0].difference(found)
        if difference is not None:
            return replace(base, result="refused", guard="identity", fact=difference)
        if self.broker_live:
            return replace(base, result="waiting", fact="waiting for the broker's next stop")
        del self.disk[key]
        self.acted.add(key)
        return replace(base, result="renamed", new_name=found.name + "-stray")


class ClusterClient:
    """The cluster and the store's markers, as the manager's `DeletionClient`."""

    def __init__(self) -> None:
        self.living: set[str] = set()
        self.quota = False
        self.disabled = False
        self.done: set[Topic] = set()
        self.dropped: set[Topic] = set()
        self.muted: set[Topic] = set()
        self.asked: list[str] = []

    def delete_topic(self, topics: Mapping[Topic, str]) -> Mapping[Topic, TopicOutcome]:
        answers = {}
        for topic in topics:
            self.asked.append(topic.topic_id)
            if topic.topic_id in self.living and self.quota:
                answers[topic] = TopicOutcome("again", "THROTTLING_QUOTA_EXCEEDED")
            elif topic.topic_id in self.living and self.disabled:
                answers[topic] = TopicOutcome("disabled", "TOPIC_DELETION_DISABLED")
            else:
                self.living.discard(topic.topic_id)
                answers[topic] = TopicOutcome("deleted")
        return answers

    def drop(self, topics: Mapping[Topic, str]) -> None:
        assert {topic.topic_id for topic in topics} <= self.living, "only what lives is dropped"
        self.dropped |= set(topics)

    def delete_topic_deletions(self, topics: Collection[Topic]) -> None:
        self.done |= set(topics)

    def mute_partition_modifications(self, topic: Topic) -> None:
        assert topic.topic_id not in self.living, "muted before the cluster acknowledged"
        self.muted.add(topic)

    def send_metadata_update(self, topics: Collection[Topic]) -> None:
        assert not {topic.topic_id for topic in topics} & self.living
