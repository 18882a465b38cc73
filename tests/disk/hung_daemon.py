"""Lets a log dir's file system hang, wholly, right before one call of the daemon: are the others served meanwhile?

`python -m tests.disk.hung_daemon` does it for every call site of a daemon that scans and removes; a test for some.
A call site is a function of `os` (or `open`) on a path in the log dir, and the two innermost lines of ours that led
there. The file system is one in user space whose server is stopped: from then on every call to it hangs in the kernel,
in whatever thread.
"""

from __future__ import annotations

import argparse
import builtins
import fcntl
import functools
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tests.disk.daemons import HANGS, DaemonProcess
from tests.disk.failing import HangingFs, hanging_fs
from tests.disk.sessions import write_topic_elsewhere
from tests.host_files import DIRECTORY_IDS, bulk_partition, format_log_dir
from tests.waiting import PATIENCE_SECONDS, pause, wait_until

CALLS = (
    "stat", "lstat", "open", "listdir", "scandir", "readlink", "rename", "unlink", "rmdir", "mkdir", "fstat", "fsync",
    "fstatvfs", "statvfs", "access", "close", "read", "write", "pread", "pwrite", "fchmod", "chmod", "ftruncate",
    "fdatasync",
)  # fmt: skip
# Cases side by side: they wait most of the time.
WORKERS = 6
# What the healthy log dir may wait on a machine with so many of them.
MOST_SECONDS = 60.0
SETTINGS = {**HANGS, "CLEANUP__SIGHTINGS": "1", "CLEANUP__MIN_AGE": "0s"}
_MARKED = "orders-0." + "a" * 32 + "-delete"
_STRAY = "other-0." + "b" * 32 + "-stray"
_OURS = f"{os.sep}logagent{os.sep}"


# In the daemon's process


