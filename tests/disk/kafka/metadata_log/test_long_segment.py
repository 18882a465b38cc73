"""Long segments of an idle cluster: the index beside them says where to begin, and is never believed unchecked."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logagent.kafka.metadata_log.batches import position_before
from logagent.kafka.metadata_log.log import MetadataImage, read_metadata_log
from tests import metadata_writer as writer
from tests.bench import gen_metadata_log as generator
from tests.metadata_writer import id_of

START_MS = 1_790_000_000_000
NOW_MS = 1_800_000_000_000


def read(folder: Path, node_id: int | None = 2, **more: Any) -> MetadataImage:
    return read_metadata_log(str(folder), node_id=node_id, cluster_id="c", now_ms=NOW_MS, **more)


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60,000 NoOp batches, then a snapshot ten before their end: over 4 MB that nobody needs."""
    folder = tmp_path_factory.mktemp("long")
    generator.write_log(folder, generator.noops(60_000))
    records = [writer.topic("t", id_of(1)), writer.partition(id_of(1), 0, [1])]
    writer.write_snapshot(folder, 59_990, writer.snapshot(records, START_MS))
    return folder


def test_a_long_segment_begins_near_the_snapshot(long_log: Path) -> None:
    fd = os.open(long_log, os.O_RDONLY)
    try:
        position = position_before(fd, 0, 59_990)
        assert position_before(fd, 7, 59_990) == 0, "no such index"
    finally:
        os.close(fd)
    size = (long_log / f"{0:020}.log").stat().st_size
    assert size - 20_000 < position < size
    assert position % len(writer.batch(0, [writer.NO_OP], START_MS)) == 0


@pytest.fixture
def index(long_log: Path) -> Iterator[Path]:
    path = long_log / f"{0:020}.index"
    whole = path.read_bytes()
    yield path
    path.write_bytes(whole)


@pytest.mark.parametrize("damage", ["none", "filled up", "missing", "empty", "garbage", "off by one", "beyond", "half"])
def test_a_wrong_index_changes_nothing(long_log: Path, index: Path, damage: str) -> None:
    whole = index.read_bytes()
    entries = [struct.unpack_from(">ii", whole, at) for at in range(0, len(whole), 8)]
    changed = {
        "none": whole,
        "filled up": whole + bytes(1 << 20),
        "missing": whole,
        "empty": b"",
        "garbage": random.Random(1).randbytes(len(whole)),
        "off by one": b"".join(struct.pack(">ii", offset, position + 1) for offset, position in entries),
        "beyond": b"".join(struct.pack(">ii", offset, 2**31 - 1) for offset, _ in entries),
        "half": whole[: len(whole) // 2 + 3],
    }[damage]
    index.write_bytes(changed)
    if damage == "missing":
        index.unlink()
    image = read(long_log)
    assert (image.assignments.offset, image.torn_bytes) == (60_000, 0)
    assert image.assignments.at_ms == generator.START_MS + 500 * 59_999
    assert set(image.assignments.by_name) == {"t"}
