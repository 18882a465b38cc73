"""Removes a marked directory and nothing outside it.

Mirrors `Utils.delete` as `LogManager.deleteLogs` uses it: a missing root is success, a child that has vanished is
skipped, any other error stops. Deviations, each for safety: a look at the broker's lock before every call that changes
something; symlinks are unlinked and never followed; mount points (bind mounts too) and other devices stop the removal;
big files are truncated in steps, so that no single call works on more than 64 MB; segment by segment, each `.log`
before its index files, so that a broker that takes over finds no half segment to rebuild; the small files that identify
the directory are removed last. Before the first of them the directory is marked (`set_mark`), so that half of it is
never restored. Everything is idempotent: after a kill at any point the same call starts again.

A batch of directories can be marked first (`mark_dirs`), so that one sync writes all marks; what of it is not reached
is unmarked again (`unmark_dirs`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from logagent.base.dir_names import leftovers
from logagent.base.errors import LogAgentError, NotAsPlanned
from logagent.base.linux.kernel import mount_id
from logagent.base.records import Identity, PartitionDir
from logagent.disk.log_dir import OPEN_CHILD, OpenLogDir
from logagent.disk.scan import clear_mark, mark_started, set_mark
from logagent.disk.unlink import FileRemover, WorkControl, one_at_a_time, removal_order, remove_segments
from logagent.kafka.processes.lock import Watch

UNCONTROLLED = WorkControl()
REMOVABLE_SUFFIXES = ("-delete", "-stray")


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal removed: files (of any type but directories), the sum of their sizes, and the bytes freed at once,
    as `statvfs` shows them: blocks, with those of the directories (not those of files with another link, nor of files
    that the holder keeps open)."""

    files: int
    bytes: int
    freed_bytes: int


@dataclass(slots=True)
class RemovalMark:
    """The mark of one directory that is to be removed. `check` gets its descriptor before the first change and raises
    `NotAsPlanned` if it must not be removed after all. `given`: `mark_dirs` has set it; `synced`: and has seen it, or
    the one that was there, reach the disk."""

    name: str
    identity: Identity
    check: Callable[[int], None] | None = None
    given: bool = False
    synced: bool = False


@dataclass(slots=True)
class _Level:
    """One directory on the way down; only the deepest one is open. `allocated`: its own blocks, before its entries go
    (some file systems give blocks back with those). `pending` is taken from the end."""

    name: str
    identity: tuple[int, int]
    allocated: int
    pending: list[str]


def remove_dir(
    log_dir: OpenLogDir,
    name: str,
    expect: Identity,
    *watches: Watch | None,
    control: WorkControl = UNCONTROLLED,
    mark: RemovalMark | None = None,
    seen: PartitionDir | None = None,
) -> Removed:
    """Remove the directory `name` of `log_dir` with everything in it; only names that end in `-delete` or `-stray`.

    `watches`: one for each worker (threads help with large directories, where unlink blocks), each of which looks for
    itself: `before()` is asked immediately before every unlink, truncate and rmdir. With `control.held` give a
    `HolderWatch`, or None.

    `mark`: what else to check, and what `mark_dirs` has done.

    `seen`: what the inventory saw of it. If that was only small plain files, and none was added or removed since, they
    are not looked at again one by one.

    Raises `NotAsPlanned` (it is not `expect`; a mount point in it), `BrokerHoldsLogDir`, `RemovalStopped`, `ItemFailed`
    (with the path) or `KafkaStorageError` (the log dir is offline now). Files already removed stay removed.
    """
    if not name.endswith(REMOVABLE_SUFFIXES):
        raise NotAsPlanned(f"{log_dir.path}/{name} is not marked: only -delete and -stray directories are removed")
    if not watches or (None in watches and not control.held):
        raise ValueError("a removal needs an interlock")
    if control.on_progress is not None and len(watches) > 1:
        control = replace(control, on_progress=one_at_a_time(control.on_progress))
    workers = [FileRemover(log_dir, watch, control) for watch in watches]
    # Not if one of its files may be large enough to be truncated first, or several workers share them.
    plain = seen is not None and seen.plain and not control.held and len(watches) == 1
    if plain and seen is not None and seen.allocated > control.chunk:
        plain = False
    with log_dir.acting("removal", name):
        _Walk(log_dir, workers, control, seen if plain else None).remove(
            name, expect, mark or RemovalMark(name, expect)
        )
    return Removed(sum(w.files for w in workers), sum(w.bytes for w in workers), sum(w.freed for w in workers))


def remove_leftovers(
    log_dir: OpenLogDir,
    d: PartitionDir,
    names: Sequence[str],
    watch: Watch,
    control: WorkControl,
    check: Callable[[int], None],
) -> int:
    """Remove those of the files `names` that are still what a start drops, and nothing else, from a directory that
    stays; returns the bytes that were freed. Arguments and errors are those of `remove_dir`."""
    with _opened(log_dir, d.name, d.identity, "removal") as fd:
        check(fd)
        still = set(leftovers(os.listdir(fd)))
        worker = FileRemover(log_dir, watch, control)
        below = worker.remove_files(fd, [name for name in reversed(names) if name in still])
        if below is not None:
            raise NotAsPlanned(f"{log_dir.path}/{d.name}/{below} is a directory")
        os.fsync(fd)
        return worker.freed


