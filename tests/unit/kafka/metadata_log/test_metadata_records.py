"""Single metadata records: what the record classes of seven Kafka releases wrote, and what must be refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.errors import NotUnderstood, UnreadableError
from logagent.kafka.metadata_log.metadata_records import (
    DECODERS,
    PartitionChange,
    PartitionRecord,
    Reader,
    TopicRecord,
    _partition_at_once,
    _partition_in_steps,
    decode_record,
)
from tests import metadata_writer as writer
from tests.metadata_writer import id_of

GOLDEN = Path(__file__).parents[3] / "fixtures" / "metadata-records" / "golden.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
ROW_IDS = [f"{row['key']}v{row['version']}-{number}" for number, row in enumerate(ROWS)]

# Our field names where they are not Kafka's in snake case.
FIELDS = {
    "partition": "partitionId",
    "removing": "removingReplicas",
    "adding": "addingReplicas",
    "epoch": "brokerEpoch",
    "level": "featureLevel",
    "state": "zkMigrationState",
    "elr": "eligibleLeaderReplicas",
    "topic": "topicName",
}
# Delegation tokens, SCRAM, quotas, producer ids, ACLs, the NoOps of an idle cluster, and controllers.
UNUSED = {10, 11, 14, 15, 18, 19, 20, 22, 26, 27, 29}
ABSENT: dict[str, Any] = {"leader": -2, "log_dirs": []}


def told(row: dict[str, Any], field: str) -> Any:
    """What Kafka's JSON says for one of our fields."""
    key, data = row["key"], row["data"]
    if key in (7, 8):
        return key == 7 if field == "fenced" else data["id" if field == "broker_id" else field]
    if key == 17 and field == "fenced":
        return {-1: False, None: None, 1: True}[data.get("fenced")]
    head, *rest = field.split("_")
    name = FIELDS.get(field, head + "".join(map(str.capitalize, rest)))
    if field == "log_dirs":
        return data.get("logDirs", [])
    if field == "endpoints":
        names = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
        protocols = (names.get(e["securityProtocol"], str(e["securityProtocol"])) for e in data["endPoints"])
        return [(e["name"], e["host"], e["port"], p) for e, p in zip(data["endPoints"], protocols, strict=True)]
    if key == 3 and field in ("directories", "elr"):
        return data.get(name) or []
    return data.get(name, ABSENT.get(field))


@pytest.mark.parametrize("row", ROWS, ids=ROW_IDS)
def test_what_kafka_wrote(row: dict[str, Any]) -> None:
    record = decode_record(bytes.fromhex(row["hex"]))
    assert (record is None) == (row["key"] in UNUSED)
    for field, mine in (record._asdict() if record is not None else {}).items():
        assert (list(mine) if isinstance(mine, tuple) else mine) == told(row, field), field


@pytest.mark.parametrize("row", ROWS, ids=ROW_IDS)
def test_a_byte_too_few_or_too_many_is_refused(row: dict[str, Any]) -> None:
    raw = bytes.fromhex(row["hex"])
    for length in range(len(raw)):
        with pytest.raises(UnreadableError):
            decode_record(raw[:length])
    with pytest.raises(UnreadableError, match="1 bytes left over"):
        decode_record(raw + b"\0")


def test_every_version_of_every_known_record_was_compared() -> None:
    compared = {(row["key"], row["version"]) for row in ROWS}
    assert compared == {(key, v) for key, (_, highest, _) in DECODERS.items() for v in range(highest + 1)}


@pytest.mark.parametrize(("key", "highest"), [(key, highest) for key, (_, highest, _) in DECODERS.items()])
def test_a_higher_version_is_refused_by_name(key: int, highest: int) -> None:
    with pytest.raises(UnreadableError, match=f"Record has version {highest + 1}, known are 0 to {highest}"):
        decode_record(writer.frame(key, highest + 1, b""))


@pytest.mark.parametrize("key", [6, 13, 16, 30, 99, 300, 70_000])
def test_a_record_of_an_unknown_type_is_refused_by_number(key: int) -> None:
    """It may be what moves a partition from now on."""
    with pytest.raises(NotUnderstood, match=f"unknown type {key}"):
        decode_record(writer.frame(key, 0, writer.tags({})))


