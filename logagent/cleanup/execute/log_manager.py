"""What happens to a directory, from its name to its last file: the index of this package.

Mirrors Kafka's `LogManager`, for a broker that is not running to do it itself. In order:

1. `cleanup.commands.cleanup` (`async_delete` for what an operator names), `plan_prestart` or `plan_restore` decides
which directories, and under which names, as a plan;
2. `LogManager.execute` carries out the plan, its actions in order: in a command one after the other, in the daemon one
lane per log dir, in parallel;
3. `LogManager._rename` (the second half of Kafka's `asyncDelete`): facts and guards again, then `renames.RenameBatch`:
journal, checkpoints, renames, one fsync (`renames.Replacement` where one directory takes another's place);
4. the queue: the name that ends in `-delete` is the durable entry, and `cleanup.plan.queue` says when it is due;
5. `LogManager._delete_logs` (Kafka's `deleteLogs`): facts and guards again, then `Remover`: journal (small directories
together), files;
6. after a crash `recovery` settles what is open in the journal by looking at the disk.
"""

from __future__ import annotations

import gc
import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

from logagent.base.clock import Clock
from logagent.base.errors import BrokerHoldsLogDir, JournalError, LogAgentError, RemovalStopped
from logagent.base.files.safe_open import MIB
from logagent.base.linux.kernel import without_garbage_collection
from logagent.base.records import ActionKind, HolderState, Kind, Outcome, PartitionDir, Reason
from logagent.cleanup.execute.renames import PlanJournal, RenameBatch, Replacement
from logagent.cleanup.plan.assemble import as_planned, keep_pairs
from logagent.cleanup.plan.guards import GUARDS
from logagent.cleanup.plan.plan import ActionResult, Execution, Guard, Plan, Proposal, Refusal, action_id
from logagent.cleanup.state.journal import Journal
from logagent.disk.calls import DirectCalls, DiskCalls, Stop, StoppableHolderWatch, StoppableInterlock
from logagent.disk.log_dir import OpenLogDir
from logagent.disk.remove import RemovalMark, Removed, mark_dirs, remove_dir, remove_leftovers, unmark_dirs
from logagent.disk.unlink import WorkControl
from logagent.kafka.files.properties import same_topic_id
from logagent.kafka.processes.lock import Watch
from logagent.verdict.facts import Facts

_REMOVALS = (ActionKind.REMOVE, ActionKind.REMOVE_LEFTOVERS)
# Renames in one batch. Their log start offsets are removed from the checkpoint before the first rename, and those of
# failed renames are put back after the last: a small batch limits what a broker that starts in between can find.
BATCH = 256
# The longest wait for the GIL between a look and the call after it (Python's default is 5 ms).
SWITCH_SECONDS = 0.0005
# Facts older than this are gathered again before the next directory is removed.
FACTS_VALID_SECONDS = 1.0
AGE_STEP_MS = 100
# Garbage is collected between two directories at least this often, where that is possible.
COLLECT_SECONDS = 60.0


@dataclass(slots=True)
class Lane:
    """Collects the results of actions in their order. `read_facts` gathers the facts again."""

    plan_id: str
    read_facts: Callable[[], Facts]
    control: WorkControl
    execution: Execution = field(default_factory=Execution)

    def passes(self, p: Proposal, facts: Facts, guards: Iterable[Guard]) -> bool:
        """Whether every guard lets `p` pass on `facts`; if not, the refusal is recorded as its result."""
        why = first_refusal(p, facts, guards)
        if why is not None:
            self.refused(Refusal.of(p.dir, why), [p])
        return why is None

    def refused(self, refusal: Refusal, among: Iterable[Proposal]) -> None:
        self.execution.refusals.append(refusal)
        for p in among:
            if p.dir.key == refusal.key:
                self.record_result(p, ActionResult(Outcome.SKIPPED, f"{refusal.why.code}: {refusal.why.fact}"))

    def stopped(self, proposals: Iterable[Proposal]) -> None:
        for p in proposals:
            self.record_result(p, ActionResult(Outcome.SKIPPED, "stopped before it was reached"))

    def record_result(self, p: Proposal, result: ActionResult) -> None:
        self.execution.results[action_id(p)] = result


