"""Times in what hosts publish."""

from __future__ import annotations

import pytest

from logagent.base.times import FIRST_MS, LAST_MS
from logagent.fleet.ingest.landing import millis


@pytest.mark.parametrize("said, understood", [
    ("1970-01-01T00:00:01Z", 1000), ("1970-01-01T01:00:00.5+01:00", 500), (7, 7), (FIRST_MS, FIRST_MS),
    (LAST_MS, LAST_MS), ("1970-01-01T00:00:01", None), ("today", None), (None, None), (True, None), (1.5, None),
    (FIRST_MS - 1, None), (LAST_MS + 1, None),
    # The offset leads out of the years that there are.
    ("0001-01-01T00:00:00+14:00", None), ("9999-12-31T23:59:59-14:00", None),
])  # fmt: skip
def test_times_are_of_the_years_1_to_9999(said: object, understood: int | None) -> None:
    assert millis(said) == understood
