"""The daemon: decides which job runs when and in which loop, and what follows from its result. `host_jobs` does the
jobs.

Threads. The main thread handles signals, talks to systemd (`sd_notify(3)`) and waits; it touches no log dir. Three
loops work: `act` (the cycles, one after the other), `health` (probes) and `publish` (the fleet store); none of them
waits for another. The scheduler's thread only puts names into their queues. The timetable, and what follows a cycle,
are decided here with the clock and the scheduler that were passed in, so that a test can run through a day in
milliseconds.

Reloads of the configuration, one at a time, in a separate thread because they touch paths, which may hang.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping

from logagent.base.clock import Clock
from logagent.base.errors import ConfigError, Exit, LogAgentError
from logagent.kafka.processes.target import refuse_switch
from logagent.service.daemon.cycles import CycleAborted
from logagent.service.daemon.scheduling import (
    HINT_SHARE,
    Jobs,
    Loop,
    LoopControl,
    RunConfig,
    Scheduler,
    Timetable,
    changed_keys,
)
from logagent.service.events import Events, LogLines
from logagent.service.summary import CycleSummary, HealthSummary, PublishSummary


class Notifier:
    """`NOTIFY_SOCKET` and `WATCHDOG_USEC` of `environ`. Sending never waits and never fails, even if nobody listens."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environ.get("WATCHDOG_USEC", "")
        self.watchdog_seconds: float | None = int(usec) / 1e6 if for_us and usec.isdecimal() and int(usec) else None

    def send(self, **fields: str) -> None:
        if not self._address.startswith(("/", "\0")):
            return
        message = "\n".join(f"{key}={value}" for key, value in fields.items()).encode("utf-8", "surrogateescape")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as s:
                s.sendto(message, self._address)
        except OSError:
            pass  # nobody listens; systemd's own timeouts see to the rest

    def ready(self, status: str) -> None:
        self.send(READY="1", STATUS=status)

    def status(self, status: str) -> None:
        self.send(STATUS=status)

    def reloading(self) -> None:
        """Must be followed by `ready` (systemd.service(5), `Type=notify-reload`)."""
        self.send(RELOADING="1", MONOTONIC_USEC=str(time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000))

    def stopping(self) -> None:
        self.send(STOPPING="1")

    def ping(self) -> None:
        self.send(WATCHDOG="1")


class Reloader:
    """Calls `reload_now`. `announce` tells systemd that a reload starts."""

    def __init__(self, reload_now: Callable[[], None], announce: Callable[[], None], events: Events) -> None:
        self._reload_now = reload_now
        self._announce = announce
        self._events = events
        self._thread: threading.Thread | None = None
        self._again = False
        self._mutex = threading.Lock()

    def reload(self) -> None:
        """Start a reload. If one is under way (and may have read its file already), another one follows it. Raises
        RuntimeError if there is no thread for it."""
        with self._mutex:
            if self._thread is not None:
                if not self._again:
                    self._events.say("reload-queued", reason="an earlier reload is still running")
                self._again = True
                return
            self._thread = threading.Thread(target=self._run, name="logagent-reload", daemon=True)
        self._announce()
        try:
            self._thread.start()
        except RuntimeError:
            with self._mutex:
                self._thread = None
            raise

    @property
    def running(self) -> bool:
        return self._thread is not None

    def _run(self) -> None:
        while True:
            try:
                self._reload_now()
            except Exception as e:
                self._events.say(
                    "internal-error", "error", job="reload", error=repr(e), traceback=traceback.format_exc()
                )
            with self._mutex:
                if not self._again:
                    self._thread = None
                    return
                self._again = False
            self._announce()


LOOP_OF = {
    "queue": "act",
    "cleanup": "act",
    "inventory": "act",
    "health": "health",
    "publish": "publish",
    "look-for-requests": "publish",
    "requests": "act",
}
# The store may hang indefinitely; a loop that waits for it must not make the daemon count as hung.
PINGING_LOOPS = ("act", "health")
# When to try again while another logagent acts or the journal cannot be written.
BUSY_RETRY_MS = 5_000
ERROR_RETRY_MS = 60_000
PUBLISH_RETRY_MS = 300_000


