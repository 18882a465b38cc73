"""One scenario on each release, and what is said of every directory afterwards: the same.

The clusters are their own, as brokers are stopped.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logagent.base.records import id_to_text
from tests.broker.evidence.test_headline_case import FreshInstall
from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.long_form import long_form

HEX = "8b6d5fdf4ca34fdf9182049bc5ca85a0"
BEFORE = ("gone", "again", "left", "kept", "placed", "deleted", "recreated", "moved")
Said = tuple[str, str | None, str | None]
ASSIGNED, ABSENT = ("assigned", None), ("orphan", "topic-absent")
RECREATED, MOVED = ("orphan", "topic-recreated"), ("orphan", "not-a-replica")
BY_THE_LOG: dict[str, Said] = {
    "kept-0": ("current", *ASSIGNED),
    "kept-0.by-hand-delete": ("delete", None, None),
    "kept-0.by-hand-future": ("future", *ASSIGNED),
    "kept-0.by-hand-stray": ("stray", *ASSIGNED),
    "kept-backup-0": ("current", "orphan", "copy-of"),
    "nameless-0": ("current", "unknown", "no-topic-id"),
    "foreign-0": ("current", *ABSENT),
    "placed-0": ("current", "unknown", "wrong-directory"),
    # Set aside by the broker, at the start in between.
    "gone-0.*-stray": ("stray", *ABSENT),
    "again-0": ("current", *ASSIGNED),
    "again-0.*-stray": ("stray", *RECREATED),
    "left-0.*-stray": ("stray", *MOVED),
    # Since.
    "deleted-0": ("current", *ABSENT),
    "deleted-0.by-hand-delete": ("delete", None, None),
    "deleted-0.by-hand-future": ("future", *ABSENT),
    "recreated-0": ("current", *RECREATED),
    "moved-0": ("current", *MOVED),
}
"""What a scan says when it goes by the metadata log of another broker, which was exported there."""
BY_A_BROKER = BY_THE_LOG | {
    # It may leave out what the asker may not describe, and does not say in which log dir a replica is.
    "kept-backup-0": ("current", "unknown", "no-assignments"),
    "placed-0": ("current", *ASSIGNED),
}
"""What it says when it asks the other brokers."""


def change(cluster: KafkaCluster, deleted: str, recreated: str, moved: str) -> None:
    cluster.delete_topic(deleted)
    cluster.delete_topic(recreated)
    cluster.create_topic(recreated, assignments={0: [1, 2, 3]})
    cluster.reassign(moved, {0: [1, 2]})
    cluster.wait_reassigned()


def log_dir_of(node: KafkaNode, name: str) -> Path:
    (found,) = (log_dir for log_dir in node.log_dirs if (log_dir / name).is_dir())
    return Path(found)


def by_hand(node: KafkaNode) -> None:
    """On the disk of a stopped node what brokers and people leave there."""
    kept, deleted, placed = (log_dir_of(node, f"{topic}-0") for topic in ("kept", "deleted", "placed"))

    def other(log_dir: Path) -> Path:
        return next(Path(d) for d in node.log_dirs if Path(d) != log_dir)

    shutil.copytree(kept / "kept-0", kept / "kept-backup-0")
    shutil.copytree(kept / "kept-0", other(kept) / f"kept-0.{HEX}-future")
    shutil.copytree(deleted / "deleted-0", other(deleted) / f"deleted-0.{HEX}-future")
    shutil.copytree(kept / "kept-0", kept / f"kept-0.{HEX}-delete")
    shutil.copytree(deleted / "deleted-0", deleted / f"deleted-0.{HEX}-delete")
    shutil.copytree(kept / "kept-0", kept / f"kept-0.{HEX}-stray")
    shutil.move(placed / "placed-0", other(placed) / "placed-0")
    shutil.copytree(kept / "kept-0", kept / "nameless-0")
    (kept / "nameless-0/partition.metadata").unlink()
    shutil.copytree(kept / "kept-0", kept / "foreign-0")
    (kept / "foreign-0/partition.metadata").write_text(f"version: 0\ntopic_id: {id_to_text(uuid.uuid4().bytes)}\n")


def table(document: Any) -> dict[str, Said]:
    """By name, a random part of it as a star."""
    found: dict[str, Said] = {}
    for d in document["dirs"]:
        name = re.sub(r"\.(?!8b6d5fdf)[0-9a-f]{32}-", ".*-", d["name"]).replace(HEX, "by-hand")
        if d["kind"] != "metadata" and not name.startswith("__"):
            found[name] = d["kind"], d["verdict"], d["reason"]
    return found


@long_form
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1", "4.4.0"])
def test_every_release_leads_to_the_same_verdicts(kafka_cluster: Callable[..., KafkaCluster], version: str) -> None:
    cluster = kafka_cluster(version, nodes=3, log_dirs=2).start()
    three = cluster.node(3)
    for topic in BEFORE:
        cluster.create_topic(topic, assignments={0: [1, 2, 3]})
        cluster.produce(topic, 0, n=30)
        cluster.wait_in_sync(topic)
    three.stop()
    change(cluster, "gone", "again", "left")
    three.start()
    cluster.wait_in_sync("kept")
    cluster.wait_in_sync("again")
    three.stop()
    change(cluster, "deleted", "recreated", "moved")
    by_hand(three)

    host, two = FreshInstall(three), FreshInstall(cluster.node(2))

    def says(expected: object, *arguments: str) -> bool:
        print(said := table(host.json("scan", *arguments)))
        return said == expected

    # The others are given a minute to have learnt everything, and one learns of it later than another.
    wait_until(lambda: says(BY_A_BROKER), 180, "the others prove it", interval=5)
    exported = three.root / "assignments.json"
    two.run("assignments", "export", str(exported))
    assert says(BY_THE_LOG, "--assignments", str(exported))
