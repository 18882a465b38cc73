"""What `logagent explain` says of topics whose configuration is drawn at random, and what the broker then deletes: byte
for byte, and not before the date.

The logs are written while no retention check runs, explained while the broker is stopped, and checked every second
from the next start on.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.broker.restores import PER_SEGMENT, SEGMENT_BYTES, logagent, retention_checks, write
from tests.broker.rig.client import KafkaClient
from tests.broker.rig.jars import version_tuple
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.broker.versions import versions

DAY_MS = 86_400_000
NEVER_MS = 3_600_000
TOPICS = 20
# After the topics are written: when retention is reached that is reached soon.
SOON_MS = 90_000
WRITING = {
    "log.retention.check.interval.ms": str(NEVER_MS),
    "log.cleaner.backoff.ms": str(NEVER_MS),
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "600000",
    "log.retention.hours": "24",
}
CHECKING = {"log.retention.check.interval.ms": "1000", "log.cleaner.backoff.ms": "500"}


@dataclass
class Drawn:
    """A topic: its settings, and the timestamp of each segment's records."""

    name: str
    config: dict[str, str]
    timestamps: list[int]
    cut_at: int | None
    said: dict[str, Any] = field(default_factory=dict)


def draw(chance: random.Random, number: int, version: str, now_ms: int, default_ms: int) -> Drawn:
    policy = chance.choice(["delete", "delete", "delete", "compact", "compact,delete", "delete"])
    retention = chance.choice([None, -1, DAY_MS, 7 * DAY_MS])
    size = chance.choice([None, None, -1, 0, SEGMENT_BYTES, 2 * SEGMENT_BYTES])
    config = {"cleanup.policy": policy, "segment.bytes": str(SEGMENT_BYTES)}
    if retention is not None:
        config["retention.ms"] = str(retention)
    if size is not None:
        config["retention.bytes"] = str(size)
    if "compact" in policy:
        # Nothing is compacted meanwhile: what is left would be other segments.
        config["min.compaction.lag.ms"] = str(3650 * DAY_MS)
    if version_tuple(version) >= (3, 6):
        config["message.timestamp.after.max.ms"] = str(3650 * DAY_MS)
    kept = default_ms if retention is None else max(retention, 0)
    times = {"old": now_ms - 30 * DAY_MS, "soon": now_ms + SOON_MS - kept, "new": now_ms, "future": now_ms + DAY_MS}
    count = chance.randint(1, 4)
    kinds = chance.choices(["old", "soon", "new", "future"], [6, 3, 3, 1], k=count)
    if chance.random() < 0.7:
        kinds.sort(key=["old", "soon", "new", "future"].index)
    cut = count > 1 and policy == "delete" and chance.random() < 0.3
    cut_at = chance.randint(1, (count - 1) * PER_SEGMENT) if cut else None
    return Drawn(f"t{number}.{'-'.join(kinds)}", config, [times[kind] for kind in kinds], cut_at)


def write_topic(node: KafkaClient, topic: Drawn, chance: random.Random) -> None:
    from kafka import TopicPartition

    node.create_topic(topic.name, config=topic.config)
    for number, at_ms in enumerate(topic.timestamps):
        last = number == len(topic.timestamps) - 1
        count = chance.randint(1, PER_SEGMENT // 2) if last else PER_SEGMENT
        write(node, topic.name, number * PER_SEGMENT, count, at_ms=at_ms)
    if topic.cut_at is not None:
        node.ask(lambda admin: admin.delete_records({TopicPartition(topic.name, 0): topic.cut_at}))


def sizes(node: KafkaNode, topic: str) -> dict[int, int]:
    """Bytes of each segment, by base offset."""
    directory = next(d / f"{topic}-0" for d in node.log_dirs if (d / f"{topic}-0").is_dir())
    return {int(log.stem): log.stat().st_size for log in sorted(directory.glob("*.log"))}


def by_segment(groups: list[dict[str, Any]], before: dict[int, int]) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """The base offsets of each group of segments."""
    left = sorted(before)
    for group in groups:
        bases, left = left[: group["segments"]], left[group["segments"] :]
        if bases:
            assert bases[0] == group["first_offset"] and group["bytes"] == sum(before[b] for b in bases)
            yield bases, group
    assert not left


def parsed_ms(text: str) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(text).timestamp() * 1000)


