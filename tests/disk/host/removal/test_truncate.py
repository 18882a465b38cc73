"""Only the file that was looked at is truncated."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.removal.truncate import Shortener
from logagent.host.removal.work_control import WorkControl

Open = Callable[[Path], OpenLogDir]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_file_that_took_the_name_since_it_was_looked_at_stays_whole(
    log_dir_path: Path, open_log_dir: Open, swapped: bool
) -> None:
    file, other = log_dir_path / "a.log", log_dir_path / "b.log"
    for path in (file, other):
        path.write_bytes(b"x" * 100_000)
    log_dir = open_log_dir(log_dir_path)
    found = os.lstat(file)
    if swapped:
        other.rename(file)
    size = Shortener(log_dir, lambda: None, WorkControl()).shorten(log_dir.fd, "a.log", found, keep=0, least=0)
    assert (size, file.stat().st_size) == ((100_000, 100_000) if swapped else (0, 0))
