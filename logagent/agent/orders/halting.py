"""What stops an order's execution: its runner, or the end of the order in the store, checked right before the act."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from logagent.agent.clock import Clock
from logagent.errors import LogAgentError

T = TypeVar("T")
STANDS_ANEW_SECONDS = 1.0


@dataclass(slots=True)
class Halted:
    """The `stop` of one order's execution: told to stop, or the order was deleted, cancelled or superseded."""

    stands: Callable[[], bool]
    clock: Clock
    stop: Callable[[], bool]
    _asked_at: float = float("-inf")
    _stood: bool = False

    def __call__(self) -> bool:
        if self.stop():
            return True
        if self.clock.monotonic() - self._asked_at >= STANDS_ANEW_SECONDS:
            self._stood = self.stands()
            self._asked_at = self.clock.monotonic()
        return not self._stood


def bounded(ask: Callable[[], T], seconds: float) -> T | None:
    """What `ask` returns within `seconds`; None if it takes longer or fails. Then its thread is left behind, so that a
    hung store blocks nothing else."""
    answers: list[T] = []

    def run() -> None:
        try:
            answers.append(ask())
        except (OSError, LogAgentError):
            pass

    thread = threading.Thread(target=run, name="logagent-store", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the thread limit
        return None
    thread.join(seconds)
    return answers[0] if answers else None
