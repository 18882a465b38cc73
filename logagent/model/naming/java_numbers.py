"""Decimal numbers as Java parses them: exactly what the broker accepts in names and files.

Python's `int()` also accepts whitespace, underscores and digits outside the Basic Multilingual Plane, and rejects very
long strings that Java accepts (leading zeros), so the broker and we would disagree about the same bytes.
"""

from __future__ import annotations

from typing import Final

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1

# The last 19 digits hold any number below 10^19; a longer one fits only if all digits before them are zero.
_SIGNIFICANT = 19


def parse_int(text: str) -> int:
    """`java.lang.Integer.parseInt(text)`; raises ValueError where Java throws NumberFormatException."""
    return _parse(text, INT_MIN, INT_MAX)


def parse_long(text: str) -> int:
    """`java.lang.Long.parseLong(text)`; raises ValueError where Java throws NumberFormatException."""
    return _parse(text, LONG_MIN, LONG_MAX)


def _parse(text: str, low: int, high: int) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Java looks at UTF-16 units: a digit above U+FFFF is two surrogates to it, not a digit.
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
