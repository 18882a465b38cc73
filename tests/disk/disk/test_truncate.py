"""Which file is truncated, from which size on, and where it can be stopped."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.base.errors import RemovalStopped
from logagent.disk.log_dir import OpenLogDir
from logagent.disk.unlink import Shortener, WorkControl

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


def test_a_small_file_is_left_to_unlink(log_dir_path: Path, open_log_dir: Open) -> None:
    """A hard link made at the last moment loses nothing."""
    file = log_dir_path / "a.log"
    file.write_bytes(b"x" * 100_000)
    log_dir = open_log_dir(log_dir_path)
    shortener = Shortener(log_dir, lambda: None, WorkControl())
    assert shortener.shorten(log_dir.fd, "a.log", os.lstat(file), keep=0, least=100_001) == 100_000
    assert file.stat().st_size == 100_000


def test_a_large_file_can_be_stopped_at_in_the_middle(log_dir_path: Path, open_log_dir: Open) -> None:
    file = log_dir_path / "a.log"
    file.write_bytes(b"x" * 100_000)
    log_dir = open_log_dir(log_dir_path)
    asked: list[int] = []

    def stop() -> bool:
        asked.append(file.stat().st_size)
        return len(asked) == 4

    shortener = Shortener(log_dir, lambda: None, WorkControl(stop=stop))
    shortener.chunk = 20_000
    with pytest.raises(RemovalStopped):
        shortener.shorten(log_dir.fd, "a.log", os.lstat(file), keep=0, least=0)
    assert asked == [100_000, 80_000, 60_000, 40_000] and file.stat().st_size == 40_000
