"""How a cluster grows: over the log dirs with figures on both dates, whoever was silent on one of them."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from logagent.fleet.page.document import growth_html
from logagent.fleet.report.growth import Ledgers

DAYS = [date(2026, 11, number) for number in (1, 2, 3)]


def ledger(node: int, used: int | None, log_dir: str = "/a", shares: str | None = None) -> dict[str, Any]:
    row = {"cluster_id": "c", "node_id": node, "log_dir": log_dir, "bytes": used, "used": used, "size": 1000}
    return row | {"health": "online", "shares_with": shares}


def dated(*rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """(log dirs, what they used, what they use) of each date."""
    found = Ledgers()
    for day, each in zip(DAYS, rows, strict=False):
        found.add(day, each)
    return [(row["log_dirs"], row["was"], row["now"]) for row in found.by_date()]


def test_a_host_that_is_silent_on_one_date_neither_grows_nor_shrinks_the_cluster() -> None:
    rows = [[ledger(1, 100), ledger(2, 500)], [ledger(1, 110)], [ledger(1, 130), ledger(3, 900)]]
    assert dated(*rows) == [(1, 100, 130), (1, 110, 130), (2, 1030, 1030)]


def test_log_dirs_on_one_file_system_count_once() -> None:
    rows = [[ledger(1, used), ledger(1, used, "/b", "/a")] for used in (100, 140)]
    assert dated(*rows) == [(1, 100, 140), (1, 140, 140)]


def test_what_has_no_figure_on_the_newest_date_is_left_out() -> None:
    assert dated([ledger(1, 100), ledger(2, 5)], [ledger(1, None), ledger(2, 6)]) == [(1, 5, 6), (1, 6, 6)]


def test_the_chart_has_the_line_to_full_of_those_log_dirs() -> None:
    found = Ledgers()
    found.add(DAYS[0], [ledger(1, 500), ledger(2, 100)])
    found.add(DAYS[1], [ledger(1, 600)])
    html = growth_html(found.by_date(), {})
    assert "+100 B in 1 d" in html and "Full in 4.0 d" in html


@pytest.mark.parametrize(("first", "said"), [(1, "it does not grow"), (2, "its growth is not known")])
def test_what_no_log_dir_shows_is_not_called_no_growth(first: int, said: str) -> None:
    found = Ledgers()
    found.add(DAYS[0], [ledger(first, 500)])
    found.add(DAYS[1], [ledger(1, 500)])
    assert f"No line to full: {said}. " in growth_html(found.by_date(), {})
