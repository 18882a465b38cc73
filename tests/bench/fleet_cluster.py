"""`python -m tests.bench.fleet_cluster STORE [WORKERS…]`: one date of a planted store on a standalone cluster.

Each worker has one core, pinned where there are as many. The CPU of the driver and of each worker's executors stand
apart: on a machine that does much else the largest of the latter says what the wall clock would on idle cores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from tests.spark.test_cluster import LOOPBACK, Standalone

MEMORY = ("--conf", "spark.executor.memory=2g", "--conf", "spark.driver.memory=2g")


def cpu_of(root: int, seen: dict[int, float]) -> None:
    """Adds the CPU seconds of a process and of what it started, by process."""
    try:
        for each in (psutil.Process(root), *psutil.Process(root).children(recursive=True)):
            times = each.cpu_times()
            seen[each.pid] = times.user + times.system
    except psutil.NoSuchProcess:
        pass


def run_on(store: Path, workers: int, folder: Path) -> None:
    with ExitStack() as stack:
        cluster = Standalone(folder, stack, size=workers, memory="2500m")
        cluster.start()
        for number, worker in enumerate(cluster.workers):
            if workers <= (os.cpu_count() or 1):
                os.sched_setaffinity(worker.pid, {number})
        for made in ("commits", "runs", "tables", "report"):
            shutil.rmtree(store / made, ignore_errors=True)
        command = [
            sys.executable,
            "-m",
            "logagent",
            "fleet",
            "ingest",
            "-v",
            "--store",
            str(store),
            "--keep-landing",
            "off",
        ]
        command += ["--report", str(store / "report"), "--master", cluster.url, *LOOPBACK, *MEMORY]
        began = time.monotonic()
        driver, of_worker = dict[int, float](), [dict[int, float]() for _ in cluster.workers]
        with (folder / "said").open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
            while process.poll() is None:
                cpu_of(process.pid, driver)
                for worker, seen in zip(cluster.workers, of_worker, strict=True):
                    cpu_of(worker.pid, seen)
                time.sleep(0.2)
        assert process.returncode == 0, (folder / "said").read_text()[-3000:]
        assert "executors cannot read" not in (folder / "said").read_text()
        executors = [sum(seen.values()) for seen in of_worker]
        each = ", ".join(f"{cpu:.1f}" for cpu in executors)
        wall = time.monotonic() - began
        print(f"{workers} workers: driver {sum(driver.values()):.1f} CPU s (its Python {driver[process.pid]:.1f}),"
              f" executors {each}, largest {max(executors):.1f}; wall {wall:.0f} s", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet_cluster", description=__doc__)
    parser.add_argument("store", type=Path, help="made by tests.bench.fleet_night: only its landing is used")
    parser.add_argument("workers", nargs="*", type=int, default=[1, 2])
    chosen = parser.parse_args()
    for workers in chosen.workers:
        with tempfile.TemporaryDirectory(prefix="logagent-fleet-cluster-") as folder:
            run_on(chosen.store, workers, Path(folder))


if __name__ == "__main__":
    main()
