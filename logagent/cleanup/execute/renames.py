"""Batches of renames in one log dir: mark, quarantine, restore. Mirrors `LogManager.asyncDelete`.

Order, for crash safety (each step is idempotent, and `cleanup.execute.recovery` settles what a kill leaves in between):

1. the journal gets every intent (`PlanJournal`), with the checkpoint entries that are about to be removed;
2. `log-start-offset` and cleaner entries are removed from their checkpoints *before* the rename: a stale log start
offset above a new incarnation's end would make the broker drop its segments (Kafka writes it afterwards; nobody can
interrupt it). Where there is no room for that, those without such entries are renamed, and what is removed right after
it was set aside (`Proposal.then_removed`) gives its indexes for it;
3. the renames (of a restored directory: after its `.index` files were removed), each with a look at the
broker's lock before and after it;
4. one fsync of the log dir for the batch (deviation: Kafka fsyncs after each rename);
5. the recovery-point entries are removed; entries of renames that did not happen (and of restored dirs) are put back;
6. the journal gets the outcome of each.

Index files are removed before a directory gets its current name back (`kafka.files.segment_files` says which), or to
make room for setting it aside on a full disk. Of a directory that gets its current name back, its own checkpoint
entries are kept that still fit, and the existing ones go that do not.

`restore --replace` of one partition exchanges the current directory and the restored one, so that the partition is
current at every moment, whatever is killed and whichever broker starts; then comes one rename from stray name to stray
name, so that the restored directory's old name no longer leads to the displaced one. If that rename does not happen,
its intent stays open in the journal, and `recovery` finishes it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from logagent.base.dir_names import CLEANER, LOG_START_OFFSET, RECOVERY_POINT, classify, current_name
from logagent.base.errors import (
    BrokerHoldsLogDir,
    ItemFailed,
    KafkaStorageError,
    LogAgentError,
    NotAsPlanned,
    UnreadableError,
)
from logagent.base.records import LIVE_KINDS, ActionKind, Identity, Kind, Outcome, PartitionDir, TopicPartition
from logagent.cleanup.plan.plan import ActionResult, Proposal, action_id
from logagent.cleanup.plan.proposals import orphan_because, proof_of
from logagent.cleanup.state.journal import CheckpointEntry, Intent, Journal
from logagent.disk.calls import Stop
from logagent.disk.log_dir import CLEAN_SHUTDOWN, OpenLogDir, Place, exchange
from logagent.kafka.files.checkpoint_files import read_checkpoint, rewrite_checkpoint
from logagent.kafka.files.log_extent import read_log_extent
from logagent.kafka.files.properties import read_topic_id, same_topic_id
from logagent.kafka.files.segment_files import SegmentsRead, every_index, indexes_to_rebuild, read_segment_files
from logagent.kafka.processes.lock import Interlock, query_lock
from logagent.verdict.facts import Facts

# Checkpoints whose entries are removed with a partition.
ENTRY_FILES = (LOG_START_OFFSET, CLEANER, RECOVERY_POINT)


def entries_to_drop(log_dir: OpenLogDir, proposals: Sequence[Proposal]) -> dict[str, tuple[CheckpointEntry, ...]]:
    """By action id, the checkpoint entries that a mark or quarantine in `log_dir` removes.

    A stray that is marked has none: the entries of its partition belong to the current log beside it. The same holds
    for a future log, and for `orders-01` if `orders-1` exists beside it and stays. Raises UnreadableError,
    KafkaStorageError or ItemFailed.
    """
    wanted = dict(may_have_entries(log_dir, proposals))
    found: dict[str, tuple[CheckpointEntry, ...]] = {}
    for file in ENTRY_FILES if wanted else ():
        with log_dir.acting("read", file):
            in_file = read_checkpoint(log_dir.fd, file) or {}
        for tp, offset in in_file.items():
            p = wanted.get(tp)
            if p is None or (file == CLEANER and p.dir.kind is Kind.FUTURE):
                continue
            entry = CheckpointEntry(file, tp.topic, tp.partition, offset)
            found[action_id(p)] = (*found.get(action_id(p), ()), entry)
    return found


def may_have_entries(log_dir: OpenLogDir, proposals: Sequence[Proposal]) -> list[tuple[TopicPartition, Proposal]]:
    """Those for whose partitions the checkpoints of `log_dir` are read. Raises KafkaStorageError or ItemFailed."""
    proposals = [p for p in proposals if p.action is not ActionKind.REMOVE_LEFTOVERS]
    going = {p.dir.name for p in proposals}
    return [
        (TopicPartition(p.dir.topic, p.dir.partition), p)
        for p in proposals
        if p.dir.kind in LIVE_KINDS
        and p.dir.topic is not None
        and p.dir.partition is not None
        and not _stays(log_dir, current_name(p.dir.topic, p.dir.partition), going)
    ]


def _stays(log_dir: OpenLogDir, name: str, going: AbstractSet[str]) -> bool:
    """Whether the directory `name` exists and is not among those to be removed."""
    if name in going:
        return False
    with log_dir.acting("read", name):
        try:
            os.stat(name, dir_fd=log_dir.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as e:
            if e.errno == errno.ENAMETOOLONG:
                return False
            raise
    return True


def edit_checkpoints(
    log_dir: OpenLogDir,
    interlock: Interlock,
    *,
    drop: Sequence[CheckpointEntry],
    put: Sequence[CheckpointEntry],
    files: Sequence[str],
) -> None:
    """Remove `drop` from, and add `put` (if there is no entry yet) to, the checkpoints `files` of `log_dir`.

    Only while no process holds the log dir. Raises BrokerHoldsLogDir, KafkaStorageError, ItemFailed or UnreadableError.
    """
    for file in files:
        out = {TopicPartition(e.topic, e.partition) for e in drop if e.file == file}
        back = {TopicPartition(e.topic, e.partition): e.offset for e in put if e.file == file}
        if out or back:
            with log_dir.acting("rewrite", file):
                in_file = read_checkpoint(log_dir.fd, file) or {}
                back = {tp: offset for tp, offset in back.items() if tp not in in_file}
                rewrite_checkpoint(log_dir.fd, file, drop=out, put=back, before_act=interlock.before)


def fitting(
    log_dir: OpenLogDir,
    name: str,
    identity: Identity,
    topic_id: str | None,
    entries: Sequence[CheckpointEntry],
    *,
    served: bool,
) -> tuple[CheckpointEntry, ...]:
    """Those of `entries` that still belong to the directory `name`; none if it has another topic id by now.

    A log start offset above the log's end is left out: a broker deletes all segments of such a log. `served`: a broker
    may have written to (or truncated) the log since the entries were read; then an entry that cannot be compared with
    the log's end is left out too, and at worst deleted records show again. Raises KafkaStorageError or ItemFailed.
    """
    if not entries:
        return ()
    with log_dir.acting("read", name):
        fd = log_dir.open_child(name, identity)
        try:
            if read_topic_id(fd) != topic_id:
                return ()
            log = read_log_extent(fd)
        except UnreadableError:
            return ()
        finally:
            os.close(fd)

    def fits(e: CheckpointEntry) -> bool:
        reached = log.reaches(e.offset)
        return e.file != LOG_START_OFFSET or (not served if reached is None else reached)

    return tuple(e for e in entries if fits(e))


def saved_entries(journal: Journal, source: OpenLogDir, d: PartitionDir) -> tuple[CheckpointEntry, ...]:
    """The entries that the journal recorded as removed from the checkpoints for the stray or marked directory `d`, as
    far as they fit."""
    saved = journal.saved_checkpoint_entries(d.name, d.identity)
    # A deleted or swapped directory fails at its rename.
    with suppress(NotAsPlanned, ItemFailed):
        return fitting(source, d.name, d.identity, d.topic_id, saved, served=False)
    return ()


def stale_entries(
    journal: Journal, home: OpenLogDir, source: OpenLogDir, proposals: Sequence[Proposal]
) -> list[CheckpointEntry]:
    """Existing entries in the checkpoints of `home` for partitions that come back there from `source`.

    No directory has those names now, so the entries belong to a deleted incarnation; a log start offset above the end
    of this one would make the broker delete its segments. If the journal does not know the directory's own entries, an
    entry that its log reaches may be its own, and stays.
    """
    found: list[CheckpointEntry] = []
    for p in proposals:
        if p.action is not ActionKind.RESTORE or p.full_topic is None or p.dir.partition is None:
            continue
        if classify(p.new_name or "").kind is not Kind.CURRENT:
            continue
        partition = TopicPartition(p.full_topic, p.dir.partition)
        if journal.renamed_to(p.dir.name, p.dir.identity) is None:
            found += _not_reached(home, source, p.dir, partition)
        else:
            files = (LOG_START_OFFSET, CLEANER)
            found += [CheckpointEntry(file, partition.topic, partition.partition, 0) for file in files]
    return found


def _not_reached(
    home: OpenLogDir, source: OpenLogDir, d: PartitionDir, partition: TopicPartition
) -> list[CheckpointEntry]:
    """The log start offset recorded for `partition`, unless the log of `d` is known to reach it."""
    with home.acting("read", LOG_START_OFFSET):
        offset = (read_checkpoint(home.fd, LOG_START_OFFSET) or {}).get(partition)
    if offset is None:
        return []
    entry = CheckpointEntry(LOG_START_OFFSET, partition.topic, partition.partition, offset)
    with suppress(NotAsPlanned, ItemFailed):  # then nothing is known of its log, and the entry is removed
        if fitting(source, d.name, d.identity, d.topic_id, (entry,), served=True):
            return []
    return [entry]


NO_ENTRIES: Mapping[str, tuple[CheckpointEntry, ...]] = {}


@dataclass(frozen=True, slots=True)
class PlanJournal:
    """`actor`: who carries out the plan. Every method raises JournalError; then nothing more may be done."""

    journal: Journal
    now_ms: Callable[[], int]
    plan_id: str
    actor: str

    def begin(
        self,
        proposals: Sequence[Proposal],
        entries: Mapping[str, tuple[CheckpointEntry, ...]] = NO_ENTRIES,
        *,
        closed_cleanly: bool | None = None,
        facts: Facts | None = None,
    ) -> list[int]:
        """Make the intents durable; returns their ids, in order. `entries`: by action id, the entries removed from the
        checkpoints; `facts`: those on which the guards have just passed."""
        intents = [
            self._intent(p, entries.get(action_id(p), ()) if entries else (), closed_cleanly, facts) for p in proposals
        ]
        return self.journal.begin(intents, self.now_ms())

    def finish(self, outcomes: Iterable[tuple[int, Outcome, str | None]]) -> None:
        self.journal.finish(outcomes, self.now_ms())

    def _intent(
        self, p: Proposal, entries: tuple[CheckpointEntry, ...], closed_cleanly: bool | None, facts: Facts | None
    ) -> Intent:
        whole_name = None if p.dir.truncated else p.dir.topic
        return Intent(
            action=p.action,
            log_dir=p.dir.log_dir,
            name=p.dir.name,
            new_name=p.new_name,
            topic=p.full_topic or whole_name,
            partition=p.dir.partition,
            topic_id=p.dir.topic_id,
            identity=p.dir.identity,
            bytes=p.dir.bytes,
            plan_id=self.plan_id,
            actor=self.actor,
            approved=p.approved,
            checkpoint_entries=entries,
            new_dir=p.new_dir,
            through=p.through,
            files=p.dir.files,
            segments=p.dir.segments,
            removal_started=p.dir.removal_started,
            allocated=p.dir.allocated,
            log_bytes=p.dir.segment_bytes,
            closed_cleanly=closed_cleanly,
            reason=orphan_because(p, facts) if facts is not None else None,
            claims=_claims(p, facts) if facts is not None else (),
        )


def _claims(p: Proposal, facts: Facts) -> tuple[tuple[str, str, int], ...]:
    return tuple((held.claim.value, held.witness.value, held.as_of_ms) for held in proof_of(p, facts))


def drop_indexes(log_dir: OpenLogDir, p: Proposal, interlock: Interlock) -> None:
    """Unlink the `.index` files of the directory that `p` restores, durably (one fsync of the directory).

    The present files count, not those the plan saw. It is harmless to repeat this, and also if the restore never
    follows: a broker that loads the stray rebuilds them. Raises NotAsPlanned, BrokerHoldsLogDir, KafkaStorageError or
    ItemFailed.
    """
    chosen = partial(indexes_to_rebuild, every_segment=p.rebuild_all)
    _unlink(log_dir, p, interlock, lambda checks: chosen(checks).unlink)


def drop_every_index(log_dir: OpenLogDir, p: Proposal, interlock: Interlock) -> None:
    """Unlink all indexes of a directory that is about to be set aside and removed, durably, for their blocks and
    inodes: on a full disk nothing can be renamed without them. A broker that loads it after all rebuilds them. Raises
    as `drop_indexes` does."""
    _unlink(log_dir, p, interlock, every_index)


def _unlink(
    log_dir: OpenLogDir, p: Proposal, interlock: Interlock, names: Callable[[SegmentsRead], Iterable[str]]
) -> None:
    with log_dir.acting("removal of index files", p.dir.name):
        fd = log_dir.open_child(p.dir.name, p.dir.identity)
        try:
            before = os.fstat(fd)
            for name in names(read_segment_files(fd)):
                interlock.before()
                with suppress(FileNotFoundError):  # what is gone already needs no unlink
                    os.unlink(name, dir_fd=fd)
            # Keep its mtime: verdicts depend on a directory's age.
            os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
            os.fsync(fd)
        finally:
            os.close(fd)


_BEFORE_RENAME = (LOG_START_OFFSET, CLEANER)
_AFTER_RENAME = (RECOVERY_POINT,)

# By action id.
Entries = Mapping[str, tuple[CheckpointEntry, ...]]


@dataclass(slots=True)
class RenameBatch:
    """One batch for one log dir, whose lock and checkpoints count.

    `run` never raises for a single directory; JournalError stops everything.

    `source` and `target` are where the directories are and where they go: the log dir itself, except to a quarantine
    directory (brokers before 3.6.1) or back from there. `facts`: those on which every guard has just passed.
    """

    log_dir: OpenLogDir
    source: OpenLogDir
    target: OpenLogDir
    journal: PlanJournal
    interlock: Interlock
    stop: Stop
    facts: Facts
    results: dict[str, ActionResult] = field(default_factory=dict)
    # Ids of actions that may or may not have happened: they stay open in the journal, for `recovery`.
    uncertain: set[str] = field(default_factory=set)

    def run(self, proposals: Sequence[Proposal]) -> dict[str, ActionResult]:
        """Carry out `proposals` in order; the result of each by its action id."""
        try:
            entries = self._checkpoint_entries(proposals)
            # Whether the broker's last stop was clean (`LogLoader.CleanShutdownFile`; Kafka removes it at its start).
            clean = self.log_dir.has(CLEAN_SHUTDOWN)
        except LogAgentError as e:
            self.results = {action_id(p): ActionResult(Outcome.FAILED, str(e)) for p in proposals}
            return self.results
        ids = self.journal.begin(proposals, entries, closed_cleanly=clean, facts=self.facts)
        if ready := self._drop_before_rename(proposals, entries):
            self._rename_all(ready)
        self._settle_checkpoints(proposals, entries)
        outcomes = [(n, self._result(p), action_id(p)) for n, p in zip(ids, proposals, strict=True)]
        self.journal.finish((n, r.outcome, r.error) for n, r, action in outcomes if action not in self.uncertain)
        return self.results

    def _result(self, p: Proposal) -> ActionResult:
        return self.results[action_id(p)]

    # Checkpoints

    def _checkpoint_entries(self, proposals: Sequence[Proposal]) -> Entries:
        """By action id: the current entries in this log dir of what is removed, and the former ones of what is
        restored."""
        found = entries_to_drop(self.log_dir, proposals)
        for p in proposals:
            if p.action is ActionKind.RESTORE:
                found[action_id(p)] = saved_entries(self.journal.journal, self.source, p.dir)
        return found

    def _settle_checkpoints(self, proposals: Sequence[Proposal], entries: Entries) -> None:
        """Bring the checkpoints in line with what was renamed.

        Two edits, because they differ in importance: a stale recovery point is harmless, but without its log start
        offset a partition shows deleted records again.
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
            # If a broker holds the lock its own checkpoints are authoritative from now on; nothing is left to recover.
            # (The interlock also stops if it cannot tell; then something is.)
            if not query_lock(self.log_dir.fd).held:
                self.uncertain.update(put)

    def _drop_before_rename(self, proposals: Sequence[Proposal], entries: Entries) -> list[Proposal]:
        """Remove the entries that must not outlive the rename. Returns what may be renamed; if that failed, the others
        have a result."""
        going = [e for p in proposals if p.action is not ActionKind.RESTORE for e in entries.get(action_id(p), ())]
        stopped = list(proposals)
        try:
            going += stale_entries(self.journal.journal, self.log_dir, self.source, proposals)
            self._with_room_from(
                proposals,
                lambda: edit_checkpoints(self.log_dir, self.interlock, drop=going, put=[], files=_BEFORE_RENAME),
            )
        except BrokerHoldsLogDir as e:
            outcome, error = Outcome.YIELDED, str(e)
        except LogAgentError as e:
            outcome, error = Outcome.FAILED, _error_text(e)
            if _lacks_room(e) and not any(p.action is ActionKind.RESTORE for p in proposals):
                stopped = [p for p in proposals if self._has_entry(p, entries)]
        else:
            return stopped
        for p in stopped:
            self.results[action_id(p)] = ActionResult(outcome, error)
        return [p for p in proposals if action_id(p) not in self.results]

    def _has_entry(self, p: Proposal, entries: Entries) -> bool:
        return any(e.file in _BEFORE_RENAME for e in entries.get(action_id(p), ()))

    def _with_room_from(self, proposals: Iterable[Proposal], act: Callable[[], None]) -> None:
        """Do `act`. If the disk is too full for it, try again after each of `proposals` that is removed afterwards has
        given its indexes. Raises what the last try raised."""
        giving = (p for p in proposals if p.then_removed)
        while True:
            try:
                return act()
            except LogAgentError as e:
                p = next(giving, None) if _lacks_room(e) else None
                if p is None:
                    raise
                drop_every_index(self.source, p, self.interlock)

    # Renames

    def _rename_all(self, proposals: Sequence[Proposal]) -> None:
        ended: ActionResult | None = None
        renamed = False
        for p in proposals:
            if ended is None and self.stop():
                ended = ActionResult(Outcome.SKIPPED, "stopped before it was reached")
            if ended is not None:
                self.results[action_id(p)] = ended
                continue
            result, ended = self._rename(p)
            renamed = renamed or result.outcome is Outcome.DONE
            self.results[action_id(p)] = result
        if renamed:
            self._fsync(proposals)

    def _rename(self, p: Proposal) -> tuple[ActionResult, ActionResult | None]:
        """The result of this one, and the result that ends the batch (None: go on)."""
        assert p.new_name is not None
        try:
            if p.action is ActionKind.RESTORE:
                drop_indexes(self.source, p, self.interlock)
            check = partial(same_topic_id, p.dir)
            self._with_room_from(
                [p],
                partial(self.source.rename, p.dir.name, p.new_name, p.dir.identity, self.interlock, self.target, check),
            )
        except BrokerHoldsLogDir as e:
            yielded = ActionResult(Outcome.YIELDED, str(e))
            return yielded, yielded
        except KafkaStorageError as e:
            self.uncertain.add(action_id(p))
            failed = ActionResult(Outcome.FAILED, str(e))
            return failed, failed
        except LogAgentError as e:
            return ActionResult(Outcome.FAILED, _error_text(e)), None
        done = ActionResult(Outcome.DONE)
        try:
            self.interlock.after_rename()
        except BrokerHoldsLogDir as e:
            return done, ActionResult(Outcome.YIELDED, str(e))
        except OSError as e:
            return done, ActionResult(Outcome.FAILED, str(self.log_dir.explain(e, "read of .lock", None)))
        return done, None

    def _fsync(self, proposals: Sequence[Proposal]) -> None:
        try:
            for directory in {d.path: d for d in (self.target, self.source, self.log_dir)}.values():
                directory.fsync()
        except LogAgentError as e:
            for p in proposals:
                if self._result(p).outcome is Outcome.DONE:
                    self.uncertain.add(action_id(p))
                    self.results[action_id(p)] = ActionResult(Outcome.FAILED, f"renamed, but not safely on disk: {e}")


