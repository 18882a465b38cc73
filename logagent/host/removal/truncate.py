"""Big files are truncated from their end before they are unlinked, so that no single call frees more than a chunk.

One unlink of a large, cached or fragmented file keeps the file system's journal and the page cache busy for so long
that a broker on the same disk notices (the idea is from RocksDB's `DeleteScheduler`). Never done to a file with another
hard link (a backup made by `cp -l` would lose its bytes; checked again before every step), to one below `LEAST_BYTES`,
to anything but a regular file on this mount, or to one that a process may have mapped.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from logagent.host.linux.syscalls import is_hole, mount_id
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.removal.budget import MAX_CHUNK
from logagent.host.removal.work_control import WorkControl

# Without O_NONBLOCK, opening a name that was swapped for a FIFO would wait for its reader.
_OPEN_FILE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
# Smaller files are unlinked whole: that is quick, and a link made at the last moment loses nothing.
LEAST_BYTES = MAX_CHUNK
# The file no longer exists, was swapped for something else, or is in use in a way that makes unlinking it cheap anyway.
_LEAVE_IT_TO_UNLINK = frozenset(
    {
        errno.ENOENT,
        errno.ELOOP,
        errno.ENXIO,
        errno.ENODEV,
        errno.EISDIR,
        errno.ETXTBSY,
        errno.EWOULDBLOCK,
    }
)


class Shortener:
    """Truncates files of one removal: `before` is called immediately before every truncate, after all waiting."""

    def __init__(
        self,
        log_dir: OpenLogDir,
        before: Callable[[], None],
        control: WorkControl,
    ) -> None:
        self._log_dir = log_dir
        self._before = before
        self._control = control
        self.chunk = control.chunk

    def shorten(self, dir_fd: int, name: str, found: os.stat_result, keep: int, least: int = LEAST_BYTES) -> int:
        """Truncate the file that `found` describes to at most `keep` bytes and return its new size; below `least` bytes
        it is left alone. Before every step it is checked that nobody has made a link to it.

        The file is left as it is if it is not that file any more, or may not be truncated. Raises `OSError`,
        `BrokerHoldsLogDir` and `RemovalStopped`.
        """
        try:
            fd = os.open(name, _OPEN_FILE, dir_fd=dir_fd)
        except OSError as error:
            if error.errno in _LEAVE_IT_TO_UNLINK:
                return found.st_size
            raise
        try:
            if not self._may_shorten(fd, found):
                return found.st_size
            return self._steps(fd, found.st_size, keep, least)
        finally:
            os.close(fd)

    def _may_shorten(self, fd: int, found: os.stat_result) -> bool:
        now = os.fstat(fd)
        return (
            stat.S_ISREG(now.st_mode)
            and (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino)
            and now.st_nlink == 1
            # A file can be a mount point too: what is mounted on it is outside the log dir.
            and now.st_dev == self._log_dir.identity.device
            and mount_id(fd) == self._log_dir.mount_id
        )

    def _steps(self, fd: int, size: int, keep: int, least: int) -> int:
        while size > keep and size >= least:
            self._control.check()
            # Stop at `least`; one final step truncates the rest.
            target = max(_next_size(fd, size, self.chunk), least) if size > least else keep
            self._control.wait_for_budget(min(size - target, MAX_CHUNK), self._before)
            # Drop the pages from the cache in a separate call: that makes the truncate several times faster.
            os.posix_fadvise(fd, target, size - target, os.POSIX_FADV_DONTNEED)
            self._before()
            if os.fstat(fd).st_nlink != 1:
                return size
            os.ftruncate(fd, target)
            if self._control.on_progress is not None:
                self._control.on_progress(0, size - target)
            size = target
        return size


def _next_size(fd: int, size: int, chunk: int) -> int:
    """The next smaller size: one chunk less, or more where the end is a hole (a sparse file may claim exabytes)."""
    target = max(0, size - chunk)
    step = chunk
    while target > 0:
        step *= 2
        further = max(0, size - step)
        if not is_hole(fd, target, size):
            break
        if not is_hole(fd, further, target):
            break
        target = further
    return target
