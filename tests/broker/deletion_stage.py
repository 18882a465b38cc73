"""The cluster on which `deletion_cases` play: what they do to it, and what its brokers are asked afterwards."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from logagent.base.units import instant
from logagent.deletion.store.requests import ControlFolder, Request, RequestedTopic, write_request
from logagent.kafka.files.log_extent import read_log_extent
from logagent.kafka.files.properties import META_PROPERTIES, parse_meta_properties
from logagent.store.signing import load_private_key
from tests.broker.rig.cluster import Cluster
from tests.broker.rig.ordered_cluster import OrderedCluster, approving, current
from tests.broker.rig.process import wait_until
from tests.broker.rig.rig import Mode, Rig

NODES, PARTITIONS, RECORDS = (1, 2, 3), 2, 20
# A broker writes its checkpoints every second, and so meets a log dir that it cannot write to; it is not lost soon.
PROPERTIES = {
    "broker.session.timeout.ms": "10000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.retention.check.interval.ms": "5000",
}


class Stage:
    """Three brokers with agents that know all of them, and a topic `kept` that nobody deletes."""

    def __init__(self, rig: Rig, root: Path, version: str, mode: Mode) -> None:
        self.rig, self.mode, self.root, self.chance = rig, mode, root, random.Random(7)
        make = rig.zookeeper_cluster if mode == "zookeeper" else rig.cluster
        self.cluster: Cluster[Any] = make(version, props=PROPERTIES)
        self.cluster.start(timeout=300)
        self.ordered = OrderedCluster(root, {node.node_id: node for node in self.cluster.nodes})
        self.ordered.cluster = self.cluster
        self.settings = {
            "LOGAGENT_KAFKA__BOOTSTRAP_SERVERS": ",".join(n.bootstrap for n in self.cluster.nodes),
            # What a stopped broker's own log says counts until it is so old: by default a quarter of an hour.
            "LOGAGENT_ASSIGNMENTS__MAX_AGE": "20s",
            "LOGAGENT_CLEANUP__STRAY_RETENTION": "15s",
        }
        if mode == "zookeeper":  # which would not start with a -stray dir in a log dir
            (root / "aside").mkdir()
            self.settings["LOGAGENT_CLEANUP__QUARANTINE_DIRS"] = str(root / "aside")
        self.ordered.settings, self.ordered.silent_after = self.settings, "60s"
        self.gone: set[str] = set()

    def __enter__(self) -> Self:
        self.ordered.daemons.__enter__()
        self.kept = self.create("kept")
        self.kept_id = self.cluster.topic_id(self.kept)
        self.everything_runs()
        return self

    def __exit__(self, *error: Any) -> None:
        self.ordered.daemons.__exit__(*error)

    def create(
        self,
        topic: str,
        assignments: Mapping[int, Sequence[int]] | None = None,
    ) -> str:
        partitions = len(assignments) if assignments is not None else PARTITIONS
        self.cluster.create_topic(topic, partitions=partitions, rf=3, assignments=assignments)
        for partition in range(partitions):
            self.cluster.produce(topic, partition, n=RECORDS)
        self.gone.discard(topic)
        return topic

    def delete(self, topic: str) -> Any:
        """The request as `topics status` shows it; `topics delete --timeout 0` returned at once. An approval is void
        when the topic's replicas have changed since, as in a reassignment: then it is planned again."""
        for _ in range(5):
            plan = self.ordered.topics("delete", "--topic", topic)[1]
            words = ["--execute", *approving(plan), "--timeout", "0"]
            status, done, said = self.ordered.topics("delete", "--topic", topic, *words)
            if status != 4:
                break
        assert status == 0, (said, done)
        return self.request(done["request_id"])

    def purge_all(self, topic: str, kind: str, *more: str) -> Any:
        """The request to purge what node 3 still has of a topic, both partitions; `topics purge` returned at once."""
        words = ["--report", str(self.root / "report"), "--topic", topic, "--kind", kind, *more]
        _, plan, said = self.ordered.topics("purge", *words)
        found = [(d["node_id"], d["topic"], d["partition"]) for d in plan["directories"]]
        assert sorted(found) == [(3, topic, p) for p in range(PARTITIONS)], (plan, said)
        words += ["--execute", *approving(plan), "--timeout", "0"]
        status, done, said = self.ordered.topics("purge", *words)
        assert status == 0, said
        return self.request(done["request_id"])

    def moved_away(self, topic: str) -> uuid.UUID | None:
        """The id of the topic, whose replicas on node 3 are nobody's from now on."""
        self.cluster.reassign(topic, {p: [1, 2] for p in range(PARTITIONS)})
        self.cluster.wait_reassigned()
        return self.cluster.topic_id(topic)

    def request(self, request_id: str) -> Any:
        return next(r for r in self.ordered.status()["requests"] if r["request_id"] == request_id)

    def signed_request(self, topic: RequestedTopic) -> Any:
        """A request that is in the store already, whoever made it."""
        cluster_id, now = self.cluster.nodes[0].cluster_id, datetime.now(UTC)
        until = instant(now + timedelta(days=1))
        request = Request(cluster_id, "topics", "a" * 24, "ops", instant(now), until, "0" * 32, topics=(topic,))
        number = write_request(
            ControlFolder(self.ordered.store, cluster_id), request, load_private_key(self.ordered.key)
        )
        return self.request(number)

    def rounds_until(self, request: Any, holds: Callable[[Any], bool], what: str, seconds: float = 420) -> None:
        """A controller's rounds until what `topics status` says of the request holds."""
        last: list[Any] = [request]

        def then() -> bool:
            last[0] = self.request(request["request_id"])
            return holds(last[0])

        try:
            with self.ordered.controller():
                wait_until(then, seconds, what, interval=2)
        except AssertionError as error:
            raise AssertionError(f"{error}: {json.dumps(last[0])}") from None

    def only_missing(self, request: Any, node_id: int, why: str) -> None:
        """The others finish, and every replica on this node is ineligible for a reason that contains `why`."""

        def so(r: Any) -> bool:
            missing = [m for t in r["topics"] for m in t["missing"]]
            return bool(missing) and all(
                m["node_id"] == node_id and m["state"] == "ReplicaDeletionIneligible" and why in (m["why"] or "")
                for m in missing
            )

        self.rounds_until(request, so, f"all but node {node_id} finish, which says {why!r}")

    def stays_open(self, request: Any, seconds: float = 20) -> None:
        """Rounds for so long, and the request is not done: the cluster waits for something, which only the controller
        that asks it is told."""
        with self.ordered.controller():
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                assert self.request(request["request_id"])["state"] in ("open", "deleting")
                time.sleep(1)

    def stays_undecided(self, request: Any) -> None:
        """Rounds, and nobody decides it: it says that it is to be asked for again."""
        self.stays_open(request)
        self.rounds_until(request, lambda r: r["state"] != "open" or "ask again" in r["next"], "its minute is over")
        now = self.request(request["request_id"])
        assert now["state"] == "open" and "not decided" in now["why"], now

    def completes(self, request: Any) -> None:
        self.rounds_until(request, lambda r: r["state"] == "done", "the request completes")

    def gives_back(self, request: Any, node_id: int, topic: str) -> None:
        """What the broker set aside when it came back is removed after its retention, in report mode too, and the bytes
        that came back are told apart from those that are quarantined."""
        names = [name for name in self.cluster.node(node_id).dir_names() if name.startswith(f"{topic}-")]
        print(f"after its start node {node_id} has {names}", flush=True)

        last: list[Any] = []

        def back() -> bool:
            (known,) = last[:] = self.request(request["request_id"])["topics"]
            names = [n for n in self.cluster.node(node_id).dir_names() if n.startswith(f"{topic}-")]
            return not names and known["strays_left"] == 0 and (known["bytes_back"] > 0 or not strays)

        strays = [name for name in names if name.endswith("-stray")]
        try:
            wait_until(back, 240, "its stray is removed and its bytes are back", interval=2)
        except AssertionError as error:
            answers = self.ordered.store / "answers" / self.cluster.nodes[0].cluster_id / str(node_id)
            said = (answers / f"{request['request_id']}.json").read_text()
            raise AssertionError(f"{error}: {json.dumps(last)} {said}") from None

    def killed_in_the_middle(self, node_id: int) -> None:
        """Controllers and the node's agent are killed while they carry it out; the agent runs again afterwards."""
        for _ in range(3):
            with self.ordered.controller():
                time.sleep(self.chance.uniform(1, 5))
                agent = self.ordered.running.pop(node_id).process
                agent.kill()
                agent.wait(30)
                time.sleep(self.chance.uniform(0, 2))
            self.ordered.agent(node_id)

    def agent_is(self, node_id: int, told: signal.Signals) -> None:
        self.ordered.running[node_id].process.send_signal(told)

    def age(self, node_id: int, topic: str) -> None:
        """Directories younger than a minute are not judged by the Admin API: let these be older."""
        for path in self.cluster.node(node_id).log_dirs:
            for found in [d for d in path.iterdir() if d.name.startswith(f"{topic}-")]:
                os.utime(found, (time.time() - 3600,) * 2)

    def configure(self, changes: Mapping[str, str | None]) -> None:
        """Restart whoever may be the cluster's controller with these changes."""
        for node in self.cluster.nodes if self.mode == "zookeeper" else self.cluster.nodes[:1]:
            node.stop()
            node.configure(changes).start(timeout=240)
        self.everything_runs()

    def commit_an_offset(self) -> None:
        """So that the cluster has an internal topic."""
        from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=self.cluster.bootstrap, group_id="group", enable_auto_commit=False)
        try:
            consumer.assign([TopicPartition(self.kept, 0)])
            consumer.commit({TopicPartition(self.kept, 0): OffsetAndMetadata(1, "", -1)})
        finally:
            consumer.close()
        assert "__consumer_offsets" in self.cluster.topics()

    def report(self, topic: str, table: str) -> None:
        """A fleet report as soon as it lists both partitions of the topic as orphans, or as leftovers."""

        def listed() -> bool:
            self._report()
            text = (self.root / "report" / f"{table}.csv").read_text()
            return all(f",{topic}-{partition}" in text for partition in range(PARTITIONS))

        wait_until(listed, 180, f"node 3 lists {topic} among its {table}", interval=1)

    def _report(self) -> None:
        """What the three hosts themselves say they have (a report of the fleet takes Spark)."""
        cluster_id, folder = self.cluster.nodes[0].cluster_id, self.root / "report"
        folder.mkdir(exist_ok=True)
        columns = ["log_dir", "name", "topic", "topic_id", "partition", "reason", "allocated", "kind"]
        identity = ["inode", "directory_id", "end_offset"]
        tables: dict[str, list[list[Any]]] = {"orphans": [], "leftovers": [], "usage_hosts": []}
        for node in self.cluster.nodes:
            dirs = self.ordered.scan(node.node_id)["dirs"]
            tables["usage_hosts"].append([cluster_id, node.node_id, "", len(dirs)])
            for d in dirs:
                table = "orphans" if d["verdict"] == "orphan" else "leftovers" if d["kind"] == "stray" else None
                if table is not None:
                    row = [cluster_id, node.node_id, f"kafka-{node.node_id}", *(d[name] for name in columns)]
                    with suppress(FileNotFoundError):  # its retention was over
                        tables[table].append([*row, *_identity(Path(d["log_dir"], d["name"]))])
        for name, rows in tables.items():
            head = ["cluster_id", "node_id", "host", *([*columns, *identity] if name != "usage_hosts" else ["dirs"])]
            with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([head, *rows])
        (folder / "report.json").write_text(json.dumps({"schema": "logagent.fleet-report/1"}))

    def everything_runs(self) -> None:
        """Every broker and every agent, from now on; none has a log dir offline, or a replica of what is gone."""
        since = time.time()
        for node in self.cluster.nodes:
            if not node.alive:
                node.start(timeout=240)
        for node_id in NODES:
            if node_id not in self.ordered.running:
                self.ordered.agent(node_id)
            self.ordered.running[node_id].process.send_signal(signal.SIGCONT)
        wait_until(lambda: self.cluster.live_nodes() >= set(NODES), 120, "every broker is back")
        landing = self.ordered.store / "landing" / self.cluster.nodes[0].cluster_id

        def newest(node_id: int) -> float:
            return max((p.stat().st_mtime for p in landing.glob(f"*/{node_id}/*.manifest.json")), default=0)

        wait_until(lambda: all(newest(n) > since for n in NODES), 120, "every agent has published since", interval=0.5)
        assert [node.offline_dirs() for node in self.cluster.nodes] == [[], [], []]
        for topic in self.gone:
            self._has_none(topic)

    def is_gone(self, topic: str) -> None:
        """The cluster names it no more, and no broker that runs has a log of it; the others are asked later."""
        self.gone.add(topic)
        assert topic not in self.cluster.topics()
        self._has_none(topic)

    def _has_none(self, topic: str) -> None:
        for node in self.cluster.nodes:
            if node.alive:
                logs = [log for state in node.describe_log_dirs().values() for log in state.replicas]
                assert not [log for log in logs if log[0] == topic], (node.node_id, logs)
            assert not current(node, topic), (node.node_id, current(node, topic))

    def is_untouched(self, topic: str, topic_id: uuid.UUID | None, replicas: tuple[int, ...] = NODES) -> None:
        """It is the same topic, every replica of it is where it was and in sync, and every record can be read."""
        self.cluster.wait_in_sync(topic, 120)
        (described,) = self.cluster.ask(lambda admin: admin.describe_topics([topic]))
        assert uuid.UUID(str(described["topic_id"])) == topic_id, described
        assert all(sorted(p["replica_nodes"]) == list(replicas) for p in described["partitions"]), described
        for node_id in replicas:
            logs = [log for state in self.cluster.log_dirs_of(node_id).values() for log in state.replicas]
            assert sorted(log for log in logs if log[0] == topic) == [(topic, p) for p in range(PARTITIONS)], node_id
        assert [len(self.cluster.read_all(topic, p)) for p in range(PARTITIONS)] == [RECORDS] * PARTITIONS


def _identity(path: Path) -> tuple[int, str, int | None]:
    """Inode, directory id and log end offset of a directory."""
    meta = parse_meta_properties((path.parent / META_PROPERTIES).read_bytes())
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.fstat(fd).st_ino, meta.directory_id or "", read_log_extent(fd).log_end
    finally:
        os.close(fd)
