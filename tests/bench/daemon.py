"""`python -m tests.bench.daemon [DIRS…]`: what the daemon costs on hosts with so many partition directories.

A stopped broker's two log dirs and its metadata log are laid out, with one directory that is due in the delete queue
and one stray, which waits for another broker's word. Then `logagent run` is started as a process of its own with its
defaults (HTTP metrics, probes, status socket) in enforce mode, and looked at from outside:

- seconds from its start (interpreter and imports included) to its first action, and to its first plan of a whole
  inventory; its peak memory until then, and in the end;
- with several sizes: what each further directory adds to that;
- what it costs while nothing happens, over `--idle` seconds; what a following cycle costs; and what both come to at the
  default of one cycle in ten minutes.

`du -s` of the same tree and a Python that does nothing are measured in the same run. Nothing fails because a machine
was slow.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests import metadata_writer as writer
from tests.bench.contenders import Cost, command
from tests.bench.trees import HEX, make_dir, make_file
from tests.host import ALL_DUE, Host
from tests.host_files import write_properties

NODE, CLUSTER = 1, "AAAAAAAAAAAAAAAAAAAAbg"
PER_TOPIC = 10
BROKERS = 10
# The default of cleanup.interval, and what shows some cycles without waiting for half an hour.
CYCLE_SECONDS = 600
# CPU seconds and MB to the first plan of a usual host, and microseconds and KB of each directory beyond.
USUAL_DIRS, USUAL_SECONDS, USUAL_MB = 4_000, 1.5, 55
FURTHER_US, FURTHER_KB = 70, 1.5
FAST_CYCLE_SECONDS = 2
FOLLOWING_CYCLES = 5
DUE, OLD = f"gone-0.{HEX}-delete", f"old-0.{HEX}-stray"
_TICK = os.sysconf("SC_CLK_TCK")


class BigHost(Host):
    """A broker's disk with so many partition directories in two log dirs."""

    def __init__(self, root: Path, dirs: int) -> None:
        super().__init__(root, node_id=NODE, cluster_id=CLUSTER)
        self.dirs = dirs

    def topic(self, number: int) -> str:
        return f"team-{number % 97}.orders-and-payments.v{number // PER_TOPIC}"

    def lay_out(self) -> None:
        ids = [writer.id_of(1_000_000_000 + n) for n in range(2)]
        self.format(*ids)
        for path in self.log_dirs:
            (path / ".lock").touch()
        for number in range(self.dirs):
            topic_id = writer.id_of(number // PER_TOPIC)
            self._partition(self.log_dirs[number % 2] / f"{self._topic_of(number)}-{number % PER_TOPIC}", topic_id)
        self._partition(self.d1 / DUE, writer.id_of(10_000_001))
        self._partition(self.d2 / OLD, writer.id_of(10_000_002))
        self._metadata(self.d1 / "__cluster_metadata-0", ids)
        properties = {
            "node.id": NODE,
            "process.roles": "broker,controller",
            "log.dirs": ",".join(map(str, self.log_dirs)),
        }
        properties |= {"controller.quorum.voters": f"{NODE}@localhost:9093"}
        write_properties(self.properties, properties)
        subprocess.run(["sync", "-f", str(self.root)], check=True)

    def _topic_of(self, number: int) -> str:
        return self.topic(number // PER_TOPIC * PER_TOPIC)

    def _partition(self, path: Path, topic_id: str) -> None:
        fd = make_dir(path)
        # Sparse: sizes as a broker's (indexes are preallocated), and no block of them.
        random = Random(path.name)
        base = random.randrange(1 << 40)
        for suffix, size in ((".log", random.randrange(1 << 30)), (".index", 10 << 20), (".timeindex", 10 << 20)):
            make_file(fd, f"{base:020d}{suffix}", b"")
            os.truncate(path / f"{base:020d}{suffix}", size)
        make_file(fd, "leader-epoch-checkpoint", b"0\n0\n")
        make_file(fd, "partition.metadata", f"version: 0\ntopic_id: {topic_id}\n".encode())
        os.close(fd)
        os.utime(path, (1, 1))

    def _metadata(self, directory: Path, ids: list[str]) -> None:
        random = Random(self.dirs)
        others = {
            node: [writer.id_of(2_000_000_000 + 2 * node + n) for n in range(2)] for node in range(2, BROKERS + 1)
        }
        values = [writer.feature_level("metadata.version", 21), writer.register_broker(NODE, ids, fenced=False)]
        for number in range(self.dirs):
            topic_id = writer.id_of(number // PER_TOPIC)
            if number % PER_TOPIC == 0:
                values.append(writer.topic(self._topic_of(number), topic_id))
            nodes = [NODE, *random.sample(range(2, BROKERS + 1), 2)]
            where = [ids[number % 2], *(random.choice(others[node]) for node in nodes[1:])]
            leader = random.choice(nodes)
            values.append(
                writer.partition(topic_id, number % PER_TOPIC, nodes, leader=leader, directories=where, version=1)
            )
        directory.mkdir()
        writer.write_quorum_state(directory, NODE, [NODE])
        now_ms = time.time_ns() // 1_000_000
        writer.write_snapshot(directory, 1000, writer.snapshot(values, now_ms, voters=[NODE]))

    def cycle_every(self, interval: str, publish: bool = False) -> None:
        settings: dict[str, object] = {
            **ALL_DUE, "assignments.max_age": "365d", "cleanup.mode": "enforce", "cleanup.interval": interval,
            "cleanup.max_fraction": 1.0, "metrics.listen": "127.0.0.1:0",
        }  # fmt: skip
        if publish:
            (self.root / "store").mkdir(exist_ok=True)
            settings["publish.store"] = f"{self.root}/store"
        self.configure(**settings)


@dataclass(slots=True)
class Daemon:
    """A running `logagent run`, as seen from outside."""

    process: subprocess.Popen[str]
    started: float
    events: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

    def read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.events.append((time.perf_counter() - self.started, json.loads(line)))

    def wait_for(self, seconds: float, **fields: str) -> tuple[float, dict[str, Any]]:
        """When the first event with these fields came, and the event."""
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline and self.process.poll() is None:
            for at, event in list(self.events):
                if fields.items() <= event.items():
                    return at, event
            time.sleep(0.005)
        raise RuntimeError(f"no event {fields}; the daemon said {[event for _, event in self.events]}")

    def memory_mb(self, what: str) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"no {what}")

    def cpu(self) -> float:
        """Seconds of the process and of the children that it has seen end."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICK

    def cycles(self) -> float:
        """How many cleanup cycles have ended, by its own metrics."""
        _, said = self.wait_for(20, event="metrics")
        with urllib.request.urlopen(f"http://{said['listen']}/metrics", timeout=20) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith('logagent_cycle_seconds_count{cycle="cleanup"}'):
                    return float(line.split()[1])
        return 0.0

    def next_cycle(self) -> float:
        """Wait until a cycle has ended, and tell how many have."""
        before, deadline = self.cycles(), time.perf_counter() + 300
        while (now := self.cycles()) == before:
            if time.perf_counter() > deadline:
                raise RuntimeError("no cycle ends")
            time.sleep(0.05)
        return now


@contextmanager
def running(host: BigHost, publish: bool) -> Iterator[Daemon]:
    host.cycle_every(f"{CYCLE_SECONDS}s", publish)
    shutil.rmtree(host.state, ignore_errors=True)
    words = [sys.executable, "-m", "logagent", *host.arguments("run")]
    started = time.perf_counter()
    process = subprocess.Popen([*words, "--log-format", "json"], stderr=subprocess.PIPE, text=True)
    daemon = Daemon(process, started)
    reader = threading.Thread(target=daemon.read)
    reader.start()
    try:
        yield daemon
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        reader.join()


Row = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class FirstPlan:
    """What it took from the start to the first plan of `dirs` directories."""

    dirs: int
    cpu: float
    mb: float


def measure(host: BigHost, idle_seconds: float, publish: bool) -> tuple[FirstPlan, list[Row]]:
    du = command("du", "-s", *host.log_dirs)
    nothing = command(sys.executable, "-c", "pass")
    with running(host, publish) as daemon:
        patience, further = 60 + host.dirs / 1000, max(0, host.dirs - USUAL_DIRS)
        first, _ = daemon.wait_for(patience, event="action", name=DUE)
        first_cpu = daemon.cpu()
        planned, _ = daemon.wait_for(patience, event="cycle", job="cleanup")
        plan = FirstPlan(host.dirs, daemon.cpu(), daemon.memory_mb("VmHWM"))
        goal, goal_mb = USUAL_SECONDS + further * FURTHER_US / 1e6, USUAL_MB + further * FURTHER_KB / 1024
        rows = [
            row("start to the first action (delete queue)", Cost(first_cpu, first), 3, nothing, "python -c pass"),
            row("start to the first plan", Cost(plan.cpu, planned), round(goal, 1), du, "du -s"),
            ("peak memory until then", f"{plan.mb:.0f} MB", f"{goal_mb:.0f} MB", met(plan.mb <= goal_mb)),
        ]
        rows += idle(host, daemon, idle_seconds)
        rows.append(("memory in the end", f"{daemon.memory_mb('VmRSS'):.0f} MB", "", ""))
        peak = daemon.memory_mb("VmHWM")
        rows.append(("peak memory in the end", f"{peak:.0f} MB", "", ""))
        ending = time.perf_counter()
    rows.append(
        ("SIGTERM to exit", f"{time.perf_counter() - ending:.2f} s", "5 s", met(time.perf_counter() - ending <= 5))
    )
    assert daemon.process.returncode == 0
    return plan, rows


def idle(host: BigHost, daemon: Daemon, seconds: float) -> list[Row]:
    """CPU of so many seconds in which no cycle comes, then that of some cycles that come fast."""
    if not seconds:
        return []
    time.sleep(5)
    started, cpu, before = time.perf_counter(), daemon.cpu(), daemon.cycles()
    time.sleep(min(seconds, CYCLE_SECONDS - 60))
    quiet = (daemon.cpu() - cpu) / (time.perf_counter() - started)
    if daemon.cycles() != before:
        raise RuntimeError("a cycle came in what was to be the quiet time")
    host.cycle_every(f"{FAST_CYCLE_SECONDS}s")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for(60, event="reloaded")
    started, started, cpu = daemon.next_cycle(), time.perf_counter(), daemon.cpu()
    for _ in range(FOLLOWING_CYCLES):
        ended = daemon.next_cycle()
    each = (daemon.cpu() - cpu - quiet * (time.perf_counter() - started)) / (ended - started)
    share = quiet + each / CYCLE_SECONDS
    return [
        ("CPU while nothing happens (probes)", f"{quiet:.2%} of a core", "", ""),
        ("a following cycle", f"{each:.2f} s CPU", "", ""),
        (f"idle CPU, a cycle every {CYCLE_SECONDS} s", f"{share:.2%} of a core", "1%", met(share <= 0.01)),
    ]


def row(what: str, cost: Cost, goal: float, other: Cost, name: str) -> Row:
    seen = f"{cost.wall:.2f} s ({cost.cpu:.2f} s CPU; {cost.cpu / other.cpu:.1f} of {name})"
    return what, seen, f"{goal} s CPU", met(cost.cpu <= goal)


def further_directories(small: FirstPlan, large: FirstPlan) -> Row:
    """What each directory beyond the smaller host's added: linear if it is as much at any size."""
    dirs = large.dirs - small.dirs
    us, kb = 1e6 * (large.cpu - small.cpu) / dirs, 1024 * (large.mb - small.mb) / dirs
    what = f"each directory from {small.dirs:,} to {large.dirs:,}"
    met_both = us <= FURTHER_US and kb <= FURTHER_KB
    return what, f"{us:.0f} µs CPU, {kb:.2f} KB", f"{FURTHER_US} µs, {FURTHER_KB} KB", met(met_both)


def met(yes: bool) -> str:
    return "yes" if yes else "no"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.daemon", description=__doc__)
    parser.add_argument("dirs", nargs="*", type=int, default=[USUAL_DIRS, 100_000], help="(default 4,000 and 100,000)")
    parser.add_argument("--idle", type=float, default=180, help="seconds to watch it do nothing (default 180)")
    parser.add_argument("--publish", action="store_true", help="publish a snapshot with the first cycle, too")
    parser.add_argument("--dir", type=Path, help="where to work: the file system that is measured")
    parser.add_argument("--keep", type=Path, help="lay the host out here, or use the one that is here, and keep it")
    chosen = parser.parse_args()
    if chosen.keep and len(chosen.dirs) > 1:
        parser.error("--keep is for one number of directories")
    plans: list[FirstPlan] = []
    for dirs in chosen.dirs:
        with tempfile.TemporaryDirectory(prefix="logagent-bench-", dir=chosen.dir) as where:
            host = BigHost(chosen.keep or Path(where) / "host", dirs)
            make_ready(host)
            plan, rows = measure(host, chosen.idle, chosen.publish)
        plans.append(plan)
        print(f"\n{dirs:,} directories\n\n" + as_table([("what", "seen", "goal", "met"), *rows]), flush=True)
    if len(plans) > 1:
        print("\n" + as_table([("what", "seen", "goal", "met"), further_directories(plans[0], plans[-1])]))


def make_ready(host: BigHost) -> None:
    """A host with the two directories that a run before may have removed."""
    if not host.root.exists():
        print(f"laying out {host.dirs:,} directories ...", file=sys.stderr, flush=True)
        host.lay_out()
        return
    for path, name in ((host.d1, DUE), (host.d2, OLD)):
        if not (path / name).exists():
            host._partition(path / name, writer.id_of(10_000_001))


def as_table(rows: list[Row]) -> str:
    widths = [max(len(line[column]) for line in rows) for column in range(4)]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
