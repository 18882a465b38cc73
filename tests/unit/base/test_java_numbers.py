"""Numbers as Java reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.dir_names import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, parse_int, parse_long


@given(st.integers(LONG_MIN, LONG_MAX), st.integers(0, 30), st.sampled_from(["", "+"]))
def test_every_long_is_read_with_leading_zeros_and_plus(value: int, zeros: int, plus: str) -> None:
    sign = "-" if value < 0 else plus
    text = f"{sign}{'0' * zeros}{abs(value)}"
    assert parse_long(text) == value
    if INT_MIN <= value <= INT_MAX:
        assert parse_int(text) == value
    else:
        with pytest.raises(ValueError, match="For input string"):
            parse_int(text)


@given(st.integers(LONG_MAX + 1) | st.integers(max_value=LONG_MIN - 1))
def test_what_no_long_holds_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="For input string"):
        parse_long(str(value))


@pytest.mark.parametrize("text", ["٠٠٧", "+٧", "７", "0000000000000000000000000000000007", "0" * 5000 + "7"])
def test_any_decimal_digit_of_the_basic_plane_will_do(text: str) -> None:
    assert parse_int(text) == parse_long(text) == 7


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "-",
        "+-1",
        "--1",
        "1_0",
        " 1",
        "1 ",
        "1\n",
        "0x1",
        "1.0",
        "1e3",
        "1L",
        "²",
        "Ⅶ",
        "𝟕",
        "＋1",
        "9" * 5000,
        "\udcff",
    ],
)
def test_what_java_refuses_is_refused(text: str) -> None:
    for parse in (parse_int, parse_long):
        with pytest.raises(ValueError, match="For input string"):
            parse(text)
