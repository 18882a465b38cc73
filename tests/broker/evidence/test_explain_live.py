"""What `logagent explain` says of topics whose configuration is drawn at random, and what the broker then deletes: byte
for byte, and not before the date.

The logs are written while no retention check runs, explained while the broker is stopped, and checked every second from
the next start on. What is above the high watermark is shown by a leader whose follower is stopped in its tracks. The
brokers are their own: they are stopped, and check retention when they are told to.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from tests.broker.restores import PER_SEGMENT, RECORD_BYTES, SEGMENT_BYTES, logagent, retention_checks, write
from tests.broker.rig.client import KafkaClient
from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.jars import run_configs, version_tuple
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.long_form import FULL, long_form, versions

DAY_MS = 86_400_000
NEVER_MS = 3_600_000
DRAWN = 20 if FULL else 3
# From before the topics are written: when retention is reached that is reached soon.
SOON_MS = 90_000 if FULL else 25_000
UNTIMED = -1
KINDS = ["old", "untimed-old", "soon", "new", "untimed", "future"]
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
    """A topic: its settings, and of what kind the timestamps of each run of records are, a segment's worth. `untimed`:
    records without a timestamp (-1), which go by the last write of their segment; of `untimed-old` that is long ago.
    `cut_at`: the offset up to which records were deleted."""

    name: str
    config: dict[str, str]
    kinds: list[str]
    timestamps: list[int]
    cut_at: int | None = None


def topic_of(
    number: int,
    kinds: list[str],
    config: dict[str, str],
    version: str,
    now_ms: int,
    default_ms: int,
    cut_at: int | None,
) -> Drawn:
    if "compact" in config.get("cleanup.policy", ""):
        # Nothing is compacted meanwhile: what is left would be other segments.
        config["min.compaction.lag.ms"] = str(3650 * DAY_MS)
    if version_tuple(version) >= (3, 6):
        config["message.timestamp.after.max.ms"] = str(3650 * DAY_MS)
    kept = max(int(config.get("retention.ms", default_ms)), 0)
    times = {"old": now_ms - 30 * DAY_MS, "soon": now_ms + SOON_MS - kept, "new": now_ms, "future": now_ms + DAY_MS}
    return Drawn(f"t{number}.{'-'.join(kinds)}", config, kinds, [times.get(kind, UNTIMED) for kind in kinds], cut_at)


def draw(chance: random.Random, number: int, version: str, now_ms: int, default_ms: int) -> Drawn:
    policy = chance.choice(["delete", "delete", "delete", "compact", "compact,delete", "delete"])
    retention = chance.choice([None, -1, DAY_MS, 7 * DAY_MS])
    size = chance.choice([None, None, -1, 0, SEGMENT_BYTES, 2 * SEGMENT_BYTES])
    config = {"cleanup.policy": policy}
    # By size, or by time: a record that is so much younger than the first of its segment begins the next one.
    config |= {"segment.bytes": str(SEGMENT_BYTES)} if chance.random() < 0.8 else {"segment.ms": str(DAY_MS // 2)}
    config |= {"retention.ms": str(retention)} if retention is not None else {}
    config |= {"retention.bytes": str(size)} if size is not None else {}
    count = chance.randint(1, 4)
    kinds = chance.choices(KINDS, [6, 2, 3, 3, 1, 1], k=count)
    if chance.random() < 0.7:
        kinds.sort(key=KINDS.index)
    cut = count > 1 and policy == "delete" and chance.random() < 0.3
    cut_at = chance.randint(1, (count - 1) * PER_SEGMENT) if cut else None
    return topic_of(number, kinds, config, version, now_ms, default_ms, cut_at)


def always(version: str, now_ms: int, default_ms: int) -> list[Drawn]:
    """What must not depend on the draw: no timestamps, long ago and just now; segments by time; deleted records; the
    brokers' dynamic default; the one broker's own."""
    by_size, week = {"segment.bytes": str(SEGMENT_BYTES)}, {"retention.ms": str(7 * DAY_MS)}
    cases: list[tuple[list[str], dict[str, str], int | None]] = [
        (["untimed-old", "untimed-old", "untimed", "new"], by_size | week, None),
        (["old", "soon", "new"], {"segment.ms": str(DAY_MS // 2)} | week, None),
        (["new", "new", "new"], by_size | {"retention.ms": "-1"}, PER_SEGMENT + 7),
        (["old", "soon", "new"], dict(by_size), None),
        (["new", "new", "new", "new", "new"], by_size | {"retention.ms": "-1"}, None),
    ]
    return [
        topic_of(DRAWN + n, kinds, config, version, now_ms, default_ms, cut_at)
        for n, (kinds, config, cut_at) in enumerate(cases)
    ]


def write_topic(node: KafkaClient, topic: Drawn, chance: random.Random) -> None:
    from kafka import TopicPartition

    node.create_topic(topic.name, config=topic.config)
    for number, at_ms in enumerate(topic.timestamps):
        last = number == len(topic.timestamps) - 1
        count = chance.randint(1, PER_SEGMENT // 2) if last else PER_SEGMENT
        write(node, topic.name, number * PER_SEGMENT, count, at_ms=at_ms)
    if topic.cut_at is not None:
        node.ask(lambda admin: admin.delete_records({TopicPartition(topic.name, 0): topic.cut_at}))


def set_last_writes(node: KafkaNode, topic: Drawn, old_ms: int) -> None:
    """While the broker is stopped: what is untimed and old was last written then."""
    for number, kind in enumerate(topic.kinds):
        log = node.log_dirs[0] / f"{topic.name}-0" / f"{number * PER_SEGMENT:020d}.log"
        if kind == "untimed-old" and log.exists():
            os.utime(log, ns=(old_ms * 1_000_000, old_ms * 1_000_000))


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
        for topic, segments in self.before.items():
            there = sizes(self.node, topic)
            now_ms = int(time.time() * 1000)  # not of before: what goes meanwhile would be too early
            for base in segments:
                if base not in there:
                    self.gone.setdefault((topic, base), now_ms)

    def until(self, at_ms: int) -> None:
        def over() -> bool:
            self.look()
            return time.time() * 1000 > at_ms

        wait_until(over, 600, "the dates have come", interval=0.1)


@pytest.mark.parametrize("version", versions("4.3.1", "4.4.0", "3.9.1", "3.5.2"))
def test_what_is_said_is_what_the_broker_deletes(kafka: Callable[..., KafkaNode], version: str) -> None:
    seed = random.randrange(1 << 32) if FULL else 1
    print(f"seed {seed}")
    chance = random.Random(seed)
    node = kafka(version, log_dirs=1, props=WRITING).start()
    default_ms, default_bytes = 2 * DAY_MS, 3 * SEGMENT_BYTES
    for whose, setting in (
        (("--entity-default",), f"log.retention.ms={default_ms}"),
        (("--entity-name", "1"), f"log.retention.bytes={default_bytes}"),
    ):
        alter = ("--alter", "--entity-type", "brokers", *whose, "--add-config", setting)
        run_configs(version, "--bootstrap-server", node.bootstrap, *alter)
    node.create_topic("canary-1", config={"retention.ms": "1000"})
    now_ms = int(time.time() * 1000)
    topics = [draw(chance, n, version, now_ms, default_ms) for n in range(DRAWN)]
    topics += always(version, now_ms, default_ms)
    for topic in topics:
        write_topic(node, topic, chance)
    node.stop()
    for topic in topics:
        set_last_writes(node, topic, now_ms - 30 * DAY_MS)

    before = {topic.name: sizes(node, topic.name) for topic in topics}
    document = logagent(node, "explain", *before, settings={})
    said = {d["topic"]: d["groups"] for d in document["dirs"]}
    assert said.keys() == before.keys() and document["log_dirs"][0]["waits_for"] == "the broker runs"

    reasons = Counter(g["reason"] for groups in said.values() for g in groups)
    print(f"{len(topics)} topics, {sum(map(len, before.values()))} segments, groups: {dict(reasons)}")
    assert reasons["due"] and reasons["below-log-start"] and reasons["partition-files"] == len(topics)
    sources = {g["setting"]["source"] for groups in said.values() for g in groups if g["setting"] is not None}
    assert {"topic", "broker", "all-brokers"} <= sources

    watch = Watch(node, before)
    # Not the first check before the broker has learned of the dynamic defaults, which on a busy machine takes seconds
    # (`BrokerMetadataPublisher` starts the log manager first); by default the check comes after 30 s.
    node.configure({**CHECKING, "log.initial.task.delay.ms": "8000"}).start()
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


@long_form
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1", "4.4.0", "3.5.2"])
def test_above_the_high_watermark_nothing_goes_until_the_follower_has_fetched(
    kafka_cluster: Callable[..., KafkaCluster], version: str
) -> None:
    """The follower is stopped by a signal, and neither fenced nor out of sync for as long as this takes."""
    from kafka import KafkaProducer

    patient = {"replica.lag.time.max.ms": "600000", "broker.session.timeout.ms": "600000"}
    checks = {"log.retention.check.interval.ms": "20000", "log.initial.task.delay.ms": "500"}
    often = {"replica.high.watermark.checkpoint.interval.ms": "500", "log.segment.delete.delay.ms": "600000"}
    cluster = kafka_cluster(version, nodes=2, log_dirs=1, props={**patient, **checks, **often}).start()
    leader, follower = cluster.node(1), cluster.node(2)
    config = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": str(DAY_MS), "min.insync.replicas": "1"}
    cluster.create_topic("lagging", assignments={0: [1, 2]}, config=config)
    cluster.wait_in_sync("lagging")
    cluster.create_topic("canary-1", assignments={0: [1]}, config={"retention.ms": "1000"})
    # Just after a check: the next one is seconds away.
    retention_checks(leader, 1, count=0)
    old_ms, replicated = int(time.time() * 1000) - 30 * DAY_MS, PER_SEGMENT + 10
    checkpoint = leader.log_dirs[0] / "replication-offset-checkpoint"
    # One producer for all: a new client might ask the follower for metadata, and wait for it.
    with closing(KafkaProducer(bootstrap_servers=leader.bootstrap, acks=1, linger_ms=0)) as producer:
        send(producer, "canary-1", 1, old_ms)
        send(producer, "lagging", replicated, old_ms)
        written = f"lagging 0 {replicated}\n"
        wait_until(lambda: written in checkpoint.read_text(), 30, "the high watermark is written")
        follower.pause()
        try:
            send(producer, "lagging", 2 * PER_SEGMENT, old_ms)
            before = sizes(leader, "lagging")
            (said,) = logagent(leader, "explain", "lagging", settings={})["dirs"]
            groups = [(bases, group) for bases, group in by_segment(said["groups"], before)]
            assert [(bases, g["reason"]) for bases, g in groups[:2]] == [
                ([0], "due"),
                ([sorted(before)[1]], "above-high-watermark"),
            ]
            assert groups[0][1]["bytes"] == before[0] and f"is {replicated};" in groups[1][1]["first"]
            wait_until(lambda: 0 not in sizes(leader, "lagging"), 60, "the first segment goes")
            last = max(sizes(leader, "canary-1"))
            send(producer, "canary-1", 1, old_ms)
            wait_until(lambda: min(sizes(leader, "canary-1")) > last, 60, "the leader checks once more")
            assert sizes(leader, "lagging") == {base: size for base, size in before.items() if base}
        finally:
            follower.resume()

    def everything_gone() -> bool:
        return not before.keys() & sizes(leader, "lagging").keys()

    wait_until(everything_gone, 90, "what the follower has fetched goes")


def send(producer: Any, topic: str, n: int, at_ms: int) -> None:
    sent = [producer.send(topic, b"." * RECORD_BYTES, partition=0, timestamp_ms=at_ms) for _ in range(n)]
    producer.flush(timeout=60)
    assert [future for future in sent if not future.succeeded()] == []


def as_said(group: dict[str, Any], gone_ms: int | None, last_ms: int) -> bool:
    """Gone where it was due; not before its date; there where no date was given, or a later one."""
    if group["at"] is None or parsed_ms(group["at"]) >= last_ms:
        return gone_ms is None
    if gone_ms is None:  # one of several, of which only the oldest have gone yet
        return parsed_ms(group["last_at"]) >= last_ms and group["segments"] > 1
    return gone_ms >= parsed_ms(group["at"])
