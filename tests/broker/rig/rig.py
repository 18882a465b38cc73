"""Makes nodes and clusters, remembers them, and ends whatever still runs when the test is over."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tests.broker.rig.cluster import KafkaCluster, ZooKeeperCluster
from tests.broker.rig.jars import Jars, archive_lock, kafka_jars
from tests.broker.rig.kafka import KafkaNode, KraftNode, Listener, ZooKeeper, ZooKeeperNode
from tests.broker.rig.ports import Ports
from tests.broker.rig.process import ServerProcess

Mode = Literal["kraft", "zookeeper"]

# Versions that the tests start again and again: an archive of their loaded classes halves each start-up.
ARCHIVED: dict[str, Mode] = {
    "2.5.1": "zookeeper",
    "3.5.2": "zookeeper",
    "3.9.1": "kraft",
    "4.3.1": "kraft",
    "4.4.0": "kraft",
}


class Rig:
    """Everything that one test starts, below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ports = Ports()
        self.servers: list[ServerProcess] = []

    def kafka(
        self,
        version: str,
        log_dirs: int | Sequence[Path] = 2,
        mode: Mode = "kraft",
        props: Mapping[str, str] | None = None,
        *,
        node_id: int = 1,
        name: str | None = None,
        metadata_dir: bool = True,
        listener: Listener | None = None,
        zookeeper: ZooKeeper | None = None,
    ) -> KafkaNode:
        """One formatted node, not started. `log_dirs` is a count or the directories themselves; with
        `metadata_dir=False` a KRaft node keeps its metadata log in the first log dir. A ZooKeeper-mode node gets a
        ZooKeeper of its own unless one is given."""
        archive_classes(version)
        root = self.root / (name or f"kafka-{len(self.servers) + 1}")
        common: dict[str, Any] = {"node_id": node_id, "log_dirs": log_dirs, "props": props, "listener": listener}
        node: KafkaNode
        if mode == "kraft":
            node = KraftNode(root, version, self.ports, metadata_dir=metadata_dir, **common)
            self.servers.append(node)
            node.format()
        else:
            if zookeeper is None:
                zookeeper = ZooKeeper(root, version, self.ports)
                self.servers.append(zookeeper)
            node = ZooKeeperNode(root, version, self.ports, zookeeper=zookeeper, **common)
            self.servers.append(node)
        return node

    def cluster(
        self,
        version: str,
        nodes: int = 3,
        log_dirs: int = 2,
        props: Mapping[str, str] | None = None,
        **more: Any,
    ) -> KafkaCluster:
        """A formatted KRaft cluster, not started."""
        archive_classes(version)
        root = self.root / f"cluster-{len(self.servers) + 1}"
        cluster = KafkaCluster(root, version, self.ports, nodes=nodes, log_dirs=log_dirs, props=props, **more)
        self.servers += cluster.nodes
        return cluster.format()

    def zookeeper_cluster(
        self, version: str, nodes: int = 3, log_dirs: int = 2, props: Mapping[str, str] | None = None
    ) -> ZooKeeperCluster:
        """Brokers around one ZooKeeper, not started."""
        archive_classes(version)
        root = self.root / f"cluster-{len(self.servers) + 1}"
        cluster = ZooKeeperCluster(root, version, self.ports, nodes=nodes, log_dirs=log_dirs, props=props)
        self.servers += [cluster.nodes[0].zookeeper, *cluster.nodes]
        return cluster

    def close(self) -> None:
        """End everything that still runs, brokers before their ZooKeeper."""
        try:
            for server in reversed(self.servers):
                server.close()
        finally:
            self.ports.close()


def archive_classes(version: str) -> Jars:
    """Make the class archive of a version in `ARCHIVED`, once a cache: a node is started and stopped for it."""
    jars = kafka_jars(version)
    if version not in ARCHIVED or jars.archive.exists():
        return jars
    with archive_lock(jars), tempfile.TemporaryDirectory(prefix="logagent-rig-") as scratch:
        if jars.archive.exists():
            return jars
        rig = Rig(Path(scratch))
        written = jars.archive.with_suffix(".partial")
        try:
            node: KafkaNode
            if ARCHIVED[version] == "kraft":
                node = KraftNode(rig.root / "k", version, rig.ports).format()
            else:
                zookeeper = ZooKeeper(rig.root / "k", version, rig.ports)
                rig.servers.append(zookeeper)
                node = ZooKeeperNode(rig.root / "k", version, rig.ports, zookeeper=zookeeper)
            rig.servers.append(node)
            node.jvm_flags = (f"-XX:ArchiveClassesAtExit={written}",)
            node.start()
            node.create_topic("warm-up")
            node.produce("warm-up")
            node.stop()
        finally:
            rig.close()
        written.rename(jars.archive)
    return jars
