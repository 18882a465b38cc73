"""How work on a log dir is controlled from outside: when it ends, how fast it goes, with how many threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from logagent.base.errors import RemovalStopped
from logagent.base.files.safe_open import MIB
from logagent.disk.calls import Stop, never

# No single system call works on more than this much of a file.
MAX_CHUNK = 64 * MIB
_NAP_SECONDS = 0.1


class ByteBudget:
    """A rate in bytes per second shared by any number of workers, so that the disk's other users keep their share.
    Thread-safe.

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

    def take(self, count: int, stop: Callable[[], bool], check_again: Callable[[], None] = lambda: None) -> bool:
        """Wait until `count` bytes may be freed. False if `stop` became true first.

        At a low rate one step can take minutes, so `stop` is asked and `check_again` called ten times a second. What
        they prevent, by returning true or raising, is not charged.
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
                check_again()
                self._sleep(min(left, _NAP_SECONDS))
        finally:
            if not granted:
                with self._mutex:
                    self._paid_until -= count / self._rate
        return granted


Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class WorkControl:
    """Passed from the command or the daemon down to the last file.

    stop: asked between two actions and between two files; work ends there, and the rest stays queued. given_up: asked
    before each change, even in the middle of a file; true when nobody waits for this work any more because its log dir
    hung. budget: bytes per second, shared by all workers. workers: threads for one large directory. on_progress(files,
    bytes): what was removed since its last call, and the blocks that it had.

    held: the exception of guard `in-use` for a `-stray` directory that a serving broker has open: `.log` files with one
    link are truncated to nothing first (truncate_held=False: unlinked only, for brokers with which that is untested),
    index files, which the broker maps, are only unlinked.
    """

    stop: Stop = never
    given_up: Stop = never
    budget: ByteBudget | None = None
    workers: int = 1
    on_progress: Progress | None = None
    held: bool = False
    truncate_held: bool = True

    @property
    def chunk(self) -> int:
        """How many bytes of a file one call may free."""
        return MAX_CHUNK if self.budget is None else self.budget.chunk

    def check(self) -> None:
        """Raises RemovalStopped if work must end here."""
        if self.stop():
            raise RemovalStopped("stopped on request; the rest stays queued")

    def wait_for_budget(self, count: int, check_again: Callable[[], None]) -> None:
        """Wait until `count` bytes may be freed; meanwhile `check_again` is called again and again, to raise if a
        broker starts. Raises RemovalStopped if work must end first."""
        if self.budget is not None and not self.budget.take(count, self.stop, check_again):
            raise RemovalStopped("stopped on request; the rest stays queued")
