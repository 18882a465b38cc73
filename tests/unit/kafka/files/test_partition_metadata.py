"""`partition.metadata` against Kafka's own answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.errors import UnreadableError
from logagent.base.records import ZERO_ID, id_to_text
from logagent.kafka.files.properties import parse_partition_metadata
from tests.kafka_answers import content, rows


def test_every_file_is_read_or_refused_as_kafka_does() -> None:
    asked = rows("partition_metadata")
    assert len(asked) == 68
    for row in asked:
        if "error" in row:
            with pytest.raises(UnreadableError):
                parse_partition_metadata(content(row))
        else:
            assert parse_partition_metadata(content(row)) == row["topic_id"], row["id"]


@given(st.binary(min_size=16, max_size=16).filter(any), st.sampled_from(["", "\n", "\r\n", "\nmore\n"]))
def test_what_brokers_write_comes_back(raw: bytes, end: str) -> None:
    assert parse_partition_metadata(f"version: 0\ntopic_id: {id_to_text(raw)}{end}".encode()) == id_to_text(raw)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_id_or_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableError, match=r"^partition\.metadata: "):
        parse_partition_metadata(data)


@pytest.mark.parametrize("spelling", [ZERO_ID, f"{ZERO_ID}==", f"{ZERO_ID[:-1]}B"])
def test_the_zero_id_is_no_id_however_it_is_spelled(spelling: str) -> None:
    with pytest.raises(UnreadableError, match="zero id"):
        parse_partition_metadata(f"version: 0\ntopic_id: {spelling}".encode())


def test_the_second_part_may_be_followed_by_an_empty_one() -> None:
    # Java's split drops what is empty at the end.
    assert parse_partition_metadata(b"version: 0: \ntopic_id: Xs6gS0pIR5yNqcAe2bBqwQ: ") == "Xs6gS0pIR5yNqcAe2bBqwQ"
