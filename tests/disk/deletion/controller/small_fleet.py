"""A store on a real disk, a process that carries out requests there, a cluster, and hosts whose agents write to it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from logagent.base.errors import ServiceUnreachable
from logagent.base.units import instant
from logagent.deletion.controller.deletions import ControllerSetup, Deletions, TopicAnswerOfCluster
from logagent.deletion.controller.topic_deletion_manager import (
    BrokerLogs,
    RequestState,
    TopicDeletionManager,
    TopicProgress,
    request_state,
)
from logagent.deletion.store.answers import SEEN, Answer, Answers, DirectoryAnswer, Seen, SeenLogDirs, TopicAnswer
from logagent.deletion.store.requests import (
    Approval,
    ControlFolder,
    Filed,
    Kind,
    Request,
    RequestedPartition,
    RequestedTopic,
    RequestFolder,
    write_request,
)
from logagent.store.landing_files import ManifestHead, land
from logagent.store.shared import init_store
from logagent.store.signing import PrivateKey, PublicKey, public_key
from logagent.store.snapshots import SNAPSHOT_SCHEMA

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
KEY = PrivateKey("ops", b"\x01" * 32)
TOPIC_ID, NAME = "A" * 22, "clicks"
NODES = (1, 2, 3)


@dataclass
class Admin:
    """The cluster: which topics live, what its brokers have, and what it was asked."""

    living: dict[str, RequestedTopic] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    enabled: bool = True
    says: str | None = None
    unreachable: bool = False
    shows_ids: bool = True
    """Whether an unknown id counts although it lists no topic at all."""
    live: set[int] = field(default_factory=lambda: set(NODES))
    moving: set[str] = field(default_factory=set)
    disks: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    described: set[int] = field(default_factory=set)
    """The brokers whose own answer can be had."""
    offline: set[int] = field(default_factory=set)
    at: datetime | None = None
    isr: dict[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    before_sending: Callable[[], None] = lambda: None

    def _ask(self) -> None:
        if self.unreachable:
            raise ServiceUnreachable("nobody listens there")

    def topics_now(self, topics: Mapping[str, str]) -> Mapping[str, RequestedTopic]:
        self._ask()
        return {i: self.living[i] for i in topics if i in self.living}

    def unknown_ids(self, topics: Mapping[str, str]) -> Collection[str]:
        self._ask()
        return set(topics) - self.living.keys() if self.living or self.shows_ids else ()

    def delete_topics(self, topics: Mapping[str, str]) -> Mapping[str, TopicAnswerOfCluster]:
        self._ask()
        self.before_sending()
        self.sent += topics
        if not self.enabled:
            return dict.fromkeys(topics, TopicAnswerOfCluster("disabled", "TOPIC_DELETION_DISABLED"))
        if self.says is not None:
            return dict.fromkeys(topics, TopicAnswerOfCluster("again", self.says))
        for topic_id in topics:
            self.living.pop(topic_id, None)
        return dict.fromkeys(topics, TopicAnswerOfCluster("deleted"))

    def in_sync(self, topics: Mapping[str, str]) -> Mapping[tuple[str, int], frozenset[int]]:
        self._ask()
        return {(i, p): self.isr.get((i, p), frozenset(self.live)) for i in topics for p in range(3)}

    def reassigning(self, topics: Mapping[str, str]) -> Collection[str]:
        self._ask()
        return self.moving & topics.keys()

    def live_brokers(self) -> Collection[int]:
        self._ask()
        return set(self.live)

    def logs(self, node_id: int, names: Collection[str]) -> BrokerLogs | None:
        if node_id not in self.described:
            return None
        offline = ("/d2",) if node_id in self.offline else ()
        return BrokerLogs(frozenset(self.disks.get(node_id, ())), {t.topic: i for i, t in self.living.items()}, offline)

    def clock(self) -> datetime | None:
        return self.at


class ClockedControl(ControlFolder):
    """Files get the time that tests have as the store's."""

    def __init__(self, store: Path, now: Callable[[], datetime]) -> None:
        super().__init__(store, CLUSTER)
        self._now = now

    def modified(self, folder: str, name: str) -> datetime | None:
        return None if super().modified(folder, name) is None else self._now()


