"""Over which hosts and dates the growth of a cluster's topics is counted."""

from __future__ import annotations

from datetime import date

import pytest

from logagent.fleet.report.growth import shared_hosts

OLD, BEFORE, NOW = date(2025, 2, 10), date(2025, 3, 9), date(2025, 3, 10)
CASES = {
    "the same hosts": ({1, 2, 3}, {1, 2, 3}, {1, 2, 3}, ({1, 2, 3}, [OLD, BEFORE, NOW])),
    "one broker more": ({1, 2, 3}, {1, 2, 3}, {1, 2, 3, 4}, ({1, 2, 3}, [OLD, BEFORE, NOW])),
    "one broker less": ({1, 2, 3}, {1, 2, 3}, {1, 2}, ({1, 2}, [OLD, BEFORE, NOW])),
    "an outage": ({1, 2, 3}, {1}, {1, 2, 3}, ({1, 2, 3}, [OLD, NOW])),
    "others each time": ({1, 2}, {3, 4}, {1, 3, 5}, None),
    "half of them": ({1, 2}, {2, 3}, {1, 2, 3, 4}, ({2}, [OLD, BEFORE, NOW])),
    "nothing before": (set(), set(), {1, 2}, None),
    "nothing now": ({1}, {1}, set(), None),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_hosts_and_dates(case: tuple[set[int], set[int], set[int], tuple[set[int], list[date]] | None]) -> None:
    *nodes, expected = case
    by_date = {day: {"c": frozenset(each)} for day, each in zip((OLD, BEFORE, NOW), nodes, strict=True) if each}
    found = {cluster: (set(shared), dates) for cluster, (shared, dates) in shared_hosts(by_date, NOW).items()}
    assert found == ({} if expected is None else {"c": expected})


@pytest.mark.parametrize("before", [{}, {"c": frozenset[int]()}, {"c": frozenset({1})}], ids=["absent", "none", "one"])
def test_no_host_counts_on_a_date(before: dict[str, frozenset[int]]) -> None:
    """Two machines claimed its only host: the cluster is there on the date, with no host."""
    none, one = {"c": frozenset[int]()}, {"c": frozenset({1})}
    assert shared_hosts({OLD: one, BEFORE: before, NOW: none}, NOW) == {}
    dates = [OLD, BEFORE, NOW] if before == one else [OLD, NOW]
    assert shared_hosts({OLD: one, BEFORE: before, NOW: one}, NOW) == {"c": (frozenset({1}), dates)}
