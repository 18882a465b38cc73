"""Metadata logs that we write ourselves: any history in any files, and what no broker wrote."""

from __future__ import annotations

import os
import random
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from logagent.base.errors import NotUnderstood, UnreadableError
from logagent.base.records import id_to_text
from logagent.kafka.commitment import LogPoint
from logagent.kafka.files.metadata_dir import read_start_levels
from logagent.kafka.image import NEWEST_METADATA_VERSION
from logagent.kafka.metadata_log.log import MetadataImage, read_metadata_log
from tests import metadata_writer as writer
from tests.metadata_model import Model
from tests.metadata_writer import id_of

START_MS = 1_790_000_000_000
NOW_MS = 1_800_000_000_000


def read(folder: Path, node_id: int | None = 2, **more: Any) -> MetadataImage:
    return read_metadata_log(str(folder), node_id=node_id, cluster_id="c", now_ms=NOW_MS, **more)


def state(image: MetadataImage) -> dict[str, Any]:
    fields = ("replicas", "isr", "adding", "removing", "directories", "leader", "elr")
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


# -- logs that cannot be used -----------------------------------------------------------------------


def test_a_migration_from_zookeeper_is_refused(tmp_path: Path) -> None:
    writer.write_segment(tmp_path, 0, writer.batch(0, [writer.zk_migration(2)], START_MS))
    with pytest.raises(UnreadableError, match="migration from ZooKeeper is under way") as raised:
        read(tmp_path)
    assert raised.value.hint is not None


def test_a_record_of_a_newer_kafka_is_refused_with_its_place(tmp_path: Path) -> None:
    writer.write_segment(tmp_path, 0, writer.batch(0, [writer.frame(3, 3, b"")], START_MS))
    with pytest.raises(NotUnderstood, match=r"0{20}\.log: PartitionRecord has version 3"):
        read(tmp_path)


def write_both(folder: Path, epoch: int, later: int) -> None:
    """A snapshot of that epoch that ends at offset 2, and a log of epoch 1 in which a topic is removed after that; its
    last record is of the epoch `later`."""
    made = [writer.topic("a", id_of(1)), writer.topic("b", id_of(2))]
    writer.write_snapshot(folder, 2, writer.snapshot(made, START_MS, epoch=epoch, voters=[1]), epoch=epoch)
    log = writer.batch(0, made, START_MS - 9) + writer.batch(2, [writer.remove_topic(id_of(1))], START_MS + 1)
    writer.write_segment(folder, 0, log + writer.batch(3, [writer.NO_OP], START_MS + 2, epoch=later))


def test_a_log_that_is_older_than_its_snapshot_is_thrown_away_as_a_starting_node_does(tmp_path: Path) -> None:
    """`KafkaRaftLog.truncateToLatestSnapshot`, also with files that somebody put back: what follows the snapshot in a
    log of an older epoch was never agreed on."""
    write_both(tmp_path, epoch=5, later=4)
    image = read(tmp_path)
    assert {t.name for t in image.assignments.by_id.values()} == {"a", "b"}
    assert (image.assignments.offset, image.committed_offset, image.assignments.gone_ids) == (2, 2, frozenset())
    assert image.torn_bytes > 0 and image.assignments.known_until_ms <= START_MS


@pytest.mark.parametrize(("epoch", "later"), [(5, 5), (5, 6)])
def test_a_log_that_is_older_than_its_snapshot_and_goes_on_is_refused(tmp_path: Path, epoch: int, later: int) -> None:
    write_both(tmp_path, epoch, later)
    with pytest.raises(UnreadableError, match=r"offset 2 is of an epoch before that of the snapshot \(5\)"):
        read(tmp_path)


def test_a_log_that_a_newer_damaged_snapshot_ends_is_refused(tmp_path: Path) -> None:
    """A start throws the log away, and then fails with the snapshot."""
    write_both(tmp_path, epoch=1, later=4)
    (tmp_path / f"{9:020}-{5:010}.checkpoint").write_bytes(b"")
    with pytest.raises(UnreadableError, match="ends in epoch 4, before that of the snapshot"):
        read(tmp_path)
    (tmp_path / f"{9:020}-{5:010}.checkpoint").rename(tmp_path / f"{3:020}-{4:010}.checkpoint")
    assert [t.name for t in read(tmp_path).assignments.by_id.values()] == ["b"], (
        "an older one, and the log, have it all"
    )


def test_the_newest_snapshot_is_that_of_the_latest_epoch(tmp_path: Path) -> None:
    """`OffsetAndEpoch.compareTo`: one of an older epoch that goes further was put back, or is of another history."""
    writer.write_snapshot(tmp_path, 200, writer.snapshot([writer.topic("a", id_of(1))], START_MS, epoch=3), epoch=3)
    both = [writer.topic("a", id_of(1)), writer.topic("b", id_of(2))]
    writer.write_snapshot(tmp_path, 150, writer.snapshot(both, START_MS, epoch=5), epoch=5)
    image = read(tmp_path)
    assert (len(image.assignments.by_id), image.assignments.offset) == (2, 150)
    log = tmp_path / "__cluster_metadata-0"
    log.mkdir()
    for name, level in ((f"{200:020}-{3:010}", 7), (f"{150:020}-{5:010}", 20)):
        values = [writer.feature_level("metadata.version", level)]
        (log / f"{name}.checkpoint").write_bytes(writer.snapshot(values, START_MS, epoch=int(name[21:])))
    dir_fd = os.open(tmp_path, os.O_RDONLY)
    assert read_start_levels(dir_fd).log == {"metadata.version": (20,)}
    os.close(dir_fd)


