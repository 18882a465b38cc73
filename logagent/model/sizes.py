"""Sizes in the units in which people read them."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB")


def in_units(count: int, below: float = 1024.0) -> tuple[float, str]:
    """`count` bytes as a number below `below` (what rounding would show as 1024 belongs to the next unit), and its
    unit."""
    size, unit = float(count), 0
    while abs(size) >= below and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return size, _UNITS[unit]
