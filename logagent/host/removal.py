"""Removal of a marked directory: the files go, nothing outside goes with them.

Mirrors `Utils.delete` as `LogManager.deleteLogs` uses it: a root that is gone is success, a child that vanished is
skipped, any other error stops. Deviations, each for safety: a look at the broker's lock before every call that
changes something; symlinks are unlinked and never followed; mount points (bind mounts too) and other devices stop the
removal; big files are shortened in steps, so that no single call works on more than 64 MB; segment by segment, each
`.log` before its index files, so that a broker which takes over finds no half segment that it would rebuild; the small
files that say what the directory was go last. Everything is idempotent: whoever is killed anywhere starts again with
the same call.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from logagent.broker.lock import Watch
from logagent.errors import ItemFailed, NotAsPlanned, RemovalStopped
from logagent.host.budget import ByteBudget
from logagent.host.disk import OPEN_CHILD, OpenLogDir
from logagent.host.shorten import Shortener
from logagent.host.syscalls import mount_id
from logagent.model.records import Identity

REMOVABLE_SUFFIXES = ("-delete", "-stray")
# How often a directory may turn out not to be empty, or not to be what it was a moment ago, before we give up.
MAX_SURPRISES = 100

_LAST_FILES = {"leader-epoch-checkpoint": 2, "partition.metadata": 3}


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal removed: files (of any type but directories), the sum of their sizes, and the bytes that came
    back at once (not those of files with another link, nor of files that the holder keeps open)."""

    files: int
    bytes: int
    freed_bytes: int


@dataclass(slots=True)
class _Level:
    """One directory on the way down; only the deepest one is open. `pending` is taken from the end."""

    name: str
    identity: tuple[int, int]
    pending: list[str]


def removal_order(name: str) -> tuple[int, str, bool, str]:
    """Sort key: segments by base offset, each with `.log` first; then other names; what names the topic last."""
    if name[20:21] == "." and name[:20].isdigit():
        return (0, name[:20], name[20:24] != ".log", name)
    return (_LAST_FILES.get(name, 1), "", True, name)


def is_log_file(name: str) -> bool:
    """Whether `name` holds a segment's records (`.log`, and on its way out `.log.deleted`)."""
    return name.endswith((".log", ".log.deleted"))


def _never() -> bool:
    return False


def remove_dir(
    log_dir: OpenLogDir,
    name: str,
    expect: Identity,
    interlock: Watch | None,
    *,
    budget: ByteBudget | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    held_by_holder: bool = False,
    truncate_held: bool = True,
    stop: Callable[[], bool] = _never,
) -> Removed:
    """Remove the directory `name` of `log_dir` with all that is in it; only names that end in `-delete` or `-stray`.

    `interlock.before()` is asked immediately before every unlink, truncate and rmdir. `on_progress(files, bytes)` gets
    what was removed since its last call. `stop()` is asked between files. `held_by_holder` is the exception of guard
    `in-use` for a `-stray` directory that a serving broker has open: `.log` files with one link are shortened to
    nothing first (`truncate_held=False`: unlinked only, for brokers where that is untried), index files, which the
    broker maps, are only unlinked; give a `HolderWatch` as `interlock` then, or None.

    Raises `NotAsPlanned` (it is not `expect`; a mount point in it), `BrokerHoldsLogDir`, `RemovalStopped`,
    `ItemFailed` (with the path) or `KafkaStorageError` (the log dir is offline now). What was removed stays removed.
    """
    if not name.endswith(REMOVABLE_SUFFIXES):
        raise NotAsPlanned(f"{log_dir.path}/{name} is not marked: only -delete and -stray directories are removed")
    if interlock is None and not held_by_holder:
        raise ValueError("a removal needs an interlock")
    removal = _Removal(log_dir, interlock, budget, on_progress, held_by_holder, truncate_held, stop)
    with log_dir.acting("removal", name):
        return removal.run(name, expect)


