"""Log dirs in every kind of mess, and what a rescue may take of each: for tests of `logagent rescue`.

A `Mess` is made of `Thing`s; `make` lays them out in two log dirs of one file system and returns what is there.
`may_go` is what the rules of `logagent rescue` allow, written down here a second time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from logagent.base.dir_names import CLEANER, LOG_START_OFFSET, delete_name, stray_name
from logagent.base.records import TopicPartition
from logagent.kafka.extents import EpochEnd
from logagent.kafka.files.checkpoint_files import parse_checkpoint, render_checkpoint
from logagent.kafka.image import BrokerRegistration, PartitionAssignment, Topic
from tests.host import Host
from tests.host_files import future_name, write_partition
from tests.metadata_writer import batch, id_of

NODE, OTHER = 3, 4

Sort = Literal[
    "assigned", "no-id", "orphan", "moved-away", "moved-nowhere", "stray", "stray-living", "stray-covered",
    "stray-covered-elsewhere", "stray-uncovered", "stray-hole", "stray-emptied", "stray-begun", "stray-no-id",
    "stray-internal", "delete", "future", "future-living", "double", "double-alike", "double-diverged", "double-hole",
    "double-emptied", "copy", "copy-stray", "copy-elsewhere", "copy-uncovered", "copy-hole", "linked", "sparse",
    "invalid",
]  # fmt: skip
SORTS: tuple[Sort, ...] = get_args(Sort)


@dataclass(frozen=True)
class Thing:
    sort: Sort
    kib: int = 256
    second_dir: bool = False
    age_days: float = 30


@dataclass
class Mess:
    """What was laid out. `may_go`: paths that may be offered while the broker is stopped; of each tuple only one may.
    `if_led`: of what `stays`, paths that may where this node is known to lead their partition."""

    root: Path
    log_dirs: tuple[Path, Path]
    topics: list[Topic] = field(default_factory=list)
    may_go: list[tuple[Path, ...]] = field(default_factory=list)
    stays: list[Path] = field(default_factory=list)
    if_led: list[Path] = field(default_factory=list)

    @property
    def assignments(self) -> Path:
        return self.root / "assignments.json"


class ThisNodeLeads:
    """Stands in for the brokers of the cluster: every partition is led by this host's own broker."""

    def epoch_ends(self, asked: Mapping[Any, Any], *_: Any, **__: Any) -> dict[Any, EpochEnd]:
        return {key: EpochEnd("this node", None, None, led_here=True) for key in asked}

    def close(self) -> None:
        pass


