"""Ten questions that operators ask in public about bytes that stay, or went, put to a real broker with short settings:
what `explain` answers beside it, and what the broker then does.

The broker is its own, as it is stopped, killed and started with other settings.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.broker.evidence.test_deleter_live import (
    BY_SIZE,
    COMPACT,
    FOREVER,
    OFTEN,
    SLOWLY,
    checkpoint_of,
    cleaned_up_to,
    explained,
    fill,
    now_ms,
    reasons,
)
from tests.broker.evidence.test_explain_live import CHECKING, DAY_MS, WRITING, sizes
from tests.broker.restores import PER_SEGMENT, SEGMENT_BYTES, logagent, retention_checks
from tests.broker.rig.jars import run_configs, version_tuple
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.long_form import long_form

# By topic: where it was asked, and what.
ASKED = {
    "cancelled": ("KAFKA-15082", "a move between log dirs was cancelled, and retention deletes nothing since"),
    "future": (
        "https://conduktor.io/blog/kafka-retention-policies-when-messages-disappear",
        "a record of next week in the oldest segment, and everything behind it stays",
    ),
    "mixed": (
        "https://dalelane.co.uk/blog/?p=3993",
        "records that are older than the retention are still on the topic",
    ),
    "tombstones": (
        "https://e-learn.cn/qa/answer/576441/1492608.html",
        "compacted, delete.retention.ms=100, and the tombstones stay",
    ),
    "backfill": (
        "https://conduktor.io/blog/safeguard-kafka-from-timestamp-based-data-loss",
        "what was written today is gone: it has the timestamps of years ago",
    ),
    "hanging": (
        "https://cwiki.apache.org/confluence/display/KAFKA/KIP-664%3A+Provide+tooling+to+detect+and+abort+hanging+transactions",
        "does a hanging transaction keep retention from deleting, as it keeps compaction?",
    ),
    "too-large": (
        "https://www.netdata.cloud/guides/kafka/kafka-retention-not-deleting-segments/",
        "retention.bytes is set on a compacted topic, and it grows beyond it",
    ),
    "indexes": (
        "https://stackoverflow.com/questions/19394669/why-do-index-files-exist-in-the-kafka-log-directory",
        "a topic without a record has a large .index, full of zeros",
    ),
    "killed": ("KAFKA-16424", ".deleted files stay in the directories of partitions"),
    "opened": (
        "https://github.com/Aiven-Open/tiered-storage-for-apache-kafka/issues/513",
        "segments are deleted, and the disk is as full as before: the deleted files are open",
    ),
}
DAY = {**BY_SIZE, "retention.ms": str(DAY_MS)}
LONG_MS = 600_000
CONFIGS: dict[str, dict[str, str]] = {
    "cancelled": {**BY_SIZE, **FOREVER},
    "future": {**DAY},
    "mixed": {**DAY},
    "tombstones": {**COMPACT, "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"},
    "backfill": {**DAY},
    "hanging": {**DAY},
    "too-large": {**COMPACT, "retention.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01"},
    "indexes": {},
    "killed": {**DAY, "file.delete.delay.ms": str(LONG_MS)},
    "opened": {**DAY, "file.delete.delay.ms": "1000"},
}


def groups_of(node: KafkaNode, topic: str, kind: str = "current") -> dict[str, dict[str, Any]]:
    """By reason."""
    (found,) = (d for d in logagent(node, "explain", topic, settings={})["dirs"] if d["kind"] == kind)
    return {g["reason"]: g for g in found["groups"]}


def directory(node: KafkaNode, topic: str) -> Path:
    return next(d / f"{topic}-0" for d in node.log_dirs if (d / f"{topic}-0").is_dir())


def write_all(node: KafkaNode) -> KafkaProducer:
    """The records of each; the producer whose transaction stays open."""
    for topic, config in CONFIGS.items():
        more = {"message.timestamp.after.max.ms": str(3650 * DAY_MS)} if version_tuple(node.version) >= (3, 6) else {}
        node.create_topic(topic, config={**config, **more})
    # The youngest first: one that is segment.ms younger than the first of its segment would begin the next.
    for topic, days in (("future", -7), ("mixed", 0.5)):
        fill(node, topic, 1, days)
        fill(node, topic, 3 * PER_SEGMENT, 30)
    for topic, days in (("backfill", 900), ("killed", 30), ("opened", 30), ("cancelled", 30), ("too-large", 30)):
        fill(node, topic, 3 * PER_SEGMENT + 5, days)
    fill(node, "tombstones", PER_SEGMENT + 5, 0)
    with closing(KafkaProducer(bootstrap_servers=node.bootstrap, acks="all", linger_ms=0)) as producer:
        for key in range(PER_SEGMENT + 5):
            producer.send("tombstones", None, key=b"%d" % key, partition=0)
        producer.flush(timeout=60)
    fill(node, "tombstones", PER_SEGMENT, 0)
    hanging = KafkaProducer(
        bootstrap_servers=node.bootstrap, transactional_id="t", transaction_timeout_ms=900_000, acks="all"
    )
    hanging.init_transactions()
    hanging.begin_transaction()
    hanging.send("hanging", b"x", partition=0, timestamp_ms=now_ms() - 30 * DAY_MS).get(60)
    fill(node, "hanging", 3 * PER_SEGMENT, 30)
    return hanging


@long_form
@pytest.mark.parametrize("version", ["4.3.1", "4.4.0", "3.9.1", "3.5.2"])
def test_what_is_asked_in_public(kafka: Callable[..., KafkaNode], version: str, tmp_path: Path) -> None:
    node = kafka(version, log_dirs=2, props={**WRITING, **OFTEN, **SLOWLY}).start()
    node.create_topic("canary-1", config={"retention.ms": "1000"})
    if version_tuple(version) < (3, 6):
        retention_checks(node, 1, count=0)  # the first one comes after 30 s there, whatever is set
    hanging = write_all(node)
    try:
        said = explained(node, *CONFIGS)
        print(version, {name: reasons(groups) for name, groups in said.items()})
        before = {topic: sizes(node, topic) for topic in CONFIGS}
        check_what_is_said(node, said)
        index = directory(node, "indexes") / f"{0:020d}.index"
        preallocated = index.stat().st_size
        node.stop()
        assert (preallocated, index.stat().st_size) == (10 << 20, 0)
        kept = shutil.copytree(directory(node, "backfill"), tmp_path / "backfill-0")
    finally:
        hanging.close(timeout=0)

    # In the first moments of a broker nothing is paused yet; by default it checks after 30 s.
    node.configure({**CHECKING, "log.initial.task.delay.ms": "8000"}).start()
    with (directory(node, "opened") / f"{0:020d}.log").open("rb") as held:
        retention_checks(node, 1, count=2)
        wait_until(lambda: os.fstat(held.fileno()).st_nlink == 0, 30, "the open segment is unlinked")
        check_open_removed(node, os.fstat(held.fileno()).st_blocks * 512)
    for topic in ("future", "mixed"):
        assert sizes(node, topic) == before[topic], topic
    for topic in ("backfill", "hanging", "killed", "opened"):
        assert not before[topic].keys() & sizes(node, topic).keys(), topic
    wait_until(lambda: checkpoint_of(node, "too-large") == 3 * PER_SEGMENT, 30, "it is compacted")
    assert sum(sizes(node, "too-large").values()) > 3 * SEGMENT_BYTES * 0.9
    assert groups_of(node, "too-large").keys() >= {"compacted", "active"}
    check_tombstones(node, cleaned_up_to(said["tombstones"]))
    placed = place(node, kept)
    check_a_cancelled_move(node, before["cancelled"])
    check_what_is_not_loaded(node, placed)

    # A kill leaves what waits for its unlinking; the next start drops it.
    deleted = groups_of(node, "killed")["deleted-files"]
    assert deleted["at"] is not None and deleted["setting"]["value"] == str(LONG_MS)
    node.kill()
    left = groups_of(node, "killed")["deleted-files"]
    assert left["at"] is None and "next start" in left["first"]
    assert list(directory(node, "killed").glob("*.deleted"))
    node.start()
    assert not list(directory(node, "killed").glob("*.deleted"))
    wait_until(lambda: not before["cancelled"].keys() & sizes(node, "cancelled").keys(), 60, "a start resumes it")


def check_what_is_said(node: KafkaNode, said: Any) -> None:
    by_reason = {name: list(dict.fromkeys(g["reason"] for _, g in groups)) for name, groups in said.items()}
    assert by_reason["future"] == ["future-timestamps", "older-segment"], said["future"]
    assert by_reason["mixed"] == ["retention", "older-segment"], said["mixed"]
    for topic in ("backfill", "hanging", "killed", "opened"):
        assert by_reason[topic] == ["due"], said[topic]
    assert by_reason["too-large"] == ["cleanable", "active"], said["too-large"]
    indexes = groups_of(node, "indexes")["active-indexes"]
    assert indexes["bytes"] == 2 * (10 << 20) - 4 and indexes["allocated"] < 1 << 20, indexes


def place(node: KafkaNode, kept: Path) -> Path:
    """Put `kept`, as its log was before retention took it, into the log dir where its broker has no such log."""
    (other,) = (d for d in node.log_dirs if d != directory(node, kept.name[:-2]).parent)
    return shutil.copytree(kept, other / kept.name)


def check_what_is_not_loaded(node: KafkaNode, placed: Path) -> None:
    """Its broker deletes nothing of it, as old as it is, until a start finds it."""

    def said() -> list[dict[str, Any]]:
        found = logagent(node, "explain", str(placed), settings={})["dirs"]
        return [g for d in found if d["log_dir"] == str(placed.parent) for g in d["groups"]]

    # What has just been made may be about to be loaded.
    wait_until(lambda: [g["reason"] for g in said()] == ["not-loaded"], 120, "explain says that it is not loaded")
    (group,) = said()
    there = sorted((f.name, f.stat().st_size) for f in placed.iterdir())
    print(node.version, "not-loaded", group["bytes"], group["allocated"], group["first"])
    assert group["at"] is None and "the broker starts again" in group["first"]
    assert group["bytes"] == sum(size for _, size in there)
    retention_checks(node, 1, count=2)
    assert sorted((f.name, f.stat().st_size) for f in placed.iterdir()) == there
    shutil.rmtree(placed)  # no broker starts with two


def check_open_removed(node: KafkaNode, allocated: int) -> None:
    systems = logagent(node, "explain", "--log-dirs-only", settings={})["file_systems"]
    (found,) = (r for fs in systems for r in fs["reasons"] if r["reason"] == "open-removed")
    assert found["allocated"] >= allocated and "close them" in found["first"]


def tombstones(node: KafkaNode, end: int) -> int:
    """Those of keys that were written once more are superseded like any record."""
    found = [r for r in node.read_all("tombstones") if r.value is None and r.offset < end]
    return sum(int(r.key or b"0") >= PER_SEGMENT for r in found)


def check_tombstones(node: KafkaNode, end: int | None) -> None:
    """They stay when their time is over, until something new is dirty: the next cleaning takes them."""
    assert end is not None
    wait_until(lambda: checkpoint_of(node, "tombstones") == end, 30, f"they are cleaned up to {end}")
    group = groups_of(node, "tombstones")["compacted"]
    assert "tombstones by a cleaning delete.retention.ms=100 after" in group["first"], group
    there = sizes(node, "tombstones")
    # Once the cleaner has come by: what is dirty elsewhere it cleans in the same round.
    fill(node, "too-large", 2 * PER_SEGMENT, 30)
    wait_until(lambda: (checkpoint_of(node, "too-large") or 0) > 3 * PER_SEGMENT, 30, "the cleaner comes by")
    assert (sizes(node, "tombstones"), tombstones(node, end)) == (there, 5)
    fill(node, "tombstones", PER_SEGMENT, 0)
    wait_until(lambda: (checkpoint_of(node, "tombstones") or 0) > end, 30, "the cleaner comes again")
    assert tombstones(node, end) == 0


def check_a_cancelled_move(node: KafkaNode, before: dict[int, int]) -> None:
    """Cleaning stays paused before 4.0, until the next start."""
    alter = ("--bootstrap-server", node.bootstrap, "--alter", "--entity-type")
    broker, slowly = (*alter, "brokers", "--entity-name", "1"), "replica.alter.log.dirs.io.max.bytes.per.second"
    run_configs(node.version, *broker, "--add-config", f"{slowly}=1")
    source = directory(node, "cancelled").parent
    (target,) = (d for d in node.log_dirs if d != source)
    node.move_replica("cancelled", 0, 1, str(target))
    wait_until(lambda: any(target.glob("cancelled-0.*-future/*.log")), 30, "the move begins")
    assert groups_of(node, "cancelled").keys() >= {"move"}
    node.move_replica("cancelled", 0, 1, str(source))
    wait_until(lambda: not any(target.glob("cancelled-0.*-future")), 60, "it is cancelled")
    run_configs(node.version, *alter, "topics", "--entity-name", "cancelled", "--add-config", "retention.ms=86400000")
    retention_checks(node, 1, count=2)
    # Nothing on the disk shows it: explain says "due", and suspects it once that is so for an hour.
    assert bool(before.keys() & sizes(node, "cancelled").keys()) == (version_tuple(node.version) < (4, 0))
