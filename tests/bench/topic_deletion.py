"""`python -m tests.bench.topic_deletion [--hosts N] [--topics N]`: what a controller's round costs at scale.

One request for `topics` topics of 12 partitions with 3 replicas on `hosts` hosts, on a real store on this disk; the
hosts answer as agents do. CPU seconds and peak memory of each round of the controller alone, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from logagent.controller.deletion_client import TopicOutcome
from logagent.controller.rounds import DeletionRounds
from logagent.controller.setting import Setting
from logagent.store.answers import write_answer
from logagent.store.control import Control
from logagent.store.deletion import Answer, Identity, Request, RequestedPartition, RequestedTopic, Result
from logagent.store.landing_files import Claim, land
from logagent.store.orders import ORDER_NAME, instant, orders_folder, read_order, write_request
from logagent.store.shared import init_store
from logagent.store.signing import PrivateKey, public_key

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
KEY = PrivateKey("bench", b"\x01" * 32)
KEYS = (public_key(KEY.public()),)
PARTITIONS, REPLICAS = 12, 3


class Admin:
    def topics_now(self, topics: Mapping[str, str]) -> Mapping[str, RequestedTopic]:
        return {}

    def unknown_ids(self, topics: Mapping[str, str]) -> Collection[str]:
        return set(topics)

    def in_sync(self, topics: Mapping[str, str]) -> Mapping[tuple[str, int], frozenset[int]]:
        return {}

    def delete_topics(self, topics: Mapping[str, str]) -> Mapping[str, TopicOutcome]:
        return dict.fromkeys(topics, TopicOutcome("deleted"))

    def reassigning(self, topics: Mapping[str, str]) -> Collection[str]:
        return ()


def topic_id(number: int) -> str:
    return f"{number:022d}"


def build(store: Path, hosts: int, topics: int) -> None:
    """The request and a snapshot of each host."""
    now = datetime.now(UTC)
    at = 0
    asked = []
    held: dict[int, list[tuple[int, int]]] = {node: [] for node in range(hosts)}
    for number in range(topics):
        partitions = []
        for partition in range(PARTITIONS):
            nodes = tuple((at + i) % hosts for i in range(REPLICAS))
            at += REPLICAS
            partitions.append(RequestedPartition(partition, nodes))
            for node in nodes:
                held[node].append((number, partition))
        asked.append(RequestedTopic(f"topic-{number}", topic_id(number), tuple(partitions)))
    request = Request("bench-request", CLUSTER, "topics", "a" * 16, "bench", instant(now),
                      instant(now + timedelta(days=7)), 0, topics=tuple(asked))  # fmt: skip
    write_request(Control(store, CLUSTER), request, KEY)
    for node, dirs in held.items():
        rows = [json.dumps({"row": "snapshot"})]
        rows += [json.dumps({"row": "dir", "kind": "current", "log_dir": "/d1", "name": f"topic-{t}-{p}",
                             "topic_id": topic_id(t), "partition": p, "bytes": 1}) for t, p in dirs]  # fmt: skip
        land(store, Claim(f"s{node}", "snapshot", CLUSTER, node, f"host-{node}", now), rows)


def answer_all(store: Path, hosts: int, answered: set[str]) -> int:
    """Every agent answers what is new; how many orders that were."""
    control, count = Control(store, CLUSTER), 0
    for node in range(hosts):
        for name in control.names(orders_folder(node)):
            if not ORDER_NAME.fullmatch(name) or f"{node}/{name}" in answered:
                continue
            answered.add(f"{node}/{name}")
            content = control.read(orders_folder(node), name)
            assert content is not None
            order = read_order(content, name, node, KEYS, CLUSTER)
            results = tuple(
                Result(p.request_id, p.topic_id, p.partition, "waiting",
                       directory=Identity("/d1", f"{p.topic}-{p.partition}", 1, 1, "A" * 22, "boot", 1, 5))
                if order.action == "stop"
                else Result(p.request_id, p.topic_id, p.partition, "renamed", directory=p.directory)
                for p in order.partitions
            )  # fmt: skip
            write_answer(control, Answer(order.order_id, order.epoch, order.epoch, CLUSTER, node, f"{node:032x}", 0,
                                         order.action, instant(datetime.now(UTC)), "1", results))  # fmt: skip
            count += 1
    return count


def measure(store: Path) -> None:
    """The controller's process: a round for each line on stdin, its figures as a line on stdout."""
    rounds = DeletionRounds(
        Setting(Control(store, CLUSTER), KEY, KEYS, Admin(), lambda: datetime.now(UTC), "bench", "bench")
    )
    rounds.start()
    for _ in sys.stdin:
        began, wall = time.process_time(), time.monotonic()
        rounds.round()
        print(json.dumps({
            "cpu": round(time.process_time() - began, 2), "wall": round(time.monotonic() - wall, 2),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "left": len(rounds.context.topics_to_be_deleted),
        }), flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.topic_deletion", description=__doc__)
    parser.add_argument("--hosts", type=int, default=2_000)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure is not None:
        measure(asked.measure)
        return
    with tempfile.TemporaryDirectory(prefix="logagent-bench-", dir=asked.dir) as folder:
        store = Path(folder)
        init_store(folder)
        began = time.monotonic()
        build(store, asked.hosts, asked.topics)
        print(f"built in {time.monotonic() - began:.0f} s", flush=True)
        command = [sys.executable, "-m", "tests.bench.topic_deletion", "--measure", folder]
        controller = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ)
        assert controller.stdin is not None and controller.stdout is not None
        answered: set[str] = set()
        for what in ("asked and stopped", "idle", "deleted", "idle", "completed", "idle"):
            controller.stdin.write("\n")
            controller.stdin.flush()
            print(f"{what:18} {controller.stdout.readline().strip()}", flush=True)
            if what != "idle":
                # The round after this one is idle: the hosts answer only after it.
                continue
            answer_all(store, asked.hosts, answered)
        controller.stdin.close()
        controller.wait()


if __name__ == "__main__":
    main()
