"""After a crash: intents without an outcome are settled by looking at the disk. Renames are not repeated.

One exception: if `restore --replace` was cut short before its last rename, the displaced directory still has the stray
name of the one that replaced it; it gets its own name.

Runs first in every session that may act, under the executor lock, so no other process's work in progress is mistaken
for a crash. A removal that was interrupted is due again at once (its name is still in the queue); one that was not
reached waits as before: the mark that its batch gave it is taken back, and its intent is withdrawn. A rename either
happened or did not, and the inode shows which (never the device: its number can change at a reboot). The rest of the
action is completed: checkpoint entries are removed or put back, and our temp files are deleted. What cannot be settled
now stays open for the next session: the log dir is offline, a checkpoint cannot be written, or the directory is under
neither name and this may be another disk (without `meta.properties`, like an empty mount point, or the directory is in
another log dir because two disks were swapped).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

from logagent.agent.execute.checkpoint_entries import edit_checkpoints, fitting
from logagent.broker.files.checkpoint_files import CHECKPOINTS, RECOVERY_POINT, read_checkpoint, remove_leftovers
from logagent.broker.files.meta_properties import META_PROPERTIES
from logagent.broker.process.lock import query_lock
from logagent.errors import BrokerHoldsLogDir, JournalError, LogAgentError
from logagent.host.inventory.partition import nested_usage
from logagent.host.log_dir.calls import DirectCalls, DiskCalls, Stop, StoppableInterlock, refuse_if
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.log_dir.started_mark import is_started
from logagent.host.removal.remove import unmark_dirs
from logagent.host.state.journal import CheckpointEntry, Entry, Intent, Journal
from logagent.model.records import ActionKind, Identity, Outcome, TopicPartition


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
    seen_at = _seen_at(unsettled, log_dirs, calls)

    def is_somewhere_known(e: Entry) -> bool:
        source, target = log_dirs[e.intent.log_dir], log_dirs[e.intent.ends_in]
        here = {place for place, _ in e.intent.names}
        return not _may_be_elsewhere(seen_at[e.id], here, (source, target), quarantine)

    jobs: dict[str, Callable[[Stop], list[Entry]]] = {}
    for path in {e.intent.log_dir: None for e in unsettled}:
        mine = [e for e in unsettled if e.intent.log_dir == path]
        jobs[path] = partial(_recover_one, mine, journal, log_dirs, is_somewhere_known, now_ms)
    settled = []
    for found in calls.work(jobs).values():
        if isinstance(found, JournalError):
            raise found
        settled += found if isinstance(found, list) else []
    return settled


def _seen_at(
    unsettled: Sequence[Entry], log_dirs: Mapping[str, OpenLogDir], calls: DiskCalls
) -> dict[int, frozenset[str]]:
    """By entry id, all the log dirs that contain its directory now, under either of its names."""

    def started_removals(log_dir: OpenLogDir) -> set[int]:
        with log_dir.acting("look"):
            return {e.id for e in unsettled if any(_is(log_dir, name, e.intent.identity) for _, name in e.intent.names)}

    found = calls.call_each({path: partial(started_removals, log_dir) for path, log_dir in log_dirs.items()})
    return {
        e.id: frozenset(path for path, ids in found.items() if isinstance(ids, set) and e.id in ids) for e in unsettled
    }


def _recover_one(
    unsettled: Sequence[Entry],
    journal: Journal,
    log_dirs: Mapping[str, OpenLogDir],
    is_somewhere_known: Callable[[Entry], bool],
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
            if not is_somewhere_known(entry):
                continue
            _name_displaced(entry, log_dirs, stop)
            came_of_it = _settle(journal.with_checkpoint_entries(entry), source, target, stop)
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


def _may_be_elsewhere(
    seen_at: frozenset[str], here: AbstractSet[str], dirs: Sequence[OpenLogDir], quarantine: Collection[str]
) -> bool:
    """Whether a directory found under neither name may still exist: its disk may be mounted elsewhere, or not at
    all."""
    if seen_at & here:
        return False
    return bool(seen_at) or not all(d.path in quarantine or d.has(META_PROPERTIES) for d in dirs)


def _settle(entry: Entry, log_dir: OpenLogDir, target: OpenLogDir, stop: Stop) -> tuple[Outcome, str | None] | None:
    """The outcome and its reason; None for a removal that was not reached: without the mark, which comes before the
    first unlink, its directory is whole; so it is with a mark of its batch, if nothing is missing."""
    intent = entry.intent
    if intent.action is ActionKind.REMOVE_LEFTOVERS:
        return Outcome.YIELDED, "interrupted: the rest stays until the next rescue, or its broker's start"
    with log_dir.acting("look", intent.name):
        at_old_name = _stat(log_dir, intent.name, intent.identity)
    with target.acting("look", intent.new_name):
        at_new_name = intent.new_name is not None and _is(target, intent.new_name, intent.identity)
    if intent.action is ActionKind.REMOVE:
        if at_old_name is None:
            return Outcome.DONE, "interrupted: the directory no longer exists"
        if not is_started(at_old_name.st_mode) or _took_mark_back(intent, log_dir, stop):
            return None
        return Outcome.YIELDED, "interrupted: the rest stays queued"
    home, away = (target, log_dir) if intent.action is ActionKind.RESTORE else (log_dir, target)
    if at_new_name:
        away.fsync()
        home.fsync()
        if intent.action is ActionKind.RESTORE:
            _edit(home, stop, put=_still_fitting(home, intent.new_name, intent))
        else:
            _edit(home, stop, drop=_left_behind(home, intent.checkpoint_entries))
        return Outcome.DONE, None
    if at_old_name is not None:
        if intent.action is ActionKind.RESTORE:
            _edit(home, stop)
        else:
            _edit(home, stop, put=_still_fitting(home, intent.name, intent))
        return Outcome.SKIPPED, "interrupted before the rename"
    return Outcome.FAILED, "interrupted, and the directory now has neither name"


def _took_mark_back(intent: Intent, log_dir: OpenLogDir, stop: Stop) -> bool:
    """Take back the mark that this intent's batch set, if the directory still has everything that it had then. While a
    broker holds the log dir it stays as it is: what has all its files can be restored with the mark, too."""
    if intent.removal_started is not False:
        return False
    with log_dir.acting("look", intent.name):
        now = nested_usage(log_dir.fd, intent.name, log_dir.identity.device)
    if (now.files, now.bytes) != (intent.files, intent.bytes):
        return False
    here = Identity(log_dir.identity.device, intent.identity.inode)
    try:
        unmark_dirs(log_dir, [(intent.name, here)], StoppableInterlock(log_dir.fd, log_dir.path, stop))
    except BrokerHoldsLogDir:
        return False
    return True


def _name_displaced(entry: Entry, log_dirs: Mapping[str, OpenLogDir], stop: Stop) -> None:
    """Do the last rename of a `restore --replace` that was cut short between its two. Raises BrokerHoldsLogDir if a
    broker came first; then it waits (both directories are in place, under valid names)."""
    intent = entry.intent
    if intent.through is None or intent.new_name is None:
        return
    source, name = log_dirs[intent.through[0]], intent.through[1]
    with source.acting("look", name):
        if not _is(source, name, intent.identity):
            return
    locked = log_dirs[intent.log_dir]
    interlock = StoppableInterlock(locked.fd, locked.path, stop)
    source.rename(name, intent.new_name, intent.identity, interlock, log_dirs[intent.ends_in])
    source.fsync()


def _is(log_dir: OpenLogDir, name: str, identity: Identity) -> bool:
    return _stat(log_dir, name, identity) is not None


def _stat(log_dir: OpenLogDir, name: str, identity: Identity) -> os.stat_result | None:
    try:
        found = os.stat(name, dir_fd=log_dir.fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found if (found.st_dev, found.st_ino) == (log_dir.identity.device, identity.inode) else None


def _still_fitting(log_dir: OpenLogDir, name: str | None, intent: Intent) -> tuple[CheckpointEntry, ...]:
    """The entries of an intent that may be put back. The intent may be weeks old: a broker may have served the
    directory since, or created another incarnation of the partition that got the same inode."""
    here = Identity(log_dir.identity.device, intent.identity.inode)
    return fitting(log_dir, name or "", here, intent.topic_id, intent.checkpoint_entries, served=True)


def _left_behind(log_dir: OpenLogDir, entries: Sequence[CheckpointEntry]) -> list[CheckpointEntry]:
    """Recovery points to remove after a rename, if unchanged since (the other entries were removed before it).

    A different offset belongs to a partition that a broker has created since then.
    """
    with log_dir.acting("read", RECOVERY_POINT):
        standing = read_checkpoint(log_dir.fd, RECOVERY_POINT) or {}
    mine = [e for e in entries if e.file == RECOVERY_POINT]
    return [e for e in mine if standing.get(TopicPartition(e.topic, e.partition)) == e.offset]


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
