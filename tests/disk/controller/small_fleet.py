"""A store on a real disk, a controller's setting for it, and hosts that publish and answer like agents."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from logagent.controller.controller_context import Replica, Topic
from logagent.controller.deletion_client import TopicOutcome
from logagent.controller.rounds import DeletionRounds
from logagent.controller.setting import Setting
from logagent.errors import ServiceUnreachable
from logagent.store.answers import write_answer
from logagent.store.control import Control
from logagent.store.deletion import (
    Answer,
    Identity,
    Kind,
    Order,
    Request,
    RequestedDirectory,
    RequestedPartition,
    RequestedTopic,
)
from logagent.store.landing_files import Claim, land
from logagent.store.orders import ORDER_NAME, instant, orders_folder, read_order, write_request
from logagent.store.signing import PrivateKey, PublicKey, public_key
from tests.unit.controller.fleet_model import Host

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
KEY = PrivateKey("ops", b"\x01" * 32)
TOPIC_ID = "A" * 22
DIRECTORY = Identity("/d1", "clicks-0", 11, 1, bytes=100, end_offset=5)
Change = Callable[[dict[str, Any]], object]


def unchanged(row: dict[str, Any]) -> None:
    """No change."""


@dataclass
class Admin:
    """The cluster: which topic ids live, and what it was asked."""

    living: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    now: dict[str, RequestedTopic] = field(default_factory=dict)
    between: Callable[[], None] = lambda: None
    disabled: set[str] = field(default_factory=set)
    unreachable: bool = False
    still_deleting: bool = False
    live_brokers: frozenset[int] = frozenset({1, 2, 3})
    moving: set[str] = field(default_factory=set)
    isr: dict[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    """What the principal may not describe."""

    def topics_now(self, topics: Mapping[str, str]) -> Mapping[str, RequestedTopic]:
        if self.unreachable:
            raise ServiceUnreachable("nobody listens there")
        self.between()
        return {i: self.now[i] for i in topics if i in self.now and i not in self.hidden}

    def unknown_ids(self, topics: Mapping[str, str]) -> Collection[str]:
        if self.unreachable:
            raise ServiceUnreachable("nobody listens there")
        return set(topics) - self.living - self.hidden

    def in_sync(self, topics: Mapping[str, str]) -> Mapping[tuple[str, int], frozenset[int]]:
        if self.unreachable:
            raise ServiceUnreachable("nobody listens there")
        return {(i, p): self.isr.get((i, p), self.live_brokers) & self.live_brokers for i in topics for p in range(3)}

    def delete_topics(self, topics: Mapping[str, str]) -> Mapping[str, TopicOutcome]:
        if self.unreachable:
            raise ServiceUnreachable("nobody listens there")
        self.asked += topics
        if self.disabled:
            said = TopicOutcome("disabled", "TOPIC_DELETION_DISABLED")
            self.living -= set(topics) - self.disabled
            return {i: said if i in self.disabled else TopicOutcome("deleted") for i in topics}
        if self.still_deleting:
            said = TopicOutcome("again", "the cluster is still deleting it", self.live_brokers)
            return dict.fromkeys(topics, said)
        self.living -= set(topics)
        return {topic_id: TopicOutcome("deleted") for topic_id in topics}

    def reassigning(self, topics: Mapping[str, str]) -> Collection[str]:
        return self.moving & set(topics)


class ClockedControl(Control):
    """Files get the time that tests have as the store's."""

    def __init__(self, store: Path, now: Callable[[], datetime]) -> None:
        super().__init__(store, CLUSTER)
        self._now = now

    def create(self, folder: str, name: str, content: bytes) -> bool:
        created = super().create(folder, name, content)
        if created:
            os.utime(Path(self.store, "control", self.cluster_id, folder, name), (self._now().timestamp(),) * 2)
        return created


