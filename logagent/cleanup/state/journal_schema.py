"""The journal's file: its rows, its schema, and how it is opened for writing, or for reading without writing."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from logagent.base.errors import JournalError, UnreadableError, way_back
from logagent.base.linux.state_dir import ELSEWHERE
from logagent.base.records import ActionKind, DirKey, Identity, Outcome


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """One entry that was (or will be) removed from an offset checkpoint, kept so that restore can put it back."""

    file: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Intent:
    """An action about to happen. `topic` is the full name, even if `name` or `new_name` is truncated.

    `new_dir` is the directory that a rename moves it to if that is not `log_dir` (quarantine before 3.6.1). `through`:
    (directory, name) that it has for a moment on the way (what `restore --replace` displaces). `closed_cleanly`:
    whether the broker's last stop before it was clean; None if not known. `reason`: why it was an orphan right
    before it lost its name (`verdict.rules`); None if it was not one. `bytes`: its file sizes, which tell
    whether it is still whole; `allocated`: what it took up. `files`, `segments`, `removal_started`: how many it had,
    and whether it had the mode bit that marks the start of a removal; None, as `allocated`, if nobody noted it.
    `claims`: what it rests on (claim, witness, as of which ms; `base.claims`), as words of the release that wrote
    them. `log_bytes`: of `bytes`, those of the segments' `.log` files, which no broker
    changes as it loads a directory.
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
    through: DirKey | None = None
    closed_cleanly: bool | None = None
    reason: str | None = None
    files: int | None = None
    removal_started: bool | None = None
    segments: int | None = None
    claims: tuple[tuple[str, str, int], ...] = ()
    allocated: int | None = None
    log_bytes: int | None = None

    @property
    def ends_in(self) -> str:
        """The directory that it is in after a rename."""
        return self.log_dir if self.new_dir is None else self.new_dir

    @property
    def names(self) -> tuple[DirKey, ...]:
        """Every (directory, name) that it can have while the action is under way."""
        after = () if self.new_name is None else (DirKey(self.ends_in, self.new_name),)
        return (DirKey(self.log_dir, self.name), *after, *(() if self.through is None else (self.through,)))


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the journal: an intent with its time (ms) and, once settled, its outcome. `permission_ended`: why the
    request of the fleet that renamed this directory may no longer remove it; once set, it stays."""

    id: int
    at_ms: int
    intent: Intent
    outcome: Outcome | None
    finished_at_ms: int | None
    error: str | None
    permission_ended: str | None = None


class Settled(NamedTuple):
    """What was done, oldest outcome first: all whose outcome is of `since_ms` or later, but for `left_out` that are
    older than `since_ms`. `last_id`: the highest id that this journal ever gave, which goes back only where a journal
    was lost, or replaced by a copy."""

    entries: list[Entry]
    since_ms: int
    left_out: int
    last_id: int


def entry_of(row: sqlite3.Row) -> Entry:
    intent = Intent(
        action=ActionKind(row["action"]),
        log_dir=text_of(row["log_dir"]),
        name=text_of(row["name"]),
        new_name=text_or_none(row["new_name"]),
        topic=text_or_none(row["topic"]),
        partition=row["partition"],
        topic_id=row["topic_id"],
        identity=identity_of(row["device"], row["inode"]),
        bytes=row["bytes"],
        plan_id=row["plan_id"],
        actor=row["actor"],
        approved=bool(row["approved"]),
        new_dir=text_or_none(row["new_dir"]),
        through=None
        if row["through_dir"] is None
        else DirKey(text_of(row["through_dir"]), text_of(row["through_name"])),
        closed_cleanly=None if row["closed_cleanly"] is None else bool(row["closed_cleanly"]),
        reason=row["reason"],
        files=row["files"],
        segments=row["segments"],
        removal_started=None if row["removal_started"] is None else bool(row["removal_started"]),
        claims=claims_of(row["claims"]),
        allocated=row["allocated"],
        log_bytes=row["log_bytes"],
    )
    outcome = Outcome(row["outcome"]) if row["outcome"] is not None else None
    return Entry(
        row["id"], row["at_ms"], intent, outcome, row["finished_at_ms"], text_or_none(row["error"]),
        row["permission_ended"],
    )  # fmt: skip


def claims_text(claims: tuple[tuple[str, str, int], ...]) -> str | None:
    """One line per claim: `claim witness as_of_ms`."""
    return "\n".join(f"{claim} {witness} {at}" for claim, witness, at in claims) or None


def claims_of(text: str | None) -> tuple[tuple[str, str, int], ...]:
    lines = (line.split(" ") for line in (text or "").splitlines())
    return tuple((claim, witness, int(at)) for claim, witness, at in lines)


def signed(number: int) -> int:
    """A device or inode number (unsigned, 64 bits) as SQLite can hold it."""
    return number if number < 1 << 63 else number - (1 << 64)


def identity_of(device: int, inode: int) -> Identity:
    return Identity(device % (1 << 64), inode % (1 << 64))


def put(text: str | None) -> str | bytes | None:
    if text is None:
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return text


def text_of(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def text_or_none(value: str | bytes | None) -> str | None:
    return None if value is None else text_of(value)


FILE_NAME = "journal.db"
SCHEMA_VERSION = 8
# An in-memory file system, which every Linux has: for copies that need no disk.
MEMORY_DIR = "/dev/shm"
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
  error TEXT,
  through_dir TEXT,
  through_name TEXT,
  closed_cleanly INTEGER,
  reason TEXT,
  files INTEGER,
  removal_started INTEGER,
  claims TEXT,
  allocated INTEGER,
  segments INTEGER,
  log_bytes INTEGER,
  permission_ended TEXT
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
CREATE TABLE host (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  cluster_id TEXT NOT NULL,
  node_id INTEGER NOT NULL,
  directory_ids TEXT NOT NULL
);
CREATE TABLE clock_doubt (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  boot_id TEXT NOT NULL,
  until_ms INTEGER NOT NULL,
  drift_ms INTEGER NOT NULL
);
CREATE TABLE clock_jumps (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  until_ms INTEGER NOT NULL,
  delta_ms INTEGER NOT NULL
);
CREATE TABLE incarnations (
  incarnation TEXT PRIMARY KEY,
  seen_ms INTEGER NOT NULL
) WITHOUT ROWID;
"""


