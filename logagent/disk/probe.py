"""Does a log dir still work? A file without a name is written, made durable and read back, within a time limit.

A listing proves little: a dead ext4 still lists from the cache. `O_TMPFILE` creates a file that never has a name, so
nothing is left behind, not even by a kill, and no broker ever sees it. It is 4 KiB, and is not written if no block is
free. If the file system does not support it (NFS, some FUSE file systems), if we may not write, or if it is full or
read-only, the probe only reads, and its result says so.

Every log dir is probed by a separate thread: a thread stuck in a call to a hung disk cannot be ended, so it is left
behind and nobody waits for it. Until it returns, no second one is started for that log dir.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial

from logagent.base.errors import UnreadableError
from logagent.base.files import safe_open as limits
from logagent.base.files.safe_open import opened_directory, opened_regular
from logagent.base.records import Identity
from logagent.disk.bounded_calls import Task
from logagent.disk.health import REMOVE_OPEN, SYNC_FOLDER, TRIAL_PREFIX, ProbeOutcome, ProbeResult
from logagent.disk.log_dir import OFFLINE_ERRNOS, OPEN_DIRECTORY, OpenLogDir
from logagent.kafka.files.properties import META_PROPERTIES, read_meta_file
from logagent.kafka.identity import MetaRead
from logagent.kafka.processes.lock import LockState, query_lock

PROBE_BYTES = 4096
# What the kernel returns if a file system has no O_TMPFILE: newer kernels the first, older ones one of the others.
_NO_TMPFILE = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM})
# The log dir itself cannot be opened; see the table in `logagent.disk.log_dir`.
_NOT_OURS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP}) | _NOT_ALLOWED
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
# Entries read if the probe can only read.
_READ_ENTRIES = 16


def probe(log_dir: OpenLogDir, timeout: float) -> ProbeResult:
    """Probe one log dir, waiting at most `timeout` seconds. Raises nothing; the caller marks it offline."""
    return Prober().probe_all([log_dir], timeout)[log_dir.path]


@dataclass(frozen=True, slots=True)
class Visit:
    """A probe of a path: the directory it leads to is opened only for the probe.

    identity, real: which directory it is, and its path without symlinks. meta, lock: what it contains; None if the disk
    did not answer. All are None for a log dir that hangs or cannot be opened.
    """

    result: ProbeResult
    identity: Identity | None = None
    real: str | None = None
    meta: MetaRead | None = None
    lock: LockState | None = None


class Prober:
    """Probes log dirs in parallel, and remembers which of them still hang. Use it from one thread."""

    def __init__(self) -> None:
        self._hanging: dict[str, Task[Visit]] = {}

    def probe_all(self, log_dirs: Iterable[OpenLogDir], timeout: float) -> Mapping[str, ProbeResult]:
        """The results by path, after at most `timeout` seconds, however many log dirs hang."""
        visits = self._all({log_dir.path: partial(_probe_of, log_dir) for log_dir in log_dirs}, timeout)
        return {path: visit.result for path, visit in visits.items()}

    def visit_all(self, paths: Iterable[str], timeout: float) -> Mapping[str, Visit]:
        """The same for directories that the probes open and close themselves: we keep none busy between two rounds, and
        one that is missing now may exist the next time."""
        return self._all({path: partial(_visit_of, path) for path in paths}, timeout)

    def _all(self, wanted: Mapping[str, Callable[[], Callable[[], Visit]]], timeout: float) -> dict[str, Visit]:
        deadline = time.monotonic() + timeout
        visits: dict[str, Visit] = {}
        tasks: dict[str, Task[Visit] | None] = {}
        for path, make in wanted.items():
            try:
                tasks[path] = self._start(path, make)
            except RuntimeError as e:
                # The thread limit: our own shortage, which says nothing about the disk.
                visits[path] = Visit(_result(path, time.monotonic(), _failure(OSError(errno.EAGAIN, str(e)))))
        for path, task in tasks.items():
            if task is None:
                hung = ProbeResult(path, ProbeOutcome.HUNG, 0.0, "an earlier probe of it is still hanging")
                visits[path] = Visit(hung)
            elif task.join(max(0.0, deadline - time.monotonic())):
                visits[path] = task.outcome()
            else:
                self._hanging[path] = task
                reason = f"it did not answer within {timeout:g} s"
                visits[path] = Visit(ProbeResult(path, ProbeOutcome.HUNG, timeout * 1000, reason))
        return visits

    def _start(self, path: str, make: Callable[[], Callable[[], Visit]]) -> Task[Visit] | None:
        earlier = self._hanging.get(path)
        if earlier is not None:
            if not earlier.done.is_set():
                return None
            del self._hanging[path]
        task = Task(f"probe {path}", make())
        task.start()
        return task


def _visit_of(path: str) -> Callable[[], Visit]:
    """One visit: opens, reads, probes, closes."""

    def visit() -> Visit:
        started = time.monotonic()
        try:
            fd = os.open(path, OPEN_DIRECTORY)
        except OSError as error:
            seen = _failure(error)
            if error.errno in _NOT_OURS:
                seen = ProbeOutcome.FAILED, f"it cannot be opened ({error.strerror})", False, None, error.errno
            return Visit(_result(path, started, seen))
        try:
            return _visit_open(path, fd, started)
        finally:
            os.close(fd)

    return visit


def _visit_open(path: str, fd: int, started: float) -> Visit:
    try:
        status = os.fstat(fd)
        identity, real = Identity(status.st_dev, status.st_ino), os.readlink(f"/proc/self/fd/{fd}")
        meta, lock = read_meta_file(fd), query_lock(fd)
        seen = _Probe(path, fd, identity).run()
    except OSError as error:
        return Visit(_result(path, started, _failure(error)))
    return Visit(_result(path, started, seen), identity, real, meta, lock)


def _probe_of(log_dir: OpenLogDir) -> Callable[[], Visit]:
    """One probe. It has its own descriptor: while it hangs, the log dir may be closed and its descriptor number
    reused."""
    path, identity, fd = log_dir.path, log_dir.identity, os.dup(log_dir.fd)

    def run() -> Visit:
        started = time.monotonic()
        try:
            seen = _Probe(path, fd, identity).run()
        except OSError as error:
            seen = _failure(error)
        finally:
            os.close(fd)
        return Visit(_result(path, started, seen), identity)

    return run


class _Probe:
    """The probe itself, through an open descriptor of the directory `identity`."""

    def __init__(self, path: str, fd: int, identity: Identity) -> None:
        self._path = path
        self._fd = fd
        self._identity = identity

    def run(self) -> _Seen:
        try:
            status = os.stat(self._path)
        except OSError as error:
            return ProbeOutcome.FAILED, f"its path cannot be followed ({error.strerror})", False, None, error.errno
        if Identity(status.st_dev, status.st_ino) != self._identity:
            reason = "its path now leads to another directory (was it unmounted, or mounted over?)"
            return ProbeOutcome.FAILED, reason, False, None, None
        room = os.fstatvfs(self._fd)
        if room.f_flag & os.ST_RDONLY:
            return self._read(ProbeOutcome.READ_ONLY, "its file system is mounted read-only")
        if room.f_blocks and room.f_bavail == 0:
            return self._read(ProbeOutcome.FULL, "its file system has no free block")
        if room.f_files and room.f_favail == 0:
            return self._read(ProbeOutcome.FULL, "its file system has no free inode")
        return self._write()

    def _write(self) -> _Seen:
        try:
            _write_and_read_back(self._fd)
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno in _NO_ROOM:
                return self._read(ProbeOutcome.FULL, f"cannot write to it ({reason})")
            if error.errno == errno.EROFS:
                return self._read(ProbeOutcome.READ_ONLY, f"cannot write to it ({reason})")
            if error.errno in _NO_TMPFILE:
                return self._read(limited="its file system has no O_TMPFILE, so nothing is written to it")
            if error.errno in _NOT_ALLOWED:
                return self._read(limited=f"user {os.geteuid()} may not write to it, so it was only read")
            raise
        return ProbeOutcome.GOOD, None, True, None, None

    def _read(
        self, outcome: ProbeOutcome = ProbeOutcome.GOOD, reason: str | None = None, limited: str | None = None
    ) -> _Seen:
        """What reading alone can check: the first entries, and `meta.properties` from the disk, not from the cache."""
        # Opened again: a duplicate would share its position with a concurrent listing of the log dir.
        with opened_directory(".", dir_fd=self._fd) as directory:
            try:
                with os.scandir(directory) as entries:
                    for _, entry in zip(range(_READ_ENTRIES), entries, strict=False):
                        entry.stat(follow_symlinks=False)
                # From the disk, not the cache. Only whether it can be read counts here; `read_meta_file` reads its
                # content.
                with (
                    suppress(FileNotFoundError, UnreadableError),  # `check` and the guards judge its content
                    opened_regular(META_PROPERTIES, limits.META_PROPERTIES, dir_fd=directory) as fd,
                ):
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.read(fd, PROBE_BYTES)
            except OSError as error:
                if error.errno not in _NOT_ALLOWED:
                    raise
        return outcome, reason, False, limited or reason, None


_Seen = tuple[ProbeOutcome, str | None, bool, str | None, int | None]


def _result(path: str, started: float, seen: _Seen) -> ProbeResult:
    outcome, reason, wrote, limited, number = seen
    return ProbeResult(path, outcome, (time.monotonic() - started) * 1000, reason, wrote, limited, number)


def _failure(error: OSError) -> _Seen:
    reason = error.strerror or str(error)
    if error.errno in OFFLINE_ERRNOS or error.errno == errno.ENOENT:
        return ProbeOutcome.FAILED, f"the probe failed ({reason})", False, None, error.errno
    # EMFILE, ENOMEM and the like are our own shortage and say nothing about the disk.
    return ProbeOutcome.GOOD, None, False, f"it could not be probed ({reason})", error.errno


def _write_and_read_back(dir_fd: int) -> None:
    """Raises `OSError`; EIO also if the bytes read back differ from those written."""
    written = os.urandom(PROBE_BYTES)
    flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC | os.O_EXCL
    fd = os.open(".", flags, 0o600, dir_fd=dir_fd)
    try:
        done = os.pwrite(fd, written, 0)
        if done != PROBE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if os.pread(fd, PROBE_BYTES, 0) != written:
            raise OSError(errno.EIO, "the bytes read differ from those written")
    finally:
        os.close(fd)


def broken_steps(dir_fd: int) -> dict[str, str] | None:
    """What a broker does at its start, at each roll and at each deletion, and the file system of this log dir cannot:
    by step, the error. None where no file can be made there, or it is full. Raises OSError if the disk fails.

    It is tried with one regular file, which no broker looks at whatever it is called, and which is removed at the end.
    """
    name = TRIAL_PREFIX + os.urandom(8).hex()
    renamed = f"{name}.deleted"
    try:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _NOT_ALLOWED | _NO_ROOM | {errno.EROFS}:
            return None
        raise
    cannot = {}
    with ExitStack() as stack:
        for each in (renamed, name):
            stack.callback(_gone, each, dir_fd)
        stack.callback(os.close, fd)

        def map_it() -> None:
            # Whoever writes into a hole by the mapping, and there is no room for it, is killed (SIGBUS).
            os.pwrite(fd, bytes(PROBE_BYTES), 0)
            mapped = stack.enter_context(mmap.mmap(fd, PROBE_BYTES))
            mapped[0] = 1
            mapped.flush()

        def rename() -> None:
            os.rename(name, renamed, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
            os.pwrite(fd, b"written after the rename", 0)

        def sync() -> None:
            with opened_directory(".", dir_fd=dir_fd) as directory:
                os.fsync(directory)

        def remove() -> None:
            os.unlink(renamed if "rename a file that is open" not in cannot else name, dir_fd=dir_fd)
            with opened_directory(".", dir_fd=dir_fd) as directory, os.scandir(directory) as entries:
                inode = os.fstat(fd).st_ino
                if any(entry.name.startswith(".nfs") and entry.inode() == inode for entry in entries):
                    raise OSError(errno.EBUSY, "it stays as .nfs… until it is closed")

        for what, step in (
            ("lock a file", partial(fcntl.lockf, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)),
            ("map a file into memory", map_it),
            ("rename a file that is open", rename),
            (SYNC_FOLDER, sync),
            (REMOVE_OPEN, remove),
        ):
            try:
                step()
            except OSError as error:
                if error.errno in _NO_ROOM:
                    return None
                if error.errno in OFFLINE_ERRNOS - {errno.ENODEV}:  # that is how a file system says that it maps none
                    raise
                cannot[what] = error.strerror or str(error)
    return cannot


def _gone(name: str, dir_fd: int) -> None:
    # What cannot be removed is a finding: `leftover-temp-file`.
    with suppress(OSError):
        os.unlink(name, dir_fd=dir_fd)
