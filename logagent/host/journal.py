"""The journal: what we meant to do, what came of it, and what we have seen. SQLite, WAL, `synchronous=FULL`.

Guarantees. `begin` returns only when the intents are on disk; an intent without an outcome after a crash is therefore
an action that may or may not have happened, and `recovery.py` settles it by looking at the disk. Text that is no UTF-8
(directory names can hold anything) is stored as a BLOB of the original bytes, everything else as TEXT, so that
`sqlite3 journal.db` stays readable. Every failure is a JournalError, and without a journal nothing is done (guard
"journal").
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from logagent.errors import JournalError
from logagent.model.records import ActionKind, Identity, Outcome
from logagent.model.serving import Serving
from logagent.model.sightings import Clocks, Sighting

FILE_NAME = "journal.db"
SCHEMA_VERSION = 1
_BUSY_SECONDS = 10.0

_SCHEMA = """
CREATE TABLE actions (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL,
  action TEXT NOT NULL,
  log_dir TEXT NOT NULL,
  name TEXT NOT NULL,
  new_name TEXT,
  new_dir TEXT,
  topic TEXT,
  partition INTEGER,
  topic_id TEXT,
  device INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  plan_id TEXT NOT NULL,
  actor TEXT NOT NULL,
  approved INTEGER NOT NULL,
  outcome TEXT,
  finished_at_ms INTEGER,
  error TEXT
);
CREATE INDEX actions_unsettled ON actions (id) WHERE outcome IS NULL;
CREATE INDEX actions_by_new_name ON actions (new_name) WHERE new_name IS NOT NULL;
CREATE INDEX actions_by_name ON actions (log_dir, name);
CREATE INDEX actions_by_time ON actions (at_ms);
CREATE TABLE checkpoint_entries (
  action_id INTEGER NOT NULL REFERENCES actions (id) ON DELETE CASCADE,
  file TEXT NOT NULL,
  topic TEXT NOT NULL,
  partition INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  PRIMARY KEY (action_id, file)
) WITHOUT ROWID;
CREATE TABLE failures (
  log_dir TEXT NOT NULL,
  name TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  last_at_ms INTEGER NOT NULL,
  last_error TEXT NOT NULL,
  PRIMARY KEY (log_dir, name)
) WITHOUT ROWID;
CREATE TABLE sightings (
  log_dir TEXT NOT NULL,
  name TEXT NOT NULL,
  device INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  topic_id TEXT,
  newest_mtime_ns INTEGER NOT NULL,
  reason TEXT NOT NULL,
  count INTEGER NOT NULL,
  first_ms INTEGER NOT NULL,
  last_ms INTEGER NOT NULL,
  PRIMARY KEY (log_dir, name)
) WITHOUT ROWID;
CREATE TABLE serving (
  log_dir TEXT PRIMARY KEY,
  pid INTEGER NOT NULL,
  started_ms INTEGER NOT NULL,
  since_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE last_cycle (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  boot_id TEXT NOT NULL,
  wall_ms INTEGER NOT NULL,
  boottime_ms INTEGER NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """One entry that was (or will be) taken out of an offset checkpoint, so that restore can put it back."""

    file: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Intent:
    """An action about to happen. `topic` is the full name, also where `name` or `new_name` is cut.

    `new_dir` is the directory that a rename moves it to where that is not `log_dir` (quarantine before 3.6.1).
    """

    action: ActionKind
    log_dir: str
    name: str
    new_name: str | None
    topic: str | None
    partition: int | None
    topic_id: str | None
    identity: Identity
    bytes: int
    plan_id: str
    actor: str
    approved: bool = False
    checkpoint_entries: tuple[CheckpointEntry, ...] = ()
    new_dir: str | None = None

    @property
    def ends_in(self) -> str:
        """The directory that it lies in after a rename."""
        return self.log_dir if self.new_dir is None else self.new_dir


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the journal: an intent with its time (ms) and, once it is settled, its outcome."""

    id: int
    at_ms: int
    intent: Intent
    outcome: Outcome | None
    finished_at_ms: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with a removal so far, for the backoff of the next attempt."""

    attempts: int
    last_at_ms: int
    last_error: str


class Journal:
    """The open journal of one state dir. One writer at a time; any number of readers."""

    def __init__(self, connection: sqlite3.Connection, path: str, *, read_only: bool) -> None:
        self._db = connection
        self._lock = threading.RLock()
        self.path = path
        self.read_only = read_only

    @classmethod
    def open(cls, state_dir: str) -> Journal:
        """Open for writing, creating it (mode 0640) where it is not there. Raises JournalError."""
        path = os.path.join(state_dir, FILE_NAME)
        with _as_journal_error(path):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640))
            db = _connect(path)
            try:
                if _version(db, path) == 0:
                    db.execute("PRAGMA journal_mode=WAL")
                    db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;")
                db.execute("PRAGMA synchronous=FULL")
                db.execute("PRAGMA foreign_keys=ON")
            except BaseException:
                db.close()
                raise
        return cls(db, path, read_only=False)

    @classmethod
    def open_read_only(cls, state_dir: str) -> Journal:
        """Open for reading; where there is no journal yet, an empty one in memory.

        Raises JournalError, also where it cannot be told whether there is one: that is never an empty journal.
        """
        path = os.path.join(state_dir, FILE_NAME)
        with _as_journal_error(path):
            try:
                os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
            except FileNotFoundError:
                return cls.empty()
            db = _open_to_read(path)
            if _version(db, path) == 0:
                db.close()
                return cls.empty()
        return cls(db, path, read_only=True)

    @classmethod
    def empty(cls) -> Journal:
        """A journal of nothing, in memory, for reading."""
        db = _connect(":memory:")
        db.executescript(_SCHEMA)
        return cls(db, ":memory:", read_only=True)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _as_journal_error(self.path):
            if self.read_only:
                raise JournalError(f"{self.path} is open for reading only")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock, _as_journal_error(self.path):
            return self._db.execute(sql, values).fetchall()

    # Actions

    def begin(self, intents: Sequence[Intent], now_ms: int) -> list[int]:
        """Make all `intents` durable in one transaction; their ids, in order. Nothing may be done before this."""
        ids: list[int] = []
        with self._transaction() as db:
            for i in intents:
                cursor = db.execute(
                    "INSERT INTO actions (at_ms, action, log_dir, name, new_name, new_dir, topic, partition, topic_id,"
                    " device, inode, bytes, plan_id, actor, approved) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                    (
                        now_ms, i.action.value, _put(i.log_dir), _put(i.name), _put(i.new_name), _put(i.new_dir),
                        _put(i.topic), i.partition, i.topic_id, _signed(i.identity.device), _signed(i.identity.inode),
                        i.bytes, i.plan_id, i.actor, int(i.approved),
                    ),
                )  # fmt: skip
                action_id = cursor.lastrowid
                assert action_id is not None
                ids.append(action_id)
                db.executemany(
                    "INSERT INTO checkpoint_entries VALUES (?,?,?,?,?)",
                    [(action_id, e.file, _put(e.topic), e.partition, e.offset) for e in i.checkpoint_entries],
                )
        return ids

    def add_checkpoint_entries(self, entries: Iterable[tuple[int, CheckpointEntry]]) -> None:
        """Remember entries that are about to leave a checkpoint, by the id of the action they belong to."""
        with self._transaction() as db:
            db.executemany(
                "INSERT OR IGNORE INTO checkpoint_entries VALUES (?,?,?,?,?)",
                [(action_id, e.file, _put(e.topic), e.partition, e.offset) for action_id, e in entries],
            )

    def finish(self, outcomes: Iterable[tuple[int, Outcome, str | None]], now_ms: int) -> None:
        """Record what came of actions, in one durable transaction."""
        with self._transaction() as db:
            db.executemany(
                "UPDATE actions SET outcome=?, error=?, finished_at_ms=? WHERE id=?",
                [(outcome.value, _put(error), now_ms, action_id) for action_id, outcome, error in outcomes],
            )

    def unsettled(self) -> list[Entry]:
        """Intents without an outcome, oldest first: what a crash (or another process at work) left behind."""
        return self._entries("WHERE outcome IS NULL ORDER BY id")

    def renamed_to(self, directory: str, name: str, identity: Identity) -> Entry | None:
        """The newest finished rename of ours that gave this directory its present name and place.

        The inode tells it, not the device: a file system can have another device number after a reboot.
        """
        found = self._entries(
            "WHERE coalesce(new_dir, log_dir)=? AND new_name=? AND inode=? AND outcome='done' ORDER BY id DESC LIMIT 1",
            (_put(directory), _put(name), _signed(identity.inode)),
        )
        return found[0] if found else None

    def renames(self) -> dict[tuple[str, str], Entry]:
        """(present directory, present name) → the newest finished rename of ours to that name, for whole listings."""
        entries = self._entries("WHERE new_name IS NOT NULL AND outcome='done' ORDER BY id")
        return {(e.intent.ends_in, e.intent.new_name or ""): e for e in entries}

    def removals_begun(self) -> set[tuple[str, int]]:
        """(name, inode) of every removal that was ever begun: its name was unique, its log dir can have many paths."""
        rows = self._rows(
            "SELECT DISTINCT name, inode FROM actions WHERE action='remove' AND (outcome IS NULL OR outcome<>'skipped')"
        )
        return {(_text(name), inode % (1 << 64)) for name, inode in rows}

    def of_plan(self, plan_id: str) -> list[Entry]:
        """The finished renames that `plan_id` made to set directories aside or mark them."""
        return self._entries(
            "WHERE plan_id=? AND action IN ('mark', 'quarantine') AND outcome='done' ORDER BY id", (plan_id,)
        )

    def since(self, at_ms: int) -> list[Entry]:
        """Actions that were begun at or after `at_ms`, oldest first (what the blast radius counts)."""
        return self._entries("WHERE at_ms>=? ORDER BY id", (at_ms,))

    def history(self, *, limit: int | None = None, since_ms: int | None = None) -> list[Entry]:
        """The journal, oldest first; with `limit` only the newest that many."""
        tail = "ORDER BY id DESC LIMIT ?" if limit is not None else "ORDER BY id DESC"
        values: list[Any] = [since_ms or 0] + ([limit] if limit is not None else [])
        return self._entries(f"WHERE at_ms>=? {tail}", values)[::-1]

    def _entries(self, where: str, values: Sequence[Any] = ()) -> list[Entry]:
        rows = self._rows(
            "SELECT id, at_ms, action, log_dir, name, new_name, topic, partition, topic_id, device, inode, bytes,"
            f" plan_id, actor, approved, outcome, finished_at_ms, error, new_dir FROM actions {where}",
            values,
        )
        return [_entry(row) for row in rows]

    def with_checkpoint_entries(self, entry: Entry) -> Entry:
        """`entry` with the checkpoint entries that its action took out."""
        rows = self._rows(
            "SELECT file, topic, partition, offset FROM checkpoint_entries WHERE action_id=?", (entry.id,)
        )
        saved = tuple(CheckpointEntry(file, _text(topic), partition, offset) for file, topic, partition, offset in rows)
        return replace(entry, intent=replace(entry.intent, checkpoint_entries=saved))

    def saved_checkpoint_entries(self, directory: str, name: str, identity: Identity) -> tuple[CheckpointEntry, ...]:
        """What our renames of this directory, back to its current name, took out of the checkpoints.

        Not back beyond an earlier restore: a broker may have moved the offsets since then.
        """
        saved: dict[str, CheckpointEntry] = {}
        entry = self.renamed_to(directory, name, identity)
        while entry is not None and entry.intent.action is not ActionKind.RESTORE:
            for e in self.with_checkpoint_entries(entry).intent.checkpoint_entries:
                saved.setdefault(e.file, e)
            before = self.renamed_to(entry.intent.log_dir, entry.intent.name, identity)
            entry = before if before is not None and before.id < entry.id else None
        return tuple(saved.values())

    # Failed removals

    def record_failure(self, log_dir: str, name: str, error: str, now_ms: int) -> None:
        with self._transaction() as db:
            db.execute(
                "INSERT INTO failures VALUES (?,?,1,?,?) ON CONFLICT (log_dir, name) DO UPDATE SET"
                " attempts=attempts+1, last_at_ms=excluded.last_at_ms, last_error=excluded.last_error",
                (_put(log_dir), _put(name), now_ms, _put(error)),
            )

    def clear_failures(self, gone: Iterable[tuple[str, str]]) -> None:
        keys = [(_put(log_dir), _put(name)) for log_dir, name in gone]
        if not keys:
            return
        with self._transaction() as db:
            db.executemany("DELETE FROM failures WHERE log_dir=? AND name=?", keys)

    def failures(self) -> dict[tuple[str, str], Failure]:
        rows = self._rows("SELECT log_dir, name, attempts, last_at_ms, last_error FROM failures")
        return {(_text(d), _text(n)): Failure(attempts, at, _text(error)) for d, n, attempts, at, error in rows}

    # Sightings

    def sightings(self) -> dict[tuple[str, str], Sighting]:
        rows = self._rows(
            "SELECT log_dir, name, device, inode, topic_id, newest_mtime_ns, reason, count, first_ms, last_ms"
            " FROM sightings"
        )
        found = [Sighting(_text(r[0]), _text(r[1]), _identity(r[2], r[3]), *r[4:]) for r in rows]
        return {(s.log_dir, s.name): s for s in found}

    def replace_sightings(self, sightings: Iterable[Sighting]) -> None:
        """Make exactly these the known sightings, in one durable transaction."""
        rows = [
            (
                _put(s.log_dir), _put(s.name), _signed(s.identity.device), _signed(s.identity.inode), s.topic_id,
                s.newest_mtime_ns, s.reason, s.count, s.first_ms, s.last_ms,
            )
            for s in sightings
        ]  # fmt: skip
        with self._transaction() as db:
            db.execute("DELETE FROM sightings")
            db.executemany("INSERT INTO sightings VALUES (?,?,?,?,?,?,?,?,?,?)", rows)

    # Brokers seen serving, and clocks

    def serving(self) -> dict[str, Serving]:
        rows = self._rows("SELECT log_dir, pid, started_ms, since_ms FROM serving")
        return {_text(r[0]): Serving(r[1], r[2], r[3]) for r in rows}

    def note_serving(self, seen: Mapping[str, Serving]) -> None:
        """Make exactly these the brokers that were seen serving, by log dir."""
        with self._transaction() as db:
            db.execute("DELETE FROM serving")
            rows = [(_put(log_dir), s.pid, s.started_ms, s.since_ms) for log_dir, s in seen.items()]
            db.executemany("INSERT INTO serving VALUES (?,?,?,?)", rows)

    def last_clocks(self) -> Clocks | None:
        rows = self._rows("SELECT boot_id, wall_ms, boottime_ms FROM last_cycle")
        return Clocks(*rows[0]) if rows else None

    def note_clocks(self, clocks: Clocks) -> None:
        with self._transaction() as db:
            values = (clocks.boot_id, clocks.wall_ms, clocks.boottime_ms)
            db.execute("INSERT OR REPLACE INTO last_cycle VALUES (1,?,?,?)", values)


