"""Amounts of space on a file system, sizes in the units in which people read them, and times as the documents print
them. Pure arithmetic; the clock is read elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

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


SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
"""The first and the last moment that `rfc3339` prints: of the years 1 and 9999."""


def rfc3339(ms: int) -> str:
    """Milliseconds since the epoch as `2026-11-21T13:26:28.000Z`, clamped to the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        moment = datetime.min.replace(tzinfo=UTC) if ms < 0 else datetime.max.replace(tzinfo=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z".zfill(24)


def instant(at: datetime) -> str:
    """`rfc3339` of an aware time."""
    return rfc3339((at - _EPOCH) // timedelta(milliseconds=1))


def rfc3339_or_none(ms: int | None) -> str | None:
    return None if ms is None else rfc3339(ms)


def human_time(at: int | datetime) -> str:
    """`2026-11-21 13:26:28Z`: a moment in UTC (milliseconds since the epoch, or an aware time), for tables and
    sentences."""
    return f"{(rfc3339(at) if isinstance(at, int) else instant(at))[:19].replace('T', ' ')}Z"


def counted(count: int, one: str) -> str:
    """`1 topic`, `3 topics`, `2 directories`, `2 processes`."""
    many = f"{one[:-1]}ies" if one.endswith("y") else f"{one}es" if one.endswith("s") else f"{one}s"
    return f"{count} {one if count == 1 else many}"


def rough(ms: int) -> str:
    """A duration in one unit: `5 min`, `3 h`, `12 d`; "less than a minute" below that."""
    minutes = ms // MINUTE_MS
    if minutes < 1:
        return "less than a minute"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} d"
