"""Topic ids against Kafka's own answers, and the conversions between their forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base import records
from tests.kafka_answers import rows

raw_ids = st.binary(min_size=16, max_size=16)


def test_every_id_is_read_and_written_as_kafka_does() -> None:
    asked = rows("topic_ids")
    assert len(asked) == 131
    for row in asked:
        text = row["str"]
        if "error" in row:
            with pytest.raises(ValueError) as caught:
                records.id_from_text(text)
            assert str(caught.value) == row["message"], row["id"]
            with pytest.raises(ValueError):
                records.canonical_id(text)
            continue
        raw = bytes.fromhex(row["hex"])
        assert records.id_from_text(text) == raw, row["id"]
        assert records.id_to_text(raw) == records.canonical_id(text) == row.get("canonical", text), row["id"]


@given(raw_ids)
def test_every_id_survives_every_form(raw: bytes) -> None:
    text = records.id_to_text(raw)
    assert len(text) == 22
    assert records.id_from_text(text) == records.id_from_text(text + "==") == raw
    assert records.canonical_id(text) == records.canonical_id(text + "==") == text


@given(st.text(max_size=30) | st.text("AQgwz-_=+/ ", min_size=18, max_size=25))
def test_any_text_is_an_id_or_a_value_error(text: str) -> None:
    try:
        canonical = records.canonical_id(text)
    except ValueError:
        return
    assert records.id_from_text(canonical) == records.id_from_text(text)


def test_the_zero_id_is_all_zeros() -> None:
    assert records.id_from_text(records.ZERO_ID) == bytes(16)


@pytest.mark.parametrize("raw", [b"", bytes(15), bytes(17)])
def test_an_id_has_sixteen_bytes(raw: bytes) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        records.id_to_text(raw)
