"""What happens to partitions that are set aside, loaded by a real broker, and restored.

One `Life` is a broker's: it writes topics of every kind, ends (cleanly or not), has the partitions set aside (by us as
`-stray` or `-delete`, or by itself), starts and loads them, ends again, and gets them back; where it is `torn`, with
the last batch of each cut in its middle, as by a crash of the host. Ours are cut before they are set aside: what is
shorter than it was then is refused, as some of it may have been removed. `live` returns what every topic lost by then,
as the broker serves it, on every replica as leader, after its checks of retention (two in the long form).
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from tests.broker.rig.client import KafkaClient
from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.jars import version_tuple
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.forked import run_forked
from tests.long_form import FULL

Aside = Literal["quarantine", "mark", "broker"]
End = Literal["clean", "kill"]

OTHER_TOPIC_ID = "EEEEEEEEEEEEEEEEEEEEEA"
SEGMENT_BYTES = 1 << 20
RECORD_BYTES = 16_000
PER_SEGMENT = SEGMENT_BYTES // RECORD_BYTES
CANARY = "canary"
# Retention runs every second; what is marked stays for the whole test.
PROPERTIES = {
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "600000",
    "log.cleaner.backoff.ms": "500",
}


@dataclass(frozen=True)
class Topic:
    """One partition: how many replicas it has, who sets it aside, in how many segments it lies, its cleanup policy."""

    rf: int
    aside: Aside
    segments: int
    policy: Literal["delete", "compact"]

    @property
    def name(self) -> str:
        return f"{self.aside}.rf{self.rf}.{self.segments}.{self.policy}"


@dataclass(frozen=True)
class Life:
    """`nodes`: 1, or 3 of which the second has the log dir. `first` and `second`: how it ends before they are set
    aside, and after it has loaded them. `torn`: what comes back lacks the second half of its last batch."""

    version: str
    nodes: int
    first: End
    second: End
    torn: bool = False

    def __str__(self) -> str:
        return f"{self.version}-{self.nodes}-{self.first}-{self.second}{'-torn' if self.torn else ''}"

    @property
    def host(self) -> int:
        return 1 if self.nodes == 1 else 2

    @property
    def topics(self) -> list[Topic]:
        asides: tuple[Aside, ...] = ("quarantine", "mark", "broker")
        if version_tuple(self.version) < (3, 7):
            asides = ("quarantine", "mark")
        return [Topic(*t) for t in product((1,) if self.nodes == 1 else (1, 2), asides, (1, 3), ("delete", "compact"))]  # type: ignore[arg-type]

    def replicas(self, topic: Topic) -> list[int]:
        return [self.host] if topic.rf == 1 else [self.host, 3]


# Commands


def logagent(node: KafkaNode, *arguments: str, allow: tuple[int, ...] = (0,), settings: Mapping[str, str]) -> Any:
    """Run a command on the node's host, as its operator would; the JSON document it prints."""
    where = ("--kafka-config", str(node.config), "--state-dir", str(node.root / "state"))
    known = {"LOGAGENT_KAFKA__VERSION": node.version, **settings}
    ran = run_forked(*arguments, *where, "--json", environment=known)
    assert ran.status in allow, f"{arguments} came to {ran.status}\n{ran.err}\n{ran.out[-3000:]}"
    return ran.json if ran.out else None


def act(node: KafkaNode, *arguments: str, **settings: str) -> dict[str, str]:
    """Carry a command out, approved where its plan is too large for this small host; new names by old ones."""
    plan = logagent(node, *arguments, allow=(0, 4), settings=settings)
    done = logagent(node, *arguments, "--execute", "--approve", plan["plan_id"], settings=settings)
    assert done["actions"] and {a["outcome"] for a in done["actions"]} == {"done"}, done
    return {a["name"]: a["new_name"] for a in done["actions"] if a["action"] != "drop-checkpoint-entry"}


# Records


