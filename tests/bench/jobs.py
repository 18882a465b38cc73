"""What is compared with what, and how far it should get. Rounds are interleaved, so that a busy host hits all alike."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from logagent.base.errors import BrokerHoldsLogDir
from logagent.base.records import Identity
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.remove import remove_dir
from logagent.kafka.processes.lock import Interlock
from tests.bench.contenders import Cost, command, java, kafka_way, ours, ours_command
from tests.bench.trees import HEX, log_dir, make_dir, make_file


@dataclass(slots=True)
class Ratio:
    """Our cost over another's, one value a round. goal: at most this (the goals in docs/performance.md)."""

    job: str
    against: str
    goal: float | None
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    @property
    def judged(self) -> list[float]:
        """The values that the goal is about: CPU, where it was measured."""
        return self.cpu or self.wall

    def add(self, mine: Cost, other: Cost) -> None:
        self.cpu.append(mine.cpu / max(other.cpu, 1e-6))
        self.wall.append(mine.wall / max(other.wall, 1e-6))


@dataclass(frozen=True, slots=True)
class Setup:
    where: Path
    small: bool
    rounds: int
    say: Callable[[str], None]

    def sized(self, small: int, full: int) -> int:
        return small if self.small else full


def in_turn(rounds: int, contenders: dict[str, Callable[[], Cost]]) -> Iterator[dict[str, Cost]]:
    """Every contender once a round, each round beginning with another one."""
    names = list(contenders)
    for number in range(rounds):
        shift = number % len(names)
        yield {name: contenders[name]() for name in names[shift:] + names[:shift]}


def removal(setup: Setup) -> list[Ratio]:
    """Marked directories full of small files: ours, `rm -rf`, Kafka's Utils.delete."""
    dirs = setup.sized(80, 760)
    job = f"remove {dirs * 92:,} small files"
    against_rm, against_kafka = Ratio(job, "rm -rf", 1.0), Ratio(job, "Kafka (walkFileTree)", 0.8)

    def fresh(name: str, partitions: int = dirs) -> Path:
        path = setup.where / name
        shutil.rmtree(path, ignore_errors=True)
        return log_dir(path, partitions, 30, size=100, marked=True)

    contenders: dict[str, Callable[[], Cost]] = {
        "ours": lambda: ours("remove", fresh("ours"))[0],
        "rm": lambda: command("rm", "-rf", fresh("rm")),
    }
    if java():
        contenders["kafka"] = lambda: kafka_way("remove", fresh("warm-up", 20), fresh("kafka"), setup.where / "classes")
    for costs in in_turn(setup.rounds, contenders):
        against_rm.add(costs["ours"], costs["rm"])
        if "kafka" in costs:
            against_kafka.add(costs["ours"], costs["kafka"])
    return [against_rm, against_kafka]


def marking(setup: Setup) -> list[Ratio]:
    """Renames to -delete: one fsync for the batch against one for each."""
    dirs = setup.sized(400, 4000)
    ratio = Ratio(f"mark {dirs:,} dirs", "Kafka (rename and fsync each)", 0.2)
    if not java():
        return [ratio]

    def fresh(name: str, partitions: int = dirs) -> Path:
        path = setup.where / name
        shutil.rmtree(path, ignore_errors=True)
        return log_dir(path, partitions, 1)

    contenders: dict[str, Callable[[], Cost]] = {
        "ours": lambda: ours("mark", fresh("ours"))[0],
        "kafka": lambda: kafka_way("mark", fresh("warm-up", 50), fresh("kafka"), setup.where / "classes"),
    }
    for costs in in_turn(setup.rounds, contenders):
        ratio.add(costs["ours"], costs["kafka"])
    return [ratio]


def inventory(setup: Setup) -> list[Ratio]:
    """Full and next inventories against `du -s`, for few and for many segments a partition."""
    ratios = []
    for partitions, segments, next_goal in (
        (setup.sized(500, 5000), 5, 0.2),
        (setup.sized(4, 40), 1000, 0.01),
    ):
        job = f"inventory of {partitions:,} x {segments:,} segments"
        full, following = Ratio(f"full {job}", "du -s", 1.5), Ratio(f"next {job}", "du -s", next_goal)
        tree = log_dir(setup.where / f"inventory-{segments}", partitions, segments)
        command("du", "-s", tree)
        for _ in range(setup.rounds):
            scans = ours("scan", tree)
            du = command("du", "-s", tree)
            full.add(scans[0], du)
            following.add(scans[1], du)
        shutil.rmtree(tree)
        ratios += [full, following]
    return ratios


HOLD_OPEN = """
import sys
files = [open(f"{sys.argv[1]}/t-{n % 100}/{n:020d}.log", "ab") for n in range(int(sys.argv[2]))]
print("ready", flush=True)
sys.stdin.read()
"""


