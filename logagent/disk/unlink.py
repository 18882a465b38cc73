"""Removes the files of one directory: the order, what happens to each before it is unlinked, and how the work is
controlled from outside: when it ends, how fast it goes, with how many threads.

Big files are truncated from their end before they are unlinked, so that no single call frees more than a chunk. One
unlink of a large, cached or fragmented file keeps the file system's journal and the page cache busy for so long that a
broker on the same disk notices (the idea is from RocksDB's `DeleteScheduler`). Never done to a file with another hard
link (a backup made by `cp -l` would lose its bytes; checked again before every step), to one below `LEAST_BYTES`, to
anything but a regular file on this mount, or to one that a process may have mapped.

Several workers remove the segments of one large directory, each in a thread and with an interlock of its own.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from logagent.base.dir_names import PARTITION_METADATA
from logagent.base.errors import ItemFailed, RemovalStopped
from logagent.base.files.safe_open import MIB
from logagent.base.linux.kernel import is_hole, mount_id
from logagent.base.units import Space
from logagent.disk.calls import Stop, never
from logagent.disk.log_dir import OpenLogDir
from logagent.disk.partition import nested_usage
from logagent.kafka.processes.lock import Watch

# No single system call works on more than this much of a file.
MAX_CHUNK = 64 * MIB
_NAP_SECONDS = 0.1


class ByteBudget:
    """A rate in bytes per second shared by any number of workers, so that the disk's other users keep their share.
    Thread-safe.

    Freeing is spread evenly: each take waits until the earlier ones are paid for, and after idle times there is no
    burst beyond one take. `chunk` is how much of a file one call should free at this rate: a tenth of a second's worth,
    at least 1 MiB and at most 64 MiB.
    """

    def __init__(
        self,
        bytes_per_second: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if bytes_per_second <= 0:
            raise ValueError("a budget needs at least one byte per second")
        self._rate = bytes_per_second
        self._monotonic = monotonic
        self._sleep = sleep
        self._paid_until = float("-inf")
        self._mutex = threading.Lock()
        self.chunk = min(MAX_CHUNK, max(MIB, bytes_per_second // 10 // MIB * MIB))

    def take(self, count: int, stop: Callable[[], bool], check_again: Callable[[], None] = lambda: None) -> bool:
        """Wait until `count` bytes may be freed. False if `stop` became true first.

        At a low rate one step can take minutes, so `stop` is asked and `check_again` called ten times a second. What
        they prevent, by returning true or raising, is not charged.
        """
        with self._mutex:
            start = max(self._monotonic(), self._paid_until)
            self._paid_until = start + count / self._rate
        granted = False
        try:
            while not stop():
                left = start - self._monotonic()
                if left <= 0:
                    granted = True
                    break
                check_again()
                self._sleep(min(left, _NAP_SECONDS))
        finally:
            if not granted:
                with self._mutex:
                    self._paid_until -= count / self._rate
        return granted


Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class WorkControl:
    """Passed from the command or the daemon down to the last file.

    stop: asked between two actions and between two files; work ends there, and the rest stays queued. given_up: asked
    before each change, even in the middle of a file; true when nobody waits for this work any more because its log dir
    hung. budget: bytes per second, shared by all workers. workers: threads for one large directory. on_progress(files,
    bytes): what was removed since its last call, and the blocks that it had.

    held: the exception of guard `in-use` for a `-stray` directory that a serving broker has open: `.log` files with one
    link are truncated to nothing first (truncate_held=False: unlinked only, for brokers with which that is untested),
    index files, which the broker maps, are only unlinked.
    """

    stop: Stop = never
    given_up: Stop = never
    budget: ByteBudget | None = None
    workers: int = 1
    on_progress: Progress | None = None
    held: bool = False
    truncate_held: bool = True

    @property
    def chunk(self) -> int:
        """How many bytes of a file one call may free."""
        return MAX_CHUNK if self.budget is None else self.budget.chunk

    def check(self) -> None:
        """Raises RemovalStopped if work must end here."""
        if self.stop():
            raise RemovalStopped("stopped on request; the rest stays queued")

    def wait_for_budget(self, count: int, check_again: Callable[[], None]) -> None:
        """Wait until `count` bytes may be freed; meanwhile `check_again` is called again and again, to raise if a
        broker starts. Raises RemovalStopped if work must end first."""
        if self.budget is not None and not self.budget.take(count, self.stop, check_again):
            raise RemovalStopped("stopped on request; the rest stays queued")


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
            status = os.fstat(fd)
            if status.st_nlink != 1:
                return size
            os.ftruncate(fd, target)
            if self._control.on_progress is not None:
                self._control.on_progress(0, 512 * (status.st_blocks - os.fstat(fd).st_blocks))
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


# How often a directory may turn out not to be empty, or to have changed since a moment ago, before we give up.
MAX_SURPRISES = 100

# The files that say which topic a directory belonged to are removed last.
_LAST = ("leader-epoch-checkpoint", PARTITION_METADATA)
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

    files: entries that are not directories. bytes: their sizes. freed: the blocks freed at once, and those of the
    directories themselves.
    """

    def __init__(
        self,
        log_dir: OpenLogDir,
        interlock: Watch | None,
        control: WorkControl,
    ) -> None:
        self.before = interlock.before if interlock is not None else lambda: None
        self.files = 0
        self.bytes = 0
        self.freed = 0
        self._log_dir = log_dir
        self._control = control
        self._shortener = Shortener(log_dir, self.before, control)
        self._surprises = 0

    def remove_files(self, fd: int, pending: list[str]) -> str | None:
        """Remove the files named in `pending`, starting at its end, from the open directory `fd`.

        Returns the name of the first directory among them, None when all are done. `pending` keeps the rest.
        """
        check, before, lstat, unlink = self._control.check, self.before, os.lstat, os.unlink
        on_progress = self._control.on_progress
        # Most files need only a look and an unlink: a removal spends its time in this loop.
        always_prepare = self._control.held or self._control.budget is not None
        chunk = self._shortener.chunk
        files = size = freed = 0
        try:
            while pending:
                check()
                name = pending.pop()
                try:
                    status = lstat(name, dir_fd=fd)
                    if stat.S_ISDIR(status.st_mode):
                        return name
                    left = frees = status.st_blocks * 512
                    if always_prepare or frees > chunk or status.st_nlink != 1:
                        left, frees = self._prepare(fd, name, status)
                    before()
                    unlink(name, dir_fd=fd)
                except FileNotFoundError:
                    continue
                except IsADirectoryError:
                    self.surprise(name)
                    pending.append(name)
                    continue
                files += 1
                size += status.st_size
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
            self._control.on_progress(0, freed)

    def count_directory(self, freed: int) -> None:
        """Count the blocks of a directory that was removed itself."""
        self.freed += freed
        if self._control.on_progress is not None:
            self._control.on_progress(0, freed)

    def _prepare(self, fd: int, name: str, found: os.stat_result) -> tuple[int, int]:
        """Truncate the file if necessary, and wait for the budget; returns what it has allocated after that, and the
        bytes that are free once it is gone."""
        size = found.st_size
        whole = frees = found.st_blocks * 512
        if found.st_nlink != 1 or not stat.S_ISREG(found.st_mode):
            frees = 0
        elif self._control.held:
            # The holder of a stray may have it open (`.log`) or mapped (indexes): only the former may be truncated.
            # However small: if only unlinked, its space would not be freed until the broker closes it.
            if self._control.truncate_held and size and name.endswith((".log", ".log.deleted")):
                size = self._shortener.shorten(fd, name, found, keep=0, least=0)
            frees = frees if size == 0 else 0
        elif frees > self._shortener.chunk and size > LEAST_BYTES:
            size = self._shortener.shorten(fd, name, found, keep=self._shortener.chunk)
        # More blocks than bytes: some are allocated beyond the end.
        self._control.wait_for_budget(frees if size == found.st_size else min(size, frees), self.before)
        return whole if size == found.st_size else min(size, whole), frees

    def surprise(self, name: str) -> None:
        """Something has changed since a moment ago; raises `ItemFailed` if that happens too often."""
        self._surprises += 1
        if self._surprises > MAX_SURPRISES:
            raise ItemFailed(
                f"{name} in {self._log_dir.path} keeps changing while being removed",
                path=f"{self._log_dir.path}/{name}",
                hint="find out which process is writing there",
            )


