"""Times as documents print them."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from logagent.base.times import rfc3339, rfc3339_or_none


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
