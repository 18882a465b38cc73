"""Metadata logs as no Kafka has written them yet: which are refused, and what the others prove.

Each line of the table is a log whose records before it delete a topic, make another one anew, move a partition to other
brokers and one to another log dir; then comes what a later release might write.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import pytest
from crc32c import crc32c

from logagent.base.errors import NotUnderstood
from logagent.base.records import Kind, PartitionDir
from logagent.kafka.image import NEWEST_METADATA_VERSION, AssignmentImage
from logagent.kafka.metadata_log.log import read_metadata_log
from logagent.kafka.metadata_log.metadata_records import DECODERS
from logagent.verdict.rules import Host, decide
from tests import metadata_writer as writer
from tests.metadata_writer import id_of

AT_MS: Final = 1_800_000_000_000
HERE, THERE = id_of(801), id_of(802)
GONE, OLD, NEW, MOVED, ELSEWHERE, LIVES = (id_of(n) for n in range(6))
DIRS = {"gone": GONE, "again": OLD, "moved": MOVED, "elsewhere": ELSEWHERE, "lives": LIVES}
GOLDEN = Path(__file__).parents[3] / "fixtures/metadata-records/golden.jsonl"

Value = bytes | tuple[int, bytes]
EVERYTHING: Final = {
    "gone": "topic-absent",
    "again": "topic-recreated",
    "moved": "not-a-replica",
    "elsewhere": "wrong-directory",
    "lives": "others-in-sync",
}
REMOVALS: Final = {"gone": "topic-absent", "again": "topic-recreated"} | dict.fromkeys(
    ("moved", "elsewhere"), "no-assignments"
)
NOTHING: Final[dict[str, str]] = {}


def level(number: int, name: str = "metadata.version") -> bytes:
    return writer.feature_level(name, number)


KNOWN, ABOVE = level(NEWEST_METADATA_VERSION), level(NEWEST_METADATA_VERSION + 1)


def on_both(topic_id: str) -> bytes:
    return writer.partition(topic_id, 0, (2, 1), version=2, directories=(THERE, HERE), leader=2)


def history() -> list[bytes]:
    """What is there before, without any level of a feature."""
    records = [writer.register_broker(n, (HERE if n == 1 else id_of(900 + n),), fenced=False) for n in (1, 2, 3)]
    for name, topic_id in (
        ("gone", GONE),
        ("again", OLD),
        ("moved", MOVED),
        ("elsewhere", ELSEWHERE),
        ("lives", LIVES),
    ):
        records += [writer.topic(name, topic_id), on_both(topic_id)]
    records += [writer.remove_topic(GONE), writer.remove_topic(OLD), writer.topic("again", NEW), on_both(NEW)]
    records += [writer.partition_change(MOVED, 0, replicas=(2, 3), isr=(2, 3), directories=(THERE, id_of(903)))]
    records += [writer.partition_change(ELSEWHERE, 0, directories=(THERE, id_of(804)))]
    return records


def write(folder: Path, before: Sequence[bytes], *batches: bytes) -> None:
    """A log of one voter whose newest record is of AT_MS."""
    control = writer.batch(0, [writer.leader_change([2])], AT_MS - 90_000, control=True)
    rest = writer.batch(1, [*before, *history()], AT_MS - 80_000)
    offset = 1 + len(before) + len(history())
    data = control + rest
    for raw in batches:
        (records,) = struct.unpack_from(">i", raw, 57)
        data += struct.pack(">q", offset) + raw[8:]
        offset += records
    writer.write_segment(folder, 0, data + writer.batch(offset, [writer.NO_OP], AT_MS))


def batch(values: Iterable[Value], **more: bool) -> bytes:
    return writer.batch(0, values, AT_MS - 60_000, **more)


def proven(folder: Path) -> dict[str, str]:
    """Of each directory on node 1 what its log says of it: a reason, or that others are in sync."""
    for file in folder.iterdir():
        os.utime(file, ns=(AT_MS * 1_000_000, AT_MS * 1_000_000))
    try:
        image = read_metadata_log(str(folder), node_id=1, cluster_id="c", now_ms=AT_MS + 500).assignments
    except NotUnderstood:
        return NOTHING
    found = {name: said_of(name, topic_id, image) for name, topic_id in DIRS.items()}
    return {name: reason for name, reason in found.items() if reason is not None}


def said_of(name: str, topic_id: str, image: AssignmentImage) -> str | None:
    at_ns = (AT_MS - 85_000) * 1_000_000
    one = PartitionDir("/d1", f"{name}-0", Kind.CURRENT, name, 0, None, False, 1, 2, at_ns, at_ns, topic_id=topic_id)
    ruling = decide(one, image, Host(1, "c", 900_000), now_ms=AT_MS + 500, directory_id=HERE)
    assert ruling is not None
    return ruling.reason or ("others-in-sync" if ruling.last_copy is False else None)


def altered(raw: bytes, at: int, layout: str, value: int) -> bytes:
    """A batch with another field, and its checksum right."""
    data = bytearray(raw)
    struct.pack_into(layout, data, at, value)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


MAGIC, ATTRIBUTES, FIRST_RECORD = 16, 21, 62
UNKNOWN_TYPE = writer.frame(30, 0, writer.tags({}))
LINES: list[tuple[str, list[bytes], list[bytes], dict[str, str]]] = [
    ("the newest level", [KNOWN], [], EVERYTHING),
    ("the next level", [ABOVE], [], REMOVALS),
    ("level 99", [level(99)], [], REMOVALS),
    ("raised at the end", [KNOWN], [batch([level(99)])], REMOVALS),
    # What was written in between is of the level that nobody knows.
    ("raised, and lowered again", [KNOWN, level(99), KNOWN], [], REMOVALS),
    ("written above, and lowered at the end", [ABOVE], [batch([KNOWN])], REMOVALS),
    ("no level anywhere", [], [], REMOVALS),
    ("an unknown feature", [KNOWN, level(1, "tiered.metadata.version")], [], EVERYTHING),
    ("kraft.version 2", [KNOWN], [batch([(5, struct.pack(">hh", 0, 2) + writer.tags({}))], control=True)], EVERYTHING),
    # A field that is read may mean something else in it.
    (
        "control record, version 1",
        [KNOWN],
        [batch([(5, struct.pack(">hh", 1, 2) + writer.tags({}))], control=True)],
        NOTHING,
    ),
    ("an unknown type", [KNOWN], [batch([UNKNOWN_TYPE])], NOTHING),
    ("an unknown type of two bytes", [KNOWN], [batch([writer.frame(300, 0, writer.tags({}))])], NOTHING),
    ("an unknown type, level 99", [level(99)], [batch([UNKNOWN_TYPE])], NOTHING),
    ("an unknown type in a transaction", [KNOWN], [batch([writer.BEGIN, UNKNOWN_TYPE, writer.ABORT])], NOTHING),
    ("a transaction that is open", [KNOWN], [batch([writer.BEGIN, writer.topic("t", id_of(77))])], {}),
    ("another frame", [KNOWN], [batch([b"\2" + writer.NO_OP[1:]])], NOTHING),
    (
        "an unknown control record",
        [KNOWN],
        [batch([(7, struct.pack(">h", 0) + writer.tags({}))], control=True)],
        NOTHING,
    ),
    ("control type 99, level 99", [level(99)], [batch([(99, struct.pack(">h", 0))], control=True)], NOTHING),
    ("another batch format", [KNOWN], [altered(batch([writer.NO_OP]), MAGIC, ">b", 3)], NOTHING),
    ("an unknown attribute of a batch", [KNOWN], [altered(batch([writer.NO_OP]), ATTRIBUTES, ">h", 0x80)], NOTHING),
    ("a batch of a producer's transaction", [KNOWN], [altered(batch([writer.NO_OP]), ATTRIBUTES, ">h", 0x10)], NOTHING),
    ("an attribute of a record", [KNOWN], [altered(batch([writer.NO_OP]), FIRST_RECORD, ">b", 1)], NOTHING),
    (
        "an unknown reserved directory",
        [KNOWN],
        [batch([writer.partition(NEW, 1, (1,), directories=("AAAAAAAAAAAAAAAAAAAAMg",))])],
        NOTHING,
    ),
]


@pytest.mark.parametrize(("before", "batches", "expected"), [line[1:] for line in LINES], ids=[li[0] for li in LINES])
def test_what_a_log_of_the_future_proves(
    tmp_path: Path, before: list[bytes], batches: list[bytes], expected: dict[str, str]
) -> None:
    write(tmp_path, before, *batches)
    found = proven(tmp_path)
    if expected == {} and found:
        assert set(found.values()) <= {"no-assignments", "wrong-directory", "others-in-sync"}, "nothing is an orphan"
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("snapshot", "log", "expected"),
    [
        ([KNOWN], [], EVERYTHING),
        ([ABOVE], [KNOWN], REMOVALS),
        ([], [], REMOVALS),
        ([KNOWN], [UNKNOWN_TYPE], NOTHING),
        ([KNOWN, UNKNOWN_TYPE], [], NOTHING),
    ],
    ids=["known", "lowered since", "no level", "unknown since", "unknown in it"],
)
def test_a_snapshot_of_the_future(
    tmp_path: Path, snapshot: list[bytes], log: list[bytes], expected: dict[str, str]
) -> None:
    writer.write_snapshot(tmp_path, 50, writer.snapshot([*snapshot, *history()], AT_MS - 70_000, voters=[2]))
    data = writer.batch(50, [writer.leader_change([2])], AT_MS - 60_000, control=True)
    data += writer.batch(51, [*log, writer.NO_OP], AT_MS - 50_000)
    writer.write_segment(tmp_path, 50, data + writer.batch(52 + len(log), [writer.NO_OP], AT_MS))
    assert proven(tmp_path) == expected


def test_what_was_above_before_a_snapshot_of_a_known_level_is_over(tmp_path: Path) -> None:
    """Kafka writes a new snapshot of everything when a level is lowered."""
    write(tmp_path, [ABOVE], batch([KNOWN]))
    end = read_metadata_log(str(tmp_path), node_id=1, cluster_id="c", now_ms=AT_MS).assignments.offset
    assert end is not None and proven(tmp_path) == REMOVALS
    writer.write_snapshot(tmp_path, end, writer.snapshot([KNOWN, *history()], AT_MS, voters=[2]))
    assert proven(tmp_path) == EVERYTHING


def samples() -> list[tuple[int, int, bytes]]:
    """Of each type of record the newest version that a Kafka wrote, and an example."""
    newest: dict[int, tuple[int, bytes]] = {}
    for line in GOLDEN.read_text().splitlines():
        row = json.loads(line)
        version, value = row["version"], bytes.fromhex(row["hex"])
        if row["key"] in DECODERS and version >= newest.get(row["key"], (0, b""))[0]:
            newest[row["key"]] = version, value
    return [(key, version, value) for key, (version, value) in sorted(newest.items())]


SAMPLES = samples()


def test_there_is_an_example_of_each_type_in_its_newest_version() -> None:
    assert {key: version for key, version, _ in SAMPLES} == {key: highest for key, (_, highest, _) in DECODERS.items()}


@pytest.mark.parametrize("at", [NEWEST_METADATA_VERSION, 99])
@pytest.mark.parametrize(("key", "version", "value"), SAMPLES, ids=[DECODERS[key][0] for key, _, _ in SAMPLES])
def test_a_known_record_with_an_unknown_version_or_more_in_it_is_refused(
    tmp_path: Path, key: int, version: int, value: bytes, at: int
) -> None:
    body = value[len(writer.frame(key, version, b"")) :]
    news = {
        "version": writer.frame(key, version + 1, body),
        "left over": value + b"\0",
        "two left over": value + b"\0\0",
    }
    if body.endswith(b"\0"):  # no tagged field
        news["tag"] = value[:-1] + writer.tags({99: b"\0"})
    for what, record in news.items():
        write(tmp_path, [level(at)], batch([record]))
        assert proven(tmp_path) == NOTHING, what
