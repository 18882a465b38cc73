"""Real brokers that start on prepared disks: one formatted disk per version, put back before each start.

`Disk` is what a test damages; `outcome` starts the broker on it and says what became of the start.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Literal

from tests.broker.rig.client import KafkaClient
from tests.broker.rig.jars import HERE, Jars, kafka_jars
from tests.broker.rig.kafka import KafkaNode, KraftNode
from tests.broker.rig.process import wait_until
from tests.broker.rig.rig import Rig, archive_classes
from tests.disk.conftest import run, unmount

UUID = "0123456789abcdef0123456789abcdef"
OTHER_UUID = "f123456789abcdef0123456789abcdef"
OTHER_TOPIC_ID = "Xs6gS0pIR5yNqcAe2bBqwQ"
TOPIC = "orders"
RECORDS = 5
NOBODY = 65534
CONTROLLER_ID = 100
METADATA_LOG = "__cluster_metadata-0"

Kind = Literal["combined", "broker", "controller", "zookeeper", "dynamic"]
# So that every disk has a metadata snapshot of its own.
OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "500"}


class Outcome(StrEnum):
    """REFUSES: it ends before it serves. OFFLINE: it serves without the damaged log dir, or ends for want of it.
    UNSERVED: it serves, but not every partition. STARTS: it serves everything, all records are there. HANGS: it neither
    serves nor ends."""

    REFUSES = "refuses"
    OFFLINE = "offline"
    UNSERVED = "unserved"
    STARTS = "starts"
    HANGS = "hangs"


class Disk:
    """The disks of one stopped broker: `d1` and `d2`, and `meta` in KRaft mode. `undo` is run after the test."""

    def __init__(self, node: KafkaNode, undo: ExitStack) -> None:
        self.node = node
        self.undo = undo
        self.root = node.root
        self.d1, self.d2 = node.log_dirs[0], node.log_dirs[1]
        self.kraft = metadata_dir(node) is not None

    @property
    def meta(self) -> Path:
        found = metadata_dir(self.node)
        assert found is not None
        return found

    @property
    def metadata_log(self) -> Path:
        return self.meta / METADATA_LOG

    def snapshots(self) -> list[Path]:
        """The metadata snapshots, the newest last."""
        return sorted(self.metadata_log.glob("*.checkpoint"))

    def partition(self, name: str = f"{TOPIC}-0") -> Path:
        """Where a partition directory lies."""
        return next(d / name for d in (self.d1, self.d2) if (d / name).is_dir())

    def other(self, partition: Path) -> Path:
        """The log dir in which it does not lie."""
        return self.d2 if partition.parent == self.d1 else self.d1

    def make(self, name: str, where: Path | None = None) -> Path:
        made = (where or self.d1) / name
        made.mkdir()
        return made

    def log_dirs(self, *paths: Path | str) -> None:
        self.node.configure({"log.dirs": ",".join(map(str, paths))})

    def edit(self, path: Path, pattern: str, replacement: str) -> None:
        before = path.read_text()
        after = re.sub(pattern, replacement, before)
        assert before != after, before
        path.write_text(after)

    def mount(self, options: str, path: Path | None = None) -> None:
        """Put `path` (d1) on a tmpfs of its own, with its content."""
        self._mount(path or self.d1, "-t", "tmpfs", "-o", options, "tmpfs")

    def mount_image(self, kind: str) -> None:
        """The same with a file system in a file: one that can be shut down."""
        image = self.root / "d1.img"
        with image.open("wb") as file:
            file.truncate(400 << 20)
        run(f"mkfs.{kind}", "-q", image)
        self._mount(self.d1, "-o", "loop", str(image))

    def _mount(self, path: Path, *what: str) -> None:
        aside = self.root / "aside"
        shutil.move(path, aside)
        path.mkdir()
        run("mount", *what, path)
        self.undo.callback(unmount, path)
        run("cp", "-a", f"{aside}/.", path)
        shutil.rmtree(aside)

    def fill(self, path: Path | None = None) -> None:
        fd = os.open((path or self.d1) / "ballast", os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while True:
                os.write(fd, b"x" * 4096)
        os.close(fd)

    def hold_lock(self, exclusive: bool) -> None:
        """Another process locks d1/.lock."""
        source = (
            "import fcntl, sys\n"
            "file = open(sys.argv[1], 'r+' if sys.argv[2] == 'x' else 'r')\n"
            "fcntl.lockf(file, fcntl.LOCK_EX if sys.argv[2] == 'x' else fcntl.LOCK_SH)\n"
            "print('ready', flush=True)\n"
            "sys.stdin.read()\n"
        )
        (self.d1 / ".lock").touch()
        arguments = [sys.executable, "-c", source, str(self.d1 / ".lock"), "x" if exclusive else "s"]
        child = self.undo.enter_context(
            subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        assert child.stdout is not None and child.stdout.readline() == "ready\n"


class Prepared:
    """One version's node with two log dirs, stopped cleanly; unless it is a controller only, with a topic of two
    partitions, `RECORDS` records each. A node that is a broker only has a controller, which goes on running.

    `trimmed`: the metadata log begins at a snapshot; what was before it is gone.
    """

    def __init__(self, root: Path, version: str, kind: Kind, *, as_nobody: bool = False, trimmed: bool = False) -> None:
        self.rig = Rig(root)
        self.kind = kind
        self.kept = root / "kept"
        self.node = self._made(root, version)
        self.node.start()
        if kind != "controller":
            self.node.create_topic(TOPIC, partitions=2)
            for partition in (0, 1):
                self.node.produce(TOPIC, partition, n=RECORDS)
        meta = metadata_dir(self.node)
        if meta is not None:
            self._wait_for_snapshot(meta)
        self.node.stop()
        if trimmed:
            assert meta is not None
            self._trim(meta)
        if as_nobody:
            run_as_nobody(self.node, root)
        self._dirs = [*self.node.log_dirs, *([meta] if meta is not None else [])]
        self._properties = dict(self.node._properties_file)
        self.kept.mkdir()
        for directory in self._dirs:
            run("cp", "-a", "--sparse=always", directory, self.kept)

    def _made(self, root: Path, version: str) -> KafkaNode:
        if self.kind == "zookeeper":
            return self.rig.kafka(version, log_dirs=2, mode="zookeeper")
        if self.kind == "combined":
            return self.rig.kafka(version, log_dirs=2, props=OFTEN)
        archive_classes(version)
        if self.kind == "dynamic":
            node = KraftNode(root / "node", version, self.rig.ports, props=OFTEN, dynamic=True)
            self.rig.servers.append(node)
            return node.format()
        controller = self._controller(root, version, 1 if self.kind == "controller" else CONTROLLER_ID)
        if self.kind == "controller":
            return controller
        controller.start()
        broker = KraftNode(
            root / "broker",
            version,
            self.rig.ports,
            roles="broker",
            controller=controller.controller,
            cluster_id=controller.format_id,
            props=OFTEN,
        )
        self.rig.servers.append(broker)
        return broker.format()

    def _controller(self, root: Path, version: str, node_id: int) -> KraftNode:
        ports = self.rig.ports
        node = KraftNode(root / "controller", version, ports, node_id=node_id, roles="controller", props=OFTEN)
        listener = f"CONTROLLER://127.0.0.1:{node.controller[1]}"
        node.configure({"listeners": listener, "advertised.listeners": None, "inter.broker.listener.name": None})
        self.rig.servers.append(node)
        return node.format()

    def _wait_for_snapshot(self, meta: Path) -> None:
        def written() -> bool:
            return any(int(found.name[:20]) > 0 for found in (meta / METADATA_LOG).glob("*.checkpoint"))

        wait_until(written, 60, "a metadata snapshot is written")

    def _trim(self, meta: Path) -> None:
        """A log that ends before its newest snapshot is truncated to it when it is loaded."""
        for segment in (meta / METADATA_LOG).glob("0*"):
            if segment.suffix != ".checkpoint":
                segment.unlink()
        (meta / METADATA_LOG / "leader-epoch-checkpoint").unlink()
        self.node.start()
        self.node.stop()

    @contextlib.contextmanager
    def disk(self) -> Iterator[Disk]:
        """The disk as it was; the broker is ended and everything undone afterwards."""
        with ExitStack() as undo:
            self._put_back()
            try:
                yield Disk(self.node, undo)
            finally:
                self._end()

    def _put_back(self) -> None:
        keep = {"node.log", "zookeeper", "zookeeper.log", "zookeeper.properties", self.node.config.name}
        for entry in self.node.root.iterdir():
            if entry.name not in keep:
                run("rm", "-rf", entry)
        for directory in self._dirs:
            run("cp", "-a", "--sparse=always", self.kept / directory.name, directory)
        self.node._properties_file = dict(self._properties)
        self.node.configure({})

    def _end(self) -> None:
        if not self.node.alive:
            return
        # ZooKeeper remembers a killed broker for its session's time; a KRaft node is put back as a whole.
        if metadata_dir(self.node) is None:
            self.node.stop()
        else:
            self.node.kill()

    def close(self) -> None:
        self.rig.close()


def metadata_dir(node: KafkaNode) -> Path | None:
    """Where a KRaft node has its metadata log, apart from its log dirs; None in ZooKeeper mode."""
    return node.metadata_dir if isinstance(node, KraftNode) else None


def run_as_nobody(node: KafkaNode, root: Path) -> None:
    """Let the broker run as another user than root; all it needs is put where that user can reach it."""
    jars = root / "jars"
    jars.mkdir()
    for jar in kafka_jars(node.version).classpath.split(os.pathsep):
        try:
            os.link(jar, jars / Path(jar).name)
        except OSError:
            shutil.copy(jar, jars)
    shutil.copy(HERE / "log4j.properties", root)
    classpath = os.pathsep.join(str(jar) for jar in sorted(jars.iterdir()))
    node.jars = Jars(node.version, classpath, root / "no-archive")
    node.jvm_flags = (f"-Dlog4j.configuration=file:{root}/log4j.properties",)
    original = node._command
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--pdeathsig", "KILL"]
    node._command = lambda: [*become, *original()]  # type: ignore[method-assign]
    run("chown", "-R", f"{NOBODY}:{NOBODY}", node.root)


@contextlib.contextmanager
def reachable_root() -> Iterator[Path]:
    """A directory that every user can reach; a test's own usually can be reached by root alone."""
    root = Path(tempfile.mkdtemp(prefix="logagent-check-"))
    root.chmod(0o755)
    try:
        yield root
    finally:
        shutil.rmtree(root)


