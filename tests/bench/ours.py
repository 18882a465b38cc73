"""Our side of each comparison, in a process of its own: prints the CPU and wall seconds of the work itself.

The interpreter's start and the imports are left out, as the JVM's are: the
daemon has paid for them long before.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable

from logagent.base.dir_names import classify, delete_name
from logagent.base.records import Identity
from logagent.disk.holders import scan_open_files
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.remove import remove_dir
from logagent.disk.scan import scan_log_dir
from logagent.disk.unlink import ByteBudget, WorkControl
from logagent.kafka.processes.lock import Interlock


def measured(work: Callable[[], object]) -> None:
    # A second process would get this for free; ctypes is imported by the first rename or removal.
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    print(time.process_time() - cpu, time.perf_counter() - wall, flush=True)


def children(log_dir: OpenLogDir) -> list[tuple[str, Identity]]:
    found = []
    for name in os.listdir(log_dir.fd):
        status = os.stat(name, dir_fd=log_dir.fd, follow_symlinks=False)
        found.append((name, Identity(status.st_dev, status.st_ino)))
    return found


def remove(path: str) -> None:
    with OpenLogDir(path, LogDirFailures()) as log_dir:

        def work() -> None:
            interlock = Interlock(log_dir.fd, path)
            for name, identity in children(log_dir):
                remove_dir(log_dir, name, identity, interlock)

        measured(work)


def mark(path: str) -> None:
    with OpenLogDir(path, LogDirFailures()) as log_dir:

        def work() -> None:
            interlock = Interlock(log_dir.fd, path)
            for name, identity in children(log_dir):
                parsed = classify(name)
                assert parsed.topic is not None
                assert parsed.partition is not None
                marked = delete_name(parsed.topic, parsed.partition, uuid.uuid4().hex)
                log_dir.rename(name, marked, identity, interlock)
                interlock.after_rename()
            log_dir.fsync()

        measured(work)


def scan(path: str) -> None:
    """One line for a full inventory, one for the next."""
    with OpenLogDir(path, LogDirFailures()) as log_dir:
        measured(lambda: scan_log_dir(log_dir))
        # One that has settled, as it is between the scans of a daemon.
        inventory = scan_log_dir(log_dir)
        measured(lambda: scan_log_dir(log_dir, inventory))


def open_files(argument: str) -> None:
    path, pid = argument.rsplit(":", 1)

    def work() -> None:
        seen = scan_open_files([path], pids=[int(pid)])
        assert seen.occupants(path) == {int(pid)}

    measured(work)


def psutil_open_files(argument: str) -> None:
    import psutil

    process = psutil.Process(int(argument.rsplit(":", 1)[1]))
    measured(process.open_files)


def remove_slowly(argument: str) -> None:
    """`PATH:BYTES_PER_SECOND`"""
    path, rate = argument.rsplit(":", 1)
    with OpenLogDir(path, LogDirFailures()) as log_dir:

        def work() -> None:
            budget = ByteBudget(int(rate))
            for name, identity in children(log_dir):
                remove_dir(log_dir, name, identity, Interlock(log_dir.fd, path), control=WorkControl(budget=budget))

        measured(work)


JOBS = {
    "remove-slowly": remove_slowly,
    "remove": remove,
    "mark": mark,
    "scan": scan,
    "open-files": open_files,
    "psutil": psutil_open_files,
}
