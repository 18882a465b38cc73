"""Real brokers that start on prepared disks: one formatted disk per version, put back before each start.

`RealDisk` is what a test damages; `outcome` starts the broker on it and says what became of the start.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from logagent.kafka.metadata_log.log import read_metadata_log
from tests.broker.rig.client import KafkaClient
from tests.broker.rig.jars import HERE, Jars, kafka_jars, version_tuple
from tests.broker.rig.kafka import KafkaNode, KraftNode
from tests.broker.rig.process import wait_until
from tests.broker.rig.rig import Rig, archive_classes
from tests.damages.disk import METADATA_LOG, NOBODY, RECORDS, TOPIC, Disk
from tests.damages.row import Kind, Outcome
from tests.disk.conftest import run

CONTROLLER_ID = 100

# So that every disk has a metadata snapshot of its own.
OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "500"}


class RealDisk(Disk):
    """The disk of one stopped node that can be started."""

    node: KafkaNode


class Prepared:
    """One version's node with two log dirs, stopped cleanly; unless it is a controller only, with a topic of two
    partitions, `RECORDS` records each. A node that is a broker only has a controller, which goes on running.

    `trimmed`: the metadata log begins at a snapshot; what was before it is gone.
    """

    def __init__(self, root: Path, version: str, kind: Kind, *, trimmed: bool = False) -> None:
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
            if kind != "controller" and version_tuple(version) >= (3, 7):
                wait_until(lambda: self._places_known(meta), 60, "the metadata log says where the partitions are")
        self.node.stop()
        if trimmed:
            assert meta is not None
            self._trim(meta)
        if kind == "unprivileged":
            run_as_nobody(self.node, root)
        self._dirs = [*self.node.log_dirs, *([meta] if meta is not None else [])]
        self._properties = dict(self.node.properties)
        self.kept.mkdir()
        for directory in self._dirs:
            run("cp", "-a", "--sparse=always", directory, self.kept)

    def _made(self, root: Path, version: str) -> KafkaNode:
        if self.kind == "zookeeper":
            return self.rig.kafka(version, log_dirs=2, mode="zookeeper")
        if self.kind in ("combined", "unprivileged"):
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

    def _places_known(self, meta: Path) -> bool:
        """A broker tells its controller some time after it made the directories, up to seconds in 3.7 and 3.8."""
        log = read_metadata_log(str(meta / METADATA_LOG), node_id=self.node.node_id, cluster_id=None, now_ms=0)
        topic = log.assignments.by_name.get(TOPIC)
        partitions = topic.partitions.values() if topic is not None else ()
        return [p.directory_of(self.node.node_id) is not None for p in partitions] == [True, True]

    def _trim(self, meta: Path) -> None:
        """A log that ends before its newest snapshot is truncated to it when it is loaded."""
        for segment in (meta / METADATA_LOG).glob("0*"):
            if segment.suffix != ".checkpoint":
                segment.unlink()
        (meta / METADATA_LOG / "leader-epoch-checkpoint").unlink()
        self.node.start()
        self.node.stop()

    @contextlib.contextmanager
    def disk(self) -> Iterator[RealDisk]:
        """The disk as it was; the broker is ended and everything undone afterwards."""
        with ExitStack() as undo:
            self._put_back()
            try:
                yield RealDisk(self.node, undo)
            finally:
                self._end()

    def _put_back(self) -> None:
        keep = {"node.log", "zookeeper", "zookeeper.log", "zookeeper.properties", self.node.config.name}
        for entry in self.node.root.iterdir():
            if entry.name not in keep:
                run("rm", "-rf", entry)
        for directory in self._dirs:
            run("cp", "-a", "--sparse=always", self.kept / directory.name, directory)
        self.node.properties = dict(self._properties)
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


def outcome(disk: RealDisk, patience: float = 0, *, write: bool = False, timeout: float = 90) -> Outcome:
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
    if node.properties.get("process.roles") == "controller":
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
