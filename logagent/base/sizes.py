"""Amounts of space on a file system, and sizes in the units in which people read them."""

from __future__ import annotations

from dataclasses import dataclass

LARGEST_COUNT = (1 << 63) - 1
"""The largest offset, size or count that a record may have: signed, 64 bits."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB")


def in_units(count: int, below: float = 1024.0) -> tuple[float, str]:
    """`count` bytes as a number below `below` (what rounding would show as 1024 belongs to the next unit), and its
    unit."""
    size, unit = float(count), 0
    while abs(size) >= below and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return size, _UNITS[unit]


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes and inodes."""

    bytes: int = 0
    inodes: int = 0

    def __add__(self, other: Space) -> Space:
        return Space(self.bytes + other.bytes, self.inodes + other.inodes)

    def less(self, other: Space) -> Space:
        """What is left of each, at least 0."""
        return Space(max(0, self.bytes - other.bytes), max(0, self.inodes - other.inodes))

    def __bool__(self) -> bool:
        return bool(self.bytes or self.inodes)


NOTHING = Space()
