"""Python's cyclic garbage collector, turned off for a while. Reference counts go on freeing what is in no cycle.

A collection of 100,000 directories or a million partitions takes tenths of a second and stops every thread. Who removes
files turns it off, because it could fall between a look at the broker's lock and the unlink after it; who reads a
metadata log does, because what is read grows, and a fifth of the CPU time would go into looking at it again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class _Collector:
    """Counts who needs it off, in any thread: only the last one to leave turns it on again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._needing_it_off = 0
        self._was_enabled = False

    def turn_off(self) -> None:
        with self._lock:
            if self._needing_it_off == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._needing_it_off += 1

    def turn_on(self) -> None:
        with self._lock:
            self._needing_it_off -= 1
            if self._needing_it_off == 0 and self._was_enabled:
                gc.enable()


_COLLECTOR = _Collector()


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Automatic collections are off within, in every thread; `gc.collect` works."""
    _COLLECTOR.turn_off()
    try:
        yield
    finally:
        _COLLECTOR.turn_on()
