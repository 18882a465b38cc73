"""The inventory of a log dir: full the first time, afterwards only what can have changed.

A partition directory whose own mtime did not change has the same files, and of those Kafka changes only the newest
segment's: `.log`, its indexes, its aborted-transaction index. So the next scan stats the directory and that `.log`, and
the indexes only if the `.log` changed, or while a broker may be starting or stopping (it resizes the indexes without
writing a record; a change of the lock's holder shows that). The difference is added to the sums. This is exact after
appends, rolls, retention and truncation. What it cannot see (an in-place change of an older file, a clock that stepped
back) is found because every scan reads a slice of all directories in full. mtimes are as coarse as the kernel's tick,
so a directory that was modified within a second of its last reading is read again.

It reads by descriptor, follows no symlink, crosses no mount point and opens nothing but directories and
`partition.metadata`.

That a removal has started is marked on disk by the set-user-ID bit of the directory itself (`mark_started`). The
journal says so, too, but a journal can be lost, older than the disk, or another state dir's; restoring half a
directory silently loses records. The bit moves with the directory, needs no inode and no block (so it works on a full
disk), is not inherited by new directories, survives `chmod 750`, means nothing to Linux on a directory, and no Kafka
reads it (tried on 2.5.1, 3.5.2, 3.9.1 and 4.3.1).
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from io import StringIO

from logagent.base.dir_names import classify
from logagent.base.errors import KafkaStorageError
from logagent.base.linux.kernel import mounted_children
from logagent.base.records import LIVE_KINDS, Identity, Kind, PartitionDir
from logagent.disk.calls import DiskCalls, Stop, refuse_if
from logagent.disk.log_dir import OFFLINE_ERRNOS, OPEN_CHILD, OpenLogDir
from logagent.disk.partition import TAIL_INDEXES, Known, PartitionReader
from logagent.kafka.image import AssignmentImage
from logagent.kafka.processes.lock import query_lock

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


# Kinds whose bytes count as "other" in the ledger of the log dir, as do plain files and symlinks.
OTHER_KINDS = frozenset({Kind.METADATA, Kind.CACHE, Kind.INVALID})


@dataclass(slots=True)
class LogDirInventory:
    """What one scan of a log dir saw.

    dirs: every directory in it (and every symlink, with the error "symlink", because Kafka follows those), in the order
    of the listing. A directory that could not be read has its `error` set and only what is known about it. `allocated`
    includes the blocks of the directories themselves, as `du` counts; `newest_mtime_ns` is that of the newest segment's
    `.log` (Kafka appends to no other), or the directory's own if it has no segments. other_bytes, other_allocated:
    plain files, symlinks, and the directories of `OTHER_KINDS` (which are in `dirs` too), so used = sum over the other
    kinds + other + unexplained. size, used, free: the file system's, in bytes; `free` is what a user without privileges
    can still write. at_ns: when the scan began. read_in_full: how many directories were read in full (the others only
    as far as they can change). round, holder, holder_since_ns, known: for the next scan.
    """

    path: str
    identity: Identity
    at_ns: int
    dirs: list[PartitionDir] = field(default_factory=list)
    other_bytes: int = 0
    other_allocated: int = 0
    size: int = 0
    used: int = 0
    free: int = 0
    read_in_full: int = 0
    round: int = 0
    holder: tuple[bool, int | None] = (False, None)
    holder_since_ns: int = 0
    known: dict[str, Known] = field(default_factory=dict, repr=False)

    @property
    def errors(self) -> dict[str, str]:
        """The directories that could not be read completely, with the reason."""
        return {entry.name: entry.error for entry in self.dirs if entry.error is not None}


# Each scan reads one of this many slices in full: with a scan every 10 minutes, everything within two days.
SLICES = 256
# Each scan looks at the indexes of one of this many slices, changed or not.
INDEX_SLICES = 16
# How often a scan reports its progress: every few milliseconds if the directories are in the kernel's cache.
PROGRESS_DIRS = 64
# For this long after the lock changed hands a broker may still be loading its logs.
LOADING_NS = 3600 * 1_000_000_000
# Inode numbers of directories come in steps (xfs: 32 or 64); this spreads them, so that slices are of equal size.
_SPREAD = 0x9E3779B1
SYMLINK_ERROR = "symlink"
MOUNT_POINT_ERROR = "mount point"


def scan_log_dir(
    log_dir: OpenLogDir,
    previous: LogDirInventory | None = None,
    *,
    slices: int = SLICES,
    now_ns: Callable[[], int] = time.time_ns,
    on_progress: Callable[[int], None] | None = None,
    only: Callable[[str], bool] | None = None,
) -> LogDirInventory:
    """Take the inventory of `log_dir`, or of the directories whose names `only` accepts (such a result must not be
    passed on as `previous`).

    `previous` makes the scan incremental if it is of the same directory (device and inode). It is **used up**: its
    records are updated in place and handed on, so that 100,000 of them exist only once. `slices=1` reads everything in
    full. `on_progress(count)` is called now and then with the number of directories done.

    Raises `KafkaStorageError` if the log dir fails or is offline, `ItemFailed` if it cannot be listed for a reason of
    our own. An unreadable directory does not fail the scan: it is listed with its error.
    """
    with log_dir.acting("scan"):
        return _Scan(log_dir, previous, slices, now_ns).run(on_progress, only)


class _Scan:
    def __init__(
        self, log_dir: OpenLogDir, previous: LogDirInventory | None, slices: int, now_ns: Callable[[], int]
    ) -> None:
        if previous is not None and previous.identity != log_dir.identity:
            previous = None
        self._log_dir = log_dir
        self._slices = slices
        self._now_ns = now_ns
        self._result = LogDirInventory(log_dir.path, log_dir.identity, now_ns())
        if previous is not None:
            self._result.known = previous.known
        self._result.round = previous.round + 1 if previous is not None else 0
        self._due_slice = self._result.round % slices
        self._due_indexes = self._result.round % INDEX_SLICES
        self._all_indexes = self._note_holder(previous)
        self._reader = PartitionReader(log_dir, now_ns)
        self._mounted = mounted_children(log_dir.fd)

    def run(
        self, on_progress: Callable[[int], None] | None, only: Callable[[str], bool] | None = None
    ) -> LogDirInventory:
        result = self._result
        names = _names(self._log_dir.fd)
        for done, name in enumerate(names if only is None else filter(only, names)):
            known = result.known.get(name)
            if known is not None:
                # Keep the existing string, not a second one for every directory.
                name = known.name
            if known is None or not self._refresh(name, known):
                known = self._read(name)
            if known is not None:
                result.known[name] = known
                result.dirs.append(known)
                if known.kind in OTHER_KINDS:
                    result.other_bytes += known.bytes
                    result.other_allocated += known.allocated
            if on_progress is not None and done % PROGRESS_DIRS == 0:
                on_progress(done)
        if len(result.known) > len(result.dirs):
            for gone in result.known.keys() - {known.name for known in result.dirs}:
                del result.known[gone]
        space = os.fstatvfs(self._log_dir.fd)
        result.size = space.f_blocks * space.f_frsize
        result.used = (space.f_blocks - space.f_bfree) * space.f_frsize
        result.free = space.f_bavail * space.f_frsize
        return result

    def _refresh(self, name: str, known: Known) -> bool:
        """Update `known` without listing the directory; False if it has to be read in full."""
        spread = known.inode * _SPREAD >> 12
        if not known.settled or spread % self._slices == self._due_slice or name in self._mounted:
            return False
        try:
            status = os.lstat(name, dir_fd=self._log_dir.fd)
            if (
                status.st_mtime_ns != known.mtime_ns
                or status.st_ino != known.inode
                or status.st_ctime_ns != known.ctime_ns
                or not stat.S_ISDIR(status.st_mode)
            ):
                return False
            if known.last_segment_offset is not None:
                all_indexes = self._all_indexes or spread % INDEX_SLICES == self._due_indexes
                self._refresh_tail(f"{name}/{known.last_segment_offset:020d}", known, all_indexes)
        except OSError as error:
            if error.errno in OFFLINE_ERRNOS:
                raise
            return False
        return True

    def _note_holder(self, previous: LogDirInventory | None) -> bool:
        """Note the lock's holder; whether all indexes must be looked at because a broker may have started or stopped
        since the last scan."""
        result = self._result
        seen = query_lock(self._log_dir.fd)
        result.holder = (seen.held, seen.pid)
        if previous is None or previous.holder != result.holder:
            result.holder_since_ns = result.at_ns
            return True
        result.holder_since_ns = previous.holder_since_ns
        return seen.held and result.at_ns < result.holder_since_ns + LOADING_NS

    def _refresh_tail(self, base: str, known: Known, all_indexes: bool) -> None:
        """Stat the files of the newest segment that may have changed, and add what they grew (or shrank) by."""
        fd = self._log_dir.fd
        status = os.lstat(base + ".log", dir_fd=fd)
        size, blocks, written = status.st_size, status.st_blocks, status.st_mtime_ns
        if size == known.log_bytes and blocks == known.log_blocks and written == known.newest_mtime_ns:
            if not all_indexes:
                return
        else:
            known.bytes += size - known.log_bytes
            known.allocated += (blocks - known.log_blocks) * 512
            known.log_bytes, known.log_blocks = size, blocks
            known.newest_mtime_ns = written
        size = blocks = 0
        for bit, suffix in TAIL_INDEXES:
            if known.index_files & bit:
                status = os.lstat(base + suffix, dir_fd=fd)
                size += status.st_size
                blocks += status.st_blocks
        known.bytes += size - known.index_bytes
        known.beside_log_bytes += size - known.index_bytes
        known.allocated += (blocks - known.index_blocks) * 512
        known.index_bytes, known.index_blocks = size, blocks

    def _read(self, name: str) -> Known | None:
        """Read the directory `name` in full; None if it is not a directory or no longer exists."""
        log_dir = self._log_dir
        if name in self._mounted:
            return self._unread(name, MOUNT_POINT_ERROR)
        try:
            fd = os.open(name, OPEN_CHILD, dir_fd=log_dir.fd)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            return self._not_a_directory(name)
        except OSError as error:
            if error.errno in OFFLINE_ERRNOS:
                raise
            return self._unread(name, f"it cannot be opened: {error.strerror}")
        try:
            status = os.fstat(fd)
            if status.st_dev != log_dir.identity.device:
                return self._unread(name, MOUNT_POINT_ERROR)
            known = self._entry(name, status)
            self._reader.read(fd, known, status.st_blocks)
        finally:
            os.close(fd)
        self._result.read_in_full += 1
        return known

    def _not_a_directory(self, name: str) -> Known | None:
        try:
            status = os.lstat(name, dir_fd=self._log_dir.fd)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(status.st_mode):
            return self._unread(name, SYMLINK_ERROR)
        if stat.S_ISREG(status.st_mode):
            self._result.other_bytes += status.st_size
        self._result.other_allocated += status.st_blocks * 512
        return None

    def _unread(self, name: str, error: str) -> Known | None:
        """A directory (or symlink) of which only its own inode is known, or not even that."""
        try:
            found = os.lstat(name, dir_fd=self._log_dir.fd)
        except FileNotFoundError:
            return None
        except OSError as unknown:
            if unknown.errno in OFFLINE_ERRNOS:
                raise
            # We may list the log dir but not search it. No file has inode 0, so nothing can be done to this entry.
            found = os.stat_result((0,) * 19)
        known = self._entry(name, found)
        known.error = error
        return known

    def _entry(self, name: str, found: os.stat_result) -> Known:
        parsed = classify(name)
        share = self._reader.share
        modified, changed = found.st_mtime_ns, found.st_ctime_ns
        device = self._log_dir.identity.device
        return Known(
            log_dir=self._log_dir.path,
            name=name,
            kind=parsed.kind,
            topic=share(parsed.topic),
            partition=parsed.partition,
            uuid=parsed.uuid,
            truncated=parsed.truncated,
            # Share one object for equal numbers, or each of 100,000 records would have its own.
            device=device if found.st_dev == device else found.st_dev,
            inode=found.st_ino,
            ctime_ns=modified if changed == modified else changed,
            mtime_ns=modified,
            error=parsed.error if parsed.kind is Kind.INVALID else None,
            removal_started=is_started(found.st_mode),
        )


def _names(dir_fd: int) -> Iterator[str]:
    """The names in a directory. All are read before the first is returned, because an entry renamed during the listing
    would appear twice. They are joined into one string: 100,000 separate strings, only compared with existing ones,
    would take 10 MB."""
    listed = StringIO()
    with os.scandir(dir_fd) as entries:
        for entry in entries:
            listed.write(entry.name + "/")
    return (found[0] for found in re.finditer("[^/]+", listed.getvalue()))


# How long a turn lasts if another scan waits for one.
TURN_SECONDS = 0.02
# A turn that has not ended after this long is stuck in a call to its disk: the next scan no longer waits for it.
STUCK_SECONDS = 0.2
# A scan that computed for less than this share of its turn waits for its disk, and goes on without a turn for so long.
BUSY_SHARE = 0.5
ALONE_SECONDS = 0.5


class ScanTurns:
    """The turns of the scans of one session: while they compute, one at a time; while they wait for their disks, all.
    Thread-safe.

    Two scans whose directories are in the kernel's cache only take Python's lock from each other, at every call:
    together they need two to three times the CPU that they need one after the other.

    monotonic: seconds of a clock that nobody sets. cpu: the seconds for which the calling thread has computed.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self.monotonic = monotonic
        self.cpu = cpu
        self._changed = threading.Condition()
        self._holder: ScanTurn | None = None
        self._since = 0.0
        self._waiting: deque[ScanTurn] = deque()

    def take(self, turn: ScanTurn) -> None:
        """Wait until it is `turn`'s, or until the one that has it seems stuck."""
        with self._changed:
            if self._holder is None:
                self._give(turn)
                return
            self._waiting.append(turn)
            while self._holder is not turn:
                stuck_in = self._since + STUCK_SECONDS - self.monotonic()
                if stuck_in <= 0:
                    self._waiting.remove(turn)
                    self._give(turn)
                else:
                    self._changed.wait(stuck_in)

    def leave(self, turn: ScanTurn) -> None:
        """Hand it to the one that has waited longest. Does nothing if another one has it by now."""
        with self._changed:
            if self._holder is turn:
                self._give(self._waiting.popleft() if self._waiting else None)
                self._changed.notify_all()

    def _give(self, turn: ScanTurn | None) -> None:
        self._holder, self._since = turn, self.monotonic()