def first_refusal(p: Proposal, facts: Facts, guards: Iterable[Guard]) -> Reason | None:
    return next((r for guard in guards if (r := guard(p, facts)) is not None), None)


@dataclass(slots=True)
class LogManager:
    """Executes plans on open log dirs.

    look: gathers the current facts about these directories; the guards run on them again before each act.
    longest_seconds: after this time all lanes stop at the next file (yielded), so that the next cycle sees what has
    fallen due since.
    """

    log_dirs: Mapping[str, OpenLogDir]
    journal: Journal
    clock: Clock
    read_facts: Callable[[Sequence[PartitionDir]], Facts]
    actor: str
    guards: Sequence[Guard] = GUARDS
    control: WorkControl = field(default_factory=WorkControl)
    calls: DiskCalls = field(default_factory=DirectCalls)
    longest_seconds: float | None = None

    def execute(self, plan: Plan) -> Execution:
        """Carry out `plan` in its order: renames in batches per log dir, removals one by one.

        If `calls` are parallel, each log dir has its own part of the plan, and one that hangs delays no other: its
        current action ends as failed, and the intent stays open in the journal for `recovery`. A plan that needs
        approval is not carried out at all. Raises JournalError; then nothing more is done, and the next session settles
        what is open.
        """
        sys.setswitchinterval(SWITCH_SECONDS)
        if plan.needs_approval is not None:
            return Execution()
        read_facts = partial(self.read_facts, [p.dir for p in plan.actions])
        manager = replace(self, guards=(partial(as_planned, plan), *self.guards))
        with without_garbage_collection():
            if self.calls.parallel:
                return manager._side_by_side(plan, read_facts)
            lane = Lane(plan.plan_id, read_facts, self.control)
            manager._run(lane, plan.actions)
            return lane.execution

    def _side_by_side(self, plan: Plan, read_facts: Callable[[], Facts]) -> Execution:
        """One lane per log dir, in parallel; a lane that hangs delays no other.

        Only for the daemon's plans, whose actions concern one log dir each (with a quarantine directory on its file
        system). A JournalError in one lane ends the others too, and is raised once every lane has ended.
        """
        parts: dict[str, list[Proposal]] = {}
        for p in plan.actions:
            parts.setdefault(p.dir.log_dir, []).append(p)
        until = float("inf") if self.longest_seconds is None else self.clock.monotonic() + self.longest_seconds
        failed, reading = threading.Event(), threading.Lock()

        def facts_one_at_a_time() -> Facts:
            with reading:  # each look goes through all processes of the host
                return read_facts()

        def run(lane: Lane, actions: Sequence[Proposal], given_up: Stop) -> None:
            def stop() -> bool:
                return self.clock.monotonic() >= until or given_up() or failed.is_set() or self.control.stop()

            lane.control = replace(self.control, stop=stop, given_up=given_up)
            try:
                self._run(lane, actions)
            except JournalError:
                failed.set()
                raise

        lanes = {path: Lane(plan.plan_id, facts_one_at_a_time, self.control) for path in parts}
        ended = self.calls.work({path: partial(run, lanes[path], actions) for path, actions in parts.items()})
        return _joined(parts, lanes, ended)

    def _run(self, lane: Lane, actions: Sequence[Proposal]) -> None:
        for action, group in groupby(actions, key=lambda p: p.action if p.action in _REMOVALS else None):
            if action is ActionKind.REMOVE:
                self._delete_logs(lane, list(group))
                continue
            if action is ActionKind.REMOVE_LEFTOVERS:
                self._remove_leftovers(lane, list(group))
                continue
            for (source, target), proposals in batches(list(group)):
                self._rename(lane, source, target, proposals)

    def _rename(self, lane: Lane, source: str, target: str, asked: Sequence[Proposal]) -> None:
        """One batch of renames from the directory `source` to `target` (the same one, unless a quarantine directory is
        involved)."""
        # No look once it was told to stop: on a busy host a look takes a while, and there can be many.
        facts = None if lane.control.stop() else lane.read_facts()
        if facts is None or lane.control.stop():
            lane.stopped(asked)
            return
        passed = [p for p in asked if lane.passes(p, facts, self.guards)]
        here = {p.dir.key for p in asked}
        permitted, alone = keep_pairs(passed, [p for p in asked if p.makes_room_for in here])
        for refusal in alone:
            lane.refused(refusal, passed)
        if not permitted:
            return
        # The one that a broker locks: the other is a quarantine directory.
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
        with self.calls.at(locked.path):
            lane.execution.results.update(batch.run(permitted))

    def _delete_logs(self, lane: Lane, proposals: Sequence[Proposal]) -> None:
        """Removals, one directory after the other. A batch is begun on the facts of its first directory; each of the
        others is judged again when it is reached."""
        remover = Remover(self.log_dirs, self._journal_of(lane), lane.control, self.calls)
        # With parallel lanes one of them is always between a look and a call; such runs end after a while.
        alone = not self.calls.parallel or len(self.log_dirs) == 1
        facts, seen_at = lane.read_facts(), self.clock.monotonic()
        collected_at, noted = seen_at, ExitStack()
        try:
            for number, p in enumerate(proposals):
                if not number or p.dir.log_dir != proposals[number - 1].dir.log_dir:
                    # Noted once, not for each directory: the note is a write to the executor lock's file.
                    noted.close()
                    noted.enter_context(self.calls.at(p.dir.log_dir))
                if not lane.control.stop() and self.clock.monotonic() - seen_at > FACTS_VALID_SECONDS:
                    remover.settle()  # A look can take a while, or hang.
                    if alone and self.clock.monotonic() - collected_at > COLLECT_SECONDS:
                        gc.collect()
                        collected_at = self.clock.monotonic()
                    facts, seen_at = lane.read_facts(), self.clock.monotonic()
                if lane.control.stop():
                    lane.stopped([p])
                    continue
                # The facts with their age, rounded up, so that not every directory needs its own copy of them: what was
                # looked at counts for a while only, however it came to be used later.
                age_ms = AGE_STEP_MS * math.ceil((self.clock.monotonic() - seen_at) * 1000 / AGE_STEP_MS)
                facts = facts if facts.age_ms == age_ms else replace(facts, age_ms=age_ms)
                if lane.passes(p, facts, self.guards):
                    result = remover.run(proposals, number, facts, partial(self._permits, facts))
                    lane.record_result(p, result)
                    if result.outcome is not Outcome.DONE:
                        seen_at = float("-inf")
        finally:
            noted.close()
            remover.settle()

    def _remove_leftovers(self, lane: Lane, proposals: Sequence[Proposal]) -> None:
        """What a start would drop in directories that stay, one directory after the other."""
        for p in proposals:
            facts = None if lane.control.stop() else lane.read_facts()
            if facts is None or lane.control.stop():
                lane.stopped([p])
                continue
            if not lane.passes(p, facts, self.guards):
                continue
            log_dir, journal = self.log_dirs[p.dir.log_dir], self._journal_of(lane)
            (action,) = journal.begin([p])
            try:
                watch = StoppableInterlock(log_dir.fd, log_dir.path, lane.control.given_up)
                with self.calls.at(log_dir.path):
                    freed = remove_leftovers(
                        log_dir, p.dir, p.leftovers, watch, lane.control, partial(same_topic_id, p.dir)
                    )
                result = ActionResult(Outcome.DONE, freed_bytes=freed)
            except (BrokerHoldsLogDir, RemovalStopped) as e:
                result = ActionResult(Outcome.YIELDED, str(e))
            except LogAgentError as e:
                result = ActionResult(Outcome.FAILED, str(e))
            journal.finish([(action, result.outcome, result.error)])
            lane.record_result(p, result)

    def _permits(self, facts: Facts, p: Proposal) -> bool:
        return first_refusal(p, facts, self.guards) is None

    def _journal_of(self, lane: Lane) -> PlanJournal:
        return PlanJournal(self.journal, self.clock.now_ms, lane.plan_id, self.actor)


