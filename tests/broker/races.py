"""Races between a broker that starts, runs, stops and dies, and a `cleanup --execute` with zero ages that never rests.

    python -m tests.broker.races --version 3.9.1 --rounds 300 --full 20
    python -m tests.broker.races --version 3.5.2 --mode zookeeper --rounds 100 --full 10 --without-interlock

Whether a start without the interlock is hit is chance; `held_up` makes one that is hit for certain.

Before each start the stopped broker's log dirs get fresh directories of every kind that cleanup may act on (`-delete`,
`-stray`, proven orphans), made of real segments; the removal is slowed by a byte budget so that it spans the start.
Most rounds kill the broker at a random moment between its lock and "Loaded N logs"; full ones wait until it serves and
read every record of the assigned partitions. What must never happen: a log dir offline, a failed start, a record lost.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.broker.rig.jars import version_tuple
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.broker.rig.rig import Rig

Mode = Literal["kraft", "zookeeper"]
TEMPLATE = "filler"
KEPT = "kept"
# Directories that wait for the remover in one log dir.
MOST_LITTER = 24
ZERO_AGES = {
    "LOGAGENT_ASSIGNMENTS__MAX_AGE": "1d",
    "LOGAGENT_CLEANUP__SIGHTINGS": "1",
    "LOGAGENT_CLEANUP__MIN_AGE": "0s",
    "LOGAGENT_CLEANUP__STRAY_RETENTION": "0s",
    "LOGAGENT_CLEANUP__LEFTOVER_GRACE": "0s",
    "LOGAGENT_CLEANUP__MAX_DIRS": "1000000",
    "LOGAGENT_CLEANUP__MAX_FRACTION": "1",
    "LOGAGENT_DELETE__FILE_DELETE_DELAY_MS": "0",
    "LOGAGENT_GUARD__SETTLE": "0s",
}
LOCKED = re.compile(r"Loading logs from log dirs|Skipping recovery of|Recovering (?:logs|all)|Loading logs")
PURGED = re.compile(r"Deleted log for partition gone-")
LOADED = re.compile(r"Loaded \d+ logs")
TROUBLE = re.compile(
    r"Stopping serving logs in dir|Error while (?:loading|deleting|writing|renaming)[^\n]*"
    r"|Shutdown broker because[^\n]*|Failed to acquire lock[^\n]*"
    r"|There was an error in one of the threads during logs loading[^\n]*"
    r"|Exiting Kafka[^\n]*|KafkaStorageException[^\n]*"
)


@dataclass
class Tally:
    """What the rounds came to. `troubles` must stay empty."""

    full: int = 0
    killed: int = 0
    yielded: int = 0
    removed: int = 0
    troubles: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Remover:
    """A running `tests.broker.remover`: its process and the log of what it did."""

    pid: int
    log: Path


class Race:
    """One broker and one remover on the same log dirs."""

    def __init__(
        self, rig: Rig, version: str, mode: Mode, seed: int, *, interlock: bool = True, purge_after: float = 1
    ) -> None:
        """purge_after: the broker's own delay before it removes what it found marked, in seconds."""
        self.random = random.Random(seed)
        self.mode = mode
        self.interlock = interlock
        self.ready_seconds = 90.0
        self.tally = Tally()
        # 4.x has a minimum of 1 MiB.
        self.segment_bytes, self.segments = (1 << 20, 6) if version_tuple(version) >= (4, 0) else (1 << 16, 24)
        props = {
            "log.segment.delete.delay.ms": f"{purge_after * 1000:.0f}",
            "log.segment.bytes": str(self.segment_bytes),
        }
        if version_tuple(version) >= (3, 6):
            props["log.initial.task.delay.ms"] = "500"
        self.node: KafkaNode = rig.kafka(version, log_dirs=2, mode=mode, props=props)
        self.state = self.node.root / "state"
        self.template = self.node.root / "template"
        self.expected: dict[int, int] = {}

    def prepare(self) -> None:
        """Fill the partitions that must survive, and take real segments as the template of what may go."""
        node = self.node
        node.start()
        node.create_topic(KEPT, partitions=4)
        node.create_topic(TEMPLATE, partitions=1)
        for partition in range(4):
            self.expected[partition] = len(node.produce(KEPT, partition, n=200))
        node.produce(TEMPLATE, 0, n=8 * self.segments, size=self.segment_bytes // 8)
        node.stop()
        made = next(d / f"{TEMPLATE}-0" for d in node.log_dirs if (d / f"{TEMPLATE}-0").is_dir())
        shutil.copytree(made, self.template)

    def litter(self) -> None:
        """Put fresh directories of each kind into the log dirs of the stopped broker."""
        kinds = ["delete", "delete", "stray", "orphan"]
        if version_tuple(self.node.version) < (3, 6, 1):
            kinds[2] = "delete"  # no broker starts with a -stray dir
        if self.mode == "zookeeper":
            kinds.pop()  # no source proves it an orphan here
        for log_dir in self.node.log_dirs:
            # What piles up where the broker is always quicker would only exhaust its file descriptors.
            room = MOST_LITTER - sum(1 for d in log_dir.iterdir() if d.name.startswith("gone-"))
            for kind in self.random.sample(kinds, len(kinds))[: max(room, 0)]:
                self._litter_one(log_dir, kind)

    def _litter_one(self, log_dir: Path, kind: str) -> Path:
        name = f"gone-{self.random.randrange(1000)}-{self.random.randrange(8)}"
        marked = name if kind == "orphan" else f"{name}.{uuid.UUID(int=self.random.getrandbits(128)).hex}-{kind}"
        target = log_dir / marked
        if not target.exists():
            # Under a name that the remover does not look at until it is whole.
            hidden = self.node.root / f"new-{marked}"
            shutil.copytree(self.template, hidden)
            self._new_topic_id(hidden)
            hidden.rename(target)
        return target

    def _new_topic_id(self, directory: Path) -> None:
        metadata = directory / "partition.metadata"
        if metadata.exists():
            text = base64.urlsafe_b64encode(self.random.randbytes(16))[:22].decode()
            metadata.write_text(re.sub(r"topic_id: \S+", f"topic_id: {text}", metadata.read_text()))

    @contextlib.contextmanager
    def remover(self) -> Iterator[Remover]:
        """The process that cleans up all the while."""
        log = self.node.root / "remover.jsonl"
        # Longer than any start takes for what `litter` brings, so that there is always a removal under way.
        rate = self.segment_bytes * self.segments * 6 // 10
        environment = {**os.environ, **ZERO_AGES, "LOGAGENT_DELETE__BYTES_PER_SECOND": str(rate)}
        if self.mode != "zookeeper":
            environment["LOGAGENT_KAFKA__VERSION"] = self.node.version
        stop = self.node.root / "remover.stop"
        paths = [self.node.config, self.state, log, stop]
        command = [sys.executable, "-m", "tests.broker.remover", *map(str, paths)]
        if not self.interlock:
            command.append("--without-interlock")
        with open(self.node.root / "remover.err", "ab") as errors:
            process = subprocess.Popen(command, env=environment, stderr=errors)
        try:
            wait_until(log.exists, 30, "the remover is ready")
            yield Remover(process.pid, log)
        finally:
            process.send_signal(signal.SIGCONT)
            stop.touch()
            try:
                # It first carries out the plan that it is at, slowly as it is: all the litter that is left.
                process.wait(300)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self.tally.troubles.append("the remover did not stop")
            if process.returncode != 0:
                self.tally.troubles.append(f"the remover exited {process.returncode}")

    def round(self, *, full: bool) -> None:
        """Start the broker amid the removal; kill it while it loads, or (`full`) let it serve and check everything."""
        node = self.node
        self.litter()
        # So that starts meet every phase of the removal.
        time.sleep(self.random.uniform(0, 0.8))
        node.start_async()
        if full:
            self._serve()
            self.tally.full += 1
        else:
            self._kill_while_loading()
            self.tally.killed += 1
        if node.alive:  # Not ready in time: that is a trouble of this round, and the next one starts it again.
            node.kill()
        self._note_troubles(f"{'full' if full else 'killed'} round {self.rounds}")

    def _note_troubles(self, where: str) -> None:
        self.tally.troubles.extend(f"{where}: {line}" for line in TROUBLE.findall(self.node.log_text()))

    def held_up(self) -> None:
        """One start for which the remover is held up (SIGSTOP) in the middle of a marked directory: the broker loads
        what is left of it, and only then does the remover go on.

        Nothing here is chance. A broker that has loaded a marked directory renames each of its segments before it
        removes them (`LogSegment.changeFileSuffixes`), and takes the log dir offline for the first `.log` that is gone.
        Without a look at `.lock` the remover unlinks all of them in less than `purge_after`.
        """
        node = self.node
        self.prepare()
        marked = self._litter_one(node.log_dirs[0], "delete")

        def left() -> int:
            return len(list(marked.glob("*.log")))

        whole = left()
        with self.remover() as remover:
            wait_until(lambda: left() < whole, 60, "the removal has begun", interval=0.001)
            os.kill(remover.pid, signal.SIGSTOP)
            assert left() > whole // 2, "the removal was held up too late"
            node.start_async().wait_log(LOADED.pattern, self.ready_seconds)
            os.kill(remover.pid, signal.SIGCONT)
            self._serve(until=lambda: PURGED.search(node.log_text()) or TROUBLE.search(node.log_text()))
        self.tally.full += 1
        self._count(remover.log)
        self._note_troubles("held up")

    @property
    def rounds(self) -> int:
        return self.tally.full + self.tally.killed

    def _kill_while_loading(self) -> None:
        node = self.node
        deadline = time.monotonic() + 60
        while not LOCKED.search(node.log_text()):
            if not node.alive or time.monotonic() > deadline:
                self.tally.troubles.append(f"failed start, exit {node.exit_status}: {node.log_tail(4)}")
                return
            time.sleep(0.01)
        until = time.monotonic() + self.random.uniform(0, 0.6)
        while time.monotonic() < until and not LOADED.search(node.log_text()):
            time.sleep(0.005)
        if not node.alive:
            self.tally.troubles.append(f"failed start, exit {node.exit_status}: {node.log_tail(4)}")
            return
        node.kill()

    def _serve(self, until: Callable[[], object] | None = None) -> None:
        """Wait until it serves, and for `until` (else a moment); ask for its log dirs, read everything, end it."""
        node = self.node
        try:
            node.wait_ready(self.ready_seconds)
        except AssertionError as e:
            self.tally.troubles.append(f"failed start: {e}")
            return
        if until is None:
            time.sleep(self.random.uniform(0, 2.5))
        else:
            wait_until(lambda: bool(until()), 60, "the broker has purged what was marked, or failed")
        offline = node.offline_dirs()
        if offline:
            self.tally.troubles.append(f"offline: {offline}")
        else:
            self._read_everything()
        if self.random.random() < 0.5:
            node.stop()
        else:
            node.kill()

    def _read_everything(self) -> None:
        from kafka.errors import KafkaError

        for partition, count in self.expected.items():
            try:
                found = len(self.node.read_all(KEPT, partition))
            except (KafkaError, AssertionError) as e:
                self.tally.troubles.append(f"{KEPT}-{partition} cannot be read: {e}")
                return
            if found != count:
                self.tally.troubles.append(f"{KEPT}-{partition}: {found} of {count} records")

    def run(self, rounds: int, full: int, report: bool = False, most_troubles: int = 20) -> Tally:
        """`rounds` rounds, `full` of them in full and spread evenly; the last one is always full.

        Ends before that where there were more than `most_troubles`.
        """
        self.prepare()
        every = max(1, rounds // max(full, 1))
        with self.remover() as remover:
            for number in range(rounds):
                self.round(full=(number + 1) % every == 0 or number == rounds - 1)
                if report and (number + 1) % 10 == 0:
                    print(f"{number + 1}/{rounds} rounds, {len(self.tally.troubles)} troubles", flush=True)
                if len(self.tally.troubles) > most_troubles:
                    break
        self._count(remover.log)
        return self.tally

    def _count(self, log: Path) -> None:
        for line in log.read_text().splitlines():
            row = json.loads(line)
            self.tally.yielded += row.get("yielded", 0)
            self.tally.removed += row.get("done", 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="3.9.1")
    parser.add_argument("--mode", default="kraft", choices=("kraft", "zookeeper"))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--full", type=int, default=6)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--without-interlock", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="logagent-races-") as root:
        rig = Rig(Path(root))
        started = time.monotonic()
        try:
            race = Race(rig, options.version, options.mode, options.seed, interlock=not options.without_interlock)
            tally = race.run(options.rounds, options.full, report=True)
        finally:
            rig.close()
    for trouble in tally.troubles:
        print(trouble)
    print(
        f"{options.version} {options.mode} seed {options.seed}: {tally.full} full and {tally.killed} killed rounds in"
        f" {time.monotonic() - started:.0f} s; {tally.removed} removed or set aside, {tally.yielded} times yielded,"
        f" {len(tally.troubles)} troubles"
    )
    return 1 if tally.troubles else 0


if __name__ == "__main__":
    sys.exit(main())