@pytest.mark.parametrize("row", [row for row in ROWS if row["hex"].endswith("00")])
def test_a_tagged_field_of_a_made_up_future_is_refused(row: dict[str, Any]) -> None:
    untagged = bytes.fromhex(row["hex"])[:-1]
    with pytest.raises(NotUnderstood, match="unexpected tagged field 60"):
        decode_record(untagged + writer.tags({60: b"new"}))


@pytest.mark.parametrize("nested", ["endpoint", "feature"])
def test_so_is_one_of_a_structure_within_a_record(nested: str) -> None:
    assert decode_record(writer.register_broker(1)) is not None
    with pytest.raises(NotUnderstood, match="unexpected tagged field 60"):
        decode_record(writer.register_broker(1, nested_tags={nested: {60: b"new"}}))


def test_another_frame_is_refused() -> None:
    with pytest.raises(NotUnderstood, match="frame version 2"):
        decode_record(b"\x02\x02\x00")


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("tag", [6, 7, 9, 40])
def test_a_tagged_field_of_a_later_version_is_refused(version: int, tag: int) -> None:
    raw = writer.partition_change(id_of(1), 0, extra_tags={tag: writer.int32s([1])}, version=version)
    with pytest.raises(UnreadableError, match=f"unexpected tagged field {tag}"):
        decode_record(raw)


@pytest.mark.parametrize("order", [(1, 0), (1, 1)])
def test_tagged_fields_out_of_order_are_refused(order: tuple[int, int]) -> None:
    leader = struct.pack(">i", 2)
    fields = b"".join(writer.uvarint(tag) + writer.uvarint(len(leader)) + leader for tag in order)
    body = struct.pack(">i", 0) + writer.raw_id(id_of(1)) + writer.uvarint(2) + fields
    with pytest.raises(UnreadableError, match=f"unexpected tagged field {order[1]}"):
        decode_record(writer.frame(5, 1, body))


def test_directories_that_do_not_match_the_replicas_are_refused() -> None:
    with pytest.raises(UnreadableError, match="2 replicas and 1 dir"):
        decode_record(writer.partition(id_of(1), 0, [1, 2], directories=[id_of(9)]))


def test_a_text_that_is_no_utf8_is_refused() -> None:
    raw = writer.topic("abc", id_of(1)).replace(b"abc", b"a\xffc")
    with pytest.raises(UnreadableError, match="not UTF-8"):
        decode_record(raw)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_record_or_a_refusal(raw: bytes) -> None:
    try:
        decode_record(raw)
    except UnreadableError:
        pass


@given(st.sampled_from(ROWS), st.data())
def test_a_changed_byte_gives_a_record_or_a_refusal(row: dict[str, Any], data: st.DataObject) -> None:
    raw = bytearray(bytes.fromhex(row["hex"]))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] = data.draw(st.integers(0, 255))
    try:
        decode_record(bytes(raw))
    except UnreadableError:
        pass


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_are_read_back(number: int) -> None:
    reader = Reader(writer.uvarint(number))
    assert reader.unsigned_varint() == number
    reader.finish()


