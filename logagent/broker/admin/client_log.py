"""Captures kafka-python's log for our own error messages, instead of letting it go to stderr.

The library's exceptions often say only "timed out"; the reason is in its log.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

_LOGGER: Final = logging.getLogger("kafka")


class ClientLog(logging.Handler):
    """Captures from `listen` to `close`; what kafka-python logs meanwhile goes nowhere else.

    `error` is the last logged exception that is not one of `ignored`; one of `refusals` is not replaced by later ones.
    `wake` is set as soon as it logs one of `refusals`, or the `closed_left`-th connection closed by the other side
    (None: those do not count). Callers may also set it to wake the waiting thread.
    """

    def __init__(
        self,
        *,
        refusals: tuple[type[BaseException], ...],
        ignored: tuple[type[BaseException], ...],
        closed_left: int | None,
    ) -> None:
        super().__init__(logging.WARNING)
        self.error: BaseException | None = None
        self.wake = threading.Event()
        self._refusals = refusals
        self._ignored = ignored
        self._closed_left = closed_left
        self._propagate = True

    def listen(self) -> None:
        self._propagate = _LOGGER.propagate
        _LOGGER.addHandler(self)
        _LOGGER.propagate = False

    def close(self) -> None:
        if self in _LOGGER.handlers:
            _LOGGER.removeHandler(self)
            _LOGGER.propagate = self._propagate
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        for argument in record.args if isinstance(record.args, tuple) else ():
            if isinstance(argument, self._refusals):
                self.wake.set()
            if self._closed_left is not None and "Connection lost" in str(record.msg):
                self._closed_left -= "socket disconnected" in str(argument)
                if self._closed_left <= 0:
                    self.wake.set()
            if not isinstance(argument, BaseException) or isinstance(argument, self._ignored):
                continue
            if not isinstance(self.error, self._refusals):
                self.error = argument

    def reason(self, error: BaseException) -> str:
        """`error` in words, or the logged exception if `error` is one of `ignored`; without kafka-python's prefixes."""
        telling = self.error if self.error is not None and isinstance(error, self._ignored) else error
        said = str(telling)
        while said.startswith(prefix := f"{type(telling).__name__}: "):
            said = said.removeprefix(prefix)
        return said or type(telling).__name__
