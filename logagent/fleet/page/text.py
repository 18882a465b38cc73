"""Names from disks, made visible and harmless.

A directory name can contain any bytes: control characters, right-to-left overrides, markup, bytes that are not UTF-8
(which reach us as lone surrogates and cannot be encoded). `visible` spells all of those out, so that two different
names never look the same because of a character that cannot be seen; `esc` makes text safe in HTML and SVG, in element
content and in double-quoted attributes alike.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from html import escape
from itertools import groupby

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


def unbroken(figure: str) -> str:
    """A figure and its unit as HTML without a line break between them."""
    return escape(figure, quote=True).replace(" ", "&nbsp;")
