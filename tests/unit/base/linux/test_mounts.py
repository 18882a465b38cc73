"""The kernel's table of mounts, with what a user who may mount FUSE file systems can put into it."""

from __future__ import annotations

import os

from logagent.base.linux.kernel import Mount, mount_of, parse_mounts

TABLE = (
    b"1 0 8:1 / / rw,relatime - ext4 /dev/sda1 rw,errors=remount-ro\n"
    b"2 1 8:17 / /srv/k\\040d ro,noatime shared:7 master:2 - xfs /dev/sdb1 rw\n"
    b"3 1 0:50 / /srv/nfs rw - nfs4 nas:/a rw\n"
    b"nonsense\n"
)


def test_every_column_of_the_mount_table_is_read() -> None:
    root, data, nfs = parse_mounts(TABLE.splitlines(keepends=True))
    assert data == Mount(
        "/srv/k d", "xfs", "/dev/sdb1", os.makedev(8, 17), frozenset({"ro", "noatime"}), frozenset({"rw"}), "/", 2
    )
    assert [m.remote for m in (root, data, nfs)] == [False, False, True]


def test_the_longest_point_and_of_those_the_last_one() -> None:
    over = b"4 1 8:33 / /srv/k\\040d rw - ext4 /dev/sdc1 rw\n"
    table = parse_mounts([*TABLE.splitlines(keepends=True), over])
    assert [m.source for p in ("/", "/srv/k d/x", "/srv/kd") if (m := mount_of(p, table))] == [
        "/dev/sda1",
        "/dev/sdc1",
        "/dev/sda1",
    ]


def test_an_empty_source_and_a_kind_of_any_bytes_hide_no_mount() -> None:
    (mount,) = parse_mounts([b"5 1 0:60 / /srv/k/d1 rw - fuse.\xff  rw,user_id=1000\n"])
    assert (mount.point, mount.source, mount.remote) == ("/srv/k/d1", "", True)
