"""A plain model of a cluster's metadata, to hold the replay against: it makes random histories and knows their end.

Deliberately simple: dicts of dicts, copied whole for every snapshot. It shares no code with the reader.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from typing import Any

from tests import metadata_writer as writer
from tests.metadata_writer import id_of

NODES = (1, 2, 3, 4)
CLEARS_ELIGIBLE = 24
"""`metadata.version` 4.0-IV2: releases before it do not know the record."""
DIRECTORIES = {node: [id_of(1000 + 10 * node + n) for n in range(2)] for node in NODES}


@dataclass
class Model:
    """`topics` maps id to {"name", "partitions": {number: {"replicas", "isr", ...}}}."""

    rng: random.Random
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    brokers: dict[int, dict[str, Any]] = field(default_factory=dict)
    delays: dict[str, int] = field(default_factory=dict)
    version: int | None = None
    made: int = 0
    levels: tuple[int, int] = (7, 34)
    removed: list[str | tuple[str, int]] = field(default_factory=list)

    def copy(self) -> Model:
        twin = copy.deepcopy(self)
        twin.rng = self.rng
        twin.removed = []
        return twin

    def step(self) -> list[bytes]:
        """Change something at random; returns the records that a controller would write for it."""
        self.removed = []
        actions = [self.create, self.create, self.change, self.change, self.reassign, self.finish, self.delete]
        actions += [self.register, self.fence, self.registration, self.configure, self.other, self.repartition]
        actions += [self.eligible, *([self.clear_eligible] if self.levels[1] >= CLEARS_ELIGIBLE else [])]
        return self.rng.choice(actions)()

    # -- topics ------------------------------------------------------------------------------------

    def create(self, name: str | None = None) -> list[bytes]:
        topic_id = id_of(self.made)
        self.made += 1
        name = name or f"topic-{self.rng.randrange(12)}"
        if any(topic["name"] == name for topic in self.topics.values()):
            name = f"topic-{self.made}x"
        partitions: dict[int, dict[str, Any]] = {}
        for number in range(self.rng.randint(1, 3)):
            partitions[number] = self._new_partition()
        self.topics[topic_id] = {"name": name, "partitions": partitions}
        return self._topic_records(topic_id)

    def repartition(self) -> list[bytes]:
        if not self.topics:
            return self.create()
        topic_id = self.rng.choice(list(self.topics))
        partitions = self.topics[topic_id]["partitions"]
        number = len(partitions)
        partitions[number] = self._new_partition()
        return [self._partition_record(topic_id, number)]

    def delete(self) -> list[bytes]:
        if not self.topics:
            return self.create()
        topic_id = self.rng.choice(list(self.topics))
        name = self.topics.pop(topic_id)["name"]
        self.removed.append(topic_id)
        records = [writer.remove_topic(topic_id)]
        if self.rng.random() < 0.5:
            records += self.create(name)
        return records

    def change(self) -> list[bytes]:
        """A new leader, ISR, or directories."""
        picked = self._pick()
        if picked is None:
            return self.create()
        topic_id, number, partition = picked
        changes: dict[str, Any] = {}
        if self.rng.random() < 0.5:
            changes["isr"] = self.rng.sample(partition["replicas"], self.rng.randint(1, len(partition["replicas"])))
        if self.rng.random() < 0.5:
            changes["leader"] = self.rng.choice([-1, *partition["replicas"]])
        if self.rng.random() < 0.5:
            changes["directories"] = self._directories(partition["replicas"])
        return self._changed(topic_id, number, changes)

    def eligible(self) -> list[bytes]:
        """Replicas leave the ISR and stay eligible (KIP-966)."""
        picked = self._pick()
        if picked is None:
            return self.create()
        topic_id, number, partition = picked
        elr = self.rng.sample(partition["replicas"], self.rng.randint(0, len(partition["replicas"])))
        return self._changed(topic_id, number, {"elr": elr, "isr": [], "leader": -1})

    def clear_eligible(self) -> list[bytes]:
        name = self.rng.choice(["", *(topic["name"] for topic in self.topics.values())])
        for topic in self.topics.values():
            for partition in topic["partitions"].values() if name in ("", topic["name"]) else ():
                partition["elr"] = []
        return [writer.clear_elr(name)]

    def reassign(self) -> list[bytes]:
        """Begin a reassignment: `replicas` become old and new ones together."""
        picked = self._pick()
        if picked is None:
            return self.create()
        topic_id, number, partition = picked
        target = self.rng.sample(NODES, self.rng.randint(1, 3))
        adding = [node for node in target if node not in partition["replicas"]]
        removing = [node for node in partition["replicas"] if node not in target]
        replicas = target + removing
        changes = {
            "replicas": replicas,
            "adding": adding,
            "removing": removing,
            "directories": self._directories(replicas),
        }
        return self._changed(topic_id, number, changes)

    def finish(self) -> list[bytes]:
        """End a reassignment: empty lists for what was being added and removed."""
        for topic_id, topic in self.topics.items():
            for number, partition in topic["partitions"].items():
                if partition["removing"] or partition["adding"]:
                    kept = [node for node in partition["replicas"] if node not in partition["removing"]]
                    if partition["removing"]:
                        self.removed.append((topic_id, number))
                    changes = {"replicas": kept, "isr": kept, "adding": [], "removing": [], "leader": kept[0]}
                    return self._changed(topic_id, number, {**changes, "directories": self._directories(kept)})
        return self.reassign()

    def _pick(self) -> tuple[str, int, dict[str, Any]] | None:
        if not self.topics:
            return None
        topic_id = self.rng.choice(list(self.topics))
        number = self.rng.choice(list(self.topics[topic_id]["partitions"]))
        return topic_id, number, self.topics[topic_id]["partitions"][number]

    def _new_partition(self) -> dict[str, Any]:
        replicas = self.rng.sample(NODES, self.rng.randint(1, 3))
        return {
            "replicas": replicas,
            "isr": list(replicas),
            "adding": [],
            "removing": [],
            "directories": self._directories(replicas),
            "leader": replicas[0],
            "elr": [],
        }

    def _directories(self, replicas: list[int]) -> list[str]:
        return [self.rng.choice(DIRECTORIES[node]) for node in replicas]

    def _changed(self, topic_id: str, number: int, changes: dict[str, Any]) -> list[bytes]:
        self.topics[topic_id]["partitions"][number].update(changes)
        version = 2 if "elr" in changes else self.rng.choice((1, 2))
        return [writer.partition_change(topic_id, number, version=version, **changes)]

    def _topic_records(self, topic_id: str) -> list[bytes]:
        topic = self.topics[topic_id]
        head = writer.topic(topic["name"], topic_id)
        return [head, *(self._partition_record(topic_id, number) for number in topic["partitions"])]

    def _partition_record(self, topic_id: str, number: int) -> bytes:
        fields = self.topics[topic_id]["partitions"][number]
        return writer.partition(topic_id, number, version=2 if fields["elr"] else self.rng.choice((1, 2)), **fields)

    # -- everything else -----------------------------------------------------------------------------

    def register(self) -> list[bytes]:
        node = self.rng.choice(NODES)
        self.brokers[node] = {"directory_ids": DIRECTORIES[node], "fenced": True}
        return [writer.register_broker(node, DIRECTORIES[node])]

    def fence(self) -> list[bytes]:
        if not self.brokers:
            return self.register()
        node, fenced = self.rng.choice(list(self.brokers)), self.rng.random() < 0.5
        if self.rng.random() < 0.2:
            del self.brokers[node]
            return [writer.unregister_broker(node)]
        self.brokers[node]["fenced"] = fenced
        return [writer.fence(node, fenced)]

    def registration(self) -> list[bytes]:
        if not self.brokers:
            return self.register()
        node = self.rng.choice(list(self.brokers))
        fields: dict[int, bytes] = {}
        if self.rng.random() < 0.5:
            fenced = self.rng.random() < 0.5
            self.brokers[node]["fenced"] = fenced
            fields[0] = b"\x01" if fenced else b"\xff"
        if self.rng.random() < 0.5:
            kept = DIRECTORIES[node][: self.rng.randint(0, 2)]
            self.brokers[node]["directory_ids"] = kept or self.brokers[node]["directory_ids"]
            fields[2] = writer.ids(kept)
        return [writer.registration_change(node, fields)]

    def configure(self) -> list[bytes]:
        name = "log.segment.delete.delay.ms"
        node, delay = self.rng.choice(["", "1", "2"]), self.rng.choice([None, 0, 1000, 60_000])
        if delay is None:
            self.delays.pop(node, None)
        else:
            self.delays[node] = delay
        noise = [writer.config(2, "topic-1", name, "7"), writer.config(4, "1", "other.key", "x")]
        return [*noise, writer.config(4, node, name, None if delay is None else str(delay))]

    def other(self) -> list[bytes]:
        self.version = self.rng.randint(*self.levels)
        noise = [writer.NO_OP, writer.PRODUCER_IDS, writer.zk_migration(0)]
        return [
            *noise,
            writer.feature_level("metadata.version", self.version),
            writer.feature_level("kraft.version", 1),
        ]

    def records(self) -> list[bytes]:
        """The whole state as records, as a snapshot holds it."""
        found = [] if self.version is None else [writer.feature_level("metadata.version", self.version)]
        for node, broker in self.brokers.items():
            found.append(writer.register_broker(node, broker["directory_ids"], fenced=broker["fenced"]))
        for topic_id in self.topics:
            found += self._topic_records(topic_id)
        for name, delay in self.delays.items():
            found.append(writer.config(4, name, "log.segment.delete.delay.ms", str(delay)))
        return found

    def state(self) -> dict[str, Any]:
        """Topics, brokers, delays and version in plain form, for comparison."""
        return {
            "topics": {i: {"name": t["name"], "partitions": t["partitions"]} for i, t in self.topics.items()},
            "brokers": self.brokers,
            "delays": self.delays,
            "version": self.version,
        }
