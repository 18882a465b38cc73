"""Bytes are what the file system has allocated: a broker preallocates 20 MiB of indexes for each active segment."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.advice.scan.command import log_dir_rows
from logagent.base.dir_names import delete_name
from logagent.cleanup.commands.cleanup import plan_cleanup
from tests.disk.sessions import SETTINGS, FailingHost
from tests.host_files import DIRECTORY_IDS, bulk_partition, format_log_dir
from tests.hosts import HEX
from tests.waiting import wait_until

MIB = 1 << 20
INDEXES = ("index", "timeindex")


def active(log_dir: Path, name: str, records: int) -> Path:
    """A partition with `records` bytes in its only segment, and the indexes that a broker preallocates for it."""
    made = bulk_partition(log_dir, name, size=records)
    for suffix in INDEXES:
        path = made / f"{0:020d}.{suffix}"
        path.touch()
        os.truncate(path, 10 * MIB)
    os.utime(made, (1, 1))
    return made


def used(path: Path) -> int:
    """What `statvfs` says, once the file system has caught up with what was done."""
    os.sync()
    found = os.statvfs(path)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_what_a_cleanup_says_was_freed_is_what_the_file_system_gained(
    kind: str, loop_fs: Callable[[str], Path], tmp_path: Path
) -> None:
    mount = loop_fs(kind)
    log_dir = format_log_dir(mount / "d1")
    for number in range(20):
        active(log_dir, delete_name("gone", number, HEX), 2 * MIB)
    host = FailingHost(tmp_path / "state", log_dir)
    before = used(mount)
    execution = host.clean()
    assert len(execution.results) == 20 and not list(log_dir.glob("*-delete"))
    # xfs frees what was removed by a worker of its own, which neither sync nor statvfs waits for, returns the blocks of
    # its inodes by the chunk of 64, and the log dir's own directory shrinks.
    wait_until(
        lambda: abs(execution.freed_bytes - (before - used(mount))) <= 128 << 10, "what it says was freed is free"
    )
    assert execution.freed_bytes < 20 * 3 * MIB  # by file sizes it was 440 MiB


def test_a_third_of_the_host_is_a_third_of_its_blocks(tmp_path: Path) -> None:
    """One directory full of records, beside twenty with hardly more than preallocated indexes."""
    log_dir = format_log_dir(tmp_path / "d1")
    for number in range(20):
        active(log_dir, f"kept-{number}", 4096)
    for number in range(2):
        active(log_dir, delete_name("gone", number, HEX), 8 * MIB)
    cleanup = replace(SETTINGS.cleanup, max_fraction=0.13)
    with FailingHost(tmp_path / "state", log_dir, settings=replace(SETTINGS, cleanup=cleanup)).session() as session:
        session.take_inventory()
        going = [d for d in session.dirs if d.name.endswith("-delete")]
        assert sum(d.bytes for d in going) < 0.13 * sum(d.bytes for d in session.dirs)
        plan = plan_cleanup(session, session.facts())
        assert plan.needs_approval is not None and "allocated bytes" in plan.needs_approval.why.fact
        assert plan.allocated == sum(d.allocated for d in going) == plan.needs_approval.allocated
        assert plan.allocated < plan.needs_approval.bytes


def test_log_dirs_of_one_file_system_share_what_is_unexplained_there(
    loop_fs: Callable[[str], Path], tmp_path: Path
) -> None:
    mount = loop_fs("ext4")
    log_dirs = [format_log_dir(mount / f"d{n}", DIRECTORY_IDS[n]) for n in range(2)]
    bulk_partition(log_dirs[0], "orders-0", size=8 * MIB)
    bulk_partition(log_dirs[1], "orders-1", size=16 * MIB)
    with FailingHost(tmp_path / "state", *log_dirs).session() as session:
        session.take_inventory()
        rows = log_dir_rows(session.facts().log_dirs, session.inventory.by_log_dir)
    assert {row["device"] for row in rows} == {mount.stat().st_dev}
    first, second = (row["ledger"] for row in rows)
    assert first["unexplained"] == second["unexplained"] < 4 * MIB
    assert (first["current"] >= 8 * MIB, second["current"] >= 16 * MIB) == (True, True)
