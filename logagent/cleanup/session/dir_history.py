"""What the journal remembers of the directories that an inventory just saw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from logagent.base.config.settings import CleanupSettings
from logagent.base.dir_names import classify, is_unique
from logagent.base.records import LIVE_KINDS, ActionKind, DirKey, PartitionDir
from logagent.cleanup.plan.queue import NO_REMOVALS, RemovalIntent, RemovalIntents
from logagent.cleanup.state.journal import Entry, Journal
from logagent.verdict.marks import Contents, Mark
from logagent.verdict.rules import VerdictReason
from logagent.verdict.sightings import Sighting

_BY_REQUEST = ("request ", "order ")
"""Releases before this one obeyed orders: what they quarantined goes like what was requested."""


def actor_of(request_id: str) -> str:
    """The journal's name for a request of the fleet that was carried out."""
    return f"{_BY_REQUEST[0]}{request_id}"


def marks(journal: Journal, dirs: Iterable[PartitionDir]) -> dict[DirKey, Mark]:
    """What we know about the rename of each (log dir, present name), whatever path its log dir had then."""
    found: dict[DirKey, Mark] = {}
    renames = journal.renames()
    by_name = _by_unique_name(renames)
    for d in dirs:
        entry = _rename_of(d, renames, by_name)
        if entry is not None:
            chain = list(_renames_back(entry, renames))
            i = chain[-1].intent
            is_of_copy = entry.intent.identity.inode != d.inode
            found[d.key] = Mark(
                entry.at_ms,
                i.topic,
                i.name,
                entry.intent.approved,
                entry.id,
                original_dir=next((e.intent.log_dir for e in chain if e.intent.new_dir is not None), None),
                # What was proven about its topic id then says nothing about another id. Releases that did not note
                # `files` proved too much: from a metadata log that was rolled back, or left over from a migration.
                reason=i.reason if d.topic_id == i.topic_id and i.files is not None else None,
                had=Contents(i.files, i.bytes, i.segments, i.log_bytes),
                had_bit=i.removal_started is True and _is_taken_name(i.name),
                request=_request_of(entry) if not is_of_copy else None,
                is_of_copy=is_of_copy,
                intact=i.closed_cleanly is True and not any(e.intent.action is ActionKind.MARK for e in chain),
            )
    return found


Renames = Mapping[tuple[str, int], Entry]


def _by_unique_name(renames: Renames) -> dict[str, Entry]:
    return {name: entry for (name, _), entry in sorted(renames.items(), key=lambda item: item[1].id) if is_unique(name)}


def _rename_of(d: PartitionDir, renames: Renames, by_name: Mapping[str, Entry]) -> Entry | None:
    """Our rename that gave `d`, or the directory that it is a copy of, its present name."""
    entry = renames.get((d.name, d.inode)) or by_name.get(d.name)
    if entry is None or entry.intent.identity.inode == d.inode:
        return entry
    same = entry.intent.partition == d.partition and d.topic_id in (None, entry.intent.topic_id)
    return entry if same else None


def _request_of(entry: Entry) -> str | None:
    """The request that may remove what it renamed so, if that has not ended."""
    actor = entry.intent.actor
    if entry.permission_ended is not None:
        return None
    return next((actor.removeprefix(by) for by in _BY_REQUEST if actor.startswith(by)), None)


def end_permissions(journal: Journal, dirs: Iterable[PartitionDir] | None, cancelled: Callable[[str], bool]) -> None:
    """End for good what requests may remove, where they were cancelled or it is not there any more under the name that
    they gave it. `dirs`: all of this host; None while a log dir was not read: then nothing is known to be absent."""
    permissions = journal.permissions()
    there = {(d.name, d.inode): d.topic_id for d in dirs or () if permissions}
    ended: dict[int, str] = {}
    for entry in permissions:
        i, request = entry.intent, _request_of(entry)
        topic_id = there.get((i.new_name or "", i.identity.inode), "")
        if request is not None and cancelled(request):
            ended[entry.id] = "the request was cancelled"
        elif dirs is not None and topic_id not in (None, i.topic_id):
            ended[entry.id] = "it was not there any more"
    if ended:
        journal.end_permissions(ended)