def outcome(disk: Disk, patience: float = 0, *, write: bool = False, timeout: float = 90) -> Outcome:
    """Start the broker on `disk` and see what comes of it; one that serves is watched for `patience` seconds more,
    and with `write` records are written to it meanwhile."""
    node = disk.node
    node.start_async()
    ready = re.compile(node.ready_line)
    deadline = time.monotonic() + timeout
    while node.alive and not ready.search(node.log_text()):
        if time.monotonic() > deadline:
            return Outcome.HANGS
        time.sleep(0.05)
    if not node.alive:
        given_up = re.search(r"Stopping serving logs in dir|Shutdown broker because all log dirs", node.log_text())
        return Outcome.OFFLINE if given_up else Outcome.REFUSES
    if _took_another_id(node):
        return Outcome.UNSERVED
    if node._properties_file.get("process.roles") == "controller":
        return _of_controller(node)
    if write:
        _write(node)
    return _of_running(node, time.monotonic() + patience, deadline)


def _took_another_id(node: KafkaNode) -> bool:
    """A ZooKeeper-mode broker that got a new id: no partition of the old one is its own."""
    started = re.search(r"\[KafkaServer id=(\d+)\] started", node.log_text())
    return started is not None and int(started[1]) != node.node_id


def _of_controller(node: KafkaNode) -> Outcome:
    """A controller serves no records; it leads its quorum of one, and goes on doing so."""
    until = time.monotonic() + CONTROLLER_SECONDS
    while node.alive and time.monotonic() < until:
        time.sleep(0.05)
    return Outcome.STARTS if node.alive else Outcome.REFUSES


