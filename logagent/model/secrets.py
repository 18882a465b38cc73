"""Passwords stay out of messages: what is printed ends up in tickets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NAMES = r"passw|secret|token|jaas|credential|api.?key|storepass|keypass"
_ASSIGNED = re.compile(rf"(?i)(?:{_NAMES})[^=]*=")
_OPTION = re.compile(rf"(?i)-.*(?:{_NAMES})[^=]*$")
_IN_URL = re.compile(r"(://)[^/@\s]+@")
# Values of settings that are names by nature: anything else there got in by mistake.
_PLAIN = re.compile(r"[A-Za-z0-9_.+-]{1,32}")
HIDDEN = "***"


def without_secret(text: str) -> str:
    """`text` up to the value of the first password that it sets (`….password=***`)."""
    match = _ASSIGNED.search(text)
    return _IN_URL.sub(rf"\1{HIDDEN}@", text if match is None else f"{text[: match.end()]}{HIDDEN}")


def without_secrets(words: Iterable[str]) -> list[str]:
    """A command line without the values of passwords (`-D….keyStorePassword=…`, `--password …`)."""
    told: list[str] = []
    hide = False
    for word in words:
        told.append(HIDDEN if hide else without_secret(word))
        hide = _OPTION.match(word) is not None
    return told


def plain(value: str) -> str:
    """A value that should be one of a few names, as it may be told: a line joined with the next one holds more."""
    return value if _PLAIN.fullmatch(value) else "what stands there"


def known_part(key: str, known: Iterable[str]) -> str:
    """A key that is not known, as it may be told: of `ssl.key.passwordabc` and of `ssl.key.password=abc`, only what
    has a name."""
    begun: Sequence[str] = [k for k in known if key.startswith(k)]
    if begun:
        return f"{max(begun, key=len)}…"
    match = re.match(r"[A-Za-z0-9_.-]*", key)
    return key if match is None or match[0] == key else f"{match[0]}…"
