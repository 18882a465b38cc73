"""Bytes, counts, ages and times as the page writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.fleet.page import words as units

_FACTOR: dict[str, int] = {
    unit: 1024**power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB"))
}


def _read(text: str) -> float:
    number, unit = text.replace(units.MINUS, "-").replace(",", "").split(" ")
    return float(number) * _FACTOR[unit]


@given(st.integers(-(2**70), 2**70))
def test_a_size_reads_back_within_its_three_digits(number: int) -> None:
    assert _read(units.size(number)) == pytest.approx(number, rel=0.006)


@given(st.integers(0, 2**70), st.integers(0, 2**70))
def test_sizes_keep_their_order(first: int, second: int) -> None:
    if first <= second:
        assert _read(units.size(first)) <= _read(units.size(second))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"), (1023, "1,023 B"), (1024, "1.00 KiB"), (1536, "1.50 KiB"), (1024**2 - 1, "1.00 MiB"),
        (15 * 2**40, "15.0 TiB"), (150 * 2**20, "150 MiB"), (-2048, "−2.00 KiB"), (int(9.996 * 2**30), "10.0 GiB"),
        (int(99.96 * 2**30), "100 GiB"), (2**80, "1,024 ZiB"),
    ],
)  # fmt: skip
def test_sizes(number: int, text: str) -> None:
    assert units.size(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"),
        (12_000, "3 h 20 min"), (86_400, "1 d"),
        (273_600, "3 d 4 h"), (10 * 86_400, "10 d"), (412.5 * 86_400, "412 d"), (-120, "−2 min"), (2e8, "2,314 d"),
    ],
)  # fmt: skip
def test_ages(seconds: float, text: str) -> None:
    assert units.age(seconds) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0.0 %"), (1, "100.0 %"), (0.1234, "12.3 %"), (0.0001, "< 0.1 %"), (0.99999, "> 99.9 %"), (1.2, "120.0 %")],
)
def test_shares_round_to_nothing_or_all_only_where_they_are(share: float, text: str) -> None:
    assert units.percent(share) == text


@pytest.mark.parametrize(
    ("ahead", "text"), [(0.2, "< 1 d"), (4.54, "4.5 d"), (9.97, "10.0 d"), (31.6, "32 d"), (9999, "> 10 y")]
)
def test_days_ahead(ahead: float, text: str) -> None:
    assert units.days(ahead) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("2026-11-21T13:37:40.123Z", "21 Nov 2026, 13:37 UTC"),
        ("2026-01-01T00:30:00+02:00", "31 Dec 2025, 22:30 UTC"),
        ("2026-11-21T13:37:40", "2026-11-21T13:37:40"),
        ("<b>", "<b>"),
    ],
)
def test_times_are_utc_and_what_is_no_time_stays(value: str, text: str) -> None:
    assert units.moment(value) == text


def test_dates_and_ratios() -> None:
    assert units.day("2026-11-01") == "1 Nov 2026"
    assert units.day("soon") == "soon"
    assert units.ratio(1.304) == "1.30×"
    assert units.ratio(1234.5) == "1,234×"
    assert units.exact(-1234567) == "−1,234,567"
