"""Opening log dirs and renaming in them, on ext4, xfs and tmpfs, with everything that may stand in the way."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logagent.base.dir_names import delete_name, stray_name
from logagent.base.errors import BrokerHoldsLogDir, ItemFailed, KafkaStorageError, NotAsPlanned
from logagent.base.linux.kernel import _fdinfo_mount_id, mount_id, mounted_children
from logagent.base.records import Identity
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.kafka.processes.lock import Interlock
from tests.needs import need_command, need_root

HEX = "0123456789abcdef" * 2
Open = Callable[[Path], OpenLogDir]
IdentityOf = Callable[[Path], Identity]


def partition(log_dir: Path, name: str = "orders-0") -> Path:
    path = log_dir / name
    path.mkdir()
    (path / f"{0:020d}.log").write_bytes(b"records")
    return path


def test_a_rename_keeps_mtime_and_sets_ctime(log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf) -> None:
    """What the time of marking is told from, on every file system."""
    path = partition(log_dir_path)
    os.utime(path, ns=(10**18, 10**18))
    before = path.stat()
    log_dir = open_log_dir(log_dir_path)
    interlock = Interlock(log_dir.fd, log_dir.path)
    new = delete_name("orders", 0, HEX)
    log_dir.rename("orders-0", new, identity_of(path), interlock)
    interlock.after_rename()
    log_dir.fsync()
    after = (log_dir_path / new).stat()
    assert os.listdir(log_dir_path) == [new]
    assert after.st_mtime_ns == before.st_mtime_ns == 10**18
    assert after.st_ctime_ns > before.st_ctime_ns
    assert after.st_ino == before.st_ino


@pytest.mark.parametrize("build", [delete_name, stray_name])
def test_the_longest_topic_fits(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, build: Callable[[str, int, str], str]
) -> None:
    """KAFKA-4893: 249 characters and a suffix would be too long; capped at 255 it is taken everywhere."""
    topic = "t" * 249
    path = partition(log_dir_path, f"{topic}-12345")
    log_dir = open_log_dir(log_dir_path)
    new = build(topic, 12345, HEX)
    assert len(new) == 255
    log_dir.rename(path.name, new, identity_of(path), Interlock(log_dir.fd, log_dir.path))
    assert os.listdir(log_dir_path) == [new]


def test_a_256th_character_fails_this_item_only(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, failures: LogDirFailures
) -> None:
    path = partition(log_dir_path)
    log_dir = open_log_dir(log_dir_path)
    with pytest.raises(ItemFailed) as caught:
        log_dir.rename("orders-0", "x" * 256, identity_of(path), Interlock(log_dir.fd, log_dir.path))
    assert caught.value.errno == errno.ENAMETOOLONG
    assert failures.reason(log_dir.path) is None
    assert path.is_dir()


@pytest.mark.parametrize("taken_by", ["empty directory", "directory", "file", "dangling symlink"])
def test_nothing_is_ever_replaced(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, taken_by: str
) -> None:
    path = partition(log_dir_path)
    new = log_dir_path / stray_name("orders", 0, HEX)
    if taken_by == "file":
        new.touch()
    elif taken_by == "dangling symlink":
        new.symlink_to("nowhere")
    else:
        new.mkdir()
        if taken_by == "directory":
            (new / "x").touch()
    there = identity_of(new)
    log_dir = open_log_dir(log_dir_path)
    with pytest.raises(ItemFailed) as caught:
        log_dir.rename("orders-0", new.name, identity_of(path), Interlock(log_dir.fd, log_dir.path))
    assert caught.value.errno == errno.EEXIST
    assert path.is_dir()
    assert identity_of(new) == there


@pytest.mark.parametrize("stands_there", ["nothing", "another", "file", "symlink", "symlink to it"])
def test_only_what_was_planned_is_renamed(
    log_dir_path: Path, tmp_path: Path, open_log_dir: Open, identity_of: IdentityOf, stands_there: str
) -> None:
    path = partition(log_dir_path)
    expect = identity_of(path)
    path.rename(log_dir_path / "aside")
    if stands_there == "another":
        partition(log_dir_path)
    elif stands_there == "file":
        path.touch()
    elif stands_there == "symlink":
        path.symlink_to(tmp_path)
    elif stands_there == "symlink to it":
        path.symlink_to("aside")
    before = sorted(os.listdir(log_dir_path))
    log_dir = open_log_dir(log_dir_path)
    with pytest.raises(NotAsPlanned):
        log_dir.rename("orders-0", stray_name("orders", 0, HEX), expect, Interlock(log_dir.fd, log_dir.path))
    assert sorted(os.listdir(log_dir_path)) == before


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "/etc", "a\0b"])
def test_names_that_lead_elsewhere(tmp_path: Path, open_log_dir: Open, name: str) -> None:
    log_dir = open_log_dir(tmp_path)
    interlock = Interlock(log_dir.fd, log_dir.path)
    with pytest.raises(NotAsPlanned):
        log_dir.rename(name, "x-0", log_dir.identity, interlock)
    with pytest.raises(NotAsPlanned):
        log_dir.rename("x-0", name, log_dir.identity, interlock)
    with pytest.raises(NotAsPlanned):
        log_dir.open_child(name)


def test_a_bind_mount_of_the_same_device_is_a_mount_point(
    log_dir_path: Path,
    tmp_path: Path,
    open_log_dir: Open,
    identity_of: IdentityOf,
    bind_mount: Callable[[Path, Path], None],
) -> None:
    inner = partition(log_dir_path, "inner-0")
    mount = log_dir_path / "orders-0"
    mount.mkdir()
    bind_mount(inner, mount)
    log_dir = open_log_dir(log_dir_path)
    assert identity_of(mount).device == log_dir.identity.device
    with pytest.raises(NotAsPlanned, match="mount point"):
        log_dir.rename(
            "orders-0",
            stray_name("orders", 0, HEX),
            identity_of(mount),
            Interlock(log_dir.fd, log_dir.path),
        )
    assert mounted_children(log_dir.fd) == {"orders-0"}


def test_another_device_is_a_mount_point(
    loop_fs: Callable[..., Path], open_log_dir: Open, identity_of: IdentityOf
) -> None:
    point = loop_fs("tmpfs", 1 << 20)
    log_dir = open_log_dir(point.parent)
    with pytest.raises(NotAsPlanned, match="mount point"):
        log_dir.rename(point.name, "x-0.y-stray", identity_of(point), Interlock(log_dir.fd, log_dir.path))


def test_both_ways_to_a_mount_id_agree(log_dir_path: Path, open_log_dir: Open) -> None:
    fd = open_log_dir(log_dir_path).fd
    assert mount_id(fd) == _fdinfo_mount_id(fd)


def test_a_held_lock_stops_the_rename(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, spawn: Callable[..., Any]
) -> None:
    path = partition(log_dir_path)
    log_dir = open_log_dir(log_dir_path)
    holder = spawn(
        "import fcntl, sys\nfile = open(sys.argv[1], 'w')\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('ready', flush=True)\nsys.stdin.read()",
        log_dir_path / ".lock",
    )
    with pytest.raises(BrokerHoldsLogDir) as caught:
        log_dir.rename("orders-0", "orders-0.x-stray", identity_of(path), Interlock(log_dir.fd, log_dir.path))
    assert caught.value.pid == holder.pid
    assert path.is_dir()


def test_swapped_at_the_last_moment_is_put_back(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any
) -> None:
    """Between the last look and the rename somebody puts another directory in its place."""
    path = partition(log_dir_path)
    other = partition(log_dir_path, "other-0")
    other_identity = identity_of(other)

    def swap(n: int) -> None:
        if n == 0:
            path.rename(log_dir_path / "taken")
            other.rename(path)

    log_dir = open_log_dir(log_dir_path)
    with pytest.raises(NotAsPlanned, match="put back"):
        log_dir.rename("orders-0", "orders-0.x-stray", identity_of(path), calls(swap))
    assert sorted(os.listdir(log_dir_path)) == ["orders-0", "taken"]
    assert identity_of(path) == other_identity


def test_a_swap_that_cannot_be_put_back_is_reported(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any
) -> None:
    path = partition(log_dir_path)
    other = partition(log_dir_path, "other-0")

    def swap(n: int) -> None:
        if n == 0:
            path.rename(log_dir_path / "taken")
            other.rename(path)
        else:
            path.mkdir()

    log_dir = open_log_dir(log_dir_path)
    with pytest.raises(NotAsPlanned, match=r"it is now orders-0\.x-stray"):
        log_dir.rename("orders-0", "orders-0.x-stray", identity_of(path), calls(swap))
    assert sorted(os.listdir(log_dir_path)) == ["orders-0", "orders-0.x-stray", "taken"]


def test_overlay_refuses_with_exdev_and_nothing_is_copied(
    loop_fs: Callable[..., Path], open_log_dir: Open, identity_of: IdentityOf, failures: LogDirFailures
) -> None:
    """A directory of a lower layer cannot be renamed in place; `mv` would copy it."""
    base = loop_fs("tmpfs", 1 << 24)
    for name in ("lower", "upper", "work", "merged"):
        (base / name).mkdir()
    partition(base / "lower")
    layers = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work,redirect_dir=off"
    merged = base / "merged"
    done = subprocess.run(
        ["mount", "-t", "overlay", "-o", layers, "overlay", str(merged)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no overlay file system here: {done.stderr.decode().strip()}")
    try:
        with OpenLogDir(str(merged), failures) as log_dir, pytest.raises(ItemFailed) as caught:
            log_dir.rename(
                "orders-0",
                "orders-0.x-stray",
                identity_of(merged / "orders-0"),
                Interlock(log_dir.fd, log_dir.path),
            )
        assert caught.value.errno == errno.EXDEV
        assert os.listdir(merged) == ["orders-0"]
        assert os.listdir(base / "upper") == []
        assert failures.reason(str(merged)) is None
    finally:
        subprocess.run(["umount", str(merged)], check=True)


def test_a_full_disk_is_not_offline(
    loop_fs: Callable[..., Path], open_log_dir: Open, identity_of: IdentityOf, failures: LogDirFailures
) -> None:
    """With no block left a rename into a new directory block fails this item, and says so."""
    root = loop_fs("ext4", 8 << 20, "-b 1024 -m 0 -O ^has_journal,^dir_index")
    log_dir_path = root / "logs"
    log_dir_path.mkdir()
    for number in range(100):
        (log_dir_path / f"t-{number}").mkdir()
    with (root / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
        while True:
            filler.write(b"x" * 1024)
    log_dir = open_log_dir(log_dir_path)
    outcomes = set()
    for number in range(100):
        path = log_dir_path / f"t-{number}"
        expect = identity_of(path)
        new = delete_name("t" * 200, number, HEX)
        try:
            log_dir.rename(path.name, new, expect, Interlock(log_dir.fd, log_dir.path))
        except ItemFailed as error:
            outcomes.add(error.errno)
            assert identity_of(path) == expect
        else:
            outcomes.add(0)
            assert identity_of(log_dir_path / new) == expect
    assert errno.ENOSPC in outcomes
    assert outcomes <= {0, errno.ENOSPC}
    assert failures.reason(log_dir.path) is None


def test_a_disk_that_fails_takes_the_log_dir_offline_once(
    loop_fs: Callable[..., Path], open_log_dir: Open, identity_of: IdentityOf, failures: LogDirFailures
) -> None:
    need_command("xfs_io")
    root = loop_fs("xfs")
    path = partition(root)
    expect = identity_of(path)
    log_dir = open_log_dir(root)
    subprocess.run(["xfs_io", "-x", "-c", "shutdown", str(root)], check=True)
    with pytest.raises(KafkaStorageError) as caught:
        log_dir.rename("orders-0", "orders-0.x-stray", expect, Interlock(log_dir.fd, log_dir.path))
    assert caught.value.log_dir == str(root)
    reason = failures.reason(str(root))
    assert reason is not None
    assert "Input/output error" in reason or "clean" in reason
    # Every later action there is refused at once, with the first reason; a second failure does not replace it.
    with pytest.raises(KafkaStorageError) as again:
        log_dir.fsync()
    assert reason in str(again.value)
    assert not failures.mark_offline(str(root), "something else")
    assert failures.offline() == {str(root): reason}
    with pytest.raises(KafkaStorageError), OpenLogDir(str(root), failures):
        pass


def test_a_read_only_mount_takes_it_offline(
    loop_fs: Callable[..., Path], open_log_dir: Open, identity_of: IdentityOf, failures: LogDirFailures
) -> None:
    root = loop_fs("ext4", 32 << 20)
    path = partition(root)
    log_dir = open_log_dir(root)
    subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)
    with pytest.raises(KafkaStorageError, match="Read-only"):
        log_dir.rename("orders-0", "orders-0.x-stray", identity_of(path), Interlock(log_dir.fd, log_dir.path))
    failures.recovered(str(root))
    failures.check(str(root))


@pytest.mark.parametrize("what", ["missing", "a file", "a dangling symlink", "a loop"])
def test_what_cannot_be_opened_is_offline(tmp_path: Path, failures: LogDirFailures, what: str) -> None:
    path = tmp_path / "logs"
    if what == "a file":
        path.touch()
    elif what == "a dangling symlink":
        path.symlink_to("nowhere")
    elif what == "a loop":
        path.symlink_to("logs")
    with pytest.raises(KafkaStorageError, match="cannot be opened"), OpenLogDir(str(path), failures):
        pass
    assert failures.reason(str(path))


def test_the_log_dir_itself_may_be_a_symlink(
    log_dir_path: Path, tmp_path: Path, open_log_dir: Open, identity_of: IdentityOf
) -> None:
    """As Kafka's `log.dirs` may name one; what it points to is held from then on."""
    link = tmp_path / "link"
    link.symlink_to(log_dir_path)
    path = partition(log_dir_path)
    log_dir = open_log_dir(link)
    link.unlink()
    log_dir.rename("orders-0", "orders-0.x-stray", identity_of(path), Interlock(log_dir.fd, log_dir.path))
    assert os.listdir(log_dir_path) == ["orders-0.x-stray"]


