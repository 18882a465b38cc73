"""What the journal remembers of the directories that an inventory just saw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from logagent.host.state.journal import Entry, Journal
from logagent.model.assignments.reasons import Reason
from logagent.model.assignments.sightings import Sighting
from logagent.model.facts import RecentAction
from logagent.model.planning.queue import Mark
from logagent.model.records import ActionKind, PartitionDir
from logagent.settings import CleanupSettings


def marks(journal: Journal, dirs: Iterable[PartitionDir]) -> dict[tuple[str, str], Mark]:
    """Per (log dir, present name) what we know of its rename, where it is still the same directory.

    The inode tells that, not the device: a file system can have another device number after a reboot.
    """
    found: dict[tuple[str, str], Mark] = {}
    renames = journal.renames()
    for d in dirs:
        entry = renames.get((d.log_dir, d.name))
        if entry is not None and entry.intent.identity.inode == d.inode:
            chain = list(_renames_back(entry, renames))
            i = chain[-1].intent
            found[d.log_dir, d.name] = Mark(
                entry.at_ms,
                i.topic,
                i.name,
                entry.intent.approved,
                entry.id,
                came_from=next((e.intent.log_dir for e in chain if e.intent.new_dir is not None), None),
                # What was proven of the id that it had then says nothing of another one.
                reason=i.reason if d.topic_id == i.topic_id else None,
                intact=i.closed_cleanly is True and not any(e.intent.action is ActionKind.MARK for e in chain),
            )
    return found


def _renames_back(entry: Entry, renames: Mapping[tuple[str, str], Entry]) -> Iterator[Entry]:
    """Our renames of one directory (current → stray → delete), the last one first, back to the one that took its name
    away."""
    yield entry
    while True:
        before = renames.get((entry.intent.log_dir, entry.intent.name))
        if before is None or before.intent.action is ActionKind.RESTORE or before.id >= entry.id:
            return
        if before.intent.identity.inode != entry.intent.identity.inode:
            return
        entry = before
        yield entry


def renamed_by(journal: Journal, dirs: Iterable[PartitionDir], plan_id: str) -> list[tuple[str, str]]:
    """(log dir, present name) of what the plan renamed away and what still stands there."""
    mine = {(e.intent.ends_in, e.intent.new_name) for e in journal.of_plan(plan_id)}
    return [key for key in marks(journal, dirs) if key in mine]


def begun(journal: Journal, dirs: Iterable[PartitionDir]) -> frozenset[tuple[str, str]]:
    """(log dir, present name) of those strays and marked `dirs` on which a removal was ever begun.

    Whatever name and path they had then.
    """
    dirs = list(dirs)
    removals = journal.removals_begun({d.inode for d in dirs}) if dirs else None
    if not removals:
        return frozenset()
    named = {(e.intent.new_name, e.intent.identity.inode): e for e in journal.renames().values()}
    found: set[tuple[str, str]] = set()
    for d in dirs:
        entry = named.get((d.name, d.inode))
        names = {d.name}
        while entry is not None:
            names.add(entry.intent.name)
            before = named.get((entry.intent.name, d.inode))
            entry = before if before is not None and before.id < entry.id else None
        if any((name, d.inode) in removals for name in names):
            found.add((d.log_dir, d.name))
    return frozenset(found)


def recent(journal: Journal, since_ms: int) -> tuple[RecentAction, ...]:
    """What was renamed away or removed since then (a clock set back does not hide it)."""
    return journal.taken_since(since_ms)


def proven_absent(sightings: Iterable[Sighting], cleanup: CleanupSettings) -> frozenset[str]:
    """Topic ids that this host's broker said it does not know, as often and as long as an orphan has to be seen."""
    return frozenset(
        s.topic_id
        for s in sightings
        if s.topic_id is not None
        and s.reason in (Reason.TOPIC_ABSENT, Reason.TOPIC_RECREATED)
        and s.count >= cleanup.sightings
        and s.last_ms - s.first_ms >= cleanup.min_age
    )
