"""A command that hangs on a dead disk holds the executor lock: whoever is refused learns which disk, which process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from logagent.errors import Busy
from logagent.host.state.state_dir import ExecutorLock
from tests.cli_host import ALL_DUE, NO_LIMITS, CliHost
from tests.disk.failing import format_log_dir, hanging_fs, wait_until


def test_whoever_is_refused_learns_the_log_dir_and_the_process(tmp_path: Path) -> None:
    host = CliHost(tmp_path)
    host.configure(**NO_LIMITS, **ALL_DUE)
    with hanging_fs(tmp_path / "fuse") as frozen:
        format_log_dir(frozen.point)
        host.set_property(f"log.dirs={host.d1},{frozen.point}")
        host.state.mkdir()
        lock = host.state / "executor.lock"
        # It stops there when its lock says that it has come so far.
        command = [sys.executable, "-c", HANGS, str(frozen.server_pid), *host.arguments("cleanup", "--execute")]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as hung:
            try:
                wait_until(lambda: lock.exists() and str(frozen.point) in lock.read_text(), "it is at the hung log dir")
                other = ExecutorLock(str(host.state), "me", wait_seconds=0, monotonic=time.monotonic, sleep=time.sleep)
                with pytest.raises(Busy) as refused, other:
                    pass
                assert f"(process {hung.pid}, at {frozen.point}" in str(refused.value)
            finally:
                hung.send_signal(signal.SIGKILL)
                frozen.wake()


# The server of the file system stops right after the lock was taken.
HANGS = """
import os, signal, sys
from logagent.host.state.state_dir import ExecutorLock
enter = ExecutorLock.__enter__
def entered(self):
    made = enter(self)
    os.kill(int(sys.argv[1]), signal.SIGSTOP)
    return made
ExecutorLock.__enter__ = entered
from logagent.cli.main import main
main(sys.argv[2:])
"""