def _of_running(node: KafkaNode, watched: float, deadline: float) -> Outcome:
    """A log dir may fail some seconds after the start only: high watermarks are written every five."""
    from kafka.errors import KafkaError

    settled = time.monotonic() + SETTLE_SECONDS
    while True:
        if time.monotonic() > deadline:
            return Outcome.HANGS
        if not node.alive:
            return Outcome.OFFLINE
        try:
            if node.offline_dirs():
                return Outcome.OFFLINE
            served = _serves_everything(node)
        except KafkaError:
            time.sleep(0.1)
            continue
        if time.monotonic() > (watched if served else max(watched, settled)):
            return Outcome.STARTS if served else Outcome.UNSERVED
        time.sleep(0.5)  # it is watched for seconds, and each look costs it some work


def _write(node: KafkaNode) -> None:
    """A topic more, and 100 KB to every partition; where a log dir fails under it, that is what was wanted."""
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    with contextlib.suppress(KafkaError), node.admin() as admin:
        admin.create_topics({"more": {"num_partitions": 4, "replication_factor": 1}})

    producer = KafkaProducer(
        bootstrap_servers=node.bootstrap, acks=1, retries=0, request_timeout_ms=2000, delivery_timeout_ms=3000
    )
    try:
        for number in range(200):
            producer.send(TOPIC, value=b"x" * 1000, partition=number % 2)
        producer.flush(timeout=5)
    except KafkaError:
        pass
    finally:
        producer.close(timeout=1)


# How long a partition may be without a leader after a start.
SETTLE_SECONDS = 6.0
# How long after its start a controller is watched.
CONTROLLER_SECONDS = 3.0


def _serves_everything(node: KafkaNode) -> bool:
    from kafka.errors import KafkaError

    client = KafkaClient(node.bootstrap, request_timeout_ms=3000)
    try:
        counts = [len(client.read_all(TOPIC, p, timeout=20)) for p in (0, 1)]
    except (KafkaError, TypeError):
        return False  # TypeError: kafka-python has no position of a partition that nobody serves
    return counts == [RECORDS, RECORDS]
