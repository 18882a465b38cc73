"""The levels of features in a real metadata log: what we read is what Kafka's own classes make of it.

The nodes are their own, as their levels are raised and lowered.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from logagent.kafka.files.metadata_dir import read_start_levels
from tests.broker.check.test_other_release import OFTEN, format_node, wait_for_snapshot
from tests.broker.rig.jars import QUICK_FLAGS, kafka_jars
from tests.broker.rig.kafka import KraftNode
from tests.broker.rig.rig import Rig
from tests.damages.disk import METADATA_LOG
from tests.long_form import long_form
from tests.needs import need_command

SOURCE = Path(__file__).with_name("FeaturesOfLog.java")
# From what a format leaves, up and down and up again; the last of each is not the newest, where there are two.
STEPS = {
    "4.4.0": (
        ("transaction.version", 1),
        ("group.version", 0),
        ("group.version", 1),
        ("eligible.leader.replicas.version", 0),
        ("eligible.leader.replicas.version", 1),
        ("share.version", 1),
        ("streams.version", 0),
        ("streams.version", 1),
    ),
    "4.3.1": (("group.version", 0), ("transaction.version", 1), ("share.version", 0), ("share.version", 1)),
    "3.9.1": (),
}
FINALISED = {
    "4.4.0": {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "kraft.version": 1,
        "metadata.version": 33,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 1,
    },
}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def of_kafka(node: KraftNode) -> dict[str, int]:
    """By the classes of 4.4.0: the reader of files of earlier releases knows no kraft.version."""
    need_command("javac")  # `java` runs a source file only where a compiler is
    log = str(node.metadata_dir / METADATA_LOG)
    command = ["java", *QUICK_FLAGS, "-cp", kafka_jars("4.4.0").classpath, str(SOURCE), log]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = (line.split() for line in done.stdout.splitlines())
    return {name: int(level) for name, level in lines if int(level)}


def of_ours(node: KraftNode) -> dict[str, int]:
    """Of each feature the level that counts now."""
    fd = os.open(node.metadata_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        levels = read_start_levels(fd)
    finally:
        os.close(fd)
    assert levels.unread is None
    return {name: found[-1] for name, found in levels.log.items() if found[-1]}


@long_form
@pytest.mark.parametrize("version", STEPS)
def test_every_finalised_feature_is_read_as_kafka_reads_it(rig: Rig, version: str) -> None:
    """In the log alone, and with a snapshot that covers some of it."""
    node = KraftNode(rig.root / "node", version, rig.ports, dynamic=True)
    rig.servers.append(node)
    format_node(node, None)
    steps = STEPS[version]
    for part in (steps[: len(steps) // 2], steps[len(steps) // 2 :]):
        node.start()
        for name, level in part:
            now = of_kafka(node).get(name, 0)
            with node.admin() as admin:
                assert admin.update_features({name: ("UPGRADE" if level > now else "SAFE_DOWNGRADE", level)}) == {
                    name: "OK"
                }
        assert of_ours(node) == of_kafka(node)
        node.stop()
        ours = of_ours(node)
        assert ours == of_kafka(node)
        node.configure({OFTEN: "1000"}).start()
        wait_for_snapshot(node)
        node.stop()
        assert of_ours(node) == of_kafka(node) == ours
        node.configure({OFTEN: None})
    assert ours == FINALISED.get(version, ours)
    assert ours["kraft.version"] == 1


@long_form
def test_a_kraft_version_that_was_raised_later_is_read(rig: Rig) -> None:
    """Of a static quorum that became a dynamic one: the level is in a control record of the log."""
    node = KraftNode(rig.root / "node", "4.4.0", rig.ports)
    rig.servers.append(node)
    format_node(node, None)
    node.configure({"controller.quorum.bootstrap.servers": f"127.0.0.1:{node.controller[1]}"}).start()
    assert "kraft.version" not in of_ours(node)
    with node.admin() as admin:
        assert admin.update_features({"kraft.version": ("UPGRADE", 1)}) == {"kraft.version": "OK"}
    node.stop()
    assert of_ours(node) == of_kafka(node) and of_ours(node)["kraft.version"] == 1
