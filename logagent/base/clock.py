"""The clock, which everything that depends on time gets through its constructor."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    def boottime(self) -> float:
        """Seconds since boot, suspended time included: the wall clock is checked against it."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(slots=True)
class Patience:
    """For how many seconds answers may be waited for, all together; what is done between questions takes none of it."""

    left: float = math.inf

    @property
    def is_over(self) -> bool:
        return self.left <= 0

    @contextmanager
    def asking(self, clock: Callable[[], float], most: float = math.inf) -> Iterator[float]:
        """Until when, on this clock, answers are waited for within; `most` seconds at most."""
        began = clock()
        try:
            yield began + min(self.left, most)
        finally:
            self.left = max(0.0, self.left - min(clock() - began, most))
