"""Brokers that start, fail and change (Kafka's `onBrokerStartup`, `onBrokerFailure`), as seen in the store.

A host is known by its newest snapshot and its answers. What a host publishes affects only that host, and the amount
that is read is limited.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from logagent.controller.controller_context import ControllerContext, ReplicaState
from logagent.controller.exchange import Exchange
from logagent.controller.setting import Setting
from logagent.controller.topic_deletion_manager import TopicDeletionManager
from logagent.errors import LogAgentError
from logagent.store.orders import instant
from logagent.store.publications import FACTS, FleetPublications, HostPublications

Found = Callable[[str, int, int, datetime], None]
"""Called for each copy of a wanted topic: topic id, partition, node, when the snapshot arrived."""

_FACTS = ("log_dir", "name", "kind", *FACTS)
"""The keys of a directory's row that its agent's refusals depend on; bytes and sightings are not among them."""

LOG_DIRS = "log dirs"
MAX_COPIES = 20_000
"""The most copies of deleted topics that are taken from one snapshot."""


@dataclass(slots=True)
class BrokerChanges:
    """Tells the manager which hosts of one cluster are live or silent, and what changed on them."""

    setting: Setting
    context: ControllerContext
    manager: TopicDeletionManager
    exchange: Exchange
    heard: FleetPublications = field(init=False)
    _seen: dict[int, str] = field(default_factory=dict)
    _facts: dict[int, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        control = self.setting.control
        self.heard = FleetPublications(control.store, control.cluster_id, self.setting.silent_after, self.setting.warn)

    def notice_hosts(self, now: datetime) -> None:
        """Tell the manager which nodes are live, which are silent, and which two hosts claim. Raises
        ServiceUnreachable."""
        self.heard.look(now)
        self.heard.look_back(self.context.nodes(), now)
        since = now - self.setting.silent_after
        for node in set(self.heard.nodes) | set(self.exchange.agents) | set(self.context.nodes()):
            snapshot = self.heard.nodes.get(node)
            hosts = [h for h, at in snapshot.hosts.items() if at >= since] if snapshot is not None else []
            answered = self.exchange.agents.get(node, {})
            agents = [agent for agent, at in answered.items() if at >= since]
            if len(hosts) > 1:
                self._fails(node, f"two hosts claim node id {node}: {' and '.join(sorted(hosts)[:2])}", now)
            elif len(agents) > 1:
                self._fails(node, f"two agents answer as node {node}", now)
            elif hosts or agents:
                self.manager.on_broker_startup(node, now)
            else:
                heard = [*answered.values(), *([snapshot.at] if snapshot is not None else [])]
                self._fails(node, f"nothing heard since {instant(max(heard))}" if heard else "never heard", now)

    def _fails(self, node: int, why: str, now: datetime) -> None:
        if self.context.silent_nodes.get(node) != why:
            self.manager.on_broker_failure(node, why, now)

    def rows(self, topic_ids: Collection[str]) -> dict[int, list[dict[str, Any]]]:
        """The snapshot rows of these topics, from every live host. An unreadable snapshot counts as having none."""
        rows = {}
        for node in self.context.live_nodes & set(self.heard.nodes):
            try:
                rows[node] = list(self.heard.directories(node, topic_ids))
            except LogAgentError as error:
                self.setting.warn(f"the newest snapshot of node {node} cannot be read: {error}")
        return rows

    def notice_snapshots(self, asked: Collection[str], found: Found, now: datetime) -> None:
        """Read each new snapshot: call `found` for every copy of the topics `asked`, and ask a host again about what it
        refused if that looks different now."""
        queued = self.context.topics_to_be_deleted.values()
        any_refused = any(known.counts.get(ReplicaState.INELIGIBLE) for known in queued)
        for node, snapshot in self.heard.nodes.items():
            if self._seen.get(node) == snapshot.stem or node not in self.context.live_nodes:
                continue
            refused = self._refused(node) if any_refused else {}
            if not asked and not refused:
                continue
            try:
                rows = list(self.heard.directories(node, {*asked, *refused} if refused else asked))
            except LogAgentError as error:
                self._seen[node] = snapshot.stem
                self.setting.warn(f"the newest snapshot of node {node} cannot be read: {error}")
                continue
            self._seen[node] = snapshot.stem
            copies = [row for row in rows if row["row"] == "dir" and row["kind"] in ("current", "future")]
            copies = [row for row in copies if row["topic_id"] in asked]
            if len(copies) > MAX_COPIES:
                self.setting.warn(f"node {node} shows {len(copies)} copies; no more than {MAX_COPIES} are looked at")
            for row in copies[:MAX_COPIES]:
                found(row["topic_id"], row["partition"], node, snapshot.arrived_at)
            self._notice_facts(snapshot, refused, rows, now)

    def _refused(self, node: int) -> Mapping[str, datetime]:
        """The topic ids that this node has ineligible replicas of, each with the earliest time since when."""
        refused: dict[str, datetime] = {}
        for replica in self.context.replicas_on_node(node):
            known = self.context.replicas[replica]
            if known.state is ReplicaState.INELIGIBLE:
                topic_id = replica.topic.topic_id
                refused[topic_id] = min(known.since, refused.get(topic_id, known.since))
        return refused

    def _notice_facts(
        self, snapshot: HostPublications, refused: Mapping[str, datetime], rows: Iterable[dict[str, Any]], now: datetime
    ) -> None:
        """Ask again about topics whose facts differ from those in the previous snapshot. Without a previous one, a
        snapshot newer than the refusal counts as a change, once: the facts at the time of the refusal are unknown."""
        node = snapshot.node_id
        if not refused:
            return
        facts, before = _facts_of(rows, refused), self._facts.get(node, {})
        log_dirs_differ = LOG_DIRS in before and facts[LOG_DIRS] != before[LOG_DIRS]
        changed = {
            topic_id
            for topic_id, since in refused.items()
            if log_dirs_differ
            or (facts[topic_id] != before[topic_id] if topic_id in before else snapshot.arrived_at > since)
        }
        queued = {replica.topic.topic_id for replica in self.context.replicas_on_node(node)}
        self._facts[node] = {key: digest for key, digest in before.items() if key in queued} | facts
        if changed:
            self.manager.resume_deletion_for_node(node, now, changed)


def _facts_of(rows: Iterable[dict[str, Any]], topic_ids: Collection[str]) -> dict[str, str]:
    """A digest of the log dirs and their health, and one of each topic's directories with what the agent says about
    them."""
    lines_by_key: dict[str, list[str]] = {key: [] for key in (LOG_DIRS, *topic_ids)}
    for row in rows:
        if row["row"] == "log_dir":
            lines_by_key[LOG_DIRS].append(json.dumps([row["path"], row["health"]]))
        elif row["topic_id"] in lines_by_key:
            lines_by_key[row["topic_id"]].append(json.dumps([row.get(key) for key in _FACTS]))
    return {key: hashlib.blake2b("\n".join(sorted(lines)).encode()).hexdigest() for key, lines in lines_by_key.items()}