class Daemon:
    """The decisions of one daemon, over its `Jobs`. `load` reads the configuration again (raises ConfigError)."""

    def __init__(
        self,
        config: RunConfig,
        *,
        load: Callable[[], RunConfig],
        jobs: Jobs,
        control: LoopControl,
        clock: Clock,
        scheduler: Scheduler,
        lines: LogLines,
        notifier: Notifier,
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
        # The jobs that ended without a result, and when and why, until they end well.
        self.failed: dict[str, tuple[int, str]] = {}
        # When and why the last reload was not taken.
        self.reload_problem: tuple[int, str] | None = None
        self._load = load
        self._jobs = jobs
        self._timetable = Timetable(scheduler, clock, jobs, self.post)
        self._reloader = Reloader(self.reload_now, self.notifier.reloading, self.events)
        self.loops = {name: Loop(name, self.run_job, clock.monotonic) for name in ("act", "health", "publish")}
        control.beat = self.loops["act"].beat

    # Ticks

    def post(self, job: str) -> None:
        """Queue `job` for its loop; a job that is already queued is not queued twice."""
        self.loops[LOOP_OF[job]].post(job)

    def hint(self, log_dir: str, name: str) -> None:
        """inotify saw a directory get this name: if it is marked, the queue is read earlier."""
        if name.endswith("-delete"):
            self._timetable.hint(self.last.get("queue"))

    def watch_changed(self) -> None:
        """The set of log dirs covered by inotify has changed. If one is not covered, the queue is polled."""
        unwatched = self._jobs.unwatched()
        self.lines.watch(self.config.target.log_dirs, unwatched)
        if unwatched:
            self._timetable.arm_queue(self.last.get("queue"))

    def schedule(self, *, first: bool) -> None:
        """Set the intervals of the current configuration; at the start everything is due at once."""
        self._timetable.set_intervals(self.config.settings)
        if first:
            self._jobs.want_snapshot()
            for job in ("health", "queue", "cleanup"):
                self.post(job)

    # Jobs

    def run_job(self, job: str) -> None:
        """Do one job, in the thread of its loop. A bug in it is logged, and the loop goes on."""
        try:
            if job == "health":
                self._after_health(self._jobs.health())
            elif job == "publish":
                self._after_publish(self._jobs.publish())
            elif job == "look-for-requests":
                self._requests()
            else:
                self.control.interrupted = False
                self._after_cycle(self._jobs.cycle(job))
            self.failed.pop(job, None)
            self.events.changed(("internal-error", job), None)
        except CycleAborted:
            pass  # only the daemon's end raises it, while nothing has been done yet
        except Exception as e:
            self.failed[job] = self.clock.now_ms(), repr(e)
            if self.events.changed(("internal-error", job), repr(e)):
                trace = traceback.format_exc()
                self.events.say("internal-error", "error", job=job, error=repr(e), traceback=trace)
            if LOOP_OF[job] == "act":
                # It may not have set the next timer.
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
            # Only the plan of a full cycle can be approved by its id.
            self.post("cleanup")
        if s.job == "requests":
            self.post("look-for-requests")
        elif s.job != "inventory":
            self._timetable.arm_queue(s)

    def _after_health(self, s: HealthSummary) -> None:
        before = set(self.last_health.offline) if self.last_health is not None else set()
        back = before - set(s.offline)
        self.last_health = s
        self.lines.health(s)
        if back:
            self._jobs.recovered_log_dirs(back)
            self.post("cleanup")
        if s.log_dirs and len(s.offline) == len(s.log_dirs) and self.config.settings.health.on_all_offline == "halt":
            self.events.say("halted", "error", reason="all log dirs are offline, and health.on_all_offline is halt")
            self.end(Exit.HALTED)

    def _requests(self) -> None:
        """Read the requests and carry out new ones; try again what could not be done before, for at most a twentieth of
        the time."""
        requests = self._jobs.requests()
        last, now = self.last.get("requests"), self.clock.now_ms()
        pause = max(self.config.settings.orders.interval, HINT_SHARE * round(last.seconds * 1000)) if last else 0
        rested = last is None or now >= last.started_ms + pause
        if requests == "new" or (requests == "open" and rested):
            self.post("requests")

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
        """Read the configuration again, in a separate thread."""
        try:
            self._reloader.reload()
        except RuntimeError as e:
            self._reload_failed(f"{e} to read it in; send SIGHUP again")
            self.notifier.ready(self._summary())

    @property
    def reloading(self) -> bool:
        return self._reloader.running

    def reload_now(self) -> None:
        """Read the configuration and apply it, or keep the current one and say why."""
        try:
            config = self._load()
            refuse_switch(self.config.target.log_dirs, config.target)
            changes = changed_keys(self.config, config)
            self._jobs.configure(config)
        except LogAgentError as e:
            problems = e.problems if isinstance(e, ConfigError) and e.problems else (str(e),)
            self._reload_failed("; ".join((*problems, e.hint) if e.hint else problems))
        else:
            self.config, self.reload_problem = config, None
            self.events.say("reloaded", file=config.file, changed=", ".join(changes) or "nothing")
            self._apply(changes)
        finally:
            self.notifier.ready(self._summary())

    def _reload_failed(self, problems: str) -> None:
        self.reload_problem = self.clock.now_ms(), problems
        self._jobs.reload_failed()
        self.events.say("reload-failed", "error", kept="the running configuration", problems=problems)

    def _apply(self, changes: list[str]) -> None:
        if not changes:
            return
        self.schedule(first=False)
        # A removal under way follows the old settings (mode, budget): it stops after the current file and is started
        # again.
        running = self.loops["act"].job
        self.control.interrupted = running is not None
        self.post("queue")
        if running is not None or "log dirs" in changes:
            self.post("cleanup")

    def end(self, status: Exit = Exit.OK) -> None:
        """Start shutting down with exit `status` (the first one counts). May be called from any thread."""
        if self.status_code is None:
            self.status_code = status
        self.control.stopping = True
        self.control.wake()

    def finish(self, seconds: float) -> bool:
        """Wait at most `seconds` for the acting loop to finish its current file; whether it did."""
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
        """Whether every loop that must not hang has shown a sign of life within the limit, and ticks still arrive (a
        loop without work counts as healthy)."""
        ticks = self.loops["health"].idle_seconds() < limit_seconds + self.config.settings.health.probe_interval / 1000
        return ticks and all(self.loops[name].silent_seconds() < limit_seconds for name in PINGING_LOOPS)

    def clock_was_set(self) -> None:
        """The wall clock jumped: timers that wait for a wall clock time may have been delayed by as much."""
        self._timetable.clock_was_set()
        self.post("queue")