def test_a_log_of_the_epoch_of_its_snapshot_goes_on(tmp_path: Path) -> None:
    write_both(tmp_path, epoch=1, later=4)
    assert [t.name for t in read(tmp_path).assignments.by_id.values()] == ["b"]


def test_dynamic_delete_delay(tmp_path: Path) -> None:
    name = "log.segment.delete.delay.ms"
    values = [writer.topic("t", id_of(1)), writer.config(4, "", name, "1000"), writer.config(4, "7", name, "5")]
    writer.write_segment(tmp_path, 0, writer.batch(0, values, START_MS))
    image = read(tmp_path)
    assert (image.delete_delay_ms(7), image.delete_delay_ms(8)) == (5, 1000)


def test_cleanup_policies_of_topics_and_the_brokers_default(tmp_path: Path) -> None:
    name, default = "cleanup.policy", "log.cleanup.policy"
    values = [writer.topic(topic, id_of(n)) for n, topic in enumerate("abcd", 1)]
    values += [writer.config(2, topic, name, "compact") for topic in "abc"]
    values += [writer.config(2, "b", name, "compact,delete"), writer.config(2, "c", name, None)]
    values += [
        writer.config(4, "a", name, "delete"),
        writer.config(2, "d", default, "compact"),
    ]  # neither means anything
    values += [writer.config(4, "", default, "compact"), writer.config(4, "7", default, "delete")]
    # A topic made anew has none of the settings of the one before it.
    values += [writer.config(2, "d", name, "compact"), writer.remove_topic(id_of(4)), writer.topic("d", id_of(5))]
    writer.write_segment(tmp_path, 0, writer.batch(0, values, START_MS))
    image = read(tmp_path)
    assert image.topic_configs[name] == {"a": "compact", "b": "compact,delete"}
    assert image.broker_configs[default] == {"": "compact", "7": "delete"}


@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes"])
def test_retentions_of_topics_and_the_brokers_default(tmp_path: Path, name: str) -> None:
    default = f"log.{name}"
    values = [writer.topic(topic, id_of(n)) for n, topic in enumerate("abc", 1)]
    values += [writer.config(2, topic, name, "5") for topic in "abc"]
    values += [writer.config(2, "b", name, None), writer.remove_topic(id_of(3)), writer.config(4, "7", name, "9")]
    values += [
        writer.config(4, "", default, "1"),
        writer.config(4, "7", default, "2"),
        writer.config(4, "", default, None),
    ]
    writer.write_segment(tmp_path, 0, writer.batch(0, values, START_MS))
    image = read(tmp_path)
    assert image.topic_configs[name] == {"a": "5"}
    assert image.broker_configs[default] == {"7": "2"}


def test_settings_that_may_matter_are_kept_by_their_names(tmp_path: Path) -> None:
    near, far = "retention.records", "compression.type"
    values = [writer.topic("a", id_of(1)), writer.topic("b", id_of(2))]
    values += [writer.config(2, topic, name, "5") for topic in "ab" for name in (near, far)]
    values += [writer.config(4, "7", "log.of.a.later.release", "x"), writer.config(4, "7", far, "x")]
    values += [writer.config(2, "b", near, None), writer.config(16, "a", near, "a group's")]
    writer.write_segment(tmp_path, 0, writer.batch(0, values, START_MS))
    image = read(tmp_path)
    assert image.topic_configs[near] == {"a": "5"} and image.broker_configs["log.of.a.later.release"] == {"7": "x"}
    assert far not in image.topic_configs and far not in image.broker_configs


def test_a_symlink_is_not_followed(tmp_path: Path) -> None:
    real = tmp_path / "real.log"
    real.write_bytes(writer.batch(0, [writer.topic("t", id_of(1))], START_MS))
    log = tmp_path / "log"
    log.mkdir()
    (log / f"{0:020}.log").symlink_to(real)
    with pytest.raises(UnreadableError, match="is a symlink"):
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
        "was not written completely": header + writer.batch(1, [topic], 0),
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


