"""A quorum of three controllers and a broker that only observes it; the controllers can lose each other."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.broker.rig.kafka import KraftNode, random_cluster_id
from tests.broker.rig.ports import Ports
from tests.broker.rig.process import wait_until

OBSERVER = 4
# Long enough for a request between the end of the majority and the leader's own, where it resigns at all.
FETCH_TIMEOUT_MS = 5_000


class Quorum:
    """Controllers 1, 2, 3 and broker 4, formatted. Static voters: each node has its own addresses of them."""

    def __init__(self, root: Path, version: str, ports: Ports) -> None:
        cluster_id = random_cluster_id()
        self.ports = {n: ports.take() for n in (1, 2, 3)}
        self.nowhere = ports.take()
        # KIP-853: a leader tells everybody, also observers, where it listens.
        self.tells_its_place = version >= "3.9"
        shared = {
            "controller.quorum.fetch.timeout.ms": str(FETCH_TIMEOUT_MS),
            "broker.session.timeout.ms": "9000",
            "controller.quorum.voters": self._voters(),
        }
        self.controllers: dict[int, KraftNode] = {}
        for n, port in self.ports.items():
            node = KraftNode(
                root / f"controller{n}",
                version,
                ports,
                node_id=n,
                roles="controller",
                controller=(n, port),
                cluster_id=cluster_id,
                log_dirs=1,
                metadata_dir=False,
                props=shared,
            )
            node.configure(
                {
                    "listeners": f"CONTROLLER://127.0.0.1:{port}",
                    "advertised.listeners": None,
                    "inter.broker.listener.name": None,
                }
            )
            self.controllers[n] = node
        self.broker = KraftNode(
            root / "broker",
            version,
            ports,
            node_id=OBSERVER,
            roles="broker",
            controller=(1, self.ports[1]),
            cluster_id=cluster_id,
            metadata_dir=False,
            props=shared,
        )
        for node in self.nodes:
            node.format()

    @property
    def nodes(self) -> list[KraftNode]:
        return [*self.controllers.values(), self.broker]

    def _voters(self, but: int | None = None) -> str:
        places = {n: self.nowhere if n == but else port for n, port in self.ports.items()}
        return ",".join(f"{n}@127.0.0.1:{port}" for n, port in places.items())

    def start(self) -> None:
        for node in self.nodes:
            node.start_async()
        for node in self.nodes:
            node.wait_ready(120)

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def leader(self) -> int:
        """As the observer's `quorum-state` says; -1 for none."""
        folder = self.broker.log_dirs[0] / "__cluster_metadata-0"
        try:
            return int(json.loads((folder / "quorum-state").read_text())["leaderId"])
        except (OSError, ValueError, KeyError):
            return -1

    def isolate(self) -> int:
        """Kill the other two controllers at once; returns the leader, which does not know it yet."""
        leader = self.leader()
        others = [n for n in self.controllers if n != leader]
        threads = [threading.Thread(target=self.controllers[n].kill) for n in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return leader

    def isolate_again(self, leader: int) -> None:
        """The same leader is elected by a voter that cannot reach it: it votes, and never fetches."""
        voter = self.controllers[min(n for n in self.controllers if n != leader)]
        voter.configure({"controller.quorum.voters": self._voters(but=leader)}).start_async()
        if self.tells_its_place:
            self.controllers[leader].configure({"advertised.listeners": f"CONTROLLER://127.0.0.1:{self.nowhere}"})
        self.controllers[leader].start_async()

    def majority_without(self, leader: int) -> None:
        """The two others, which never had what the isolated leader wrote, are the cluster."""
        for node in self.nodes:
            node.close()
        for n, node in self.controllers.items():
            if n != leader:
                node.configure({"controller.quorum.voters": self._voters()}).start_async()
        self.broker.start()

    def delete_without_waiting(self, admin: Any, topic: str) -> threading.Thread:
        """Send DeleteTopics; nobody will ever answer it."""

        def ask() -> None:
            with suppress(Exception):
                admin.delete_topics([topic], timeout_ms=60_000)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        return thread


def wait_leader(quorum: Quorum) -> None:
    wait_until(lambda: quorum.leader() in quorum.controllers, 60, "the observer knows a leader")
