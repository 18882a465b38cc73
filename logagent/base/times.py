"""Times as the documents print them. Pure arithmetic on milliseconds; the clock is read elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

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
