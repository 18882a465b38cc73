"""What a plan is about to do and the kernel would not permit: looked at beforehand, for the guard `changeable`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from logagent.base.dir_names import CLEANER, LOG_START_OFFSET
from logagent.base.errors import LogAgentError
from logagent.base.reason import Reason
from logagent.base.records import ActionKind, DirKey
from logagent.cleanup.execute.changeable import Actor, Ways, who_acts, why_not_read, why_not_replaced
from logagent.cleanup.execute.checkpoint_entries import ENTRY_FILES, entries_to_drop, may_have_entries
from logagent.cleanup.plan.plan import Proposal, action_id
from logagent.cleanup.session.opened_log_dirs import LogDirs
from logagent.disk.calls import Stop, refuse_if
from logagent.disk.log_dir import OpenLogDir

Found = dict[DirKey, Reason]


def look_whether_changeable(log_dirs: LogDirs, actions: Sequence[Proposal]) -> Found:
    """Of these actions, those that the kernel would not permit. A log dir that cannot be looked at fails at the act."""
    opened, actor = log_dirs.opened(), who_acts()
    by_log_dir: dict[str, list[Proposal]] = {}
    for p in actions:
        by_log_dir.setdefault(p.dir.log_dir, []).append(p)
    jobs = {
        path: partial(_look, opened[path], opened, here, actor) for path, here in by_log_dir.items() if path in opened
    }
    looked = log_dirs.calls.work(jobs).values()
    found = {key: why for each in looked if not isinstance(each, LogAgentError) for key, why in each.items()}
    # A marked directory is restored under the name under which it is set aside first.
    for p in actions:
        if p.on_the_way_back and p.key in found:
            found[DirKey(p.new_dir or p.dir.log_dir, p.new_name or "")] = found[p.key]
    return found


def _look(
    source: OpenLogDir, opened: Mapping[str, OpenLogDir], actions: Sequence[Proposal], actor: Actor, stop: Stop
) -> Found:
    found = _with_entries(source, actions, actor) | _coming_back(source, opened, actions)
    ways: dict[str, Ways] = {}
    for p in actions:
        refuse_if(stop, source.path)
        target = p.new_dir or source.path
        if target not in ways:
            ways[target] = Ways(source, opened.get(target, source), actor)
        why = ways[target].why_not(p)
        if why is not None:
            found[p.key] = why
    return found


def _with_entries(log_dir: OpenLogDir, actions: Sequence[Proposal], actor: Actor) -> Found:
    """What is renamed only once the checkpoints have been read, and its entries are out of them."""
    renames = [p for p in actions if p.action in (ActionKind.MARK, ActionKind.QUARANTINE)]
    if (unread := _unread(log_dir)) is not None:
        return {p.key: unread for _, p in may_have_entries(log_dir, renames)}
    found: Found = {}
    for file in (LOG_START_OFFSET, CLEANER):
        why = why_not_replaced(log_dir, file, actor)
        if why is None:
            continue
        entries = entries_to_drop(log_dir, renames)
        found |= {p.key: why for p in renames if any(e.file == file for e in entries.get(action_id(p), ()))}
    return found


def _coming_back(source: OpenLogDir, opened: Mapping[str, OpenLogDir], actions: Sequence[Proposal]) -> Found:
    """What is restored where the checkpoints cannot be read: entries of a former log go first, its own are put back."""
    restored = [p for p in actions if p.action is ActionKind.RESTORE]
    homes = {p.new_dir or source.path for p in restored}
    unread = {path: _unread(opened.get(path, source)) for path in homes}
    return {p.key: why for p in restored if (why := unread[p.new_dir or source.path]) is not None}


def _unread(log_dir: OpenLogDir) -> Reason | None:
    """Why a checkpoint of the log dir that has entries of partitions cannot be read; None if all can be."""
    return next(filter(None, (why_not_read(log_dir, file) for file in ENTRY_FILES)), None)
