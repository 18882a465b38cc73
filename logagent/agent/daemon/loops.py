"""The daemon's loops: each is a thread with a queue of job names that can tell whether it is still alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Control:
    """How the loops' work is told to stop and shows that it is alive. `interrupted`: the current cycle ends early."""

    stopping: bool = False
    interrupted: bool = False
    beat: Callable[[], None] = field(default=lambda: None)

    def stop(self) -> bool:
        self.beat()
        return self.stopping or self.interrupted

    def aborting(self) -> bool:
        self.beat()
        return self.stopping


class Loop:
    """Runs jobs one after the other. A job that is already queued is not queued twice, so ticks never pile up.

    `run(job)` handles its own errors; an exception that it lets through ends the thread, which then counts as silent.
    """

    def __init__(self, name: str, run: Callable[[str], None], monotonic: Callable[[], float]) -> None:
        self.name = name
        self.job: str | None = None
        self._run = run
        self._monotonic = monotonic
        self._waiting: dict[str, None] = {}
        self._wake = threading.Condition()
        self._ending = False
        self._beat = monotonic()
        self._thread: threading.Thread | None = None

    def post(self, job: str) -> None:
        with self._wake:
            if not self._waiting:
                self._beat = self._monotonic() if self.job is None else self._beat
            self._waiting[job] = None
            self._wake.notify()

    def beat(self) -> None:
        """Called by the running job at least every few seconds, from any thread that works for this loop."""
        self._beat = self._monotonic()

    def silent_seconds(self) -> float:
        """For how long it has had work without a sign of life; 0 while there is nothing to do."""
        if self.job is None and not self._waiting:
            return 0.0
        return max(0.0, self._monotonic() - self._beat)

    def idle_seconds(self) -> float:
        """For how long it has had nothing to do; 0 while it works."""
        return 0.0 if self.job is not None or self._waiting else max(0.0, self._monotonic() - self._beat)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name=f"logagent-{self.name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop after the current job; queued jobs are dropped."""
        with self._wake:
            self._ending = True
            self._waiting.clear()
            self._wake.notify()

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the thread to end; whether it has."""
        if self._thread is None:
            return True
        self._thread.join(max(timeout, 0.0))
        return not self._thread.is_alive()

    def run_waiting(self) -> None:
        """Run the queued jobs, and those that they post, in the calling thread."""
        while (job := self._take(wait=False)) is not None:
            self._do(job)

    def _work(self) -> None:
        while (job := self._take(wait=True)) is not None:
            self._do(job)

    def _take(self, *, wait: bool) -> str | None:
        with self._wake:
            while wait and not self._waiting and not self._ending:
                self._wake.wait()
            if not self._waiting:
                return None
            job = next(iter(self._waiting))
            del self._waiting[job]
            self._beat = self._monotonic()
            self.job = job
            return job

    def _do(self, job: str) -> None:
        self._run(job)
        self.job = None
