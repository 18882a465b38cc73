"""What the daemon does at a tick: one method per job, each with its own session, returning a summary of what it saw,
planned and did (`service.summary`).

A cycle takes the executor lock, takes the inventory, plans, acts if `cleanup.mode` is `enforce`, and releases the lock,
so that commands can run between two cycles. In report mode nothing is renamed or removed, but sightings count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from logagent.advice.scan.command import ledgers_of, sharing
from logagent.base.clock import Clock
from logagent.base.config.settings import Settings
from logagent.base.dir_names import DELETE_SUFFIX
from logagent.base.errors import Busy, JournalError, LogAgentError
from logagent.base.kafka_version import version_text
from logagent.base.linux.kernel import give_back
from logagent.base.records import LIVE_KINDS, Outcome, Verdict
from logagent.base.units import DAY_MS
from logagent.cleanup.commands.cleanup import plan_ahead, plan_cleanup, plan_queue
from logagent.cleanup.plan.plan import Execution, Plan, Proposal, action_id
from logagent.cleanup.plan.queue import QueueEntry
from logagent.cleanup.session.recall import end_permissions, open_exchanges, restored_topics
from logagent.cleanup.session.session import (
    Session,
    Shared,
    forget_failures_of_removed,
    forget_old_actions,
    open_session,
)
from logagent.cleanup.state.executor_lock import somebody_waits
from logagent.disk.calls import DirectCalls, DiskCalls
from logagent.disk.log_dir import LogDirFailures
from logagent.disk.scan import LogDirInventory
from logagent.kafka.files.log_extent import SegmentReadings
from logagent.kafka.processes.target import Target
from logagent.service.events import LogLines
from logagent.service.summary import AssignmentsSummary, CycleSummary, KafkaSummary, QueueSummary
from logagent.verdict.facts import Facts

if TYPE_CHECKING:
    from logagent.deletion.agent.node_requests import NodeRequests


@dataclass(slots=True)
class CycleNotes:
    """The results of a cycle so far. The cycle may end at any point; the summary then contains what is known."""

    job: str
    mode: str
    started_ms: int
    started: float
    facts: Facts | None = None
    plan: Plan | None = None
    execution: Execution | None = None
    error: str | None = None
    error_slug: str | None = None
    seen: dict[str, Any] = field(default_factory=dict)

    def add_results(self, session: Session) -> None:
        """Add what only an open session knows. Raises JournalError."""
        assert self.facts is not None
        queue = _still_queued(session.queue(), self.plan, self.execution)
        later = [at for e in queue if (at := max(e.due_at_ms, e.marked_at_ms)) > self.facts.now_ms]
        self.seen = {
            "queues": _queues(queue, session.log_dirs.by_path),
            "next_due_ms": min(later) if later else None,
            "assignments": _assignments(session),
            "kafka": _kafka(session, self.facts),
            "clock_doubt": doubt.why if (doubt := session.recalled.doubt) is not None else None,
        }
        if self.job != "queue":
            self.seen |= {
                "ledgers": _ledgers(session, self.facts),
                "sharing": sharing(self.facts.log_dirs, session.inventory.by_log_dir),
                "directories": dict(Counter((d.log_dir, d.kind.value) for d in session.dirs)),
                "orphans": _orphans(session, self.facts),
                "reclaimable": _reclaimable(session, self.plan, self.execution),
                "open_exchanges": tuple(open_exchanges(session.journal, session.dirs)),
            }

    def summary(self, clock: Clock) -> CycleSummary:
        plan, execution = self.plan, self.execution
        refusals = [*(plan.refusals if plan is not None else ()), *(execution.refusals if execution else ())]
        return CycleSummary(
            job=self.job,
            mode=self.mode,
            started_ms=self.started_ms,
            seconds=clock.monotonic() - self.started,
            plan_id=plan.plan_id if plan is not None else None,
            planned=len(plan.actions) if plan is not None else 0,
            results=_results(plan, execution),
            refusals=dict(Counter(r.why.code for r in refusals)),
            refused_because={r.why.code: r.why for r in reversed(refusals)},
            waiting=len(plan.waiting) if plan is not None else 0,
            freed_bytes=execution.freed_bytes if execution is not None else 0,
            needs_approval=plan.plan_id if plan is not None and plan.needs_approval is not None else None,
            error=self.error,
            error_slug=self.error_slug,
            **self.seen,
        )


def _still_queued(queue: list[QueueEntry], plan: Plan | None, execution: Execution | None) -> list[QueueEntry]:
    """The queue without what this cycle removed: the inventory was taken before that."""
    if plan is None or execution is None:
        return queue
    done = {n for n, r in execution.results.items() if r.outcome is Outcome.DONE}
    gone = {p.dir.key for p in plan.actions if action_id(p) in done}
    return [e for e in queue if e.dir.key not in gone]


def _results(plan: Plan | None, execution: Execution | None) -> dict[tuple[str, str], int]:
    if plan is None or execution is None:
        return {}
    pairs = ((p.action.value, execution.results.get(action_id(p))) for p in plan.actions)
    return dict(Counter((action, result.outcome.value) for action, result in pairs if result is not None))


def _queues(queue: list[QueueEntry], log_dirs: Mapping[str, object]) -> dict[str, QueueSummary]:
    by_dir: dict[str, list[QueueEntry]] = {path: [] for path in log_dirs}
    for e in queue:
        by_dir.setdefault(e.dir.log_dir, []).append(e)
    return {
        path: QueueSummary(
            entries=len(entries),
            bytes=sum(e.dir.allocated for e in entries),
            oldest_marked_ms=min((e.marked_at_ms for e in entries), default=None),
        )
        for path, entries in by_dir.items()
    }


def _kafka(session: Session, facts: Facts) -> KafkaSummary:
    cluster, version = session.log_dirs.cluster, facts.kafka_version
    known = version_text(version) if version is not None else None
    return KafkaSummary(cluster_id=cluster.cluster_id, node_id=cluster.node_id, version=known)


def _ledgers(session: Session, facts: Facts) -> dict[str, dict[str, int]]:
    found = ledgers_of(facts.log_dirs, session.inventory.by_log_dir)
    return {path: figures for path, figures in found.items() if path in session.log_dirs.online()}


def _reclaimable(session: Session, plan: Plan | None, execution: Execution | None) -> dict[tuple[str, str], int]:
    """Bytes in the plan that were not removed, plus those that still wait: the most that could be freed, by log dir."""
    sizes = {(path, when): 0 for path in session.log_dirs.by_path for when in ("now", "later")}
    if plan is None:
        return sizes
    results = execution.results if execution is not None else {}
    for p in plan.actions:
        result = results.get(action_id(p))
        if (p.dir.log_dir, "now") in sizes and (result is None or result.outcome is not Outcome.DONE):
            sizes[p.dir.log_dir, "now"] += p.dir.allocated
    later = {w.key for w in plan.waiting}
    for d in session.dirs:
        if d.key in later and (d.log_dir, "later") in sizes:
            sizes[d.log_dir, "later"] += d.allocated
    return sizes


def _orphans(session: Session, facts: Facts) -> dict[tuple[str, str], tuple[int, int]]:
    by_reason: dict[tuple[str, str], tuple[int, int]] = {}
    for d in session.of_kind(*LIVE_KINDS):
        ruling = facts.rulings.get(d.key)
        if ruling is not None and ruling.verdict is Verdict.ORPHAN:
            count, size = by_reason.get((d.log_dir, ruling.reason or ""), (0, 0))
            by_reason[d.log_dir, ruling.reason or ""] = (count + 1, size + d.allocated)
    return by_reason


def _assignments(session: Session) -> AssignmentsSummary:
    image = session.assignments.shown
    problems = session.assignments.problems
    return AssignmentsSummary(
        source=image.source.value if image is not None else None,
        at_ms=image.at_ms if image is not None else None,
        usable=bool(session.assignments.usable),
        problem="; ".join(problems)
        if problems and not session.assignments.usable
        else session.assignments.ends_at_stop,
        log_doubt=session.assignments.log_doubt,
        own_log=session.assignments.own_log is not None or session.assignments.log_doubt is not None,
    )


ACTOR = "daemon"
# We wait no longer than this for a command that acts: the next try comes soon, and the daemon may be ending.
EXECUTOR_WAIT_SECONDS = 1.0
# How often we check during a scan or a removal whether a command waits. `logagent prestart` waits at most a second.
YIELD_CHECK_SECONDS = 0.2
GIVE_WAY_SECONDS = 60.0
# After we gave way to a command, the next cycle is delayed by the first, and works for the second before it checks
# again.
BUSY_SECONDS = 5.0
WORK_SECONDS = 5.0
SOMEBODY_WAITS = "another logagent is waiting for the executor lock"


class CycleAborted(Exception):
    """The daemon ends while a cycle only reads: nothing has been done yet."""


@dataclass(slots=True)
class HostTotals:
    """The counts of the last full inventory, for the blast radius of a cycle that reads only marked directories."""

    partition_dirs: int
    partition_bytes: int


@dataclass(slots=True)
class Cycles:
    """The cycles of one daemon. Keeps what outlives a cycle: failed log dirs, inventories for the next scan, and which
    segments were read.

    stop: called between two files of a removal, and before each action. aborting: called while a cycle only reads.
    inventory_taken: called with each full inventory, in the cycle's thread. planned: with the plan for the whole host,
    before it is carried out; with None if it cannot be made, because a snapshot matters more than its plan.
    """

    target: Target
    settings: Settings
    clock: Clock
    state_dir: str
    lines: LogLines
    stop: Callable[[], bool]
    aborting: Callable[[], bool]
    inventory_taken: Callable[[Session, Facts], None] = lambda session, facts: None
    planned: Callable[[Session, Facts, Plan | None], None] = lambda session, facts, plan: None
    failures: LogDirFailures = field(default_factory=LogDirFailures)
    calls: DiskCalls = field(default_factory=DirectCalls)
    known: dict[str, LogDirInventory] = field(default_factory=dict)
    segments_read: SegmentReadings = field(default_factory=dict)
    totals: HostTotals | None = None
    tidied_ms: int | None = None
    gave_way: float = float("-inf")
    resume_at: float = float("-inf")
    yield_check_seconds: float = YIELD_CHECK_SECONDS

    @property
    def enforced(self) -> bool:
        return self.settings.cleanup.mode == "enforce"

    def cleanup(self) -> CycleSummary:
        """Inventory, sightings, the full plan, and those of its actions that are permitted."""
        return self._summed_up("cleanup", self._cleanup)

    def queue(self) -> CycleSummary:
        """Only the delete queue: `LogManager.deleteLogs`. Reads marked directories only."""
        return self._summed_up("queue", self._queue)

    def inventory(self) -> CycleSummary:
        """The inventory alone, for a snapshot: nothing is done, and no sighting counts."""
        return self._summed_up("inventory", self._plan_only)

    def requests(self, node_requests: NodeRequests | None) -> CycleSummary:
        """Carry out requests of the fleet, in report mode too: `orders.accept` is the operator's consent, like
        `--execute`."""
        return self._summed_up("requests", lambda cycle, session: self._requests(cycle, session, node_requests))

    def _requests(self, cycle: CycleNotes, session: Session, node_requests: NodeRequests | None) -> None:
        self._take_inventory(cycle, session)
        assert cycle.facts is not None
        if node_requests is None or self.stop():
            return
        for done in node_requests.carry_out(session, cycle.facts, self._stop_or_yield(self.stop)):
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
                cycle.add_results(session)
        except (LogAgentError, OSError) as e:
            cycle.error, cycle.error_slug = str(e), getattr(e, "slug", "failed")
        summary = cycle.summary(self.clock)
        if job != "queue":
            del cycle
            give_back()
        return summary

    @contextmanager
    def _session(self) -> Iterator[Session]:
        # After a cycle has given way: the waiting command takes the lock within moments, unless it is stopped.
        deadline = min(self.resume_at, self.clock.monotonic() + EXECUTOR_WAIT_SECONDS)
        while self.clock.monotonic() < deadline and somebody_waits(self.state_dir):
            self.clock.sleep(0.01)
        with open_session(
            self.target,
            self.settings,
            self.clock,
            state_dir=self.state_dir,
            act=True,
            actor=ACTOR,
            shared=Shared(
                self.failures,
                self.calls,
                self.known,
                self.segments_read,
                settle=self.enforced or self.settings.orders.accept,
                wait_seconds=EXECUTOR_WAIT_SECONDS,
            ),
        ) as session:
            yield session

    def _progress(self, yielding: StopOrYield) -> Callable[[int], None]:
        def progress(_: int) -> None:
            if self.aborting():
                raise CycleAborted
            # The scan so far is lost then, so once a minute is enough.
            if yielding() and self.clock.monotonic() - self.gave_way > GIVE_WAY_SECONDS:
                self.gave_way = self.clock.monotonic()
                raise Busy(SOMEBODY_WAITS)

        return progress

    def _take_inventory(self, cycle: CycleNotes, session: Session) -> None:
        session.read_assignments()
        session.take_inventory(self._progress(self._stop_or_yield(self.aborting)))
        cycle.facts = facts = session.facts()
        session.remember(facts)
        self.totals = HostTotals(facts.partition_dirs, facts.partition_bytes)
        self.inventory_taken(session, facts)

    def _plan_only(self, cycle: CycleNotes, session: Session) -> None:
        self._take_inventory(cycle, session)
        assert cycle.facts is not None
        try:
            plan: Plan | None = plan_ahead(session, cycle.facts)
        except LogAgentError:
            plan = None
        self.planned(session, cycle.facts, plan)

    def _cleanup(self, cycle: CycleNotes, session: Session) -> None:
        self._take_inventory(cycle, session)
        assert cycle.facts is not None
        try:
            in_doubt = session.recalled.doubt is not None
            cycle.plan = plan_cleanup(session, cycle.facts)
        except LogAgentError:
            self.planned(session, cycle.facts, None)
            raise
        self.planned(session, cycle.facts, cycle.plan)
        self._carry_out(cycle, session)
        forget_failures_of_removed(session)
        # While the clock is in doubt, what seems old may be from today.
        if in_doubt or self.tidied_ms is None or not 0 <= self.clock.now_ms() - self.tidied_ms < DAY_MS:
            if not in_doubt:
                forget_old_actions(session)
            self.tidied_ms = self.clock.now_ms()

    def _queue(self, cycle: CycleNotes, session: Session) -> None:
        session.read_delete_delay()
        session.take_inventory(
            self._progress(self._stop_or_yield(self.aborting)), only=lambda name: name.endswith(DELETE_SUFFIX)
        )
        facts = session.facts()
        session.remember(facts)
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
        asked = self._removals_by_request(cycle, session)
        if not self.enforced:
            plan = asked
        if not plan.actions or plan.needs_approval is not None or self.stop():
            return
        stop = self._stop_or_yield(self.stop)
        # A command that waits but never takes the lock (Ctrl-Z) must not stop our work.
        stop.not_before = self.resume_at + WORK_SECONDS
        cycle.execution = session.log_manager(stop=stop).execute(plan)
        self.lines.executed(plan, cycle.execution)
        if stop.somebody:
            self.resume_at = self.clock.monotonic() + BUSY_SECONDS
            cycle.error, cycle.error_slug = SOMEBODY_WAITS, Busy.slug

    def _removals_by_request(self, cycle: CycleNotes, session: Session) -> Plan:
        """The removals that requests have asked for; in report mode these are carried out, because `orders.accept` is
        the operator's consent to them. What this inventory shows to be over ends in any mode."""
        assert cycle.plan is not None and cycle.facts is not None
        due: list[Proposal] = []
        if self.settings.orders.accept:
            from logagent.deletion.agent.directories import removals_by_request
            from logagent.deletion.agent.memory import RequestMemory

            with suppress(JournalError):  # a memory that cannot be read: the look for requests says so
                memory = RequestMemory.load(self.state_dir, self.clock.now_ms())
                memory.end_restored(restored_topics(session.journal))
                is_all = session.inventory.whole and cycle.facts.not_seen() is None
                end_permissions(session.journal, session.dirs if is_all else None, memory.is_cancelled)
                marks, limits = session.recall().marks, session.planner(cycle.facts).limits
                due = removals_by_request(cycle.plan, memory, marks, cycle.facts, limits)
        return session.plan(due, facts=cycle.facts)

    def _stop_or_yield(self, stop: Callable[[], bool]) -> StopOrYield:
        return StopOrYield(stop, self.state_dir, self.clock, self.yield_check_seconds)


class StopOrYield:
    """The `stop` of work that can take hours: also true as soon as a command waits for the executor lock.
    Thread-safe."""

    def __init__(self, stop: Callable[[], bool], state_dir: str, clock: Clock, seconds: float) -> None:
        self._stop = stop
        self._seconds = seconds
        self._state_dir = state_dir
        self._clock = clock
        self._last_time = clock.monotonic()
        self.not_before = float("-inf")
        self.somebody = False

    def __call__(self) -> bool:
        if self._stop() or self.somebody:
            return True
        now = self._clock.monotonic()
        if now - self._last_time >= self._seconds and now >= self.not_before:
            self._last_time = now
            self.somebody = somebody_waits(self._state_dir)
        return self.somebody