def _joined(
    parts: Mapping[str, Sequence[Proposal]], lanes: Mapping[str, Lane], ended: Mapping[str, object]
) -> Execution:
    """The results of all lanes. Raises the JournalError of one."""
    whole = Execution()
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


# Tested from this release on: a live broker tolerates that the `.log` files of its strays are truncated.
TRUNCATES_HELD_SINCE = (3, 9, 0)
# The most that is begun in one transaction, so that an intent is not open for long before its directory is reached.
BATCH_DIRS = 64
BATCH_FILES = 8192
BATCH_BYTES = 64 * MIB


@dataclass(slots=True)
class Started:
    """A removal whose intent is durable. `watches`: one for each worker, shared by all of the batch in its log dir."""

    action: int
    proposal: Proposal
    watches: Sequence[Watch]
    mark: RemovalMark


@dataclass(slots=True)
class Remover:
    """Removes marked and stray directories, one after the other. Raises only JournalError; any other failure is the
    result for that directory.

    Per directory: the intent made durable, the mark on the disk that its removal has started (from here on restore
    refuses), the files, the outcome. The intents of small directories are written together (`next_batch`), and then
    their marks, to save an fsync of each for every directory but the first. Deviation: Kafka forgets a failed removal
    until its next start; here it stays queued, with backoff.

    What is not reached gets its mark taken back, durably, before its intent is withdrawn: a mark that no intent
    explains would keep it from being restored. Where that cannot be done (a broker has started, the disk fails) the
    intent stays open, which says that it is whole as long as nothing is missing, and `recovery` tries again.
    """

    log_dirs: Mapping[str, OpenLogDir]
    journal: PlanJournal
    control: WorkControl
    calls: DiskCalls = field(default_factory=DirectCalls)
    started: deque[Started] = field(default_factory=deque)
    unsettled: list[tuple[int, Proposal, ActionResult]] = field(default_factory=list)
    not_reached: list[Started] = field(default_factory=list)
    # How many the next batch may have: fewer where facts expire, or a removal fails, before a batch ends.
    most: int = BATCH_DIRS

    def run(
        self, proposals: Sequence[Proposal], number: int, facts: Facts, may_join: Callable[[Proposal], bool]
    ) -> ActionResult:
        """Remove the directory of `proposals[number]`, which every guard has just passed on `facts`. Those after it
        may be begun with it, up to the first that `may_join` does not permit on the same facts.

        Its outcome is written with the next intents, or by `settle`. A crash in between leaves its intent open, and
        `recovery` finds that the directory no longer exists.
        """
        p = proposals[number]
        while self.started and self.started[0].proposal is not p:
            self.not_reached.append(self.started.popleft())
        if not self.started:
            self._begin(next_batch(proposals, number, self.most, may_join), facts)
            self.most = min(2 * self.most, BATCH_DIRS)
        started = self.started.popleft()
        try:
            result = ActionResult(Outcome.DONE, freed_bytes=self._remove(started, facts).freed_bytes)
        except (BrokerHoldsLogDir, RemovalStopped) as e:
            result = ActionResult(Outcome.YIELDED, str(e))
        except LogAgentError as e:
            result = ActionResult(Outcome.FAILED, str(e))
        self.unsettled.append((started.action, p, result))
        return result

    def settle(self) -> None:
        """Record the outcomes of the removals so far, in one transaction, and withdraw the intents that were not
        reached."""
        if self.started:
            self.not_reached.extend(self.started)
            self.started.clear()
            self.most = 1
        if self.unsettled or self.not_reached:
            withdrawn = self._unmarked()
            with self.journal.journal.together():
                self._record(withdrawn)
            self._forget()

    def _begin(self, batch: Sequence[Proposal], facts: Facts) -> None:
        withdrawn = self._unmarked()
        with self.journal.journal.together():
            self._record(withdrawn)
            actions = self.journal.begin(batch, facts=facts)
        self._forget()
        # A batch may have directories of several log dirs.
        watches = {path: self._watches(path, facts) for path in {p.dir.log_dir: None for p in batch}}
        for n, p in zip(actions, batch, strict=True):
            mark = RemovalMark(p.dir.name, p.dir.identity, _topic_id_check(p))
            self.started.append(Started(n, p, watches[p.dir.log_dir], mark))
        for path, here in watches.items() if len(batch) > 1 else ():
            marks = [b.mark for b in self.started if b.proposal.dir.log_dir == path]
            with self.calls.at(path):
                mark_dirs(self.log_dirs[path], marks, here[0])

    def _unmarked(self) -> list[int]:
        """Take the marks back from what was not reached; returns the ids of the intents that may be withdrawn."""
        withdrawn = [b.action for b in self.not_reached if not b.mark.given]
        marked = [b for b in self.not_reached if b.mark.given]
        for path in {b.proposal.dir.log_dir: None for b in marked}:
            here = [b for b in marked if b.proposal.dir.log_dir == path]
            dirs = [(b.proposal.dir.name, b.proposal.dir.identity) for b in here]
            try:
                with self.calls.at(path):
                    unmark_dirs(self.log_dirs[path], dirs, here[0].watches[0])
            except LogAgentError:
                continue
            withdrawn += [b.action for b in here]
        return withdrawn

    def _record(self, withdrawn: Sequence[int]) -> None:
        journal = self.journal.journal
        journal.withdraw(withdrawn)
        self.journal.finish([(action, result.outcome, result.error) for action, _, result in self.unsettled])
        for _, p, result in self.unsettled:
            if result.outcome is Outcome.FAILED:
                journal.record_failure(p.dir.log_dir, p.dir.name, result.error or "", self.journal.now_ms())
        done = [p for _, p, result in self.unsettled if result.outcome is Outcome.DONE]
        journal.clear_failures(p.dir.key for p in done)

    def _forget(self) -> None:
        self.unsettled.clear()
        self.not_reached.clear()

    def _watches(self, path: str, facts: Facts) -> list[Watch]:
        """What looks at the lock right before each change in a log dir, for each worker."""
        log_dir, holder, given_up = self.log_dirs[path], facts.log_dirs[path].holder, self.control.given_up
        if holder.state is HolderState.HELD:
            workers = range(self.control.workers)
            return [StoppableHolderWatch(log_dir.fd, log_dir.path, holder.pid, given_up) for _ in workers]
        return [StoppableInterlock(log_dir.fd, log_dir.path, given_up) for _ in range(self.control.workers)]

    def _remove(self, started: Started, facts: Facts) -> Removed:
        p = started.proposal
        truncates = facts.kafka_version is not None and facts.kafka_version >= TRUNCATES_HELD_SINCE
        held = facts.log_dirs[p.dir.log_dir].holder.state is HolderState.HELD
        return remove_dir(
            self.log_dirs[p.dir.log_dir],
            p.dir.name,
            p.dir.identity,
            *started.watches,
            control=replace(self.control, held=held, truncate_held=truncates),
            mark=started.mark,
            seen=p.dir,
        )


def _topic_id_check(p: Proposal) -> Callable[[int], None] | None:
    """The ruling on a stray used the topic id that the inventory saw. A half-removed directory may have none."""
    return partial(same_topic_id, p.dir) if p.dir.kind is Kind.STRAY and not p.removal_started else None


def next_batch(
    proposals: Sequence[Proposal],
    first: int,
    most: int = BATCH_DIRS,
    may_join: Callable[[Proposal], bool] = lambda p: True,
) -> Sequence[Proposal]:
    """`proposals[first]`, and as many of those after it as may be begun with it, `most` in all."""
    batch = proposals[first : first + most]
    files = size = 0
    for number, p in enumerate(batch):
        files += p.dir.files
        size += p.dir.allocated
        if number and (files > BATCH_FILES or size > BATCH_BYTES or not may_join(p)):
            return batch[:number]
    return batch
