"""Who holds a log dir: the lock and the open files of all processes, taken together.

A broker keeps the `.log` descriptors and the index maps of everything it loaded, and may keep them after it gave up a
log dir, so a free lock does not mean that no process uses the log dir. This module only reports what it saw and what it
could not see.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from logagent.base.linux.proc import mount_namespace, process_start_ticks, process_start_time_ms
from logagent.base.records import Holder, HolderState, RemovedFile
from logagent.disk.log_dir import OpenLogDir
from logagent.disk.proc_scan import ProcScan, Watched
from logagent.kafka.processes.lock import LOCK_FILE, process_named, query_lock

__all__ = [
    "OpenFiles",
    "holder_of",
    "process_start_ticks",
    "process_start_time_ms",
    "scan_open_files",
]


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """What the processes of this host have open or mapped below the log dirs (keys: their configured paths).

    lock_pids: PIDs that have `.lock` open, even an unlinked one. dir_pids: per direct child directory, PIDs that
    have a file below it open or mapped. read: PIDs whose descriptors and maps were both read. unreadable: PIDs that
    we may not read (not the kernel's threads, which have no files). doubtful: per log dir, PIDs that may have
    something open in it that we cannot see. These are unreadable processes that may be its broker (a JVM of its
    owner, or one of root with a broker's main class; nothing else on a command line counts, because every host has
    processes that its agent cannot read, such as systemd's `(sd-pam)` or ssh-agent, and refusing for each of them
    would mean refusing always), and readable ones with a removed file on its device that may have been in it.
    removed_bytes: per log dir, the allocated bytes of files that were removed while a process had them open; the
    space is freed when they are closed. (Files that are only mapped cannot be measured and are missing.)
    removed_files: these files, one for each process that has it open.
    """

    lock_pids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    dir_pids: Mapping[str, Mapping[str, frozenset[int]]] = field(default_factory=dict)
    read: frozenset[int] = frozenset()
    unreadable: frozenset[int] = frozenset()
    doubtful: Mapping[str, Mapping[int, str | None]] = field(default_factory=dict)
    removed_bytes: Mapping[str, int] = field(default_factory=dict)
    removed_files: Mapping[str, tuple[RemovedFile, ...]] = field(default_factory=dict)

    def users(self, log_dir: str, name: str) -> frozenset[int]:
        """PIDs that have a file below the directory `name` of `log_dir` open or mapped."""
        return self.dir_pids.get(log_dir, {}).get(name, frozenset())

    def occupants(self, log_dir: str) -> frozenset[int]:
        """PIDs that have `.lock` of `log_dir`, or anything in one of its directories, open or mapped."""
        return self.lock_pids.get(log_dir, frozenset()).union(*self.dir_pids.get(log_dir, {}).values())

    def doubt(self, log_dir: str) -> tuple[int, str] | None:
        """A process of which it is not known whether it uses the log dir, and why, in words."""
        doubtful = self.doubtful.get(log_dir, {})
        if not doubtful:
            return None
        pid = min(doubtful)
        if (path := doubtful[pid]) is None:
            return pid, f"the open files of process {pid}, which may be a broker, cannot be read"
        return pid, f"process {pid} has {path} open, and nobody can tell whether it was in this log dir"

    def could_read(self, pid: int | None) -> bool:
        """Whether everything that `pid` has open was seen. False if the process was not found."""
        return pid in self.read


def scan_open_files(
    log_dirs: Iterable[str | OpenLogDir | Watched],
    pids: Iterable[int] | None = None,
    *,
    avoid: Iterable[str] = (),
) -> OpenFiles:
    """Look for files below the log dirs in every process (or only in `pids`; never in ourselves).

    Descriptors and memory maps both count, deleted files included; paths in containers and bind mounts are resolved by
    device and inode. `avoid`: paths of disks that may hang; nothing below them is touched. Raises `OSError` only if
    `/proc` or a log dir itself cannot be read.
    """
    scan = ProcScan(log_dirs, avoid)
    if pids is None:
        pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    for pid in pids:
        if pid != os.getpid():
            scan.process(pid)
    return OpenFiles(
        lock_pids={w.path: frozenset(w.lock_pids) for w in scan.watched},
        dir_pids={w.path: {name: frozenset(pids) for name, pids in w.dir_pids.items()} for w in scan.watched},
        read=frozenset(scan.read),
        unreadable=frozenset(scan.unreadable),
        doubtful={w.path: dict(w.doubtful) for w in scan.watched},
        removed_bytes={w.path: w.removed_bytes for w in scan.watched},
        removed_files={w.path: tuple(w.removed.values()) for w in scan.watched},
    )


def holder_of(dir_fd: int, log_dir: str, open_files: OpenFiles) -> Holder:
    """Who holds the log dir: `.lock` is read now, the rest comes from `open_files`.

    A process with the lock is reported as STARTING: whether it serves is found out elsewhere. HIDDEN: no process has
    the lock, but one has `.lock` (perhaps an unlinked one) or files below the log dir open. UNREADABLE: `.lock` cannot
    be read, or the files of a process that may be this log dir's broker cannot.
    """
    seen = query_lock(dir_fd)
    if not seen.readable:
        why = os.strerror(seen.errno) if seen.errno is not None else "it is not a regular file"
        return Holder(HolderState.UNREADABLE, detail=f"{LOCK_FILE} cannot be read: {why}")
    if seen.held:
        pid = seen.pid
        if pid is None:
            # A lock from another PID namespace shows no PID; if only one process has the file open, it is that one.
            candidates = open_files.lock_pids.get(log_dir, frozenset())
            pid = next(iter(candidates)) if len(candidates) == 1 else None
        detail = None if open_files.could_read(pid) else "its open files cannot be read"
        return Holder(HolderState.STARTING, pid, _start_time_or_none(pid), detail)
    shared = process_named(seen.pid) if seen.shared else None
    occupants = open_files.occupants(log_dir)
    if occupants:
        pid = min(occupants)
        what = LOCK_FILE if pid in open_files.lock_pids.get(log_dir, frozenset()) else "files"
        others = f" (and {len(occupants) - 1} more)" if len(occupants) > 1 else ""
        detail = f"process {pid}{others} has {what} open, without the lock"
        lock_open_by = tuple(sorted(open_files.lock_pids.get(log_dir, frozenset())))
        return Holder(HolderState.HIDDEN, pid, _start_time_or_none(pid), detail, lock_open_by, shared)
    doubt = open_files.doubt(log_dir)
    if doubt is not None:
        return Holder(HolderState.UNREADABLE, doubt[0], _start_time_or_none(doubt[0]), doubt[1])
    return Holder(HolderState.FREE, shared_lock=shared)


def open_lock_files(pid: int) -> frozenset[str] | None:
    """The `.lock` files that a process has open, including unlinked ones, by their paths as it sees them; None if it
    cannot be read. Touches no disk."""
    directory = f"/proc/{pid}/fd"
    found: set[str] = set()
    try:
        for number in os.listdir(directory):
            with suppress(FileNotFoundError):
                link = os.readlink(f"{directory}/{number}").removesuffix(" (deleted)")
                if link.endswith(f"/{LOCK_FILE}"):
                    found.add(link)
    except OSError:
        return None
    return frozenset(found)


def shares_our_mounts(pid: int) -> bool:
    """Whether paths mean the same to a process as to us (False if unknown)."""
    try:
        return mount_namespace(pid) == mount_namespace("self")
    except OSError:
        return False


def _start_time_or_none(pid: int | None) -> int | None:
    try:
        return None if pid is None else process_start_time_ms(pid)
    except OSError:
        return None
