"""The levels of features that a start reads: from a snapshot, from the log after it, and from bootstrap.checkpoint."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest

from logagent.kafka.files.metadata_dir import read_start_levels
from logagent.kafka.image import StartLevels
from tests.kafka_disks import KRAFT, extract, metadata_dir
from tests.metadata_writer import (
    NO_OP,
    batch,
    feature_level,
    frame,
    leader_change,
    snapshot,
    tags,
    write_segment,
    write_snapshot,
)

KRAFT_VERSION = 5
METADATA = feature_level("metadata.version", 21)


@pytest.fixture
def meta(tmp_path: Path) -> Path:
    (tmp_path / "__cluster_metadata-0").mkdir()
    return tmp_path


def read(meta: Path) -> StartLevels:
    fd = os.open(meta, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_start_levels(fd)
    finally:
        os.close(fd)


def log(meta: Path) -> Path:
    return meta / "__cluster_metadata-0"


def kraft_version(level: int) -> tuple[int, bytes]:
    return KRAFT_VERSION, struct.pack(">hh", 0, level) + tags({})


@pytest.mark.parametrize("name", KRAFT)
def test_of_real_disks_the_level_is_that_of_their_release(name: str, tmp_path: Path) -> None:
    directory = metadata_dir(extract(name, tmp_path))
    assert directory.name == "__cluster_metadata-0"
    assert read(directory.parent).log["metadata.version"] == (21,)


def test_levels_come_in_the_order_of_their_records(meta: Path) -> None:
    group = [feature_level("group.version", level) for level in (1, 0)]
    data = batch(0, [leader_change([1])], 1000, control=True) + batch(1, [METADATA, NO_OP, *group], 2000)
    write_segment(log(meta), 0, data)
    assert read(meta) == StartLevels({"metadata.version": (21,), "group.version": (1, 0)})
    write_segment(log(meta), 0, data + batch(5, [group[0]], 3000))
    assert read(meta).log["group.version"] == (0, 1)


def test_what_a_snapshot_covers_is_not_read_any_more(meta: Path) -> None:
    write_segment(log(meta), 0, batch(0, [feature_level("group.version", 1), METADATA], 1000))
    write_segment(log(meta), 2, batch(2, [NO_OP, feature_level("share.version", 1)], 2000))
    write_snapshot(log(meta), 3, snapshot([METADATA], 2000))
    assert read(meta).log == {"metadata.version": (21,), "share.version": (1,)}


def test_kraft_version_is_in_control_records(meta: Path) -> None:
    write_segment(log(meta), 0, batch(0, [leader_change([1]), kraft_version(1)], 1000, control=True))
    assert read(meta).log == {"kraft.version": (1,)}


def test_a_record_that_is_too_new_for_verdicts_is_passed_over(meta: Path) -> None:
    future = [frame(3, 99, b"?" * 20), frame(99, 0, b""), METADATA]
    write_segment(log(meta), 0, batch(0, future, 1000))
    assert read(meta) == StartLevels({"metadata.version": (21,)})


def test_the_torn_end_of_the_log_is_what_a_start_cuts_off(meta: Path) -> None:
    whole = batch(0, [METADATA], 1000)
    write_segment(log(meta), 0, whole + batch(1, [feature_level("group.version", 1)], 2000)[:-3])
    assert read(meta) == StartLevels({"metadata.version": (21,)})


def test_what_is_damaged_elsewhere_is_not_known(meta: Path) -> None:
    first = bytearray(batch(0, [METADATA], 1000))
    first[-3] ^= 0xFF
    write_segment(log(meta), 0, bytes(first))
    write_segment(log(meta), 1, batch(1, [NO_OP], 2000))
    assert "checksum" in (read(meta).unread or "")
    write_segment(log(meta), 0, b"")
    write_snapshot(log(meta), 2, b"\1" * 100)
    assert read(meta).unread is not None


def test_what_a_format_leaves_counts_until_there_is_a_log(meta: Path) -> None:
    shutil.rmtree(log(meta))
    (meta / "bootstrap.checkpoint").write_bytes(snapshot([METADATA], 1000))
    assert read(meta) == StartLevels(bootstrap={"metadata.version": (21,)}, empty=True)
    log(meta).mkdir()
    newer = feature_level("metadata.version", 33)
    write_snapshot(log(meta), 0, snapshot([newer], 1000), epoch=0)
    assert read(meta).formatted == {"metadata.version": (33,)} and read(meta).empty
    # An older release that was started on it wrote its own, and ignores this.
    write_segment(log(meta), 0, batch(0, [METADATA], 1000))
    assert read(meta) == StartLevels({"metadata.version": (21,)}, {"metadata.version": (21,)})
