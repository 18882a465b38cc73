"""Segments removed by hand below a live broker: it serves them from its descriptors, and a restart is what loses them.

Seen on 3.9.1 and 4.3.1: 3,000 records readable with every `.log` gone, 0 after the restart that a rescue had advised.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logagent.broker.metadata_log.batches import RecordBatch
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.long_form import versions

VERSIONS = versions("4.4.0", "4.3.1", "3.9.1")
COUNT = 3000
RECORD_BYTES = 1000


def rescue(node: KafkaNode, *more: str) -> str:
    command = [sys.executable, "-m", "logagent", "rescue", "--kafka-config", str(node.config)]
    known = {**os.environ, "LOGAGENT_KAFKA__VERSION": node.version, "COLUMNS": "250"}
    ran = subprocess.run(
        [*command, "--state-dir", str(node.root / "state"), *more],
        env=known,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode in (0, 4), ran.stderr
    return ran.stdout + ("" if "--json" in more else ran.stderr)


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


def readable(node: KafkaNode) -> int:
    return len(node.read_all("orders"))


@pytest.mark.parametrize("whole", [False, True], ids=["segments", "directory"])
@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_removed_by_hand_is_named_and_its_copy_has_every_record(
    kafka: Callable[..., KafkaNode], tmp_path: Path, version: str, whole: bool
) -> None:
    node = kafka(version, log_dirs=1).start()
    node.create_topic("orders", config={"segment.bytes": str(1 << 20)})
    node.produce("orders", n=COUNT, size=RECORD_BYTES)
    (log_dir,) = node.log_dirs
    directory = log_dir / "orders-0"
    segments = sorted(directory.glob("*.log"))
    assert len(segments) >= 3
    if whole:
        shutil.rmtree(directory)
    else:
        for segment in segments:
            segment.unlink()
    assert readable(node) == COUNT

    shown: Any = json.loads(rescue(node, "--json"))["rescue"]
    risk = {r["file"]: r for r in shown["removed_by_hand"]}
    assert set(risk) == {f"orders-0/{segment.name}" for segment in segments}
    assert all(r["is_holder"] for r in risk.values()) and shown["open_removed"] == []
    words = rescue(node)
    assert "copy /proc/PID/fd/N before anything restarts" in words and "restart the broker" not in words
    copies = {name: tmp_path / Path(name).name for name in risk}
    for name, r in risk.items():
        shutil.copyfile(r["descriptor"], copies[name])
    assert sum(map(records_in, copies.values())) == COUNT

    node.stop()
    if not whole:
        # With the broker stopped they can be put back, beside the indexes that it left.
        for name, copy in copies.items():
            shutil.copyfile(copy, log_dir / name)
        node.start()
        assert readable(node) == COUNT and node.offline_dirs() == []
        node.stop()
        for segment in segments:
            segment.unlink()
    node.start()
    wait_until(lambda: "orders" in node.topics(), 30, "the topic is there")
    assert readable(node) == 0
