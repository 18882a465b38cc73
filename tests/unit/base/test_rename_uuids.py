"""The UUID in the names that we give tells that we gave them, and when; a broker reads it like its own."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.dir_names import RANDOM_BYTES, classify, delete_name, rename_uuid, renamed_at_ms, stray_name
from logagent.base.records import Kind

RANDOM = st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES)


@given(st.integers(0, 2**48 - 1), RANDOM)
def test_the_uuid_of_a_rename_holds_its_time(at_ms: int, random: bytes) -> None:
    made = rename_uuid(at_ms, random)
    assert UUID(made).version == 7 and len(made) == 32
    assert renamed_at_ms(made) == at_ms
    for name, kind in ((stray_name("orders", 3, made), Kind.STRAY), (delete_name("orders", 3, made), Kind.DELETE)):
        parsed = classify(name)
        assert (parsed.kind, parsed.topic, parsed.partition, parsed.uuid) == (kind, "orders", 3, made)


@given(st.integers(0, 2**48 - 1), st.sets(RANDOM, min_size=2, max_size=2))
def test_nearly_all_of_the_chance_is_in_it(at_ms: int, randoms: set[bytes]) -> None:
    one, other = (int.from_bytes(r, "big") for r in randoms)
    same = rename_uuid(at_ms, one.to_bytes(10, "big")) == rename_uuid(at_ms, other.to_bytes(10, "big"))
    kept = (1 << 76) - 1 & ~(0b11 << 62)
    assert same == (one & kept == other & kept)


@pytest.mark.parametrize("uuid", [None, "", "0123456789abcdef" * 2, "x" * 32, "7" * 31, "+" + "7" * 31, uuid4().hex])
def test_a_uuid_of_a_broker_holds_no_time(uuid: str | None) -> None:
    assert renamed_at_ms(uuid) is None
