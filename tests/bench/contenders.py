"""Runs one contender as a process of its own and tells what it cost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("KafkaWay.java")


@dataclass(frozen=True, slots=True)
class Cost:
    """cpu: user and system seconds. wall: seconds that passed. memory: the most that it had, in KiB; 0 if unknown."""

    cpu: float
    wall: float
    memory: int = 0


def command(*words: str | Path, silent: bool = False) -> Cost:
    """A whole command, told by the kernel when it ended. `silent`: what it says on stderr is not wanted either."""
    start = time.perf_counter()
    with open(os.devnull, "wb") as nothing:
        process = subprocess.Popen([str(word) for word in words], stdout=nothing, stderr=nothing if silent else None)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{words} ended with {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - start, usage.ru_maxrss)


def ours_command(job: str, argument: str | Path) -> list[str]:
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.bench.ours import JOBS; "
    return [sys.executable, "-c", f"{start}JOBS[sys.argv[1]](sys.argv[2])", job, str(argument)]


def ours(job: str, argument: str | Path) -> list[Cost]:
    """What `tests.bench.ours` says of itself, a line each."""
    done = subprocess.run(ours_command(job, argument), stdout=subprocess.PIPE, check=True, text=True)
    return [Cost(float(cpu), float(wall)) for cpu, wall in map(str.split, done.stdout.splitlines())]


@cache
def java() -> str | None:
    return shutil.which("java") if shutil.which("javac") else None


def kafka_way(job: str, warm_up: Path, path: Path, classes: Path) -> Cost:
    """Kafka's own way, in a JVM that has done it once on `warm_up`."""
    if not classes.exists():
        subprocess.run(["javac", "-d", str(classes), str(SOURCE)], check=True)
    done = subprocess.run(
        ["java", "-cp", str(classes), "KafkaWay", job, str(warm_up), str(path)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    cpu, wall = map(float, done.stdout.split())
    return Cost(cpu, wall)
