"""Reads a journal without touching it: SQLite would create files beside it even for reading.

Only for `doctor`, which changes nothing. The daemon's latest writes may be missing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import quote

from logagent.base.errors import UnreadableError
from logagent.base.files.safe_open import DATABASE, opened_regular
from logagent.base.records import ActionKind, Outcome
from logagent.cleanup.state.journal import Journal
from logagent.cleanup.state.journal_schema import FILE_NAME, SCHEMA_VERSION
from logagent.cleanup.state.reserve import check_files
from logagent.kafka.files.meta_properties import META_PROPERTIES

_MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class JournalFacts:
    """schema: None if it cannot be read. log_dirs: every log dir that the journal mentions."""

    exists: bool
    schema: int | None = None
    log_dirs: frozenset[str] = frozenset()


def inspect_journal(state_dir: str) -> JournalFacts:
    """What can be read of the journal in `state_dir`. Raises nothing."""
    path = os.path.join(state_dir, FILE_NAME)
    try:
        check_files(path)
        with opened_regular(path, DATABASE) as fd:
            head = os.read(fd, 100)
    except FileNotFoundError:
        return JournalFacts(False)
    except (OSError, UnreadableError):
        return JournalFacts(True)
    if len(head) < 100 or not head.startswith(_MAGIC):
        return JournalFacts(True)
    schema = int.from_bytes(head[60:64], "big")
    return JournalFacts(True, schema, _log_dirs(path) if schema == SCHEMA_VERSION else frozenset())


def _log_dirs(path: str) -> frozenset[str]:
    try:
        with closing(sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1", uri=True)) as db:
            rows = db.execute("SELECT log_dir FROM actions UNION SELECT log_dir FROM sightings").fetchall()
    except sqlite3.Error:
        return frozenset()
    return frozenset(os.fsdecode(value) for (value,) in rows if isinstance(value, str | bytes))


_AWAY = (ActionKind.QUARANTINE, ActionKind.MARK)
_SETTLED = (ActionKind.REMOVE, ActionKind.RESTORE)


def undoable(journal: Journal) -> Iterator[tuple[str, int | None]]:
    """The path of every directory that we set aside or marked and that may still exist, and the device it is on. Used
    before a journal is deleted (when the system package is purged).

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
