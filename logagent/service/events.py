"""The daemon's log: one line per event, `key=value` or JSON, and nothing is repeated.

Log lines report changes; states are for `logagent status` and the metrics. `Events.say` prints; `Events.changed` says
whether the value under a key has changed since the last time.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import IO, Literal

from logagent.base.times import rfc3339

Level = Literal["info", "warning", "error"]
Format = Literal["text", "json"]
Value = str | int | float | bool | None

# Keys remembered; beyond this the oldest are forgotten (at worst their line is repeated).
_MOST_KEYS = 50_000
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@+%,~")


class Events:
    """Writes to `out`, one line at a time, from any thread. A line that cannot be written is lost; nothing else
    happens."""

    def __init__(self, out: IO[str], now_ms: Callable[[], int], form: Format = "text") -> None:
        self._out = out
        self._now_ms = now_ms
        self._form = form
        self._mutex = threading.Lock()
        self._last: dict[Hashable, object] = {}

    def say(self, event: str, level: Level = "info", /, **fields: Value) -> None:
        """`None` fields are left out."""
        record: dict[str, Value] = {"at": rfc3339(self._now_ms()), "level": level, "event": event}
        record |= {key: value for key, value in fields.items() if value is not None}
        line = json.dumps(record, ensure_ascii=True) if self._form == "json" else as_text(record)
        with self._mutex:
            try:
                self._out.write(line + "\n")
                self._out.flush()
            except (OSError, ValueError):
                pass

    def changed(self, key: Hashable, value: object) -> bool:
        """Whether `value` differs from the last call with `key` (`None`: as if there was none)."""
        with self._mutex:
            before = self._last.pop(key, None)
            if value is not None:
                self._last[key] = value
                if len(self._last) > _MOST_KEYS:
                    del self._last[next((k for k in self._last if _is_of_a_directory(k)), next(iter(self._last)))]
            return before != value

    def forget_all_but(self, family: str, keys: Iterable[Hashable]) -> None:
        """Forget the keys of `family` (the first member of tuple keys) except these."""
        kept = set(keys)
        with self._mutex:
            for key in [k for k in self._last if isinstance(k, tuple) and k[0] == family and k not in kept]:
                del self._last[key]

    def adopt_logging(self) -> None:
        """Libraries' own warnings become events, each once; their other messages are dropped."""
        root = logging.getLogger()
        root.handlers[:] = [_Adopted(self)]
        root.setLevel(logging.WARNING)
        # Unreachable brokers are reported once, with the assignments, not at every attempt to connect.
        logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)


class _Adopted(logging.Handler):
    def __init__(self, events: Events) -> None:
        super().__init__(logging.WARNING)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        if self._events.changed(("library", record.name, record.msg), True):
            message = record.getMessage()
            self._events.say("library", "warning", library=record.name, message=message)


def _is_of_a_directory(key: Hashable) -> bool:
    """There can be 100,000 of these and only a few others, which must not be evicted to make room for them."""
    return isinstance(key, tuple) and len(key) > 2


def as_text(fields: dict[str, Value]) -> str:
    """`key=value` pairs (logfmt): values with anything but plain characters are quoted, and always on one line."""
    return " ".join(f"{key}={_text(value)}" for key, value in fields.items())


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    if text and all(c in _PLAIN for c in text):
        return text
    return json.dumps(text, ensure_ascii=True)
