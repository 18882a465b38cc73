"""What the state dir remembers of the metadata log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from logagent.kafka.commitment import LogPoint, Remembered
from logagent.verdict.evidence.version_seen import LINEAGE_FILE_NAME, read_lineage, write_lineage

SEEN = Remembered(LogPoint(30, 2, 33), frozenset({"AAAAAAAAAAAAAAAAAAAAEA"}))


def test_it_is_of_one_node_of_one_cluster(tmp_path: Path) -> None:
    file = str(tmp_path / LINEAGE_FILE_NAME)
    nothing = Remembered(file=file)
    assert read_lineage(str(tmp_path), "c", 1) == nothing
    write_lineage(str(tmp_path), "c", 1, SEEN)
    assert read_lineage(str(tmp_path), "c", 1) == replace(SEEN, file=file)
    other = replace(SEEN, other_history="it has other records there", file=file)
    write_lineage(str(tmp_path), "c", 1, other)
    assert read_lineage(str(tmp_path), "c", 1) == other
    assert read_lineage(str(tmp_path), "c", 2) == read_lineage(str(tmp_path), "d", 1) == nothing


@pytest.mark.parametrize("text", [b"", b"\0" * 64, b"{}", b'{"cluster_id": "c", "node_id": 1, "offset": "x"}'])
def test_what_is_damaged_is_not_taken_for_nothing(tmp_path: Path, text: bytes) -> None:
    """Else a torn file would let a rolled-back log prove things again."""
    (tmp_path / LINEAGE_FILE_NAME).write_bytes(text)
    found = read_lineage(str(tmp_path), "c", 1)
    assert found.point is None and found.unread is not None and "is damaged" in found.unread