def _entry(row: tuple[Any, ...]) -> Entry:
    intent = Intent(
        action=ActionKind(row[2]),
        log_dir=_text(row[3]),
        name=_text(row[4]),
        new_name=_text_or_none(row[5]),
        topic=_text_or_none(row[6]),
        partition=row[7],
        topic_id=row[8],
        identity=_identity(row[9], row[10]),
        bytes=row[11],
        plan_id=row[12],
        actor=row[13],
        approved=bool(row[14]),
        new_dir=_text_or_none(row[18]),
    )
    outcome = Outcome(row[15]) if row[15] is not None else None
    return Entry(row[0], row[1], intent, outcome, row[16], _text_or_none(row[17]))


def _signed(number: int) -> int:
    """A device or inode number (unsigned, 64 bits) as SQLite can hold it."""
    return number if number < 1 << 63 else number - (1 << 64)


def _identity(device: int, inode: int) -> Identity:
    return Identity(device % (1 << 64), inode % (1 << 64))


def _put(text: str | None) -> str | bytes | None:
    if text is None:
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return text


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _text_or_none(value: str | bytes | None) -> str | None:
    return None if value is None else _text(value)


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=path.startswith("file:")
    )


def _uri_quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(os.path.abspath(path))


def _open_to_read(path: str) -> sqlite3.Connection:
    """A connection that reads `path`.

    SQLite reads a WAL database only where it can make (or finds) the `-shm` file beside it. A reader who may not write
    there, while no writer is at work, gets a copy in memory of the main file, which is complete then.
    """
    quoted = _uri_quoted(path)
    db = _connect(f"file:{quoted}?mode=ro")
    try:
        db.execute("PRAGMA user_version").fetchone()
        return db
    except sqlite3.OperationalError:
        db.close()
        if _has_content(path + "-wal"):
            raise
    main = _connect(f"file:{quoted}?mode=ro&immutable=1")
    copy = _connect(":memory:")
    try:
        main.backup(copy)
    except BaseException:
        copy.close()
        raise
    finally:
        main.close()
    if _has_content(path + "-wal"):
        copy.close()
        raise OSError(errno.EAGAIN, "it was written to while it was read; try again")
    return copy


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except FileNotFoundError:
        return False


def _version(db: sqlite3.Connection, path: str) -> int:
    """The schema of the journal, 0 for an empty file. Raises JournalError for what is no journal of ours."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise JournalError(
            f"{path} was written by a newer logagent (journal schema {version}; this one knows {SCHEMA_VERSION})",
            hint="install that version again, or move the journal away: what it knows of undo is lost with it",
        )
    if version <= 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise JournalError(f"{path} is a database of something else", hint="move the file away; a new one is made")
    return version


@contextmanager
def _as_journal_error(path: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as e:
        raise JournalError(
            f"the journal {path} cannot be used: {e}",
            hint="check owner, mode and free space of the state dir (--state-dir); nothing is done without the journal",
        ) from e
