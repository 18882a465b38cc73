"""What one command or cycle does with one host: everything it rests on is a value, read in one order.

1. The assignments (`read_assignments`): a directory that is younger than they are proves nothing.
2. The inventory (`take_inventory`).
3. What the journal says of it, read once (`Recalled`), and
4. the evidence (`Facts`): who holds the log dirs, the version, one verdict per directory, what is not known. Both are
   gathered by `facts`, and once more before each batch of acts by `again`; only `remember` writes any of it down.
5. A `Planner`, which is pure, chooses from these.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from logagent.base.dir_names import RANDOM_BYTES, rename_uuid
from logagent.base.errors import LogAgentError
from logagent.base.records import PartitionDir
from logagent.cleanup.session.open_host import OpenHost
from logagent.disk.calls import Stop, never
from logagent.kafka.retention.settings import Layers
from logagent.verdict.facts import Facts

if TYPE_CHECKING:
    from logagent.cleanup.execute.log_manager import LogManager
    from logagent.cleanup.plan.plan import Plan, Proposal, Refusal, Waiting
    from logagent.cleanup.plan.planner import Planner
    from logagent.cleanup.state.journal import CheckpointEntry


class Session(OpenHost):
    """An open host with its evidence and its plans. Their modules are loaded once they are needed: `queue` is not."""

    __slots__ = ()

    # 4. Evidence

    def facts(
        self, dirs: Sequence[PartitionDir] | None = None, *, to_plan: bool = True, ask_broker: bool = True
    ) -> Facts:
        """The evidence, gathered now (`gather.gather`), with the journal read anew."""
        from logagent.cleanup.session.gather import gather

        return gather(self, dirs, to_plan=to_plan, ask_broker=ask_broker)

    def again(self, dirs: Sequence[PartitionDir], stop: Stop = never) -> Facts:
        """The evidence on `dirs` right before they are acted on (`gather.again`)."""
        from logagent.cleanup.session.gather import again

        return again(self, dirs, stop)

    def layers_in_force(self, facts: Facts, *, ask: bool) -> tuple[Layers, str | None]:
        """What is set, as it is in force now (`gather.layers_in_force`)."""
        from logagent.cleanup.session.gather import layers_in_force

        return layers_in_force(self, facts, ask=ask)

    def remember(self, facts: Facts) -> None:
        """Write down, for later sessions, what `facts` show (`gather.remember`)."""
        from logagent.cleanup.session.gather import remember

        remember(self, facts)

    # 5. Plans

    def planner(self, facts: Facts) -> Planner:
        from logagent.cleanup.plan.planner import Planner

        cleanup = self.settings.cleanup
        return Planner(
            dirs=self.dirs,
            recalled=self.recalled,
            evidence=facts,
            delay_ms=self.file_delete_delay_ms(),
            broker_delay_ms=self.broker_delete_delay_ms(),
            leftover_grace_ms=cleanup.leftover_grace,
            retention_ms=cleanup.stray_retention,
            sightings=cleanup.sightings,
            min_age_ms=cleanup.min_age,
            max_dirs=cleanup.max_dirs,
            max_fraction=cleanup.max_fraction,
            new_uuid=new_uuid,
            spared=self.spared,
        )

    def plan(
        self,
        proposals: Sequence[Proposal],
        waiting: Sequence[Waiting] = (),
        refusals: Sequence[Refusal] = (),
        *,
        facts: Facts,
        approve: str | None = None,
    ) -> Plan:
        """The planner's plan of `proposals`, with what has to be asked and tried for exactly these: whether each that
        goes is covered, and whether the kernel would permit it."""
        from logagent.cleanup.execute.changeable import look_whether_changeable
        from logagent.cleanup.session.gather import ask_about

        planner = self.planner(facts)
        proposals = [p for p in proposals if p.dir.log_dir not in planner.spared]
        planner = replace(planner, evidence=ask_about(self, proposals, facts))
        plan = planner.plan(proposals, waiting, refusals, approve=approve)
        # Only what nothing else keeps from being done is looked at: a removal file by file.
        unchangeable = look_whether_changeable(self.log_dirs.opened(), self.calls, plan.actions)
        if not unchangeable:
            return plan
        planner = replace(planner, evidence=replace(planner.evidence, unchangeable=unchangeable))
        return planner.plan(proposals, waiting, refusals, approve=approve)

    @property
    def spared(self) -> frozenset[str]:
        """What `--log-dir` leaves out: log dirs, and quarantine directories on file systems that only these are on."""
        spared = frozenset(self.target.spared)
        if not spared:
            return spared
        quarantines = self.log_dirs.quarantine_by_log_dir()
        used = {quarantine for path, quarantine in quarantines.items() if path not in spared}
        return spared | (self.log_dirs.quarantine.keys() - used)

    def checkpoint_drops(self, plan: Plan) -> dict[str, tuple[CheckpointEntry, ...]]:
        """By action id, the checkpoint entries that the plan's renames will remove, as far as they can be read now."""
        from logagent.cleanup.execute.checkpoint_entries import entries_to_drop

        jobs = {
            path: partial(entries_to_drop, log_dir, [p for p in plan.actions if p.dir.log_dir == path])
            for path, log_dir in self.log_dirs.online().items()
        }
        read = self.calls.call_each(jobs).values()
        return {id_: e for drops in read if not isinstance(drops, LogAgentError) for id_, e in drops.items()}

    def log_manager(
        self, *, stop: Callable[[], bool] = never, on_progress: Callable[[int, int], None] | None = None
    ) -> LogManager:
        from logagent.cleanup.execute.log_manager import LogManager
        from logagent.disk.work_control import ByteBudget, WorkControl

        delete = self.settings.delete
        budget = ByteBudget(delete.bytes_per_second) if delete.bytes_per_second else None
        return LogManager(
            log_dirs=self.log_dirs.by_path | self.log_dirs.quarantine,
            journal=self.journal,
            clock=self.clock,
            read_facts=partial(self.again, stop=stop),
            actor=self.actor,
            control=WorkControl(stop=stop, budget=budget, workers=delete.workers, on_progress=on_progress),
            calls=self.calls,
            # The next cycle is due by then: what is due in one log dir should not wait any longer for a slow one.
            longest_seconds=self.settings.cleanup.interval / 1000 if len(self.target.log_dirs) > 1 else None,
        )


def new_uuid() -> str:
    """For a name that we give now: 32 hex digits as in Kafka's names, recognisable as ours."""
    return rename_uuid(time.time_ns() // 1_000_000, os.urandom(RANDOM_BYTES))
