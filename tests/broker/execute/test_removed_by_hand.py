"""Segments removed by hand below a live broker: it serves them from its descriptors, and a restart is what loses them.

Seen on 3.9.1 and 4.3.1: 3,000 records readable with every `.log` gone, 0 after the restart that a rescue had advised.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logagent.kafka.metadata_log.batches import RecordBatch
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.forked import run_forked
from tests.long_form import versions

VERSIONS = versions("4.4.0", "4.3.1", "3.9.1")
COUNT = 3000
RECORD_BYTES = 1000


def rescue(node: KafkaNode, *more: str) -> str:
    where = ("--kafka-config", str(node.config), "--state-dir", str(node.root / "state"))
    known = {"LOGAGENT_KAFKA__VERSION": node.version, "COLUMNS": "250"}
    ran = run_forked("rescue", *where, *more, environment=known)
    assert ran.status in (0, 4), ran.err
    return ran.out + ("" if "--json" in more else ran.err)


def records_in(path: Path) -> int:
    """The records of a segment, every batch of which is whole."""
    content, at, count = path.read_bytes(), 0, 0
    while at < len(content):
        length = int.from_bytes(content[at + 8 : at + 12], "big") + 12
        batch = RecordBatch(content[at : at + length])
        assert batch.validate_crc()
        count += int.from_bytes(content[at + 57 : at + 61], "big")
        at += length
    return count


def readable(node: KafkaNode, topic: str) -> int:
    return len(node.read_all(topic))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_removed_by_hand_is_named_and_its_copy_has_every_record(
    kafka: Callable[..., KafkaNode], tmp_path: Path, version: str
) -> None:
    """Of one topic the segments, of another the whole directory, by a broker of its own: it is stopped in between."""
    node = kafka(version, log_dirs=1).start()
    (log_dir,) = node.log_dirs
    removed: dict[str, list[Path]] = {}
    for topic in ("segments", "directory"):
        node.create_topic(topic, config={"segment.bytes": str(1 << 20)})
        node.produce(topic, n=COUNT, size=RECORD_BYTES)
        removed[topic] = sorted((log_dir / f"{topic}-0").glob("*.log"))
        assert len(removed[topic]) >= 3
    for segment in removed["segments"]:
        segment.unlink()
    shutil.rmtree(log_dir / "directory-0")
    assert {topic: readable(node, topic) for topic in removed} == dict.fromkeys(removed, COUNT)

    shown: Any = json.loads(rescue(node, "--json"))["rescue"]
    risk = {r["file"]: r for r in shown["removed_by_hand"]}
    assert set(risk) == {f"{topic}-0/{segment.name}" for topic, segments in removed.items() for segment in segments}
    assert [r for r in risk.values() if not r["is_holder"]] == []
    assert shown["open_removed"] == []
    words = rescue(node)
    assert "copy /proc/PID/fd/N before anything restarts" in words and "restart the broker" not in words
    copies = {name: tmp_path / name.replace("/", "-") for name in risk}
    for name, r in risk.items():
        shutil.copyfile(r["descriptor"], copies[name])
    for topic in removed:
        assert sum(records_in(path) for name, path in copies.items() if name.startswith(topic)) == COUNT

    node.stop()
    # With the broker stopped the segments can be put back, beside the indexes that it left.
    for segment in removed["segments"]:
        shutil.copyfile(copies[f"segments-0/{segment.name}"], segment)
    node.start()
    wait_until(lambda: {*removed} <= {*node.topics()}, 30, "the topics are there")
    assert {topic: readable(node, topic) for topic in removed} == {"segments": COUNT, "directory": 0}
    assert node.offline_dirs() == []
