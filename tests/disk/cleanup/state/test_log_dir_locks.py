"""The lock on each log dir, on real file systems."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from logagent.cleanup.state.executor_lock import hold_log_dirs
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from tests.disk.conftest import LoopFs
from tests.disk.failing import shut_down
from tests.host_files import DIRECTORY_IDS, format_log_dir


def test_a_disk_that_dies_before_the_lock_takes_only_its_own_log_dir_offline(loop_fs: LoopFs, tmp_path: Path) -> None:
    """XFS answers even fstat(2) of an open directory with EIO then: the whole cycle failed for it."""
    point = format_log_dir(loop_fs("xfs"))
    good = format_log_dir(tmp_path / "good", DIRECTORY_IDS[1])
    failures = LogDirFailures()
    with OpenLogDir(str(point), failures) as dead, OpenLogDir(str(good), failures) as healthy:
        shut_down(point)
        hold_log_dirs([dead, healthy], wait_seconds=0, monotonic=time.monotonic, sleep=time.sleep)
        assert "lock of" in (dead.offline() or "")
        assert healthy.offline() is None
        other = os.open(good, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(other)