class ScanTurn:
    """The turn of one scan; a context manager, entered in the scan's thread. Call `tick` every few milliseconds."""

    def __init__(self, turns: ScanTurns) -> None:
        self._turns = turns
        self._began = self._began_cpu = 0.0
        self._alone_until: float | None = None

    def __enter__(self) -> ScanTurn:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._turns.leave(self)

    def tick(self) -> None:
        """Let another scan go on, if one waits and this one's turn is over."""
        now = self._turns.monotonic()
        if self._alone_until is not None:
            if now >= self._alone_until:
                self._begin()
        elif now - self._began >= TURN_SECONDS:
            computed = self._turns.cpu() - self._began_cpu
            self._turns.leave(self)
            if computed < BUSY_SHARE * (now - self._began):
                self._alone_until = now + ALONE_SECONDS
            else:
                self._begin()

    def _begin(self) -> None:
        self._alone_until = None
        self._turns.take(self)
        self._began, self._began_cpu = self._turns.monotonic(), self._turns.cpu()


@dataclass(frozen=True, slots=True)
class Inventory:
    """All log dirs of one host, from one scan of each. `dirs`: what is in them, and what is ours in quarantine
    directories; `by_log_dir`: of each that could be scanned. `whole`: it covers all names, so that what it does not
    show does not exist. `began_ms`: when it began, after the assignments were read; `image_before`: those."""

    dirs: Sequence[PartitionDir] = ()
    by_log_dir: Mapping[str, LogDirInventory] = field(default_factory=dict)
    whole: bool = False
    began_ms: int | None = None
    image_before: AssignmentImage | None = None

    def of_kind(self, *kinds: Kind) -> list[PartitionDir]:
        return [d for d in self.dirs if d.kind in kinds]


