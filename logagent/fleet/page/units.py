"""Bytes, counts, ages and times as people read them, always with a fixed number of significant digits."""

from __future__ import annotations

from datetime import UTC, date, datetime

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB")
MISSING = "–"
# Days beyond which a trend says only "not soon".
LONG_AHEAD = 3650
MINUS = "\u2212"
MINUTE, HOUR, DAY = 60, 3600, 86400


def exact(number: int) -> str:
    """1234567 -> "1,234,567", with a real minus sign."""
    return f"{number:,}".replace("-", MINUS)


def size(number: int) -> str:
    """Bytes in binary units with three significant digits: "0 B", "1,023 B", "1.50 GiB", "15.0 TiB", "150 MiB"."""
    sign, value = (MINUS, -number) if number < 0 else ("", number)
    if value < 1024:
        return f"{sign}{value:,} B"
    scaled = float(value)
    unit = 0
    while True:
        scaled /= 1024
        # 1023.6 KiB would print as 1024 KiB: the next unit takes over where rounding reaches it.
        if scaled < 1023.5 or unit == len(_UNITS) - 1:
            break
        unit += 1
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{sign}{scaled:,.{digits}f} {_UNITS[unit]}"


def percent(share: float) -> str:
    """0.123 -> "12.3 %"; a share above zero never reads as 0 %, one below 1 never as 100 %."""
    value = share * 100
    if 0 < value < 0.05:
        return "< 0.1 %"
    if 99.95 <= value < 100:
        return "> 99.9 %"
    return f"{value:.1f} %"


def age(seconds: float) -> str:
    """A length of time in its two largest units: "45 s", "12 min", "3 h 20 min", "3 d 4 h", from ten days on "12 d"."""
    sign, left = (MINUS, -seconds) if seconds < 0 else ("", seconds)
    whole = int(left)
    if whole < MINUTE:
        return f"{sign}{whole} s"
    if whole < HOUR:
        return f"{sign}{whole // MINUTE} min"
    if whole < DAY:
        return f"{sign}{whole // HOUR} h" + _rest(whole % HOUR // MINUTE, "min")
    if whole < 10 * DAY:
        return f"{sign}{whole // DAY} d" + _rest(whole % DAY // HOUR, "h")
    return f"{sign}{whole // DAY:,} d"


def days(value: float) -> str:
    """Days ahead: "< 1 d", "4.5 d", "120 d"; beyond ten years "> 10 y", because no trend reaches that far."""
    if value < 1:
        return "< 1 d"
    if value > LONG_AHEAD:
        return "> 10 y"
    return f"{value:.1f} d" if value < 10 else f"{value:,.0f} d"


def ratio(value: float) -> str:
    """1.0 is the mean: "1.30×"."""
    return f"{value:.2f}×" if value < 100 else f"{value:,.0f}×"


def _rest(value: int, unit: str) -> str:
    return f" {value} {unit}" if value else ""


def moment(value: str) -> str:
    """An RFC 3339 time as "21 Nov 2026, 13:37 UTC"; anything else is returned as it is."""
    parsed = parse_time(value)
    return value if parsed is None else f"{parsed.day} {parsed:%b %Y, %H:%M} UTC"


def day(value: str) -> str:
    """An ISO date as "21 Nov 2026"; anything else is returned as it is."""
    try:
        parsed = datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return value
    return f"{parsed.day} {parsed:%b %Y}"


def weekday(value: str) -> str:
    """An ISO date as "Sat 21 Nov"."""
    parsed = date.fromisoformat(value)
    return f"{parsed:%a} {parsed.day} {parsed:%b}"


def parse_time(value: str) -> datetime | None:
    """The UTC time that an RFC 3339 text names; None for anything else (a time without an offset does not count)."""
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if parsed.tzinfo is None else parsed.astimezone(UTC)


def plural(count: int, one: str, many: str = "") -> str:
    return f"{exact(count)} {one if count == 1 else many or one + 's'}"
