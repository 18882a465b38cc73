"""Space that the journal reserves for when the disk is full: a file, and free pages in the database.

If the state dir's disk is full, SQLite can create neither the `-wal` nor the `-shm` file that it needs for writing, and
without a journal nothing is done. So while there is space we keep

- `journal.reserve`, 4 MiB that are allocated but unused. When there is no space left it gets `journal.db-wal` as a
  second name (which takes no inode and no block), and SQLite writes its WAL into it, in place. When the journal is
  closed, SQLite removes that name again; the reserve remains for the next time.
- some free pages in `journal.db`, into which the WAL is copied.

A connection that has the database for itself (`locking_mode=EXCLUSIVE`) does not need `-shm`; readers wait during that
time. No space is released that another process could take first.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import suppress

from logagent.host.state.journal_schema import FILE_NAME

RESERVE_NAME = "journal.reserve"
RESERVE_BYTES = 4 << 20
# With less space than this, the journal is written into the reserve.
LEAST_BYTES = RESERVE_BYTES
LEAST_INODES = 4
# With more than this, the reserve is created again.
_PLENTY_BYTES = 16 * RESERVE_BYTES
_PLENTY_INODES = 64
FREE_PAGES = 64
# In pages of 4 KiB: the WAL starts again at its beginning long before the reserve is used up.
_CHECKPOINT_PAGES = 100
_MODE = 0o640


def is_short_of_room(state_dir: str) -> bool:
    """Whether the state dir's disk has too little space for opening the journal in the usual way."""
    try:
        room = os.statvfs(state_dir)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < LEAST_BYTES or bool(room.f_files and room.f_favail < LEAST_INODES)


def keep_reserve(state_dir: str) -> None:
    """Create the reserve, or create it again, if there is plenty of space. Raises nothing: it can wait."""
    path = os.path.join(state_dir, RESERVE_NAME)
    with suppress(OSError):
        if _is_whole(path):
            return
        room = os.statvfs(state_dir)
        if room.f_bavail * room.f_frsize < _PLENTY_BYTES or (room.f_files and room.f_favail < _PLENTY_INODES):
            return
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, _MODE)
        try:
            found = os.fstat(fd)
            # With a second name it is the WAL of a journal that was not closed.
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                os.posix_fallocate(fd, 0, RESERVE_BYTES)
                os.fsync(fd)
        finally:
            os.close(fd)


def _is_whole(path: str) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return found.st_size >= RESERVE_BYTES and found.st_blocks * 512 >= RESERVE_BYTES


def lend_reserve(state_dir: str) -> None:
    """Let SQLite find the reserve as the WAL of the closed journal. A WAL left by a crash stays as it is: its content
    counts, and the reserve's space is released for it. Raises OSError."""
    path, log = os.path.join(state_dir, RESERVE_NAME), os.path.join(state_dir, FILE_NAME + "-wal")
    try:
        standing: os.stat_result | None = os.lstat(log)
    except FileNotFoundError:
        standing = None
    if standing is not None and stat.S_ISREG(standing.st_mode) and standing.st_size == 0:
        # A reader left it. A reader that still has it open also has the database locked, so writing is refused then.
        os.unlink(log)
        standing = None
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return
        if standing is not None:
            if (standing.st_dev, standing.st_ino) != (found.st_dev, found.st_ino):
                os.unlink(path)
            return
        if found.st_nlink != 1:
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


def keep_free_pages(db: sqlite3.Connection) -> None:
    """Keep some free pages in the database, so that its next rows need no more space on the disk."""
    if db.execute("PRAGMA freelist_count").fetchone()[0] >= FREE_PAGES // 4:
        return
    size = db.execute("PRAGMA page_size").fetchone()[0]
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("CREATE TABLE room (bytes BLOB)")
        db.execute("INSERT INTO room VALUES (zeroblob(?))", (FREE_PAGES * size,))
        db.execute("DROP TABLE room")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
