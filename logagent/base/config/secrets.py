"""Keeps passwords out of messages, which end up in tickets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NAME = re.compile(r"(?i)passw|secret|token|jaas|credential|api.?key|storepass|keypass")
_IN_URL = re.compile(r"(://)[^/@\s]+@")
# Settings whose values are names match this; anything else got there by mistake.
_PLAIN = re.compile(r"[A-Za-z0-9_.+-]{1,32}")
HIDDEN = "***"


def without_secret(text: str) -> str:
    """`text` up to the value of the first password in it (`….password=***`)."""
    name = _NAME.search(text)
    value = text.find("=", name.end()) + 1 if name is not None else 0
    return _IN_URL.sub(rf"\1{HIDDEN}@", f"{text[:value]}{HIDDEN}" if value else text)


def without_secrets(words: Iterable[str]) -> list[str]:
    """A command line with the values of passwords hidden (`-D….keyStorePassword=…`, `--password …`)."""
    shown: list[str] = []
    hide = False
    for word in words:
        shown.append(HIDDEN if hide else without_secret(word))
        ends = [name.end() for name in _NAME.finditer(word)] if word.startswith("-") else []
        hide = bool(ends) and "=" not in word[ends[-1] :]
    return shown


def plain(value: str) -> str:
    """A value that should be one of a few names, if it is safe to print: a line that was joined with the next one by
    mistake may contain more."""
    return value if _PLAIN.fullmatch(value) else "what stands there"


def known_part(key: str, known: Iterable[str]) -> str:
    """The part of an unknown key that is safe to print: of `ssl.key.passwordabc` or `ssl.key.password=abc`, only the
    known name."""
    prefixes: Sequence[str] = [k for k in known if key.startswith(k)]
    if prefixes:
        return f"{max(prefixes, key=len)}…"
    match = re.match(r"[A-Za-z0-9_.-]*", key)
    return key if match is None or match[0] == key else f"{match[0]}…"