def test_an_unreadable_directory_is_an_item_not_a_disk(
    log_dir_path: Path, spawn: Callable[..., Any], failures: LogDirFailures
) -> None:
    """As another user than root: EACCES fails the item only."""
    need_root()
    path = partition(log_dir_path)
    log_dir_path.chmod(0o555)
    for parent in [log_dir_path, *log_dir_path.parents]:
        if parent.stat().st_uid == 0 and not parent.stat().st_mode & 0o005 and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    child = spawn(
        """
import ctypes, os, sys
from logagent.kafka.processes.lock import Interlock
from logagent.base.errors import ItemFailed
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.base.records import Identity
os.setuid(65534)  # from here on the interpreter's own files may be out of reach
failures = LogDirFailures()
found = os.stat(sys.argv[1] + "/orders-0")
with OpenLogDir(sys.argv[1], failures) as log_dir:
    try:
        log_dir.rename("orders-0", "x-0.y-stray", Identity(found.st_dev, found.st_ino),
                       Interlock(log_dir.fd, log_dir.path))
    except ItemFailed as error:
        print("ready", flush=True)
        print(error.errno, failures.reason(sys.argv[1]), error.hint, flush=True)
""",
        log_dir_path,
    )
    assert child.line() == f"{errno.EACCES} None run as the broker's user"
    log_dir_path.chmod(0o755)
    shutil.rmtree(path)
