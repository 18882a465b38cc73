"""The inventory: what it says, that the next one is as exact as a full one, and what it costs in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from logagent.base.errors import KafkaStorageError
from logagent.base.records import Kind, PartitionDir
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.scan import LogDirInventory, scan_log_dir
from tests.long_form import FULL
from tests.needs import need_command, need_root

TOPIC_ID = "4wW2OVqLT8mWpbVbHZVjbA"
METADATA = f"version: 0\ntopic_id: {TOPIC_ID}\n".encode()
HEX = "0123456789abcdef" * 2
SUFFIXES = (".log", ".index", ".timeindex")
SECOND = 1_000_000_000

Open = Callable[[Path], OpenLogDir]


def partition(log_dir: Path, name: str, segments: int = 2, size: int = 5000) -> Path:
    path = log_dir / name
    path.mkdir()
    for number in range(segments):
        for suffix in SUFFIXES:
            (path / f"{number * 100:020d}{suffix}").write_bytes(b"x" * size)
    (path / "partition.metadata").write_bytes(METADATA)
    return path


def by_name(inventory: LogDirInventory) -> dict[str, PartitionDir]:
    return {entry.name: entry for entry in inventory.dirs}


def comparable(inventory: LogDirInventory) -> dict[str, Any]:
    return {
        "dirs": {entry.name: asdict(entry) for entry in inventory.dirs},
        "other": (inventory.other_bytes, inventory.other_allocated),
    }


def du(path: Path) -> int:
    """What `du` says, in bytes; the directory itself included."""
    said = subprocess.run(["du", "-s", "--block-size=512", str(path)], capture_output=True, check=True)
    return int(said.stdout.split()[0]) * 512


def test_a_segment_above_every_offset_has_none(log_dir_path: Path, open_log_dir: Open) -> None:
    """No broker loads it, and no table of ours has a number for it."""
    for number, base in enumerate((2**63 - 1, 2**63)):
        (partition(log_dir_path, f"orders-{number}", segments=1) / f"{base:020d}.log").touch()
    dirs = by_name(scan_log_dir(open_log_dir(log_dir_path)))
    assert [dirs[f"orders-{n}"].last_segment_offset for n in (0, 1)] == [2**63 - 1, None]
    assert [dirs[f"orders-{n}"].segments for n in (0, 1)] == [2, 2]


def test_what_an_inventory_says(log_dir_path: Path, open_log_dir: Open) -> None:
    path = partition(log_dir_path, "orders-7", segments=3)
    os.utime(path / f"{200:020d}.log", ns=(SECOND, 123 * SECOND))
    (path / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")
    partition(log_dir_path, f"orders-8.{HEX}-delete", segments=0)
    partition(log_dir_path, "__cluster_metadata-0", segments=1)
    (log_dir_path / "remote-log-index-cache").mkdir()
    (log_dir_path / "remote-log-index-cache" / "x").write_bytes(b"cache")
    (log_dir_path / "lost+found").mkdir()
    (log_dir_path / "meta.properties").write_bytes(b"version=1\n")
    log_dir = open_log_dir(log_dir_path)
    os.sync()  # what is written late gets its blocks now
    inventory = scan_log_dir(log_dir)
    dirs = by_name(inventory)
    entry = dirs["orders-7"]
    found = path.stat()
    assert (entry.kind, entry.topic, entry.partition, entry.topic_id) == (Kind.CURRENT, "orders", 7, TOPIC_ID)
    assert (entry.segments, entry.first_offset, entry.last_segment_offset) == (3, 0, 200)
    assert (entry.files, entry.bytes) == (11, 9 * 5000 + len(METADATA) + 4)
    assert entry.allocated == du(path)
    assert entry.newest_mtime_ns == 123 * SECOND
    assert (entry.device, entry.inode) == (found.st_dev, found.st_ino)
    assert (entry.mtime_ns, entry.ctime_ns) == (found.st_mtime_ns, found.st_ctime_ns)
    assert entry.error is None
    marked = dirs[f"orders-8.{HEX}-delete"]
    assert (marked.kind, marked.uuid, marked.truncated) == (Kind.DELETE, HEX, False)
    assert (marked.segments, marked.first_offset, marked.last_segment_offset) == (0, None, None)
    assert marked.newest_mtime_ns == marked.mtime_ns
    assert dirs["__cluster_metadata-0"].kind is Kind.METADATA
    assert dirs["remote-log-index-cache"].kind is Kind.CACHE
    assert (dirs["lost+found"].kind, bool(dirs["lost+found"].error)) == (Kind.INVALID, True)
    assert inventory.other_bytes == 3 * 5000 + len(METADATA) + len(b"cache") + len(b"version=1\n")
    space = os.statvfs(log_dir_path)
    assert inventory.size == space.f_blocks * space.f_frsize
    assert 0 < inventory.used < inventory.size
    assert 0 < inventory.free <= inventory.size
    own = log_dir_path.stat().st_blocks * 512
    ledger = sum(e.allocated for e in inventory.dirs if e.kind in (Kind.CURRENT, Kind.DELETE))
    assert ledger + inventory.other_allocated + own == du(log_dir_path)


def test_a_sparse_index_is_not_what_it_claims(log_dir_path: Path, open_log_dir: Open) -> None:
    path = partition(log_dir_path, "orders-0", segments=1)
    with (path / f"{0:020d}.index").open("r+b") as index:
        index.truncate(10 << 20)
    [entry] = scan_log_dir(open_log_dir(log_dir_path)).dirs
    assert entry.bytes > 10 << 20
    assert entry.allocated < 1 << 20


@pytest.mark.parametrize("how", ["symlink", "directory", "fifo"])
def test_a_partition_metadata_that_is_no_file_is_not_read_which_is_not_none(
    log_dir_path: Path, open_log_dir: Open, how: str
) -> None:
    metadata = partition(log_dir_path, "orders-0") / "partition.metadata"
    metadata.unlink()
    if how == "symlink":
        (log_dir_path / "elsewhere").write_bytes(METADATA)
        metadata.symlink_to(log_dir_path / "elsewhere")
    elif how == "directory":
        metadata.mkdir()
    else:
        os.mkfifo(metadata)
    (found,) = scan_log_dir(open_log_dir(log_dir_path)).dirs
    assert found.topic_id is None and found.error is not None and found.error.startswith("partition.metadata")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "lines"), (b"version: 0\n", "lines"), (b"\xff" * 5000, "UTF-8"), (b"\n" * 70_000, "at most"), (None, None)],
)
def test_a_bad_partition_metadata_is_an_error_of_that_directory(
    tmp_path: Path, open_log_dir: Open, content: bytes | None, said: str | None
) -> None:
    path = partition(tmp_path, "orders-0")
    partition(tmp_path, "orders-1")
    (path / "partition.metadata").unlink()
    if content is not None:
        (path / "partition.metadata").write_bytes(content)
    inventory = scan_log_dir(open_log_dir(tmp_path))
    dirs = by_name(inventory)
    assert dirs["orders-0"].topic_id is None
    assert dirs["orders-0"].segments == 2
    assert dirs["orders-1"].topic_id == TOPIC_ID
    if said is None:
        assert inventory.errors == {}
    else:
        assert said in inventory.errors["orders-0"]


@pytest.mark.parametrize("searchable", [True, False])
def test_an_unreadable_directory_is_listed(tmp_path: Path, spawn: Callable[..., Any], searchable: bool) -> None:
    """A log dir that may be listed but not searched tells the names only."""
    need_root()
    tmp_path.chmod(0o755 if searchable else 0o744)
    partition(tmp_path, "orders-0").chmod(0o000)
    partition(tmp_path, "orders-1")
    (tmp_path / "orders-1" / "partition.metadata").chmod(0o000)
    child = spawn(
        """