def mark_dirs(log_dir: OpenLogDir, marks: Sequence[RemovalMark], watch: Watch) -> None:
    """Mark directories ahead of their removal (`remove_dir`), as that would, and note in each of `marks` what was done.

    First all are marked, then all are synced, and only then a file goes: the first sync writes all marks, and the
    others find nothing left to write. (ext4 commits whatever is under way when a directory is synced; after each
    removal that would be its files.) Raises nothing: what cannot be marked or synced is left to its removal, which
    says why.
    """
    with ExitStack() as closing:
        opened: list[tuple[RemovalMark, int]] = []
        with suppress(LogAgentError):
            for mark in marks:
                with log_dir.acting("mark", mark.name):
                    fd = log_dir.open_child(mark.name, mark.identity)
                    closing.callback(os.close, fd)
                    if mark.check is not None:
                        mark.check(fd)
                    mark.given = set_mark(fd, watch.before)
                opened.append((mark, fd))
        with suppress(LogAgentError):
            for mark, fd in opened:
                with log_dir.acting("sync", mark.name):
                    os.fsync(fd)
                mark.synced = True


def unmark_dirs(log_dir: OpenLogDir, dirs: Sequence[tuple[str, Identity]], watch: Watch) -> None:
    """Take back what `mark_dirs` set on directories that were not reached, durably. Raises as `remove_dir` does."""
    for name, expect in dirs:
        with _opened(log_dir, name, expect, "unmark") as fd:
            clear_mark(fd, watch.before)
    # In a second turn: the first sync writes what was changed in all of them.
    for name, expect in dirs:
        with _opened(log_dir, name, expect, "unmark") as fd:
            os.fsync(fd)


@contextmanager
def _opened(log_dir: OpenLogDir, name: str, expect: Identity, what: str) -> Iterator[int]:
    with log_dir.acting(what, name):
        fd = log_dir.open_child(name, expect)
        try:
            yield fd
        finally:
            os.close(fd)


class _Walk:
    """Walks down and up through the directories of one removal; the first worker walks, all of them remove files."""

    def __init__(
        self, log_dir: OpenLogDir, workers: list[FileRemover], control: WorkControl, plain: PartitionDir | None
    ) -> None:
        self._log_dir = log_dir
        self._workers = workers
        self._control = control
        self._plain = plain
        self._first = workers[0]

    def remove(self, name: str, expect: Identity, mark: RemovalMark) -> None:
        check = mark.check
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
                    check = None  # What it looks at is removed with the rest.
                mark_started(fd, self._first.before, synced=mark.synced)
            except BaseException:
                os.close(fd)
                raise
            allocated = self._empty(fd)
            self._check_still(name, expect)
            if self._rmdir(self._log_dir.fd, name, allocated):
                return

    def _check_still(self, name: str, expect: Identity) -> None:
        """The directory was emptied through its descriptor; before rmdir, check that its name still leads to it."""
        try:
            status = os.stat(name, dir_fd=self._log_dir.fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        if (status.st_dev, status.st_ino) != (expect.device, expect.inode):
            raise NotAsPlanned(f"{self._log_dir.path}/{name} was replaced by something else while being removed")

    def _empty(self, fd: int) -> int:
        """Remove everything below the open directory `fd`, and close it. One descriptor at a time, no recursion.
        Returns what the directory itself had allocated."""
        levels: list[_Level] = []
        try:
            status = os.fstat(fd)
            levels.append(_Level("", (status.st_dev, status.st_ino), status.st_blocks * 512, self._pending(fd)))
            if self._plain is not None:
                self._remove_plain(fd, status, levels[0], self._plain)
                self._plain = None
            if len(self._workers) > 1:
                remove_segments(self._workers, fd, levels[0].pending)
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
                    return level.allocated
                else:
                    levels.pop()
                    up = self._go_up(fd, levels[-1].identity)
                    os.close(fd)
                    fd = up
                    if not self._rmdir(fd, level.name, level.allocated):
                        levels[-1].pending.append(level.name)
        except OSError as error:
            names = [level.name for level in levels[1:9]] + [error.filename] * isinstance(error.filename, str)
            error.filename = "/".join(names) or None
            raise
        finally:
            os.close(fd)

    def _remove_plain(self, fd: int, found: os.stat_result, level: _Level, plain: PartitionDir) -> None:
        """Remove what the inventory has already looked at, if the directory is unchanged."""
        if found.st_mtime_ns != plain.mtime_ns or len(level.pending) != plain.files:
            return
        self._control.wait_for_budget(plain.allocated, self._first.before)
        self._first.remove_plain(fd, level.pending)
        if not level.pending:
            self._first.count_plain(plain.bytes, plain.allocated - level.allocated)

    @staticmethod
    def _pending(fd: int) -> list[str]:
        return removal_order(os.listdir(fd))[::-1]

    def _enter(self, fd: int, name: str, level: _Level) -> tuple[int, _Level] | None:
        """Open the subdirectory `name`; None if it has vanished or become something else (which is pending again)."""
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
            status = os.fstat(below)
            if status.st_dev != self._log_dir.identity.device or mount_id(below) != self._log_dir.mount_id:
                raise NotAsPlanned(
                    f"there is a mount point ({name}) in a directory to be removed in {self._log_dir.path}",
                    hint="mount points are never crossed; unmount it first",
                )
            identity = (status.st_dev, status.st_ino)
            return below, _Level(name, identity, status.st_blocks * 512, self._pending(below))
        except BaseException:
            os.close(below)
            raise

    def _go_up(self, fd: int, expected: tuple[int, int]) -> int:
        up = os.open("..", OPEN_CHILD, dir_fd=fd)
        status = os.fstat(up)
        if (status.st_dev, status.st_ino) != expected:
            os.close(up)
            raise NotAsPlanned(f"a directory was moved away in {self._log_dir.path} while being removed")
        return up

    def _rmdir(self, parent: int, name: str, allocated: int) -> bool:
        """Remove the empty directory `name`, which had so much allocated; False if it has to be looked at again."""
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
        self._first.count_directory(allocated)
        return True
