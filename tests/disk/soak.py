"""Lives with a daemon: creates, marks, fills, breaks and kills, by a seed, and looks all the time whether it holds.

`python -m tests.disk.soak --minutes 30 --seed 7`; its first events are a test. As root one of the two log dirs is a
file system of its own that fills up and goes away. What has to hold: nothing that is assigned or unknown is ever
touched; what is marked goes, sooner or later; memory, descriptors and threads stay flat; the journal stays bounded and,
in the end, settled; and the log says nothing twice in a row.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from logagent.cleanup.state.journal import FILE_NAME, Journal
from logagent.kafka.image import PartitionAssignment, Topic
from tests.daemon_process import DaemonProcess
from tests.disk.conftest import MIB, mounted
from tests.disk.killed import assignments
from tests.host import Host
from tests.host_files import whole_partition
from tests.waiting import wait_until

SETTINGS = {
    "LOGAGENT_KAFKA__VERSION": "3.9.1",
    "LOGAGENT_CLEANUP__MODE": "enforce",
    "LOGAGENT_CLEANUP__INTERVAL": "1s",
    "LOGAGENT_CLEANUP__MAX_FRACTION": "1.0",
    "LOGAGENT_CLEANUP__MAX_DIRS": "1000000",
    "LOGAGENT_CLEANUP__LEFTOVER_GRACE": "0s",
    "LOGAGENT_CLEANUP__STRAY_RETENTION": "2s",
    "LOGAGENT_DELETE__FILE_DELETE_DELAY_MS": "1000",
    "LOGAGENT_HEALTH__PROBE_INTERVAL": "500ms",
    "LOGAGENT_HEALTH__RECOVERY_PROBES": "2",
}
KEPT = 40
MOST_MARKED = 400
SETTLE_SECONDS = 120.0
# Ten times what it takes.
STOP_SECONDS = 20.0
KEPT_IDS = ("DDDDDDDDDDDDDDDDDDDDDA", "CCCCCCCCCCCCCCCCCCCCCA")


@dataclass(slots=True)
class Sample:
    """The daemon from outside: resident memory in MiB, descriptors, threads."""

    seconds: float
    memory: float
    descriptors: int
    threads: int


@dataclass(slots=True)
class Soak:
    root: Path
    seed: int
    log_dirs: list[Path]
    mount: Path | None
    samples: list[Sample] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    daemon: DaemonProcess | None = None
    started: float = 0.0
    made: int = 0

    # The host

    @property
    def host(self) -> Host:
        return Host(self.root, *self.log_dirs, node_id=1)

    def lay_out(self) -> None:
        self.host.format("AAAAAAAAAAAAAAAAAAAAZg", "AAAAAAAAAAAAAAAAAAAAYg")
        for number, path in enumerate(self.log_dirs):
            (path / ".lock").touch()
            for n in range(KEPT):
                whole_partition(path / f"kept{number}-{n}", KEPT_IDS[number])

    def kept(self, path: Path) -> dict[str, int]:
        found = {}
        for entry in sorted(path.glob("kept*")):
            found[entry.name] = sum(1 for _ in entry.iterdir())
        return found

    @property
    def environment(self) -> Mapping[str, str]:
        told = {"SOURCES": "file", "FILE": str(self.root / "assignments.json")}
        return {**SETTINGS, **{f"LOGAGENT_ASSIGNMENTS__{key}": value for key, value in told.items()}}

    def tell(self) -> None:
        """What the cluster has now: what is kept, and of what is marked and set aside nothing."""
        mine = {n: PartitionAssignment((1, 2), (1, 2)) for n in range(KEPT)}
        assignments(self.root, *(Topic(f"kept{k}", KEPT_IDS[k], mine) for k in range(len(self.log_dirs))))

    @contextmanager
    def told(self) -> Iterator[None]:
        """Told every second: a stray whose topic nobody knows stays."""
        ending = threading.Event()

        def work() -> None:
            while not ending.wait(1.0):
                self.tell()

        self.tell()
        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()

    # The daemon

    def start(self) -> None:
        self.daemon = self.host.daemon(**self.environment)
        self.started = time.monotonic()

    def running(self) -> DaemonProcess:
        assert self.daemon is not None
        return self.daemon

    def end(self, *, kill: bool) -> None:
        daemon = self.running()
        if kill:
            daemon.process.kill()
            daemon.process.wait(30)
        else:
            # Before that nothing has begun, and a signal just ends it.
            daemon.wait_for("started")
            began = time.monotonic()
            status = daemon.stop()
            seconds = time.monotonic() - began
            if status != 0 or seconds > STOP_SECONDS:
                last = daemon.text.splitlines()[-1:]
                self.problems.append(f"SIGTERM: status {status} after {seconds:.1f} s; {last}")
        self.read_log_extent(daemon.text)
        daemon.__exit__(None, None, None)

    def read_log_extent(self, text: str) -> None:
        bad = [line for line in text.splitlines() if '"internal-error"' in line or "Traceback" in line]
        self.problems += [f"the log says: {line[:300]}" for line in bad[:3]]
        # Two reloads are two events.
        lines = [line.partition('"level"')[2] for line in text.splitlines() if '"reloaded"' not in line]
        twice = Counter(a for a, b in pairwise(lines) if a == b)
        self.problems += [f"said twice in a row: {line[:200]}" for line in list(twice)[:3]]

    def sample(self) -> None:
        pid = self.running().pid
        with suppress(OSError, ProcessLookupError):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            descriptors = len(os.listdir(f"/proc/{pid}/fd"))
            threads = len(os.listdir(f"/proc/{pid}/task"))
            self.samples.append(Sample(time.monotonic() - self.started, pages * 4096 / MIB, descriptors, threads))

    # What happens to it

    def mark(self, rng: random.Random) -> None:
        """Directories that a broker marked or set aside, whole and renamed into place as brokers do."""
        where = rng.choice(self.log_dirs)
        for _ in range(rng.randint(1, 30)):
            if sum(1 for d in self.log_dirs for _ in d.glob("*.*-*")) > MOST_MARKED:
                return
            self.made += 1
            name = f"made{self.made}-{rng.randint(0, 99)}"
            suffix = rng.choice(("delete", "stray"))
            with suppress(OSError):
                whole_partition(where / name, "EEEEEEEEEEEEEEEEEEEEEA")
                (where / name).rename(where / f"{name}.{rng.getrandbits(128):032x}-{suffix}")
        self.done["marked"] += 1

    def big(self, rng: random.Random) -> None:
        path = self.log_dirs[0] / f"big{self.made}-0.{rng.getrandbits(128):032x}-delete"
        with suppress(OSError):
            path.mkdir()
            with (path / f"{0:020d}.log").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, 200 * MIB)
        self.done["big"] += 1

    def fill(self, rng: random.Random) -> None:
        """The disk fills up, with what is deleted next."""
        if self.mount is None:
            return
        path = self.log_dirs[1] / f"full{self.made}-0.{rng.getrandbits(128):032x}-delete"
        with suppress(OSError):
            path.mkdir()
            with (path / f"{0:020d}.log").open("wb") as file:
                while file.write(bytes(MIB)):
                    pass
        self.done["filled"] += 1

    def purge(self, rng: random.Random) -> None:
        """Somebody else (a broker that starts) removes marked directories first."""
        for entry in rng.sample(marked := sorted(self.log_dirs[0].glob("*-delete")), min(5, len(marked))):
            shutil.rmtree(entry, ignore_errors=True)
        self.done["purged"] += 1

    def lose(self, rng: random.Random) -> None:
        """A log dir is gone for a moment."""
        away = self.root / "away"
        self.log_dirs[0].rename(away)
        time.sleep(rng.uniform(0.1, 3))
        away.rename(self.log_dirs[0])
        self.done["lost"] += 1

    def remount(self, rng: random.Random) -> None:
        if self.mount is None:
            return
        deadline = time.monotonic() + 10
        while subprocess.run(["umount", self.mount], capture_output=True, check=False).returncode:
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)
        time.sleep(rng.uniform(0.1, 3))
        subprocess.run(["mount", "-o", "loop", self.mount.with_suffix(".img"), self.mount], check=True)
        self.done["remounted"] += 1

    def reload(self, rng: random.Random) -> None:
        self.running().wait_for("started")
        self.running().process.send_signal(signal.SIGHUP)
        self.done["reloaded"] += 1

    def restart(self, rng: random.Random) -> None:
        kill = rng.random() < 0.7
        self.end(kill=kill)
        self.start()
        self.done["killed" if kill else "restarted"] += 1

    def command(self, rng: random.Random) -> None:
        """A person acts beside it."""
        ran = self.host.spawn("cleanup", "--execute", "--json", **self.environment)
        if ran.status not in (0, 1, 3, 5) or "Traceback" in ran.err:
            facts = [r["fact"] for r in ran.json["refusals"]] if ran.out else []
            self.problems.append(f"cleanup came to {ran.status}: {facts[-3:]} {ran.err[-300:]}")
        self.done["commands"] += 1

    # The whole

    def run(self, seconds: float, most_events: int | None, say: Callable[[str], None]) -> None:
        rng = random.Random(self.seed)
        self.lay_out()
        before = [self.kept(d) for d in self.log_dirs]
        self.start()
        events = [(self.mark, 40), (self.big, 4), (self.fill, 3), (self.purge, 5), (self.lose, 2), (self.remount, 2),
                  (self.reload, 3), (self.restart, 2), (self.command, 2)]  # fmt: skip
        deadline = time.monotonic() + seconds
        told = time.monotonic()
        while time.monotonic() < deadline and len(self.problems) < 10 and self.done.total() != most_events:
            (event,) = rng.choices([e for e, _ in events], [w for _, w in events])
            event(rng)
            time.sleep(rng.uniform(0, 0.7))
            self.sample()
            if self.running().process.poll() is not None:
                self.problems.append(f"the daemon ended: {self.running().text[-500:]}")
                break
            if time.monotonic() > told + 60:
                told = time.monotonic()
                say(f"{deadline - told:.0f} s left, {dict(self.done)}, {self.samples[-1] if self.samples else ''}")
        self.settle()
        after = [self.kept(d) for d in self.log_dirs]
        if after != before:
            self.problems.append("directories that nobody marked have changed")
        self.end(kill=False)
        self.judge_journal()
        self.judge_samples()

    def settle(self) -> None:
        """Everything that is marked goes in the end, in both log dirs."""

        def left() -> list[str]:
            return [p.name for d in self.log_dirs for p in d.glob("*.*-*") if p.is_dir()]

        try:
            wait_until(lambda: not left(), "everything marked to go", SETTLE_SECONDS)
        except AssertionError as e:
            self.problems.append(f"{e}: {len(left())} are left, such as {left()[:2]}; {self.running().text[-600:]}")

    def judge_journal(self) -> None:
        state = self.root / "state"
        with Journal.open_read_only(str(state)) as journal:
            self.problems += [f"unsettled: {e.intent.action} {e.intent.name}" for e in journal.unsettled()]
            failures = journal.failures()
            rows = len(journal.history())
        if failures:
            self.problems.append(f"{len(failures)} failures are remembered of directories that are gone")
        size = (state / FILE_NAME).stat().st_size
        if size > 2 * MIB + rows * 2048:
            self.problems.append(f"the journal has {size} bytes for {rows} rows")

    def judge_samples(self) -> None:
        """Flat: once it is warm, the later half of a life is no higher than the earlier (at their lowest)."""
        warm = [s for s in self.samples if s.seconds > 15]
        if len(warm) < 20:
            return
        first, second = warm[: len(warm) // 2], warm[len(warm) // 2 :]
        for what, slack in (("descriptors", 4), ("threads", 3), ("memory", 12)):
            low, later = min(getattr(s, what) for s in first), min(getattr(s, what) for s in second)
            if later > low + slack:
                self.problems.append(f"{what} grew from {low} to {later}")


def soak(
    seconds: float,
    seed: int,
    folder: Path,
    most_events: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Soak:
    """One soak; look at `problems`."""
    with ExitStack() as stack:
        mount = None
        if os.geteuid() == 0 and shutil.which("mkfs.ext4") and shutil.which("losetup"):
            (folder / "mounts").mkdir()
            with suppress(subprocess.CalledProcessError):
                mount = mounted(folder / "mounts", "ext4", 300 * MIB, stack)
        dirs = [folder / "d1", mount / "d2" if mount is not None else folder / "d2"]
        life = Soak(folder, seed, dirs, mount)
        try:
            with life.told():
                life.run(seconds, most_events, say)
        finally:
            if life.daemon is not None and life.daemon.process.poll() is None:
                life.daemon.process.kill()
                life.daemon.process.wait(30)
    return life


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.disk.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="logagent-soak-") as folder:
        life = soak(chosen.minutes * 60, chosen.seed, Path(folder), say=lambda text: print(text, flush=True))
    print(f"seed {chosen.seed}: {dict(life.done)}")
    lows = [min(s.memory for s in life.samples), max(s.memory for s in life.samples)]
    print(f"memory {lows[0]:.0f} to {lows[1]:.0f} MiB, descriptors at most {max(s.descriptors for s in life.samples)}")
    for problem in life.problems:
        print(f"  {problem}")
    print(f"{len(life.problems)} problems")
    return min(len(life.problems), 1)


if __name__ == "__main__":
    raise SystemExit(main())
