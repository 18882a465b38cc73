"""Carries plans out: the mirror of Kafka's `LogManager` for a broker that is not there to do it itself.

`async_delete` has Kafka's three outcomes: the directory was renamed (its removal is for the queue), None where there
is no such partition, KafkaStorageError where it may lie in an offline log dir.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from logagent.agent.clock import Clock
from logagent.agent.execute.lanes import Execution, Lane, SideBySide
from logagent.errors import KafkaStorageError
from logagent.host.log_dir.calls import DirectCalls, DiskCalls, Stop, never
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.removal.budget import ByteBudget
from logagent.host.state.journal import Journal
from logagent.model.facts import Facts
from logagent.model.planning.guards import GUARDS
from logagent.model.planning.plan import Guard, Plan, Proposal
from logagent.model.records import Health, Kind, PartitionDir, TopicPartition

__all__ = ["Execution", "LogManager", "find_partition"]

# A thread that waits for Python's lock between a look and the call after it waits no longer than this (default 5 ms).
SWITCH_SECONDS = 0.0005


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
    stop: Stop = never
    calls: DiskCalls = field(default_factory=DirectCalls)
    longest_seconds: float | None = None

    def execute(self, plan: Plan) -> Execution:
        """Carry out `plan` once, in its order: renames as one batch per log dir, removals one by one.

        Where `calls` are parallel each log dir has its own part of it, and one that hangs holds up no other. What was
        under way there ends as failed, and its intent stays open in the journal for `recovery`. After `longest_seconds`
        all of them end at the next file (yielded): the rest is for the next cycle, which sees what fell due meanwhile.

        Raises JournalError: nothing more is done then, and the next session settles what is open. Nothing is done
        at all for a plan that needs approval.
        """
        sys.setswitchinterval(SWITCH_SECONDS)
        if plan.needs_approval is not None:
            return Execution()
        if self.calls.parallel:
            return SideBySide(self, plan).execute()
        execution = Execution()
        Lane(self, plan, execution, self.look, self.stop).run(plan.actions)
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