class Watch:
    """When each segment was first seen to be gone."""

    def __init__(self, node: KafkaNode, before: dict[str, dict[int, int]]) -> None:
        self.node, self.before = node, before
        self.gone: dict[tuple[str, int], int] = {}

    def look(self) -> None:
        now_ms = int(time.time() * 1000)
        for topic, segments in self.before.items():
            there = sizes(self.node, topic)
            for base in segments:
                if base not in there:
                    self.gone.setdefault((topic, base), now_ms)

    def until(self, at_ms: int) -> None:
        def over() -> bool:
            self.look()
            return time.time() * 1000 > at_ms

        wait_until(over, 600, "the dates have come", interval=0.1)


@pytest.mark.parametrize("version", versions("4.3.1", "3.9.1", "3.5.2"))
def test_what_is_said_is_what_the_broker_deletes(kafka: Callable[..., KafkaNode], version: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    node = kafka(version, log_dirs=1, props=WRITING).start()
    default_ms = 2 * DAY_MS
    alter = ("--alter", "--entity-type", "brokers", "--entity-default")
    node.jars.run(
        "kafka.admin.ConfigCommand", "--bootstrap-server", node.bootstrap, *alter, "--add-config",
        f"log.retention.ms={default_ms}",
    )  # fmt: skip
    node.create_topic("canary-1", config={"retention.ms": "1000"})
    now_ms = int(time.time() * 1000)
    topics = [draw(chance, n, version, now_ms, default_ms) for n in range(TOPICS)]
    for topic in topics:
        write_topic(node, topic, chance)
    node.stop()

    before = {topic.name: sizes(node, topic.name) for topic in topics}
    document = logagent(node, "explain", *before, settings={})
    said = {d["topic"]: d["groups"] for d in document["dirs"]}
    assert said.keys() == before.keys() and document["log_dirs"][0]["waits_for"] == "the broker runs"

    reasons = Counter(g["reason"] for groups in said.values() for g in groups)
    print(f"groups: {dict(reasons)}")
    assert reasons["due"] and reasons["partition-files"] == TOPICS

    watch = Watch(node, before)
    node.configure(CHECKING).start()
    started_ms = int(time.time() * 1000)
    retention_checks(node, 1)
    last_ms = now_ms + SOON_MS + DAY_MS // 24
    dates = [
        parsed_ms(g[end])
        for groups in said.values()
        for g in groups
        for end in ("at", "last_at")
        if g["segments"] and g[end] is not None
    ]
    watch.until(max([started_ms, *(at for at in dates if at < last_ms)]) + 5_000)
    retention_checks(node, 1)
    watch.look()
    problems = [
        (topic, base, group, watch.gone.get((topic, base)))
        for topic, groups in said.items()
        for bases, group in by_segment(groups, before[topic])
        for base in bases
        if not as_said(group, watch.gone.get((topic, base)), last_ms)
    ]
    assert not problems, (seed, [t for t in topics if t.name in {p[0] for p in problems}], problems)
    live = logagent(node, "explain", *before, settings={})
    assert live["log_dirs"][0]["waits_for"] is None
    assert not [g for d in live["dirs"] for g in d["groups"] if g["reason"] in ("due", "below-log-start")]


def as_said(group: dict[str, Any], gone_ms: int | None, last_ms: int) -> bool:
    """Gone where it was due; not before its date; there where no date was given, or a later one."""
    if group["at"] is None or parsed_ms(group["at"]) >= last_ms:
        return gone_ms is None
    if gone_ms is None:  # one of several, of which only the oldest have gone yet
        return parsed_ms(group["last_at"]) >= last_ms and group["segments"] > 1
    return gone_ms >= parsed_ms(group["at"])
