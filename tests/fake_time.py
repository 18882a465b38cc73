"""A clock that only tests move, and the scheduler that it drives: a day passes in milliseconds."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from logagent.base.clock import Clock, SystemClock
from logagent.service.daemon.scheduling import Tick

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
START_MS = 1_800_000_000_000


class FakeClock:
    """All clocks of a machine, in step; `set_wall` sets the one that people can set."""

    def __init__(self) -> None:
        self.elapsed_ms = 0
        self.offset_ms = START_MS

    def now_ms(self) -> int:
        return self.offset_ms + self.elapsed_ms

    def monotonic(self) -> float:
        return self.elapsed_ms / 1000

    def boottime(self) -> float:
        return 1000 + self.elapsed_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.elapsed_ms += round(seconds * 1000)

    def set_wall(self, now_ms: int) -> None:
        self.offset_ms = now_ms - self.elapsed_ms


class SetClock(SystemClock):
    """The machine's clocks, of which the one that people can set was set `ahead_ms` ahead."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class LaterClock(SetClock):
    """The machine's clocks, `ahead_ms` later: in the meantime it slept."""

    def boottime(self) -> float:
        return super().boottime() + self.ahead_ms / 1000


class HurriedClock:
    """A real clock, but between two questions `step` seconds go by."""

    def __init__(self, clock: Clock, step: float) -> None:
        self.now, self.step = 0.0, step
        self.now_ms, self.boottime, self.sleep = clock.now_ms, clock.boottime, clock.sleep

    def monotonic(self) -> float:
        self.now += self.step
        return self.now


@dataclass(slots=True)
class _Job:
    tick: Tick
    next_ms: int
    interval_ms: int | None


@dataclass(slots=True)
class FakeScheduler:
    """The `Scheduler` of tests. `run_until` moves the clock from tick to tick; `after_tick` runs what was posted."""

    clock: FakeClock
    after_tick: Callable[[], None] = lambda: None
    jobs: dict[str, _Job] = field(default_factory=dict)
    ticks: list[tuple[int, str]] = field(default_factory=list)
    running: bool = False

    def every(self, name: str, interval_ms: int, tick: Tick, *, first_ms: int, jitter_ms: int = 0) -> None:
        assert interval_ms > 0
        self.jobs[name] = _Job(tick, first_ms, interval_ms)

    def at(self, name: str, when_ms: int, tick: Tick) -> None:
        self.jobs[name] = _Job(tick, when_ms, None)

    def cancel(self, name: str) -> None:
        self.jobs.pop(name, None)

    def next_ms(self, name: str) -> int | None:
        job = self.jobs.get(name)
        return job.next_ms if job is not None else None

    def clock_was_set(self) -> None:
        now = self.clock.now_ms()
        for job in self.jobs.values():
            if job.interval_ms is not None and job.next_ms > now + job.interval_ms:
                job.next_ms = now

    def start(self) -> None:
        self.running = True

    def shutdown(self) -> None:
        self.running = False

    def run_until(self, end_ms: int, *, most: int = 200_000) -> None:
        """Fire every tick up to `end_ms`, in order; more than `most` of them is a busy loop, and fails."""
        for _ in range(most):
            due = [(job.next_ms, name) for name, job in self.jobs.items() if job.next_ms <= end_ms]
            if not due or not self.running:
                break
            heapq.heapify(due)
            when, name = due[0]
            self._fire(when, name)
            self.after_tick()
        else:
            raise AssertionError(f"more than {most} ticks: {self.ticks[-5:]}")
        self.clock.elapsed_ms += max(end_ms - self.clock.now_ms(), 0)

    def _fire(self, when: int, name: str) -> None:
        self.clock.elapsed_ms += max(when - self.clock.now_ms(), 0)
        job = self.jobs[name]
        if job.interval_ms is None:
            del self.jobs[name]
        else:
            # Like APScheduler: several that come late at once are one.
            job.next_ms = max(when, self.clock.now_ms()) + job.interval_ms
        self.ticks.append((self.clock.now_ms(), name))
        job.tick()
