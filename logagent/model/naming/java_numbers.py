"""Decimal numbers as Java reads them: what the broker accepts in names and files, no more and no less.

Python's `int()` would also take blanks, underscores and digits outside the Basic Multilingual Plane, and refuses
very long strings that Java takes (leading zeros), so the broker and we would disagree about the same bytes.
"""

from __future__ import annotations

from typing import Final

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1

# Nothing below 10^19 is lost by looking at the last 19 digits; a longer number fits only with zeros in front.
_SIGNIFICANT = 19


def parse_int(text: str) -> int:
    """`java.lang.Integer.parseInt(text)`; raises ValueError where Java throws NumberFormatException."""
    return _parse(text, INT_MIN, INT_MAX)


def parse_long(text: str) -> int:
    """`java.lang.Long.parseLong(text)`; raises ValueError where Java throws NumberFormatException."""
    return _parse(text, LONG_MIN, LONG_MAX)


def _parse(text: str, low: int, high: int) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Java looks at UTF-16 units, so a digit above U+FFFF is two surrogates and no digit.
    if not digits.isdecimal() or (not digits.isascii() and max(digits) > "\uffff"):
        raise ValueError(f'For input string: "{text}"')
    if len(digits) > _SIGNIFICANT and any(int(digit) for digit in digits[:-_SIGNIFICANT]):
        raise ValueError(f'For input string: "{text}"')
    value = int(digits[-_SIGNIFICANT:])
    if text[0] == "-":
        value = -value
    if not low <= value <= high:
        raise ValueError(f'For input string: "{text}"')
    return value
