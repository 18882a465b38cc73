"""`logagent run`: the daemon's process: signals, systemd, its status (`logagent.status/1`), and its shutdown."""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import IO, Any, Literal

import click

from logagent import __version__
from logagent.base.clock import Clock, SystemClock
from logagent.base.config.config import Loaded
from logagent.base.config.config import load as load_settings
from logagent.base.console.options import Call, common, reads_assignments
from logagent.base.console.render import dump
from logagent.base.errors import Exit, Halted
from logagent.base.linux.access import Child, work_in_child
from logagent.base.linux.kernel import share_one_arena
from logagent.base.linux.state_dir import LogDirSeen, prepare_state_dir, stat_directory
from logagent.base.units import rfc3339, rfc3339_or_none
from logagent.cleanup.session.of_command import needs_log_dirs, unusable_file
from logagent.cleanup.state.executor_lock import ExecutorLock
from logagent.kafka.processes.broker_process import BrokerProcess
from logagent.kafka.processes.target import named_target
from logagent.service.daemon.daemon import Daemon, Notifier
from logagent.service.daemon.host_jobs import DirWatch, HostJobs
from logagent.service.daemon.scheduling import ApsScheduler, LoopControl, RunConfig
from logagent.service.events import Events, Format, LogLines
from logagent.service.status.command import StatusServer
from logagent.service.summary import CycleSummary
from logagent.verdict.evidence.assignment_sources import log_doubt_row
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
            try:
                while os.read(self._wake_r, 4096):
                    pass
            except BlockingIOError:
                pass  # it is empty
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
    doubt = None if a.log_doubt is None else log_doubt_row(a.log_doubt)
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
        "refused_because": [{"guard": g, "fact": r.fact, "hint": r.hint} for g, r in sorted(s.refused_because.items())],
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


DAEMON_LOCK = "daemon.lock"
_LOADING_SECONDS = 60.0


@click.command()
@click.option("--once", is_flag=True, help="Do what is due now, then exit.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Format of the log lines.")
@reads_assignments
@common
@needs_log_dirs
def run(call: Call, once: bool, log_format: Literal["text", "json"]) -> None:
    """Watch the log dirs, remove what is due from the delete queue, clean up every cleanup.interval.

    Log lines go to stderr; --json prints the state at the end, as `status --json` does. SIGTERM stops it at the next
    file, SIGHUP reloads the configuration.
    """
    share_one_arena()
    # The configuration is about to be read: a reload this early has nothing to do, and must not kill the daemon.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    clock = SystemClock()
    config = load(call)
    state_dir = call.state_dir
    prepare_state_dir(state_dir, answering(config))
    with ExecutorLock(
        state_dir, "logagent run", wait_seconds=0, monotonic=clock.monotonic, sleep=clock.sleep, name=DAEMON_LOCK
    ):
        running = Running(
            config,
            load=lambda: load(call, reread=True),
            state_dir=state_dir,
            clock=clock,
            out=sys.stderr,
            form=log_format,
            host=call.host,
        )
        status = running.once() if once else running.stay(signal.SIGTERM, signal.SIGINT, reload=signal.SIGHUP)
        if call.json:
            dump(running.status())
    if status is Exit.HALTED:
        raise Halted("all log dirs are offline", hint="logagent check says why; health.on_all_offline can make it wait")
    call.record_status(status)
    cleanup = running.daemon.last.get("cleanup")
    if once and cleanup is not None and not cleanup.assignments.usable:
        # A daemon waits for a file that does not exist yet; this is a single command, which did nothing without it.
        unusable = unusable_file(call, [cleanup.assignments.problem or ""])
        if unusable is not None:
            raise unusable


def answering(config: RunConfig) -> dict[str, LogDirSeen | None]:
    """What the log dirs are now: a disk that already hangs must not keep the daemon from starting.

    Each is read by a child. A thread would do unless started as root: `setresuid` waits for every thread, and a
    thread stuck in a call to a dead disk never answers.
    """
    paths = config.target.log_dirs
    children = {path: Child(partial(_pickled, path)) for path in paths}
    deadline = time.monotonic() + config.settings.health.probe_timeout / 1000
    statuses: dict[str, LogDirSeen | None] = dict.fromkeys(paths)
    for path, child in children.items():
        with suppress(OSError):  # TimeoutError is one, too
            statuses[path] = pickle.loads(child.answer(max(0.0, deadline - time.monotonic())))
    return statuses


def _pickled(path: str) -> bytes:
    return pickle.dumps(stat_directory(path))


def load(call: Call, *, reread: bool = False) -> RunConfig:
    """The configuration to run with. Raises ConfigError. `reread`: from the files as they are now."""
    call.loaded_settings = None if reread else _loaded_in_child(call.config_file)
    settings = call.settings()
    loaded = call.loaded_settings
    return RunConfig(settings, named_target(settings, call.log_dirs), loaded.file if loaded is not None else None)


def _loaded_in_child(file: str | None) -> Loaded:
    """The settings, read by a child that takes pydantic with it when it ends: 6 MB for as long as the daemon lives. A
    reload comes when there are threads, and no fork should read files beside them: it imports pydantic here."""
    try:
        return work_in_child(partial(load_settings, file), _LOADING_SECONDS)
    except OSError:  # there is no process to be had, or the disk is slow
        return load_settings(file)
