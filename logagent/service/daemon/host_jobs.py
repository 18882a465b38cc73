"""What the daemon's loops do on a real host, one method per job: cycles, probes and publishing.

The probes, round by round, detect a failing disk, and bring its log dir back when the disk is good again.

`DirWatch`: inotify on the log dirs, as a hint that something was marked for deletion. The scan is the truth. Events get
lost in bursts, and a log dir that is renamed away or unmounted sends none; so a hint only makes the next look come
earlier, and nothing depends on it. Not recursive (a watch per partition would drown in appends), directory events
only. Adding a watch follows a path, which can hang on a dead disk: a separate thread does it, and until it is done the
log dirs count as not watched.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from logagent.base.clock import Clock
from logagent.base.config.settings import PublishSettings, Settings
from logagent.base.errors import LogAgentError
from logagent.base.records import Health, Identity
from logagent.cleanup.plan.plan import Plan
from logagent.cleanup.session.session import Session
from logagent.disk.bounded_calls import BoundedCalls, Task
from logagent.disk.calls import DirectCalls, DiskCalls
from logagent.disk.health import LockFacts, LogDirState, ProbedLogDir, ProbeOutcome, given_up, next_state
from logagent.disk.holders import open_lock_files, shares_our_mounts
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.probe import Prober, Visit
from logagent.disk.scan import LogDirInventory, scan_log_dir
from logagent.kafka.processes.broker_process import BrokerProcess, inspect_process
from logagent.kafka.processes.target import Target
from logagent.service.daemon.cycles import Cycles
from logagent.service.daemon.scheduling import LoopControl, RunConfig
from logagent.service.events import Events, LogLines
from logagent.service.metrics_server import MetricsOutput
from logagent.service.summary import CycleSummary, HealthSummary, LogDirSummary, PublishSummary
from logagent.verdict.facts import Facts

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent
    from watchdog.observers.api import BaseObserver, ObservedWatch

    from logagent.deletion.agent.node_requests import NodeRequests
    from logagent.service.publish import Publisher


_LIMITS = {
    errno.ENOSPC: "the limit of inotify watches is reached (sysctl fs.inotify.max_user_watches)",
    errno.EMFILE: "the limit of inotify instances is reached (sysctl fs.inotify.max_user_instances)",
}


class DirWatch:
    """Calls `hint(log_dir, name)` when a directory appears in a log dir or gets a name there.

    Called in watchdog's thread, so it must return at once. `on_events()` is called when the result of `problems` has
    changed.
    """

    def __init__(self, hint: Callable[[str, str], None], on_events: Callable[[], None] = lambda: None) -> None:
        self._hint = hint
        self._on_events = on_events
        self._mutex = threading.Lock()
        self._wanted: dict[str, Hashable] = {}
        self._watched: dict[str, tuple[Hashable, ObservedWatch]] = {}
        self._stale: set[str] = set()
        self._problems: dict[str, str] = {}
        self._observer: BaseObserver | None = None
        self._changing: threading.Thread | None = None
        self._ended = False

    def follow(self, log_dirs: Mapping[str, Hashable]) -> None:
        """Watch exactly these directories. The value identifies the directory now at that path (device, inode, mount).
        If it has changed, a new watch is added, because a watch stays with the directory and not with its path."""
        with self._mutex:
            if self._ended or (log_dirs == self._wanted and not self._problems and not self._stale):
                return
            self._wanted = dict(log_dirs)
            if self._changing is not None:
                return
            changing = threading.Thread(target=self._change, name="logagent-watch", daemon=True)
            try:
                changing.start()
            except RuntimeError as e:  # the next inventory tries again; until then the queue is polled
                self._problems = dict.fromkeys(log_dirs, str(e))
            else:
                self._changing = changing
                return
        self._on_events()

    def renew(self, paths: Iterable[str]) -> None:
        """Discard any watches on these: the next `follow` adds new ones."""
        with self._mutex:
            self._stale.update(paths)

    def problems(self) -> dict[str, str]:
        """Log dirs that are not watched at present, with the reason; empty if all are watched."""
        with self._mutex:
            behind = {path: "it is not watched yet" for path in self._wanted if path not in self._watched}
            return behind | self._problems

    def settle(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the last `follow` to finish; whether it has."""
        changing = self._changing
        if changing is not None:
            changing.join(timeout)
        return self._changing is None

    def close(self) -> None:
        with self._mutex:
            self._ended = True
            observer, self._observer = self._observer, None
        # A watch that hangs holds the observer's lock; then it is left behind, like everything on a dead disk.
        if observer is not None and self.settle(0.2):
            observer.stop()
            observer.join(0.5)

    def _change(self) -> None:
        while True:
            with self._mutex:
                wanted, stale = dict(self._wanted), self._stale
                self._stale = set()
            try:
                for path, (identity, watch) in list(self._watched.items()):
                    if wanted.get(path) != identity or path in stale:
                        with self._mutex:
                            del self._watched[path]
                        try:
                            if self._observer is not None:
                                self._observer.unschedule(watch)
                        except (KeyError, OSError):
                            pass
                problems: dict[str, str] = {}
                for path, identity in wanted.items():
                    if path not in self._watched and (problem := self._add(path, identity)) is not None:
                        problems[path] = problem
                with self._mutex:
                    self._problems = problems
            except Exception as e:  # or no change would ever follow this one
                with self._mutex:
                    self._problems = dict.fromkeys(wanted, repr(e))
            with self._mutex:
                if (wanted == self._wanted and not self._stale) or self._ended:
                    self._changing = None
                    break
        self._on_events()

    def _add(self, path: str, identity: Hashable) -> str | None:
        try:
            observer = self._started()
            watch = observer.schedule(_handler(path, self._hint), path, event_filter=_events())
        except OSError as e:
            return _LIMITS.get(e.errno or 0) or e.strerror or str(e)
        except RuntimeError as e:  # no thread
            return str(e)
        with self._mutex:
            self._watched[path] = (identity, watch)
        return None

    def _started(self) -> BaseObserver:
        from watchdog.observers import Observer

        if self._observer is None:
            observer = Observer()
            observer.start()
            self._observer = observer
        return self._observer


