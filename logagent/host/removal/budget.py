"""How fast a removal may go: bytes per second, spread evenly, so that the disk's other users keep their share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

MIB = 1 << 20
# No single system call works on more than this much of a file.
MAX_CHUNK = 64 * MIB
_NAP_SECONDS = 0.1


class ByteBudget:
    """A rate in bytes per second shared by any number of workers. Thread-safe.

    Freeing is spread evenly: each take waits until the earlier ones are paid for, and after idle times there is no
    burst beyond one take. `chunk` is how much of a file one call should free at this rate: a tenth of a second's worth,
    at least 1 MiB and at most 64 MiB.
    """

    def __init__(
        self,
        bytes_per_second: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if bytes_per_second <= 0:
            raise ValueError("a budget needs at least one byte per second")
        self._rate = bytes_per_second
        self._monotonic = monotonic
        self._sleep = sleep
        self._paid_until = float("-inf")
        self._mutex = threading.Lock()
        self.chunk = min(MAX_CHUNK, max(MIB, bytes_per_second // 10 // MIB * MIB))

    def take(self, count: int, stop: Callable[[], bool], look: Callable[[], None] = lambda: None) -> bool:
        """Wait until `count` bytes may be freed. False if `stop` became true first.

        At a low rate one step can take minutes, so `stop` is asked and `look` called ten times a second. What they
        prevent, by returning true or raising, is not charged.
        """
        with self._mutex:
            start = max(self._monotonic(), self._paid_until)
            self._paid_until = start + count / self._rate
        granted = False
        try:
            while not stop():
                left = start - self._monotonic()
                if left <= 0:
                    granted = True
                    break
                look()
                self._sleep(min(left, _NAP_SECONDS))
        finally:
            if not granted:
                with self._mutex:
                    self._paid_until -= count / self._rate
        return granted
