"""The daemon's process: signals, systemd, its status (`logagent.status/1`), and its shutdown."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import IO, Any

from logagent import __version__
from logagent.base.clock import Clock
from logagent.base.errors import Exit
from logagent.base.times import rfc3339, rfc3339_or_none
from logagent.kafka.processes.broker_process import BrokerProcess
from logagent.service.daemon.daemon import Daemon
from logagent.service.daemon.host_jobs import HostJobs
from logagent.service.daemon.log_lines import LogLines
from logagent.service.daemon.scheduling import ApsScheduler, LoopControl, RunConfig
from logagent.service.daemon.sd_notify import Notifier
from logagent.service.daemon.watch import DirWatch
from logagent.service.events import Events, Format
from logagent.service.status.socket import StatusServer
from logagent.service.summary import CycleSummary
from logagent.verdict.evidence.version_seen import forget_other_log_dirs

# Five seconds from the signal to the exit, whatever hangs: this much for the acting loop, the rest for everything else.
END_SECONDS = 3.0
# How often the main thread wakes up to check whether the clock was set; for the watchdog it wakes at half its limit.
WAKE_SECONDS = 10.0
# A busy loop counts as hung after being silent for this many times the watchdog's limit: single calls may be slow.
SILENT_LIMITS = 3.0
_CLOCK_SET_SECONDS = 5.0


class Running:
    """One daemon as a process."""

    def __init__(
        self,
        config: RunConfig,
        *,
        load: Callable[[], RunConfig],
        state_dir: str,
        clock: Clock,
        out: IO[str],
        form: Format,
        host: str,
    ) -> None:
        self._clock = clock
        self._state_dir = state_dir
        self._host = host
        self.events = Events(out, clock.now_ms, form)
        self.events.adopt_logging()
        self.notifier = Notifier(os.environ)
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        control, lines = LoopControl(wake=self._wake), LogLines(self.events)
        self.jobs = HostJobs(config, control=control, clock=clock, state_dir=state_dir, lines=lines, host=host)
        self.daemon = Daemon(
            config,
            load=load,
            jobs=self.jobs,
            control=control,
            clock=clock,
            scheduler=ApsScheduler(),
            lines=lines,
            notifier=self.notifier,
        )
        self._reload = False

    def once(self) -> Exit:
        """One round of everything, in this thread."""
        daemon = self.daemon
        self.jobs.open(daemon.post, None)
        self.jobs.want_snapshot()
        for job in ("health", "cleanup", "publish"):
            daemon.run_job(job)
        if self.jobs.requests() is not None or self.jobs.has_decisions():
            daemon.run_job("requests")
            self.jobs.requests()  # writes the answers
        self.jobs.close()
        s, carried_out, health = daemon.last.get("cleanup"), daemon.last.get("requests"), daemon.last_health
        if daemon.failed or s is None or s.error is not None or any(outcome == "failed" for _, outcome in s.results):
            return Exit.FAILED
        if carried_out is not None and carried_out.error is not None:
            return Exit.FAILED
        if s.needs_approval is not None:
            return Exit.APPROVAL
        return daemon.status_code or (Exit.OFFLINE if health is not None and health.offline else Exit.OK)

    def stay(self, *end: signal.Signals, reload: signal.Signals) -> Exit:
        """Run until one of the signals in `end`; the signal `reload` reads the configuration again. Only in the main
        thread."""
        before = {number: signal.signal(number, self._on_end) for number in end}
        before[reload] = signal.signal(reload, self._on_reload)
        # Also wakes `select` if Python handles a signal just before it waits.
        old_fd = signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        try:
            return self._stay()
        finally:
            signal.set_wakeup_fd(old_fd)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stay(self) -> Exit:
        daemon, config = self.daemon, self.daemon.config
        self.events.say(
            "started",
            mode=config.settings.cleanup.mode,
            log_dirs=len(config.target.log_dirs),
            kafka_config=config.target.config,
            config=config.file,
            state_dir=self._state_dir,
            pid=os.getpid(),
        )
        if config.target.config is not None:
            gone = forget_other_log_dirs(self._state_dir, config.target.log_dirs)
            if gone:
                why = f"{config.target.config} does not name them any more, and this is a restart"
                self.events.say("log-dirs-forgotten", "warning", log_dirs=", ".join(gone), reason=why)
        server = self._serve_status()
        self.jobs.open(daemon.post, DirWatch(daemon.hint, daemon.watch_changed))
        daemon.start()
        self._wait()
        started = time.monotonic()
        ended = daemon.finish(END_SECONDS)
        if server is not None:
            server.close()
        self.events.say("stopped", seconds=time.monotonic() - started, in_time=ended)
        return daemon.status_code or Exit.OK

    def _wait(self) -> None:
        watchdog = self.notifier.watchdog_seconds
        every = min(WAKE_SECONDS, watchdog / 2) if watchdog is not None else WAKE_SECONDS
        limit = SILENT_LIMITS * (watchdog if watchdog is not None else 60.0)
        drift = self._drift()
        while self.daemon.status_code is None:
            select.select([self._wake_r], [], [], every)
            self._drain()
            if self._reload:
                self._reload = False
                self.daemon.reload()
            now_drift = self._drift()
            if abs(now_drift - drift) > _CLOCK_SET_SECONDS:
                self.events.say("clock-jumped", "warning", seconds=now_drift - drift)
                self.daemon.clock_was_set()
                drift = now_drift
            if self.daemon.is_alive(limit):
                self.notifier.ping()
            elif self.events.changed("loop-stalled", True):
                loops = ",".join(name for name, loop in self.daemon.loops.items() if loop.silent_seconds() >= limit)
                self.events.say(
                    "loop-stalled", "error", loops=loops or "none: the main loop does not tick", seconds=limit
                )

    def _drift(self) -> float:
        """The wall clock compared with one that nobody sets (and that goes on while the host sleeps)."""
        return self._clock.now_ms() / 1000 - self._clock.boottime()

    def _drain(self) -> None:
        try:
            while os.read(self._wake_r, 4096):
                pass
        except BlockingIOError:
            pass  # it is empty

    def _wake(self) -> None:
        try:
            os.write(self._wake_w, b"x")
        except BlockingIOError:
            pass  # it is awake already

    def _on_end(self, number: int, frame: FrameType | None) -> None:
        self.daemon.end()

    def _on_reload(self, number: int, frame: FrameType | None) -> None:
        self._reload = True

    def _serve_status(self) -> StatusServer | None:
        try:
            return StatusServer(self._state_dir, self.status)
        except (OSError, RuntimeError) as e:
            why = getattr(e, "strerror", None) or e
            self.events.say("no-status", "warning", reason=f"cannot create the status socket: {why}")
            return None

    def status(self) -> dict[str, Any]:
        """`logagent.status/1`."""
        return status_document(self.daemon, self.jobs.status(), self._clock.now_ms(), self._host, self._state_dir)


_JOBS = ("cleanup", "queue", "health", "publish")


def status_document(daemon: Daemon, work: dict[str, Any], now_ms: int, host: str, state_dir: str) -> dict[str, Any]:
    config = daemon.config
    cleanup = daemon.last.get("cleanup") or daemon.last.get("inventory")
    latest = max(list(daemon.last.values()), key=lambda s: s.started_ms, default=None)
    return {
        "schema": "logagent.status/1",
        "at": rfc3339(now_ms),
        "host": host,
        "agent_version": __version__,
        "pid": os.getpid(),
        "started_at": rfc3339(daemon.started_ms),
        "state_dir": state_dir,
        "mode": config.settings.cleanup.mode,
        "config": config.file,
        "kafka_config": config.target.config,
        "log_dirs": _log_dirs(daemon, work),
        "brokers": [_broker(b) for b in work.get("brokers", ())],
        "queue": _queue(latest),
        "assignments": _assignments(cleanup),
        "clock_doubt": latest.clock_doubt if latest is not None else None,
        "open_exchanges": list(cleanup.open_exchanges) if cleanup is not None else [],
        "cycles": [_cycle(s) for _, s in sorted(dict(daemon.last).items())],
        "failed": [
            {"job": job, "at": rfc3339(at), "error": why} for job, (at, why) in sorted(dict(daemon.failed).items())
        ],
        "reload_failed": None
        if daemon.reload_problem is None
        else {"at": rfc3339(daemon.reload_problem[0]), "error": daemon.reload_problem[1]},
        "running": daemon.loops["act"].job,
        "next": {job: rfc3339_or_none(daemon.scheduler.next_ms(job)) for job in _JOBS},
        "publish": _publish(daemon),
    }


def _log_dirs(daemon: Daemon, work: dict[str, Any]) -> list[dict[str, Any]]:
    health = {d.path: d for d in (daemon.last_health.log_dirs if daemon.last_health is not None else ())}
    watch = work["watch"]
    rows = []
    for path in daemon.config.target.log_dirs:
        d = health.get(path)
        rows.append(
            {
                "path": path,
                "health": d.health.value if d is not None else None,
                "reason": d.reason if d is not None else None,
                "since": rfc3339(d.since_ms) if d is not None else None,
                "probe_ms": d.probe_ms if d is not None else None,
                "watch": "inotify" if watch.get(path) is None else "polling",
                "watch_problem": watch.get(path),
            }
        )
    return rows


def _broker(b: BrokerProcess) -> dict[str, Any]:
    return {
        "pid": b.pid,
        "start_time": rfc3339(b.start_time_ms),
        "user": b.user,
        "command": b.short_command,
        "cpu_seconds": b.cpu_seconds,
        "resident_bytes": b.resident_bytes,
        "read_bytes": b.read_bytes,
        "written_bytes": b.write_bytes,
        "open_files": b.open_files,
        "open_files_limit": b.open_files_limit,
    }


def _queue(s: CycleSummary | None) -> dict[str, Any] | None:
    if s is None or s.error is not None:
        return None
    oldest = [q.oldest_marked_ms for q in s.queues.values() if q.oldest_marked_ms is not None]
    return {
        "entries": sum(q.entries for q in s.queues.values()),
        "bytes": sum(q.bytes for q in s.queues.values()),
        "oldest_marked_at": rfc3339_or_none(min(oldest, default=None)),
        "next_due_at": rfc3339_or_none(s.next_due_ms),
    }


def _assignments(s: CycleSummary | None) -> dict[str, Any] | None:
    if s is None:
        return None
    a = s.assignments
    doubt = None if a.log_doubt is None else a.log_doubt._asdict()
    at = rfc3339_or_none(a.at_ms)
    return {"source": a.source, "at": at, "usable": a.usable, "problem": a.problem, "log_doubt": doubt}


def _cycle(s: CycleSummary) -> dict[str, Any]:
    return {
        "job": s.job,
        "started_at": rfc3339(s.started_ms),
        "seconds": s.seconds,
        "plan_id": s.plan_id,
        "planned": s.planned,
        "results": [{"action": a, "outcome": o, "dirs": n} for (a, o), n in sorted(s.results.items())],
        "refusals": dict(sorted(s.refusals.items())),
        "refused_because": [{"guard": g, "fact": f, "hint": h} for g, (f, h) in sorted(s.refused_because.items())],
        "waiting": s.waiting,
        "freed_bytes": s.freed_bytes,
        "needs_approval": s.needs_approval,
        "error": s.error,
    }


def _publish(daemon: Daemon) -> dict[str, Any] | None:
    s = daemon.last_publish
    if s is None:
        return None
    return {
        "at": rfc3339(s.at_ms),
        "last_sent_at": rfc3339_or_none(s.last_sent_ms),
        "waiting": s.waiting,
        "waiting_bytes": s.waiting_bytes,
        "dropped": s.dropped,
        "error": s.error,
    }
