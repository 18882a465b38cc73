"""What the daemon's loops do, on a real host: cycles, probes, publishing, metrics and the watch, joined."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from logagent.agent.clock import Clock
from logagent.agent.daemon import Control, RunConfig
from logagent.agent.events import Events
from logagent.agent.log_manager import Execution
from logagent.agent.narrator import Narrator
from logagent.agent.session import Session
from logagent.agent.ticks import Cycles
from logagent.host.disk import LogDirFailures
from logagent.host.disk_calls import BoundedCalls
from logagent.host.watch import DirWatch
from logagent.model.facts import Facts
from logagent.model.plan import Plan
from logagent.model.records import Holder, HolderState
from logagent.model.summary import CycleSummary, HealthSummary, PublishSummary

Hint = Callable[[str, str], None]


class HostWork:
    """The `Work` of a daemon on this host; also hears what cycles see (`CycleListener`).

    What lasts over reloads: failed log dirs, inventories, counters. `bind` connects it with the daemon that runs it.
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
        limit = config.settings.health.probe_timeout / 1000
        self.calls = BoundedCalls(self.failures, limit, beat=lambda: control.beat())
        self.cycles = self._cycles_of(config)
        self._post: Callable[[str], None] = lambda job: None
        self.watch: DirWatch | None = None

    def bind(self, post: Callable[[str], None], hint: Hint, watch_changed: Callable[[], None]) -> None:
        self._post = post
        self.watch = DirWatch(hint, watch_changed)

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
        )

    def configure(self, config: RunConfig) -> None:
        cycles = self._cycles_of(config)
        with self._mutex:
            if config.target == self._config.target:
                # What is known of the directories stays true.
                cycles.known, cycles.totals = self.cycles.known, self.cycles.totals
            self._config, self.cycles = config, cycles
        self.calls.limit_seconds = config.settings.health.probe_timeout / 1000

    # Jobs

    def queue(self) -> CycleSummary:
        return self.cycles.queue()

    def cleanup(self) -> CycleSummary:
        return self.cycles.cleanup()

    def inventory(self) -> CycleSummary:
        return self.cycles.inventory()

    def health(self) -> HealthSummary:
        return HealthSummary(at_ms=self._clock.now_ms(), seconds=0.0, log_dirs=())

    def publish(self) -> PublishSummary | None:
        return None

    def want_snapshot(self) -> bool:
        return False

    def is_watched(self) -> bool:
        return self.watch is not None and not self.watch.problems()

    def status(self) -> dict[str, Any]:
        return {"watch": self.watch.problems() if self.watch is not None else {}}

    def close(self) -> None:
        if self.watch is not None:
            self.watch.close()

    # What cycles see

    def inventory_taken(self, session: Session, facts: Facts) -> None:
        if self.watch is not None:
            self.watch.follow({path: d.identity for path, d in session.sight.online().items()})

    def planned(self, job: str, plan: Plan, enforced: bool) -> None:
        self._narrator.planned(job, plan, enforced)

    def executed(self, plan: Plan, execution: Execution) -> None:
        self._narrator.executed(plan, execution)


def holders(facts: Facts) -> set[Holder]:
    """The processes that hold log dirs."""
    found = (f.holder for f in facts.log_dirs.values())
    return {h for h in found if h.state in (HolderState.HELD, HolderState.STARTING) and h.pid is not None}