def test_what_a_snapshot_covers_is_still_compared_where_the_segments_have_it(tmp_path: Path) -> None:
    """A quorum that was restored from a backup, in the same epoch as before, and a snapshot of it."""
    made, since, restored = ([writer.topic(f"{name}", id_of(n))] for n, name in enumerate(("old", "new", "other")))

    def log(*batches: list[bytes]) -> MetadataImage:
        written = b"".join(writer.batch(n, values, START_MS) for n, values in enumerate(batches))
        writer.write_segment(tmp_path, 0, written)
        return read(tmp_path, remembered=known.offset if known is not None else None)

    known: LogPoint | None = None
    known = log(made, since).history.newest(2)
    assert known is not None and known.crc is not None
    writer.write_snapshot(tmp_path, 3, writer.snapshot([*made, *since, *restored], START_MS))
    history = log(made, since, restored).history
    assert history.has(known) and history.is_another(known) is None
    last = history.newest(3)
    assert last is not None and last.offset == 3 and last.crc is not None
    history = log(made, restored, restored).history
    assert not history.has(known) and "has other records there now" in (history.is_another(known) or "")
    # The segments are gone with the time.
    (tmp_path / f"{0:020}.log").unlink()
    history = read(tmp_path, remembered=known.offset).history
    assert not history.has(known) and history.is_another(known) is None


def test_a_miscounted_batch_in_the_log_is_refused_and_no_torn_tail(tmp_path: Path) -> None:
    whole = writer.batch(0, [writer.topic("t", id_of(1))], START_MS)
    writer.write_segment(tmp_path, 0, whole + _miscounted(1, [writer.remove_topic(id_of(1))]))
    with pytest.raises(UnreadableError, match="offset 1 counts 7 records"):
        read(tmp_path)


# -- a made-up future: what a later Kafka might write ------------------------------------------------


def _control(kind: int, value: bytes) -> bytes:
    return writer.batch(1, [(kind, value)], START_MS, control=True)


def _beside(batch: bytes) -> list[bytes]:
    return [writer.batch(0, [writer.topic("a", id_of(1))], START_MS), batch]


_LEADER = writer.leader_change([1])[1]
_SEVENTH = id_to_text((7).to_bytes(16, "big"))
FUTURE = {
    "a record of an unknown type": _beside(writer.batch(1, [writer.frame(30, 0, writer.tags({}))], START_MS)),
    "a known type in a later version": _beside(writer.batch(1, [writer.frame(9, 1, bytes(16) + b"\0")], START_MS)),
    "ACLs in a later version": _beside(writer.batch(1, [writer.frame(19, 1, bytes(16) + b"\0")], START_MS)),
    "an unknown tag": _beside(writer.batch(1, [writer.remove_topic(id_of(1))[:-1] + b"\1\x3c\0"], START_MS)),
    "a byte left over": _beside(writer.batch(1, [writer.remove_topic(id_of(1)) + b"\0"], START_MS)),
    "another frame": _beside(writer.batch(1, [b"\2" + writer.NO_OP[1:]], START_MS)),
    "a reserved directory": _beside(
        writer.batch(
            1, [writer.partition(id_of(1), 0, [1], directories=[id_to_text((7).to_bytes(16, "big"))])], START_MS
        )
    ),
    "an unknown control record": _beside(_control(7, b"\0\0\0")),
    "a leader change of a later version": _beside(_control(writer.LEADER_CHANGE, b"\0\2" + _LEADER[2:])),
    "voters with an unknown tag": _beside(
        _control(writer.KRAFT_VOTERS, writer.kraft_voters([1])[1][:-1] + writer.tags({9: b"x"}))
    ),
    "a batch of another format": _beside(
        (later := writer.batch(1, [writer.NO_OP], START_MS))[:16] + b"\3" + later[17:]
    ),
}


@pytest.mark.parametrize("name", FUTURE)
def test_what_a_later_kafka_might_write_is_refused_wherever_it_is(tmp_path: Path, name: str) -> None:
    """Also at the end of the log, where what is torn is passed over."""
    writer.write_segment(tmp_path, 0, b"".join(FUTURE[name]))
    with pytest.raises(NotUnderstood):
        read(tmp_path)


def test_a_snapshot_that_is_not_understood_is_not_passed_over_for_an_older_one(tmp_path: Path) -> None:
    known = [writer.topic("a", id_of(1))]
    writer.write_segment(tmp_path, 0, writer.batch(0, [*known, writer.NO_OP, writer.NO_OP], START_MS))
    writer.write_snapshot(tmp_path, 1, writer.snapshot(known, START_MS))
    writer.write_snapshot(tmp_path, 2, writer.snapshot([*known, writer.frame(30, 0, b"\0")], START_MS))
    with pytest.raises(NotUnderstood, match=r"0{19}2-0{9}1\.checkpoint: a metadata record is of the unknown type 30"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("levels", "untested"),
    [
        ({"metadata.version": NEWEST_METADATA_VERSION, "kraft.version": 1, "share.version": 2}, []),
        (
            {"metadata.version": 99, "transaction.version": 2},
            ["its metadata.version is 99, the newest tested one is 34"],
        ),
        (
            {"share.version": 3, "tiered.version": 1, "metadata.version": 33},
            ["its share.version is 3, the newest tested one is 2", "the feature tiered.version is not known"],
        ),
    ],
)
def test_features_that_were_not_tested_are_named(tmp_path: Path, levels: dict[str, int], untested: list[str]) -> None:
    records = [writer.feature_level(name, level) for name, level in levels.items()]
    writer.write_segment(tmp_path, 0, writer.batch(0, [*records, writer.topic("a", id_of(1))], START_MS))
    assert list(read(tmp_path).assignments.untested) == untested
