"""Removal of marked and stray directories, one after the other: `LogManager.deleteLogs`.

Per directory: facts and guards again (`LogManager`), the intent made durable, the mark on the disk that its removal has
started (from here on restore refuses), the files, the outcome. The intents of small directories are written together
(`next_batch`), to save an fsync for each; those that are not reached are withdrawn. Deviation: Kafka forgets a failed
removal until its next start; here it stays queued, with backoff.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from logagent.agent.execute.plan_journal import PlanJournal
from logagent.broker.files.meta_properties import same_topic_id
from logagent.broker.process.lock import Watch
from logagent.errors import BrokerHoldsLogDir, LogAgentError, RemovalStopped
from logagent.host.log_dir.calls import StoppableHolderWatch, StoppableInterlock
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.removal.remove import Removed, remove_dir
from logagent.host.removal.work_control import WorkControl
from logagent.model.facts import Facts
from logagent.model.planning.plan import ActionResult, Proposal
from logagent.model.records import HolderState, Kind, Outcome

# Tested from this release on: a live broker tolerates that the `.log` files of its strays are truncated.
TRUNCATES_HELD_SINCE = (3, 9, 0)
# The most that is begun in one transaction, so that an intent is not open for long before its directory is reached.
BATCH_DIRS = 64
BATCH_FILES = 8192
BATCH_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class Remover:
    """Removes what it is given. Raises only JournalError; any other failure is the result for that directory."""

    log_dirs: Mapping[str, OpenLogDir]
    journal: PlanJournal
    control: WorkControl
    begun: deque[tuple[int, Proposal]] = field(default_factory=deque)
    unsettled: list[tuple[int, Proposal, ActionResult]] = field(default_factory=list)
    withdrawn: list[int] = field(default_factory=list)
    # How many the next batch may have: fewer where facts expire, or a removal fails, before a batch ends.
    most: int = BATCH_DIRS

    def run(self, proposals: Sequence[Proposal], number: int, facts: Facts) -> ActionResult:
        """Remove the directory of `proposals[number]`, which every guard has just passed on `facts`. The intents of
        those after it may be written with its own.

        Its outcome is written with the next intents, or by `settle`. A crash in between leaves its intent open, and
        `recovery` finds that the directory no longer exists.
        """
        p = proposals[number]
        while self.begun and self.begun[0][1] is not p:
            self.withdrawn.append(self.begun.popleft()[0])
        if not self.begun:
            self._begin(next_batch(proposals, number, self.most))
            self.most = min(2 * self.most, BATCH_DIRS)
        action, _ = self.begun.popleft()
        result = self._attempt(p, facts)
        self.unsettled.append((action, p, result))
        return result

    def settle(self) -> None:
        """Record the outcomes of the removals so far, in one transaction, and withdraw the intents that were not
        reached."""
        if self.begun:
            self.withdrawn.extend(action for action, _ in self.begun)
            self.begun.clear()
            self.most = 1
        if self.unsettled or self.withdrawn:
            with self.journal.journal.together():
                self._record()
            self._forget()

    def _begin(self, batch: Sequence[Proposal]) -> None:
        with self.journal.journal.together():
            self._record()
            actions = self.journal.begin(batch)
        self._forget()
        self.begun.extend(zip(actions, batch, strict=True))

    def _record(self) -> None:
        journal = self.journal.journal
        journal.withdraw(self.withdrawn)
        self.journal.finish([(action, result.outcome, result.error) for action, _, result in self.unsettled])
        for _, p, result in self.unsettled:
            if result.outcome is Outcome.FAILED:
                journal.record_failure(p.dir.log_dir, p.dir.name, result.error or "", self.journal.now_ms())
        done = [p for _, p, result in self.unsettled if result.outcome is Outcome.DONE]
        journal.clear_failures(p.dir.key for p in done)

    def _forget(self) -> None:
        self.unsettled.clear()
        self.withdrawn.clear()

    def _attempt(self, p: Proposal, facts: Facts) -> ActionResult:
        try:
            removed = self._remove(p, facts)
        except (BrokerHoldsLogDir, RemovalStopped) as e:
            return ActionResult(Outcome.YIELDED, str(e))
        except LogAgentError as e:
            return ActionResult(Outcome.FAILED, str(e))
        return ActionResult(Outcome.DONE, freed_bytes=removed.freed_bytes)

    def _remove(self, p: Proposal, facts: Facts) -> Removed:
        log_dir = self.log_dirs[p.dir.log_dir]
        holder = facts.log_dirs[p.dir.log_dir].holder
        held = holder.state is HolderState.HELD
        truncates = facts.kafka_version is not None and facts.kafka_version >= TRUNCATES_HELD_SINCE
        # The ruling on a stray used the topic id that the inventory saw. A half-removed directory may have none.
        asked = p.dir.kind is Kind.STRAY and not p.removal_started

        def watch() -> Watch:
            if held:
                return StoppableHolderWatch(log_dir.fd, log_dir.path, holder.pid, self.control.given_up)
            return StoppableInterlock(log_dir.fd, log_dir.path, self.control.given_up)

        return remove_dir(
            log_dir,
            p.dir.name,
            p.dir.identity,
            *(watch() for _ in range(self.control.workers)),
            control=replace(self.control, held=held, truncate_held=truncates),
            check=partial(same_topic_id, p.dir) if asked else None,
            seen=p.dir,
        )


def next_batch(proposals: Sequence[Proposal], first: int, most: int = BATCH_DIRS) -> Sequence[Proposal]:
    """`proposals[first]`, and as many of those after it as may be begun with it, `most` in all."""
    batch = proposals[first : first + most]
    files = size = 0
    for number, p in enumerate(batch):
        files += p.dir.files
        size += max(p.dir.bytes, p.dir.allocated)
        if number and (files > BATCH_FILES or size > BATCH_BYTES):
            return batch[:number]
    return batch
