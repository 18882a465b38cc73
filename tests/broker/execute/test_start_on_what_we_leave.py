"""A real Kafka starts on a disk where the real command line marked, set aside, restored and removed partitions.

No log dir goes offline, the broker itself purges the `-delete` dirs that we left, keeps the `-stray` ones, and serves
what was restored to the last record. While it runs every deed is refused, and work under way stops when it comes. The
broker is its own, as it is stopped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.forked import run_forked
from tests.long_form import versions

PROPERTIES = {"log.segment.delete.delay.ms": "1000", "log.initial.task.delay.ms": "500"}
FREELY = ("--allow-assigned", "--even-last-copy", "--execute")
LONG = "a-topic-with-the-longest-name-that-kafka-takes." + "x" * 202
RECORDS = 60
FIRST_KEPT = 25


def command(node: KafkaNode, *arguments: str) -> list[str]:
    where = ["--kafka-config", str(node.config), "--state-dir", str(node.root / "state"), "--json"]
    return [*arguments, *where]


def environment(node: KafkaNode, **settings: str) -> dict[str, str]:
    due = {"LOGAGENT_CLEANUP__LEFTOVER_GRACE": "0s", "LOGAGENT_DELETE__FILE_DELETE_DELAY_MS": "0"}
    return {**due, "LOGAGENT_KAFKA__VERSION": node.version, **settings}


def logagent(node: KafkaNode, *arguments: str, status: int = 0, **settings: str) -> Any:
    """Run a command on the node's host, as its operator would; the JSON document it prints."""
    ran = run_forked(*command(node, *arguments), environment=environment(node, **settings))
    assert ran.status == status, f"{arguments} came to {ran.status}\n{ran.err}\n{ran.out[-3000:]}"
    return ran.json


def act(node: KafkaNode, *arguments: str) -> dict[str, str]:
    """Run an acting command, approve its plan where it is too large for this small host, and return new names."""
    plan = [*arguments]
    plan.remove("--execute")
    ran = run_forked(*command(node, *plan), environment=environment(node))
    assert ran.status in (0, 4), ran.err
    approval = ["--approve", ran.json["plan_id"]] if ran.status == 4 else []
    document = logagent(node, *arguments, *approval)
    assert document["actions"] and {a["outcome"] for a in document["actions"]} == {"done"}
    return {a["name"]: a["new_name"] for a in document["actions"] if a["action"] != "drop-checkpoint-entry"}


@pytest.mark.parametrize("version", versions("4.4.0", "4.3.1", "3.9.1"))
def test_kafka_starts_on_what_we_leave(kafka: Callable[..., KafkaNode], version: str) -> None:
    node = kafka(version, log_dirs=2, props=PROPERTIES).start()
    topics = ("kept", "undone", "aside", "marked", "removed", LONG)
    for topic in topics:
        node.create_topic(topic)
    written = {topic: node.produce(topic, n=RECORDS) for topic in topics}
    with node.admin() as admin:
        from kafka import TopicPartition

        admin.delete_records({TopicPartition("undone", 0): FIRST_KEPT})
    node.stop()

    act(node, "delete", "--topic", "removed", *FREELY)
    removed = logagent(node, "cleanup", "--execute")
    assert [a["outcome"] for a in removed["actions"]] == ["done"] and not find(node, "removed")
    moved = act(node, "delete", "--topic", f"undone|{LONG}", *FREELY)
    assert [name for name in moved.values() if not name.endswith("-delete")] == []
    assert max(map(len, moved.values())) == 255
    (aside,) = act(node, "delete", "--partition", "aside-0", "--quarantine", *FREELY).values()
    act(node, "restore", *moved.values(), "--execute")
    (marked,) = act(node, "delete", "--partition", "marked-0", *FREELY).values()
    assert set(node.dir_names()) == {"kept-0", "undone-0", f"{LONG}-0", aside, marked}
    set_aside = contents(node, aside)

    node.start()
    assert node.offline_dirs() == []
    wait_until(lambda: not find(node, marked), 60, "Kafka purges the directory that we marked", interval=0.1)
    for topic in ("kept", LONG):
        assert [r.value for r in node.read_all(topic)] == written[topic]
    # The log start offset came back with the partition: what deleteRecords removed does not rise again.
    records = node.read_all("undone")
    assert [(r.offset, r.value) for r in records] == list(enumerate(written["undone"]))[FIRST_KEPT:]
    # What was assigned and is gone was made again, empty.
    for topic in ("aside", "marked", "removed"):
        wait_until(lambda topic=topic: bool(find(node, f"{topic}-0")), 30, f"Kafka makes {topic}-0 again")  # type: ignore[misc]
        assert node.read_all(topic) == []
    assert contents(node, aside) == set_aside

    refused_while_it_runs(node, aside)
    written["kept"] += node.produce("kept", n=5, prefix="later")
    # The slow removal below takes 24 s for it, in steps of 1 MiB.
    node.produce(LONG, n=120, size=100_000)
    assert [r.value for r in node.read_all("kept")] == written["kept"]
    assert node.offline_dirs() == []
    node.stop()
    comes_while_we_remove(node, written["kept"])
    assert contents(node, aside) == set_aside


