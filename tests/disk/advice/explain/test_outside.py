"""What is on a file system besides the log dirs: counted as `du -x` counts, on real file systems; nothing is followed,
entered on another one, waited for or changed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection
from pathlib import Path

import pytest

from logagent.advice.explain.inspection import MOST_LEVELS, NotEntered, mount_points_of, search_outside
from logagent.advice.explain.rules import OutsideDoc, ThisNode
from logagent.base.linux.kernel import mounts, parse_mounts
from tests.disk.conftest import LoopFs, run, unmount
from tests.disk.messes import lock_held

MIB = 1 << 20


def write(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(4096) * (size // 4096))
    return path


def search(root: Path, log_dirs: Collection[Path] = (), seconds: float = 60.0, **more: object) -> OutsideDoc:
    status = root.stat()
    used = os.statvfs(root)
    paths = {str(path) for path in log_dirs} | {m.point for m in mounts()}
    found = search_outside(
        mount_points_of(str(root), status.st_dev, mounts()),
        status.st_dev,
        NotEntered(paths, {path.stat().st_ino for path in log_dirs}, ThisNode()),
        (used.f_blocks - used.f_bfree) * used.f_frsize,
        seconds,
        **more,  # type: ignore[arg-type]
    )
    assert found is not None
    return found


def counted(found: OutsideDoc) -> int:
    return sum(p.allocated for p in found.places) + sum(d.allocated for d in found.log_dirs) + found.rest


def du(*words: str | Path) -> int:
    """In bytes; of several paths, the sum."""
    done = subprocess.run(["du", "-sxB1", *map(str, words)], capture_output=True, text=True, check=True)
    return sum(int(line.split()[0]) for line in done.stdout.splitlines())


@pytest.mark.parametrize("kind", ["tmpfs", "ext4", "xfs"])
def test_it_counts_what_du_counts(loop_fs: LoopFs, kind: str) -> None:
    root = loop_fs(kind)
    write(root / "home/alice/core.1234", 40 * MIB)
    for number in range(200):
        write(root / f"var/log/app.{number}", 64 << 10)
    os.link(root / "home/alice/core.1234", root / "second-name")
    (root / "link").symlink_to("/usr")
    (root / "sparse").touch()
    os.truncate(root / "sparse", 1 << 33)
    log_dir = root / "kafka-logs"
    write(log_dir / "t-0" / f"{0:020d}.log", 8 * MIB)
    before = {p: p.lstat().st_mtime_ns for p in root.rglob("*")}
    found = search(root, [log_dir])
    assert {p: p.lstat().st_mtime_ns for p in root.rglob("*")} == before
    assert found.root == str(root) and (found.unfinished, found.unread_directories, found.log_dirs) == (None, 0, [])
    assert counted(found) == du(root) - du(log_dir)
    assert (found.places[0].kind, found.places[0].allocated >= 40 * MIB) == ("file", True)
    assert [(p.path, p.kind, p.files) for p in found.places[1:]] == [(f"{root}/var/log", "directory", 200)]


def test_it_never_leaves_the_file_system(loop_fs: LoopFs, tmp_path: Path) -> None:
    """Neither by a mount, nor by a bind mount of its own directories, nor where another mount shows a log dir."""
    root, other = loop_fs("tmpfs"), loop_fs("tmpfs")
    write(other / "not-ours", 20 * MIB)
    write(root / "data/file", 10 * MIB)
    log_dir = root / "shown-twice"
    write(log_dir / "t-0" / f"{0:020d}.log", 10 * MIB)
    for name in ("other", "again"):
        (root / name).mkdir()
    (root / "a-file").touch()
    seen_at = tmp_path / "log-dir"
    seen_at.mkdir()
    mounts_made = [(other, root / "other"), (root / "data", root / "again"), (other / "not-ours", root / "a-file")]
    done: list[Path] = []
    try:
        for source, point in [*mounts_made, (log_dir, seen_at)]:
            run("mount", "--bind", source, point)
            done.append(point)
        found = search(root, [seen_at])
    finally:
        for point in reversed(done):
            unmount(point)
    assert [(p.path, p.allocated) for p in found.places] == [(f"{root}/data/file", 10 * MIB)]
    assert found.log_dirs == [] and counted(found) < 11 * MIB


def test_the_mount_that_shows_most_is_searched() -> None:
    lines = [
        b"30 1 8:1 /kafka/d1 /data/d1 rw - ext4 /dev/sda1 rw",
        b"31 1 8:1 / /disks/sda rw - ext4 /dev/sda1 rw",
        b"32 1 8:2 / / rw - ext4 /dev/sda2 rw",
    ]
    table = parse_mounts(lines)
    assert mount_points_of("/data/d1/x", os.makedev(8, 1), table) == ["/disks/sda", "/data/d1"]
    assert mount_points_of("/srv", os.makedev(0, 77), table) == ["/"]


def test_where_the_log_dir_is_the_whole_file_system_nothing_is_outside(loop_fs: LoopFs) -> None:
    root = loop_fs("tmpfs")
    write(root / "t-0" / f"{0:020d}.log", MIB)
    assert search(root, [root]) == OutsideDoc(str(root), [], [], 0, 0, 0, None)


def test_nothing_but_directories_is_opened_and_what_would_block_does_not(loop_fs: LoopFs) -> None:
    root = loop_fs("tmpfs")
    odd = root / "odd"
    odd.mkdir()
    os.mkfifo(odd / "fifo")
    os.mknod(odd / "device", 0o020666, os.makedev(1, 5))
    (odd / "loop").symlink_to(odd)
    log_dir = root / "no-log-dir"
    write(log_dir / "t-0" / f"{0:020d}.log", MIB)
    os.mkfifo(log_dir / "meta.properties")
    os.mkfifo(log_dir / ".lock")
    found = search(root)
    assert [(d.path, d.partitions, d.cluster_id, d.node_id) for d in found.log_dirs] == [(str(log_dir), 1, None, None)]
    assert found.unfinished is None and found.rest_files == 3


def test_log_dirs_are_known_by_what_is_in_them(loop_fs: LoopFs) -> None:
    root = loop_fs("tmpfs")
    for name, node, meta in (
        ("kafka-logs-old-host", 1, True),
        ("srv/kafka-2", 2, True),
        ("restored", None, False),
        ("python-3", None, False),
    ):
        if name != "python-3":
            write(root / name / "orders-0" / f"{0:020d}.log", 2 * MIB)
            write(root / name / "orders-1" / f"{7:020d}.log", MIB)
        write(root / name / "notes.log", 4096)
        if meta:
            text = f"version=1\ncluster.id=abcdefghijklmnopqrstuv\nnode.id={node}\n"
            (root / name / "meta.properties").write_text(text)
    write(root / "app" / "meta.properties", 4096)
    (root / "srv/kafka-2/.lock").touch()
    with lock_held(root / "srv/kafka-2"):
        found = search(root)
    assert {
        (d.path.removeprefix(f"{root}/"), d.cluster_id, d.node_id, d.partitions, d.in_use) for d in found.log_dirs
    } == {
        ("kafka-logs-old-host", "abcdefghijklmnopqrstuv", 1, 2, False),
        ("srv/kafka-2", "abcdefghijklmnopqrstuv", 2, 2, True),
        ("restored", None, None, 2, False),
    }
    # Whole: nothing of them is in another line.
    assert [d for d in found.log_dirs if d.allocated < 3 * MIB] == []
    assert counted(found) == du(root)


class Clock:
    """Goes on by a second with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_its_time_has_an_end_and_what_was_counted_by_then_is_there(loop_fs: LoopFs) -> None:
    root = loop_fs("tmpfs")
    for number in range(3000):
        (root / f"d{number % 3}").mkdir(exist_ok=True)
        (root / f"d{number % 3}" / str(number)).write_bytes(b"x")
    everything = search(root)
    found = search(root, seconds=5, monotonic=Clock())
    assert everything.unfinished is None and found.unfinished == "stopped at the time limit"
    assert 0 < counted(found) < counted(everything)


def test_what_is_nested_without_end_is_not_followed_to_its_end(loop_fs: LoopFs) -> None:
    root = loop_fs("tmpfs")
    fd = os.open(root, os.O_RDONLY)
    for _ in range(2 * MOST_LEVELS):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    before = len(os.listdir("/proc/self/fd"))
    assert search(root).unread_directories == 1
    assert len(os.listdir("/proc/self/fd")) == before
