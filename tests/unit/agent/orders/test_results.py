"""What a result says fits into an answer, whatever it is about."""

from __future__ import annotations

import pytest

from logagent.agent.orders.results import result_of
from logagent.store.deletion import LONGEST_WORDS, OrderedPartition, Result
from logagent.store.orders import decode, encode

ORDERED = OrderedPartition("request-1", "orders", "A" * 22, 0)


@pytest.mark.parametrize("name", ["d" * 250 + "/", "\udcff" * 250 + "/", "\U0001f600" * 60])
@pytest.mark.parametrize("depth", [1, 100])
def test_a_fact_about_any_path_fits_into_an_answer(name: str, depth: int) -> None:
    said = f"removal of {name * depth} failed: Operation not permitted: \udcff.log"
    result = result_of(ORDERED, "failed", fact=said, hint=said)
    assert decode(Result, encode(result)) == result
    assert result.fact is not None and result.fact == result.hint and len(result.fact) <= LONGEST_WORDS
    assert result.fact.startswith("removal of ") and result.fact.endswith("Operation not permitted: \\udcff.log")


def test_a_fact_that_fits_stays_as_it_is() -> None:
    for said in ("é" * LONGEST_WORDS, "", None):
        assert result_of(ORDERED, "failed", fact=said).fact == said
