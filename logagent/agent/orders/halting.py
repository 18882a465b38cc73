"""What stops an order's execution: its runner, or the end of the order in the store, checked right before the act."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from logagent.agent.clock import Clock
from logagent.errors import LogAgentError
from logagent.host.log_dir.bounded_calls import Task

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
    task = Task("logagent-store", ask)
    try:
        task.start()
    except RuntimeError:  # the thread limit
        return None
    try:
        return task.outcome() if task.join(seconds) else None
    except (OSError, LogAgentError):
        return None
