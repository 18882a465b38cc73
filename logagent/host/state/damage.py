"""Checks a journal before SQLite opens it and before its rows are read.

The state dir belongs to the broker's user, and `logagent history` run as root reads it too: a FIFO would make it wait,
text in place of a number would end it with a traceback.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache

from logagent.errors import JournalError
from logagent.files.safe_open import DATABASE, opened_regular
from logagent.host.state.journal_schema import bring_up_to_date, connect
from logagent.model.records import ActionKind, Outcome

_VALUES = {
    ("actions", "action"): tuple(kind.value for kind in ActionKind),
    ("actions", "outcome"): tuple(outcome.value for outcome in Outcome),
}
# The files that SQLite itself opens beside the database, by name.
_BESIDE = ("-wal", "-shm", "-journal")
_TIMES = (
    "at_ms",
    "finished_at_ms",
    "last_at_ms",
    "first_ms",
    "last_ms",
    "started_ms",
    "since_ms",
    "wall_ms",
    "until_ms",
)
_PATHS = ("log_dir", "name", "new_name", "new_dir", "file")
_HINT = "move the journal away: its undo information is lost with it; the directories stay as they are"
_LATEST_MS = 253_402_300_799_999  # the last moment of the year 9999


def check_files(path: str) -> None:
    """Raise UnreadableError unless the journal and SQLite's files beside it are regular files of a sensible size, and
    FileNotFoundError if there is no journal. SQLite itself would wait for the other end of a FIFO."""
    with opened_regular(path, DATABASE):
        pass
    for suffix in _BESIDE:
        with suppress(FileNotFoundError), opened_regular(path + suffix, DATABASE):
            pass


def create(path: str) -> None:
    """Create an empty journal file; an existing one stays."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640))


def check_rows(db: sqlite3.Connection, path: str) -> None:
    """Raise JournalError if a row holds something that we never write: SQLite accepts any type in any column, and any
    user who can write to the file can have put it there. Code that reads rows can rely on their types after this."""
    db.execute("PRAGMA trusted_schema=OFF")
    if db.execute("SELECT count(*) FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchone()[0]:
        raise JournalError(f"{path} has views or triggers, which are not ours", hint=_HINT)
    for table, columns in _columns().items():
        wrong = " OR ".join(condition for column in columns for condition in _wrong(table, *column))
        bad = db.execute(f"SELECT count(*) FROM {table} WHERE {wrong}").fetchone()[0]
        if bad:
            said = f"{bad} row{'s' if bad != 1 else ''} of {table} cannot be read"
            raise JournalError(f"{path} is damaged: {said}", hint=_HINT)


@cache
def _columns() -> dict[str, list[tuple[str, str, bool]]]:
    """Our tables as we create them, whatever the file says: (column, type, required) by table."""
    with closing(connect(":memory:")) as ours:
        bring_up_to_date(ours, 0)
        tables = [
            t for (t,) in ours.execute("SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sq%'")
        ]
        return {
            table: [(name, kind, bool(required or key)) for _, name, kind, required, _, key in
                    ours.execute(f"PRAGMA table_info({table})")]
            for table in tables
        }  # fmt: skip


def _wrong(table: str, name: str, kind: str, required: bool) -> Iterator[str]:
    """SQL conditions that none of our rows meets."""
    # Text that is not UTF-8 is kept as a blob. (Comparisons, because `typeof(…) NOT IN` is six times slower.)
    wrong = [f"typeof({name})<>'{kind}'" for kind in (("integer",) if kind == "INTEGER" else ("text", "blob"))]
    yield " AND ".join([*wrong, *([] if required else [f"{name} IS NOT NULL"])])
    if name in _TIMES:
        yield f"{name} NOT BETWEEN 0 AND {_LATEST_MS}"
    elif name in _PATHS:
        yield f"instr(CAST({name} AS BLOB), x'00')"
    elif (table, name) in _VALUES:
        known = ",".join(f"'{value}'" for value in _VALUES[table, name])
        yield f"{name} NOT IN ({known})"
