"""Lanes: the actions of a plan, in order. A command has one; the daemon has one per log dir, side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from logagent.errors import JournalError, LogAgentError
from logagent.host.log_dir.calls import DiskCalls, Stop
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.removal.control import WorkControl
from logagent.model.facts import Facts
from logagent.model.planning.plan import ActionResult, Execution, Guard, Plan, Proposal, Refusal, action_id
from logagent.model.records import Outcome

# Renames in one batch. Their log start offsets leave the checkpoint before the first and those of renames that did not
# happen come back after the last: what a broker that starts meanwhile can meet is kept short.
BATCH = 256


@dataclass(slots=True)
class Lane:
    """Where the results of actions in their order are collected. `look` gathers the facts anew."""

    plan_id: str
    look: Callable[[], Facts]
    control: WorkControl
    execution: Execution = field(default_factory=Execution)

    def passes(self, p: Proposal, facts: Facts, guards: Iterable[Guard]) -> bool:
        """Whether every guard lets `p` pass on `facts`; if not, the refusal is its result."""
        refusal = next((r for guard in guards if (r := guard(p, facts)) is not None), None)
        if refusal is not None:
            self.refused(refusal, [p])
        return refusal is None

    def refused(self, refusal: Refusal, among: Iterable[Proposal]) -> None:
        self.execution.refusals.append(refusal)
        for p in among:
            if (p.dir.log_dir, p.dir.name) == (refusal.log_dir, refusal.name):
                self.came_to(p, ActionResult(Outcome.SKIPPED, f"{refusal.guard}: {refusal.fact}"))

    def stopped(self, proposals: Iterable[Proposal]) -> None:
        for p in proposals:
            self.came_to(p, ActionResult(Outcome.SKIPPED, "stopped before its turn"))

    def came_to(self, p: Proposal, result: ActionResult) -> None:
        self.execution.results[action_id(p)] = result


Work = Callable[[Lane, Sequence[Proposal]], None]


def batches(proposals: Sequence[Proposal]) -> Iterator[tuple[tuple[str, str], list[Proposal]]]:
    """At most `BATCH` renames that follow each other from one directory to another; what makes room for the next one
    and that one are a batch of their own, from where the latter lies."""
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
    log_dirs: Mapping[str, OpenLogDir],
    calls: DiskCalls,
    work: Work,
    time_is_up: Stop,
) -> Execution:
    """`work` for one lane per log dir, all at the same time; a lane that hangs holds up no other.

    The daemon's plans only: their actions concern one log dir each (with a quarantine directory on its file system).
    Raises JournalError when every lane has ended; after one in any lane the others end too.
    """
    whole, parts = _parts(plan, log_dirs)
    failed = threading.Event()
    looking = threading.Lock()

    def look_in_turn() -> Facts:
        with looking:  # each looks at all processes of the host
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

    lanes = {path: Lane(plan.plan_id, look_in_turn, control) for path in parts}
    ended = calls.work({path: partial(run, lanes[path], actions) for path, actions in parts.items()})
    for path, actions in parts.items():
        error = ended[path]
        if isinstance(error, JournalError):
            raise error
        # A lane that was given up may still add to its results when it wakes up: these are copied at once.
        results = dict(lanes[path].execution.results)
        if isinstance(error, LogAgentError):
            results = {action_id(p): ActionResult(Outcome.FAILED, str(error)) for p in actions} | results
        whole.results |= results
        whole.refusals += list(lanes[path].execution.refusals)
    return whole


def _parts(plan: Plan, log_dirs: Mapping[str, OpenLogDir]) -> tuple[Execution, dict[str, list[Proposal]]]:
    """The actions by log dir. In a directory that has two paths (a symlink) no two lanes may work at the same time, for
    they have one temp file of a checkpoint between them: what was planned under the second path is skipped."""
    skipped = Execution()
    parts: dict[str, list[Proposal]] = {}
    for p in plan.actions:
        identity = log_dirs[p.dir.log_dir].identity
        first = next(path for path, log_dir in log_dirs.items() if log_dir.identity == identity)
        if first == p.dir.log_dir:
            parts.setdefault(first, []).append(p)
        else:
            same = ActionResult(Outcome.SKIPPED, f"{p.dir.log_dir} is the same directory as {first}")
            skipped.results[action_id(p)] = same
    return skipped, parts
