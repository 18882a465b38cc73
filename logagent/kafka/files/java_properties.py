"""Java properties files, read as `java.util.Properties.load(InputStream)` reads them (Java 9 and later).

Kafka opens `server.properties` (`Utils.loadProps`) and `meta.properties` (`PropertiesUtils.readPropertiesFile`) as
byte streams, so they are decoded as Latin-1 whatever the editor wrote: `log.dirs=/é` in UTF-8 means `/Ã©` to the
broker, and so it does here. Whitespace around keys and before values is dropped, whitespace after values is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from logagent.base.errors import UnreadableError

# `String.trim`: everything up to U+0020, and nothing above it.
_TRIMMED: Final = "".join(map(chr, range(0x21)))
_BLANKS: Final = " \t\f"
_SEPARATORS: Final = "=:"
_LINE_END: Final = re.compile("(\r\n|\n|\r)")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True)
class Property:
    """One entry. `line`: the number (from 1) of the natural line on which it begins."""

    key: str
    value: str
    line: int


def trim(text: str) -> str:
    """As Java's `String.trim`."""
    return text.strip(_TRIMMED)


def parse_properties(data: bytes) -> dict[str, str]:
    """All keys and values; of a duplicate key, the last value.

    Raises UnreadableError for a malformed `\\uXXXX`, the only thing that Java refuses.
    """
    return {entry.key: entry.value for entry in iter_properties(data)}


def iter_properties(data: bytes) -> Iterator[Property]:
    """The entries in file order, including overridden ones; raises UnreadableError like `parse_properties`."""
    for line, text in _logical_lines(data.decode("latin-1")):
        key_end, value_start = _split(text)
        try:
            yield Property(_unescape(text[:key_end]), _unescape(text[value_start:]), line)
        except ValueError as error:
            raise UnreadableError(f"line {line}: {error}") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined, without comments and blank lines, each with the number of its first line.

    Mirrors `Properties.LineReader` including its quirks: a continued line that is still empty may be followed by a
    comment or blank lines, and a lone backslash at the end of the file makes an entry, unless `\\r\\n` follows.
    """
    parts = _LINE_END.split(text)  # natural lines at even positions, their line ends at odd ones
    ends = [*parts[1::2], ""]
    line = ""
    first = 1
    for number, (natural, end) in enumerate(zip(parts[::2], ends, strict=True), 1):
        natural = natural.lstrip(_BLANKS)
        if not line:
            first = number
            if not natural or natural[0] in "#!":
                continue
        continued = (len(natural) - len(natural.rstrip("\\"))) % 2 == 1
        line += natural[:-1] if continued else natural
        at_end = end == "" or (end != "\r\n" and number == len(ends) - 1 and not parts[-1])
        if continued and not at_end:
            continue
        yield first, line
        line = ""


def _split(line: str) -> tuple[int, int]:
    """Where the key ends and the value begins."""
    escaped = False
    key_end = len(line)
    for position, character in enumerate(line):
        if not escaped and (character in _SEPARATORS or character in _BLANKS):
            key_end = position
            break
        escaped = character == "\\" and not escaped
    value_start = key_end
    separator_seen = False
    while value_start < len(line):
        character = line[value_start]
        if character in _SEPARATORS and not separator_seen:
            separator_seen = True
        elif character not in _BLANKS:
            break
        value_start += 1
    return key_end, value_start


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        # There is no lone backslash at the end: `_logical_lines` removed it, and `_split` does not split escapes.
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        character = text[position]
        position += 1
        if character == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not _HEX_DIGITS.issuperset(digits):
                raise ValueError("Malformed \\uxxxx encoding.")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(character, character))
    # Java strings are UTF-16: two escapes that form a surrogate pair are one character.
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
