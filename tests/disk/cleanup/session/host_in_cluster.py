"""A host in a cluster that lives (`tests.living_cluster`), and what no command may do to it: fewer records, whatever
the cluster decided, whatever the disk knows of that, without the operator's word for exactly that."""

from __future__ import annotations

import hashlib
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from logagent.base.console.options import Call
from logagent.base.dir_names import classify
from logagent.base.errors import ConfigError
from logagent.base.records import Kind
from logagent.base.units import DAY_MS
from logagent.kafka.image import PartitionAssignment, Topic
from logagent.kafka.processes.target import refuse_switch
from logagent.service.daemon.command import load
from logagent.service.daemon.scheduling import RunConfig
from tests.command_line import Ran, process
from tests.host import Host
from tests.host_files import (
    age,
    format_log_dir,
    records,
    write_epochs,
    write_export,
    write_partition,
)
from tests.living_cluster import (
    CLUSTER_ID,
    DIRECTORY_IDS,
    HERE,
    MINUTE_MS,
    NAME,
    OTHER,
    LivingCluster,
    TopicNow,
    answering,
    now_ms,
    offsets,
    write_log,
)
from tests.metadata_writer import NO_OP, batch, id_of

PARTITION = f"{NAME}-0"
SEGMENTS = (0, 100)
STRAY_SINCE, NEW, OLD = (3, 6, 1), (3, 9, 1), (3, 5, 2)
WRITTEN_MS = 2 * DAY_MS
LESS_THAN_A_SEGMENT = 1000
BEFORE_ORDERS = 3

# Opens a file by a path that leads nowhere outside of its mount namespace.
ELSEWHERE = """
import ctypes, subprocess, sys
real, inside, file = sys.argv[1:]
assert ctypes.CDLL(None).unshare(0x00020000) == 0  # CLONE_NEWNS
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "--bind", real, inside], check=True)
held = open(inside + "/" + file)
print("ready", flush=True)
sys.stdin.read()
"""


class Records(NamedTuple):
    """One segment of `orders-0`: offsets from `first` to before `end`, of one leader epoch."""

    topic_id: str
    epoch: int
    first: int
    end: int
    content: str


class Truth(NamedTuple):
    """What is decided about `orders-0`."""

    topic_id: str
    replicas: tuple[int, ...]
    retention: tuple[int, ...]


class Found(NamedTuple):
    inode: int
    kind: Kind
    records: frozenset[Records]