def _renames_back(entry: Entry, renames: Mapping[tuple[str, int], Entry]) -> Iterator[Entry]:
    """Our renames of one directory (current → stray → delete), latest first, back to the one from its original name."""
    yield entry
    while True:
        before = renames.get((entry.intent.name, entry.intent.identity.inode))
        if before is None or before.intent.action is ActionKind.RESTORE or before.id >= entry.id:
            return
        entry = before
        yield entry


def note_restores(journal: Journal, dirs: Iterable[PartitionDir]) -> None:
    """Note in each restored directory of `dirs` which restore gave it its name."""
    back = journal.restores()
    for d in dirs:
        entry = back.get((d.name, d.inode)) if back else None
        d.restored_by = entry.id if entry is not None else None


def renamed_by(journal: Journal, dirs: Iterable[PartitionDir], plan_id: str) -> list[DirKey]:
    """(log dir, present name) of what the plan renamed away and what is still there."""
    renames = {(e.intent.new_name or "", e.intent.identity.inode): e for e in journal.of_plan(plan_id)}
    by_name = _by_unique_name(renames)
    return [d.key for d in dirs if _rename_of(d, renames, by_name) is not None]


def _is_taken_name(name: str) -> bool:
    """Whether we took the name that a broker uses, and not one under which something may have been removed before."""
    return classify(name).kind in LIVE_KINDS


def removal_intents(journal: Journal, dirs: Iterable[PartitionDir]) -> RemovalIntents:
    """By (log dir, present name), every removal of those strays and marked `dirs` that we meant, under whatever name
    they had then."""
    dirs = list(dirs)
    if not dirs:
        return NO_REMOVALS
    renames = journal.renames()
    by_name = _by_unique_name(renames)
    names_of: dict[DirKey, set[tuple[str, int]]] = {}
    for d in dirs:
        names = names_of[d.key] = {(d.name, d.inode)}
        entry = _rename_of(d, renames, by_name)
        # A restore ends it: what comes back is complete, and waits its full time when it is set aside again.
        if entry is not None and entry.intent.action is not ActionKind.RESTORE:
            for e in _renames_back(entry, renames):
                names |= {(e.intent.name, e.intent.identity.inode), (e.intent.name, d.inode)}
    unique = {name for names in names_of.values() for name, _ in names if is_unique(name)}
    removals = journal.removal_intents({d.inode for d in dirs}, unique)
    # A directory that nobody renamed (a broker's stray) is known by its unique name alone.
    by_unique: dict[str, list[tuple[int, RemovalIntent]]] = {}
    for (name, inode), meant in removals.items():
        by_unique.setdefault(name, []).extend((inode, intent) for intent in meant)
    found: dict[DirKey, list[RemovalIntent]] = {}
    for d in dirs:
        meant = [intent for key in names_of[d.key] if key[1] == d.inode for intent in removals.get(key, ())]
        others = {name for name, _ in names_of[d.key] if is_unique(name)}
        meant += [
            replace(intent, is_of_copy=True)
            for name in others
            for inode, intent in by_unique.get(name, ())
            if inode != d.inode
        ]
        if meant:
            found[d.key] = meant
    return found


def open_exchanges(journal: Journal, dirs: Iterable[PartitionDir]) -> dict[str, str]:
    """The path of every directory that a `restore --replace` displaced and that still has the name of the one that
    replaced it, because the restore was cut short (`execute.replacements`), with its former name."""
    waiting = {
        (i.through[1], i.identity.inode): i.name
        for i in (e.intent for e in journal.unsettled())
        if i.through is not None
    }
    keys = ((d, (d.name, d.inode)) for d in dirs)
    return {f"{d.log_dir}/{d.name}": waiting[key] for d, key in keys if key in waiting}


def proven_absent(sightings: Iterable[Sighting], cleanup: CleanupSettings) -> frozenset[str]:
    """Topic ids that this host's broker did not know, for as many sightings and as long as an orphan requires."""
    return frozenset(
        s.topic_id
        for s in sightings
        if s.topic_id is not None
        and s.reason in (VerdictReason.TOPIC_ABSENT, VerdictReason.TOPIC_RECREATED)
        and s.count >= cleanup.sightings
        and s.last_ms - s.first_ms >= cleanup.min_age
    )
