"""What the journal could still undo, asked before a journal is deleted (when the system package is purged)."""

from __future__ import annotations

import os
from collections.abc import Iterator

from logagent.broker.files.meta_properties import META_PROPERTIES
from logagent.host.state.journal import Journal
from logagent.model.records import ActionKind, Outcome

_AWAY = (ActionKind.QUARANTINE, ActionKind.MARK)
_SETTLED = (ActionKind.REMOVE, ActionKind.RESTORE)


def undoable(journal: Journal) -> Iterator[tuple[str, int | None]]:
    """The path of every directory that we set aside or marked and that may still exist, and the device it is on.

    Only directories known not to exist any more are left out: removed or restored by us, or missing from a log dir that
    is mounted. The device is None if the parent directory cannot be read, or may be the mount point of an absent disk.
    """
    settled = {
        (e.intent.name, e.intent.identity.inode): e.id
        for e in journal.history()
        if e.intent.action in _SETTLED and e.outcome is Outcome.DONE
    }
    for key, entry in journal.renames().items():
        if entry.intent.action not in _AWAY or settled.get(key, -1) > entry.id:
            continue
        directory, name = entry.intent.ends_in, key[0]
        path = os.path.join(directory, name)
        try:
            device = os.stat(directory).st_dev
        except OSError:
            yield path, None
            continue
        if os.path.lexists(path):
            yield path, device
        elif device != entry.intent.identity.device and not os.path.lexists(os.path.join(directory, META_PROPERTIES)):
            yield path, None
