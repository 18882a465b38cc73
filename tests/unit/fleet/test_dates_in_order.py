"""Which dates of landing are ingested, and which of them first: any host can make folders of any date."""

from __future__ import annotations

from datetime import date, timedelta

from hypothesis import given
from hypothesis import strategies as st

from logagent.fleet.ingest.dates import AHEAD, LONG_AGO, in_order

TODAY = date(2026, 11, 23)


def test_the_last_week_comes_first_and_each_part_oldest_first() -> None:
    days = [TODAY - timedelta(days=n) for n in (0, 1, 7, 8, 9, 400)]
    assert [(TODAY - day).days for day in in_order(days, TODAY)] == [7, 1, 0, 400, 9, 8]


def test_what_is_long_ago_or_ahead_is_left_out() -> None:
    days = [TODAY, TODAY - LONG_AGO - timedelta(days=1), TODAY + AHEAD, TODAY + AHEAD + timedelta(days=1)]
    assert in_order(days, TODAY) == [TODAY, TODAY + AHEAD]


def test_an_old_store_can_be_ingested_as_it_was() -> None:
    """Long ago is counted from the newest date there, not from today; a future date does not make the others old."""
    old = [date(2020, 1, 1), date(2020, 1, 2)]
    assert in_order(old, TODAY) == old
    assert in_order([*old, TODAY + timedelta(days=1)], TODAY) == [*old, TODAY + timedelta(days=1)]


@given(st.sets(st.dates(date(1970, 1, 1), date(9998, 12, 31)), max_size=40))
def test_dates_that_anybody_adds_come_after_today(added: set[date]) -> None:
    days = in_order({TODAY, *added}, TODAY)
    before = days[: days.index(TODAY)]
    assert [day for day in before if not (TODAY - timedelta(days=7) <= day < TODAY)] == []
    assert [day for day in days if not (TODAY - LONG_AGO <= day <= TODAY + AHEAD)] == []