def _events() -> list[type[FileSystemEvent]]:
    from watchdog.events import DirCreatedEvent, DirMovedEvent

    return [DirCreatedEvent, DirMovedEvent]


def _handler(path: str, hint: Callable[[str, str], None]) -> Any:
    from watchdog.events import FileSystemEventHandler

    class Handler(FileSystemEventHandler):
        def on_any_event(self, event: FileSystemEvent) -> None:
            name = os.path.basename(os.fsdecode(event.dest_path or event.src_path))
            hint(path, name)

    return Handler()


class LogDirMonitor:
    """Probes every log dir of `target` (and the quarantine directories) and records in `failures` which are offline.

    It keeps nothing in a log dir open between two rounds, so that it can be unmounted. A log dir is scanned in full
    before it comes back; that inventory replaces the old one in `known`. `calls`: a log dir with a call that still
    hangs does not come back. Use it from one thread.
    """

    def __init__(
        self,
        target: Target,
        clock: Clock,
        failures: LogDirFailures,
        settings: Settings,
        prober: Prober | None = None,
        *,
        calls: DiskCalls | None = None,
        known: dict[str, LogDirInventory] | None = None,
    ) -> None:
        self._target = target
        self._clock = clock
        self._failures = failures
        self._settings = settings
        self._prober = prober if prober is not None else Prober()
        self._calls = calls if calls is not None else DirectCalls()
        self._known = known if known is not None else {}
        self._states: dict[str, LogDirState] = {}
        self._visits: dict[str, Visit] = {}
        self._scans: dict[str, _FreshScan] = {}

    def states(self) -> Mapping[str, LogDirState]:
        """The log dirs after the last round."""
        return {path: self._states[path] for path in self._target.log_dirs if path in self._states}

    def reconfigure(self, target: Target, settings: Settings) -> None:
        """Takes effect at the next round; what is known about log dirs that stay is kept."""
        self._target, self._settings = target, settings

    def round(self) -> HealthSummary:
        """Probe every log dir once and act on the results; takes at most `health.probe_timeout`."""
        started, at_ms = self._clock.monotonic(), self._clock.now_ms()
        before = dict(self._states)
        self._visits = dict(self._prober.visit_all(self._paths(), self._settings.health.probe_timeout / 1000))
        given_up = self._given_up()
        for path, visit in self._visits.items():
            self._judge(path, visit, given_up.get(path), at_ms)
        self._states = {path: self._states[path] for path in self._visits}
        return HealthSummary(
            at_ms=at_ms,
            seconds=self._clock.monotonic() - started,
            log_dirs=tuple(self._summary(path) for path in self._target.log_dirs),
            changed=tuple(path for path in self._target.log_dirs if self._is_news(before.get(path), path)),
        )

    def _paths(self) -> list[str]:
        return list(dict.fromkeys((*self._target.log_dirs, *self._settings.cleanup.quarantine_dirs)))

    def _is_news(self, before: LogDirState | None, path: str) -> bool:
        return self._states[path].health is not (before.health if before is not None else Health.ONLINE)

    def _judge(self, path: str, visit: Visit, given_up: str | None, at_ms: int) -> None:
        failed, scan = self._failures.reason(path), self._scans.get(path)
        seen = ProbedLogDir(
            probe=visit.result,
            identity=visit.identity,
            meta=visit.meta,
            given_up=given_up,
            failed=failed,
            hanging=self._calls.hanging(path),
            scanned=scan.identity if scan is not None else None,
        )
        recovery_probes = self._settings.health.recovery_probes
        state = next_state(path, self._states.get(path), seen, at_ms, recovery_probes)
        self._states[path] = state
        if state.health is Health.OFFLINE:
            self._failures.mark_offline(path, state.reason or "the probe failed")
            self._scan_if_due(path, state, recovery_probes)
        elif failed is not None:
            if scan is not None and scan.inventory is not None:
                self._known[path] = scan.inventory
            else:
                self._known.pop(path, None)
            self._scans.pop(path, None)
            self._failures.recovered(path, failed)

    def _scan_if_due(self, path: str, state: LogDirState, recovery_probes: int) -> None:
        """Start a scan once enough probes were good; discard a scan if a probe has failed since."""
        scan = self._scans.get(path)
        if scan is not None and not scan.running and (scan.failed or not state.good_probes):
            del self._scans[path]
            scan = None
        if scan is not None and not state.good_probes:
            scan.overtaken = True
        if scan is None and state.wants_scan(recovery_probes):
            with suppress(RuntimeError):  # the thread limit; the next round tries again
                self._scans[path] = _FreshScan(path)

    def _given_up(self) -> dict[str, str]:
        """Why the running broker seems to have given up a log dir, by path. Touches no disk."""
        locks = {p: v.lock for p, v in self._visits.items() if v.lock is not None and p in self._target.log_dirs}
        held = [lock for lock in locks.values() if lock.held]
        if not held or len(held) == len(locks):
            return {}
        pids = {lock.pid for lock in held if lock.pid is not None}
        has_open = {pid: open_lock_files(pid) or frozenset() for pid in pids}
        # Paths differ in a container: a log dir open there that matches none of ours may be any of these.
        elsewhere = any(not shares_our_mounts(pid) for pid in pids)
        unclear = elsewhere and len(frozenset[str]().union(*has_open.values())) > len(held)
        facts = {}
        for path, lock in locks.items():
            names = {f"{self._visits[path].real}/.lock", f"{path}/.lock"}
            open_by = frozenset(pid for pid, files in has_open.items() if not names.isdisjoint(files))
            held_now = lock.held if lock.readable else None
            facts[path] = LockFacts(held_now, lock.pid, open_by=None if unclear else open_by)
        return {path: lost.reason for path, lost in given_up(facts).items()}

    def _summary(self, path: str) -> LogDirSummary:
        state, result = self._states[path], self._visits[path].result
        return LogDirSummary(
            path=path,
            health=state.health,
            reason=state.reason,
            since_ms=state.since_ms,
            probe_ms=round(result.ms, 3),
            wrote=result.wrote,
            limited=result.limited,
            good_probes=state.good_probes,
            probed=result.outcome is not ProbeOutcome.GOOD or result.errno is None,
        )


