"""Names from disks, made visible and harmless.

A directory name can contain any bytes: control characters, right-to-left overrides, markup, bytes that are not UTF-8
(which reach us as lone surrogates and cannot be encoded). `visible` spells all of those out, so that two different
names never look the same because of a character that cannot be seen; `esc` makes text safe in HTML and SVG, in element
content and in double-quoted attributes alike.

Bytes, counts, ages and times as people read them, always with a fixed number of significant digits.

Links into the tables of the page: the address of a view says which rows it shows.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import lru_cache
from html import escape
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from logagent.base.sizes import in_units

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
    scaled, unit = in_units(value, below=1023.5)
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{sign}{scaled:,.{digits}f} {unit}"


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


# Longest name shown in full: a directory name has at most 255 bytes, a path 4,095. The CSV has the whole name.
LONGEST = 300

_PLAIN = re.compile(r"[!-\[\]-~]+(?: [!-\[\]-~]+)*")
_LONE_BYTE = re.compile(r"\\udc[89a-f][0-9a-f]")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
# Letters and marks by category that nevertheless draw nothing: joiners, fillers, variation selectors, blank braille.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_MARKS = frozenset({"Mn", "Mc", "Me"})
# More combining marks than this on one letter climb over the neighbouring lines; no script needs them.
_MOST_MARKS = 2


def spelled(char: str) -> str:
    r"""`char` as an escape: `\u202e`, `\udcff`, `\U000e0041`; the same form as our JSON and CSV use."""
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _is_hidden(char: str) -> bool:
    if char == " ":
        return False
    if char in _BLANK or "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":
        return True
    if "\u180b" <= char <= "\u180f":
        return True
    return unicodedata.category(char) in _HIDDEN_CATEGORIES


def _pieces(name: str) -> list[tuple[str, bool]]:
    """`name` cut into (text, is an escape). A backslash doubles, so that an escape cannot be forged, except in the six
    characters `\\udcXX` by which the fleet store spells a byte that is not UTF-8: those are an escape."""
    pieces: list[tuple[str, bool]] = []
    done = 0
    for byte in _LONE_BYTE.finditer(name):
        pieces += _char_pieces(name[done : byte.start()], starts=done == 0, ends=False)
        pieces.append((byte.group(), True))
        done = byte.end()
    pieces += _char_pieces(name[done:], starts=done == 0, ends=True)
    return [
        ("".join(text for text, _ in run), is_escape) for is_escape, run in groupby(pieces, key=lambda piece: piece[1])
    ]


def _char_pieces(name: str, *, starts: bool, ends: bool) -> Iterator[tuple[str, bool]]:
    """Each character of a part of a name, spelled out if it is invisible. `starts`, `ends`: whether the part is at that
    end of the name."""
    marks = 0
    last = len(name) - 1
    for index, char in enumerate(name):
        is_mark = unicodedata.category(char) in _MARKS
        marks = marks + 1 if is_mark else 0
        stacked = is_mark and (marks > _MOST_MARKS or index == 0)
        at_edge = (index == 0 and starts) or (index == last and ends)
        blank = char == " " and (at_edge or (index > 0 and name[index - 1] == " "))
        if char == "\\":
            yield "\\\\", True
        elif blank or stacked or _is_hidden(char):
            yield spelled(char), True
        else:
            yield char, False


def shortened(name: str, longest: int) -> str:
    """`name` with at most `longest` characters; what is cut off shows as an ellipsis."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


@lru_cache(maxsize=16_384)
def visible(name: str, longest: int = LONGEST) -> str:
    """`name` as plain text (not yet HTML) in which every character can be seen; always encodable as UTF-8.

    Names of plain ASCII come back unchanged. Names longer than `longest` characters end in an ellipsis.
    """
    if len(name) <= longest and _PLAIN.fullmatch(name):
        return name
    return "".join(text for text, _ in _pieces(shortened(name, longest)))


def can_be_pasted(text: str) -> bool:
    """Whether every character can be seen and is what it seems: what is pasted into a shell is then what was read."""
    return visible(text, len(text)) == text.replace("\\", "\\\\")


def esc(text: str, longest: int = LONGEST) -> str:
    """`text` made visible and escaped for HTML or SVG content and double-quoted attributes."""
    return escape(visible(text, longest), quote=True)


@lru_cache(maxsize=16_384)
def name_html(name: str) -> str:
    """`name` as HTML content, its escapes marked up so that they cannot be mistaken for the name's own text."""
    if len(name) <= LONGEST and _PLAIN.fullmatch(name):
        return escape(name, quote=True)
    return "".join(
        f'<span class="x">{escape(text)}</span>' if is_escape else escape(text, quote=True)
        for text, is_escape in _pieces(shortened(name, LONGEST))
    )


def link(table: str, content: str, **wanted: Any) -> str:
    """A link with the HTML `content` to the rows of a table that have exactly these values; `key__min` and `key__max`
    bound a figure, `sort` names a column (`-`: largest first)."""
    words = urlencode({key.replace("__", "."): visible(str(value)) for key, value in wanted.items()})
    return f'<a href="#{table}{"?" + esc(words, 2000) if words else ""}">{content}</a>'


def figure(count: int, table: str, content: str, **wanted: Any) -> str:
    """`content` as a link to its rows; plain where there are none: no link leads to an empty table."""
    return link(table, content, **wanted) if count else content
