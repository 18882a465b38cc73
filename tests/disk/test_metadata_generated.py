"""Metadata logs that we write ourselves: any history on disk, quorums of several voters, 4.x forms, long segments."""

from __future__ import annotations

import os
import random
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from logagent.broker.metadata_index import position_before
from logagent.broker.metadata_log import MetadataImage, read_metadata_log
from logagent.errors import UnreadableError
from tests import metadata_writer as writer
from tests.bench import gen_metadata_log as generator
from tests.metadata_model import Model
from tests.metadata_writer import id_of

START_MS = 1_790_000_000_000
NOW_MS = 1_800_000_000_000


def read(folder: Path, node_id: int | None = 2, **more: Any) -> MetadataImage:
    return read_metadata_log(str(folder), node_id=node_id, cluster_id="c", now_ms=NOW_MS, **more)


def state(image: MetadataImage) -> dict[str, Any]:
    fields = ("replicas", "isr", "adding", "removing", "directories", "leader")
    return {
        "topics": {
            topic_id: {
                "name": topic.name,
                "partitions": {
                    number: {f: list(v) if isinstance(v := getattr(one, f), tuple) else v for f in fields}
                    for number, one in topic.partitions.items()
                },
            }
            for topic_id, topic in image.assignments.by_id.items()
        },
        "brokers": {
            node: {"directory_ids": list(b.directory_ids), "fenced": b.fenced}
            for node, b in image.assignments.brokers.items()
        },
        "delays": image.delete_delays,
        "version": image.assignments.metadata_version,
    }


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32))
def test_any_history_in_any_files(seed: int) -> None:
    """Random batches, segments and snapshots; old segments gone, as retention leaves them."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder, model, offset = Path(name), Model(rng), 0
        segment, base, snapshots = b"", 0, list[int]()
        bases = []
        for step in range(rng.randint(1, 40)):
            records = [value for _ in range(rng.randint(1, 3)) for value in model.step()]
            segment += writer.batch(offset, records, START_MS + step, epoch=1 + step // 10)
            offset += len(records)
            if rng.random() < 0.2:
                writer.write_snapshot(folder, offset, writer.snapshot(model.records(), START_MS, batch_size=7))
                snapshots.append(offset)
            if rng.random() < 0.3:
                writer.write_segment(folder, base, segment)
                bases.append(base)
                segment, base = b"", offset
        writer.write_segment(folder, base, segment)
        for old, following in zip(bases, [*bases, base][1:], strict=True):
            if snapshots and following <= snapshots[-1] and rng.random() < 0.5:
                (folder / f"{old:020}.log").unlink()
        missing = [old for old in bases if not (folder / f"{old:020}.log").exists()]
        image = read(folder)
        assert state(image) == model.state()
        assert image.assignments.offset == offset
        assert image.torn_bytes == 0
        if missing:
            assert image.snapshot is not None


# -- what is committed -----------------------------------------------------------------------------


def quorum_log(folder: Path, times: list[int], *, leader: int, voters: list[int]) -> Path:
    """A topic made at offset 1, removed in the second batch; then NoOps at the given seconds."""
    create = [writer.topic("t", id_of(1)), writer.partition(id_of(1), 0, [2, 3]), writer.topic("u", id_of(2))]
    create.append(writer.partition(id_of(2), 0, [2, 3]))
    batches = [
        writer.batch(0, [writer.leader_change(voters)], START_MS, control=True),
        writer.batch(1, create, START_MS),
        writer.batch(5, [writer.remove_topic(id_of(1)), writer.partition_change(id_of(2), 0, replicas=[3])], START_MS),
    ]
    for number, seconds in enumerate(times):
        batches.append(writer.batch(7 + number, [writer.NO_OP], START_MS + 1000 * seconds))
    writer.write_segment(folder, 0, b"".join(batches))
    writer.write_quorum_state(folder, leader, voters)
    return folder


BOTH = {id_of(1), (id_of(2), 0)}


@pytest.mark.parametrize(
    ("times", "leader", "voters", "uncommitted"),
    [
        ([], 1, [1], set()),
        ([], 1, [1, 2, 3], BOTH),
        ([1, 59], 1, [1, 2, 3], BOTH),
        ([1, 60], 1, [1, 2, 3], set()),
        ([1, 60], 2, [1, 2, 3], BOTH),
        ([60, 1], 1, [1, 2, 3], set()),
    ],
)
def test_removals_that_may_not_be_committed(
    tmp_path: Path, times: list[int], leader: int, voters: list[int], uncommitted: set[Any]
) -> None:
    image = read(quorum_log(tmp_path, times, leader=leader, voters=voters))
    assert image.assignments.uncommitted == uncommitted
    assert image.voters == len(voters)
    # Either way the image is the whole log: only what it takes away is in doubt.
    assert set(image.assignments.by_name) == {"u"}


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"data_version":7,"leaderId":1,"currentVoters":[{}]}'])
def test_a_quorum_state_that_says_nothing_holds_removals_back(tmp_path: Path, text: str | None) -> None:
    quorum_log(tmp_path, [1, 600], leader=1, voters=[1, 2, 3])
    (tmp_path / "quorum-state").unlink()
    if text is not None:
        (tmp_path / "quorum-state").write_text(text)
    image = read(tmp_path)
    assert image.voters == 3
    assert image.assignments.uncommitted == BOTH


def test_an_unknown_node_may_be_the_leader(tmp_path: Path) -> None:
    quorum_log(tmp_path, [1, 600], leader=1, voters=[1, 2, 3])
    assert read(tmp_path, node_id=None).assignments.uncommitted == BOTH


def test_a_snapshot_commits(tmp_path: Path) -> None:
    quorum_log(tmp_path, [1], leader=2, voters=[1, 2, 3])
    records = [writer.topic("u", id_of(2)), writer.partition(id_of(2), 0, [3])]
    writer.write_snapshot(tmp_path, 8, writer.snapshot(records, START_MS))
    image = read(tmp_path)
    assert (image.assignments.uncommitted, image.committed_offset) == (frozenset(), 8)


def test_the_end_of_a_transaction_is_what_must_be_committed(tmp_path: Path) -> None:
    create = [writer.topic("t", id_of(1)), writer.partition(id_of(1), 0, [2])]
    batches = [
        writer.batch(0, [*create, writer.BEGIN, writer.remove_topic(id_of(1))], START_MS),
        writer.batch(4, [writer.NO_OP], START_MS + 60_000),
        writer.batch(5, [writer.END], START_MS + 60_001),
    ]
    writer.write_segment(tmp_path, 0, b"".join(batches))
    writer.write_quorum_state(tmp_path, 1, [1, 2, 3])
    image = read(tmp_path)
    assert image.committed_offset == 4
    assert image.assignments.uncommitted == {id_of(1)}


def test_an_open_transaction_at_the_tail_is_left_out(tmp_path: Path) -> None:
    create = [writer.topic("t", id_of(1)), writer.partition(id_of(1), 0, [2])]
    writer.write_segment(tmp_path, 0, writer.batch(0, [*create, writer.BEGIN, writer.remove_topic(id_of(1))], START_MS))
    assert set(read(tmp_path).assignments.by_name) == {"t"}


# -- voters ------------------------------------------------------------------------------------------


def only_topics(folder: Path, *, control: list[tuple[int, bytes]]) -> Path:
    batches, offset = b"", 0
    if control:
        batches, offset = writer.batch(0, control, START_MS, control=True), len(control)
    batches += writer.batch(offset, [writer.topic("t", id_of(1))], START_MS)
    writer.write_segment(folder, 0, batches)
    return folder


@pytest.mark.parametrize(
    ("control", "quorum_state", "configured", "voters"),
    [
        ([writer.leader_change([1]), writer.kraft_voters([1, 2])], [1, 2, 3], 4, 2),
        ([writer.kraft_voters([1, 2, 3]), writer.kraft_voters([1])], None, None, 1),
        ([writer.leader_change([1, 2])], [1, 2, 3], 4, 3),
        ([writer.leader_change([1, 2])], [], 4, 2),
        ([writer.leader_change([1, 2])], None, 4, 2),
        ([], None, 4, 4),
        ([], None, None, None),
    ],
)
def test_number_of_voters(
    tmp_path: Path,
    control: list[tuple[int, bytes]],
    quorum_state: list[int] | None,
    configured: int | None,
    voters: int | None,
) -> None:
    only_topics(tmp_path, control=control)
    if quorum_state is not None:
        writer.write_quorum_state(tmp_path, 1, quorum_state)
    assert read(tmp_path, configured_voters=configured).voters == voters


def test_a_dynamic_quorum_begins_with_a_snapshot_of_control_records(tmp_path: Path) -> None:
    """`kafka-storage format --standalone` (4.x): `0…0-0000000000.checkpoint` before anything else."""
    only_topics(tmp_path, control=[writer.leader_change([1, 2, 3])])
    writer.write_snapshot(tmp_path, 0, writer.snapshot([], START_MS, voters=[1], epoch=0), epoch=0)
    (tmp_path / "bootstrap.checkpoint").write_bytes(b"no part of it")
    image = read(tmp_path)
    assert (image.snapshot, image.voters) == (f"{0:020}-{0:010}.checkpoint", 1)
    assert set(image.assignments.by_name) == {"t"}
    assert image.assignments.at_ms == START_MS


def test_a_migration_from_zookeeper_is_refused(tmp_path: Path) -> None:
    writer.write_segment(tmp_path, 0, writer.batch(0, [writer.zk_migration(2)], START_MS))
    with pytest.raises(UnreadableError, match="migration from ZooKeeper is under way") as raised:
        read(tmp_path)
    assert raised.value.hint is not None


def test_a_record_of_a_newer_kafka_is_refused_with_its_place(tmp_path: Path) -> None:
    writer.write_segment(tmp_path, 0, writer.batch(0, [writer.frame(3, 3, b"")], START_MS))
    with pytest.raises(UnreadableError, match=r"0{20}\.log: PartitionRecord has version 3") as raised:
        read(tmp_path)
    assert "newer" in (raised.value.hint or "")


def test_dynamic_delete_delay(tmp_path: Path) -> None:
    name = "log.segment.delete.delay.ms"
    values = [writer.topic("t", id_of(1)), writer.config(4, "", name, "1000"), writer.config(4, "7", name, "5")]
    writer.write_segment(tmp_path, 0, writer.batch(0, values, START_MS))
    image = read(tmp_path)
    assert (image.delete_delay_ms(7), image.delete_delay_ms(8)) == (5, 1000)


def test_a_symlink_is_not_followed(tmp_path: Path) -> None:
    real = tmp_path / "real.log"
    real.write_bytes(writer.batch(0, [writer.topic("t", id_of(1))], START_MS))
    log = tmp_path / "log"
    log.mkdir()
    (log / f"{0:020}.log").symlink_to(real)
    with pytest.raises(OSError, match="symbolic links"):
        read(log)


# -- batches and snapshots that no broker wrote --------------------------------------------------------


def test_an_epoch_that_falls_ends_the_log(tmp_path: Path) -> None:
    first = writer.batch(0, [writer.topic("t", id_of(1))], START_MS, epoch=3)
    writer.write_segment(tmp_path, 0, first + writer.batch(1, [writer.remove_topic(id_of(1))], START_MS, epoch=2))
    image = read(tmp_path)
    assert set(image.assignments.by_name) == {"t"}
    assert image.torn_bytes > 0


def _odd_snapshots() -> dict[str, bytes]:
    topic = writer.topic("t", id_of(1))
    whole = writer.snapshot([topic], START_MS)
    late = writer.batch(3, [writer.topic("late", id_of(2))], START_MS)
    header = writer.batch(0, [(writer.SNAPSHOT_HEADER, struct.pack(">hq", 0, START_MS) + b"\0")], 0, control=True)
    footer = (writer.SNAPSHOT_FOOTER, struct.pack(">h", 0) + b"\0")
    return {
        "records follow its footer": whole + late,
        "does not begin with its header": writer.batch(0, [topic], 0) + writer.batch(1, [footer], 0, control=True),
        "was not written to its end": header + writer.batch(1, [topic], 0),
        "ends within a transaction": header
        + writer.batch(1, [topic, writer.BEGIN], 0)
        + writer.batch(3, [footer], 0, control=True),
        "counts 7 records": header + _miscounted(1, [topic]) + writer.batch(2, [footer], 0, control=True),
    }


def _miscounted(offset: int, values: list[bytes]) -> bytes:
    """A batch with a right checksum and a wrong number of records."""
    data = bytearray(writer.batch(offset, values, 0))
    data[57:61] = struct.pack(">i", 7)
    data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
    return bytes(data)


@pytest.mark.parametrize("says", sorted(_odd_snapshots()))
def test_an_odd_snapshot_is_not_believed(tmp_path: Path, says: str) -> None:
    """With the log below it gone it is refused with what is odd; with the log there, the log decides."""
    writer.write_snapshot(tmp_path, 9, _odd_snapshots()[says])
    writer.write_segment(tmp_path, 9, b"")
    with pytest.raises(UnreadableError, match=says):
        read(tmp_path)
    values = [writer.topic(f"from-the-log-{n}", id_of(20 + n)) for n in range(9)]
    writer.write_segment(tmp_path, 0, writer.batch(0, values, START_MS))
    image = read(tmp_path)
    assert image.snapshot is None
    assert image.assignments.topic_count == 9


def test_a_snapshot_that_ends_within_a_batch(tmp_path: Path) -> None:
    """Of the batch only what lies behind the snapshot's end is new."""
    values = [writer.topic(f"t{n}", id_of(n)) for n in range(4)]
    writer.write_snapshot(tmp_path, 3, writer.snapshot(values[:3], START_MS))
    writer.write_segment(tmp_path, 0, writer.batch(0, values, START_MS))
    image = read(tmp_path)
    assert image.snapshot is not None
    assert set(image.assignments.by_name) == {"t0", "t1", "t2", "t3"}


def test_a_miscounted_batch_in_the_log_is_refused_and_no_torn_tail(tmp_path: Path) -> None:
    whole = writer.batch(0, [writer.topic("t", id_of(1))], START_MS)
    writer.write_segment(tmp_path, 0, whole + _miscounted(1, [writer.remove_topic(id_of(1))]))
    with pytest.raises(UnreadableError, match="offset 1 counts 7 records"):
        read(tmp_path)


# -- long segments ------------------------------------------------------------------------------------


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
