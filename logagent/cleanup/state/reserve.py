"""Space that the journal reserves for when the disk is full: a file, and free pages in the database.

If the state dir's disk is full, SQLite can create neither the `-wal` nor the `-shm` file that it needs for writing, and
without a journal nothing is done. So while there is space we keep

- `journal.reserve`, 4 MiB that are allocated but unused. When there is no space left it gets `journal.db-wal` as a
  second name (which takes no inode and no block), and SQLite writes its WAL into it, in place. When the journal is
  closed, SQLite removes that name again; the reserve remains for the next time.
- free pages in `journal.db`, into which the WAL is copied: enough for the rows of thousands of removals, should the
  state dir's disk get nothing back from them. (Without free pages the WAL cannot be copied and soon fills the reserve.)

A connection that has the database for itself (`locking_mode=EXCLUSIVE`) does not need `-shm`; readers wait during that
time. No space is released that another process could take first.

A journal is also checked here, before SQLite opens it and before its rows are read. The state dir belongs to the
broker's user, and `logagent history` run as root reads it too: a FIFO would make it wait, text in place of a number
would end it with a traceback.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache

from logagent.base.console.render import human_bytes
from logagent.base.errors import JournalError
from logagent.base.files.safe_open import DATABASE, opened_regular
from logagent.base.linux.state_dir import check_writable, hint_on, nearest_directory, unusable
from logagent.base.records import ActionKind, Outcome
from logagent.cleanup.state.journal_schema import FILE_NAME, connect, create_tables

RESERVE_NAME = "journal.reserve"
RESERVE_BYTES = 4 << 20
# With less space than this, the journal is written into the reserve.
LEAST_BYTES = RESERVE_BYTES
LEAST_INODES = 4
# With this much the reserve is created: with what it leaves, the journal can still be opened in the usual way.
ENOUGH_BYTES = RESERVE_BYTES + LEAST_BYTES
_ENOUGH_INODES = 1 + LEAST_INODES
# With less than this a new journal cannot be created.
_NEW_JOURNAL_BYTES = 512 << 10
# 2 MiB. About 20 rows of the journal fit into each.
FREE_PAGES = 512
# In pages of 4 KiB: the WAL starts again at its beginning long before the reserve is used up.
_CHECKPOINT_PAGES = 100
_MODE = 0o640


def is_short_of_room(state_dir: str) -> bool:
    """Whether the state dir's disk has too little space for opening the journal in the usual way."""
    return _has_less(state_dir, LEAST_BYTES, LEAST_INODES)


def lacks_room_for_reserve(directory: str, state_dir: str) -> bool:
    """Whether there is no reserve in `state_dir`, and too little space to create it. `directory`: it, or if it does not
    exist yet, the one in which it would be created."""
    return not _is_whole(os.path.join(state_dir, RESERVE_NAME)) and _has_less(directory, ENOUGH_BYTES, _ENOUGH_INODES)


def lacks_room_for_journal(directory: str, state_dir: str) -> bool:
    """Whether there is too little space even for a few entries, and no reserve for them (in a journal that exists)."""
    kept = _is_whole(os.path.join(state_dir, RESERVE_NAME)) and os.path.exists(os.path.join(state_dir, FILE_NAME))
    return not kept and _has_less(directory, _NEW_JOURNAL_BYTES, LEAST_INODES)


def _has_less(directory: str, size: int, inodes: int) -> bool:
    try:
        room = os.statvfs(directory)
    except OSError:
        return False
    little = room.f_blocks > 0 and room.f_bavail * room.f_frsize < size
    return little or (room.f_files > 0 and room.f_favail < inodes)


def keep_reserve(state_dir: str) -> None:
    """Create the reserve, or create it again, if there is enough space. Raises nothing: it can wait."""
    path = os.path.join(state_dir, RESERVE_NAME)
    with suppress(OSError):  # without it the journal is as before; `missing_reserve` says so
        if not _is_whole(path) and not _has_less(state_dir, ENOUGH_BYTES, _ENOUGH_INODES):
            _create_reserve(path)


def _create_reserve(path: str) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, _MODE)
    try:
        status = os.fstat(fd)
        # With a second name it is the WAL of a journal that was not closed.
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            try:
                os.posix_fallocate(fd, 0, RESERVE_BYTES)
                os.fsync(fd)
            except OSError:
                os.unlink(path)  # Part of it is of no use here, and its space is wanted elsewhere.
    finally:
        os.close(fd)


def _is_whole(path: str) -> bool:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # `doctor` inspects also what is none
        return False
    return status.st_size >= RESERVE_BYTES and status.st_blocks * 512 >= RESERVE_BYTES


def lend_reserve(state_dir: str) -> None:
    """Let SQLite find the reserve as the WAL of the closed journal. A WAL left by a crash stays as it is: its content
    counts, and the reserve's space is released for it. Raises OSError."""
    path, log = os.path.join(state_dir, RESERVE_NAME), os.path.join(state_dir, FILE_NAME + "-wal")
    try:
        wal: os.stat_result | None = os.lstat(log)
    except FileNotFoundError:
        wal = None
    if wal is not None and stat.S_ISREG(wal.st_mode) and wal.st_size == 0:
        # A reader left it. A reader that still has it open also has the database locked, so writing is refused then.
        os.unlink(log)
        wal = None
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return
        if wal is not None:
            if (wal.st_dev, wal.st_ino) != (status.st_dev, status.st_ino):
                os.unlink(path)
            return
        if status.st_nlink != 1:
            return
        # Its content has been copied into the database; clearing the header invalidates the rest.
        os.pwrite(fd, bytes(4096), 0)
        os.fsync(fd)
        os.link(path, log, follow_symlinks=False)
    finally:
        os.close(fd)