class _FreshScan:
    """A full scan of a log dir that is about to come back, without using any earlier inventory.

    `inventory`, `identity`: of the directory, once it has been scanned without a failed probe in between.
    """

    def __init__(self, path: str) -> None:
        self.overtaken = False
        self._task = Task(f"logagent-scan {path}", partial(_scan, path))
        self._task.start()

    @property
    def running(self) -> bool:
        return not self._task.done.is_set()

    @property
    def inventory(self) -> LogDirInventory | None:
        return None if self.running or self._task.error is not None else self._task.outcome()

    @property
    def identity(self) -> Identity | None:
        inventory = self.inventory
        return inventory.identity if inventory is not None and not self.overtaken else None

    @property
    def failed(self) -> bool:
        return self.overtaken or (not self.running and self._task.error is not None)


def _scan(path: str) -> LogDirInventory:
    with OpenLogDir(path, LogDirFailures()) as log_dir:
        return scan_log_dir(log_dir)


class HostJobs:
    """The jobs of a daemon on this host. Keeps what outlives reloads: failed log dirs, inventories, counters.

    Call `open` first, but only once the daemon has its lock: a daemon that is refused must not take the metrics port
    from the running one.
    """

    def __init__(
        self, config: RunConfig, *, control: LoopControl, clock: Clock, state_dir: str, lines: LogLines, host: str
    ) -> None:
        self._control = control
        self._clock = clock
        self._state_dir = state_dir
        self._lines = lines
        self._events: Events = lines.events
        self._host = host
        self._mutex = threading.Lock()
        self._config = config
        self.failures = LogDirFailures()
        self.known: dict[str, LogDirInventory] = {}
        limit = config.settings.health.probe_timeout / 1000
        self.calls = BoundedCalls(self.failures, limit, beat=lambda: control.beat())
        self.cycles = self._cycles_of(config)
        self.probes = LogDirMonitor(
            config.target, clock, self.failures, config.settings, calls=self.calls, known=self.known
        )
        self._metrics = MetricsOutput(self._events)
        self._publisher: Publisher | None = None
        self._snapshot_wanted = False
        self._node_requests: NodeRequests | None = None
        self._standing: frozenset[Any] = frozenset()
        self._holders: frozenset[tuple[int, int]] = frozenset()
        self._brokers: tuple[BrokerProcess, ...] = ()
        self._post: Callable[[str], None] = lambda job: None
        self._watch: DirWatch | None = None

    def open(self, post: Callable[[str], None], watch: DirWatch | None) -> None:
        """Connect it to the daemon that runs it, and start serving metrics."""
        self._post = post
        self._watch = watch
        self._metrics.configure(self._config.settings.metrics)
        self._publisher = self._publisher_of(self._config.settings.publish)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._metrics.close()

    def configure(self, config: RunConfig) -> None:
        cycles, before = self._cycles_of(config), self._config
        self._metrics.configure(config.settings.metrics)
        if config.settings.publish != before.settings.publish:
            self._publisher = self._publisher_of(config.settings.publish)
        with self._mutex:
            if config.target == before.target:
                cycles.totals = self.cycles.totals
            self._config, self.cycles = config, cycles
            self._node_requests = None
        self.calls.limit_seconds = config.settings.health.probe_timeout / 1000
        self.probes.reconfigure(config.target, config.settings)

    def reload_failed(self) -> None:
        self._metrics.reload_failed()

    def status(self) -> dict[str, Any]:
        return {"watch": self.unwatched(), "brokers": self._brokers}

    # Cycles

    def cycle(self, job: str) -> CycleSummary:
        node_requests = self._node_requests
        if node_requests is not None:
            node_requests.before_inventory()
        cycles: dict[str, Callable[[], CycleSummary]] = {
            "queue": self.cycles.queue,
            "cleanup": self.cycles.cleanup,
            "inventory": self.cycles.inventory,
            "requests": lambda: self.cycles.requests(node_requests),
        }
        summary = cycles[job]()
        self._metrics.cycle(summary)
        return summary

    def _cycles_of(self, config: RunConfig) -> Cycles:
        return Cycles(
            target=config.target,
            settings=config.settings,
            clock=self._clock,
            state_dir=self._state_dir,
            lines=self._lines,
            inventory_taken=self._inventory_taken,
            planned=self._planned,
            stop=self._control.stop,
            aborting=self._control.aborting,
            failures=self.failures,
            calls=self.calls,
            known=self.known,
        )

    def _inventory_taken(self, session: Session, facts: Facts) -> None:
        if self._watch is not None:
            online = session.log_dirs.online()
            self._watch.follow({path: (d.identity, d.mount_id) for path, d in online.items()})
        for gone in self.known.keys() - set(session.log_dirs.opened()) - set(self._config.target.log_dirs):
            self.known.pop(gone, None)
        held = (f.holder for f in facts.log_dirs.values() if f.holder.state.is_broker)
        self._holders = frozenset((h.pid, h.start_time_ms or 0) for h in held if h.pid is not None)
        if self._node_requests is None and self.takes_requests():
            from logagent.deletion.agent.node_requests import requests_of

            try:
                self._node_requests = requests_of(
                    self._config.settings, self._state_dir, self._clock, session, self._host
                )
            except LogAgentError as e:
                self._warn("requests", "requests-not-read", e)
            else:
                self._post("look-for-requests")

        self._note(session, facts, None)

    def _note(self, session: Session, facts: Facts, plan: Plan | None) -> None:
        if self._node_requests is not None:
            try:
                self._node_requests.note(session, facts, plan)
            except LogAgentError as e:
                self._warn("requests", "requests-not-read", e)

    def _planned(self, session: Session, facts: Facts, plan: Plan | None) -> None:
        self._note(session, facts, plan)
        if self._spooled(session, facts, plan):
            self._post("publish")

    # Health

    def health(self) -> HealthSummary:
        summary = self.probes.round()
        processes = (inspect_process(pid, started or None) for pid, started in sorted(self._holders))
        self._brokers = tuple(b for b in processes if b is not None)
        self._metrics.health(summary, self._brokers)
        return summary

    def recovered_log_dirs(self, paths: Collection[str]) -> None:
        if self._watch is not None:
            self._watch.renew(paths)

    def unwatched(self) -> Mapping[str, str]:
        if self._watch is None:
            return dict.fromkeys(self._config.target.log_dirs, "it is not watched")
        return self._watch.problems()

    # The fleet store

    def _publisher_of(self, settings: PublishSettings) -> Publisher | None:
        if settings.store is None:
            return None
        from logagent.service.publish import Publisher

        return Publisher(settings.store, self._state_dir, self._clock, host=self._host, interval_ms=settings.interval)

    def want_snapshot(self) -> bool:
        self._snapshot_wanted = self._publisher is not None
        return self._snapshot_wanted

    def _spooled(self, session: Session, facts: Facts, plan: Plan | None) -> bool:
        """Spool this inventory for publishing, if requested; whether there is something to send."""
        if self._publisher is None or not self._snapshot_wanted:
            return False
        from logagent.service.publish import Stopped

        self._snapshot_wanted = False
        try:
            seen = self._node_requests.seen_before_inventory() if self._node_requests is not None else ()
            self._publisher.spool(session, facts, plan, self._control.aborting, seen)
        except Stopped:
            return False
        except LogAgentError as e:
            self._warn("spool", "not-published", e)
            return False
        self._warn("spool", "not-published", None)
        return True

    def _warn(self, key: str, event: str, error: LogAgentError | None) -> None:
        """Log what went wrong, until it changes or (None) is over."""
        if self._events.changed(key, None if error is None else str(error)) and error is not None:
            self._events.say(event, "warning", reason=str(error), hint=error.hint)

    def takes_requests(self) -> bool:
        settings = self._config.settings
        return settings.publish.store is not None and bool(settings.orders.keys)

    def has_decisions(self) -> bool:
        """Whether inventories are asked what is left of topics that requests delete."""
        return self._node_requests is not None and self._node_requests.has_decisions

    def requests(self) -> Literal["new", "open"] | None:
        node_requests = self._node_requests
        if node_requests is None:
            return None
        from logagent.deletion.agent.node_requests import RequestsSummary

        unsent: LogAgentError | None = None
        try:
            to_do = node_requests.read()
            try:
                node_requests.send()
            except LogAgentError as e:
                unsent = e
            summary = node_requests.summary()
        except LogAgentError as e:
            self._metrics.requests(RequestsSummary(self._clock.now_ms(), error=str(e)))
            self._warn("requests", "requests-not-read", e)
            return None
        self._warn("requests", "requests-not-read", None)
        self._metrics.requests(summary if unsent is None else replace(summary, error=str(unsent)))
        self._warn("answers", "answers-not-sent", unsent)
        if self._events.changed("requests-refused", summary.refuses) and summary.refuses and summary.open:
            self._events.say("requests-refused", "warning", reason=summary.refuses)
        if self._events.changed("requests-held", tuple(sorted(summary.held))) and summary.held:
            request, why = min(summary.held.items())
            self._events.say("requests-held", "warning", requests=len(summary.held), example=request, reason=why)
        # What was decided is taken in at once, too: a cancellation is in force once it is remembered here.
        known = frozenset((number, f.decision, f.outcome) for number, f in (node_requests.filed or {}).items())
        new, self._standing = known - self._standing, known
        return ("new" if new else "open") if to_do else None

    def publish(self) -> PublishSummary | None:
        if self._publisher is None:
            return None
        summary = self._publisher.send(stop=lambda: self._control.stopping)
        self._metrics.published(summary)
        return summary
