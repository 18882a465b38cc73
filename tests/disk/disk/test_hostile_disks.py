"""Hostile disks: whatever lies in a marked directory, and whoever swaps it meanwhile, nothing outside changes."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logagent.base.errors import LogAgentError, NotAsPlanned
from logagent.base.records import Identity
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.remove import remove_dir
from logagent.disk.scan import scan_log_dir
from logagent.kafka.processes.lock import Interlock
from tests.needs import need_root

MARKED = "orders-0.0123456789abcdef0123456789abcdef-delete"

Open = Callable[[Path], OpenLogDir]
IdentityOf = Callable[[Path], Identity]
Picture = dict[str, tuple[int, int, int, int, bytes]]


def picture(root: Path) -> Picture:
    """Everything below `root`: inode, mode, links, size and content of each."""
    seen: Picture = {}
    for directory, subdirs, files in os.walk(root):
        for name in subdirs + files:
            path = Path(directory, name)
            found = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(found.st_mode) else b""
            seen[str(path)] = (found.st_ino, found.st_mode, found.st_nlink, found.st_size, content)
    return seen


@pytest.fixture
def outside(log_dir_path: Path) -> Iterator[Path]:
    """Other people's data on the same file system; it is compared at the end."""
    root = log_dir_path.parent / "outside"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "precious").write_bytes(b"precious")
    (root / "deep" / "er" / f"{0:020d}.log").write_bytes(b"records")
    (root / "big.log").write_bytes(b"x" * 1000)
    before = picture(root)
    assert len(before) == 5
    yield root
    assert picture(root) == before


def remove(log_dir: OpenLogDir, expect: Identity, name: str = MARKED) -> None:
    remove_dir(log_dir, name, expect, Interlock(log_dir.fd, log_dir.path))


def test_symlinks_are_unlinked_and_never_followed(
    log_dir_path: Path, outside: Path, open_log_dir: Open, identity_of: IdentityOf
) -> None:
    path = log_dir_path / MARKED
    path.mkdir()
    (path / "a").symlink_to(outside)
    (path / f"{0:020d}.log").symlink_to(outside / "precious")
    (path / "partition.metadata").symlink_to(outside / "precious")
    (path / "dangling").symlink_to("nowhere")
    (path / "up").symlink_to("..")
    (path / "sub").mkdir()
    (path / "sub" / "again").symlink_to(outside / "deep")
    remove(open_log_dir(log_dir_path), identity_of(path))
    assert os.listdir(log_dir_path) == []


def test_a_marked_symlink_is_not_emptied(
    log_dir_path: Path, outside: Path, open_log_dir: Open, identity_of: IdentityOf
) -> None:
    """Kafka empties a symlink that ends in -delete through the link; we refuse it."""
    link = log_dir_path / MARKED
    link.symlink_to(outside)
    log_dir = open_log_dir(log_dir_path)
    found = outside.stat()
    for expect in (Identity(found.st_dev, found.st_ino), identity_of(link)):
        with pytest.raises(NotAsPlanned, match="symlink"):
            remove(log_dir, expect)
    assert link.is_symlink()
    entry = scan_log_dir(log_dir).dirs[0]
    assert (entry.name, entry.error, entry.bytes) == (MARKED, "symlink", 0)
    link.unlink()


def test_a_symlink_in_the_path_of_the_log_dir_is_the_operators(
    log_dir_path: Path, outside: Path, open_log_dir: Open, identity_of: IdentityOf
) -> None:
    """The parent is swapped for a symlink elsewhere after the log dir was opened: the descriptor stays."""
    path = log_dir_path / MARKED
    path.mkdir()
    (path / "file").touch()
    expect = identity_of(path)
    log_dir = open_log_dir(log_dir_path)
    moved = log_dir_path.with_name("moved")
    log_dir_path.rename(moved)
    log_dir_path.symlink_to(outside)
    remove(log_dir, expect)
    assert os.listdir(moved) == []


