"""A command that hangs on a dead disk holds the executor lock: whoever is refused learns which disk, which process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from logagent.base.errors import Busy
from logagent.cleanup.state.executor_lock import ExecutorLock, waits_for_disk
from tests.disk.conftest import LoopFs
from tests.disk.failing import frozen, hanging_fs
from tests.host import ALL_DUE, NO_LIMITS, Host
from tests.host_files import bulk_partition, format_log_dir
from tests.waiting import wait_until


def test_whoever_is_refused_learns_the_log_dir_and_the_process(tmp_path: Path) -> None:
    host = Host.from_disk(tmp_path)
    host.configure(**NO_LIMITS, **ALL_DUE)
    with hanging_fs(tmp_path / "fuse") as stopped:
        format_log_dir(stopped.point)
        host.set_property(f"log.dirs={host.d1},{stopped.point}")
        host.state.mkdir()
        lock = host.state / "executor.lock"
        # It stops there when its lock says that it has come so far.
        command = [sys.executable, "-c", HANGS, str(stopped.server_pid), *host.arguments("cleanup", "--execute")]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as hung:
            try:
                wait_until(
                    lambda: lock.exists() and str(stopped.point) in lock.read_text(), "it is at the hung log dir"
                )
                refused = _refused(host)
                assert f"(process {hung.pid}, at {stopped.point}" in str(refused)
            finally:
                hung.send_signal(signal.SIGKILL)
                stopped.wake()


def test_a_frozen_disk_is_named_and_not_the_healthy_one_beside_it(tmp_path: Path, loop_fs: LoopFs) -> None:
    """The kernel's state D: it cannot be ended and keeps the lock until the disk answers. Commands and the daemon say
    who it is, where it is, and that the disk is what to repair."""
    host = Host.from_disk(tmp_path / "host")
    point = loop_fs("ext4")
    (point / "meta.properties").write_bytes((host.d2 / "meta.properties").read_bytes())
    bulk_partition(point, f"gone-0.{'ab' * 16}-delete")
    host.set_property(f"log.dirs={point},{host.d1}")
    host.with_assignments(**NO_LIMITS, **ALL_DUE, **{"cleanup.mode": "enforce"})
    host.state.mkdir()
    us = [sys.executable, "-m", "logagent"]
    with (
        ExitStack() as stack,
        frozen(point) as thaw,
        subprocess.Popen([*us, *host.arguments("cleanup", "--execute")], stdout=subprocess.DEVNULL) as hung,
    ):
        try:
            lock = host.state / "executor.lock"
            wait_until(lambda: lock.exists() and str(point) in lock.read_text(), "it is at the frozen log dir")
            where = f"(process {hung.pid}, at {point}, waiting for a disk that does not answer)"
            # A disk that is only slow looks like that for a moment, too.
            wait_until(lambda: where in str(_refused(host)), "it hangs there, and whoever is refused is told")
            refused = _refused(host)
            assert refused is not None and "repair that disk" in str(refused.hint)
            daemon = stack.enter_context(
                subprocess.Popen([*us, *host.arguments("run")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            )
            stack.callback(daemon.terminate)
            assert daemon.stdout is not None
            assert any(where in line.decode() for line in daemon.stdout), "the daemon says it, too"
            hung.kill()
            assert waits_for_disk(str(hung.pid)), "a kill does not help"
        finally:
            thaw()
            hung.kill()
    assert _refused(host) is None


def _refused(host: Host) -> Busy | None:
    """What whoever else wants to act is told."""
    try:
        with ExecutorLock(str(host.state), "me", wait_seconds=0, monotonic=time.monotonic, sleep=time.sleep):
            return None
    except Busy as busy:
        return busy


# The server of the file system stops right after the lock was taken.
HANGS = """
import os, signal, sys
from logagent.cleanup.state.executor_lock import ExecutorLock
enter = ExecutorLock.__enter__
def entered(self):
    made = enter(self)
    os.kill(int(sys.argv[1]), signal.SIGSTOP)
    return made
ExecutorLock.__enter__ = entered
from logagent.cli import main
main(sys.argv[2:])
"""
