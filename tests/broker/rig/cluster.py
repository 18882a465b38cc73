"""Clusters on this host: KRaft (node 1 is controller and broker, the others are brokers), or around a ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Generic, Self, TypeVar

from tests.broker.rig.client import KafkaClient
from tests.broker.rig.kafka import KafkaNode, KraftNode, Listener, ZooKeeper, ZooKeeperNode, random_cluster_id
from tests.broker.rig.ports import Ports
from tests.broker.rig.process import wait_until

ZOOKEEPER_SESSION = {"zookeeper.session.timeout.ms": "10000"}
SESSION = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500"}

N = TypeVar("N", bound=KafkaNode)


class Cluster(KafkaClient, Generic[N]):
    """`nodes` by position, `node(id)` by id; topics and records through node 1 or, with `via(id)`, through another."""

    def __init__(self, nodes: list[N]) -> None:
        self.nodes = nodes
        super().__init__(nodes[0].bootstrap)

    def node(self, node_id: int) -> N:
        return self.nodes[node_id - 1]

    def via(self, node_id: int) -> KafkaClient:
        """The same calls through another node."""
        return KafkaClient(self.node(node_id).bootstrap)

    def start(self, wait: bool = True, timeout: float = 120) -> Self:
        """Start every node that does not run."""
        for node in [n for n in self.nodes if not n.alive]:
            node.start_async()
        if wait:
            self.wait_ready(timeout)
        return self

    def wait_ready(self, timeout: float = 120) -> Self:
        """Every running node serves, and node 1 knows of all of them."""
        running = [node for node in self.nodes if node.alive]
        for node in running:
            node.wait_ready(timeout)
        expected = {node.node_id for node in running}
        wait_until(lambda: self.live_nodes() >= expected, timeout, f"the controller knows the nodes {expected}")
        return self

    def stop(self) -> None:
        """Stop every running node, the controller last (the others hand over their partitions through it)."""
        for node in reversed(self.nodes):
            if node.alive:
                node.stop()

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def wait_in_sync(self, topic: str, timeout: float = 60) -> None:
        """Every replica of the topic is in its partition's ISR."""

        def in_sync() -> bool:
            (described,) = self.ask(lambda admin: admin.describe_topics([topic]))
            return all(set(p["isr_nodes"]) == set(p["replica_nodes"]) for p in described["partitions"])

        wait_until(in_sync, timeout, f"all replicas of {topic} are in sync", interval=0.2)

    def wait_reassigned(self, timeout: float = 60) -> None:
        """No reassignment is under way any more."""
        wait_until(lambda: not self.reassignments(), timeout, "the reassignments end", interval=0.2)


class KafkaCluster(Cluster[KraftNode]):
    """A KRaft cluster: node 1 is controller and broker."""

    def __init__(
        self,
        root: Path,
        version: str,
        ports: Ports,
        *,
        nodes: int = 3,
        log_dirs: int = 2,
        props: Mapping[str, str] | None = None,
        node_props: Mapping[int, Mapping[str, str]] | None = None,
        listener: Listener | None = None,
    ) -> None:
        shared = {**SESSION, **(props or {})}
        cluster_id = random_cluster_id()
        made: list[KraftNode] = []
        controller: tuple[int, int] | None = None
        for node_id in range(1, nodes + 1):
            node = KraftNode(
                root / f"node{node_id}",
                version,
                ports,
                node_id=node_id,
                roles="broker,controller" if controller is None else "broker",
                controller=controller,
                cluster_id=cluster_id,
                log_dirs=log_dirs,
                # Broker-only nodes keep the metadata log in their first log dir, as most installations do.
                metadata_dir=controller is None,
                props={**shared, **(node_props or {}).get(node_id, {})},
                listener=listener,
            )
            controller = node.controller
            made.append(node)
        super().__init__(made)

    def format(self) -> Self:
        for node in self.nodes:
            node.format()
        return self


class ZooKeeperCluster(Cluster[ZooKeeperNode]):
    """Brokers around one ZooKeeper; node 1, which starts first, is the controller as long as it lives."""

    def __init__(
        self,
        root: Path,
        version: str,
        ports: Ports,
        *,
        nodes: int = 3,
        log_dirs: int = 2,
        props: Mapping[str, str] | None = None,
    ) -> None:
        zookeeper = ZooKeeper(root, version, ports)
        super().__init__(
            [
                ZooKeeperNode(root / f"node{n}", version, ports, zookeeper=zookeeper, node_id=n, log_dirs=log_dirs,
                              props={**ZOOKEEPER_SESSION, **(props or {})})
                for n in range(1, nodes + 1)
            ]
        )  # fmt: skip

    def start(self, wait: bool = True, timeout: float = 120) -> Self:
        """Start every node that does not run, one after the other: a session is lost soon on a busy machine."""
        for node in [n for n in self.nodes if not n.alive]:
            node.start(timeout=timeout)
        return self.wait_ready(timeout) if wait else self
