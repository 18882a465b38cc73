"""A stray beside the current directory of its name, whose log start offset a broker takes for its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from logagent.base.dir_names import LOG_START_OFFSET
from logagent.base.records import TopicPartition
from logagent.kafka.files.checkpoint_files import render_checkpoint
from tests.disk.killed import HEX, PARTITIONS, in_process, lay_out
from tests.host_files import write_topic_id
from tests.metadata_writer import batch

STRAY = f"orders-0.{HEX}-stray"


@pytest.mark.parametrize(
    ("records", "tail", "told"),
    [
        (5, b"", None),
        (4, b"", "its log ends at 4"),
        (9, b"torn", "the end of its log is unknown"),
        # It has no records that could be lost.
        (0, b"", None),
    ],
)
def test_a_stray_that_the_broker_will_empty_is_reported(
    tmp_path: Path, records: int, tail: bytes, told: str | None
) -> None:
    lay_out(tmp_path)
    log_dir = tmp_path / "d1"
    (log_dir / LOG_START_OFFSET).write_bytes(render_checkpoint({TopicPartition("orders", 0): 5}))
    (log_dir / STRAY).mkdir()
    content = batch(0, [b"record"] * records, 1_700_000_000_000) if records else b""
    (log_dir / STRAY / f"{0:020d}.log").write_bytes(content + tail)
    write_topic_id(log_dir / STRAY, PARTITIONS["orders-0"])
    _, document = in_process(tmp_path, ["check"])
    found = [f for f in document["findings"] if f["code"] == "stray-emptied"]
    assert [f["path"] for f in found] == ([] if told is None else [str(log_dir / STRAY)])
    assert told is None or told in found[0]["says"]


@pytest.mark.parametrize(
    ("start", "tail", "told"), [(9, b"", True), (5, b"", False), (3, b"", False), (9, b"torn", False)]
)
def test_so_is_a_log_that_ends_below_its_own_log_start_offset(
    tmp_path: Path, start: int, tail: bytes, told: bool
) -> None:
    lay_out(tmp_path)
    log_dir = next(d for d in (tmp_path / "d1", tmp_path / "d2") if (d / "orders-0").is_dir())
    (log_dir / LOG_START_OFFSET).write_bytes(render_checkpoint({TopicPartition("orders", 0): start}))
    for file in (log_dir / "orders-0").glob("0*"):
        file.unlink()
    (log_dir / "orders-0" / f"{0:020d}.log").write_bytes(batch(0, [b"record"] * 5, 1_700_000_000_000) + tail)
    _, document = in_process(tmp_path, ["check"])
    found = [f for f in document["findings"] if f["code"] == "log-emptied"]
    assert [f["path"] for f in found] == ([str(log_dir / "orders-0")] if told else [])
