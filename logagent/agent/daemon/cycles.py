"""What the daemon does at a tick: one method per job, each a session of its own that returns a summary.

A cycle takes the executor lock, looks, plans, acts where `cleanup.mode` is `enforce`, and lets go of the lock, so that
commands get their turn between two cycles. In report mode nothing is renamed and nothing removed, but sightings count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from logagent.agent.clock import Clock
from logagent.agent.daemon.log_lines import LogLines
from logagent.agent.session.housekeeping import forget_failures_of_the_gone, forget_old_actions
from logagent.agent.session.open_session import open_session
from logagent.agent.session.plan_cleanup import plan_cleanup, plan_queue
from logagent.agent.session.session import Session
from logagent.agent.session.summaries import CycleNotes
from logagent.agent.session.target import Target
from logagent.errors import Busy, LogAgentError
from logagent.host.inventory.inventory import LogDirInventory
from logagent.host.linux.malloc import give_back
from logagent.host.log_dir.calls import DirectCalls, DiskCalls
from logagent.host.log_dir.log_dir import LogDirFailures
from logagent.host.state.state_dir import somebody_waits
from logagent.model.facts import Facts
from logagent.model.naming.names import DELETE_SUFFIX
from logagent.model.summary import CycleSummary
from logagent.settings import DAY_MS, Settings

if TYPE_CHECKING:
    from logagent.agent.orders.box import OrderBox

ACTOR = "daemon"
# A command that acts keeps us waiting no longer than this: the next try comes soon, and we may have been told to stop.
EXECUTOR_WAIT_SECONDS = 1.0
# While we scan or remove we look so often whether a command waits. `logagent prestart` waits for a second, no longer.
COURTESY_SECONDS = 0.2
GIVE_WAY_SECONDS = 60.0
# After we let somebody in, the next cycle comes so much later, and works for so long before it looks again.
BUSY_SECONDS = 5.0
WORK_SECONDS = 5.0
SOMEBODY_WAITS = "another logagent waits for its turn to act"


class CycleAborted(Exception):
    """The daemon ends while a cycle still looks."""


@dataclass(slots=True)
class HostTotals:
    """What the last whole inventory counted, for the blast radius of a cycle that looks at marked directories only."""

    partition_dirs: int
    partition_bytes: int


@dataclass(slots=True)
class Cycles:
    """The cycles of one daemon. What outlives a cycle is kept here: failed log dirs, and inventories for the next scan.

    stop: asked between two files of a removal, and before each action. aborting: asked while a cycle still looks.
    inventory_taken: told of each whole inventory, in the thread of the cycle and before it acts.
    """

    target: Target
    settings: Settings
    clock: Clock
    state_dir: str
    lines: LogLines
    stop: Callable[[], bool]
    aborting: Callable[[], bool]
    inventory_taken: Callable[[Session, Facts], None] = lambda session, facts: None
    failures: LogDirFailures = field(default_factory=LogDirFailures)
    calls: DiskCalls = field(default_factory=DirectCalls)
    known: dict[str, LogDirInventory] = field(default_factory=dict)
    totals: HostTotals | None = None
    tidied_ms: int | None = None
    gave_way: float = float("-inf")
    let_in: float = float("-inf")
    courtesy_seconds: float = COURTESY_SECONDS

    @property
    def enforced(self) -> bool:
        return self.settings.cleanup.mode == "enforce"

    def cleanup(self) -> CycleSummary:
        """Inventory, sightings, the whole plan, and what is permitted of it."""
        return self._summed_up("cleanup", self._cleanup)

    def queue(self) -> CycleSummary:
        """The delete queue alone: `LogManager.deleteLogs`. Looks at marked directories only."""
        return self._summed_up("queue", self._queue)

    def inventory(self) -> CycleSummary:
        """Look only, for a snapshot: nothing is planned, and no sighting counts."""
        return self._summed_up("inventory", self._look)

    def obey(self, box: OrderBox | None) -> CycleSummary:
        """Orders of the fleet, in report mode too: `orders.accept` is the operator's word, as `--execute` is."""
        return self._summed_up("obey", lambda cycle, session: self._obey(cycle, session, box))

    def _obey(self, cycle: CycleNotes, session: Session, box: OrderBox | None) -> None:
        self._look(cycle, session)
        assert cycle.facts is not None
        if box is None or self.stop():
            return
        for done in box.obey(session, cycle.facts, self._courtesy(self.stop)):
            if done.plan is not None:
                cycle.plan, cycle.execution = done.plan, done.execution
                self.lines.planned(cycle.job, done.plan, True)
            if done.plan is not None and done.execution is not None:
                self.lines.executed(done.plan, done.execution)

    def _summed_up(self, job: str, run: Callable[[CycleNotes, Session], None]) -> CycleSummary:
        cycle = CycleNotes(job, self.settings.cleanup.mode, self.clock.now_ms(), self.clock.monotonic())
        try:
            with self._session() as session:
                run(cycle, session)
                cycle.look_back(session)
        except (LogAgentError, OSError) as e:
            cycle.error, cycle.error_slug = str(e), getattr(e, "slug", "failed")
        summary = cycle.summary(self.clock)
        if job != "queue":
            del cycle
            give_back()
        return summary

    def _let_in(self) -> None:
        """Where a cycle has just given way: whoever waited takes the lock within moments, unless it is stopped."""
        deadline = min(self.let_in, self.clock.monotonic() + EXECUTOR_WAIT_SECONDS)
        while self.clock.monotonic() < deadline and somebody_waits(self.state_dir):
            self.clock.sleep(0.01)

    @contextmanager
    def _session(self) -> Iterator[Session]:
        self._let_in()
        with open_session(
            self.target,
            self.settings,
            self.clock,
            state_dir=self.state_dir,
            act=True,
            actor=ACTOR,
            wait_seconds=EXECUTOR_WAIT_SECONDS,
            failures=self.failures,
            calls=self.calls,
            known=self.known,
            settle=self.enforced or self.settings.orders.accept,
        ) as session:
            yield session

    def _progress(self, courtesy: Courtesy) -> Callable[[int], None]:
        def progress(_: int) -> None:
            if self.aborting():
                raise CycleAborted
            # What was scanned is lost then, so that once a minute is enough.
            if courtesy() and self.clock.monotonic() - self.gave_way > GIVE_WAY_SECONDS:
                self.gave_way = self.clock.monotonic()
                raise Busy(SOMEBODY_WAITS)

        return progress

    def _look(self, cycle: CycleNotes, session: Session) -> None:
        session.read_assignments()
        session.take_inventory(self._progress(self._courtesy(self.aborting)))
        cycle.facts = facts = session.facts()
        self.totals = HostTotals(facts.partition_dirs, facts.partition_bytes)
        self.inventory_taken(session, facts)

    def _cleanup(self, cycle: CycleNotes, session: Session) -> None:
        self._look(cycle, session)
        assert cycle.facts is not None
        in_doubt = session.clock_watch.doubt() is not None
        cycle.plan = plan_cleanup(session, cycle.facts)
        self._carry_out(cycle, session)
        forget_failures_of_the_gone(session)
        # What a clock in doubt calls old may be of today.
        if in_doubt or self.tidied_ms is None or not 0 <= self.clock.now_ms() - self.tidied_ms < DAY_MS:
            if not in_doubt:
                forget_old_actions(session)
            self.tidied_ms = self.clock.now_ms()

    def _queue(self, cycle: CycleNotes, session: Session) -> None:
        session.read_delete_delay()
        session.take_inventory(
            self._progress(self._courtesy(self.aborting)), only=lambda name: name.endswith(DELETE_SUFFIX)
        )
        facts = session.facts()
        if self.totals is not None:
            facts = replace(
                facts,
                partition_dirs=max(facts.partition_dirs, self.totals.partition_dirs),
                partition_bytes=max(facts.partition_bytes, self.totals.partition_bytes),
            )
        cycle.facts = facts
        cycle.plan = plan_queue(session, facts, host_counted=self.totals is not None)
        self._carry_out(cycle, session)

    def _carry_out(self, cycle: CycleNotes, session: Session) -> None:
        plan = cycle.plan
        assert plan is not None
        self.lines.planned(cycle.job, plan, self.enforced)
        if not self.enforced or not plan.actions or plan.needs_approval is not None or self.stop():
            return
        stop = self._courtesy(self.stop)
        # Whoever waits and never comes (Ctrl-Z) must not keep us from our work altogether.
        stop.not_before = self.let_in + WORK_SECONDS
        cycle.execution = session.log_manager(stop=stop).execute(plan)
        self.lines.executed(plan, cycle.execution)
        if stop.somebody:
            self.let_in = self.clock.monotonic() + BUSY_SECONDS
            cycle.error, cycle.error_slug = SOMEBODY_WAITS, Busy.slug

    def _courtesy(self, stop: Callable[[], bool]) -> Courtesy:
        return Courtesy(stop, self.state_dir, self.clock, self.courtesy_seconds)


class Courtesy:
    """The `stop` of what can take hours: true also as soon as a command waits for its turn to act. Safe for threads."""

    def __init__(self, stop: Callable[[], bool], state_dir: str, clock: Clock, seconds: float) -> None:
        self._stop = stop
        self._seconds = seconds
        self._state_dir = state_dir
        self._clock = clock
        self._looked = clock.monotonic()
        self.not_before = float("-inf")
        self.somebody = False

    def __call__(self) -> bool:
        if self._stop() or self.somebody:
            return True
        now = self._clock.monotonic()
        if now - self._looked >= self._seconds and now >= self.not_before:
            self._looked = now
            self.somebody = somebody_waits(self._state_dir)
        return self.somebody
