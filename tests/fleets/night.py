"""A cluster through an hour: topics are made, deleted and moved while its hosts look at their disks and publish.

`Night` knows what was lost (`lost`); what a report can know of it is worked out by `tests/fleets/of_replicas.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from logagent.base.units import instant
from logagent.fleet.demo import topic_id, uuid_hex
from tests.spark.hand_made import AT, Kafka, dir_row, log_dir_row

NODES = range(1, 7)
LOOK = 1.0
"""Minutes that an inventory takes."""
Replica = tuple[str, int, int]
"""Topic id, partition, node."""


@dataclass
class Topic:
    """`moved`: from that minute on each partition has these replicas."""

    name: str
    id: str
    born: float
    died: float
    replicas: list[list[int]]
    moved: tuple[float, list[list[int]]] | None = None

    def at(self, minute: float) -> list[list[int]]:
        if not self.born <= minute < self.died:
            return []
        return self.moved[1] if self.moved is not None and minute >= self.moved[0] else self.replicas


@dataclass
class Night:
    """`formats`: by node, `own` (its agent reads images of its own), `old` (an agent from before), `none` (it has no
    assignments), `silent`."""

    seed: int
    topics: list[Topic] = field(default_factory=list)
    lost: set[Replica] = field(default_factory=set)
    formats: dict[int, str] = field(default_factory=dict)
    begins: dict[int, float] = field(default_factory=dict)
    offline: set[int] = field(default_factory=set)
    published: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.names_directories = self.seed % 2 == 0
        self.published = sorted(self.random.sample(range(-5, 65), self.random.randint(1, 4)))
        for node in NODES:
            self.formats[node] = self.random.choice(("own", "own", "own", "old", "none", "silent"))
            self.begins[node] = self.random.uniform(0, 55)
            if self.random.random() < 0.2:
                self.offline.add(node)
        for number in range(12):
            self.topics.append(self._topic(number))
        for topic in self.topics:
            for partition, nodes in enumerate(topic.replicas):
                nowhere = topic is self.topics[0] and partition < 3
                self.lost |= {(topic.id, partition, node) for node in nodes if nowhere or self.random.random() < 0.1}

    def _topic(self, number: int) -> Topic:
        born = self.random.uniform(0, 60) if number % 3 == 1 else -1000
        died = self.random.uniform(0, 60) if number % 3 == 2 else 1000
        made = Topic(f"t{number}", topic_id("night", self.seed, number), born, died, self._nodes())
        if number % 4 == 3:
            made.moved = self.random.uniform(0, 60), self._nodes()
        return made

    def _nodes(self) -> list[list[int]]:
        return [self.random.sample(NODES, 3) for _ in range(5)]

    def assigned(self, minute: float, node: int) -> set[tuple[str, str, int]]:
        """(topic, its id, partition) of what the cluster assigns to a node."""
        return {(t.name, t.id, n) for t in self.topics for n, nodes in enumerate(t.at(minute)) if node in nodes}

    def log_dir(self, node: int, partition: int) -> str:
        return f"/d{(node + partition) % 2}"

    def directory_id(self, node: int, log_dir: str) -> str:
        return topic_id("night", self.seed, node, log_dir)

    # What is published

    def write(self, store: Path) -> Kafka:
        kafka = Kafka(store, f"night-{self.seed}")
        for minute in self.published:
            self._publish(kafka, minute)
        for node in NODES:
            if self.formats[node] != "silent":
                self._look(kafka, node)
        return kafka

    def _publish(self, kafka: Kafka, minute: float) -> None:
        rows = []
        for topic in self.topics:
            for number, nodes in enumerate(topic.at(minute)):
                ids = [self.directory_id(n, self.log_dir(n, number)) for n in nodes] if self.names_directories else []
                row = {"row": "partition", "topic": topic.name, "topic_id": topic.id, "partition": number}
                rows.append(row | {"replicas": nodes, "adding": [], "removing": [], "isr": nodes, "directories": ids})
        kafka.assignments(rows, at=moment(minute), offset=offset(minute), brokers=NODES, publisher=1)

    def _look(self, kafka: Kafka, node: int) -> None:
        begins, ends, shape = self.begins[node], self.begins[node] + LOOK, self.formats[node]
        dirs = list(self._dirs(node, begins, ends))
        places = [
            log_dir_row(path, "offline" if self._is_offline(node, path) else "online")
            | {"directory_id": self.directory_id(node, path)}
            for path in ("/d0", "/d1")
        ]
        head: dict[str, Any] = {}
        absent: list[dict[str, Any]] = []
        before, after = begins - 0.1, ends + 0.1
        if shape != "none":
            head["assignments"] = {"source": "kraft-log", "at": instant(moment(before)), "offset": offset(before)}
        if shape == "own":
            head["began"] = instant(moment(begins))
            head["images"] = {
                name: {"source": "kraft-log", "at": instant(moment(at)), "offset": offset(at)}
                for name, at in (("before", before), ("after", after))
            }
            head["absent"] = None
            if node not in self.offline:
                both = self.assigned(before, node) & self.assigned(after, node)
                here = {(row["topic_id"], row["partition"]): row["kind"] for row in dirs}
                absent = [
                    {"topic": name, "topic_id": id_, "partition": n, "left": here.get((id_, n))}
                    for name, id_, n in sorted(both)
                    if here.get((id_, n)) in (None, "stray")
                ]
                head["absent"] = len(absent)
        kafka.hourly(node, dirs, at=moment(ends), log_dirs=places, not_there=absent, **head)

    def _is_offline(self, node: int, path: str) -> bool:
        return path == "/d1" and node in self.offline

    def _dirs(self, node: int, begins: float, ends: float) -> Iterator[dict[str, Any]]:
        """What is on the disks of a node: a deletion or a move may be under way, and of what was lost some is left."""
        chance = random.Random(f"{self.seed}/{node}")
        first, last = self.assigned(begins, node), self.assigned(ends, node)
        for name, id_, number in sorted(first | last):
            place, way = self.log_dir(node, number), chance.random()
            full, kind = f"{name}-{number}", "current"
            if (id_, number, node) in self.lost:
                kind = "stray" if way < 0.1 else "delete" if way < 0.2 else ""
            elif (name, id_, number) not in last:
                kind = "delete" if way < 0.5 else ""
            elif (name, id_, number) not in first and way < 0.5:
                kind = ""
            if not kind or self._is_offline(node, place):
                continue
            full += "" if kind == "current" else f".{uuid_hex(name, node)}-{kind}"
            yield dir_row(full, id_, kind=kind, topic=name, partition=number, log_dir=place)


def moment(minute: float) -> Any:
    return AT + timedelta(milliseconds=round((minute - 60) * 60_000))


def offset(minute: float) -> int:
    return 100_000 + round(minute * 600)