def use_reserve(db: sqlite3.Connection) -> None:
    """Call it before the first use of a connection: then it needs no `-shm` and no temporary file, and its WAL stays
    short."""
    db.execute("PRAGMA locking_mode=EXCLUSIVE")
    db.execute("PRAGMA temp_store=MEMORY")
    db.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")


def keep_free_pages(db: sqlite3.Connection, state_dir: str) -> None:
    """Keep free pages in the database, so that its next rows need no more space on the disk; as many as leave enough
    space for opening the journal in the usual way (each is in the WAL, too, until that is copied)."""
    room = os.statvfs(state_dir)
    size = db.execute("PRAGMA page_size").fetchone()[0]
    pages = min(FREE_PAGES, (room.f_bavail * room.f_frsize - LEAST_BYTES) // (2 * size))
    if db.execute("PRAGMA freelist_count").fetchone()[0] >= pages // 2:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("CREATE TABLE room (bytes BLOB)")
        db.execute("INSERT INTO room VALUES (zeroblob(?))", (pages * size,))
        db.execute("DROP TABLE room")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


_VALUES = {
    ("actions", "action"): tuple(kind.value for kind in ActionKind),
    ("actions", "outcome"): tuple(outcome.value for outcome in Outcome),
}
# The files that SQLite itself opens beside the database, by name.
BESIDE = ("-wal", "-shm", "-journal")
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
DAMAGED_HINT = "move the journal away: its undo information is lost with it; the directories stay as they are"
_LATEST_MS = 253_402_300_799_999  # the last moment of the year 9999


def check_files(path: str) -> None:
    """Raise UnreadableError unless the journal and SQLite's files beside it are regular files of a sensible size, and
    FileNotFoundError if there is no journal. SQLite itself would wait for the other end of a FIFO."""
    with opened_regular(path, DATABASE):
        pass
    for suffix in BESIDE:
        # None of them is there while nobody has the journal open.
        with suppress(FileNotFoundError), opened_regular(path + suffix, DATABASE):
            pass


def create(path: str) -> None:
    """Create an empty journal file; an existing one stays. Raises OSError if it can only be read: SQLite would open it,
    and refuse the first write."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o640))


def check_rows(db: sqlite3.Connection, path: str) -> None:
    """Raise JournalError if a row holds something that we never write: SQLite accepts any type in any column, and any
    user who can write to the file can have put it there. Code that reads rows can rely on their types after this."""
    db.execute("PRAGMA trusted_schema=OFF")
    if db.execute("SELECT count(*) FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchone()[0]:
        raise JournalError(f"{path} has views or triggers, which are not ours", hint=DAMAGED_HINT)
    for table, columns in _columns().items():
        wrong = " OR ".join(condition for column in columns for condition in _wrong(table, *column))
        bad = db.execute(f"SELECT count(*) FROM {table} WHERE {wrong}").fetchone()[0]
        if bad:
            damage = f"{bad} row{'s' if bad != 1 else ''} of {table} cannot be read"
            raise JournalError(f"{path} is damaged: {damage}", hint=DAMAGED_HINT)


@cache
def _columns() -> dict[str, list[tuple[str, str, bool]]]:
    """Our tables as we create them, whatever the file says: (column, type, required) by table."""
    with closing(connect(":memory:")) as db:
        create_tables(db)
        tables = [t for (t,) in db.execute("SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sq%'")]
        return {
            table: [(name, kind, bool(required or key)) for _, name, kind, required, _, key in
                    db.execute(f"PRAGMA table_info({table})")]
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


def why_acting_would_fail(path: str, *, root_makes_it: bool = False) -> JournalError | None:
    """Why a command that acts could not use the state dir `path` now, as far as reading shows it. Changes nothing.

    `root_makes_it`: it is not there, and root would create it, whoever may write there."""
    directory = nearest_directory(path)
    try:
        check_place(path, directory)
    except OSError as e:
        if not (root_makes_it and e.errno in (errno.EACCES, errno.EPERM)):
            return unusable(path, e.errno)
    if not lacks_room_for_journal(directory, path):
        return None
    room = os.statvfs(directory)
    figures = (  # little is not nothing
        f" ({human_bytes(room.f_bavail * room.f_frsize)} and {room.f_favail} inodes free; a new journal needs"
        f" {_NEW_JOURNAL_BYTES >> 10} KiB and {LEAST_INODES} inodes, its reserve {ENOUGH_BYTES >> 20} MiB)"
    )
    return unusable(path, errno.ENOSPC, figures)


def check_place(path: str, directory: str) -> None:
    """Raise OSError if the state dir `path`, or `directory` where it would be made, is no place for one."""
    if directory != path and os.path.lexists(path):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    check_writable(directory)


def missing_reserve(path: str) -> str | None:
    """What to say where the state dir `path` has no reserve, and no room for one."""
    if not lacks_room_for_reserve(nearest_directory(path), path):
        return None
    return (
        f"the state dir {path} has no {RESERVE_NAME}, for which {ENOUGH_BYTES >> 20} MiB have to be free there: once"
        f" that disk is full nothing may be removed any more; {hint_on(errno.ENOSPC)}"
    )
