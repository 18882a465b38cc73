"""The one way to parse JSON that this process did not just write: for any input, the only error is ValueError."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NoReturn

# Larger integers are never real counts, and overflow when they are divided, shown or stored.
_MOST_DIGITS = 19


def parse_json(
    text: bytes | str,
    *,
    object_hook: Callable[[dict[str, Any]], Any] | None = None,
    integers: Callable[[str], Any] | None = None,
) -> Any:
    """Parse a document; its strings may contain lone surrogates. Raises ValueError for anything but JSON, for documents
    that are nested too deeply, and for NaN, Infinity and fractions too large for a float.

    `integers`: parses an integer (use `bounded` for short documents; it is too slow for long ones).
    """
    try:
        return json.loads(
            text, object_hook=object_hook, parse_int=integers, parse_float=_finite, parse_constant=_refused
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def bounded(digits: str) -> int:
    """Parse an integer of at most 19 digits. Raises ValueError for a longer one."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError("a number in it is too long")
    return int(digits)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refused(text[:20])


def _refused(word: str) -> NoReturn:
    raise ValueError(f"a number in it is {word}")