# With fewer segments than this each, threads cost more than they gain.
SEGMENTS_PER_WORKER = 50


def one_at_a_time(on_progress: Progress) -> Progress:
    mutex = threading.Lock()

    def guarded(files: int, size: int) -> None:
        with mutex:
            on_progress(files, size)

    return guarded


def remove_segments(workers: list[FileRemover], fd: int, pending: list[str]) -> None:
    """Let all workers remove the segments of the directory, each taking every n-th whole segment. `pending` keeps what
    is left: files of no segment, and directories."""
    bases = {name[:20]: 0 for name in reversed(pending) if name[20:21] == "." and name[:20].isdigit()}
    if len(bases) < SEGMENTS_PER_WORKER * len(workers):
        return
    for number, base in enumerate(bases):
        bases[base] = number % len(workers)
    shares: list[list[str]] = [[] for _ in workers]
    rest: list[str] = []
    for name in pending:
        number = bases.get(name[:20], -1) if name[20:21] == "." else -1
        (rest if number < 0 else shares[number]).append(name)
    pending[:] = rest + _together(workers, fd, shares)


def _together(workers: list[FileRemover], fd: int, shares: list[list[str]]) -> list[str]:
    """Let each worker remove its share, the first one (and each that gets no thread) in this thread. Returns the
    directories that they found.

    The first failure stops all of them at their next file and is raised when they all have stopped.
    """
    failures: list[BaseException] = []
    directories: list[str] = []

    def work(worker: FileRemover, share: list[str]) -> None:
        try:
            # One file at a time towards the end, so that the others notice one worker's failure.
            while share and not failures:
                portion = [share.pop() for _ in range(min(8, len(share)))][::-1]
                while portion:
                    met = worker.remove_files(fd, portion)
                    if met is not None:
                        directories.append(met)
        except BaseException as failure:
            failures.append(failure)

    threads: list[threading.Thread] = []
    ours = [(workers[0], shares[0])]
    for pair in zip(workers[1:], shares[1:], strict=True):
        thread = threading.Thread(target=work, args=pair, name="logagent-removal", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the thread limit; nobody may leave here before those that were started have ended
            ours.append(pair)
        else:
            threads.append(thread)
    for worker, share in ours:
        work(worker, share)
    for thread in threads:
        thread.join()
    if failures:
        # A failure says more than a worker that was asked to stop.
        raise next((f for f in failures if not isinstance(f, RemovalStopped)), failures[0])
    return directories


def gives_back(dir_fd: int, *, held: bool = False, truncates_held: bool = False) -> Space:
    """What is freed at once when everything in the open directory, and the directory itself, is removed, counted as
    `remove.Removed` counts it. Where nothing in it frees anything, its own blocks are not counted either: for those
    alone nothing is removed.

    A file with another hard link frees nothing. `held`: a serving broker has its files open; then only the `.log` files
    that are truncated before they are unlinked (`truncates_held`) free their bytes now, the rest when it closes them.
    Raises OSError as the disk does.

    Blocks that are shared with another file (`cp --reflink` on xfs and btrfs, snapshots of btrfs) count although they
    stay: only the extents of each file tell, one call per file and more for each that is fragmented. `remove.Removed`
    counts the same, so only `statvfs` afterwards shows it.
    """
    own = os.fstat(dir_fd)
    total, device = Space(0, 1), own.st_dev
    for name in os.listdir(dir_fd):
        try:
            status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(status.st_mode):
            total += nested_usage(dir_fd, name, device).alone
        elif status.st_nlink == 1 and (not held or (truncates_held and name.endswith(".log"))):
            total += Space(status.st_blocks * 512, 0 if held else 1)
    return total + Space(own.st_blocks * 512, 0) if total.bytes else total
