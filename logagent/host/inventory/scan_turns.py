"""Turns for scans that run side by side: while they compute, one at a time; while they wait for their disks, all.

Python runs one thread at a time. Two scans whose directories are in the kernel's cache only take Python's lock from
each other, at every call: together they need two to three times the CPU that they need one after the other. Scans that
wait for a disk do not, and must not wait for each other as well.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

# How long a turn lasts if another scan waits for one.
TURN_SECONDS = 0.02
# A turn that has not ended after this long is stuck in a call to its disk: the next scan no longer waits for it.
STUCK_SECONDS = 0.2
# A scan that computed for less than this share of its turn waits for its disk, and goes on without a turn for so long.
BUSY_SHARE = 0.5
ALONE_SECONDS = 0.5


class ScanTurns:
    """The turns of the scans of one session. Thread-safe.

    monotonic: seconds of a clock that nobody sets. cpu: the seconds for which the calling thread has computed.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self.monotonic = monotonic
        self.cpu = cpu
        self._changed = threading.Condition()
        self._holder: ScanTurn | None = None
        self._since = 0.0
        self._waiting: deque[ScanTurn] = deque()

    def take(self, turn: ScanTurn) -> None:
        """Wait until it is `turn`'s, or until the one that has it seems stuck."""
        with self._changed:
            if self._holder is None:
                self._give(turn)
                return
            self._waiting.append(turn)
            while self._holder is not turn:
                stuck_in = self._since + STUCK_SECONDS - self.monotonic()
                if stuck_in <= 0:
                    self._waiting.remove(turn)
                    self._give(turn)
                else:
                    self._changed.wait(stuck_in)

    def leave(self, turn: ScanTurn) -> None:
        """Hand it to the one that has waited longest. Does nothing if another one has it by now."""
        with self._changed:
            if self._holder is turn:
                self._give(self._waiting.popleft() if self._waiting else None)
                self._changed.notify_all()

    def is_wanted(self) -> bool:
        return bool(self._waiting)

    def _give(self, turn: ScanTurn | None) -> None:
        self._holder, self._since = turn, self.monotonic()


class ScanTurn:
    """The turn of one scan; a context manager, entered in the scan's thread. Call `tick` every few milliseconds."""

    def __init__(self, turns: ScanTurns) -> None:
        self._turns = turns
        self._began = self._began_cpu = 0.0
        self._alone_until: float | None = None

    def __enter__(self) -> ScanTurn:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._turns.leave(self)

    def tick(self) -> None:
        """Let another scan go on, if one waits and this one's turn is over."""
        now = self._turns.monotonic()
        if self._alone_until is not None:
            if now >= self._alone_until:
                self._begin()
        elif now - self._began >= TURN_SECONDS:
            computed = self._turns.cpu() - self._began_cpu
            self._turns.leave(self)
            if computed < BUSY_SHARE * (now - self._began):
                self._alone_until = now + ALONE_SECONDS
            else:
                self._begin()

    def _begin(self) -> None:
        self._alone_until = None
        self._turns.take(self)
        self._began, self._began_cpu = self._turns.monotonic(), self._turns.cpu()
