"""Looks at a journal without touching it: SQLite itself would make files beside it, even to read.

For `doctor` only, which changes nothing. What the daemon wrote in the last moments may be missing.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import quote

from logagent.errors import UnreadableError
from logagent.files.limits import DATABASE
from logagent.files.safe_open import opened_regular
from logagent.host.state.damage import check_files
from logagent.host.state.schema import FILE_NAME, SCHEMA_VERSION

_MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class JournalGlance:
    """schema: None where it cannot be read. log_dirs: every log dir that the journal tells of."""

    exists: bool
    schema: int | None = None
    log_dirs: frozenset[str] = frozenset()


def glance(state_dir: str) -> JournalGlance:
    """What can be told of the journal in `state_dir`. Raises nothing."""
    path = os.path.join(state_dir, FILE_NAME)
    try:
        check_files(path)
        with opened_regular(path, DATABASE) as fd:
            head = os.read(fd, 100)
    except FileNotFoundError:
        return JournalGlance(False)
    except (OSError, UnreadableError):
        return JournalGlance(True)
    if len(head) < 100 or not head.startswith(_MAGIC):
        return JournalGlance(True)
    schema = int.from_bytes(head[60:64], "big")
    return JournalGlance(True, schema, _log_dirs(path) if 0 < schema <= SCHEMA_VERSION else frozenset())


def _log_dirs(path: str) -> frozenset[str]:
    import sqlite3

    try:
        with closing(sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1", uri=True)) as db:
            rows = db.execute("SELECT log_dir FROM actions UNION SELECT log_dir FROM sightings").fetchall()
    except sqlite3.Error:
        return frozenset()
    return frozenset(os.fsdecode(value) for (value,) in rows if isinstance(value, str | bytes))
