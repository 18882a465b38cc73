"""The mark on disk that a removal has started: the set-user-ID bit of the directory itself.

The journal says so, too, but a journal can be lost, older than the disk, or another state dir's; restoring half a
directory silently loses records. The bit moves with the directory, needs no inode and no block (so it works on a full
disk), is not inherited by new directories, survives `chmod 750`, means nothing to Linux on a directory, and no Kafka
reads it (tried on 2.5.1, 3.5.2, 3.9.1 and 4.3.1).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

REMOVAL_STARTED = stat.S_ISUID


def is_started(mode: int) -> bool:
    """Whether a directory with this mode has the mark."""
    return bool(mode & REMOVAL_STARTED)


def mark_started(fd: int, before: Callable[[], None], *, synced: bool = False) -> None:
    """Mark the open directory `fd`, durably; `before` is called right before the change. Raises OSError (`set_mark`).

    `synced`: this run has seen the mark reach the disk, so a directory that still has it needs no fsync.
    """
    # Also if it was there already: it may not be on the disk yet, or the run that set it was killed before its fsync.
    if set_mark(fd, before) or not synced:
        os.fsync(fd)


def set_mark(fd: int, before: Callable[[], None]) -> bool:
    """Mark the open directory, without waiting for its disk. Returns False if it has the mark already.

    Raises OSError if it cannot be marked (EPERM: it belongs to another user) or the file system does not keep it.
    """
    status = os.fstat(fd)
    if is_started(status.st_mode):
        return False
    before()
    os.fchmod(fd, stat.S_IMODE(status.st_mode) | REMOVAL_STARTED)
    if not is_started(os.fstat(fd).st_mode):
        raise OSError(errno.EOPNOTSUPP, "its file system cannot store the mark that a removal has started")
    return True


def clear_mark(fd: int, before: Callable[[], None]) -> None:
    """Take the mark back from the open directory, of which nothing was removed since it got it; not durable yet."""
    status = os.fstat(fd)
    if is_started(status.st_mode):
        before()
        os.fchmod(fd, stat.S_IMODE(status.st_mode) & ~REMOVAL_STARTED)
