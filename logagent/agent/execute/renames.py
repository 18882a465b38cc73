"""Batches of renames in one log dir: mark, quarantine, restore. The mirror of `LogManager.asyncDelete`.

Order, for crash safety (each step is idempotent, and `agent.recovery` settles what a kill leaves in between):

1. the journal knows every intent, with the checkpoint entries that are about to go;
2. `log-start-offset` and cleaner entries leave their checkpoints *before* the rename: a stale log start offset above
   a new incarnation's end would make the broker drop its segments (Kafka writes it after; nobody can interrupt it);
3. the renames (of what comes back: after its `.index` files went, see `indexes`), each after a look at the broker's
   lock and with another one behind it;
4. one fsync of the log dir for the batch (deviation: Kafka fsyncs after each rename);
5. the recovery-point entries go, entries of renames that did not happen (and of restored dirs) come back;
6. the journal learns what came of each.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from logagent.agent.execute.checkpoints import ENTRY_FILES, edit_checkpoints, entries_to_drop
from logagent.agent.execute.indexes import drop_indexes
from logagent.agent.execute.plan_journal import PlanJournal
from logagent.broker.files.checkpoints import CLEANER, LOG_START_OFFSET, RECOVERY_POINT
from logagent.broker.files.partition_metadata import read_topic_id
from logagent.broker.process.lock import Interlock, look
from logagent.errors import BrokerHoldsLogDir, KafkaStorageError, LogAgentError, NotAsPlanned, UnreadableError
from logagent.host.log_dir.calls import Stop
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.state.journal import CheckpointEntry
from logagent.model.facts import Facts
from logagent.model.naming.names import classify
from logagent.model.planning.plan import ActionResult, Proposal, action_id
from logagent.model.records import ActionKind, Kind, Outcome, PartitionDir

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_BEFORE_RENAME = (LOG_START_OFFSET, CLEANER)
_AFTER_RENAME = (RECOVERY_POINT,)

# By action id.
Entries = Mapping[str, tuple[CheckpointEntry, ...]]


@dataclass(slots=True)
class RenameBatch:
    """One batch of one log dir, whose lock and checkpoints count.

    `run` never raises for a single directory; JournalError stops everything.

    `source` and `target` are where the directories lie and go to: the log dir itself, but for a quarantine directory
    (brokers before 3.6.1) or the way back from there. `facts`: what every guard has just let pass.
    """

    log_dir: OpenLogDir
    source: OpenLogDir
    target: OpenLogDir
    journal: PlanJournal
    interlock: Interlock
    stop: Stop
    facts: Facts
    results: dict[str, ActionResult] = field(default_factory=dict)
    # Action ids of which only the disk knows whether they happened: they stay open in the journal, for `recovery`.
    uncertain: set[str] = field(default_factory=set)

    def run(self, proposals: Sequence[Proposal]) -> dict[str, ActionResult]:
        """Carry out `proposals` in order; the result of each by its action id."""
        try:
            entries = self._checkpoint_entries(proposals)
            clean = closed_cleanly(self.log_dir)
        except LogAgentError as e:
            self.results = {action_id(p): ActionResult(Outcome.FAILED, str(e)) for p in proposals}
            return self.results
        ids = self.journal.begin(proposals, entries, closed_cleanly=clean, facts=self.facts)
        if self._drop_before_rename(proposals, entries):
            self._rename_all(proposals)
        self._settle_checkpoints(proposals, entries)
        outcomes = [(n, self._result(p), action_id(p)) for n, p in zip(ids, proposals, strict=True)]
        self.journal.finish((n, r.outcome, r.error) for n, r, action in outcomes if action not in self.uncertain)
        return self.results

    def _result(self, p: Proposal) -> ActionResult:
        return self.results[action_id(p)]

    # Checkpoints

    def _checkpoint_entries(self, proposals: Sequence[Proposal]) -> Entries:
        """By action id: for what goes, its entries in this log dir now; for what comes back, those it had."""
        found = entries_to_drop(self.log_dir, proposals)
        for p in proposals:
            if p.action is ActionKind.RESTORE:
                saved = self.journal.journal.saved_checkpoint_entries(p.dir.log_dir, p.dir.name, p.dir.identity)
                found[action_id(p)] = saved
        return found

    def _settle_checkpoints(self, proposals: Sequence[Proposal], entries: Entries) -> None:
        """Bring the checkpoints in line with what was renamed.

        Two edits, because they differ in weight: a stale recovery point does no harm, but without its log start offset
        a partition shows records again that were deleted from it.
        """
        drop: list[CheckpointEntry] = []
        put: dict[str, tuple[CheckpointEntry, ...]] = {}
        for p in proposals:
            if action_id(p) in self.uncertain:
                continue
            mine = entries.get(action_id(p), ())
            done = self._result(p).outcome is Outcome.DONE
            if p.action is ActionKind.RESTORE:
                back = mine if done else ()
            elif done:
                back = ()
                drop += [e for e in mine if e.file in _AFTER_RENAME]
            else:
                back = tuple(e for e in mine if e.file in _BEFORE_RENAME)
            if back:
                put[action_id(p)] = back
        with suppress(LogAgentError):
            edit_checkpoints(self.log_dir, self.interlock, drop=drop, put=[], files=_AFTER_RENAME)
        self._put_back(proposals, put)

    def _put_back(self, proposals: Sequence[Proposal], put: Entries) -> None:
        try:
            entries = [e for back in put.values() for e in back]
            edit_checkpoints(self.log_dir, self.interlock, drop=[], put=entries, files=ENTRY_FILES)
        except LogAgentError as e:
            for p in proposals:
                if action_id(p) in put:
                    self.results[action_id(p)] = _not_put_back(self._result(p), put[action_id(p)], e)
            # With a broker there its own checkpoints are the truth from now on; nothing is left to recover. (The
            # interlock also stops where it cannot tell; then there is.)
            if not look(self.log_dir.fd).held:
                self.uncertain.update(put)

    def _drop_before_rename(self, proposals: Sequence[Proposal], entries: Entries) -> bool:
        """Take out what must not outlive the rename; False (and a result for each) where that did not work."""
        going = [e for p in proposals if p.action is not ActionKind.RESTORE for e in entries.get(action_id(p), ())]
        going += self._stale(proposals)
        try:
            edit_checkpoints(self.log_dir, self.interlock, drop=going, put=[], files=_BEFORE_RENAME)
        except BrokerHoldsLogDir as e:
            outcome, error = Outcome.YIELDED, str(e)
        except LogAgentError as e:
            outcome, error = Outcome.FAILED, str(e)
        else:
            return True
        for p in proposals:
            self.results[action_id(p)] = ActionResult(outcome, error)
        return False

    def _stale(self, proposals: Sequence[Proposal]) -> list[CheckpointEntry]:
        """What stands for partitions that come back, and whose own entries the journal knows: as nothing is current
        under those names it is of an incarnation that is gone, and above the end of this one it would be the end of
        its segments."""
        return [
            CheckpointEntry(file, p.full_topic, p.dir.partition, 0)
            for p in proposals
            if p.action is ActionKind.RESTORE
            and p.full_topic is not None
            and p.dir.partition is not None
            and classify(p.new_name or "").kind is Kind.CURRENT
            and self.journal.journal.renamed_to(p.dir.log_dir, p.dir.name, p.dir.identity) is not None
            for file in _BEFORE_RENAME
        ]

    # Renames

    def _rename_all(self, proposals: Sequence[Proposal]) -> None:
        ended: ActionResult | None = None
        renamed = False
        for p in proposals:
            if ended is None and self.stop():
                ended = ActionResult(Outcome.SKIPPED, "stopped before its turn")
            if ended is not None:
                self.results[action_id(p)] = ended
                continue
            result, ended = self._rename(p)
            renamed = renamed or result.outcome is Outcome.DONE
            self.results[action_id(p)] = result
        if renamed:
            self._fsync(proposals)

    def _rename(self, p: Proposal) -> tuple[ActionResult, ActionResult | None]:
        """The result of this one, and what ends the batch (None: go on)."""
        assert p.new_name is not None
        try:
            if p.action is ActionKind.RESTORE:
                drop_indexes(self.source, p, self.interlock)
            check = partial(same_topic_id, p.dir)
            self.source.rename(p.dir.name, p.new_name, p.dir.identity, self.interlock, self.target, check)
        except BrokerHoldsLogDir as e:
            yielded = ActionResult(Outcome.YIELDED, str(e))
            return yielded, yielded
        except KafkaStorageError as e:
            self.uncertain.add(action_id(p))
            failed = ActionResult(Outcome.FAILED, str(e))
            return failed, failed
        except LogAgentError as e:
            return ActionResult(Outcome.FAILED, str(e)), None
        done = ActionResult(Outcome.DONE)
        try:
            self.interlock.after_rename()
        except BrokerHoldsLogDir as e:
            return done, ActionResult(Outcome.YIELDED, str(e))
        except OSError as e:
            return done, ActionResult(Outcome.FAILED, str(self.log_dir.explain(e, "look at .lock", None)))
        return done, None

    def _fsync(self, proposals: Sequence[Proposal]) -> None:
        try:
            for directory in {d.path: d for d in (self.target, self.source, self.log_dir)}.values():
                directory.fsync()
        except LogAgentError as e:
            for p in proposals:
                if self._result(p).outcome is Outcome.DONE:
                    self.uncertain.add(action_id(p))
                    self.results[action_id(p)] = ActionResult(Outcome.FAILED, f"renamed, but not durably: {e}")


def same_topic_id(d: PartitionDir, fd: int) -> None:
    """Raises NotAsPlanned unless the directory `fd` has the topic id that was judged.

    The id of an inventory is one that was remembered: `partition.metadata` edited in place changes no directory time.
    """
    try:
        topic_id = read_topic_id(fd)
    except UnreadableError as e:
        raise NotAsPlanned(f"{d.log_dir}/{d.name}: {e}") from e
    if topic_id != d.topic_id:
        raise NotAsPlanned(
            f"{d.log_dir}/{d.name} has the topic id {topic_id} now, judged was {d.topic_id}",
            hint="something edits partition.metadata there; look again and make a new plan",
        )


def _not_put_back(result: ActionResult, entries: Sequence[CheckpointEntry], error: LogAgentError) -> ActionResult:
    """The result of an action whose checkpoint entries could not be put back: never plain "done"."""
    what = ", ".join(f"{e.file} {e.topic} {e.partition} {e.offset}" for e in entries)
    said = f"{result.error}; " if result.error else "renamed, but "
    outcome = Outcome.FAILED if result.outcome is Outcome.DONE else result.outcome
    return ActionResult(outcome, f"{said}its checkpoint entries could not be put back ({what}): {error}")


def closed_cleanly(log_dir: OpenLogDir) -> bool:
    """Whether the broker's last stop was a clean one (`LogLoader.CleanShutdownFile`; Kafka removes it at its start)."""
    with log_dir.acting("look", CLEAN_SHUTDOWN):
        try:
            os.stat(CLEAN_SHUTDOWN, dir_fd=log_dir.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
    return True
