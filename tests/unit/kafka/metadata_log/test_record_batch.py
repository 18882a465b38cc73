"""Our decoder of record batches against kafka-python's, and against bytes that nobody wrote."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.errors import NotUnderstood
from logagent.kafka.metadata_log.batches import RecordBatch, RecordDefect

with warnings.catch_warnings():
    # kafka-python 3.0.12 opens its schemas in a way that Python 3.11 and 3.12 deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=200)), max_size=3)
contents = st.none() | st.binary(max_size=300)
times = st.integers(0, 2**45)
records = st.tuples(contents, contents, headers, times)


def built(drawn: list[Record], base_offset: int, epoch: int) -> bytes:
    """What kafka-python would send, at the offset and epoch that a broker would give it."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 30,
    )  # fmt: skip
    for number, (key, value, heads, time) in enumerate(drawn):
        builder.append(number, timestamp=time, key=key, value=value, headers=heads)
    data = bytearray(builder.build())
    data[0:8] = base_offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


@given(st.lists(records, min_size=1, max_size=20), st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_it_reads_what_kafka_python_reads(drawn: list[Record], base_offset: int, epoch: int) -> None:
    data = built(drawn, base_offset, epoch)
    theirs: Any = DefaultRecordBatch(data)
    ours = RecordBatch(data)
    for name in ("base_offset", "next_offset", "leader_epoch", "magic", "max_timestamp", "records_count"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.control == theirs.is_control_batch
    assert ours.compressed == bool(theirs.compression_type)
    assert ours.validate_crc()
    assert list(ours.records()) == [(r.offset, r.key, r.value) for r in theirs]


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_the_checksum_covers_every_bit_from_the_attributes_on(drawn: list[Record], data: st.DataObject) -> None:
    whole = bytearray(built(drawn, 5, 1))
    at = data.draw(st.integers(17, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    assert not RecordBatch(bytes(whole)).validate_crc()


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_bytes_behind_a_right_checksum_that_make_no_sense_are_a_defect(
    drawn: list[Record], data: st.DataObject
) -> None:
    """Or attributes that nobody knows. Never another error, never an endless loop, never more records than the header
    says."""
    whole = bytearray(built(drawn, 5, 1))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(61, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(61, len(whole)))])
    batch = RecordBatch(cut)
    try:
        read = list(batch.records())
    except (RecordDefect, NotUnderstood):
        return
    assert len(read) == batch.records_count


@given(st.lists(records, min_size=1, max_size=3), st.binary(min_size=1, max_size=50))
def test_bytes_left_over_are_a_defect(drawn: list[Record], more: bytes) -> None:
    with pytest.raises(RecordDefect, match="left over"):
        list(RecordBatch(built(drawn, 5, 1) + more).records())


@pytest.mark.parametrize("attributes", range(64))
def test_attributes_are_read_as_kafka_python_reads_them(attributes: int) -> None:
    data = bytearray(built([(b"k", b"v", [], 1)], 5, 1))
    data[21:23] = attributes.to_bytes(2, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    ours, theirs = RecordBatch(bytes(data)), DefaultRecordBatch(bytes(data))
    assert ours.validate_crc()
    assert (ours.control, ours.compressed) == (theirs.is_control_batch, bool(theirs.compression_type))
