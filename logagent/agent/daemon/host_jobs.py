"""What the daemon's loops do on a real host, one method per job: cycles, probes and publishing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from logagent.agent.clock import Clock
from logagent.agent.daemon.cycles import Cycles
from logagent.agent.daemon.health import LogDirHealth
from logagent.agent.daemon.log_lines import LogLines
from logagent.agent.daemon.scheduling import Control, RunConfig
from logagent.agent.events import Events
from logagent.agent.metrics.metrics_server import MetricsOutput
from logagent.agent.session.session import Session
from logagent.errors import LogAgentError
from logagent.host.brokers.broker_process import BrokerProcess, inspect_process
from logagent.host.inventory.scan import LogDirInventory
from logagent.host.inventory.watch import DirWatch
from logagent.host.log_dir.bounded_calls import BoundedCalls
from logagent.host.log_dir.log_dir import LogDirFailures
from logagent.model.daemon_summary import CycleSummary, HealthSummary, PublishSummary, RequestsSummary
from logagent.model.facts import Facts
from logagent.model.planning.plan import Plan
from logagent.model.records import HolderState
from logagent.settings import PublishSettings

if TYPE_CHECKING:
    from logagent.agent.publish.publish import Publisher
    from logagent.agent.requests.box import RequestBox


class HostJobs:
    """The jobs of a daemon on this host. Keeps what outlives reloads: failed log dirs, inventories, counters.

    Call `open` first, but only once the daemon has its lock: a daemon that is refused must not take the metrics port
    from the running one.
    """

    def __init__(
        self, config: RunConfig, *, control: Control, clock: Clock, state_dir: str, lines: LogLines, host: str
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
        self.probes = LogDirHealth(
            config.target, clock, self.failures, config.settings, calls=self.calls, known=self.known
        )
        self._metrics = MetricsOutput(self._events)
        self._publisher: Publisher | None = None
        self._snapshot_wanted = False
        self._box: RequestBox | None = None
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
            self._box = None
        self.calls.limit_seconds = config.settings.health.probe_timeout / 1000
        self.probes.reconfigure(config.target, config.settings)

    def reload_failed(self) -> None:
        self._metrics.reload_failed()

    def status(self) -> dict[str, Any]:
        return {"watch": self.unwatched(), "brokers": self._brokers}

    # Cycles

    def cycle(self, job: str) -> CycleSummary:
        box = self._box
        if box is not None:
            box.before_inventory()
        cycles: dict[str, Callable[[], CycleSummary]] = {
            "queue": self.cycles.queue,
            "cleanup": self.cycles.cleanup,
            "inventory": self.cycles.inventory,
            "requests": lambda: self.cycles.requests(box),
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
        held = (f.holder for f in facts.log_dirs.values() if f.holder.state in (HolderState.HELD, HolderState.STARTING))
        self._holders = frozenset((h.pid, h.start_time_ms or 0) for h in held if h.pid is not None)
        if self._box is None and self.takes_requests():
            from logagent.agent.requests.box import box_of

            try:
                self._box = box_of(self._config.settings, self._state_dir, self._clock, session, self._host)
            except LogAgentError as e:
                self._warn("requests", "requests-not-read", e)
            else:
                self._post("look-for-requests")

        self._note(session, facts, None)

    def _note(self, session: Session, facts: Facts, plan: Plan | None) -> None:
        if self._box is not None:
            try:
                self._box.note(session, facts, plan)
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
        from logagent.agent.publish.publish import Publisher

        return Publisher(settings.store, self._state_dir, self._clock, host=self._host, interval_ms=settings.interval)

    def want_snapshot(self) -> bool:
        self._snapshot_wanted = self._publisher is not None
        return self._snapshot_wanted

    def _spooled(self, session: Session, facts: Facts, plan: Plan | None) -> bool:
        """Spool this inventory for publishing, if requested; whether there is something to send."""
        if self._publisher is None or not self._snapshot_wanted:
            return False
        from logagent.agent.publish.publish import Stopped

        self._snapshot_wanted = False
        try:
            seen = self._box.seen_before_inventory() if self._box is not None else ()
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
        return self._box is not None and self._box.has_decisions

    def requests(self) -> Literal["new", "open"] | None:
        box = self._box
        if box is None:
            return None
        unsent: LogAgentError | None = None
        try:
            to_do = box.read()
            try:
                box.send()
            except LogAgentError as e:
                unsent = e
            summary = box.summary()
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
        known = frozenset((number, f.decision, f.outcome) for number, f in (box.filed or {}).items())
        new, self._standing = known - self._standing, known
        return ("new" if new else "open") if to_do else None

    def publish(self) -> PublishSummary | None:
        if self._publisher is None:
            return None
        summary = self._publisher.send(stop=lambda: self._control.stopping)
        self._metrics.published(summary)
        return summary