class _Removal:
    def __init__(
        self,
        log_dir: OpenLogDir,
        interlock: Watch | None,
        budget: ByteBudget | None,
        on_progress: Callable[[int, int], None] | None,
        held: bool,
        truncate_held: bool,
        stop: Callable[[], bool],
    ) -> None:
        self._log_dir = log_dir
        self._before = interlock.before if interlock is not None else lambda: None
        self._on_progress = on_progress
        self._held = held
        self._truncate_held = truncate_held
        self._stop = stop
        self._budget = budget
        self._shortener = Shortener(log_dir, self._before, budget, on_progress, stop)
        self._files = 0
        self._bytes = 0
        self._freed = 0
        self._surprises = 0

    def run(self, name: str, expect: Identity) -> Removed:
        while True:
            try:
                fd = self._log_dir.open_child(name, expect)
            except NotAsPlanned as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    break
                raise
            self._empty(fd, (expect.device, expect.inode))
            self._check_still(name, expect)
            if self._rmdir(self._log_dir.fd, name):
                break
        return Removed(self._files, self._bytes, self._freed)

    def _check_still(self, name: str, expect: Identity) -> None:
        """The directory was emptied through its descriptor; see that its name still leads to it before rmdir."""
        try:
            found = os.stat(name, dir_fd=self._log_dir.fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        if (found.st_dev, found.st_ino) != (expect.device, expect.inode):
            raise NotAsPlanned(f"{self._log_dir.path}/{name} was swapped for something else while it was removed")

    def _empty(self, fd: int, identity: tuple[int, int]) -> None:
        """Remove everything below the open directory `fd`, and close it. One descriptor at a time, no recursion."""
        levels = [_Level("", identity, self._names(fd))]
        try:
            while True:
                level = levels[-1]
                met = self._remove_files(fd, level.pending)
                if met is not None:
                    below = self._enter(fd, met, level)
                    if below is not None:
                        os.close(fd)
                        fd, deeper = below
                        levels.append(deeper)
                elif len(levels) == 1:
                    return
                else:
                    levels.pop()
                    up = self._go_up(fd, levels[-1].identity)
                    os.close(fd)
                    fd = up
                    if not self._rmdir(fd, level.name):
                        levels[-1].pending.append(level.name)
        except OSError as error:
            names = [level.name for level in levels[1:9]] + [error.filename] * isinstance(error.filename, str)
            error.filename = "/".join(names) or None
            raise
        finally:
            os.close(fd)

    @staticmethod
    def _names(fd: int) -> list[str]:
        return sorted(os.listdir(fd), key=removal_order, reverse=True)

    def _remove_files(self, fd: int, pending: list[str]) -> str | None:
        """Remove the pending files; the name of the first directory among them, None when all are done."""
        stop, chunk = self._stop, self._shortener.chunk
        while pending:
            if stop():
                raise RemovalStopped("asked to stop; the rest stays queued")
            name = pending.pop()
            try:
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            mode = found.st_mode
            if stat.S_ISDIR(mode):
                return name
            size = found.st_size
            freed = found.st_blocks * 512
            if found.st_nlink != 1 or not stat.S_ISREG(mode):
                freed = 0
            elif self._held:
                size = self._shorten_for_holder(fd, name, found)
                freed = freed if size == 0 else 0
            elif freed > chunk:
                size = self._shortener.shorten(fd, name, found, keep=chunk)
            if self._unlink(fd, name, min(size, freed), pending):
                self._files += 1
                self._bytes += found.st_size
                self._freed += freed
                if self._on_progress is not None:
                    self._on_progress(1, size)
        return None

    def _shorten_for_holder(self, fd: int, name: str, found: os.stat_result) -> int:
        """The holder of a stray may have the file open (`.log`) or mapped (indexes): only the former is shortened."""
        if self._truncate_held and found.st_size and is_log_file(name):
            return self._shortener.shorten(fd, name, found, keep=0)
        return found.st_size

    def _unlink(self, fd: int, name: str, frees: int, pending: list[str]) -> bool:
        """Unlink `name`, when the budget lets `frees` bytes go; False if it was gone or has become a directory."""
        if self._budget is not None and not self._budget.take(frees, self._stop):
            raise RemovalStopped("asked to stop; the rest stays queued")
        self._before()
        try:
            os.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            return False
        except IsADirectoryError:
            self._surprise(name)
            pending.append(name)
            return False
        return True

    def _enter(self, fd: int, name: str, level: _Level) -> tuple[int, _Level] | None:
        """Open the subdirectory `name`; None if it vanished or became something else (which is pending again)."""
        try:
            below = os.open(name, OPEN_CHILD, dir_fd=fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            self._surprise(name)
            level.pending.append(name)
            return None
        try:
            found = os.fstat(below)
            if found.st_dev != self._log_dir.identity.device or mount_id(below) != self._log_dir.mount_id:
                raise NotAsPlanned(
                    f"there is a mount point ({name}) in a directory to be removed in {self._log_dir.path}",
                    hint="mount points are never crossed; unmount it first",
                )
            return below, _Level(name, (found.st_dev, found.st_ino), self._names(below))
        except BaseException:
            os.close(below)
            raise

    def _go_up(self, fd: int, expected: tuple[int, int]) -> int:
        up = os.open("..", OPEN_CHILD, dir_fd=fd)
        found = os.fstat(up)
        if (found.st_dev, found.st_ino) != expected:
            os.close(up)
            raise NotAsPlanned(f"a directory was moved away in {self._log_dir.path} while it was removed")
        return up

    def _rmdir(self, parent: int, name: str) -> bool:
        """Remove the empty directory `name`; False if it has to be looked into (or at) again."""
        self._before()
        try:
            os.rmdir(name, dir_fd=parent)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            self._surprise(name)
            return False
        return True

    def _surprise(self, name: str) -> None:
        self._surprises += 1
        if self._surprises > MAX_SURPRISES:
            raise ItemFailed(
                f"{name} in {self._log_dir.path} keeps changing while it is removed",
                path=f"{self._log_dir.path}/{name}",
                hint="find out which process writes there",
            )
