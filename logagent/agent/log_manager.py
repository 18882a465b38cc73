"""Carries plans out: the mirror of Kafka's `LogManager` for a broker that is not there to do it itself.

`async_delete` has Kafka's three outcomes: the directory was renamed (its removal is for the queue), None where there
is no such partition, KafkaStorageError where it may lie in an offline log dir.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from logagent.agent.clock import Clock
from logagent.agent.guard import GUARDS
from logagent.agent.removals import Remover
from logagent.agent.renames import RenameBatch
from logagent.broker.lock import Interlock
from logagent.errors import KafkaStorageError
from logagent.host.budget import ByteBudget
from logagent.host.disk import OpenLogDir
from logagent.host.journal import Journal
from logagent.model.facts import Facts
from logagent.model.plan import ActionResult, Guard, Plan, Proposal, Refusal, action_id, keep_pairs
from logagent.model.records import ActionKind, Health, Kind, Outcome, PartitionDir, TopicPartition

# Facts older than this are gathered anew before the next directory is removed.
FACTS_VALID_SECONDS = 1.0
# A thread that waits for Python's lock between a look and the call after it waits no longer than this (default 5 ms).
SWITCH_SECONDS = 0.0005


def _never() -> bool:
    return False


@dataclass(slots=True)
class Execution:
    """What came of a plan: a result per action id, and the refusals that came up on the way."""

    results: dict[str, ActionResult] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def freed_bytes(self) -> int:
        return sum(r.freed_bytes for r in self.results.values())


@dataclass(slots=True)
class LogManager:
    """Executes plans on open log dirs. `look` gathers the facts anew; the guards run again on them before each act."""

    log_dirs: Mapping[str, OpenLogDir]
    journal: Journal
    clock: Clock
    look: Callable[[], Facts]
    actor: str
    guards: Sequence[Guard] = GUARDS
    budget: ByteBudget | None = None
    workers: int = 1
    on_progress: Callable[[int, int], None] | None = None
    stop: Callable[[], bool] = _never

    def execute(self, plan: Plan) -> Execution:
        """Carry out `plan` once, in its order: renames as one batch per log dir, removals one by one.

        Raises JournalError: nothing more is done then, and the next session settles what is open. Nothing is done
        at all for a plan that needs approval.
        """
        execution = Execution()
        sys.setswitchinterval(SWITCH_SECONDS)
        if plan.needs_approval is not None:
            return execution
        for is_rename, group in groupby(plan.actions, key=lambda p: p.action is not ActionKind.REMOVE):
            if is_rename:
                self._rename(list(group), plan, execution)
            else:
                self._remove(group, plan, execution)
        return execution

    def async_delete(
        self,
        partition: TopicPartition,
        dirs: Sequence[PartitionDir],
        propose: Callable[[PartitionDir], Proposal],
        make_plan: Callable[[Sequence[Proposal]], Plan],
        *,
        is_future: bool = False,
    ) -> Execution | None:
        """`LogManager.asyncDelete` of one partition among `dirs` (an inventory), under every guard.

        None where there is no such (future) log. Raises KafkaStorageError where there is none to be seen but a log
        dir is offline. `propose` says whether it is marked or set aside as a stray.
        """
        found = find_partition(partition, dirs, self.look(), is_future=is_future)
        return None if found is None else self.execute(make_plan([propose(found)]))

    def _rename(self, proposals: Sequence[Proposal], plan: Plan, execution: Execution) -> None:
        for (source, target), batch in groupby(proposals, key=lambda p: (p.dir.log_dir, p.new_dir or p.dir.log_dir)):
            facts, asked = self.look(), list(batch)
            if self.stop():
                skipped = ActionResult(Outcome.SKIPPED, "stopped before it was this one's turn")
                execution.results.update(dict.fromkeys(map(action_id, asked), skipped))
                continue
            passed = [p for p in asked if self._passes(p, facts, execution)]
            here = {(p.dir.log_dir, p.dir.name) for p in asked}
            permitted, alone = keep_pairs(passed, [p for p in asked if p.makes_room_for in here])
            self._skip(passed, alone, execution)
            if not permitted:
                continue
            # The one of the two that a broker locks: the other is a quarantine directory.
            opened = self.log_dirs[target if facts.log_dirs[source].quarantine else source]
            run = RenameBatch(
                log_dir=opened,
                source=self.log_dirs[source],
                target=self.log_dirs[target],
                journal=self.journal,
                interlock=Interlock(opened.fd, opened.path),
                now_ms=self.clock.now_ms,
                plan_id=plan.plan_id,
                actor=self.actor,
                stop=self.stop,
            )
            execution.results.update(run.run(permitted))

    def _remove(self, proposals: Iterator[Proposal], plan: Plan, execution: Execution) -> None:
        remover = Remover(
            log_dirs=self.log_dirs,
            journal=self.journal,
            now_ms=self.clock.now_ms,
            plan_id=plan.plan_id,
            actor=self.actor,
            stop=self.stop,
            budget=self.budget,
            workers=self.workers,
            on_progress=self.on_progress,
        )
        facts, seen_at = self.look(), self.clock.monotonic()
        for p in proposals:
            if self.clock.monotonic() - seen_at > FACTS_VALID_SECONDS:
                facts, seen_at = self.look(), self.clock.monotonic()
            if self._passes(p, facts, execution):
                result = remover.run(p, facts)
                execution.results[action_id(p)] = result
                if result.outcome is not Outcome.DONE:
                    seen_at = float("-inf")

    @staticmethod
    def _skip(passed: Sequence[Proposal], alone: Sequence[Refusal], execution: Execution) -> None:
        execution.refusals += alone
        why = {(r.log_dir, r.name): f"{r.guard}: {r.fact}" for r in alone}
        for p in passed:
            if (p.dir.log_dir, p.dir.name) in why:
                skipped = ActionResult(Outcome.SKIPPED, why[p.dir.log_dir, p.dir.name])
                execution.results[action_id(p)] = skipped

    def _passes(self, p: Proposal, facts: Facts, execution: Execution) -> bool:
        for guard in self.guards:
            refusal = guard(p, facts)
            if refusal is not None:
                execution.refusals.append(refusal)
                execution.results[action_id(p)] = ActionResult(Outcome.SKIPPED, f"{refusal.guard}: {refusal.fact}")
                return False
        return True


def find_partition(
    partition: TopicPartition, dirs: Sequence[PartitionDir], facts: Facts, *, is_future: bool
) -> PartitionDir | None:
    """The directory of a current (or future) log among `dirs`; None where there is none.

    Raises KafkaStorageError, in Kafka's words, where it may be in an offline log dir.
    """
    kind = Kind.FUTURE if is_future else Kind.CURRENT
    for d in dirs:
        if d.kind is kind and d.topic == partition.topic and d.partition == partition.partition:
            return d
    offline = [f.path for f in facts.log_dirs.values() if f.health is Health.OFFLINE]
    if offline:
        what = "future log" if is_future else "log"
        raise KafkaStorageError(
            f"Failed to delete {what} for {partition} because it may be in one of the offline directories"
            f" {', '.join(offline)}",
            log_dir=offline[0],
            hint="mend the disk; logagent scan shows why the log dir is offline",
        )
    return None
