"""What happens to a directory, from its name to its last file: the index of this package.

The mirror of Kafka's `LogManager`, for a broker that is not there to do it itself. In the order in which it happens:

1. `agent.session.plan_delete.async_delete` (or `plan_cleanup`, `plan_prestart`, `cli.commands.restore`) decides which
   directories, and under which names, as a plan;
2. `LogManager.execute` carries the plan out: one action after the other in a command, one lane per log dir side by side
   in the daemon (`lanes`);
3. `LogManager._rename` (the second half of Kafka's `asyncDelete`): facts and guards anew, then `renames.RenameBatch`:
   journal, checkpoints, renames, one fsync (`replacements.Replacement` where one directory takes another's place);
4. the queue: the name that ends in `-delete` is the durable entry, and `model.planning.queue` says when it is due;
5. `LogManager._delete_logs` (Kafka's `deleteLogs`): facts and guards anew, then `removals.Remover`: journal, files;
6. after a crash `recovery` settles what is open in the journal by looking at the disk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from logagent.agent.clock import Clock
from logagent.agent.execute.lanes import Lane, batches, side_by_side
from logagent.agent.execute.plan_journal import PlanJournal
from logagent.agent.execute.removals import Remover
from logagent.agent.execute.renames import RenameBatch
from logagent.agent.execute.replacements import Replacement
from logagent.host.log_dir.calls import DirectCalls, DiskCalls, StoppableInterlock
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.removal.control import WorkControl
from logagent.host.state.journal import Journal
from logagent.model.facts import Facts
from logagent.model.planning.assemble import keep_pairs
from logagent.model.planning.guards import GUARDS
from logagent.model.planning.plan import Execution, Guard, Plan, Proposal
from logagent.model.records import ActionKind, Outcome, PartitionDir

# A thread that waits for Python's lock between a look and the call after it waits no longer than this (default 5 ms).
SWITCH_SECONDS = 0.0005
# Facts older than this are gathered anew before the next directory is removed.
FACTS_VALID_SECONDS = 1.0


@dataclass(slots=True)
class LogManager:
    """Executes plans on open log dirs.

    look: gathers the facts about these directories now; the guards run again on them before each act. longest_seconds:
    after these all lanes end at the next file (yielded), so that the next cycle sees what fell due meanwhile.
    """

    log_dirs: Mapping[str, OpenLogDir]
    journal: Journal
    clock: Clock
    look: Callable[[Sequence[PartitionDir]], Facts]
    actor: str
    guards: Sequence[Guard] = GUARDS
    control: WorkControl = field(default_factory=WorkControl)
    calls: DiskCalls = field(default_factory=DirectCalls)
    longest_seconds: float | None = None

    def execute(self, plan: Plan) -> Execution:
        """Carry out `plan` in its order: renames in batches per log dir, removals one by one.

        Where `calls` are parallel each log dir has its own part of it, and one that hangs holds up no other. What was
        under way there ends as failed, and its intent stays open in the journal for `recovery`. Nothing is done at all
        for a plan that needs approval. Raises JournalError: nothing more is done then, and the next session settles
        what is open.
        """
        sys.setswitchinterval(SWITCH_SECONDS)
        if plan.needs_approval is not None:
            return Execution()
        look = partial(self.look, [p.dir for p in plan.actions])
        if self.calls.parallel:
            until = float("inf") if self.longest_seconds is None else self.clock.monotonic() + self.longest_seconds
            control, now = self.control, self.clock.monotonic
            return side_by_side(plan, look, control, self.log_dirs, self.calls, self._run, lambda: now() >= until)
        lane = Lane(plan.plan_id, look, self.control)
        self._run(lane, plan.actions)
        return lane.execution

    def _run(self, lane: Lane, actions: Sequence[Proposal]) -> None:
        for is_removal, group in groupby(actions, key=lambda p: p.action is ActionKind.REMOVE):
            if is_removal:
                self._delete_logs(lane, group)
                continue
            for (source, target), proposals in batches(list(group)):
                self._rename(lane, source, target, proposals)

    def _rename(self, lane: Lane, source: str, target: str, asked: Sequence[Proposal]) -> None:
        """One batch of renames from the directory `source` to `target` (the same, but for a quarantine directory)."""
        # Not even a look once it was told to stop: one takes a while on a busy host, and there can be many.
        facts = None if lane.control.stop() else lane.look()
        if facts is None or lane.control.stop():
            lane.stopped(asked)
            return
        passed = [p for p in asked if lane.passes(p, facts, self.guards)]
        here = {(p.dir.log_dir, p.dir.name) for p in asked}
        permitted, alone = keep_pairs(passed, [p for p in asked if p.makes_room_for in here])
        for refusal in alone:
            lane.refused(refusal, passed)
        if not permitted:
            return
        # The one of the two that a broker locks: the other is a quarantine directory.
        home = target if facts.log_dirs[source].quarantine else source
        exchanged = permitted[0].makes_room_for is not None
        locked = self.log_dirs[permitted[0].dir.log_dir if exchanged else home]
        batch = (Replacement if exchanged else RenameBatch)(
            log_dir=locked,
            source=self.log_dirs[source],
            target=self.log_dirs[target],
            journal=self._journal_of(lane),
            interlock=StoppableInterlock(locked.fd, locked.path, lane.control.given_up),
            stop=lane.control.stop,
            facts=facts,
        )
        lane.execution.results.update(batch.run(permitted))

    def _delete_logs(self, lane: Lane, proposals: Iterable[Proposal]) -> None:
        """Removals, one directory after the other."""
        remover = Remover(self.log_dirs, self._journal_of(lane), lane.control)
        facts, seen_at = lane.look(), self.clock.monotonic()
        for p in proposals:
            if not lane.control.stop() and self.clock.monotonic() - seen_at > FACTS_VALID_SECONDS:
                facts, seen_at = lane.look(), self.clock.monotonic()
            if lane.control.stop():
                lane.stopped([p])
            elif lane.passes(p, facts, self.guards):
                result = remover.run(p, facts)
                lane.came_to(p, result)
                if result.outcome is not Outcome.DONE:
                    seen_at = float("-inf")

    def _journal_of(self, lane: Lane) -> PlanJournal:
        return PlanJournal(self.journal, self.clock.now_ms, lane.plan_id, self.actor)
