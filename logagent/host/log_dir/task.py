"""One piece of work in a separate thread, which may be stuck in a call to a hung disk forever: the only kind of such
threads.

It cannot be ended. A waiter stops waiting (`done`) and leaves it behind, as a daemon thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class Task(Generic[T]):
    """Runs `fn` once `start` is called. `done` is set when it has ended, in whatever way; only then ask for
    `outcome`."""

    def __init__(self, name: str, fn: Callable[[], T]) -> None:
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._result: T | None = None
        self._fn = fn
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Raises RuntimeError if the system cannot start another thread."""
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for it; whether it has ended."""
        return self.done.wait(timeout)

    def outcome(self) -> T:
        """What `fn` returned; raises what it raised."""
        if self.error is not None:
            raise self.error
        return cast(T, self._result)

    def _run(self) -> None:
        try:
            self._result = self._fn()
        except BaseException as error:
            self.error = error
        try:
            self.ended()
        finally:
            self.done.set()

    def ended(self) -> None:
        """For subclasses: what else is done in its thread before `done`."""
