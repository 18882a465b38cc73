"""Removal of a marked directory: the files go, nothing outside goes with them.

Mirrors `Utils.delete` as `LogManager.deleteLogs` uses it: a root that is gone is success, a child that vanished is
skipped, any other error stops. Deviations, each for safety: a look at the broker's lock before every call that
changes something; symlinks are unlinked and never followed; mount points (bind mounts too) and other devices stop the
removal; big files are shortened in steps, so that no single call works on more than 64 MB; segment by segment, each
`.log` before its index files, so that a broker which takes over finds no half segment that it would rebuild; the small
files that say what the directory was go last. Before the first of them the directory is marked (`begun`), so that
nobody restores half of it. Everything is idempotent: whoever is killed anywhere starts again with
the same call.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from logagent.broker.process.lock import Watch
from logagent.errors import NotAsPlanned, RemovalStopped
from logagent.host.linux.syscalls import mount_id
from logagent.host.log_dir.log_dir import OPEN_CHILD, OpenLogDir
from logagent.host.removal.begun import mark_begun
from logagent.host.removal.control import Progress, WorkControl
from logagent.host.removal.unlink import FileRemover, removal_order
from logagent.model.records import Identity

UNCONTROLLED = WorkControl()
REMOVABLE_SUFFIXES = ("-delete", "-stray")
# Threads cost more than they bring for fewer segments than this each.
SEGMENTS_PER_WORKER = 50


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


def remove_dir(
    log_dir: OpenLogDir,
    name: str,
    expect: Identity,
    interlock: Watch | None,
    *,
    control: WorkControl = UNCONTROLLED,
    held_by_holder: bool = False,
    truncate_held: bool = True,
    more_interlocks: tuple[Watch, ...] = (),
    check: Callable[[int], None] | None = None,
) -> Removed:
    """Remove the directory `name` of `log_dir` with all that is in it; only names that end in `-delete` or `-stray`.

    `interlock.before()` is asked immediately before every unlink, truncate and rmdir. `more_interlocks`: one for
    each further worker (a thread that helps with large directories, where unlink blocks); each looks for itself.

    `held_by_holder` is the exception of guard `in-use` for a `-stray` directory that a serving broker has open: `.log`
    files with one link are shortened to nothing first (`truncate_held=False`: unlinked only, for brokers where that is
    untried), index files, which the broker maps, are only unlinked; give a `HolderWatch` as `interlock` then, or None.

    `check` gets its descriptor before the first change and raises `NotAsPlanned` where it is not to go after all.

    Raises `NotAsPlanned` (it is not `expect`; a mount point in it), `BrokerHoldsLogDir`, `RemovalStopped`,
    `ItemFailed` (with the path) or `KafkaStorageError` (the log dir is offline now). What was removed stays removed.
    """
    if not name.endswith(REMOVABLE_SUFFIXES):
        raise NotAsPlanned(f"{log_dir.path}/{name} is not marked: only -delete and -stray directories are removed")
    if interlock is None and not held_by_holder:
        raise ValueError("a removal needs an interlock")
    watches = (interlock, *more_interlocks)
    if control.on_progress is not None and more_interlocks:
        control = replace(control, on_progress=_one_at_a_time(control.on_progress))
    workers = [FileRemover(log_dir, watch, control, held_by_holder, truncate_held) for watch in watches]
    with log_dir.acting("removal", name):
        _Walk(log_dir, workers).remove(name, expect, check)
    return Removed(
        sum(worker.files for worker in workers),
        sum(worker.bytes for worker in workers),
        sum(worker.freed for worker in workers),
    )


def _one_at_a_time(on_progress: Progress) -> Progress:
    mutex = threading.Lock()

    def guarded(files: int, size: int) -> None:
        with mutex:
            on_progress(files, size)

    return guarded


class _Walk:
    """Down and up through the directories of one removal; the first worker does that, all of them remove files."""

    def __init__(self, log_dir: OpenLogDir, workers: list[FileRemover]) -> None:
        self._log_dir = log_dir
        self._workers = workers
        self._first = workers[0]

    def remove(self, name: str, expect: Identity, check: Callable[[int], None] | None) -> None:
        while True:
            try:
                fd = self._log_dir.open_child(name, expect)
            except NotAsPlanned as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    return
                raise
            try:
                if check is not None:
                    check(fd)
                    check = None  # What it looks at goes with the rest.
                mark_begun(fd, self._first.before)
            except BaseException:
                os.close(fd)
                raise
            self._empty(fd, (expect.device, expect.inode))
            self._check_still(name, expect)
            if self._rmdir(self._log_dir.fd, name):
                return

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
        levels: list[_Level] = []
        try:
            levels.append(_Level("", identity, self._pending(fd)))
            if len(self._workers) > 1:
                self._share_out(fd, levels[0].pending)
            while True:
                level = levels[-1]
                met = self._first.remove_files(fd, level.pending)
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
    def _pending(fd: int) -> list[str]:
        return removal_order(os.listdir(fd))[::-1]

    def _share_out(self, fd: int, pending: list[str]) -> None:
        """Let all workers remove the segments of the directory: each takes every so many-th one, whole."""
        bases = {name[:20]: 0 for name in reversed(pending) if name[20:21] == "." and name[:20].isdigit()}
        if len(bases) < SEGMENTS_PER_WORKER * len(self._workers):
            return
        for number, base in enumerate(bases):
            bases[base] = number % len(self._workers)
        shares: list[list[str]] = [[] for _ in self._workers]
        rest: list[str] = []
        for name in pending:
            number = bases.get(name[:20], -1) if name[20:21] == "." else -1
            (rest if number < 0 else shares[number]).append(name)
        pending[:] = rest + _together(self._workers, fd, shares)

    def _enter(self, fd: int, name: str, level: _Level) -> tuple[int, _Level] | None:
        """Open the subdirectory `name`; None if it vanished or became something else (which is pending again)."""
        try:
            below = os.open(name, OPEN_CHILD, dir_fd=fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            self._first.surprise(name)
            level.pending.append(name)
            return None
        try:
            found = os.fstat(below)
            if found.st_dev != self._log_dir.identity.device or mount_id(below) != self._log_dir.mount_id:
                raise NotAsPlanned(
                    f"there is a mount point ({name}) in a directory to be removed in {self._log_dir.path}",
                    hint="mount points are never crossed; unmount it first",
                )
            return below, _Level(name, (found.st_dev, found.st_ino), self._pending(below))
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
        self._first.before()
        try:
            os.rmdir(name, dir_fd=parent)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            self._first.surprise(name)
            return False
        return True


def _together(workers: list[FileRemover], fd: int, shares: list[list[str]]) -> list[str]:
    """Let each worker remove its share, the first one in this thread. Returns the directories that they met.

    The first failure stops all of them at their next file and is raised when they all have stopped.
    """
    failures: list[BaseException] = []
    directories: list[str] = []

    def work(worker: FileRemover, share: list[str]) -> None:
        try:
            # One file at a time in the end, so that one worker's failure is heeded by the others.
            while share and not failures:
                portion = [share.pop() for _ in range(min(8, len(share)))][::-1]
                while portion:
                    met = worker.remove_files(fd, portion)
                    if met is not None:
                        directories.append(met)
        except BaseException as failure:
            failures.append(failure)

    threads = [
        threading.Thread(target=work, args=pair, name="logagent-removal", daemon=True)
        for pair in zip(workers[1:], shares[1:], strict=True)
    ]
    for thread in threads:
        thread.start()
    work(workers[0], shares[0])
    for thread in threads:
        thread.join()
    if failures:
        # A worker that was asked to stop says less than one that failed.
        raise next((f for f in failures if not isinstance(f, RemovalStopped)), failures[0])
    return directories
