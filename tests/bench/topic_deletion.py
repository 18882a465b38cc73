"""`python -m tests.bench.topic_deletion [--hosts N] [--topics N]`: what a look at deletions costs at scale.

One request for `topics` topics of 12 partitions with 3 replicas on `hosts` hosts, on a real store on this disk, with
the seen file and the answer of each host. CPU seconds and peak memory of looks alone, in a process of its own: the
first, and one where nothing has changed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from logagent.base.units import instant
from logagent.deletion.controller.deletions import ControllerSetup, FleetReader, TopicAnswerOfCluster
from logagent.deletion.controller.topic_deletion_manager import BrokerLogs, TopicDeletionManager, request_state
from logagent.deletion.store.answers import Answer, Answers, Seen, SeenLogDirs, TopicAnswer
from logagent.deletion.store.requests import (
    ControlFolder,
    Decision,
    Request,
    RequestedPartition,
    RequestedTopic,
    decide,
    write_request,
)
from logagent.store.shared import init_store
from logagent.store.signing import PrivateKey, public_key

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
KEY = PrivateKey("bench", b"\x01" * 32)
KEYS = (public_key(KEY.public()),)
PARTITIONS, REPLICAS = 12, 3


class Admin:
    """A cluster that has deleted everything."""

    def __init__(self, hosts: int) -> None:
        self.hosts = hosts

    def topics_now(self, topics: Mapping[str, str]) -> Mapping[str, RequestedTopic]:
        return {}

    def unknown_ids(self, topics: Mapping[str, str]) -> Collection[str]:
        return set(topics)

    def in_sync(self, topics: Mapping[str, str]) -> Mapping[tuple[str, int], frozenset[int]]:
        return {}

    def delete_topics(self, topics: Mapping[str, str]) -> Mapping[str, TopicAnswerOfCluster]:
        return {}

    def reassigning(self, topics: Mapping[str, str]) -> Collection[str]:
        return ()

    def live_brokers(self) -> Collection[int]:
        return range(self.hosts)

    def logs(self, node_id: int, names: Collection[str]) -> BrokerLogs | None:
        return None

    def clock(self) -> datetime | None:
        return None


def build(store: Path, hosts: int, topics: int) -> None:
    """The request, its decision, and what each host has seen and answered; every tenth host has one topic left."""
    init_store(str(store))
    now = datetime.now(UTC)
    asked = tuple(
        RequestedTopic(f"topic-{n}", f"{n:022d}", tuple(
            RequestedPartition(p, tuple((n * PARTITIONS + p + r) % hosts for r in range(REPLICAS)))
            for p in range(PARTITIONS)
        ))
        for n in range(topics)
    )  # fmt: skip
    control = ControlFolder(store, CLUSTER)
    request = Request(CLUSTER, "topics", "a" * 24, "ops", instant(now), instant(now + timedelta(days=1)), "0" * 32,
                      topics=asked)  # fmt: skip
    number = write_request(control, request, KEY)
    decide(control, Decision(number, CLUSTER, "delete", "ops", instant(now), topics=asked), KEY, KEYS)
    mine: dict[int, set[str]] = {node: set() for node in range(hosts)}
    for topic in asked:
        for p in topic.partitions:
            for node in p.replicas:
                mine[node].add(topic.topic_id)
    answers = Answers(store, CLUSTER)
    for node in range(hosts):
        at, who = instant(now + timedelta(seconds=1)), (f"kafka-{node}", f"{node:032x}")
        answers.write_seen(Seen(CLUSTER, node, *who, at, at, (number,), (), SeenLogDirs(at, True)))
        said = tuple(TopicAnswer(i, int(node % 10 == 0 and not n), 0) for n, i in enumerate(sorted(mine[node])))
        answers.write(Answer(CLUSTER, node, number, *who, at, (), said))


def call_each(store: Path, hosts: int) -> None:
    """Two looks in this process; prints what they cost."""
    setting = ControllerSetup(
        ControlFolder(store, CLUSTER), KEYS, Admin(hosts), lambda: datetime.now(UTC), "ops", "bench"
    )
    reader = FleetReader(setting)
    for what in ("first", "unchanged"):
        began, cpu = time.monotonic(), time.process_time()
        seen = reader.read()
        manager = TopicDeletionManager(seen, timedelta(hours=2))
        (filed,) = seen.filed.values()
        progress = manager.progress(filed)
        state = request_state(filed, progress, seen)
        missing = sum(len(t.missing) for t in progress)
        cost = {"look": what, "cpu": round(time.process_time() - cpu, 2), "wall": round(time.monotonic() - began, 2),
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "state": state.state,
                "topics": len(progress), "missing": missing}  # fmt: skip
        print(json.dumps(cost), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2_000)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.store is not None:
        call_each(asked.store, asked.hosts)
        return
    with tempfile.TemporaryDirectory(prefix="logagent-bench-") as root:
        build(Path(root), asked.hosts, asked.topics)
        command = [sys.executable, "-m", "tests.bench.topic_deletion", "--hosts", str(asked.hosts), "--store", root]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