def _lacks_room(error: LogAgentError) -> bool:
    return isinstance(error, ItemFailed) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _error_text(error: LogAgentError) -> str:
    return f"{error}; {error.hint}" if _lacks_room(error) and error.hint else str(error)


def _not_put_back(result: ActionResult, entries: Sequence[CheckpointEntry], error: LogAgentError) -> ActionResult:
    """The result of an action whose checkpoint entries could not be put back: never plain "done"."""
    what = ", ".join(f"{e.file} {e.topic} {e.partition} {e.offset}" for e in entries)
    cause = f"{result.error}; " if result.error else "renamed, but "
    outcome = Outcome.FAILED if result.outcome is Outcome.DONE else result.outcome
    return ActionResult(outcome, f"{cause}its checkpoint entries could not be put back ({what}): {error}")


class Replacement(RenameBatch):
    """A batch of exactly two: what is displaced, and what comes back.

    `log_dir` is where the partition is current, `source` where the one to restore is, `target` where the displaced one
    goes.
    """

    def _rename_all(self, proposals: Sequence[Proposal]) -> None:
        displaced, back = proposals
        if self.stop():
            self._both(proposals, ActionResult(Outcome.SKIPPED, "stopped before it was reached"))
            return
        try:
            drop_indexes(self.source, back, self.interlock)
            exchange(
                Place(self.log_dir, displaced.dir.name, displaced.dir.identity, partial(same_topic_id, displaced.dir)),
                Place(self.source, back.dir.name, back.dir.identity, partial(same_topic_id, back.dir)),
                self.interlock,
            )
        except BrokerHoldsLogDir as e:
            self._both(proposals, ActionResult(Outcome.YIELDED, str(e)))
        except KafkaStorageError as e:
            self.uncertain.update(map(action_id, proposals))
            self._both(proposals, ActionResult(Outcome.FAILED, str(e)))
        except LogAgentError as e:
            self._both(proposals, ActionResult(Outcome.FAILED, str(e)))
        else:
            self._both(proposals, ActionResult(Outcome.DONE))
            self._name_displaced(displaced, back)
            self._fsync(proposals)

    def _both(self, proposals: Sequence[Proposal], result: ActionResult) -> None:
        self.results.update({action_id(p): result for p in proposals})

    def _name_displaced(self, displaced: Proposal, back: Proposal) -> None:
        assert displaced.new_name is not None
        try:
            self.interlock.expire()
            self.source.rename(back.dir.name, displaced.new_name, displaced.dir.identity, self.interlock, self.target)
        except LogAgentError as e:
            where = f"it is set aside as {self.source.path}/{back.dir.name} now and gets its own name later"
            outcome = Outcome.YIELDED if isinstance(e, BrokerHoldsLogDir) else Outcome.FAILED
            self.results[action_id(displaced)] = ActionResult(outcome, f"{where}: {e}")
            self.uncertain.add(action_id(displaced))