def open_files(setup: Setup) -> list[Ratio]:
    """Who has files open below the log dir: a process with as many descriptors as a broker's."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = min(setup.sized(1900, 19000), hard - 100)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ratio = Ratio(f"open-file check of {descriptors:,} descriptors", "psutil open_files()", None)
    path = setup.where / "open"
    for number in range(100):
        (path / f"t-{number}").mkdir(parents=True)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_OPEN, str(path), str(descriptors)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        argument = f"{path}:{holder.pid}"
        contenders: dict[str, Callable[[], Cost]] = {
            "ours": lambda: ours("open-files", argument)[0],
            "psutil": lambda: ours("psutil", argument)[0],
        }
        for costs in in_turn(setup.rounds, contenders):
            ratio.add(costs["ours"], costs["psutil"])
    finally:
        holder.communicate()
        shutil.rmtree(path)
    return [ratio]


def latency(setup: Setup) -> list[Ratio]:
    """A 4 KiB fsync writer (a broker's neighbour) beside the removal of large files: its p99 and its worst."""
    size, rate = setup.sized(256, 2048) << 20, 200 << 20
    job = f"fsync writer beside a removal of {size >> 20:,} MiB"
    p99 = Ratio(f"{job} at {rate >> 20} MiB/s, p99", "idle", 1.5)
    worst = Ratio(f"{job} at {rate >> 20} MiB/s, worst", "beside rm -rf", None)
    seconds = 0.8 * size / rate

    def large() -> Path:
        path = setup.where / "large"
        shutil.rmtree(path, ignore_errors=True)
        log_dir(path, 4, 0, marked=True)
        for directory in path.iterdir():
            with (directory / f"{0:020d}.log").open("wb") as file:
                for _ in range(size >> 22):
                    file.write(b"x" * (1 << 20))
        subprocess.run(["sync", "-f", str(path)], check=True)
        return path

    for _ in range(setup.rounds):
        idle = write_and_sync(setup.where / "writer", seconds)
        path = large()
        with subprocess.Popen(ours_command("remove-slowly", f"{path}:{rate}"), stdout=subprocess.DEVNULL):
            beside_ours = write_and_sync(setup.where / "writer", seconds)
        path = large()
        with subprocess.Popen(["rm", "-rf", str(path)]):
            beside_rm = write_and_sync(setup.where / "writer", seconds)
        p99.wall.append(percentile(beside_ours, 0.99) / percentile(idle, 0.99))
        worst.wall.append(max(beside_ours) / max(beside_rm))
    return [p99, worst]


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[int(len(values) * part)]


def write_and_sync(path: Path, seconds: float) -> list[float]:
    """How long each 4 KiB write with fsync took, for so many seconds."""
    took = []
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        os.write(fd, b"x" * 4096)
        os.fsync(fd)
        took.append(time.perf_counter() - start)
    os.close(fd)
    return took


LOCKER = """
import fcntl, sys, time
file = open(sys.argv[1], "a")
for line in sys.stdin:
    time.sleep(float(line))
    fcntl.lockf(file, fcntl.LOCK_EX)
    print(time.time(), flush=True)
    sys.stdin.readline()
    fcntl.lockf(file, fcntl.LOCK_UN)
    print("free", flush=True)
"""


def interlock(setup: Setup) -> list[Ratio]:
    """How long after a broker took the lock the last file went, over the shortest time in which one then lists."""
    trials = setup.sized(30, 300)
    ratio = Ratio(f"last unlink after the lock is taken, {trials} times", "18.5 ms (lock to first listing)", 1.0)
    path = setup.where / "interlock"
    path.mkdir()
    locker = subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for trial in range(trials):
            late = one_race(path, locker, 0.001 + 0.03 * trial / trials)
            if late is not None:
                ratio.wall.append(max(late, 0.0) / 0.0185)
    finally:
        locker.communicate()
        shutil.rmtree(path)
    return [ratio]


def one_race(path: Path, locker: subprocess.Popen[str], delay: float) -> float | None:
    """Seconds from the lock to the last unlink; None if the removal was faster."""
    assert locker.stdin is not None
    assert locker.stdout is not None
    name = f"t-0.{HEX}-delete"
    shutil.rmtree(path / name, ignore_errors=True)
    fd = make_dir(path / name)
    for number in range(5000):
        make_file(fd, f"{number:020d}.log", b"")
    os.close(fd)
    found = (path / name).stat()
    with OpenLogDir(str(path), LogDirFailures()) as opened:
        locker.stdin.write(f"{delay}\n")
        locker.stdin.flush()
        try:
            watch = Interlock(opened.fd, opened.path)
            remove_dir(opened, name, Identity(found.st_dev, found.st_ino), watch)
            stopped = False
        except BrokerHoldsLogDir:
            stopped = True
        locked = float(locker.stdout.readline())
        locker.stdin.write("\n")
        locker.stdin.flush()
        locker.stdout.readline()
    # The kernel's own time of the last unlink: ours would count how long we waited for the CPU after it.
    return (path / name).stat().st_mtime_ns / 1e9 - locked if stopped else None


JOBS: dict[str, Callable[[Setup], list[Ratio]]] = {
    "removal": removal,
    "marking": marking,
    "inventory": inventory,
    "open-files": open_files,
    "latency": latency,
    "interlock": interlock,
}
