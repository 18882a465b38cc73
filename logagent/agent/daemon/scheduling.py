"""When ticks come: at intervals, or once at a given time. APScheduler does the waiting; our ticks do no work.

A tick only puts a name into a loop's queue, so it may be called from any thread and never delays the next one. Mirrors
Kafka's `Scheduler` trait (`scheduleOnce`, `schedule`), which tests replace with a fake in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from apscheduler.schedulers.background import BackgroundScheduler

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
        from apscheduler.executors.debug import DebugExecutor
        from apscheduler.schedulers.background import BackgroundScheduler

        self._aps: BackgroundScheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": DebugExecutor()},
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        )

    def every(self, name: str, interval_ms: int, tick: Tick, *, first_ms: int, jitter_ms: int = 0) -> None:
        from apscheduler.triggers.interval import IntervalTrigger

        jitter = max(1, jitter_ms // 1000) if jitter_ms else None
        trigger = IntervalTrigger(seconds=max(interval_ms, 1) / 1000, jitter=jitter, timezone=UTC)
        self._add(name, trigger, tick, next_run_time=_moment(first_ms))

    def at(self, name: str, when_ms: int, tick: Tick) -> None:
        from apscheduler.triggers.date import DateTrigger

        self._add(name, DateTrigger(_moment(when_ms), UTC), tick)

    def _add(self, name: str, trigger: object, tick: Tick, **options: Any) -> None:
        self._aps.add_job(tick, trigger, id=name, replace_existing=True, **options)

    def cancel(self, name: str) -> None:
        from apscheduler.jobstores.base import JobLookupError

        try:
            self._aps.remove_job(name)
        except JobLookupError:
            pass

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
