"""The daemon: when what is done, who does it, and what follows from what came of it. `jobs` does it.

Threads. The main one takes signals, talks to systemd and waits; it touches no log dir. Three loops work: `act` (the
cycles, one after the other), `health` (probes) and `publish` (the fleet store), none of which waits for another one.
The scheduler's thread only puts names into their queues. Ticks, and what follows a cycle, are decided here with the
clock and the scheduler that were passed in, so that a day of this is a test of milliseconds.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

from logagent.agent.clock import Clock
from logagent.agent.daemon.cycles import CycleAborted
from logagent.agent.daemon.jobs import Jobs
from logagent.agent.daemon.log_lines import LogLines
from logagent.agent.daemon.loops import Control, Loop
from logagent.agent.daemon.reload import Reloader
from logagent.agent.daemon.run_config import RunConfig, changed_keys
from logagent.agent.daemon.scheduling import Scheduler
from logagent.errors import ConfigError, Exit, LogAgentError
from logagent.host.linux.sd_notify import Notifier
from logagent.model.summary import CycleSummary, HealthSummary, PublishSummary

LOOP_OF = {
    "queue": "act",
    "cleanup": "act",
    "inventory": "act",
    "health": "health",
    "publish": "publish",
    "orders": "publish",
    "obey": "act",
}
# The store may hang for as long as it likes: whoever waits for it must not look like a hung daemon.
PINGING_LOOPS = ("act", "health")
# A burst of renames is one look at the queue, and looking takes a twentieth of the time at most: a broker that deletes
# topics by the thousand hints all day.
HINT_MS, MOST_HINT_MS = 1_000, 15_000
HINT_SHARE = 20
# Another one of us is acting, or the journal cannot be written: the next try.
BUSY_RETRY_MS = 5_000
ERROR_RETRY_MS = 60_000
# How often to look for newly marked directories where inotify does not tell.
POLL_MS = 30_000
PUBLISH_RETRY_MS = 300_000


class Daemon:
    """The decisions of one daemon, over its `Jobs`. `load` reads the configuration again (raises ConfigError)."""

    def __init__(
        self,
        config: RunConfig,
        *,
        load: Callable[[], RunConfig],
        jobs: Jobs,
        control: Control,
        clock: Clock,
        scheduler: Scheduler,
        lines: LogLines,
        notifier: Notifier,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config
        self.control = control
        self.clock = clock
        self.scheduler = scheduler
        self.events = lines.events
        self.notifier = notifier
        self.lines = lines
        self.status_code: Exit | None = None
        self.started_ms = clock.now_ms()
        self.last: dict[str, CycleSummary] = {}
        self.last_health: HealthSummary | None = None
        self.last_publish: PublishSummary | None = None
        self._load = load
        self._jobs = jobs
        self._wake = wake
        self._hinted = False
        self._reloader = Reloader(self.reload_now, self.notifier.reloading, self.events)
        self.loops = {name: Loop(name, self.run_job, clock.monotonic) for name in ("act", "health", "publish")}
        control.beat = self.loops["act"].beat

    # Ticks

    def post(self, job: str) -> None:
        """Have `job` done as soon as its loop has time; what waits already is not queued twice."""
        self.loops[LOOP_OF[job]].post(job)

    def hint(self, log_dir: str, name: str) -> None:
        """inotify saw a directory get this name: a marked one brings the next look at the queue forward."""
        if name.endswith("-delete") and not self._hinted:
            self._hinted = True
            now, last = self.clock.now_ms(), self.last.get("queue")
            took = round(last.seconds * 1000) if last is not None else 0
            rested = last.started_ms + (1 + HINT_SHARE) * took if last is not None else now
            wait = min(max(HINT_MS, rested - now), MOST_HINT_MS)
            self.scheduler.at("hint", now + wait, self._tick_hint)

    def watch_changed(self) -> None:
        """inotify covers other log dirs than before. Where it does not, the queue is looked at now and then."""
        unwatched = self._jobs.unwatched()
        self.lines.watch(self.config.target.log_dirs, unwatched)
        if unwatched:
            self._arm_queue(self.last.get("queue"))

    def _tick_hint(self) -> None:
        self._hinted = False
        self.post("queue")

    def _tick_publish(self) -> None:
        if self._jobs.want_snapshot():
            self.post("inventory")

    def schedule(self, *, first: bool) -> None:
        """Set the intervals of the present configuration; at the start everything is due at once."""
        s, now = self.config.settings, self.clock.now_ms()
        for name, interval, jitter, tick in (
            ("cleanup", s.cleanup.interval, 0, lambda: self.post("cleanup")),
            ("health", s.health.probe_interval, 0, lambda: self.post("health")),
            ("publish", s.publish.interval, s.publish.interval // 10, self._tick_publish),
        ):
            coming = self.scheduler.next_ms(name)
            at = now + interval if coming is None else min(coming, now + interval)
            self.scheduler.every(name, interval, tick, first_ms=at, jitter_ms=jitter)
        if self._jobs.takes_orders():
            self.scheduler.every(
                "orders",
                s.orders.interval,
                lambda: self.post("orders"),
                first_ms=now,
                jitter_ms=s.orders.interval // 10,
            )
        else:
            self.scheduler.cancel("orders")
        if first:
            self._jobs.want_snapshot()
            for job in ("health", "queue", "cleanup"):
                self.post(job)

    # Jobs

    def run_job(self, job: str) -> None:
        """Do one job, in the thread of its loop. A bug in it is said, and the loop goes on."""
        try:
            if job == "health":
                self._after_health(self._jobs.health())
            elif job == "publish":
                self._after_publish(self._jobs.publish())
            elif job == "orders":
                self._orders()
            else:
                self.control.interrupted = False
                run = {"queue": self._jobs.queue, "cleanup": self._jobs.cleanup, "inventory": self._jobs.inventory,
                       "obey": self._jobs.obey}  # fmt: skip
                self._after_cycle(run[job]())
        except CycleAborted:
            pass
        except Exception as e:
            if self.events.changed(("internal-error", job), repr(e)):
                trace = traceback.format_exc()
                self.events.say("internal-error", "error", job=job, error=repr(e), traceback=trace)
            if LOOP_OF[job] == "act":
                # Whatever it was about to arm is not armed.
                self.scheduler.at("queue", self.clock.now_ms() + ERROR_RETRY_MS, lambda: self.post("queue"))

    def _after_cycle(self, s: CycleSummary) -> None:
        self.last[s.job] = s
        self.lines.cycle(s)
        now = self.clock.now_ms()
        if s.error is not None:
            wait = BUSY_RETRY_MS if s.error_slug == "busy" else ERROR_RETRY_MS
            self.scheduler.at(f"{s.job} again", now + wait, lambda: self.post(s.job))
            return
        if s.job == "queue" and s.needs_approval is not None and self.events.changed("queue-plan", s.needs_approval):
            # Only the plan of a whole cycle can be approved by its id.
            self.post("cleanup")
        if s.job == "obey":
            self.post("orders")
        elif s.job != "inventory":
            self._arm_queue(s)

    def _arm_queue(self, s: CycleSummary | None) -> None:
        """The one-shot of the delete queue, for its next head. An empty queue waits for a hint, where hints come."""
        now = self.clock.now_ms()
        moments = [s.next_due_ms] if s is not None and s.next_due_ms is not None else []
        if self._jobs.unwatched():
            moments.append(now + POLL_MS)
        if moments:
            self.scheduler.at("queue", max(min(moments), now + 1), lambda: self.post("queue"))
        else:
            self.scheduler.cancel("queue")

    def _after_health(self, s: HealthSummary) -> None:
        back = self._came_back(s)
        self.last_health = s
        self.lines.health(s)
        if back:
            self._jobs.came_back(back)
            self.post("cleanup")
        if s.log_dirs and len(s.offline) == len(s.log_dirs) and self.config.settings.health.on_all_offline == "halt":
            self.events.say("halted", "error", reason="all log dirs are offline, and health.on_all_offline is halt")
            self.end(Exit.HALTED)

    def _orders(self) -> None:
        """Look for orders, and obey what is new, or what could not be done before, for a twentieth of the time."""
        found = self._jobs.orders()
        last, now = self.last.get("obey"), self.clock.now_ms()
        pause = max(self.config.settings.orders.interval, HINT_SHARE * round(last.seconds * 1000)) if last else 0
        rested = last is None or now >= last.started_ms + pause
        if found == "new" or (found == "standing" and rested):
            self.post("obey")

    def _came_back(self, s: HealthSummary) -> set[str]:
        before = set(self.last_health.offline) if self.last_health is not None else set()
        return before - set(s.offline)

    def _after_publish(self, s: PublishSummary | None) -> None:
        if s is None:
            return
        self.last_publish = s
        self.lines.publish(s)
        if s.error is not None and s.waiting:
            wait = min(PUBLISH_RETRY_MS, self.config.settings.publish.interval)
            self.scheduler.at("publish again", self.clock.now_ms() + wait, lambda: self.post("publish"))

    # Start, reload, end

    def start(self) -> None:
        self.schedule(first=True)
        self.scheduler.start()
        for loop in self.loops.values():
            loop.start()
        self.notifier.ready(self._summary())

    def _summary(self) -> str:
        dirs = len(self.config.target.log_dirs)
        return f"{self.config.settings.cleanup.mode}, {dirs} log dir{'s' if dirs != 1 else ''}"

    def reload(self) -> None:
        """Read the configuration again, in a thread of its own."""
        self._reloader.reload()

    @property
    def reloading(self) -> bool:
        return self._reloader.running

    def reload_now(self) -> None:
        """Read the configuration and take it up, or keep the present one and say why."""
        try:
            config = self._load()
            changes = changed_keys(self.config, config)
            self._jobs.configure(config)
        except LogAgentError as e:
            problems = e.problems if isinstance(e, ConfigError) and e.problems else (str(e),)
            self._jobs.reload_failed()
            self.events.say("reload-failed", "error", kept="the running configuration", problems="; ".join(problems))
        else:
            self.config = config
            self.events.say("reloaded", file=config.file, changed=", ".join(changes) or "nothing")
            self._take_up(changes)
        finally:
            self.notifier.ready(self._summary())

    def _take_up(self, changes: list[str]) -> None:
        if not changes:
            return
        self.schedule(first=False)
        # A removal under way goes by the old rules (mode, budget): it ends at the present file and is taken up anew.
        running = self.loops["act"].job
        self.control.interrupted = running is not None
        self.post("queue")
        if running is not None or "log dirs" in changes:
            self.post("cleanup")

    def end(self, status: Exit = Exit.OK) -> None:
        """Begin to end with `status` (the first one counts); from any thread."""
        if self.status_code is None:
            self.status_code = status
        self.control.stopping = True
        self._wake()

    def finish(self, seconds: float) -> bool:
        """Wait for the acting loop to reach the end of its present file, `seconds` at most: whether it did."""
        self.control.stopping = True
        self.notifier.stopping()
        self.scheduler.shutdown()
        for loop in self.loops.values():
            loop.end()
        ended = self.loops["act"].join(seconds)
        self._jobs.close()
        return ended

    # Signs of life

    def is_alive(self, limit_seconds: float) -> bool:
        """Whether every loop that must not hang has given a sign of life within the limit, and the ticks still come (a
        loop that nobody gives anything to do looks healthy)."""
        ticks = self.loops["health"].idle_seconds() < limit_seconds + self.config.settings.health.probe_interval / 1000
        return ticks and all(self.loops[name].silent_seconds() < limit_seconds for name in PINGING_LOOPS)

    def clock_was_set(self) -> None:
        """The wall clock jumped: what waits for a moment of it may have been put off by as much."""
        self.scheduler.clock_was_set()
        self._hinted = False
        self.post("queue")