def write(client: KafkaClient, topic: str, first: int, n: int, *, at_ms: int | None = None) -> list[bytes]:
    """`n` records with keys of their own (compaction keeps them all), numbered from `first`. `at_ms`: their timestamp
    (None: now; -1: none)."""
    from kafka import KafkaProducer

    values = [f"{topic}-{i}".encode().ljust(RECORD_BYTES, b".") for i in range(first, first + n)]
    producer = KafkaProducer(bootstrap_servers=client.bootstrap, acks="all", linger_ms=0, max_request_size=1 << 20)
    try:
        sent = [
            producer.send(topic, key=str(first + i).encode(), value=value, partition=0, timestamp_ms=at_ms)
            for i, value in enumerate(values)
        ]
        producer.flush(timeout=60)
        for future in sent:
            future.get(timeout=60)
    finally:
        producer.close()
    return values


def retention_checks(client: KafkaClient, node: int, count: int = 2 if FULL else 1) -> None:
    """Return when node `node` has checked the retention of all its logs `count` times (and begun once more)."""
    from kafka import KafkaConsumer, TopicPartition

    canary = TopicPartition(f"{CANARY}-{node}", 0)
    with contextlib.closing(KafkaConsumer(bootstrap_servers=client.bootstrap, enable_auto_commit=False)) as consumer:

        def gone() -> bool:
            return bool(consumer.beginning_offsets([canary]) == consumer.end_offsets([canary]))

        for _ in range(count + 1):
            write(client, canary.topic, 0, 1, at_ms=int(time.time() * 1000) - 86_400_000)
            wait_until(gone, 90, f"node {node} deletes what is past its retention", interval=0.2)


BATCH_HEADER = struct.Struct(">qi")
RECORDS_COUNT = struct.Struct(">i")
RECORDS_COUNT_AT = 57