class HostInCluster(Host):
    """Two log dirs and the metadata log of a broker that is stopped. `version`: of the broker that starts next;
    `kafka.version` always says 3.9.1. `synced`: how much of the cluster's log it had when it stopped."""

    def __init__(self, root: Path, port: int) -> None:
        super().__init__(root, node_id=HERE, cluster_id=CLUSTER_ID)
        self.cluster = LivingCluster(port)
        self.metadata = root / "md" / "__cluster_metadata-0"
        (root / "elsewhere").mkdir()
        for path, directory_id in zip((*self.log_dirs, root / "md"), (*DIRECTORY_IDS, id_of(77)), strict=True):
            format_log_dir(path, directory_id, node_id=HERE, cluster_id=CLUSTER_ID)
            (path / ".lock").touch()
        self.version = NEW
        self.in_kraft_mode(True)
        settings: dict[str, object] = {
            "cleanup.max_fraction": 1.0, "cleanup.sightings": 1, "cleanup.min_age": "0s",
            "cleanup.stray_retention": "0s", "delete.file_delete_delay_ms": 0,
            # That it has run for a while is no sign that it serves.
            "guard.settle": "0s",
        }  # fmt: skip
        self.configure(**settings)
        self.at_first = self._load()
        self.topic = self.cluster.create(NAME, at_ms=self.cluster.begins_ms)
        self.make(self.d1 / PARTITION, self.topic.topic_id)
        self.make(self.d2 / "kept-0", self.cluster.topics["kept"].topic_id, SEGMENTS[:1])
        self.sync()
        # Lineage and versions are remembered from a first look on.
        self.run("cleanup", "--execute")

    def in_kraft_mode(self, yes: bool) -> None:
        mode = "process.roles=broker\n" if yes else "zookeeper.connect=nowhere:2181\n"
        # What a reverted migration leaves in the file, too.
        mode += f"controller.quorum.voters=100@nowhere:9093\nmetadata.log.dir={self.root}/md\n"
        rest = f"node.id={HERE}\nbroker.id={HERE}\nlisteners=PLAINTEXT://127.0.0.1:1\nlog.dirs={self.d1},{self.d2}\n"
        self.properties.write_text(f"{mode}controller.listener.names=C\n{rest}")

    def make(self, path: Path, topic_id: str, bases: Sequence[int] = SEGMENTS) -> None:
        """A directory that is as old as the cluster."""
        write_partition(path, records(bases, at_ms=now_ms() - WRITTEN_MS), epochs=[(0, 0)], topic_id=topic_id)
        age(path, as_first_topics())

    # What is known of the cluster here

    def sync(self) -> None:
        """The broker ran until now: its metadata log has all of it."""
        self.cluster.beat()
        self.true_log = list(self.cluster.written)
        self.was, self.trusted = self.truth(), True
        write_log(self.metadata, self.true_log)

    def truth(self) -> Truth | None:
        topic = self.cluster.topics.get(NAME)
        return None if topic is None else Truth(topic.topic_id, topic.replicas, tuple(topic.retention.values()))

    def roll_back(self, *, fresh: bool) -> None:
        """To before `orders` was made. `fresh`: a quorum that was restored from a backup goes on from there."""
        self.trusted = False
        early = self.true_log[:BEFORE_ORDERS]
        at, more = offsets(early), list[bytes]()
        while fresh and at < self.cluster.offset + 3:
            more.append(batch(at, [NO_OP], now_ms(), epoch=self.cluster.epoch))
            at += 1
        write_log(self.metadata, [*early, *more])

    def export_without_it(self) -> str:
        """What a clone exported that never had `orders`: dated to now, and with a log that goes on further."""
        kept = self.cluster.topics["kept"]
        topic = Topic("kept", kept.topic_id, {0: PartitionAssignment(kept.replicas, kept.isr)})
        more = {"cluster_id": CLUSTER_ID, "offset": self.cluster.offset + 100}
        return str(write_export(self.root / "exported.json", topic, at_ms=now_ms(), **more))

    def why_no_reload(self) -> str | None:
        """Why a daemon that runs with the configuration of the beginning does not take what the files say now."""
        try:
            refuse_switch(self.at_first.target.log_dirs, self._load().target)
        except ConfigError as e:
            return str(e)
        return None

    def _load(self) -> RunConfig:
        return load(Call(None, str(self.toml), (), str(self.state), None, True, False, False), reread=True)

    def assigned(self, topic: TopicNow | None = None) -> bool:
        topic = topic or self.cluster.topics.get(NAME)
        return topic is not None and HERE in topic.replicas

    @property
    def knowable(self) -> bool:
        """Whether what this host's disk knew, or somebody who can be asked, is how it is. Without a metadata log to
        rest on nobody is asked, and a plan says that nothing is known."""
        return self.trusted and (self.cluster.reachable or self.was == self.truth())

    # What is on the disk

    def found(self) -> dict[str, Found]:
        dirs = (p for d in self.log_dirs for p in d.iterdir() if p.is_dir() and p.name.startswith(f"{PARTITION}"))
        return {f"{p.parent.name}/{p.name}": self._found(p) for p in dirs}

    def _found(self, path: Path) -> Found:
        topic_id = (path / "partition.metadata").read_text().split()[-1]
        found = set()
        for log in path.glob("*.log"):
            content = log.read_bytes()
            if content:
                first, epoch = int.from_bytes(content[:8], "big"), int.from_bytes(content[12:16], "big")
                end = first + int.from_bytes(content[57:61], "big")
                found.add(Records(topic_id, epoch, first, end, hashlib.sha256(content).hexdigest()))
        return Found(path.stat().st_ino, classify(path.name).kind, frozenset(found))

    def aside(self) -> list[Path]:
        return sorted(p for d in self.log_dirs for p in d.iterdir() if p.name.startswith(f"{PARTITION}."))

    def current(self) -> Path | None:
        return next((d / PARTITION for d in self.log_dirs if (d / PARTITION).is_dir()), None)

    # What is done to it

    def logagent(self, command: str, *words: str) -> Ran:
        with answering(self.cluster):
            return super().run(command, "--json", *words)

    def run(self, *arguments: str) -> Ran:
        """Run it, with an approval where it asks for one, and hold what it did against the truth."""
        command, *words = arguments
        before = self.found()
        ran = self.logagent(command, *words)
        if ran.status == 4:
            ran = self.logagent(command, *words, "--approve", ran.json["plan_id"])
        self.hold(before, command, words, ran)
        return ran

    def hold(self, before: dict[str, Found], command: str, words: Sequence[str], ran: Ran) -> None:
        after = self.found()
        said = f"{command} {' '.join(words)}: status {ran.status}\n{ran.out}\n{ran.err}"
        lost = safe(before) - safe(after)
        if "--even-last-copy" in words and command == "delete":
            lost = frozenset()
        for r in lost:
            end = max(other.end for found in before.values() if r in found.records for other in found.records)
            there = self.cluster.has(r.topic_id, r.epoch, end)
            assert there or not self.cluster.lives(r.topic_id), f"{r} is lost by {said}"
        was_here = self.was is not None and HERE in self.was.replicas
        if self.assigned() and was_here and "--allow-assigned" not in words:
            for name, found in before.items():
                kept = found.kind is not Kind.CURRENT or self._is_of_another(found) or name in after
                assert kept, f"{name} is assigned here, and taken away by {said}"
        strays = {name for name, f in after.items() if f.kind is Kind.STRAY} - before.keys()
        assert not strays or self.version >= STRAY_SINCE, f"no broker starts with {strays} of {said}"
        twins = [name for name, f in after.items() if f.kind is Kind.CURRENT]
        assert len(twins) < 2, f"{twins} are the same partition after {said}"
        if command == "restore" and ran.status == 0 and "--execute" in words:
            self._hold_restore(words, said)

    def _is_of_another(self, found: Found) -> bool:
        living = self.cluster.topics[NAME].topic_id
        return any(r.topic_id != living for r in found.records)

    def _hold_restore(self, words: Sequence[str], said: str) -> None:
        """What its broker would do to it: retention, truncation, and removal of what is not assigned."""
        path, topic = self.current(), self.cluster.topics.get(NAME)
        if path is None or not self.knowable:
            return
        records = self._found(path).records
        if topic is None or HERE not in topic.replicas or any(r.topic_id != topic.topic_id for r in records):
            goes = self.version < STRAY_SINCE and records
            assert not goes or "--broker-will-delete" in words, f"a start removes it, after {said}"
            return
        expires = 0 <= topic.retention["retention.ms"] < WRITTEN_MS
        # As long as the rest has that many bytes, the oldest segment goes.
        expires |= 0 <= topic.retention["retention.bytes"] < LESS_THAN_A_SEGMENT and len(records) > 1
        if self.cluster.reachable and not self.cluster.deposed and topic.leader == OTHER:
            expires |= any(r.first < self.cluster.log.start for r in records)
            truncated = [
                r for r in records if r.end > self.cluster.log.start and self.cluster.log.truncates(r.epoch, r.end)
            ]
            assert not truncated or "--leader-will-truncate" in words, f"{truncated} goes after {said}"
        assert not (expires and records) or "--retention-will-delete" in words, f"its retention is over, after {said}"

    def serve(self) -> None:
        """Its broker starts, loads, follows its leader and stops."""
        self.sync()
        topic = self.cluster.topics.get(NAME)
        for marked in self.aside():
            if marked.name.endswith("-delete"):
                shutil.rmtree(marked)
        path = self.current()
        if path is not None and (not self.assigned() or topic_id_of(path) != getattr(topic, "topic_id", None)):
            if self.version >= STRAY_SINCE:
                # In the order in which they were made, as ours.
                path.rename(path.with_name(f"{PARTITION}.{now_ms():012x}{uuid.uuid4().hex[12:]}-stray"))
            else:
                shutil.rmtree(path)
            path = None
        if topic is not None and self.assigned():
            self._follow(path, topic)

    def _follow(self, path: Path | None, topic: TopicNow) -> None:
        if path is None:
            path = self.d1 / PARTITION
            self.make(path, topic.topic_id, ())
        if topic.leader != OTHER or not self.cluster.reachable:
            return
        log = self.cluster.log
        for base in SEGMENTS:
            file = path / f"{base:020d}.log"
            if base < log.start or not log.has(0, base + 100):
                file.unlink(missing_ok=True)
            elif not file.exists():
                file.write_bytes(records((base,), at_ms=now_ms() - WRITTEN_MS)[base])
        write_epochs(path, (0, 0))
        age(path, as_first_topics())

    @contextmanager
    def open_elsewhere(self, path: Path) -> Iterator[None]:
        """A process of another mount namespace has a file of it open; it may not be touched meanwhile."""
        file = next(iter(sorted(path.glob("*.log"))), path / "partition.metadata")
        inode = path.stat().st_ino
        names = sorted(p.name for p in path.iterdir())
        with process(ELSEWHERE, path.parent, self.root / "elsewhere", f"{path.name}/{file.name}"):
            yield
            assert path.is_dir() and path.stat().st_ino == inode, f"{path.name} was open and was taken away"
            assert sorted(p.name for p in path.iterdir()) == names


def safe(found: dict[str, Found]) -> frozenset[Records]:
    """What is not marked: a start removes that."""
    return frozenset(r for f in found.values() if f.kind is not Kind.DELETE for r in f.records)


def topic_id_of(path: Path) -> str:
    return (path / "partition.metadata").read_text().split()[-1]


def as_first_topics() -> float:
    """A minute after the cluster's first topics."""
    return time.time() - 29 * MINUTE_MS / 1000


def parsed(ran: Ran) -> Any:
    return ran.json if ran.out else {}