class Trap:
    """Counts the daemon's calls on files in `watched`, and stops the process `server` before the first one at `site`.

    Every site is written to `seen`, once.
    """

    def __init__(self, watched: str, seen: str, server: int, site: str) -> None:
        self._watched = watched
        self._seen = os.open(seen, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._known: set[str] = set()
        self._server = server
        self._site = site
        self._readlink, self._write = os.readlink, os.write

    def set(self) -> None:
        for name in CALLS:
            setattr(os, name, self._watching(name, getattr(os, name)))
        builtins.open = self._watching("open", builtins.open)
        for name in ("flock", "lockf", "fcntl"):
            setattr(fcntl, name, self._watching(name, getattr(fcntl, name)))

    def _watching(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def watched(*arguments: Any, **named: Any) -> Any:
            if any(self._is_below(a, named.get("dir_fd")) for a in arguments[:1]):
                self._note(name)
            return call(*arguments, **named)

        return watched

    def _is_below(self, what: object, dir_fd: int | None) -> bool:
        try:
            if isinstance(what, int):
                path = self._readlink(f"/proc/self/fd/{what}")
            else:
                path = os.fsdecode(what)  # type: ignore[arg-type]
                if not path.startswith("/") and dir_fd is not None:
                    path = self._readlink(f"/proc/self/fd/{dir_fd}")
        except (OSError, TypeError):
            return False
        return f"{path}/".startswith(f"{self._watched}/")

    def _note(self, name: str) -> None:
        site = f"{name} {' '.join(_lines_of_ours())}"
        if site in self._known:
            return
        self._known.add(site)
        self._write(self._seen, f"{site}\n".encode())
        if site == self._site:
            os.kill(self._server, signal.SIGSTOP)
            # Our signal is on its way; the next request may still be served.
            pause(0.02, "the request that follows comes after it")


def _lines_of_ours() -> list[str]:
    """The two innermost frames of the product, as FILE:LINE."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and len(found) < 2:
        _, ours, name = frame.f_code.co_filename.rpartition(_OURS)
        if ours:
            found.append(f"{name}:{frame.f_lineno}")
        frame = frame.f_back
    return found


def in_the_daemon(watched: str, seen: str, server: int, site: str) -> None:
    Trap(watched, seen, server, site).set()
    from logagent.cli import main

    main()


# Outside


def prepare(log_dir: Path, directory_id: str) -> None:
    """Something for every kind of work."""
    format_log_dir(log_dir, directory_id)
    for name in (_MARKED, _STRAY, "gone-0", "kept-0"):
        bulk_partition(log_dir, name)
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (log_dir / name).write_text("0\n3\ngone 0 5\nkept 0 5\norders 0 5\n")


def sites(folder: Path) -> list[str]:
    """All call sites of an undisturbed daemon."""
    with _host(folder) as (hanging, good, trap, settings):
        trap["site"] = ""
        with DaemonProcess.of(folder, hanging.point, good, settings=settings, program=_program(trap)) as daemon:
            _wait_served(good)
            _wait_served(hanging.source)
            _wait_served(hanging.source)  # Some calls come with the second cycle only.
            daemon.end()
        return Path(str(trap["seen"])).read_text().splitlines()


def problem_of(folder: Path, site: str) -> str | None:
    """What is not as it should be with a daemon whose log dir hangs before `site`; "" if it did not come there."""
    with _host(folder) as (hanging, good, trap, settings):
        trap["site"] = site
        seen = Path(str(trap["seen"]))
        with DaemonProcess.of(folder, hanging.point, good, settings=settings, program=_program(trap)) as daemon:
            try:
                wait_until(lambda: site in seen.read_text().splitlines(), "it comes to the site", MOST_SECONDS)
                daemon.wait_health((hanging.point, "offline"), (good, "online"))
                _wait_served(good)
                daemon.end_while_a_disk_hangs()
                hanging.wake()
                status = daemon.process.wait(PATIENCE_SECONDS)
            except AssertionError as error:
                daemon.process.send_signal(signal.SIGABRT)
                hanging.wake()
                daemon.process.wait(PATIENCE_SECONDS)
                return "" if site not in seen.read_text().splitlines() else f"{error}\n{daemon.log_text()}"
        said = [line for line in daemon.lines() if line["event"] in ("internal-error", "loop-stalled")]
        if status or said:
            return f"status {status}: {said}"
        return None


def problems_of(folder: Path, wanted: Sequence[str]) -> dict[str, str]:
    with ThreadPoolExecutor(WORKERS) as pool:
        found = list(pool.map(lambda n: problem_of(folder / f"case-{n}", wanted[n]), range(len(wanted))))
    return {site: problem for site, problem in zip(wanted, found, strict=True) if problem is not None}


@contextmanager
def _host(root: Path) -> Iterator[tuple[HangingFs, Path, dict[str, str | int], dict[str, str]]]:
    root.mkdir()
    good, told = root / "good", root / "assignments.json"
    with hanging_fs(root / "fuse") as hanging, _told(told):
        prepare(hanging.source, DIRECTORY_IDS[0])
        prepare(good, DIRECTORY_IDS[1])
        trap: dict[str, str | int] = {"watched": str(hanging.point), "server": hanging.server_pid}
        trap["seen"] = str(root / "sites")
        (root / "sites").touch()
        settings = {**SETTINGS, "ASSIGNMENTS__SOURCES": "file", "ASSIGNMENTS__FILE": str(told)}
        yield hanging, good, trap, settings


@contextmanager
def _told(file: Path) -> Iterator[None]:
    """What the cluster has, written anew every second."""
    ending = threading.Event()

    def tell() -> None:
        while True:
            write_topic_elsewhere(file, time.time_ns() // 1_000_000)
            if ending.wait(1.0):
                return

    thread = threading.Thread(target=tell)
    thread.start()
    try:
        wait_until(file.exists, "the assignments are there")
        yield
    finally:
        ending.set()
        thread.join(PATIENCE_SECONDS)


def _wait_served(log_dir: Path) -> None:
    """A new stray is removed soon."""
    made = bulk_partition(log_dir, f"new-0.{'c' * 32}-stray")
    wait_until(lambda: not made.exists(), f"{log_dir} is served")


def _program(trap: Mapping[str, str | int]) -> tuple[str, ...]:
    return (sys.executable, "-c", f"from tests.disk.hung_daemon import in_the_daemon; in_the_daemon(**{trap!r})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sites", nargs="*", help="only these")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        there = sites(Path(folder) / "undisturbed")
        struck = options.sites or there
        found = problems_of(Path(folder), struck)
    missed = [site for site, problem in found.items() if not problem]
    wrong = {site: problem for site, problem in found.items() if problem}
    for site, problem in wrong.items():
        print(f"PROBLEM before {site}:\n  {problem}")
    for site in missed:
        print(f"not reached: {site}")
    print(f"{len(there)} call sites, {len(struck)} tried, {len(missed)} not reached, {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
