"""After a crash: intents without an outcome are settled by looking at the disk. Renames are not repeated.

One exception: if `restore --replace` was cut short before its last rename, the displaced directory still has the stray
name of the one that replaced it; it gets its own name.

Runs first in every session that may act, under the executor lock, so no other process's work in progress is mistaken
for a crash. A removal that was interrupted is due again at once (its name is still in the queue); one that was not
reached waits as before: the mark that its batch gave it is taken back, and its intent is withdrawn. A rename either
happened or did not, and the names on disk show which (`_Sign`). The rest of the action is completed: checkpoint entries
are removed or put back, and our temp files are deleted. What cannot be settled now stays open for the next session: the
log dir is offline, a checkpoint cannot be written, or the directory is under neither name and this may be another disk
(without `meta.properties`, like an empty mount point, or the directory is in another log dir because two disks were
swapped).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from logagent.base.dir_names import CHECKPOINTS, RECOVERY_POINT, is_unique
from logagent.base.errors import BrokerHoldsLogDir, JournalError, LogAgentError
from logagent.base.records import ActionKind, Outcome, PartitionDir, TopicPartition
from logagent.cleanup.execute.renames import edit_checkpoints, fitting
from logagent.cleanup.state.journal import CheckpointEntry, Entry, Intent, Journal
from logagent.disk.calls import DirectCalls, DiskCalls, Stop, StoppableInterlock, refuse_if
from logagent.disk.log_dir import OpenLogDir
from logagent.disk.remove import unmark_dirs
from logagent.disk.scan import MOUNT_POINT_ERROR, scan_log_dir
from logagent.kafka.files.checkpoint_files import read_checkpoint, remove_leftovers
from logagent.kafka.files.properties import META_PROPERTIES
from logagent.kafka.processes.lock import query_lock
from logagent.verdict.marks import Contents


class _Sign(IntEnum):
    """How surely a directory is the one that an intent means, which may be weeks old. A copy on another disk keeps a
    unique name, and the next directory may get an inode: under a name that is given again, the topic id tells where
    the inode differs."""

    NONE = 0
    TOPIC_ID = 1
    INODE = 2
    UNIQUE_NAME = 3


@dataclass(frozen=True, slots=True)
class _Disks:
    """What has one of the names of unsettled intents now: `dirs`, by log dir (those that could be read) and name.
    `exchanged`: the names that a `restore --replace` was about to exchange, or has: they say nothing, both had them.
    `inodes`: those of unsettled intents."""

    dirs: Mapping[str, Mapping[str, PartitionDir]]
    exchanged: AbstractSet[str]
    inodes: AbstractSet[int]

    @classmethod
    def read(cls, unsettled: Sequence[Entry], log_dirs: Mapping[str, OpenLogDir], calls: DiskCalls) -> _Disks:
        names = {name for e in unsettled for _, name in e.intent.names}

        def read(log_dir: OpenLogDir, _: Stop) -> dict[str, PartitionDir]:
            return {d.name: d for d in scan_log_dir(log_dir, slices=1, only=names.__contains__).dirs}

        found = calls.work({path: partial(read, log_dir) for path, log_dir in log_dirs.items()} if names else {})
        dirs = {path: each for path, each in found.items() if isinstance(each, dict)}
        exchanges = (e.intent for e in unsettled if e.intent.through is not None)
        undone = [i for i in exchanges if i.new_name not in dirs.get(i.ends_in, ())]
        names = {name for i in undone for _, name in i.names}
        return cls(dirs, names, {e.intent.identity.inode for e in unsettled})

    def at(self, place: str, name: str | None) -> PartitionDir | None:
        return self.dirs.get(place, {}).get(name or "")

    def sign(self, intent: Intent, place: str, name: str | None) -> _Sign:
        d = self.at(place, name)
        if d is None or (d.topic_id is not None and intent.topic_id not in (None, d.topic_id)):
            return _Sign.NONE
        exchanged = d.name in self.exchanged
        if is_unique(d.name) and not exchanged:
            return _Sign.UNIQUE_NAME
        if d.inode == intent.identity.inode and d.error != MOUNT_POINT_ERROR:
            return _Sign.INODE
        by_id = d.topic_id is not None and intent.topic_id is not None and not exchanged
        return _Sign.TOPIC_ID if by_id else _Sign.NONE

    def may_be_elsewhere(self, intent: Intent, dirs: Iterable[OpenLogDir], quarantine: Collection[str]) -> bool:
        """Whether a directory found under neither name may still exist: its disk may be mounted elsewhere, or not at
        all; or one of two that were being exchanged is it, and which one cannot be told."""
        if any(self.sign(intent, *key) for key in intent.names):
            return False
        exchanged = (self.at(place, name) for place, name in intent.names if name in self.exchanged)
        if any(d is not None and d.inode not in self.inodes for d in exchanged):
            return True
        if any(self.sign(intent, place, name) for place in self.dirs for _, name in intent.names):
            return True
        return not all(d.path in quarantine or d.has(META_PROPERTIES) for d in dirs)


def recover(
    journal: Journal,
    log_dirs: Mapping[str, OpenLogDir],
    now_ms: int,
    calls: DiskCalls | None = None,
    *,
    quarantine: Collection[str] = (),
) -> list[Entry]:
    """Settle every unsettled intent on an open log dir; those on offline log dirs stay open.

    `quarantine`: those of `log_dirs` that are quarantine directories, which have no `meta.properties`. Returns the
    settled entries, as they were. Raises JournalError.
    """
    calls = calls or DirectCalls()
    unsettled = [e for e in journal.unsettled() if {place for place, _ in e.intent.names} <= log_dirs.keys()]
    disks = _Disks.read(unsettled, log_dirs, calls)
    unsettled = [e for e in unsettled if {place for place, _ in e.intent.names} <= disks.dirs.keys()]
    jobs: dict[str, Callable[[Stop], list[Entry]]] = {}
    for path in {e.intent.log_dir: None for e in unsettled}:
        mine = [e for e in unsettled if e.intent.log_dir == path]
        jobs[path] = partial(_recover_one, mine, journal, log_dirs, disks, quarantine, now_ms)
    settled = []
    for found in calls.work(jobs).values():
        if isinstance(found, JournalError):
            raise found
        settled += found if isinstance(found, list) else []
    return settled


def _recover_one(
    unsettled: Sequence[Entry],
    journal: Journal,
    log_dirs: Mapping[str, OpenLogDir],
    disks: _Disks,
    quarantine: Collection[str],
    now_ms: int,
    stop: Stop,
) -> list[Entry]:
    """Settle what concerns one log dir; does nothing more once `stop()` is true."""
    settled: list[Entry] = []
    outcomes: list[tuple[int, Outcome, str | None]] = []
    not_reached: list[int] = []
    for entry in unsettled:
        source, target = log_dirs[entry.intent.log_dir], log_dirs[entry.intent.ends_in]
        try:
            if disks.may_be_elsewhere(entry.intent, (source, target), quarantine):
                continue
            named = _name_displaced(entry.intent, log_dirs, disks, stop)
            came_of_it = _settle(journal.with_checkpoint_entries(entry), disks, named, source, target, stop)
            refuse_if(stop, source.path)
        except LogAgentError:
            continue  # it stays open, for the next session: what it is about cannot be seen or written now
        if came_of_it is None:
            not_reached.append(entry.id)
        else:
            outcomes.append((entry.id, *came_of_it))
        settled.append(entry)
    if settled:
        with journal.together():
            journal.finish(outcomes, now_ms)
            journal.withdraw(not_reached)
    return settled


def _settle(
    entry: Entry, disks: _Disks, named: bool, log_dir: OpenLogDir, target: OpenLogDir, stop: Stop
) -> tuple[Outcome, str | None] | None:
    """The outcome and its reason; None for a removal that was not reached. `named`: its rename was made good just
    now."""
    intent = entry.intent
    if intent.action is ActionKind.REMOVE_LEFTOVERS:
        return Outcome.YIELDED, "interrupted: the rest stays until the next rescue, or its broker's start"
    before, after = disks.at(log_dir.path, intent.name), disks.at(target.path, intent.new_name)
    at_old_name = disks.sign(intent, log_dir.path, intent.name)
    if intent.action is ActionKind.REMOVE:
        if before is not None and not at_old_name:
            return Outcome.FAILED, "interrupted, and another directory has its name now"
        return _settle_removal(intent, before, log_dir, stop)
    at_new_name = disks.sign(intent, target.path, intent.new_name)
    home, away = (target, log_dir) if intent.action is ActionKind.RESTORE else (log_dir, target)
    if named or (after is not None and at_new_name and at_new_name >= at_old_name):
        away.fsync()
        home.fsync()
        if intent.action is ActionKind.RESTORE:
            _edit(home, stop, put=_still_fitting(home, after, intent))
        else:
            _edit(home, stop, drop=_left_behind(home, intent.checkpoint_entries))
        return Outcome.DONE, None
    if at_old_name:
        _edit(home, stop, put=() if intent.action is ActionKind.RESTORE else _still_fitting(home, before, intent))
        return Outcome.SKIPPED, "interrupted before the rename"
    return Outcome.FAILED, "interrupted, and the directory now has neither name"


def _settle_removal(
    intent: Intent, d: PartitionDir | None, log_dir: OpenLogDir, stop: Stop
) -> tuple[Outcome, str | None] | None:
    """A removal of which nothing is missing was not reached: it has no mark, or gives back the one of its batch. What
    says that something is missing stays in the journal: a copy (`cp -r`), or `chmod u-s`, has taken the mark away."""
    if d is None:
        return Outcome.DONE, "interrupted: the directory no longer exists"
    had = Contents(intent.files, intent.bytes, intent.segments, intent.log_bytes)
    if had.are_all_in(d) and (not d.removal_started or _took_mark_back(intent, d, log_dir, stop)):
        return None
    return Outcome.YIELDED, "interrupted: the rest stays queued"


def _took_mark_back(intent: Intent, d: PartitionDir, log_dir: OpenLogDir, stop: Stop) -> bool:
    """Take back the mark that this intent's batch set. While a broker holds the log dir it stays as it is: what has all
    its files can be restored with the mark, too."""
    if intent.removal_started is not False:
        return False
    try:
        unmark_dirs(log_dir, [(d.name, d.identity)], StoppableInterlock(log_dir.fd, log_dir.path, stop))
    except BrokerHoldsLogDir:
        return False
    return True


def _name_displaced(intent: Intent, log_dirs: Mapping[str, OpenLogDir], disks: _Disks, stop: Stop) -> bool:
    """Do the last rename of a `restore --replace` that was cut short between its two; whether there was one to do.
    Raises BrokerHoldsLogDir if a broker came first; then it waits (both directories are in place, under valid
    names)."""
    if intent.through is None or intent.new_name is None:
        return False
    displaced = disks.at(*intent.through)
    if displaced is None or disks.sign(intent, *intent.through) is not _Sign.INODE:
        return False
    source, locked = log_dirs[intent.through[0]], log_dirs[intent.log_dir]
    interlock = StoppableInterlock(locked.fd, locked.path, stop)
    source.rename(displaced.name, intent.new_name, displaced.identity, interlock, log_dirs[intent.ends_in])
    source.fsync()
    return True


def _still_fitting(log_dir: OpenLogDir, d: PartitionDir | None, intent: Intent) -> tuple[CheckpointEntry, ...]:
    """The entries of an intent that may be put back. The intent may be weeks old: a broker may have served the
    directory since, or created another incarnation of the partition that got the same inode."""
    if d is None:
        return ()
    return fitting(log_dir, d.name, d.identity, intent.topic_id, intent.checkpoint_entries, served=True)


def _left_behind(log_dir: OpenLogDir, entries: Sequence[CheckpointEntry]) -> list[CheckpointEntry]:
    """Recovery points to remove after a rename, if unchanged since (the other entries were removed before it).

    A different offset belongs to a partition that a broker has created since then.
    """
    with log_dir.acting("read", RECOVERY_POINT):
        in_file = read_checkpoint(log_dir.fd, RECOVERY_POINT) or {}
    mine = [e for e in entries if e.file == RECOVERY_POINT]
    return [e for e in mine if in_file.get(TopicPartition(e.topic, e.partition)) == e.offset]


def _edit(
    log_dir: OpenLogDir, stop: Stop, *, drop: Sequence[CheckpointEntry] = (), put: Sequence[CheckpointEntry] = ()
) -> None:
    """Remove entries from the checkpoints, or put them (back) where there is no newer one; delete our temp files.

    While a broker holds the log dir its own checkpoints are authoritative and nothing is written. Raises
    BrokerHoldsLogDir if that is unknown.
    """
    interlock = StoppableInterlock(log_dir.fd, log_dir.path, stop)
    try:
        with log_dir.acting("removal of temp files"):
            remove_leftovers(log_dir.fd, interlock.before)
        edit_checkpoints(log_dir, interlock, drop=drop, put=put, files=CHECKPOINTS)
    except BrokerHoldsLogDir:
        if not query_lock(log_dir.fd).held:
            raise
