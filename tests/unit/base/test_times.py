"""Times as documents print them."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from logagent.base.units import counted, rfc3339, rfc3339_or_none, rough


@given(st.datetimes())
def test_a_time_reads_back_to_the_millisecond(moment: datetime) -> None:
    moment = moment.replace(tzinfo=UTC, microsecond=moment.microsecond // 1000 * 1000)
    ms = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution * 1000)
    assert len(rfc3339(ms)) == 24
    assert datetime.fromisoformat(rfc3339(ms)) == moment


@given(st.integers())
def test_no_number_breaks_it_and_order_is_kept(ms: int) -> None:
    assert len(rfc3339(ms)) == 24
    assert rfc3339(ms) <= rfc3339(ms + 1)


def test_examples() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_795_267_588_007) == "2026-11-21T13:26:28.007Z"
    assert rfc3339_or_none(None) is None
    assert rfc3339_or_none(1) == "1970-01-01T00:00:00.001Z"


def test_a_rough_duration_is_never_none_of_a_unit() -> None:
    minute = 60_000
    lengths = (0, minute - 1, minute, 119 * minute, 120 * minute, 47 * 60 * minute, 48 * 60 * minute)
    assert [rough(ms) for ms in lengths] == [*["less than a minute"] * 2, "1 min", "119 min", "2 h", "47 h", "2 d"]


def test_one_of_a_thing_is_no_plural() -> None:
    things = ("topic", "more directory", "process", "log dir")
    assert [counted(1, thing) for thing in things] == ["1 topic", "1 more directory", "1 process", "1 log dir"]
    assert [counted(2, thing) for thing in things] == ["2 topics", "2 more directories", "2 processes", "2 log dirs"]
    assert counted(0, "warning") == "0 warnings"
