"""Removes the files of one directory: the order, and what happens to each before it is unlinked."""

from __future__ import annotations

import os
import stat

from logagent.broker.process.lock import Watch
from logagent.errors import ItemFailed
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.removal.truncate import LEAST_BYTES, Shortener
from logagent.host.removal.work_control import WorkControl

# How often a directory may turn out not to be empty, or to have changed since a moment ago, before we give up.
MAX_SURPRISES = 100

# The files that say which topic a directory belonged to are removed last.
_LAST = ("leader-epoch-checkpoint", "partition.metadata")
# No file name contains a NUL, so this mark can be removed again; it sorts before every suffix.
_LOG_FIRST = ".\0"


def removal_order(names: list[str]) -> list[str]:
    """The names in the order of removal: segments by base offset, each `.log` before its index files."""
    # Joined, because no name contains a slash either: one call for all names instead of one for each.
    marked = "/".join(names).replace(".log", _LOG_FIRST).split("/")
    marked.sort()
    order = "/".join(marked).replace(_LOG_FIRST, ".log").split("/") if names else []
    for last in _LAST:
        if last in order:
            order.remove(last)
            order.append(last)
    return order


class FileRemover:
    """One worker of a removal, with its own `interlock`. Counts what it removed.

    files: entries that are not directories. bytes: their sizes. freed: the blocks freed at once.
    """

    def __init__(
        self,
        log_dir: OpenLogDir,
        interlock: Watch | None,
        control: WorkControl,
        held: bool,
        truncate_held: bool,
    ) -> None:
        self.before = interlock.before if interlock is not None else lambda: None
        self.files = 0
        self.bytes = 0
        self.freed = 0
        self._log_dir = log_dir
        self._control = control
        self._held = held
        self._truncate_held = truncate_held
        self._shortener = Shortener(log_dir, self.before, control)
        self._surprises = 0

    def remove_files(self, fd: int, pending: list[str]) -> str | None:
        """Remove the files named in `pending`, starting at its end, from the open directory `fd`.

        Returns the name of the first directory among them, None when all are done. `pending` keeps the rest.
        """
        check, before, lstat, unlink = self._control.check, self.before, os.lstat, os.unlink
        on_progress = self._control.on_progress
        # Most files need only a look and an unlink: a removal spends its time in this loop.
        always_prepare = self._held or self._control.budget is not None
        chunk = self._shortener.chunk
        files = size = freed = 0
        try:
            while pending:
                check()
                name = pending.pop()
                try:
                    found = lstat(name, dir_fd=fd)
                    if stat.S_ISDIR(found.st_mode):
                        return name
                    left, frees = found.st_size, found.st_blocks * 512
                    if always_prepare or frees > chunk or found.st_nlink != 1:
                        left, frees = self._prepare(fd, name, found)
                    before()
                    unlink(name, dir_fd=fd)
                except FileNotFoundError:
                    continue
                except IsADirectoryError:
                    self.surprise(name)
                    pending.append(name)
                    continue
                files += 1
                size += found.st_size
                freed += frees
                if on_progress is not None:
                    on_progress(1, left)
        finally:
            self.files += files
            self.bytes += size
            self.freed += freed
        return None

    def remove_plain(self, fd: int, pending: list[str]) -> None:
        """The same for files that an inventory found to be small, regular and without other links. They are not looked
        at before the unlink, which removes neither a directory nor the target of a symlink.

        Ends at the first name that is a directory after all; `pending` keeps it and the rest. Counts only files.
        """
        check, before, unlink = self._control.check, self.before, os.unlink
        on_progress = self._control.on_progress
        while pending:
            check()
            name = pending.pop()
            try:
                before()
                unlink(name, dir_fd=fd)
            except FileNotFoundError:
                continue
            except IsADirectoryError:
                pending.append(name)
                return
            self.files += 1
            if on_progress is not None:
                on_progress(1, 0)

    def count_plain(self, size: int, freed: int) -> None:
        """Count the bytes that `remove_plain` removed."""
        self.bytes += size
        self.freed += freed
        if self._control.on_progress is not None:
            self._control.on_progress(0, size)

    def _prepare(self, fd: int, name: str, found: os.stat_result) -> tuple[int, int]:
        """Truncate the file if necessary, and wait for the budget; returns its size after that, and the bytes it will
        free."""
        size, frees = found.st_size, found.st_blocks * 512
        if found.st_nlink != 1 or not stat.S_ISREG(found.st_mode):
            frees = 0
        elif self._held:
            # The holder of a stray may have it open (`.log`) or mapped (indexes): only the former may be truncated.
            # However small: if only unlinked, its space would not be freed until the broker closes it.
            if self._truncate_held and size and name.endswith((".log", ".log.deleted")):
                size = self._shortener.shorten(fd, name, found, keep=0, least=0)
            frees = frees if size == 0 else 0
        elif frees > self._shortener.chunk and size > LEAST_BYTES:
            size = self._shortener.shorten(fd, name, found, keep=self._shortener.chunk)
        # More blocks than bytes: some are allocated beyond the end.
        self._control.wait_for_budget(frees if size == found.st_size else min(size, frees), self.before)
        return size, frees

    def surprise(self, name: str) -> None:
        """Something has changed since a moment ago; raises `ItemFailed` if that happens too often."""
        self._surprises += 1
        if self._surprises > MAX_SURPRISES:
            raise ItemFailed(
                f"{name} in {self._log_dir.path} keeps changing while being removed",
                path=f"{self._log_dir.path}/{name}",
                hint="find out which process is writing there",
            )
