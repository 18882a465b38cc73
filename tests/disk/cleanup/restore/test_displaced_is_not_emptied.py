"""What `restore --replace` displaces is not emptied by the broker, for the log start offset that comes back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logagent.base.dir_names import LOG_START_OFFSET
from logagent.base.records import TopicPartition
from logagent.kafka.files.checkpoint_files import render_checkpoint
from tests.disk.killed import PARTITIONS, in_process, lay_out
from tests.host_files import write_topic_id
from tests.metadata_writer import batch

ORDERS = TopicPartition("orders", 0)
FREELY = ("--allow-assigned", "--even-last-copy")


def set_aside_and_made_anew(root: Path, records: int, tail: bytes = b"") -> str:
    """orders-0, of which `deleteRecords` took the first 50, set aside; a broker made it anew. The name of the stray."""
    lay_out(root)
    log_dir = root / "d1"
    shutil.rmtree(log_dir / "orders-01")
    (log_dir / LOG_START_OFFSET).write_bytes(render_checkpoint({ORDERS: 50}))
    status, _ = in_process(root, ["delete", "--partition", "orders-0", "--quarantine", *FREELY, "--execute"])
    assert status == 0
    (stray,) = log_dir.glob("orders-0.*-stray")
    anew = log_dir / "orders-0"
    anew.mkdir()
    content = batch(0, [b"anew"] * records, 1_700_000_000_000) if records else b""
    (anew / f"{0:020d}.log").write_bytes(content + tail)
    write_topic_id(anew, PARTITIONS["orders-0"])
    return stray.name


@pytest.mark.parametrize(
    ("records", "tail", "told"),
    [
        (5, b"", "ends at 5"),
        (70, b"torn", "ends unknown"),
        # It has no records that could be lost; it reaches the offset.
        (0, b"", None),
        (50, b"", None),
    ],
)
def test_an_only_copy_is_not_displaced_to_where_it_would_be_emptied(
    tmp_path: Path, records: int, tail: bytes, told: str | None
) -> None:
    stray = set_aside_and_made_anew(tmp_path, records, tail)
    anew = (tmp_path / "d1" / "orders-0").stat().st_ino
    _, document = in_process(
        tmp_path, ["restore", "--retention-will-delete", stray, "--replace", "--even-last-copy", "--execute"]
    )
    assert [r["guard"] for r in document["refusals"]] == ([] if told is None else ["assigned"])
    assert told is None or told in document["refusals"][0]["fact"]
    assert ((tmp_path / "d1" / "orders-0").stat().st_ino == anew) is (told is not None)


def test_a_quarantine_directory_is_where_it_can_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stray = set_aside_and_made_anew(tmp_path, 5)
    quarantine = tmp_path / "quarantine"
    quarantine.mkdir(mode=0o750)
    monkeypatch.setenv("LOGAGENT_CLEANUP__QUARANTINE_DIRS", str(quarantine))
    anew = (tmp_path / "d1" / "orders-0").stat().st_ino
    _, document = in_process(
        tmp_path, ["restore", "--retention-will-delete", stray, "--replace", "--even-last-copy", "--execute"]
    )
    assert document["refusals"] == []
    (displaced,) = quarantine.iterdir()
    assert displaced.stat().st_ino == anew
