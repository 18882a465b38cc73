"""Parses the login module in `sasl.jaas.config` as Kafka's `JaasConfig` does.

Kafka splits the text with `java.io.StreamTokenizer`, whose quirks are reproduced here because they affect passwords:
quotes may be single or double and support C's escapes, an unquoted value ends at the first unusual character, one that
begins with a digit is a number and therefore not accepted as a value, and `/` begins a comment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

CONTROL_FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")

_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL: Final = "01234567"
_DIGITS: Final = "0123456789.-"


@dataclass(frozen=True, slots=True)
class LoginModule:
    """`module`: the Java class name; `options`: its options (of duplicates, the last)."""

    module: str
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Token:
    """`text` is None if Java's token has no `sval`: numbers and single characters (`symbol`)."""

    text: str | None
    symbol: str = ""


_END: Final = _Token(None, "end")


def parse_jaas(text: str) -> LoginModule:
    """The single login module in `text`; otherwise raises ValueError with Kafka's reason.

    Messages never quote `text`: after a misplaced quote, any word can be part of the password.
    """
    tokens = _tokens(text)
    modules: list[LoginModule] = []
    while (token := next(tokens, _END)) is not _END:
        modules.append(_entry(token, tokens))
    if not modules:
        raise ValueError("login module not specified in JAAS config")
    if len(modules) > 1:
        raise ValueError(f"JAAS config property contains {len(modules)} login modules, should be 1 module")
    return modules[0]


def _entry(first: _Token, tokens: Iterator[_Token]) -> LoginModule:
    flag = next(tokens, _END)
    if flag is _END:
        raise ValueError("login module control flag not specified in JAAS config")
    if first.text is None or flag.text is None or flag.text.upper() not in CONTROL_FLAGS:
        raise ValueError(f"login module control flag in JAAS config is none of {', '.join(CONTROL_FLAGS)}")
    options: dict[str, str] = {}
    while (key := next(tokens, _END)) is not _END and key.symbol != ";":
        equals, value = next(tokens, _END), next(tokens, _END)
        if equals.symbol != "=" or value.text is None or key.text is None:
            raise ValueError(f"value not specified for option {len(options) + 1} in JAAS config")
        options[key.text] = value.text
    if key is _END:
        raise ValueError("JAAS config entry not terminated by semi-colon")
    return LoginModule(first.text, options)


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        character = text[position]
        if character <= " ":
            position += 1
        elif character == "/":
            position = _after_comment(text, position)
        elif character in "\"'":
            value, position = _quoted(text, position)
            yield _Token(value)
        elif character in _DIGITS:
            number = position + 1
            while number < len(text) and text[number] in "0123456789.":
                number += 1
            yield _Token(None, "number")
            position = number
        elif _is_word(character):
            end = position
            while end < len(text) and (_is_word(text[end]) or text[end] in _DIGITS):
                end += 1
            yield _Token(text[position:end])
            position = end
        else:
            yield _Token(None, character)
            position += 1


def _is_word(character: str) -> bool:
    return (character.isascii() and character.isalpha()) or character in "_$" or character >= "\xa0"


def _after_comment(text: str, position: int) -> int:
    if text.startswith("/*", position):
        end = text.find("*/", position + 2)
        return len(text) if end < 0 else end + 2
    # Java has already consumed the character after the slash, even a line end, before it looks for the line end.
    position += 2
    while position < len(text) and text[position] not in "\r\n":
        position += 1
    return position


def _quoted(text: str, position: int) -> tuple[str, int]:
    """The string that begins at `position`, and where it ends; as in Java, the end of the line also ends it."""
    quote = text[position]
    position += 1
    out: list[str] = []
    while position < len(text) and text[position] not in (quote, "\n", "\r"):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            character, position = _escape(text, position)
        out.append(character)
    if position < len(text) and text[position] == quote:
        position += 1
    return "".join(out), position


def _escape(text: str, position: int) -> tuple[str, int]:
    """The character for the escape whose first character (after the backslash) is at `position`, and where it ends."""
    character = text[position]
    if character not in _OCTAL:
        return _ESCAPES.get(character, character), position + 1
    longest = 3 if character <= "3" else 2
    end = position
    while end < min(len(text), position + longest) and text[end] in _OCTAL:
        end += 1
    return chr(int(text[position:end], 8)), end
