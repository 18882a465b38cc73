"""When ticks come, at intervals or once at a given time, and the loops that they wake.

A tick only puts a name into a loop's queue, so it may be called from any thread and never delays the next one; each
loop is a thread that can tell whether it is still alive. Mirrors Kafka's `Scheduler` trait (`scheduleOnce`,
`schedule`), which tests replace with a fake in the same way; APScheduler does the waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol

from apscheduler.executors.debug import DebugExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from logagent.base.clock import Clock
from logagent.base.config.config import as_document
from logagent.base.config.settings import Settings
from logagent.kafka.processes.target import Target
from logagent.service.summary import CycleSummary, HealthSummary, PublishSummary


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Validated, and replaced as a whole by a reload. `file`: the logagent.toml that was read, None if there is
    none."""

    settings: Settings
    target: Target
    file: str | None = None


def changed_keys(old: RunConfig, new: RunConfig) -> list[str]:
    """`section.key` of every setting that differs, and "log dirs" if the broker's differ."""
    before, after = as_document(old.settings), as_document(new.settings)
    changed = [f"{s}.{k}" for s, keys in after.items() for k, value in keys.items() if before[s][k] != value]
    return [*changed, *(["log dirs"] if old.target != new.target else [])]


Tick = Callable[[], None]


class Scheduler(Protocol):
    """Names are unique: scheduling a name again replaces the earlier entry. Times in ms since the epoch."""

    def every(self, name: str, interval_ms: int, tick: Tick, *, first_ms: int, jitter_ms: int = 0) -> None:
        """Call `tick` at `first_ms` and then every `interval_ms`, each time up to `jitter_ms` later."""
        ...

    def at(self, name: str, when_ms: int, tick: Tick) -> None:
        """Call `tick` once, at `when_ms`, or as soon as possible if that is past."""
        ...

    def cancel(self, name: str) -> None: ...

    def next_ms(self, name: str) -> int | None:
        """When `name` is next due; None if it is not scheduled."""
        ...

    def clock_was_set(self) -> None:
        """The wall clock jumped: no tick may wait longer than its interval because of that."""
        ...

    def start(self) -> None: ...

    def shutdown(self) -> None: ...


class ApsScheduler:
    """APScheduler 3's BackgroundScheduler, without its thread pool: ticks run in its own thread and take no time.

    A late tick is never dropped (`misfire_grace_time`); several late ones become one.
    """

    def __init__(self) -> None:
        self._aps = BackgroundScheduler(
            timezone=UTC,
            executors={"default": DebugExecutor()},
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        )

    def every(self, name: str, interval_ms: int, tick: Tick, *, first_ms: int, jitter_ms: int = 0) -> None:
        jitter = max(1, jitter_ms // 1000) if jitter_ms else None
        trigger = IntervalTrigger(seconds=max(interval_ms, 1) / 1000, jitter=jitter, timezone=UTC)
        self._add(name, trigger, tick, next_run_time=_moment(first_ms))

    def at(self, name: str, when_ms: int, tick: Tick) -> None:
        self._add(name, DateTrigger(_moment(when_ms), UTC), tick)

    def _add(self, name: str, trigger: object, tick: Tick, **options: Any) -> None:
        self._aps.add_job(tick, trigger, id=name, replace_existing=True, **options)

    def cancel(self, name: str) -> None:
        try:
            self._aps.remove_job(name)
        except JobLookupError:
            pass  # it was never scheduled, or has run: there is nothing to cancel

    def next_ms(self, name: str) -> int | None:
        job = self._aps.get_job(name)
        moment: datetime | None = getattr(job, "next_run_time", None)
        return None if moment is None else round(moment.timestamp() * 1000)

    def clock_was_set(self) -> None:
        now = datetime.now(UTC)
        for job in self._aps.get_jobs():
            interval: timedelta | None = getattr(job.trigger, "interval", None)
            if interval is not None and job.next_run_time > now + interval:
                job.modify(next_run_time=now)
        # It sleeps for a duration computed with the old time.
        self._aps.wakeup()

    def start(self) -> None:
        self._aps.start()

    def shutdown(self) -> None:
        self._aps.shutdown(wait=False)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


class Jobs(Protocol):
    """What the daemon has done on a host; tests put another in its place. Each job is called by its own loop only."""

    def cycle(self, job: str) -> CycleSummary:
        """The "cleanup", "queue", "inventory" or "requests" cycle."""
        ...

    def health(self) -> HealthSummary: ...

    def publish(self) -> PublishSummary | None: ...

    def takes_requests(self) -> bool:
        """Whether requests of the fleet can arrive: a store and keys are configured."""
        ...

    def requests(self) -> Literal["new", "open"] | None:
        """Read which requests are in the store, and write what was seen and done."""
        ...

    def configure(self, config: RunConfig) -> None:
        """Use this configuration from now on. Raises LogAgentError if it cannot be used; then nothing changes."""
        ...

    def reload_failed(self) -> None: ...

    def want_snapshot(self) -> bool:
        """Have the next inventory published; whether there is a store for it."""
        ...

    def recovered_log_dirs(self, paths: Collection[str]) -> None:
        """These log dirs were offline and are online again."""
        ...

    def unwatched(self) -> Mapping[str, str]:
        """Log dirs where inotify does not report newly marked directories, and why."""
        ...

    def close(self) -> None: ...


# A burst of renames causes one queue cycle, and these take at most a twentieth of the time: a broker that
# deletes topics by the thousand sends hints all day.
HINT_MS, MOST_HINT_MS = 1_000, 15_000
HINT_SHARE = 20
# How often to list newly marked directories that inotify does not report.
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
        if self._jobs.takes_requests():
            self._scheduler.every(
                "look-for-requests",
                s.orders.interval,
                lambda: self._post("look-for-requests"),
                first_ms=now,
                jitter_ms=s.orders.interval // 10,
            )
        else:
            self._scheduler.cancel("look-for-requests")

    def _tick_publish(self) -> None:
        if self._jobs.want_snapshot():
            self._post("inventory")

    def hint(self, last: CycleSummary | None) -> None:
        """A directory was marked: read the queue soon, but not all day. `last`: the last queue cycle."""
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


@dataclass(slots=True)
class LoopControl:
    """How the loops' work is stopped and shows that it is alive. `interrupted`: the current cycle ends early.
    `wake`: wakes the main thread, to end."""

    stopping: bool = False
    interrupted: bool = False
    beat: Callable[[], None] = lambda: None
    wake: Callable[[], None] = lambda: None

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
        self._thread = threading.Thread(target=self.run, name=f"logagent-{self.name}", daemon=True)
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

    def run(self, *, wait: bool = True) -> None:
        """Run the queued jobs, and those that they post, in the calling thread; with `wait`, until its end."""
        while (job := self._take(wait)) is not None:
            self._run(job)
            self.job = None

    def _take(self, wait: bool) -> str | None:
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
