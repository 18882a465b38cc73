"""Whole commands, from their start to their exit, against the tool that an operator would take instead."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.bench.contenders import Cost, command
from tests.bench.jobs import Ratio, Setup, in_turn
from tests.bench.trees import kafka_dirs, log_dir, served_dirs
from tests.broker.rig.jars import kafka_jars
from tests.host_files import format_log_dir, write_toml

# Nothing waits, and no plan is too large.
SETTINGS = {
    "LOGAGENT_KAFKA__VERSION": "3.9.1",
    "LOGAGENT_CLEANUP__MAX_FRACTION": "1.0",
    "LOGAGENT_CLEANUP__MAX_DIRS": "1000000",
    "LOGAGENT_CLEANUP__LEFTOVER_GRACE": "0s",
    "LOGAGENT_DELETE__FILE_DELETE_DELAY_MS": "0",
}
NO_SETTINGS: Mapping[str, str] = {}


def cleanup(setup: Setup) -> list[Ratio]:
    """`cleanup --execute` of marked directories full of small files, beyond the start of a bare Python."""
    dirs = setup.sized(65, 652)
    whole = Ratio(f"cleanup --execute of {dirs * 92:,} small files, beyond a bare Python", "rm -rf", 1.3)
    start = Ratio("the same with nothing to do: its start", "rm -rf of those", None)
    listing = Ratio("du -s of those", "rm -rf of those", None)
    empty = format_log_dir(setup.where / "empty")

    def fresh(name: str) -> Path:
        path = setup.where / name
        shutil.rmtree(path, ignore_errors=True)
        return format_log_dir(log_dir(path, dirs, 30, size=0, marked=True))

    def cleaned() -> Cost:
        path, state = fresh("ours"), setup.where / "state"
        cost = ours("cleanup", "--execute", "--log-dir", path, "--state-dir", state)
        assert not list(path.glob("*-delete"))
        return cost

    contenders: dict[str, Callable[[], Cost]] = {
        "ours": cleaned,
        "start": lambda: ours("cleanup", "--execute", "--log-dir", empty, "--state-dir", setup.where / "state"),
        "du": lambda: command("du", "-s", fresh("rm")),
        "rm": lambda: command("rm", "-rf", fresh("rm")),
        "python": bare_python,
    }
    with environment(SETTINGS):
        for costs in in_turn(setup.rounds, contenders):
            rm, bare = costs["rm"], costs["python"]
            for ratio, cost in ((whole, costs["ours"]), (start, costs["start"])):
                ratio.add(Cost(cost.cpu - bare.cpu, cost.wall - bare.wall), rm)
            listing.add(costs["du"], rm)
    return [whole, start, listing]


def partitions(setup: Setup) -> list[Ratio]:
    """`cleanup --execute` of partitions as Kafka leaves them, against `rm -rf`: full ones, and near-empty ones."""
    dirs = setup.sized(400, 4000)
    made = [("of 100 MB logs", 100 << 20, 4.5), ("near-empty", 4096, 6.0)]
    ratios = []
    for words, records, goal in made:
        ratio = Ratio(f"cleanup --execute of {dirs:,} partitions {words} (3 segments x 4 files)", "rm -rf", goal)
        name = words.replace(" ", "-")

        def fresh(which: str, records: int = records, name: str = name) -> Path:
            path = setup.where / f"{which}-{name}"
            shutil.rmtree(path, ignore_errors=True)
            return format_log_dir(kafka_dirs(path, dirs, records=records))

        def cleaned(fresh: Callable[[str], Path] = fresh) -> Cost:
            path = fresh("ours")
            cost = ours("cleanup", "--execute", "--log-dir", path, "--state-dir", setup.where / "state")
            assert not list(path.glob("*-delete"))
            return cost

        def removed(fresh: Callable[[str], Path] = fresh) -> Cost:
            return command("rm", "-rf", fresh("rm"))

        with environment(SETTINGS):
            for costs in in_turn(setup.rounds, {"ours": cleaned, "rm": removed}):
                ratio.add(costs["ours"], costs["rm"])
        ratios.append(ratio)
    return ratios


def explain(setup: Setup) -> list[Ratio]:
    """`explain` of every partition of a host, against `scan` of the same."""
    dirs = setup.sized(10_000, 100_000)
    whole = Ratio(f"explain of {dirs:,} partitions of 3 segments", "scan", 2.0)
    memory = Ratio("its memory", "scan", 1.1)
    path = format_log_dir(served_dirs(setup.where / "served", dirs))
    where = ("--json", "--log-dir", path, "--state-dir", setup.where / "no-state")
    contenders: dict[str, Callable[[], Cost]] = {
        "explain": lambda: ours("explain", "--log-dirs-only", *where),
        "scan": lambda: ours("scan", *where),
    }
    with environment(SETTINGS):
        for costs in in_turn(setup.rounds, contenders):
            whole.add(costs["explain"], costs["scan"])
            memory.wall.append(costs["explain"].memory / costs["scan"].memory)
    return [whole, memory]


def starts(setup: Setup) -> list[Ratio]:
    """What it takes to start: each value is the median of many, for one start is a few clock ticks."""
    path = format_log_dir(setup.where / "starts")
    config = write_toml(setup.where / "logagent.toml", {"kafka.version": "3.9.1"})
    queue = ("queue", "--log-dir", path, "--state-dir", setup.where / "no-state")
    contenders: dict[str, Callable[[], Cost]] = {
        "--version": lambda: ours("--version"),
        "explain": lambda: ours("explain", "--names", "orders-0"),
        "queue": lambda: ours(*queue),
        "queue, with a setting (pydantic)": lambda: ours(*queue, "--config", config),
    }
    ratios = {name: Ratio(f"logagent {name}", "a bare Python", 3.0) for name in contenders}
    # What no command can be below that imports them.
    for modules in ("click", "click, sqlite3, pydantic.main"):
        name = f"python -c 'import {modules}'"
        contenders[name] = partial(command, sys.executable, "-c", f"import {modules}")
        ratios[name] = Ratio(name, "a bare Python", None)
    with environment():
        for _ in range(setup.rounds):
            rounds = list(in_turn(setup.sized(5, 15), {**contenders, "python": bare_python}))
            bare = _median(costs["python"] for costs in rounds)
            for name, ratio in ratios.items():
                ratio.add(_median(costs[name] for costs in rounds), bare)
    return list(ratios.values())


# A broker: its lock, and a descriptor for every log (with every second one mapped, as indexes are).
HOLD = """
import ctypes, fcntl, os, sys
lock = open(f"{sys.argv[1]}/.lock", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
mmap = ctypes.CDLL(None).mmap
mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
for n in range(int(sys.argv[2])):
    fd = os.open(f"{sys.argv[1]}/held-{n % 100}/{n:020d}.log", os.O_RDWR | os.O_CREAT)
    os.truncate(fd, 4096)
    if n % 2:
        mmap(None, 4096, 1, 1, fd, 0)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def descriptor_holder(path: Path, descriptors: int) -> Iterator[None]:
    """A process that has the log dir's lock and so many of its files open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for number in range(100):
        (path / f"held-{number}").mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-c", HOLD, str(path), str(min(descriptors, hard - 100))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        yield
        holder.communicate()


def beside_broker(setup: Setup) -> list[Ratio]:
    """Beside a broker with 16,000 descriptors: `queue` with a configuration, and a removal from another log dir on the
    same file system at the default rate, as a share of a core (beyond the start of the command)."""
    queued = Ratio("queue with a configuration beside 16,000 descriptors", "kafka-topics.sh --version", 1.0)
    share = Ratio("removal at the default rate beside 16,000 descriptors", "a core", 0.04)
    held = format_log_dir(setup.where / "held")
    config = write_toml(setup.where / "beside.toml", {"kafka.version": "3.9.1"})
    state = ("--state-dir", setup.where / "state")
    jars = kafka_jars("3.5.2")

    def queue() -> Cost:
        return ours("queue", "--log-dir", held, "--config", config, *state)

    def topics() -> Cost:
        return command("java", "-Xmx256M", "-cp", jars.classpath, "kafka.admin.TopicCommand", "--version")

    def removing(dirs: int) -> Cost:
        path = setup.where / "removed"
        shutil.rmtree(path, ignore_errors=True)
        kafka_dirs(path, dirs, records=8192)
        for log in path.glob("*/*.log"):
            with log.open("rb+") as file:
                os.posix_fallocate(file.fileno(), 0, 16 << 20)
        format_log_dir(path)
        return ours("cleanup", "--execute", "--log-dir", path, *state)

    with environment(SETTINGS), descriptor_holder(held, 16_000):
        for costs in in_turn(setup.rounds, {"ours": queue, "kafka": topics}):
            queued.wall.append(costs["ours"].wall / costs["kafka"].wall)
        for _ in range(setup.rounds):
            start, whole = removing(0), removing(setup.sized(16, 64))
            share.cpu.append((whole.cpu - start.cpu) / (whole.wall - start.wall))
    return [queued, share]


def _median(costs: Iterable[Cost]) -> Cost:
    found = list(costs)
    return Cost(statistics.median(c.cpu for c in found), statistics.median(c.wall for c in found))


def ours(*words: str | Path) -> Cost:
    return command(sys.executable, "-m", "logagent", *words)


def bare_python() -> Cost:
    return command(sys.executable, "-c", "pass")


@contextmanager
def environment(settings: Mapping[str, str] = NO_SETTINGS) -> Iterator[None]:
    """Exactly these settings. Compiled files are used, as they are where it is installed."""
    before = dict(os.environ)
    for name in before:
        if name.startswith("LOGAGENT_") or name == "PYTHONDONTWRITEBYTECODE":
            del os.environ[name]
    os.environ.update(settings)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


COMMAND_JOBS: dict[str, Callable[[Setup], list[Ratio]]] = {
    "cleanup": cleanup,
    "partitions": partitions,
    "explain": explain,
    "starts": starts,
    "beside-broker": beside_broker,
}