def scan_log_dirs(
    opened: Mapping[str, OpenLogDir],
    known: dict[str, LogDirInventory],
    calls: DiskCalls,
    on_progress: Callable[[int], None] | None,
    only: Callable[[str], bool] | None,
) -> dict[str, LogDirInventory]:
    """The inventories of those that could be scanned, by path.

    known: the last inventories, from which these continue; replaced in place for log dirs that did not fail during the
    scan. A scan uses up the known inventory: if it is given up, none is left.
    """
    done: dict[str, int] = dict.fromkeys(opened, 0)
    turns = ScanTurns()

    def scan(path: str, log_dir: OpenLogDir, previous: LogDirInventory | None, stop: Stop) -> LogDirInventory:
        turn = ScanTurn(turns)

        def tell(count: int) -> None:
            refuse_if(stop, path)
            done[path] = count
            if on_progress is not None:
                on_progress(sum(done.values()))
            turn.tick()

        with turn:
            inventory = scan_log_dir(log_dir, previous, on_progress=tell, only=only)
        done[path] = len(inventory.dirs)
        return inventory

    scanned: dict[str, LogDirInventory] = {}
    jobs = {path: partial(scan, path, log_dir, known.pop(path, None)) for path, log_dir in opened.items()}
    for path, inventory in calls.work(jobs).items():
        if isinstance(inventory, LogDirInventory):
            scanned[path] = inventory
            if opened[path].offline() is None:
                known[path] = inventory
        elif not isinstance(inventory, KafkaStorageError):
            raise inventory
    return scanned


def topics_in(log_dirs: Iterable[str]) -> frozenset[str]:
    """The topics of current and future directories, by their names alone. A log dir that cannot be listed contributes
    none."""
    found: set[str] = set()
    for log_dir in log_dirs:
        with suppress(OSError):
            parsed = map(classify, os.listdir(log_dir))
            found |= {p.topic for p in parsed if p.topic is not None and p.kind in LIVE_KINDS}
    return frozenset(found)
