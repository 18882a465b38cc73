"""Times in what hosts publish."""

from __future__ import annotations

import pytest

from logagent.base.units import FIRST_MS, LAST_MS
from logagent.fleet.ingest.landing import by_folder, millis


@pytest.mark.parametrize("said, understood", [
    ("1970-01-01T00:00:01Z", 1000), ("1970-01-01T01:00:00.5+01:00", 500), (7, 7), (FIRST_MS, FIRST_MS),
    (LAST_MS, LAST_MS), ("1970-01-01T00:00:01", None), ("today", None), (None, None), (True, None), (1.5, None),
    (FIRST_MS - 1, None), (LAST_MS + 1, None),
    # The offset leads out of the years that there are.
    ("0001-01-01T00:00:00+14:00", None), ("9999-12-31T23:59:59-14:00", None),
])  # fmt: skip
def test_times_are_of_the_years_1_to_9999(said: object, understood: int | None) -> None:
    assert millis(said) == understood


def test_one_listing_of_an_object_store_has_the_folders_that_a_mounted_one_has() -> None:
    """Whatever else has been put there: names without an end, objects below a host's folder, an object named as one."""
    day = "c/2025-03-10"
    paths = [f"{day}/1/a.jsonl.gz", f"{day}/1/a.manifest.json", f"{day}/1/x/y/z", f"{day}/10/b", f"{day}/1", "c//", "d"]
    found = by_folder((path, 5, 7) for path in paths)
    assert found[()] == {("c", True, 0, 0), ("d", False, 5, 7)}
    assert found["c",] == {("2025-03-10", True, 0, 0), ("", True, 0, 0)}
    assert found["c", "2025-03-10"] == {("1", True, 0, 0), ("1", False, 5, 7), ("10", True, 0, 0)}
    here = {("a.jsonl.gz", False, 5, 7), ("a.manifest.json", False, 5, 7), ("x", True, 0, 0)}
    assert found["c", "2025-03-10", "1"] == here
