"""The broker's process as an operator would describe it, read with psutil for `status` and the metrics.

No decision depends on these figures. Who holds a log dir and what is open in it is read elsewhere, in faster ways
(`holders.py`, `open_files.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from logagent.base.config.secrets import without_secrets

_T = TypeVar("_T")

_START_TOLERANCE_MS = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProcess:
    """One look at a process. A field is None if this user may not read it, such as the I/O counters of another user's
    process.

    start_time_ms: milliseconds since the epoch. command: its command line without the values of secrets. read_bytes,
    write_bytes: bytes read from and written to disks on its behalf since it started. open_files: descriptors in use
    (sockets too, because the limit counts them). open_files_limit: the soft limit, which is the one that takes effect;
    None also means "unlimited".
    """

    pid: int
    start_time_ms: int
    user: str
    command: tuple[str, ...]
    cpu_seconds: float | None = None
    resident_bytes: int | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    open_files: int | None = None
    open_files_limit: int | None = None

    @property
    def short_command(self) -> str:
        """Program, main class and arguments, without the options in between (a broker's class path alone is 10 KB)."""
        program, rest = os.path.basename(self.command[0]) if self.command else "?", self.command[1:]
        start = next((n for n, word in enumerate(rest) if word.startswith(("kafka.", "org.apache.kafka"))), None)
        return " ".join((program, *rest)) if start is None else " ".join((program, "...", *rest[start:]))


def inspect_process(pid: int, start_time_ms: int | None = None) -> BrokerProcess | None:
    """The process `pid`; None if it does not exist or (with `start_time_ms`) is a different process with the same PID.

    A process is identified by PID and start time, because PIDs are reused. Start times may differ by a second, because
    they are counted from a rounded boot time.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        started = int(process.create_time() * 1000)
        if start_time_ms is not None and abs(started - start_time_ms) > _START_TOLERANCE_MS:
            return None
        with process.oneshot():
            times, memory = process.cpu_times(), process.memory_info()
            io = _allowed(process.io_counters)
            limit = _allowed(lambda: process.rlimit(psutil.RLIMIT_NOFILE)[0])
            return BrokerProcess(
                pid=pid,
                start_time_ms=started,
                user=process.username(),
                command=tuple(without_secrets(process.cmdline())),
                cpu_seconds=times.user + times.system,
                resident_bytes=memory.rss,
                read_bytes=io.read_bytes if io is not None else None,
                write_bytes=io.write_bytes if io is not None else None,
                open_files=_descriptors(pid),
                open_files_limit=limit if limit is not None and limit >= 0 else None,
            )
    except (psutil.Error, OSError):
        return None  # it has ended, or we may not even read its name


def _allowed(read: Callable[[], _T]) -> _T | None:
    """What `read` returns; None if this user may not read it."""
    import psutil

    try:
        return read()
    except (psutil.AccessDenied, PermissionError):
        return None


def _descriptors(pid: int) -> int | None:
    """How many descriptors it has. Linux 6.2 and later report it as the size of the directory, to every user and
    without a listing."""
    path = f"/proc/{pid}/fd"
    try:
        return os.stat(path).st_size or len(os.listdir(path))
    except OSError:
        return None
