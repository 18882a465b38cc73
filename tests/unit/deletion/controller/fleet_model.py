"""A fleet as it truly is, and what a look sees of it: a model without files, for the pure functions.

The store may lose what was written, hosts may be down, log dirs offline, and what agents wrote may be old.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from logagent.base.units import instant
from logagent.deletion.controller.topic_deletion_manager import (
    AgentSeen,
    BrokerLogs,
    ClusterSeen,
    HostSeen,
    Sightings,
    SnapshotSeen,
    TopicDeletionManager,
)
from logagent.deletion.store.answers import Answer, Seen, SeenLogDirs, TopicAnswer
from logagent.deletion.store.requests import (
    Approval,
    Decided,
    Decision,
    Filed,
    Request,
    RequestedPartition,
    RequestedTopic,
    RequestOutcome,
    TopicOutcome,
)

CLUSTER, NAME = "cluster", "clicks"
NODES = (1, 2, 3, 4)
SILENT_AFTER = timedelta(minutes=30)
BORN = "2026-11-20T00:00:00.000Z"


@dataclass
class Node:
    """A host with a broker and an agent. `disk`: topic ids and partitions that are there under a current name."""

    node_id: int
    disk: set[tuple[str, int]] = field(default_factory=set)
    broker_up: bool = True
    agent_up: bool = True
    log_dir_offline: bool = False
    seen: AgentSeen | None = None
    snapshot: SnapshotSeen | None = None
    heard_at: datetime | None = None


class Fleet:
    """What is true, and the store."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, tzinfo=UTC)
        self.nodes = {n: Node(n) for n in NODES}
        self.living: dict[str, RequestedTopic] = {}
        self.deleted: set[str] = set()
        self.store: dict[str, Filed] = {}
        self.answers: dict[tuple[str, int], Answer] = {}
        self.enabled = True
        self.sent: list[tuple[str, str]] = []
        self.ids = 0
        self.wrote: set[str] = set()
        """The requests whose process still runs and has not seen a decision."""

    def create(self, nodes: tuple[int, ...]) -> str:
        """A topic of this one name; the one before must be deleted."""
        self.ids += 1
        topic_id = f"{self.ids:022d}"
        self.living[topic_id] = RequestedTopic(NAME, topic_id, (RequestedPartition(0, nodes),))
        for n in nodes:
            if self.nodes[n].broker_up and not self.nodes[n].log_dir_offline:
                self.nodes[n].disk.add((topic_id, 0))
        return topic_id

    def request(self, topic_id: str, approvals: tuple[Approval, ...] = ()) -> str:
        number = f"{len(self.store) + 1:064x}"
        until = self.now + timedelta(hours=24)
        asked = Request(CLUSTER, "topics", "0" * 24, "ops", instant(self.now), instant(until), "0" * 32, approvals,
                        (self.living[topic_id],))  # fmt: skip
        self.store[number] = Filed(number, asked)
        self.wrote.add(number)
        return number

    def broker_deletes(self) -> None:
        """Every broker that is up removes what the cluster has deleted."""
        for node in self.nodes.values():
            if node.broker_up and not node.log_dir_offline:
                node.disk = {key for key in node.disk if key[0] not in self.deleted}

    def agent_looks(self, n: int) -> None:
        """What an agent does once a minute: remember, and write what it has seen and what it has."""
        node = self.nodes[n]
        if not node.agent_up:
            return
        still = tuple(number for number, filed in self.store.items() if filed.is_open(self.now))
        at = instant(self.now)
        dirs = SeenLogDirs(at, not node.log_dir_offline, offline=("/d2",) if node.log_dir_offline else ())
        seen = Seen(CLUSTER, n, f"kafka-{n}", f"{n:032x}", BORN, at, still, (), dirs)
        node.seen, node.heard_at = AgentSeen(seen, self.now), self.now
        for number, filed in self.store.items():
            decision = filed.decision
            if decision is not None and decision.decision == "delete":
                topics = tuple(self._answer(node, t.topic_id) for t in decision.topics)
                self.answers[number, n] = Answer(CLUSTER, n, number, f"kafka-{n}", f"{n:032x}", at, (), topics)

    def _answer(self, node: Node, topic_id: str) -> TopicAnswer:
        live = sum(key[0] == topic_id for key in node.disk)
        return TopicAnswer(topic_id, None if node.log_dir_offline else live, 0)

    def publishes(self, n: int) -> None:
        node = self.nodes[n]
        offline = ("/d2",) if node.log_dir_offline else ()
        shown = frozenset() if node.log_dir_offline else frozenset(node.disk)
        node.snapshot, node.heard_at = SnapshotSeen(self.now, shown, offline), self.now

    def read(self) -> Sightings:
        """What anybody sees who looks now."""
        live = frozenset(n for n, node in self.nodes.items() if node.broker_up)
        names = {t.topic: i for i, t in self.living.items()}
        logs = {
            n: BrokerLogs(
                frozenset((NAME, p) for _, p in self.nodes[n].disk)
                if not self.nodes[n].log_dir_offline
                else frozenset(),
                names,
                ("/d2",) if self.nodes[n].log_dir_offline else (),
            )
            for n in live
        }
        return Sightings(
            self.now,
            dict(self.store),
            {n: node.seen for n, node in self.nodes.items() if node.seen is not None},
            {},
            dict(self.answers),
            {n: HostSeen((f"kafka-{n}",), node.heard_at, node.snapshot) for n, node in self.nodes.items()},
            ClusterSeen(dict(self.living), frozenset(self.deleted), frozenset(), live, logs),
        )

    def decide(self, number: str, what: Decided) -> Decision:
        """Created if absent, as the store does it."""
        filed = self.store[number]
        if filed.decision is None:
            topics = filed.request.topics if what == "delete" and filed.request is not None else ()
            now = tuple(self.living.get(t.topic_id, t) for t in topics)
            decision = Decision(number, CLUSTER, what, "ops", instant(self.now), topics=now)
            filed = self.store[number] = replace(filed, decision=decision)
        assert filed.decision is not None
        return filed.decision

    def may_decide(self, number: str) -> bool:
        """Only the process that asked, within a minute, if it has seen no decision."""
        request = self.store[number].request
        assert request is not None
        return number in self.wrote and self.now <= datetime.fromisoformat(request.at) + timedelta(minutes=1)

    def sender(self, number: str) -> str | None:
        """What a process does about one request in a round; why not, in words."""
        seen = self.read()
        filed = seen.filed[number]
        if filed.decision is not None:
            self.wrote.discard(number)
        if filed.request is None or filed.is_over:
            return "it is over"
        if self.now >= datetime.fromisoformat(filed.request.expires_at):
            return "it is too late"
        if filed.decision is None and not self.may_decide(number):
            return "nobody may decide it"
        decision = filed.decision or self.decide(number, "delete")
        self.wrote.discard(number)
        if decision.decision != "delete":
            return "somebody decided otherwise"
        for topic in decision.topics:
            if topic.topic_id not in self.living:
                continue
            self.sent.append((number, topic.topic_id))
            if not self.enabled:
                self.close(number, "disabled")
                return "disabled"
            del self.living[topic.topic_id]
            self.deleted.add(topic.topic_id)
        self.broker_deletes()
        return None

    def close(self, number: str, result: str = "deleted") -> None:
        filed = self.store[number]
        assert filed.decision is not None
        topics = tuple(TopicOutcome(t.topic_id, result) for t in filed.decision.topics)  # type: ignore[arg-type]
        if filed.outcome is None:
            outcome = RequestOutcome(number, CLUSTER, "ops", instant(self.now), topics)
            self.store[number] = replace(filed, outcome=outcome)

    def manager(self) -> TopicDeletionManager:
        return TopicDeletionManager(self.read(), SILENT_AFTER)
