"""Metadata that was taken back in time, or left behind, calls living topics absent. It proves nothing of what is
younger, or of another mode, and a broker that starts with the true one finds every record.

The brokers are their own, as their metadata logs are exchanged.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.kafka.commitment import GRACE_MS
from logagent.kafka.metadata_log.log import read_metadata_log
from tests.broker.evidence.test_orphans_live import logagent, orphans, verdicts
from tests.broker.rig.kafka import KafkaNode, KraftNode, ZooKeeperNode
from tests.broker.rig.process import wait_until
from tests.long_form import long_form, versions
from tests.waiting import pause

RECORDS = 100
CHECK_MS = 500
RETENTION_CHECKS = {"log.retention.check.interval.ms": str(CHECK_MS)}


def newest_record_ms(node: KraftNode) -> int:
    return read_metadata_log(
        str(node.metadata_dir / "__cluster_metadata-0"),
        node_id=node.node_id,
        cluster_id=node.cluster_id,
        now_ms=time.time_ns() // 1_000_000,
    ).assignments.at_ms


def where(node: KafkaNode, name: str) -> Path:
    (found,) = [d / name for d in node.log_dirs if (d / name).is_dir()]
    return found


def all_records_after_a_restart_and_two_retention_checks(node: KafkaNode, *partitions: tuple[str, int]) -> None:
    node.start()
    pause(2 * CHECK_MS / 1000 + 0.5, "two checks of retention")
    node.restart()
    pause(2 * CHECK_MS / 1000 + 0.5, "two checks of retention")
    assert node.offline_dirs() == []
    assert {(t, p): len(node.read_all(t, p)) for t, p in partitions} == dict.fromkeys(partitions, RECORDS)
    node.stop()


def nothing_of(topic: str, node: KafkaNode, *, alone: bool) -> None:
    """Every command that could take directories of `topic` away leaves them. `alone`: there is nothing else to do."""
    names = {f"{topic}-0", f"{topic}-1"}
    before = {name: sorted(p.name for p in where(node, name).iterdir()) for name in names}
    for name in sorted(names):
        plan = logagent(node, "delete", "--partition", name, "--execute", allow=(3,))
        assert [(r["name"], r["guard"]) for r in plan["refusals"]] == [(name, "assigned")]
    plan = logagent(node, "rescue", allow=(0, 3, 4))
    approved = logagent(node, "rescue", "--execute", "--approve", plan["plan_id"], allow=(0, 3, 4))
    for document in (plan, approved):
        assert not names & {a["name"] for a in document["actions"]}
    for _ in range(3):
        cycle = logagent(node, "cleanup", "--execute")
        assert not names & {a["name"] for a in cycle["actions"]}
        assert not alone or cycle["actions"] == []
    logagent(node, "prestart", allow=(0, 3))
    assert {name: sorted(p.name for p in where(node, name).iterdir()) for name in names} == before


@pytest.mark.parametrize("version", versions("3.9.1", "4.4.0", "4.3.1"))
def test_a_metadata_volume_that_was_rolled_back_proves_nothing_of_younger_topics(
    kafka: Callable[..., KraftNode], version: str, tmp_path: Path
) -> None:
    node = kafka(version, props=RETENTION_CHECKS).start()
    for name in ("kept", "gone"):
        node.create_topic(name)
        node.produce(name, n=RECORDS)
    node.stop()
    left_over = where(node, "gone-0")
    shutil.copytree(left_over, tmp_path / "gone-0")
    node.start()
    node.delete_topic("gone")
    earlier = tmp_path / "earlier"
    shutil.copytree(node.metadata_dir, earlier)
    copied_ms = newest_record_ms(node)
    wait_until(lambda: newest_record_ms(node) > copied_ms + GRACE_MS + 2_000, 60, "the log goes on", interval=0.5)
    node.create_topic("living", partitions=2)
    for partition in (0, 1):
        node.produce("living", partition, n=RECORDS)
    node.stop()

    true = tmp_path / "true"
    node.metadata_dir.rename(true)
    shutil.copytree(earlier, node.metadata_dir)
    # What is older than that end is still an orphan.
    shutil.copytree(tmp_path / "gone-0", left_over)
    seen = logagent(node, "scan")
    assert verdicts(seen)["living-0"] == verdicts(seen)["living-1"] == ("unknown", "stale-assignments")
    refused = logagent(node, "delete", "--partition", "living-0")["refusals"]
    assert "which is known to be complete until" in refused[0]["fact"], refused
    assert orphans(seen) == {"gone-0": "topic-absent"}
    nothing_of("living", node, alone=False)
    assert not left_over.exists()

    shutil.rmtree(node.metadata_dir)
    true.rename(node.metadata_dir)
    all_records_after_a_restart_and_two_retention_checks(node, ("kept", 0), ("living", 0), ("living", 1))


@long_form
def test_a_metadata_log_left_by_a_migration_is_no_source_in_zookeeper_mode(
    kafka: Callable[..., KafkaNode], tmp_path: Path
) -> None:
    """KAFKA-16463: a migration to KRaft that was reverted leaves the brokers' metadata logs behind. On a disk without a
    broker: tests/disk/verdict/evidence/test_own_log.py."""
    broker = kafka("3.5.2", mode="zookeeper", props=RETENTION_CHECKS)
    assert isinstance(broker, ZooKeeperNode)
    broker.start()
    broker.create_topic("living", partitions=2)
    for partition in (0, 1):
        broker.produce("living", partition, n=RECORDS)
    migrated = kafka("3.5.2", name="migrated")
    assert isinstance(migrated, KraftNode)
    migrated.start()
    migrated.create_topic("of-that-time")
    broker.stop()
    migrated.stop()
    left = broker.log_dirs[0] / "__cluster_metadata-0"
    shutil.copytree(migrated.metadata_dir / left.name, left)

    seen = logagent(broker, "scan")
    assert set(verdicts(seen).values()) == {("unknown", "no-assignments")}
    nothing_of("living", broker, alone=True)
    for command in (["show"], ["export", str(tmp_path / "assignments.json")]):
        assert logagent(broker, "assignments", *command, allow=(1,)) is None
    assert not (tmp_path / "assignments.json").exists()
    all_records_after_a_restart_and_two_retention_checks(broker, ("living", 0), ("living", 1))