def refused_while_it_runs(node: KafkaNode, aside: str) -> None:
    before = node.dir_names()
    node.create_topic("later")
    node.delete_topic("later")
    for arguments in (
        ("delete", "--topic", "kept|undone", *FREELY),
        ("delete", "--partition", "kept-0", "--quarantine", *FREELY),
        ("restore", aside, "--execute"),
    ):
        document = logagent(node, *arguments, status=3)
        assert not document["actions"]
        assert {r["guard"] for r in document["refusals"]} <= {"window", "policy"}
        assert "window" in {r["guard"] for r in document["refusals"]} or arguments[0] == "restore"
        assert [r for r in document["refusals"] if not (r["fact"] and r["hint"])] == []
    holders = {(d["holder"]["state"], d["holder"]["pid"]) for d in logagent(node, "scan")["log_dirs"]}
    assert holders <= {("starting", node.pid), ("held", node.pid)}
    queued = logagent(node, "queue")["entries"]
    # What the broker marked waits for it, is refused once it is due, or is gone by now.
    ran = run_forked(*command(node, "cleanup", "--execute"), environment=environment(node))
    refusals = ran.json["refusals"]
    assert ran.status == (3 if refusals else 0), ran.err
    assert {r["guard"] for r in refusals} <= {"window"} and not ran.json["actions"], queued
    wait_until(lambda: not find(node, "later-0."), 60, "Kafka purges what it marked itself", interval=0.1)
    assert node.dir_names() == before


def comes_while_we_remove(node: KafkaNode, kept: list[bytes]) -> None:
    """The broker starts while a slow removal is under way: the removal stops, the broker purges what is left."""
    (name,) = act(node, "delete", "--topic", LONG, *FREELY).values()
    (directory,) = find(node, name)
    files, size = len(list(directory.iterdir())), size_of(directory)
    slow = {**os.environ, **environment(node, LOGAGENT_DELETE__BYTES_PER_SECOND="512KiB")}
    words = [sys.executable, "-m", "logagent", *command(node, "cleanup", "--execute")]
    with subprocess.Popen(words, env=slow, stdout=subprocess.PIPE) as removal:
        wait_until(lambda: len(list(directory.iterdir())) < files or size_of(directory) < size, 60, "it begins")
        node.start()
        out, _ = removal.communicate(timeout=120)
    outcomes = {a["name"]: a["outcome"] for a in json.loads(out)["actions"]}
    assert removal.returncode == 3 and outcomes == {name: "yielded"}
    assert node.offline_dirs() == []
    wait_until(lambda: not directory.exists(), 60, "Kafka purges what we had begun to remove", interval=0.1)
    assert [r.value for r in node.read_all("kept")] == kept
    assert node.offline_dirs() == []


def size_of(directory: Path) -> int:
    return sum(f.stat().st_size for f in directory.glob("*.log"))


def find(node: KafkaNode, beginning: str) -> list[Path]:
    return [
        entry for d in node.log_dirs for entry in d.iterdir() if entry.is_dir() and entry.name.startswith(beginning)
    ]


def contents(node: KafkaNode, name: str) -> dict[str, bytes]:
    """The segments of a directory: Kafka may write other small files beside them when it loads one."""
    (directory,) = find(node, name)
    return {f.name: f.read_bytes() for f in directory.glob("*.log")}