import os, sys
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.scan import scan_log_dir
import encodings.ascii
with OpenLogDir(sys.argv[1], LogDirFailures()) as log_dir:
    os.setuid(65534)
    print("ready", flush=True)
    for entry in sorted(scan_log_dir(log_dir).dirs, key=lambda entry: entry.name):
        print(entry.name, entry.segments, entry.error, flush=True)
""",
        tmp_path,
    )
    assert child.line() == "orders-0 0 it cannot be opened: Permission denied"
    if searchable:
        assert child.line() == "orders-1 2 partition.metadata cannot be read: Permission denied"
    else:
        assert child.line() == "orders-1 0 it cannot be opened: Permission denied"


def test_a_failing_disk_is_offline(loop_fs: Callable[..., Path], open_log_dir: Open, failures: LogDirFailures) -> None:
    need_command("xfs_io")
    root = loop_fs("xfs")
    partition(root, "orders-0")
    log_dir = open_log_dir(root)
    inventory = scan_log_dir(log_dir)
    subprocess.run(["xfs_io", "-x", "-c", "shutdown", str(root)], check=True)
    with pytest.raises(KafkaStorageError):
        scan_log_dir(log_dir, inventory, slices=1)
    assert failures.reason(log_dir.path)


def age(path: Path, seconds: int = 100) -> None:
    """Let the last change of `path` be so long ago that its mtime can be relied on."""
    past = path.stat().st_mtime_ns - seconds * SECOND
    os.utime(path, ns=(past, past))


def test_only_what_can_have_changed_is_read_again(tmp_path: Path, open_log_dir: Open) -> None:
    for number in range(200):
        age(partition(tmp_path, f"orders-{number}", segments=1))
    log_dir = open_log_dir(tmp_path)
    first = scan_log_dir(log_dir)
    assert first.read_in_full == 200
    second = scan_log_dir(log_dir, first)
    assert second.read_in_full < 10
    (tmp_path / "orders-3" / f"{0:020d}.log").write_bytes(b"x" * 7000)
    partition(tmp_path, "orders-200", segments=1)
    shutil.rmtree(tmp_path / "orders-4")
    third = scan_log_dir(log_dir, second)
    assert third.read_in_full < 10
    assert comparable(third) == comparable(scan_log_dir(log_dir))
    assert third.round == 2
    # Every directory is read in full once in as many scans as there are slices.
    total = 0
    inventory = third
    for _ in range(8):
        inventory = scan_log_dir(log_dir, inventory, slices=8)
        total += inventory.read_in_full
    assert total >= 200


def test_a_change_in_place_of_an_older_file_is_found_by_the_slices(tmp_path: Path, open_log_dir: Open) -> None:
    path = partition(tmp_path, "orders-0", segments=3)
    age(path)
    log_dir = open_log_dir(tmp_path)
    inventory = scan_log_dir(log_dir)
    with (path / f"{0:020d}.log").open("ab") as old:
        old.write(b"more")
    stale = scan_log_dir(log_dir, inventory).dirs[0].bytes
    for _ in range(256):
        inventory = scan_log_dir(log_dir, inventory)
    assert inventory.dirs[0].bytes == stale + 4
    assert comparable(inventory) == comparable(scan_log_dir(log_dir))


def test_a_second_change_within_the_same_tick_is_seen(tmp_path: Path, open_log_dir: Open) -> None:
    """Kernels that stamp by the tick give two changes one mtime: a young mtime is not relied on."""
    path = partition(tmp_path, "orders-0", segments=1)
    log_dir = open_log_dir(tmp_path)
    first = scan_log_dir(log_dir)
    stamp = path.stat().st_mtime_ns
    (path / f"{100:020d}.log").write_bytes(b"x")
    os.utime(path, ns=(stamp, stamp))
    [entry] = scan_log_dir(log_dir, first).dirs
    assert entry.segments == 2


def test_a_mtime_in_the_future_is_never_relied_on(tmp_path: Path, open_log_dir: Open) -> None:
    path = partition(tmp_path, "orders-0", segments=1)
    age(path, -1000)
    log_dir = open_log_dir(tmp_path)
    assert scan_log_dir(log_dir, scan_log_dir(log_dir)).read_in_full == 1


def test_indexes_are_followed_when_a_broker_comes_or_goes(
    tmp_path: Path, open_log_dir: Open, spawn: Callable[..., Any]
) -> None:
    """A start makes each active index 10 MB, a clean stop cuts it: without a record being written."""
    paths = [partition(tmp_path, f"orders-{number}", segments=1) for number in range(40)]
    log_dir = open_log_dir(tmp_path)

    def resize(size: int) -> None:
        for path in paths:
            with (path / f"{0:020d}.index").open("r+b") as index:
                index.truncate(size)

    for path in paths:
        age(path)
    inventory = scan_log_dir(log_dir)
    broker = spawn(
        "import fcntl, sys\nfile = open(sys.argv[1], 'a')\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('ready', flush=True)\nsys.stdin.read()",
        tmp_path / ".lock",
    )
    for size in (1 << 20, 2 << 20):  # while it loads, one scan after the other
        resize(size)
        inventory = scan_log_dir(log_dir, inventory)
        assert comparable(inventory) == comparable(scan_log_dir(log_dir))
    resize(100)
    broker.close()
    inventory = scan_log_dir(log_dir, inventory)
    assert inventory.read_in_full < 10
    assert comparable(inventory) == comparable(scan_log_dir(log_dir))


def test_another_directory_at_the_path_starts_anew(tmp_path: Path, failures: LogDirFailures) -> None:
    path = tmp_path / "logs"
    path.mkdir()
    age(partition(path, "orders-0"))
    with OpenLogDir(str(path), failures) as log_dir:
        inventory = scan_log_dir(log_dir)
    path.rename(tmp_path / "aside")
    path.mkdir()
    with OpenLogDir(str(path), failures) as log_dir:
        again = scan_log_dir(log_dir, inventory)
    assert (again.dirs, again.round) == ([], 0)


class KafkaAtWork(RuleBasedStateMachine):
    """Whatever Kafka does between two scans, an incremental inventory says what a full one would."""

    root: Path

    def __init__(self) -> None:
        super().__init__()
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        self.log_dir = OpenLogDir(str(self.root), LogDirFailures()).__enter__()
        self.inventory: LogDirInventory | None = None
        self.made = 0
        self.clock = time.time_ns() - 10**6 * SECOND

    def teardown(self) -> None:
        self.log_dir.close()

    def tick(self, path: Path) -> None:
        """Stamp what just changed with a time of its own, long ago."""
        self.clock += SECOND
        os.utime(path, ns=(self.clock, self.clock))

    def pick(self, number: int) -> Path | None:
        paths = sorted(path for path in self.root.iterdir() if path.is_dir())
        return paths[number % len(paths)] if paths else None

    def segments(self, path: Path) -> list[str]:
        return sorted(file.name[:20] for file in path.iterdir() if file.name.endswith(".log"))

    def write(self, path: Path, base: str, size: int) -> None:
        for suffix in SUFFIXES:
            with (path / f"{base}{suffix}").open("ab") as file:
                file.write(b"x" * size)
            self.tick(path / f"{base}{suffix}")

    @rule(size=st.integers(0, 9000))
    def create(self, size: int) -> None:
        self.made += 1
        path = self.root / f"orders-{self.made}"
        path.mkdir()
        (path / "partition.metadata").write_bytes(METADATA)
        self.write(path, f"{0:020d}", size)
        self.tick(path)

    @rule(number=st.integers(0, 9), size=st.integers(0, 9000))
    def append(self, number: int, size: int) -> None:
        path = self.pick(number)
        if path is not None and self.segments(path):
            self.write(path, self.segments(path)[-1], size)

    @rule(number=st.integers(0, 9), step=st.integers(1, 1000))
    def roll(self, number: int, step: int) -> None:
        path = self.pick(number)
        if path is not None:
            last = int((self.segments(path) or ["0"])[-1])
            self.write(path, f"{last + step:020d}", 10)
            self.tick(path)

    @rule(number=st.integers(0, 9))
    def retain(self, number: int) -> None:
        """Retention: the oldest segment gets `.deleted` names, then goes."""
        path = self.pick(number)
        if path is not None and len(self.segments(path)) > 1:
            base = self.segments(path)[0]
            for suffix in SUFFIXES:
                file = path / f"{base}{suffix}"
                if number % 2:
                    file.rename(f"{file}.deleted")
                else:
                    file.unlink()
            self.tick(path)

    @rule(number=st.integers(0, 9), size=st.integers(0, 5000))
    def truncate(self, number: int, size: int) -> None:
        """`truncateTo`: later segments go, the newest of the rest gets shorter."""
        path = self.pick(number)
        if path is None or not self.segments(path):
            return
        for base in self.segments(path)[1 + number % 3 :]:
            for suffix in SUFFIXES:
                (path / f"{base}{suffix}").unlink()
            self.tick(path)
        base = self.segments(path)[-1]
        for suffix in SUFFIXES:
            os.truncate(path / f"{base}{suffix}", size)
            self.tick(path / f"{base}{suffix}")

    @rule(number=st.integers(0, 9))
    def abort_transaction(self, number: int) -> None:
        path = self.pick(number)
        if path is not None and self.segments(path):
            base = self.segments(path)[-1]
            fresh = not (path / f"{base}.txnindex").exists()
            with (path / f"{base}.txnindex").open("ab") as file:
                file.write(b"x" * 34)
            self.write(path, base, 100)
            if fresh:
                self.tick(path)

    @rule(number=st.integers(0, 9))
    def mark_or_restore(self, number: int) -> None:
        path = self.pick(number)
        if path is not None:
            if path.name.endswith("-delete"):
                path.rename(self.root / path.name.partition(".")[0])
            else:
                path.rename(f"{path}.{HEX}-delete")

    @rule(number=st.integers(0, 9))
    def remove(self, number: int) -> None:
        path = self.pick(number)
        if path is not None:
            shutil.rmtree(path)

    @rule(number=st.integers(0, 9))
    def recreate(self, number: int) -> None:
        """The same name, another directory."""
        path = self.pick(number)
        if path is not None:
            shutil.rmtree(path)
            path.mkdir()
            self.write(path, f"{0:020d}", number)
            self.tick(path)

    @rule()
    def checkpoint(self) -> None:
        (self.root / "recovery-point-offset-checkpoint").write_bytes(b"0\n0\n")

    @invariant()
    def incremental_says_what_full_says(self) -> None:
        self.inventory = scan_log_dir(self.log_dir, self.inventory)
        assert comparable(self.inventory) == comparable(scan_log_dir(self.log_dir))


def test_incremental_is_as_exact_as_full(tmp_path: Path) -> None:
    machine = type("Machine", (KafkaAtWork,), {"root": tmp_path / "logs"})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_memory_for_a_hundred_thousand_partitions_is_120_mb(loop_fs: Callable[..., Path]) -> None:
    count = 100_000 if FULL else 25_000
    root = loop_fs("tmpfs", 1 << 30, "")
    log_dir = root / "logs"
    log_dir.mkdir()
    (root / "metadata").write_bytes(METADATA)
    fd = os.open(log_dir, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(count):
        name = f"some-team.some-long-topic-name-{number // 20}-{number % 20}"
        os.mkdir(name, dir_fd=fd)
        os.mknod(f"{name}/{number * 1_000_003:020d}.log", dir_fd=fd)
        os.link(root / "metadata", f"{name}/partition.metadata", dst_dir_fd=fd)
    os.close(fd)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            """
import sys
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.scan import scan_log_dir
with OpenLogDir(sys.argv[1], LogDirFailures()) as log_dir:
    inventory = None
    for _ in range(3):
        inventory = scan_log_dir(log_dir, inventory)
        assert len(inventory.dirs) == int(sys.argv[2]) and not inventory.errors
# Not ru_maxrss: that begins with what the parent had when it forked.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
""",
            str(log_dir),
            str(count),
        ],
        capture_output=True,
        check=True,
        text=True,
    )
    # 18 MB: what Python and the product take for themselves.
    assert int(done.stdout) < 18 * 1024 + count
