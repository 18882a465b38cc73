"""Disks that fail in ways of their own: shut down, frozen, hung in user space, gone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.disk.conftest import run, unmount
from tests.needs import need_command, need_root
from tests.waiting import PATIENCE_SECONDS, wait_until


def shut_down(point: Path) -> None:
    """The disk under the file system is gone: every access to it is EIO from now on."""
    need_command("xfs_io")
    run("xfs_io", "-x", "-c", "shutdown", point)


def pulled_out(point: Path, *, lazy: bool = False) -> None:
    """Unmount a file system of ours (a cycle or a probe may be there for a moment) and wait until its device is free:
    as long as anybody holds it, what is mounted next is still the old one."""
    command = ["umount", *(["--lazy"] if lazy else []), str(point)]
    wait_until(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, "it is unmounted")
    wait_until(lambda: not loop_devices(point), f"the device of {point} is free")


def loop_devices(point: Path) -> str:
    """The loop device of a file system that `loop_fs` made; empty when it is free."""
    command = ["losetup", "-j", str(point.with_suffix(".img"))]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def put_back(point: Path) -> None:
    run("mount", "-o", "loop", point.with_suffix(".img"), point)


@contextmanager
def frozen(point: Path) -> Iterator[Callable[[], None]]:
    """Writes hang, reads do not. Gives the call that thaws it; at the end it is thawed in any case."""
    need_command("fsfreeze")
    run("fsfreeze", "-f", point)
    with ExitStack() as stack:
        stack.callback(run, "fsfreeze", "-u", point)
        yield stack.close


class HangingFs:
    """A file system in user space (`point` shows `source`); while its server is stopped every call to it hangs."""

    def __init__(self, where: Path) -> None:
        need_root()
        need_command("bindfs")
        self.source, self.point = where / "source", where / "point"
        self.source.mkdir(parents=True)
        self.point.mkdir()
        # Nothing is answered from a cache of the kernel: a hang hangs everything.
        options = "attr_timeout=0,entry_timeout=0,negative_timeout=0"
        self._server = subprocess.Popen(["bindfs", "-f", "-o", options, self.source, self.point])
        wait_until(lambda: str(self.point) in Path("/proc/self/mountinfo").read_text(), "the file system is mounted")

    @property
    def server_pid(self) -> int:
        return self._server.pid

    def hang(self) -> None:
        self._server.send_signal(signal.SIGSTOP)
        # Stopped when it says so, not when the signal was sent.
        stat = Path(f"/proc/{self._server.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "its server is stopped")

    def wake(self) -> None:
        self._server.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.wake()
        unmount(self.point)
        # Where it was unmounted lazily it does not always end by itself.
        self._server.terminate()
        self._server.wait(PATIENCE_SECONDS)


@contextmanager
def hanging_fs(where: Path) -> Iterator[HangingFs]:
    made = HangingFs(where)
    try:
        yield made
    finally:
        made.close()


def open_below(path: Path) -> list[str]:
    """What this process has open at or below `path`."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue
        if link == str(path) or link.startswith(f"{path}/"):
            found.append(link)
    return found