def create_tables(db: sqlite3.Connection) -> None:
    """In an empty database, in one transaction."""
    db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;")


def connect(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=path.startswith("file:")
    )
    db.row_factory = sqlite3.Row
    return db


def open_to_read(path: str) -> sqlite3.Connection:
    """A connection that reads `path`.

    SQLite reads a WAL database only if it finds, or can create, the `-shm` file beside it. A reader that may not write
    there while no writer is at work gets an in-memory copy of the main file, which is complete then; if a crash left a
    WAL on a disk where nothing can be created any more, the copy contains both.
    """
    quoted = quote(os.path.abspath(path))
    db = connect(f"file:{quoted}?mode=ro")
    try:
        db.execute("PRAGMA user_version").fetchone()
        return db
    except sqlite3.OperationalError:
        db.close()
        if has_content(path + "-wal"):
            return _copy_elsewhere(path)
    main = connect(f"file:{quoted}?mode=ro&immutable=1")
    copy = connect(":memory:")
    try:
        main.backup(copy)
    except BaseException:
        copy.close()
        raise
    finally:
        main.close()
    if has_content(path + "-wal"):
        copy.close()
        raise OSError(errno.EAGAIN, "it was written to while being read; try again")
    return copy


def _copy_elsewhere(path: str) -> sqlite3.Connection:
    """An in-memory database of the file together with its WAL. Raises OSError, also if they change during the copy."""
    files = (path, path + "-wal")

    def state() -> list[tuple[int, int, int]]:
        return [(status.st_ino, status.st_size, status.st_mtime_ns) for status in map(os.stat, files)]

    before = state()
    with tempfile.TemporaryDirectory(prefix="logagent-", dir=MEMORY_DIR) as folder:
        target = os.path.join(folder, FILE_NAME)
        for file, suffix in zip(files, ("", "-wal"), strict=True):
            shutil.copyfile(file, target + suffix)
        if state() != before:
            raise OSError(errno.EAGAIN, "it was written to while being read; try again")
        copy = connect(":memory:")
        try:
            with closing(connect(target)) as source:
                source.backup(copy)
        except BaseException:
            copy.close()
            raise
    return copy


def has_content(path: str) -> bool:
    """Whether a file beside the database is in use: part of what was written is, or was a moment ago, in it."""
    try:
        return os.stat(path).st_size > 0
    except FileNotFoundError:
        return False


def version_of(db: sqlite3.Connection, path: str) -> int:
    """The schema of the journal, 0 for an empty file. Raises JournalError if it is not one of our journals, or one of
    another schema: what it knows must never count as nothing."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise JournalError(
            f"{path} was written by a newer logagent (journal schema {version}; this one knows {SCHEMA_VERSION})",
            hint=way_back(os.path.dirname(path)),
        )
    if 0 < version < SCHEMA_VERSION:
        raise JournalError(
            f"{path} was written by a build from before the first release (journal schema {version}; this one reads"
            f" {SCHEMA_VERSION})",
            hint="install that build again, or move the journal away: its undo information is lost with it",
        )
    if version <= 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise JournalError(
            f"{path} is the database of another program", hint="move the file away; a new one is created"
        )
    return version


@contextmanager
def as_journal_error(path: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, UnreadableError, OverflowError, UnicodeError) as e:
        raise JournalError(
            f"the journal {path} cannot be used: {getattr(e, 'strerror', None) or e}",
            hint="check owner, mode, attributes (lsattr) and free space of the state dir; nothing is done without the"
            f" journal; on a full disk without a reserve of logagent name another one: {ELSEWHERE}",
        ) from e
