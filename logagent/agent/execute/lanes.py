"""The execution of a plan: one lane after the other in a command, one lane per log dir side by side in the daemon."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from logagent.agent.execute.removals import Remover
from logagent.agent.execute.renames import RenameBatch
from logagent.errors import JournalError, LogAgentError
from logagent.host.log_dir.calls import Stop, StoppableInterlock, never
from logagent.model.facts import Facts
from logagent.model.planning.plan import ActionResult, Plan, Proposal, Refusal, action_id, keep_pairs
from logagent.model.records import ActionKind, Outcome

if TYPE_CHECKING:
    from logagent.agent.execute.log_manager import LogManager

# Facts older than this are gathered anew before the next directory is removed.
FACTS_VALID_SECONDS = 1.0
# Renames in one batch. Their log start offsets leave the checkpoint before the first and those of renames that did not
# happen come back after the last: what a broker that starts meanwhile can meet is kept short.
BATCH = 256


@dataclass(slots=True)
class Execution:
    """What came of a plan: a result per action id, and the refusals that came up on the way."""

    results: dict[str, ActionResult] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def freed_bytes(self) -> int:
        return sum(r.freed_bytes for r in self.results.values())


_STOPPED = ActionResult(Outcome.SKIPPED, "stopped before it was this one's turn")


@dataclass(slots=True)
class Lane:
    """Carries out actions in their order, into `execution`.

    `look` gathers the facts anew. `stop`: between two actions or files, from outside. `given_up`: nobody waits for this
    lane any more, because its log dir hung; nothing is changed from then on.
    """

    manager: LogManager
    plan: Plan
    execution: Execution
    look: Callable[[], Facts]
    stop: Stop
    given_up: Stop = never

    def run(self, actions: Sequence[Proposal]) -> None:
        """Raises JournalError."""
        for is_rename, group in groupby(actions, key=lambda p: p.action is not ActionKind.REMOVE):
            if is_rename:
                self._rename(list(group))
            else:
                self._remove(group)

    def _rename(self, proposals: Sequence[Proposal]) -> None:
        for (source, target), asked in batches(proposals):
            # Not even a look once it was told to stop: one takes a while on a busy host, and there can be many.
            facts = None if self.stop() else self.look()
            if facts is None or self.stop():
                self.execution.results.update(dict.fromkeys(map(action_id, asked), _STOPPED))
                continue
            passed = [p for p in asked if self._passes(p, facts)]
            here = {(p.dir.log_dir, p.dir.name) for p in asked}
            permitted, alone = keep_pairs(passed, [p for p in asked if p.makes_room_for in here])
            self._skip(passed, alone)
            if not permitted:
                continue
            log_dirs = self.manager.log_dirs
            # The one of the two that a broker locks: the other is a quarantine directory.
            opened = log_dirs[target if facts.log_dirs[source].quarantine else source]
            run = RenameBatch(
                log_dir=opened,
                source=log_dirs[source],
                target=log_dirs[target],
                journal=self.manager.journal,
                interlock=StoppableInterlock(opened.fd, opened.path, self.given_up),
                now_ms=self.manager.clock.now_ms,
                plan_id=self.plan.plan_id,
                actor=self.manager.actor,
                stop=self.stop,
            )
            self.execution.results.update(run.run(permitted))

    def _remove(self, proposals: Iterable[Proposal]) -> None:
        manager = self.manager
        remover = Remover(
            log_dirs=manager.log_dirs,
            journal=manager.journal,
            now_ms=manager.clock.now_ms,
            plan_id=self.plan.plan_id,
            actor=manager.actor,
            stop=self.stop,
            given_up=self.given_up,
            budget=manager.budget,
            workers=manager.workers,
            on_progress=manager.on_progress,
        )
        facts, seen_at = self.look(), manager.clock.monotonic()
        for p in proposals:
            if self.stop():
                self.execution.results[action_id(p)] = _STOPPED
                continue
            if manager.clock.monotonic() - seen_at > FACTS_VALID_SECONDS:
                facts, seen_at = self.look(), manager.clock.monotonic()
            if self._passes(p, facts):
                result = remover.run(p, facts)
                self.execution.results[action_id(p)] = result
                if result.outcome is not Outcome.DONE:
                    seen_at = float("-inf")

    def _skip(self, passed: Sequence[Proposal], alone: Sequence[Refusal]) -> None:
        self.execution.refusals += alone
        why = {(r.log_dir, r.name): f"{r.guard}: {r.fact}" for r in alone}
        for p in passed:
            if (p.dir.log_dir, p.dir.name) in why:
                skipped = ActionResult(Outcome.SKIPPED, why[p.dir.log_dir, p.dir.name])
                self.execution.results[action_id(p)] = skipped

    def _passes(self, p: Proposal, facts: Facts) -> bool:
        for guard in self.manager.guards:
            refusal = guard(p, facts)
            if refusal is not None:
                self.execution.refusals.append(refusal)
                skipped = ActionResult(Outcome.SKIPPED, f"{refusal.guard}: {refusal.fact}")
                self.execution.results[action_id(p)] = skipped
                return False
        return True


def batches(proposals: Sequence[Proposal]) -> Iterator[tuple[tuple[str, str], list[Proposal]]]:
    """At most `BATCH` renames that follow each other from one directory to another; what makes room for the next one
    is never parted from it."""
    for places, group in groupby(proposals, key=lambda p: (p.dir.log_dir, p.new_dir or p.dir.log_dir)):
        batch: list[Proposal] = []
        for p in group:
            if len(batch) >= BATCH and batch[-1].makes_room_for is None:
                yield places, batch
                batch = []
            batch.append(p)
        yield places, batch


class SideBySide:
    """One lane per log dir, all at the same time; a lane that hangs holds up no other.

    The daemon's plans only: their actions concern one log dir each (with a quarantine directory on its file system).
    """

    def __init__(self, manager: LogManager, plan: Plan) -> None:
        self._manager = manager
        self._plan = plan
        self._looking = threading.Lock()
        self._failed = False
        longest = manager.longest_seconds
        self._until = manager.clock.monotonic() + longest if longest is not None else float("inf")

    def execute(self) -> Execution:
        """Raises JournalError when every lane has ended."""
        whole = Execution()
        parts: dict[str, list[Proposal]] = {}
        for p in self._plan.actions:
            first = self._first_path(p.dir.log_dir)
            if first == p.dir.log_dir:
                parts.setdefault(first, []).append(p)
            else:
                same = ActionResult(Outcome.SKIPPED, f"{p.dir.log_dir} is the same directory as {first}")
                whole.results[action_id(p)] = same
        lanes = {path: Execution() for path in parts}
        jobs = {path: partial(self._lane, lanes[path], actions) for path, actions in parts.items()}
        ended = self._manager.calls.work(jobs)
        for path, actions in parts.items():
            error = ended[path]
            if isinstance(error, JournalError):
                raise error
            # A lane that was given up may still add to its results when it wakes up: these are copied at once.
            results = dict(lanes[path].results)
            if isinstance(error, LogAgentError):
                failed = ActionResult(Outcome.FAILED, str(error))
                results = {action_id(p): failed for p in actions} | results
            whole.results |= results
            whole.refusals += list(lanes[path].refusals)
        return whole

    def _first_path(self, path: str) -> str:
        """The first path to this directory: in one that has two (a symlink) no two lanes may work at the same time, for
        they have one temp file of a checkpoint between them."""
        opened = self._manager.log_dirs
        identity = opened[path].identity
        return next(other for other, log_dir in opened.items() if log_dir.identity == identity)

    def _lane(self, execution: Execution, actions: Sequence[Proposal], given_up: Stop) -> None:
        def stop() -> bool:
            if self._manager.clock.monotonic() >= self._until:
                return True
            return given_up() or self._failed or self._manager.stop()

        try:
            Lane(self._manager, self._plan, execution, self._look, stop, given_up).run(actions)
        except JournalError:
            self._failed = True
            raise

    def _look(self) -> Facts:
        """One after the other: each looks at all processes of the host."""
        with self._looking:
            return self._manager.look()
