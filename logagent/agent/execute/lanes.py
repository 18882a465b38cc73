"""Lanes: the actions of a plan, in order. A command has one; the daemon has one per log dir, in parallel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from logagent.errors import JournalError, LogAgentError
from logagent.host.log_dir.calls import DiskCalls, Stop
from logagent.host.removal.work_control import WorkControl
from logagent.model.facts import Facts
from logagent.model.planning.plan import ActionResult, Execution, Guard, Plan, Proposal, Refusal, action_id
from logagent.model.records import Outcome

# Renames in one batch. Their log start offsets are removed from the checkpoint before the first rename, and those of
# failed renames are put back after the last: a small batch limits what a broker that starts in between can find.
BATCH = 256


@dataclass(slots=True)
class Lane:
    """Collects the results of actions in their order. `look` gathers the facts again."""

    plan_id: str
    look: Callable[[], Facts]
    control: WorkControl
    execution: Execution = field(default_factory=Execution)

    def passes(self, p: Proposal, facts: Facts, guards: Iterable[Guard]) -> bool:
        """Whether every guard lets `p` pass on `facts`; if not, the refusal is recorded as its result."""
        refusal = next((r for guard in guards if (r := guard(p, facts)) is not None), None)
        if refusal is not None:
            self.refused(refusal, [p])
        return refusal is None

    def refused(self, refusal: Refusal, among: Iterable[Proposal]) -> None:
        self.execution.refusals.append(refusal)
        for p in among:
            if (p.dir.log_dir, p.dir.name) == (refusal.log_dir, refusal.name):
                self.record_result(p, ActionResult(Outcome.SKIPPED, f"{refusal.guard}: {refusal.fact}"))

    def stopped(self, proposals: Iterable[Proposal]) -> None:
        for p in proposals:
            self.record_result(p, ActionResult(Outcome.SKIPPED, "stopped before it was reached"))

    def record_result(self, p: Proposal, result: ActionResult) -> None:
        self.execution.results[action_id(p)] = result


Work = Callable[[Lane, Sequence[Proposal]], None]


def batches(proposals: Sequence[Proposal]) -> Iterator[tuple[tuple[str, str], list[Proposal]]]:
    """At most `BATCH` consecutive renames with the same source and target directory. A rename that makes room for the
    next one forms a separate batch with it, whose source is that of the latter."""
    ahead = iter(proposals)
    batch: list[Proposal] = []
    here: tuple[str, str] | None = None
    for p in ahead:
        back = next(ahead) if p.makes_room_for is not None else None
        places = (p.dir.log_dir if back is None else back.dir.log_dir, p.new_dir or p.dir.log_dir)
        if here is not None and (back is not None or places != here or len(batch) >= BATCH):
            yield here, batch
            here, batch = None, []
        if back is not None:
            yield places, [p, back]
        else:
            here = places
            batch.append(p)
    if here is not None:
        yield here, batch


def side_by_side(
    plan: Plan,
    look: Callable[[], Facts],
    control: WorkControl,
    calls: DiskCalls,
    work: Work,
    time_is_up: Stop,
) -> Execution:
    """`work` for one lane per log dir, in parallel; a lane that hangs delays no other.

    Only for the daemon's plans, whose actions concern one log dir each (with a quarantine directory on its file
    system). A JournalError in one lane ends the others too, and is raised once every lane has ended.
    """
    whole = Execution()
    parts: dict[str, list[Proposal]] = {}
    for p in plan.actions:
        parts.setdefault(p.dir.log_dir, []).append(p)
    failed = threading.Event()
    looking = threading.Lock()

    def look_one_at_a_time() -> Facts:
        with looking:  # each look goes through all processes of the host
            return look()

    def run(lane: Lane, actions: Sequence[Proposal], given_up: Stop) -> None:
        def stop() -> bool:
            return time_is_up() or given_up() or failed.is_set() or control.stop()

        lane.control = replace(control, stop=stop, given_up=given_up)
        try:
            work(lane, actions)
        except JournalError:
            failed.set()
            raise

    lanes = {path: Lane(plan.plan_id, look_one_at_a_time, control) for path in parts}
    ended = calls.work({path: partial(run, lanes[path], actions) for path, actions in parts.items()})
    for path, actions in parts.items():
        error = ended[path]
        if isinstance(error, JournalError):
            raise error
        # A lane that was given up may still add results when it wakes up, so they are copied now.
        results = dict(lanes[path].execution.results)
        if isinstance(error, LogAgentError):
            results = {action_id(p): ActionResult(Outcome.FAILED, str(error)) for p in actions} | results
        whole.results |= results
        whole.refusals += list(lanes[path].execution.refusals)
    return whole