@pytest.mark.parametrize("raw", [b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\x01"])
def test_numbers_beyond_32_bits_are_refused(raw: bytes) -> None:
    with pytest.raises(UnreadableError):
        Reader(raw).unsigned_varint()


NODES = st.lists(st.integers(0, 2**31 - 1), max_size=5)


@given(st.integers(0, 2**31 - 1), NODES, NODES, NODES, NODES, st.integers(-1, 100), st.booleans())
def test_partitions_read_back(
    number: int, replicas: list[int], isr: list[int], adding: list[int], removing: list[int], leader: int, dirs: bool
) -> None:
    directories = [id_of(n) for n in range(len(replicas))] if dirs else []
    raw = writer.partition(
        id_of(3), number, replicas, isr=isr, adding=adding, removing=removing, leader=leader, directories=directories
    )
    assert decode_record(raw) == PartitionRecord(
        partition=number,
        topic_id=id_of(3),
        replicas=tuple(replicas),
        isr=tuple(isr),
        removing=tuple(removing),
        adding=tuple(adding),
        leader=leader,
        directories=tuple(directories),
    )


def at_once(raw: bytes) -> PartitionRecord | None:
    """Read in one step; None if that is left to the slow way. What is taken is all there is."""
    reader = Reader(raw, 3)
    record = _partition_at_once(reader)
    assert reader.pos == (3 if record is None else len(raw))
    return record


def in_steps(raw: bytes, version: int) -> PartitionRecord | None:
    reader = Reader(raw, 3)
    try:
        record = _partition_in_steps(reader, version)
        reader.finish()
    except UnreadableError:
        return None
    return record


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("count", [1, 3, 126])
def test_a_partition_with_a_directory_for_each_replica_is_read_in_one_step(count: int, version: int) -> None:
    nodes, directories = list(range(count)), [id_of(n) for n in range(count)]
    for isr in (nodes, nodes[:1], []):
        raw = writer.partition(id_of(3), 7, nodes, isr=isr, leader=-1, directories=directories, version=version)
        assert at_once(raw) == in_steps(raw, version) is not None


@pytest.mark.parametrize(
    "other",
    [
        writer.partition(id_of(3), 7, [1, 2]),
        writer.partition(id_of(3), 7, [1, 2], adding=[2], directories=[id_of(1), id_of(2)]),
        writer.partition(id_of(3), 7, [1, 2], removing=[2], directories=[id_of(1), id_of(2)]),
        writer.partition(id_of(3), 7, [1, 2], directories=[id_of(1), id_of(2)], extra_tags={0: b"\1"}),
        writer.partition(id_of(3), 7, list(range(127)), directories=[id_of(n) for n in range(127)]),
    ],
    ids=["no directories", "adding", "removing", "a tag", "a length of two bytes"],
)
def test_any_other_partition_is_read_step_by_step(other: bytes) -> None:
    assert at_once(other) is None
    assert decode_record(other) == in_steps(other, 1) is not None


@given(st.integers(0, 4), NODES, st.integers(0, 4), st.sampled_from([1, 2]), st.data())
def test_damaged_partitions_are_read_in_one_step_as_step_by_step(
    replicas: int, isr: list[int], directories: int, version: int, data: st.DataObject
) -> None:
    raw = bytearray(
        writer.partition(
            id_of(3), 7, range(replicas), isr=isr, directories=[id_of(n) for n in range(directories)], version=version
        )
    )
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(23, len(raw) - 1))] = data.draw(st.integers(0, 20) | st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(len(raw) - 8, len(raw)) | st.integers(3, len(raw)))])
    record = at_once(cut)
    assert record is None or record == in_steps(cut, version)


OPTIONAL = st.one_of(st.none(), NODES)


@given(OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL, st.one_of(st.none(), st.integers(-1, 9)))
def test_absent_is_not_empty(
    isr: list[int] | None,
    replicas: list[int] | None,
    removing: list[int] | None,
    adding: list[int] | None,
    leader: int | None,
) -> None:
    raw = writer.partition_change(
        id_of(3), 1, isr=isr, replicas=replicas, removing=removing, adding=adding, leader=leader
    )
    assert decode_record(raw) == PartitionChange(
        partition=1,
        topic_id=id_of(3),
        isr=as_tuple(isr),
        leader=-2 if leader is None else leader,
        replicas=as_tuple(replicas),
        removing=as_tuple(removing),
        adding=as_tuple(adding),
        directories=None,
    )


def as_tuple(numbers: list[int] | None) -> tuple[int, ...] | None:
    return None if numbers is None else tuple(numbers)


def test_a_topic_name_of_249_characters() -> None:
    name = "n" * 249
    assert decode_record(writer.topic(name, id_of(7))) == TopicRecord(name, id_of(7))
    assert struct.pack(">B", 250 & 0x7F | 0x80) in writer.topic(name, id_of(7))