class SmallFleet:
    """Three hosts; a clock that tests move."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.control: Control = ClockedControl(store, lambda: self.now)
        self.keys: tuple[PublicKey, ...] = (public_key(KEY.public()),)
        self.now = datetime.now(UTC)
        self.admin = Admin()
        self.hosts = {node: Host(node) for node in (1, 2, 3)}
        self.seen: dict[int, set[str]] = {node: set() for node in self.hosts}
        self.highest = 0
        self.needs: dict[int, timedelta] = {}
        """How long a host's agent is at an order before it acts, if the order still stands then."""
        self.behind: dict[int, timedelta] = {}
        """How far a host's clock is behind."""
        self.begun: dict[tuple[int, str], datetime] = {}
        self.ahead = timedelta(0)
        """How far the clocks of controllers are ahead of the store's."""
        self.snapshots = 0
        self.warnings: list[str] = []

    def controller(self, key: PrivateKey = KEY) -> DeletionRounds:
        return DeletionRounds(
            Setting(
                self.control, key, self.keys, self.admin, lambda: self.now + self.ahead, "ops", "shell",
                warn=self.warnings.append,
            )
        )  # fmt: skip

    def publish(
        self,
        node: int,
        host: str | None = None,
        log_dirs: Mapping[str, str] | None = None,
        change: Change = unchanged,
        taken_at: datetime | None = None,
    ) -> None:
        """A snapshot of what the host has; each directory's row as `change` leaves it. It arrives now."""
        self.snapshots += 1
        taken_at = taken_at or self.now
        claim = Claim(f"s{self.snapshots:04d}", "snapshot", CLUSTER, node, host or f"kafka-{node}", taken_at)
        rows: list[dict[str, Any]] = [{"row": "snapshot", "schema": "logagent.snapshot/1"}]
        rows += [{"row": "log_dir", "path": path, "health": health} for path, health in (log_dirs or {}).items()]
        for (topic_id, partition), d in self.hosts[node].disk.items():
            rows.append({"row": "dir", "kind": "current", "log_dir": d.log_dir, "name": d.name, "topic_id": topic_id,
                         "partition": partition, "bytes": d.bytes})  # fmt: skip
            change(rows[-1])
        land(self.store, claim, [json.dumps(row) for row in rows], received_at=self.now)

    def everywhere(self, directory: Identity = DIRECTORY, log_dirs: Mapping[str, str] | None = None) -> SmallFleet:
        """Every host has the topic's directory, and has published it."""
        for node in self.hosts:
            self.hosts[node].disk[TOPIC_ID, 0] = directory
            self.publish(node, log_dirs=log_dirs)
        return self

    def request(self, kind: Kind = "topics", number: int = 1, key: PrivateKey = KEY, **more: Any) -> Request:
        request = Request(
            f"request-{number}", CLUSTER, kind, "a" * 16, "ops", instant(self.now),
            instant(self.now + timedelta(days=7)), 0, **more,
        )  # fmt: skip
        assert write_request(self.control, request, key)
        return request

    def topic(self, nodes: tuple[int, ...] = (1, 2, 3), topic_id: str = TOPIC_ID) -> RequestedTopic:
        self.admin.living.add(topic_id)
        return RequestedTopic("clicks", topic_id, (RequestedPartition(0, nodes),))

    def directory(self, node: int, *, only_copy: bool = False) -> RequestedDirectory:
        d = self.hosts[node].disk[TOPIC_ID, 0]
        return RequestedDirectory(node, d.log_dir, d.name, "clicks", TOPIC_ID, 0, "orphan", only_copy=only_copy)

    def orders(self, node: int) -> list[Order]:
        found = []
        for name in sorted(self.control.names(orders_folder(node))):
            if ORDER_NAME.fullmatch(name):
                content = self.control.read(orders_folder(node), name)
                assert content is not None
                found.append(read_order(content, name, node, self.keys, CLUSTER))
        return found

    def agent(self, node: int) -> None:
        """What a host's agent does in one poll: new orders of the highest epoch, answered."""
        host = self.hosts[node]
        if host.silent:
            return
        for order in self.orders(node):
            self.highest = max(self.highest, order.epoch)
            if order.epoch < self.highest or order.order_id in self.seen[node]:
                continue
            begun = self.begun.setdefault((node, order.order_id), self.now)
            if self.now - begun < self.needs.get(node, timedelta(0)):
                continue
            self.seen[node].add(order.order_id)
            for p in order.partitions:
                replica = Replica(Topic(p.request_id, p.topic_id), p.partition, node, p.asked_log_dir, p.asked_name)
                host.mailbox.append((replica, order.action, (p.directory,) if p.directory else ()))
            said = host.obey()
            results = tuple(r for _, _, rs in said for r in rs)
            if results:
                write_answer(self.control, Answer(
                    order.order_id, order.epoch, self.highest, CLUSTER, node, f"{node:032x}", len(self.seen[node]),
                    order.action, instant(self.now - self.behind.get(node, timedelta(0))), "1", results))  # fmt: skip

    def rounds(self, controller: DeletionRounds, times: int = 6) -> None:
        for _ in range(times):
            controller.round()
            for node in self.hosts:
                self.agent(node)
            self.now += timedelta(minutes=1)