class SmallFleet:
    """Three hosts; a clock that tests move."""

    def __init__(self, store: Path) -> None:
        store.mkdir(exist_ok=True)
        init_store(str(store))
        self.store = store
        self.keys: tuple[PublicKey, ...] = (public_key(KEY.public()),)
        self.now = datetime.now(UTC)
        self.ahead = timedelta(0)
        """How far the clock of whoever carries out is ahead of the store's."""
        self.control: ControlFolder = ClockedControl(store, lambda: self.now)
        self.answers = Answers(store, CLUSTER)
        self.admin = Admin()
        self.born = dict.fromkeys(NODES, self.now - timedelta(days=9))
        self.disks: dict[int, set[tuple[str, int]]] = {node: set() for node in NODES}
        self.snapshots = 0
        self.warnings: list[str] = []
        self.wrote: set[str] = set()

    def process(self, host: str = "operator", key: PrivateKey | None = KEY) -> Deletions:
        """The one that asks, or by another host's name any other."""
        return Deletions(
            ControllerSetup(
                self.control, self.keys, self.admin, lambda: self.now + self.ahead, "ops", host, key,
                warn=self.warnings.append, wrote=self.wrote if host == "operator" else set(),
            )
        )  # fmt: skip

    def topic(self, nodes: tuple[int, ...] = NODES, topic_id: str = TOPIC_ID, name: str = NAME) -> RequestedTopic:
        """A topic that lives, and that these hosts have."""
        topic = self.admin.living[topic_id] = RequestedTopic(name, topic_id, (RequestedPartition(0, nodes),))
        for node in nodes:
            self.disks[node].add((topic_id, 0))
            self.admin.disks.setdefault(node, set()).add((name, 0))
        return topic

    def request(
        self, kind: Kind = "topics", approvals: tuple[Approval, ...] = (), key: PrivateKey = KEY, **more: Any
    ) -> str:
        until = instant(self.now + timedelta(hours=24 if kind == "topics" else 168))
        nonce = f"{len(self.numbers()):032x}"
        asked = Request(CLUSTER, kind, "a" * 24, "ops", instant(self.now), until, nonce, approvals, **more)
        number = write_request(self.control, asked, key)
        self.wrote.add(number)
        return number

    def numbers(self) -> list[str]:
        return sorted(self.control.names("requests"))

    def agent(self, node: int, *, host: str | None = None, mine: Collection[DirectoryAnswer] = ()) -> None:
        """A look of a node's agent: it writes what it has seen and what it has."""
        told = RequestFolder(self.control, self.keys).read()
        at, name = instant(self.now), host or f"kafka-{node}"
        born = instant(self.born[node])
        open_now = tuple(n for n, each in told.items() if each.is_open(self.now))
        who = (name, f"{node:032x}")
        self.answers.write_seen(Seen(CLUSTER, node, *who, born, at, open_now, (), SeenLogDirs(at, True)))
        self._stamp(node, SEEN)
        for number, each in told.items():
            if each.request is not None and each.request.kind == "directories" and mine:
                self.answers.write(Answer(CLUSTER, node, number, *who, at, tuple(mine)))
            if each.decision is not None and each.decision.decision == "delete":
                topics = tuple(self._has(node, t.topic_id) for t in each.decision.topics)
                self.answers.write(Answer(CLUSTER, node, number, *who, at, (), topics))

    def _has(self, node: int, topic_id: str) -> TopicAnswer:
        return TopicAnswer(topic_id, sum(topic_id == i for i, _ in self.disks[node]), 0)

    def _stamp(self, node: int, name: str) -> None:
        path = self.store / "answers" / CLUSTER / str(node) / name
        os.utime(path, (self.now.timestamp(),) * 2)

    def minute(self, *nodes: int) -> None:
        """A minute passes, and these agents look (default: all)."""
        self.now += timedelta(minutes=1)
        for node in nodes or NODES:
            self.agent(node)

    def brokers_delete(self) -> None:
        for node in self.admin.live:
            self.disks[node] = {(i, p) for i, p in self.disks[node] if i in self.admin.living}
            names = {t.topic for t in self.admin.living.values()}
            self.admin.disks[node] = {(n, p) for n, p in self.admin.disks.get(node, set()) if n in names}

    def publish(
        self,
        node: int,
        host: str | None = None,
        *,
        offline: bool = False,
        shows_log_dirs: bool = True,
        allocated: int | None = 200,
        more: Iterable[dict[str, Any]] = (),
    ) -> None:
        """A snapshot of what the host has under current names, and `more` rows."""
        self.snapshots += 1
        claim = ManifestHead(f"s{self.snapshots:04d}", "snapshot", CLUSTER, node, host or f"kafka-{node}", self.now)
        rows: list[dict[str, Any]] = [{"row": "snapshot", "schema": SNAPSHOT_SCHEMA}]
        if shows_log_dirs:
            rows.append({"row": "log_dir", "path": "/d1", "health": "offline" if offline else "online"})
        rows += [
            {"row": "dir", "kind": "current", "log_dir": "/d1", "name": f"{NAME}-{p}", "topic_id": i, "partition": p,
             "bytes": 100, "allocated": allocated}
            for i, p in self.disks[node]
        ]  # fmt: skip
        rows += more
        land(self.store, claim, [json.dumps(row) for row in rows], received_at=self.now)

    def place(self, number: str, name: str = "") -> Path:
        return self.store / "control" / CLUSTER / "requests" / number / name

    def state(self, number: str, process: Deletions | None = None) -> RequestState:
        seen = (process or self.process(key=None)).reader.read()
        filed: Filed = seen.filed[number]
        return request_state(filed, self.progress(number), seen)

    def progress(self, number: str) -> list[TopicProgress]:
        seen = self.process(key=None).reader.read()
        return TopicDeletionManager(seen, timedelta(hours=2)).progress(seen.filed[number])
