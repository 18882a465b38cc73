"""What psutil is good at: the broker's process as an operator would describe it, for `status` and the metrics.

Nothing is decided on these figures. Who holds a log dir and what is open in it is read elsewhere, by faster ways
(`processes.py`, `open_files.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from logagent.model.secrets import without_secrets

_T = TypeVar("_T")

_START_TOLERANCE_MS = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProcess:
    """One look at a process. None stands for what this user may not read, such as the I/O counters of another user's.

    start_time_ms: milliseconds since the epoch. command: its command line, values of secrets left out. read_bytes,
    write_bytes: what it caused to be read from and written to disks since it started. open_files: descriptors in use
    (sockets too, as the limit counts them). open_files_limit: the soft limit, which is the one that hurts; None is also
    said for "unlimited".
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
        """Program, main class and arguments, without the options between (a broker's class path alone is 10 KB)."""
        program, rest = os.path.basename(self.command[0]) if self.command else "?", self.command[1:]
        start = next((n for n, word in enumerate(rest) if word.startswith(("kafka.", "org.apache.kafka"))), None)
        return " ".join((program, *rest)) if start is None else " ".join((program, "...", *rest[start:]))


def look_at_process(pid: int, start_time_ms: int | None = None) -> BrokerProcess | None:
    """The process `pid`; None if there is none, or (with `start_time_ms`) if it is not the one that was meant.

    A process is its PID and its start time: PIDs come again. Start times may differ by a second, because the boot time
    that they are counted from is rounded.
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
        return None  # it ended meanwhile, or not even its name may be read


def _allowed(read: Callable[[], _T]) -> _T | None:
    """What `read` gives, None where this user may not know."""
    import psutil

    try:
        return read()
    except (psutil.AccessDenied, PermissionError):
        return None


def _descriptors(pid: int) -> int | None:
    """How many descriptors it has. Linux 6.2 and later tell it as the size of the directory, to everybody and without a
    listing."""
    path = f"/proc/{pid}/fd"
    try:
        return os.stat(path).st_size or len(os.listdir(path))
    except OSError:
        return None