def test_fifos_sockets_and_devices_are_unlinked_unopened(
    log_dir_path: Path, outside: Path, open_log_dir: Open, identity_of: IdentityOf
) -> None:
    """The open of a FIFO would block, that of a device may do anything."""
    need_root()
    path = log_dir_path / MARKED
    path.mkdir()
    os.mkfifo(path / f"{0:020d}.log")
    os.mkfifo(path / "partition.metadata")
    os.mknod(path / f"{1:020d}.log", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mknod(path / f"{2:020d}.log", stat.S_IFBLK | 0o600, os.makedev(7, 255))
    fd = os.open(path, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as bound:
        # The path of a socket has 107 bytes at most.
        bound.bind(f"/proc/self/fd/{fd}/s")
    os.close(fd)
    log_dir = open_log_dir(log_dir_path)
    [entry] = scan_log_dir(log_dir).dirs
    assert (entry.files, entry.segments, entry.bytes, entry.topic_id) == (5, 3, 0, None)
    remove(log_dir, identity_of(path))
    assert os.listdir(log_dir_path) == []


def test_hard_links_lose_only_their_name_here(
    log_dir_path: Path, outside: Path, open_log_dir: Open, identity_of: IdentityOf
) -> None:
    path = log_dir_path / MARKED
    path.mkdir()
    os.link(outside / "big.log", path / f"{0:020d}.log")
    os.link(outside / "precious", path / "partition.metadata")
    remove(open_log_dir(log_dir_path), identity_of(path))
    assert os.listdir(log_dir_path) == []


NASTY_NAMES = [
    b"new\nline-0",
    b"\xff\xfe-1",
    b"caf\xe9-2",
    b"esc\x1b[31m-3",
    b"quote'\"$(reboot)-4",
    b" -5",
    b"-rf",
    "ünïcödé-٣".encode(),
    b"x" * 250 + b"-6",
]


def test_names_of_any_bytes(log_dir_path: Path, outside: Path, open_log_dir: Open, identity_of: IdentityOf) -> None:
    log_dir = open_log_dir(log_dir_path)
    for raw in NASTY_NAMES:
        current = log_dir_path / os.fsdecode(raw)
        current.mkdir()
        for inner in NASTY_NAMES:
            (current / os.fsdecode(inner)).write_bytes(b"12")
    entries = {entry.name: entry for entry in scan_log_dir(log_dir).dirs}
    assert set(entries) == {os.fsdecode(raw) for raw in NASTY_NAMES}
    assert {entry.bytes for entry in entries.values()} == {2 * len(NASTY_NAMES)}
    for number, (name, entry) in enumerate(entries.items()):
        marked = f"{name[:200]}.{number}-delete"
        log_dir.rename(name, marked, entry.identity, Interlock(log_dir.fd, log_dir.path))
        remove(log_dir, entry.identity, marked)
    assert os.listdir(log_dir_path) == []


def nest(path: Path, levels: int) -> None:
    """Directories `levels` deep, each with a file: far beyond PATH_MAX and any recursion limit."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir("directory", dir_fd=fd)
        below = os.open("directory", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=below))
        os.close(fd)
        fd = below
    os.close(fd)


def test_two_thousand_levels(log_dir_path: Path, outside: Path, open_log_dir: Open, identity_of: IdentityOf) -> None:
    """With a few descriptors only: one per level would not do."""
    path = log_dir_path / MARKED
    path.mkdir()
    nest(path, 2000)
    log_dir = open_log_dir(log_dir_path)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8, limits[1]))
    try:
        [entry] = scan_log_dir(log_dir).dirs
        assert entry.files == 2000
        assert entry.error is None
        remove(log_dir, identity_of(path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert os.listdir(log_dir_path) == []


def test_mount_points_are_never_crossed(
    log_dir_path: Path,
    outside: Path,
    open_log_dir: Open,
    identity_of: IdentityOf,
    bind_mount: Callable[[Path, Path], None],
) -> None:
    """A bind mount of the same device does not show in st_dev."""
    path = log_dir_path / MARKED
    (path / "sub" / "mount").mkdir(parents=True)
    bind_mount(outside, path / "sub" / "mount")
    log_dir = open_log_dir(log_dir_path)
    with pytest.raises(NotAsPlanned, match="mount point"):
        remove(log_dir, identity_of(path))
    [entry] = scan_log_dir(log_dir).dirs
    assert (entry.error, entry.bytes) == ("mount point", 0)


def test_a_file_can_be_a_mount_point_too(
    log_dir_path: Path,
    outside: Path,
    open_log_dir: Open,
    identity_of: IdentityOf,
    bind_mount: Callable[[Path, Path], None],
    failures: LogDirFailures,
) -> None:
    """What is mounted on a segment is a file elsewhere, with one link: it is neither shortened nor unlinked."""
    path = log_dir_path / MARKED
    path.mkdir()
    victim = log_dir_path.parent / "victim"
    with victim.open("wb") as file:
        for _ in range(80):
            file.write(b"x" * (1 << 20))
    segment = path / f"{0:020d}.log"
    segment.touch()
    bind_mount(victim, segment)
    log_dir = open_log_dir(log_dir_path)
    with pytest.raises(LogAgentError, match="busy"):
        remove(log_dir, identity_of(path))
    assert victim.stat().st_size == 80 << 20
    assert failures.reason(log_dir.path) is None
    victim.unlink()


# Of a race, at least.
ROUNDS = 300

SWAPPER = """
import os, sys
target, aside, outside = sys.argv[1:]
print("ready", flush=True)
while True:
    try:
        os.rename(target, aside)
        os.symlink(outside, target)
        os.unlink(target)
        os.rename(aside, target)
    except OSError:
        for undo in (lambda: os.unlink(target), lambda: os.rename(aside, target)):
            try:
                undo()
            except OSError:
                pass
"""


@pytest.mark.parametrize("swapped", ["the directory itself", "a directory in it", "a file in it"])
def test_a_racing_process_swaps_it_for_a_symlink(
    log_dir_path: Path, outside: Path, open_log_dir: Open, spawn: Callable[..., Any], swapped: str
) -> None:
    """However it comes: nothing outside changes, nothing but our own errors comes back."""
    path = log_dir_path / MARKED
    target = {"the directory itself": path, "a directory in it": path / "sub"}.get(swapped, path / "x.log")
    spawn(SWAPPER, target, log_dir_path.parent / "aside", outside)
    log_dir = open_log_dir(log_dir_path)
    fresh = log_dir_path.parent / "fresh"
    rounds = removed = 0
    while rounds < ROUNDS or removed < 20:
        rounds += 1
        # Made where nobody races, so that the test itself never writes through a symlink.
        if not fresh.exists():
            (fresh / "sub").mkdir(parents=True)
            for name in ("x.log", "y.log", "sub/z.log"):
                (fresh / name).write_bytes(b"x" * 100)
        try:
            fresh.rename(path)
        except OSError:
            pass  # what is left of the last round is tried again
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        try:
            remove(log_dir, Identity(found.st_dev, found.st_ino))
            removed += 1
        except LogAgentError:
            pass
        log_dir.failures.check(log_dir.path)


def test_a_racing_process_and_renames(
    log_dir_path: Path, outside: Path, open_log_dir: Open, spawn: Callable[..., Any]
) -> None:
    """Renaming what is swapped all the time: either the planned directory gets the new name, or nothing keeps it."""
    path = log_dir_path / "orders-0"
    path.mkdir()
    found = path.lstat()
    expect = Identity(found.st_dev, found.st_ino)
    spawn(SWAPPER, path, log_dir_path.parent / "aside", outside)
    log_dir = open_log_dir(log_dir_path)
    marked = log_dir_path / MARKED
    done = refused = 0
    while min(done, refused) < 30:
        try:
            log_dir.rename("orders-0", MARKED, expect, Interlock(log_dir.fd, log_dir.path))
        except LogAgentError:
            refused += 1
        else:
            done += 1
            found = marked.lstat()
            assert (found.st_dev, found.st_ino) == (expect.device, expect.inode)
        if marked.is_symlink():
            marked.unlink()  # it could not be put back, and was said to be here
        elif marked.exists():
            try:
                marked.rename(path)
            except OSError:
                path.unlink(missing_ok=True)


def test_a_scan_survives_a_racing_process(
    log_dir_path: Path, outside: Path, open_log_dir: Open, spawn: Callable[..., Any]
) -> None:
    path = log_dir_path / "orders-0"
    path.mkdir()
    (path / f"{0:020d}.log").write_bytes(b"x" * 10)
    spawn(SWAPPER, path, log_dir_path.parent / "aside", outside)
    log_dir = open_log_dir(log_dir_path)
    inventory = None
    seen = set()
    for _ in range(ROUNDS):
        inventory = scan_log_dir(log_dir, inventory)
        for entry in inventory.dirs:
            seen.add((entry.error, entry.bytes))
    # Never a byte of what the symlink leads to.
    assert seen <= {(None, 10), ("symlink", 0)}
    shutil.rmtree(log_dir_path.parent / "aside", ignore_errors=True)
