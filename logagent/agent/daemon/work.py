"""What the daemon's loops do, on a real host: cycles, probes, publishing, metrics and the watch, joined."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from logagent.agent.clock import Clock
from logagent.agent.daemon.control import Control, RunConfig
from logagent.agent.daemon.cycles import Cycles
from logagent.agent.daemon.events import Events
from logagent.agent.daemon.health import LogDirHealth
from logagent.agent.daemon.log_lines import Narrator
from logagent.agent.daemon.outlets import Outlets
from logagent.agent.execute.log_manager import Execution
from logagent.agent.session.session import Session
from logagent.host.inventory.inventory import LogDirInventory
from logagent.host.inventory.watch import DirWatch
from logagent.host.log_dir.bounded_calls import BoundedCalls
from logagent.host.log_dir.log_dir import LogDirFailures
from logagent.model.facts import Facts
from logagent.model.planning.plan import Plan
from logagent.model.summary import CycleSummary, HealthSummary, PublishSummary


class HostWork:
    """The `Work` of a daemon on this host; also hears what cycles see (`CycleListener`).

    What lasts over reloads: failed log dirs, inventories, counters. `open` comes first.
    """

    def __init__(
        self, config: RunConfig, *, control: Control, clock: Clock, state_dir: str, events: Events, host: str
    ) -> None:
        self._control = control
        self._clock = clock
        self._state_dir = state_dir
        self._events = events
        self._host = host
        self._narrator = Narrator(events)
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
        self.outlets = Outlets(config.settings, state_dir=state_dir, clock=clock, host=host, events=events)
        self._post: Callable[[str], None] = lambda job: None
        self.watch: DirWatch | None = None

    def open(self, post: Callable[[str], None], watch: DirWatch | None) -> None:
        """Connect it with the daemon that runs it, and begin to tell the world."""
        self._post = post
        self.watch = watch
        self.outlets.open()

    def _cycles_of(self, config: RunConfig) -> Cycles:
        return Cycles(
            target=config.target,
            settings=config.settings,
            clock=self._clock,
            state_dir=self._state_dir,
            listener=self,
            stop=self._control.stop,
            aborting=self._control.aborting,
            failures=self.failures,
            calls=self.calls,
            known=self.known,
        )

    def configure(self, config: RunConfig) -> None:
        cycles = self._cycles_of(config)
        self.outlets.configure(config.settings)
        with self._mutex:
            if config.target == self._config.target:
                cycles.totals = self.cycles.totals
            self._config, self.cycles = config, cycles
        self.calls.limit_seconds = config.settings.health.probe_timeout / 1000
        self.probes.reconfigure(config.target, config.settings)

    # Jobs

    def queue(self) -> CycleSummary:
        return self.outlets.observed(self.cycles.queue())

    def cleanup(self) -> CycleSummary:
        return self.outlets.observed(self.cycles.cleanup())

    def inventory(self) -> CycleSummary:
        return self.outlets.observed(self.cycles.inventory())

    def health(self) -> HealthSummary:
        summary = self.probes.round()
        self.outlets.observe_health(summary)
        return summary

    def publish(self) -> PublishSummary | None:
        return self.outlets.send(lambda: self._control.stopping)

    def want_snapshot(self) -> bool:
        return self.outlets.want_snapshot()

    def came_back(self, paths: Collection[str]) -> None:
        if self.watch is not None:
            self.watch.renew(paths)

    def unwatched(self) -> Mapping[str, str]:
        if self.watch is None:
            return dict.fromkeys(self._config.target.log_dirs, "it is not watched")
        return self.watch.problems()

    def status(self) -> dict[str, Any]:
        return {"watch": self.unwatched(), "brokers": self.outlets.brokers}

    def reload_failed(self) -> None:
        self.outlets.reload_failed()

    def close(self) -> None:
        if self.watch is not None:
            self.watch.close()
        self.outlets.close()

    # What cycles see

    def inventory_taken(self, session: Session, facts: Facts) -> None:
        if self.watch is not None:
            online = session.sight.online()
            self.watch.follow({path: (d.identity, d.mount_id) for path, d in online.items()})
        for gone in self.known.keys() - set(session.sight.opened()) - set(self._config.target.log_dirs):
            self.known.pop(gone, None)
        if self.outlets.spool(session, facts, self._control.aborting):
            self._post("publish")

    def planned(self, job: str, plan: Plan, enforced: bool) -> None:
        self._narrator.planned(job, plan, enforced)

    def executed(self, plan: Plan, execution: Execution) -> None:
        self._narrator.executed(plan, execution)
