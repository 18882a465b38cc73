"""Killed on a disk without a free byte or inode: the same command again leads to the same end.

Every other kind of call site; `python -m tests.disk.killed_on_full_disk` takes each one, and errors too.
"""

from __future__ import annotations

from pathlib import Path

from tests.disk.killed import each_kind_once, kills, sites_of, strike
from tests.disk.killed_on_full_disk import FULL_DISK
from tests.needs import need_command, need_root


def test_a_rescue_killed_on_a_full_disk_comes_to_the_same_end(tmp_path: Path) -> None:
    need_root()
    need_command("strace", "mkfs.ext4", "losetup")
    sites = sites_of(FULL_DISK, tmp_path)
    assert {"pwrite64", "unlinkat", "fdatasync"} <= {site.call for site in sites}
    struck = list(each_kind_once(sites, opening=False).values())[::2]
    assert strike(FULL_DISK, kills(struck), tmp_path) == []
