"""The mark on disk that a removal has started: there for good before the first file goes, or nothing goes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from logagent.disk.scan import mark_started
from tests.needs import need_command, need_root
from tests.waiting import wait_until

MARK = """
import os, sys
from logagent.disk.scan import mark_started
mark_started(os.open(sys.argv[1], os.O_RDONLY), lambda: None)
"""


@pytest.mark.parametrize("mode", [0o755, 0o4755], ids=["new", "there"])
def test_it_is_synced(tmp_path: Path, mode: int) -> None:
    """Also one that is there already: the run that made it may have been killed before its fsync."""
    need_command("strace")
    log = tmp_path / "log"
    path = tmp_path / "orders-0"
    path.mkdir()
    path.chmod(mode)
    command = ["strace", "-y", "-o", str(log), "-e", "trace=fchmod,fsync", sys.executable, "-c", MARK, str(path)]
    subprocess.run(command, check=True)
    calls = re.findall(rf"^(\w+)\(\d+<{re.escape(str(path))}>", log.read_text(), re.MULTILINE)
    assert calls == (["fchmod", "fsync"] if mode == 0o755 else ["fsync"])


def test_where_the_file_system_does_not_keep_it_nothing_is_removed(tmp_path: Path) -> None:
    need_root()
    need_command("bindfs")
    source, point = tmp_path / "source", tmp_path / "point"
    (source / "orders-0").mkdir(parents=True)
    point.mkdir()
    with subprocess.Popen(["bindfs", "-f", "--chmod-ignore", str(source), str(point)]) as server:
        try:
            wait_until(lambda: (point / "orders-0").exists() or server.poll() is not None, "it is mounted")
            fd = os.open(point / "orders-0", os.O_RDONLY)
            with pytest.raises(OSError, match="cannot store the mark"):
                mark_started(fd, lambda: None)
            os.close(fd)
        finally:
            subprocess.run(["umount", "-l", str(point)], check=False)
            server.terminate()
