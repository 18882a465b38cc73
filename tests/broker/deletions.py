"""Fifty topics deleted across a real cluster while one of its brokers is killed and started at random.

    python -m tests.broker.deletions --version 3.9.1 --deletions 50
    python -m tests.broker.deletions --version 3.5.2 --mode zookeeper --deletions 50

Three brokers, an agent beside each. What must never happen: a record of a topic that nobody deleted lost, a log dir
offline, a deletion that does not complete once the brokers are left alone. Witnesses: `describe_log_dirs` of every
broker, the topics that the cluster names, and every record of the topics that stay.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.broker.rig.cluster import Cluster
from tests.broker.rig.ordered_cluster import OrderedCluster, approving, current
from tests.broker.rig.process import wait_until
from tests.broker.rig.rig import Mode, Rig

KEPT, PARTITIONS, RECORDS = ("kept-a", "kept-b"), 2, 20
BATCH = 2


class Storm:
    """Kills a broker (never node 1, which is asked) at random moments and starts it again, until it is told to end."""

    def __init__(self, ordered: OrderedCluster, chance: random.Random) -> None:
        self.ordered, self.chance, self.kills = ordered, chance, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self.chance.uniform(2, 12)):
            node = self.ordered.cluster.node(self.chance.choice((2, 3)))
            node.kill()
            self.kills += 1
            self._over.wait(self.chance.uniform(0.5, 15))
            node.start_async()


def deletions(root: Path, version: str, mode: Mode, count: int, seed: int) -> list[str]:
    """What went wrong; progress on stdout."""
    chance, rig, troubles = random.Random(seed), Rig(root), list[str]()
    try:
        cluster: Cluster[Any] = rig.zookeeper_cluster(version) if mode == "zookeeper" else rig.cluster(version)
        cluster.start(timeout=600)
        ordered = OrderedCluster(root, {node.node_id: node for node in cluster.nodes})
        ordered.cluster = cluster
        with ordered.daemons:
            doomed = [f"doomed-{number}" for number in range(count)]
            for topic in (*KEPT, *doomed):
                cluster.create_topic(topic, partitions=PARTITIONS, rf=3)
            for topic in KEPT:
                for partition in range(PARTITIONS):
                    cluster.produce(topic, partition, n=RECORDS)
            for node in (1, 2, 3):
                ordered.agent(node)
            ordered.heard(1, 2, 3)
            storm = Storm(ordered, chance)
            storm.start()
            try:
                for start in range(0, count, BATCH):
                    _ask(ordered, doomed[start : start + BATCH], troubles)
            finally:
                storm.end()
            print(f"asked for all; {storm.kills} kills", flush=True)
            wait_until(lambda: cluster.live_nodes() >= {1, 2, 3}, 180, "all brokers are back")
            _complete(ordered, troubles)
            _witness(ordered, doomed, troubles)
    finally:
        rig.close()
    return troubles


def _ask(ordered: OrderedCluster, topics: list[str], troubles: list[str]) -> None:
    pattern = ",".join(topics)
    for _ in range(40):
        status, plan, said = ordered.topics("delete", "--topic", pattern)
        if plan is not None and plan["topics"]:
            words = ["--execute", *approving(plan), "--timeout", "5s"]
            status, document, said = ordered.topics("delete", "--topic", pattern, *words)
            if document is not None and document["request_id"] is not None:
                return
        time.sleep(1)
    troubles.append(f"{pattern} could not be asked for: {status} {said}")


def _complete(ordered: OrderedCluster, troubles: list[str]) -> None:
    def complete() -> bool:
        ordered.topics("run", "--once")
        return all(r["state"] == "done" for r in ordered.status()["requests"])

    try:
        wait_until(complete, 900, "every request completes", interval=3)
    except AssertionError as error:
        left = [(r["request_id"], t["topic"], t["states"], t["missing"][:2])
                for r in ordered.status()["requests"] for t in r["topics"]]  # fmt: skip
        troubles.append(f"{error}: {left}")


def _witness(ordered: OrderedCluster, doomed: list[str], troubles: list[str]) -> None:
    cluster = ordered.cluster
    named = set(cluster.topics())
    troubles += [f"{topic} is still there" for topic in doomed if topic in named]
    troubles += [f"{topic} is gone" for topic in KEPT if topic not in named]
    for node in cluster.nodes:
        offline = node.offline_dirs()
        if offline:
            troubles.append(f"node {node.node_id}: offline {offline}")
        for topic in doomed:
            if current(node, topic):
                troubles.append(f"node {node.node_id} has {current(node, topic)}")
        for topic in KEPT:
            if len(current(node, topic)) != PARTITIONS:
                troubles.append(f"node {node.node_id} has {current(node, topic)} of {topic}")
    for topic in KEPT:
        cluster.wait_in_sync(topic, 120)
        for partition in range(PARTITIONS):
            found = len(cluster.read_all(topic, partition))
            if found != RECORDS:
                troubles.append(f"{topic}-{partition} has {found} of {RECORDS} records")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.deletions", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--version", default="3.9.1")
    parser.add_argument("--mode", default="kraft", choices=("kraft", "zookeeper"))
    parser.add_argument("--deletions", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    began = time.monotonic()
    print(f"seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="logagent-deletions-") as root:
        troubles = deletions(Path(root), asked.version, asked.mode, asked.deletions, asked.seed)
    print(*troubles, sep="\n")
    print(f"{asked.version}: {asked.deletions} deletions, {len(troubles)} troubles in {time.monotonic() - began:.0f} s")
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