def tear(directory: Path) -> int:
    """Cut the last batch of the directory's last segment in its middle; how many records that costs."""
    log = max(directory.glob("*.log"))
    content = log.read_bytes()
    start = end = 0
    while end + BATCH_HEADER.size < len(content):
        start = end
        _, length = BATCH_HEADER.unpack_from(content, start)
        end = start + BATCH_HEADER.size + length
    assert end == len(content) > 0, f"{log} does not end with a whole batch"
    os.truncate(log, (start + end) // 2)
    return int(RECORDS_COUNT.unpack_from(content, start + RECORDS_COUNT_AT)[0])


# The life


class NodeInCluster:
    """The node whose partitions are set aside, and the cluster around it."""

    def __init__(self, life: Life, cluster: KafkaCluster) -> None:
        self.life = life
        self.cluster = cluster
        self.node = cluster.node(life.host)
        self.written: dict[Topic, list[bytes]] = {}

    def dir_of(self, name: str) -> Path:
        (found,) = (d / name for d in self.node.log_dirs if (d / name).is_dir())
        return found

    def end(self, how: End) -> None:
        self.node.stop() if how == "clean" else self.node.kill()

    def begin(self) -> None:
        self.node.start()
        self.cluster.wait_ready()

    def write_topics(self) -> None:
        for number in {self.life.host, 3} if self.life.nodes == 3 else {1}:
            self.cluster.create_topic(f"{CANARY}-{number}", assignments={0: [number]}, config={"retention.ms": "1000"})
        for topic in self.life.topics:
            config = {"cleanup.policy": topic.policy, "segment.bytes": str(SEGMENT_BYTES)}
            self.cluster.create_topic(topic.name, assignments={0: self.life.replicas(topic)}, config=config)
            count = PER_SEGMENT * (topic.segments - 1) + PER_SEGMENT // 2
            self.written[topic] = write(self.cluster, topic.name, 0, count)
        for topic in self.life.topics:
            assert len(list(self.dir_of(f"{topic.name}-0").glob("*.log"))) == topic.segments, topic

    @property
    def settings(self) -> dict[str, str]:
        """Where a broker does not start with a `-stray` directory, it is set aside beside the log dirs."""
        if version_tuple(self.life.version) >= (3, 6, 1):
            return {}
        (self.node.root / "quarantine").mkdir(exist_ok=True)
        return {"LOGAGENT_CLEANUP__QUARANTINE_DIRS": str(self.node.root / "quarantine")}

    def set_aside(self) -> dict[Path, bytes]:
        """While the node is stopped. For those that the broker sets aside itself: `partition.metadata` as it was."""
        before: dict[Path, bytes] = {}
        freely = ("--allow-assigned", "--even-last-copy")
        act(self.node, "delete", "--topic", r"quarantine\..*", "--quarantine", *freely, **self.settings)
        act(self.node, "delete", "--topic", r"mark\..*", *freely, **self.settings)
        for topic in self.life.topics:
            if topic.aside == "broker":
                path = self.dir_of(f"{topic.name}-0") / "partition.metadata"
                before[path] = path.read_bytes()
                path.write_text(f"version: 0\ntopic_id: {OTHER_TOPIC_ID}\n")
        return before

    def aside(self, topic: Topic) -> Path:
        pattern = re.compile(re.escape(f"{topic.name}-0.") + r"[0-9a-f]{32}-(stray|delete)")
        places = [*self.node.log_dirs, self.node.root / "quarantine"]
        (found,) = (p for d in places if d.is_dir() for p in d.iterdir() if pattern.fullmatch(p.name))
        return found

    def tear(self, *asides: Aside) -> None:
        """What has no other replica loses its last batch; where there is one, that one still has it."""
        for topic in self.life.topics:
            if topic.aside not in asides:
                continue
            ours = topic.aside != "broker"
            records = tear(self.dir_of(f"{topic.name}-0") if ours else self.aside(topic))
            if topic.rf == 1:
                del self.written[topic][-records:]

    def restore(self, *more: str) -> dict[str, str]:
        names = [self.aside(topic).name for topic in self.life.topics]
        return act(
            self.node,
            "restore",
            *names,
            "--replace",
            "--even-last-copy",
            "--leader-will-truncate",
            *more,
            **self.settings,
        )

    def lost(self) -> dict[str, str]:
        """What each topic lacks, by topic and leader; empty where every record is there."""
        found: dict[str, str] = {}
        for number in {self.life.host, 3} if self.life.nodes == 3 else {1}:
            with self.leading(number):
                retention_checks(self.cluster, number)
                for topic, values in self.written.items():
                    if number in self.life.replicas(topic):
                        got = [r.value for r in self.cluster.read_all(topic.name)]
                        if got != values:
                            found[f"{topic.name} led by {number}"] = f"{len(got)} of {len(values)} records"
        return found

    @contextlib.contextmanager
    def leading(self, number: int) -> Iterator[None]:
        """Node `number` leads every partition that it has a replica of."""
        for topic in self.life.topics:
            if topic.rf > 1 and number in self.life.replicas(topic):
                self.cluster.wait_in_sync(topic.name)
                others = [n for n in self.life.replicas(topic) if n != number]
                self.cluster.reassign(topic.name, {0: [number, *others]})
        self.cluster.wait_reassigned()
        preferred = 0
        self.cluster.ask(lambda admin: admin.elect_leaders(preferred, raise_errors=False))
        wanted = [t.name for t in self.life.topics if number in self.life.replicas(t)]

        def led() -> bool:
            described = self.cluster.ask(lambda admin: admin.describe_topics(wanted))
            return all(p["leader_id"] == number for t in described for p in t["partitions"])

        wait_until(led, 60, f"node {number} leads", interval=0.2)
        yield


def live(host: NodeInCluster) -> dict[str, str]:
    """One whole life; what was lost in it."""
    host.cluster.start()
    host.write_topics()
    host.end(host.life.first)
    if host.life.torn:
        host.tear("quarantine", "mark")
    before = host.set_aside()
    host.begin()
    for topic in host.life.topics:
        wait_until(lambda t=topic: (host.dir_of(f"{t.name}-0")).is_dir(), 60, "the broker makes them anew")  # type: ignore[misc]
    host.end(host.life.second)
    for topic in host.life.topics:
        if topic.aside == "broker":
            (held,) = (b for p, b in before.items() if p.parent.name == f"{topic.name}-0")
            (host.aside(topic) / "partition.metadata").write_bytes(held)
    if host.life.torn:
        host.tear("broker")
    host.restore()
    host.begin()
    return host.lost()
