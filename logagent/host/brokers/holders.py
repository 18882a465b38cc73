"""Who holds a log dir: the lock and the open files of all processes, taken together."""

from __future__ import annotations

import os
from contextlib import suppress

from logagent.broker.process.lock import LOCK_FILE, look
from logagent.host.brokers.open_files import OpenFiles, scan_open_files
from logagent.host.linux.proc import mount_namespace, process_start_ticks, process_start_time_ms
from logagent.model.records import Holder, HolderState

__all__ = ["OpenFiles", "holder_of", "process_start_ticks", "process_start_time_ms", "scan_open_files"]


def holder_of(dir_fd: int, log_dir: str, open_files: OpenFiles) -> Holder:
    """Who holds the log dir: `.lock` is read now, the rest comes from `open_files`.

    A process with the lock is reported as STARTING: whether it serves is found out elsewhere. HIDDEN: no process has
    the lock, but one has `.lock` (perhaps an unlinked one) or files below the log dir open. UNREADABLE: `.lock` cannot
    be read, or the files of a process that may be this log dir's broker cannot.
    """
    seen = look(dir_fd)
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
    shared = None
    if seen.shared:
        shared = f"process {seen.pid}" if seen.pid is not None else "a process that cannot be identified from here"
    occupants = open_files.occupants(log_dir)
    if occupants:
        pid = min(occupants)
        what = LOCK_FILE if pid in open_files.lock_pids.get(log_dir, frozenset()) else "files"
        others = f" (and {len(occupants) - 1} more)" if len(occupants) > 1 else ""
        detail = f"process {pid}{others} has {what} open, without the lock"
        lock_open_by = tuple(sorted(open_files.lock_pids.get(log_dir, frozenset())))
        return Holder(HolderState.HIDDEN, pid, _start_time_or_none(pid), detail, lock_open_by, shared)
    doubtful = open_files.doubtful.get(log_dir, frozenset())
    if doubtful:
        pid = min(doubtful)
        return Holder(
            HolderState.UNREADABLE, pid, _start_time_or_none(pid), f"open files of process {pid} cannot be read"
        )
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