def make(root: Path, things: Sequence[Thing]) -> Mess:
    host = Host(root, node_id=NODE).format()
    mess = Mess(root, (host.d1, host.d2))
    # Assignments without a topic prove nothing.
    mess.topics.append(Topic("elsewhere", id_of(1000), {0: PartitionAssignment((OTHER,), (OTHER,))}))
    for number, thing in enumerate(things):
        _make(mess, thing, number)
    for log_dir in mess.log_dirs:
        current = {TopicPartition(p.name[:-2], 0): 40 for p in log_dir.glob("t*-0")}
        (log_dir / CLEANER).write_bytes(render_checkpoint(current))
    brokers = {n: BrokerRegistration(n, (), fenced=False) for n in (NODE, OTHER)}
    host.export(*mess.topics, at_ms=time.time_ns() // 1_000_000 + 1_000, brokers=brokers)
    return mess


def _make(mess: Mess, thing: Thing, n: int) -> None:
    here, there = mess.log_dirs[:: -1 if thing.second_dir else 1]
    topic, topic_id, uuid = f"t{n}", id_of(n + 1), f"{n:032x}"
    lives = Topic(topic, topic_id, {0: PartitionAssignment((NODE,), (NODE,))})
    current, stray = here / f"{topic}-0", here / stray_name(topic, 0, uuid)
    old = time.time() - thing.age_days * 86_400

    def at(path: Path, *, end: int = 100, epochs: tuple[tuple[int, int], ...] = ((1, 0),), ident: bool = True) -> Path:
        _log(path, thing.kib, end, epochs, topic_id if ident else None, old)
        return path

    match thing.sort:
        case "assigned":
            mess.topics.append(lives)
            mess.stays.append(at(current))
        case "no-id":
            mess.stays.append(at(current, ident=False))
        case "orphan":
            mess.may_go.append((at(current),))
        case "moved-away":
            # Its leader, which cannot be asked here, may have none of its records.
            mess.topics.append(Topic(topic, topic_id, {0: PartitionAssignment((OTHER,), (OTHER,))}))
            mess.stays.append(at(current))
        case "moved-nowhere":
            mess.topics.append(Topic(topic, topic_id, {0: PartitionAssignment((OTHER,), ())}))
            mess.stays.append(at(current))
        case "stray":
            mess.may_go.append((at(stray),))
        case "stray-living":
            mess.topics.append(lives)
            mess.stays.append(at(stray))
        case "stray-covered" | "stray-uncovered":
            mess.topics.append(lives)
            mess.stays.append(at(current, end=120 if thing.sort == "stray-covered" else 90))
            mess.stays.append(at(stray))
            mess.if_led += [stray] if thing.sort == "stray-covered" else []
        case "stray-covered-elsewhere":
            mess.topics.append(lives)
            mess.stays += [at(there / current.name, end=120), at(stray)]
            mess.if_led.append(stray)
        case "stray-hole" | "stray-emptied" | "stray-begun":
            mess.topics.append(lives)
            mess.stays += [at(stray), at(current, end=120)]
            match thing.sort:
                case "stray-hole":
                    (current / f"{0:020d}.log").write_bytes(b"")
                case "stray-emptied":
                    _starts_at(here, topic, 500)
                case _:
                    current.chmod(0o4755)
        case "stray-no-id":
            mess.stays.append(at(stray, ident=False))
        case "stray-internal":
            mess.stays.append(at(here / stray_name("__consumer_offsets", n, uuid)))
        case "delete":
            mess.may_go.append((at(here / delete_name(topic, 0, uuid)),))
        case "future":
            mess.may_go.append((at(here / future_name(topic, 0, uuid)),))
        case "future-living":
            mess.topics.append(lives)
            mess.stays.append(at(here / future_name(topic, 0, uuid)))
        case "double":
            mess.topics.append(lives)
            mess.may_go.append((at(current, end=110),))
            mess.stays.append(at(there / current.name, end=120))
        case "double-alike":
            mess.topics.append(lives)
            mess.may_go.append((at(current), at(there / current.name)))
        case "double-diverged":
            mess.topics.append(lives)
            mess.stays.append(at(current, end=110, epochs=((1, 0), (2, 100))))
            mess.stays.append(at(there / current.name, end=150, epochs=((1, 0), (3, 100))))
        case "double-hole":
            mess.topics.append(lives)
            mess.stays += [at(current, end=110), at(there / current.name, end=120)]
            (there / current.name / f"{0:020d}.log").write_bytes(b"")
        case "double-emptied":
            mess.topics.append(lives)
            mess.stays += [at(current, end=110), at(there / current.name, end=120)]
            _starts_at(there, topic, 500)
        case "copy" | "copy-stray" | "copy-elsewhere":
            mess.topics.append(lives)
            mess.stays.append(at((there if thing.sort == "copy-elsewhere" else here) / current.name, end=120))
            name = f"backup{n}-0" if thing.sort != "copy-stray" else stray_name(f"backup{n}", 0, uuid)
            mess.stays.append(at(here / name))
            mess.if_led.append(here / name)
        case "copy-uncovered" | "copy-hole":
            mess.topics.append(lives)
            mess.stays += [at(current, end=90 if thing.sort == "copy-uncovered" else 120), at(here / f"backup{n}-0")]
            if thing.sort == "copy-hole":
                (current / f"{0:020d}.log").write_bytes(b"")
        case "linked":
            mess.may_go.append((at(stray),))
            os.link(stray / "00000000000000000000.log", mess.root / f"linked-{n}")
        case "sparse":
            mess.may_go.append((at(stray),))
            os.truncate(stray / "00000000000000000000.timeindex", 10 << 20)
        case "invalid":
            path = here / ("lost+found" if n % 2 else f"bar{n}")
            if not path.exists():
                path.mkdir()
                (path / "it").write_bytes(b"x" * thing.kib * 1024)
                mess.stays.append(path)


def _starts_at(log_dir: Path, topic: str, offset: int) -> None:
    starts = log_dir / LOG_START_OFFSET
    known = parse_checkpoint(starts.read_bytes()) if starts.exists() else {}
    starts.write_bytes(render_checkpoint({**known, TopicPartition(topic, 0): offset}))


def _log(
    path: Path, kib: int, end: int, epochs: tuple[tuple[int, int], ...], topic_id: str | None, written: float
) -> None:
    """A log from offset 0 to `end`: a closed segment of `kib`, and an active one whose last batch can be read."""
    active = 80
    closed = [os.urandom(kib * 1024 // active)] * (active // 4)
    quarters = [batch(base, closed, 1_700_000_000_000, epoch=epochs[0][0]) for base in range(0, active, active // 4)]
    batches = [batch(active, [b"r"] * (min(end, 100) - active), 1_700_000_000_000, epoch=epochs[0][0])]
    if end > 100:
        batches.append(batch(100, [b"r"] * (end - 100), 1_700_000_000_000, epoch=epochs[-1][0]))
    write_partition(path, {0: b"".join(quarters), active: b"".join(batches)}, epochs=epochs, topic_id=topic_id)
    # One entry each, of the second batch, as of a segment that was closed.
    (path / f"{0:020d}.index").write_bytes(struct.pack(">ii", active // 4, len(quarters[0])))
    (path / f"{0:020d}.timeindex").write_bytes(struct.pack(">qi", 1_700_000_000_000, active // 4))
    for file in path.iterdir():
        os.utime(file, (written, written))


def content(path: Path) -> str:
    """A digest of everything in a directory."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        digest.update(str(file.relative_to(path)).encode() + (file.read_bytes() if file.is_file() else b""))
    return digest.hexdigest()


def free(point: Path) -> int:
    """What statvfs says is free, root's reserve included (a fill by root takes that too)."""
    os.sync()
    room = os.statvfs(point)
    return room.f_bfree * room.f_frsize


def fill_bytes(point: Path) -> Path:
    """Fill the file system to the last byte, as whoever wrote last did."""
    ballast = point / "ballast"
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        size = 0
        for step in (64 << 20, 1 << 20, 64 << 10, 4 << 10):
            with suppress(OSError):
                while True:
                    os.posix_fallocate(fd, size, step)
                    size += step
        for step in (4096, 512):
            with suppress(OSError):
                while True:
                    os.pwrite(fd, b"x" * step, size)
                    size += step
        os.fsync(fd)
    finally:
        os.close(fd)
    return ballast


def fill_all_but(point: Path, size: int) -> Path:
    """Fill the file system until users other than root have `size` bytes left, or up to 64 KiB more."""
    ballast = point / "ballast"
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        filled = 0
        while (more := os.fstatvfs(fd).f_bavail * os.fstatvfs(fd).f_frsize - size) > 64 << 10:
            # Not all at once: the file system's own books grow, too.
            more = max(64 << 10, more // 2) & ~0xFFF
            os.posix_fallocate(fd, filled, more)
            filled += more
        os.fsync(fd)
    finally:
        os.close(fd)
    return ballast


def fill_inodes(point: Path) -> Path:
    """Make files until no inode is left."""
    where = point / "inodes"
    where.mkdir()
    with suppress(OSError):
        for number in range(10_000_000):
            os.close(os.open(where / str(number), os.O_WRONLY | os.O_CREAT, 0o600))
    return where


@contextmanager
def lock_held(log_dir: Path) -> Iterator[None]:
    """A broker that may still be starting: this process's parent cannot hold it, so a child does."""
    read, write = os.pipe()
    ready, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        fd = os.open(log_dir / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.lockf(fd, fcntl.LOCK_EX)
        os.write(said, b"x")
        os.read(read, 1)
        os._exit(0)
    try:
        os.read(ready, 1)
        yield
    finally:
        os.write(write, b"x")
        os.waitpid(pid, 0)
        for fd in (read, write, ready, said):
            os.close(fd)
