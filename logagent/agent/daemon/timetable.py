"""When each tick comes: the intervals of the configuration, and the next look at the delete queue."""

from __future__ import annotations

from collections.abc import Callable

from logagent.agent.clock import Clock
from logagent.agent.daemon.jobs import Jobs
from logagent.agent.daemon.scheduling import Scheduler
from logagent.model.daemon_summary import CycleSummary
from logagent.settings import Settings

# A burst of renames causes one look at the queue, and looking takes at most a twentieth of the time: a broker that
# deletes topics by the thousand sends hints all day.
HINT_MS, MOST_HINT_MS = 1_000, 15_000
HINT_SHARE = 20
# How often to look for newly marked directories that inotify does not report.
POLL_MS = 30_000


class Timetable:
    """Schedules the ticks. A tick only calls `post` with the name of a job."""

    def __init__(self, scheduler: Scheduler, clock: Clock, jobs: Jobs, post: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._jobs = jobs
        self._post = post
        self._hinted = False

    def set_intervals(self, s: Settings) -> None:
        """Set the intervals of the configuration; a tick that was due sooner before stays at that time."""
        now = self._clock.now_ms()
        for name, interval, jitter, tick in (
            ("cleanup", s.cleanup.interval, 0, lambda: self._post("cleanup")),
            ("health", s.health.probe_interval, 0, lambda: self._post("health")),
            ("publish", s.publish.interval, s.publish.interval // 10, self._tick_publish),
        ):
            coming = self._scheduler.next_ms(name)
            at = now + interval if coming is None else min(coming, now + interval)
            self._scheduler.every(name, interval, tick, first_ms=at, jitter_ms=jitter)
        if self._jobs.takes_orders():
            self._scheduler.every(
                "orders",
                s.orders.interval,
                lambda: self._post("orders"),
                first_ms=now,
                jitter_ms=s.orders.interval // 10,
            )
        else:
            self._scheduler.cancel("orders")

    def _tick_publish(self) -> None:
        if self._jobs.want_snapshot():
            self._post("inventory")

    def hint(self, last: CycleSummary | None) -> None:
        """A directory was marked: look at the queue soon, but not all day. `last`: the last look."""
        if not self._hinted:
            self._hinted = True
            now = self._clock.now_ms()
            took = round(last.seconds * 1000) if last is not None else 0
            rested = last.started_ms + (1 + HINT_SHARE) * took if last is not None else now
            wait = min(max(HINT_MS, rested - now), MOST_HINT_MS)
            self._scheduler.at("hint", now + wait, self._tick_hint)

    def _tick_hint(self) -> None:
        self._hinted = False
        self._post("queue")

    def arm_queue(self, s: CycleSummary | None) -> None:
        """Set the timer for when the head of the delete queue falls due. An empty queue waits for a hint, if there are
        hints."""
        now = self._clock.now_ms()
        moments = [s.next_due_ms] if s is not None and s.next_due_ms is not None else []
        if self._jobs.unwatched():
            moments.append(now + POLL_MS)
        if moments:
            self._scheduler.at("queue", max(min(moments), now + 1), lambda: self._post("queue"))
        else:
            self._scheduler.cancel("queue")

    def clock_was_set(self) -> None:
        """The wall clock jumped: set all timers again, so that none waits for a time by the old clock."""
        self._scheduler.clock_was_set()
        self._hinted = False
