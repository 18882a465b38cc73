"""What one cycle saw, planned and did, as the values of `model.daemon_summary`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from logagent.agent.clock import Clock
from logagent.agent.session.scan_rows import ledger
from logagent.agent.session.session import Session
from logagent.model.daemon_summary import AssignmentsSummary, CycleSummary, QueueSummary
from logagent.model.facts import Facts
from logagent.model.planning.plan import Execution, Plan, action_id
from logagent.model.planning.queue import QueueEntry
from logagent.model.records import Kind, Outcome, Verdict


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

    def look_back(self, session: Session) -> None:
        """Gather what only an open session can tell. Raises JournalError."""
        assert self.facts is not None
        queue = _still_queued(session.queue(), self.plan, self.execution)
        later = [at for e in queue if (at := max(e.due_at_ms, e.marked_at_ms)) > self.facts.now_ms]
        self.seen = {
            "queues": _queues(queue, session.log_dirs.by_path),
            "next_due_ms": min(later) if later else None,
            "assignments": _assignments(session),
        }
        if self.job != "queue":
            self.seen |= {
                "ledgers": _ledgers(session, self.facts),
                "directories": dict(Counter((d.log_dir, d.kind.value) for d in session.dirs)),
                "orphans": _orphans(session, self.facts),
                "reclaimable": _reclaimable(session, self.plan, self.execution),
                "open_exchanges": tuple(session.open_exchanges()),
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
            refusals=dict(Counter(str(r.guard) for r in refusals)),
            refused_because={str(r.guard): (r.fact, r.hint) for r in reversed(refusals)},
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
    gone = {(p.dir.log_dir, p.dir.name) for p in plan.actions if action_id(p) in done}
    return [e for e in queue if (e.dir.log_dir, e.dir.name) not in gone]


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
            bytes=sum(e.dir.bytes for e in entries),
            oldest_marked_ms=min((e.marked_at_ms for e in entries), default=None),
        )
        for path, entries in by_dir.items()
    }


def _ledgers(session: Session, facts: Facts) -> dict[str, dict[str, int]]:
    return {
        path: ledger(inventory, facts.log_dirs[path].open_removed_bytes)
        for path, inventory in session.inventories.items()
        if path in session.log_dirs.online() and path in facts.log_dirs
    }


def _reclaimable(session: Session, plan: Plan | None, execution: Execution | None) -> dict[tuple[str, str], int]:
    """Bytes in the plan that were not removed, plus those that still wait: the most that could be freed, by log dir."""
    found = {(path, when): 0 for path in session.log_dirs.by_path for when in ("now", "later")}
    if plan is None:
        return found
    results = execution.results if execution is not None else {}
    for p in plan.actions:
        result = results.get(action_id(p))
        if (p.dir.log_dir, "now") in found and (result is None or result.outcome is not Outcome.DONE):
            found[p.dir.log_dir, "now"] += p.dir.allocated
    later = {(w.log_dir, w.name) for w in plan.waiting}
    for d in session.dirs:
        if (d.log_dir, d.name) in later and (d.log_dir, "later") in found:
            found[d.log_dir, "later"] += d.allocated
    return found


def _orphans(session: Session, facts: Facts) -> dict[tuple[str, str], tuple[int, int]]:
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for d in session.of_kind(Kind.CURRENT, Kind.FUTURE):
        ruling = facts.rulings.get((d.log_dir, d.name))
        if ruling is not None and ruling.verdict is Verdict.ORPHAN:
            count, size = found.get((d.log_dir, ruling.reason or ""), (0, 0))
            found[d.log_dir, ruling.reason or ""] = (count + 1, size + d.bytes)
    return found


def _assignments(session: Session) -> AssignmentsSummary:
    image = session.assignments.shown
    problems = session.assignments.problems
    return AssignmentsSummary(
        source=image.source.value if image is not None else None,
        at_ms=image.at_ms if image is not None else None,
        usable=bool(session.assignments.usable),
        problem="; ".join(problems) if problems and not session.assignments.usable else None,
    )
