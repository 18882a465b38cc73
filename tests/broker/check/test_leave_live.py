"""A log dir is emptied by the JSON of `check --leave` with Kafka's own tool and leaves `log.dirs`: nothing is lost.

The broker is its own, as a log dir is taken from it.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.check.starts import Prepared, outcome
from tests.broker.check.tried import checked
from tests.broker.evidence.test_orphans_live import RECORDS, logagent
from tests.broker.rig.jars import kafka_jars, run_configs, version_tuple
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.damages.disk import TOPIC
from tests.damages.row import Outcome
from tests.long_form import FULL, long_form

NOT_APPLIED = "could not be applied"
TOPICS = ("orders", "clicks", "visits")


@long_form
@pytest.mark.parametrize("version", ["4.3.1", "4.4.0", "3.9.1"])
def test_a_log_dir_is_emptied_and_taken_away(kafka: Callable[..., KafkaNode], version: str, tmp_path: Path) -> None:
    """The cordon is taken back before the stop, as the how-to says; or, at last, forgotten. By a broker of its own, as
    log dirs leave it."""
    # Kafka marks what it has moved, and removes that after a delay.
    soon = {"log.segment.delete.delay.ms": "1000", "log.initial.task.delay.ms": "500"}
    node = kafka(version, log_dirs=3, props=soon).start()
    for topic in TOPICS:
        node.create_topic(topic, partitions=2)
        node.produce(topic, n=RECORDS)
    before = {topic: len(node.read_all(topic)) for topic in TOPICS}
    leaving = next(d for d in node.log_dirs if any(p.name.startswith(TOPICS) for p in d.iterdir()))
    moves = tmp_path / "moves.json"

    def ask(*more: str, allow: tuple[int, ...] = (3,)) -> Any:
        return logagent(node, "check", "--leave", str(leaving), *more, allow=allow)

    asked = ask("--reassignment", str(moves))
    assert {"assigned", "broker-runs"} <= {o["code"] for o in asked["obstacles"]}
    if asked["cordon"] is not None:
        run_line(node, asked["cordon"])
        wait_until(lambda: ask()["cordon"] is None, 60, "the log dir is cordoned", interval=0.5)
    assert (asked["cordon"] is not None) == (version_tuple(version) >= (4, 3))

    run_line(node, "kafka-reassign-partitions.sh --bootstrap-server HOST:PORT --reassignment-json-file "
             f"{moves} --execute")  # fmt: skip
    moved = json.loads(moves.read_text())["partitions"]
    for p in moved:
        node.wait_moved(p["topic"], p["partition"], node.node_id, p["log_dirs"][0])
    verify = f"kafka-reassign-partitions.sh --bootstrap-server HOST:PORT --reassignment-json-file {moves} --verify"
    assert "still in progress" not in run_line(node, verify)
    assert moved and {f"{p['topic']}-{p['partition']}" for p in moved}.isdisjoint(p.name for p in leaving.iterdir())
    in_the_way = {"broker-runs"} if asked["cordon"] is None else set()
    wait_until(lambda: codes(ask(allow=(0, 3))) == in_the_way, 120, "nothing is left", interval=1)

    cordons = asked["cordon"] is not None
    if cordons:
        run_line(node, ask(allow=(0,))["uncordon"])
        wait_until(lambda: ask()["uncordon"] is None, 60, "the cordon is taken back", interval=0.5)
    node.stop()
    last = ask(allow=(0,))
    assert last["may_leave"] and last["line"] is not None and last["cordon"] is None
    key, _, value = last["line"].partition("=")
    node.configure({key: value})
    node.start()
    assert node.offline_dirs() == []
    assert NOT_APPLIED not in (node.root / "node.log").read_text(errors="replace")
    assert {topic: len(node.read_all(topic)) for topic in TOPICS} == before == dict.fromkeys(TOPICS, RECORDS)
    if cordons and FULL:
        forget_a_cordon(node, value.split(","))


def forget_a_cordon(node: KafkaNode, configured: list[str]) -> None:
    """A cordoned log dir leaves `log.dirs`: check says what the next start makes of it, and what helps."""
    kept, gone = (str(d) for d in node.log_dirs if str(d) in configured)
    cordon = logagent(node, "check", "--leave", gone, allow=(3,))["cordon"]
    run_line(node, cordon)
    wait_until(lambda: stale(node) == [] and logagent(node, "check", "--leave", gone, allow=(0, 3))["uncordon"], 60,
               "it is cordoned", interval=0.5)  # fmt: skip
    node.stop()
    node.configure({"log.dirs": kept})
    (finding,) = stale(node)
    assert finding["path"] == gone
    node.start()
    assert NOT_APPLIED in (node.root / "node.log").read_text(errors="replace")
    run_line(node, finding["hint"].partition(": ")[2])
    wait_until(lambda: stale(node) == [], 60, "the cordon is taken back", interval=0.5)


def stale(node: KafkaNode) -> list[Any]:
    findings = logagent(node, "check", allow=(0, 6))["findings"]
    return [f for f in findings if f["code"] == "stale-cordon"]


def codes(document: Any) -> set[str]:
    return {o["code"] for o in document["obstacles"]}


def run_line(node: KafkaNode, line: str) -> str:
    """A command line as it was printed, with this broker's address."""
    script, *arguments = shlex.split(line.replace("HOST:PORT", node.bootstrap))
    if script == "kafka-configs.sh":
        return run_configs(node.version, *arguments)
    assert script == "kafka-reassign-partitions.sh"
    reassign = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    return kafka_jars(node.version, tools=True).run(reassign, *arguments)


@long_form
@pytest.mark.parametrize("version", ["3.7.0", "3.9.1", "4.3.1", "4.4.0"])
def test_what_was_moved_by_hand_is_served_at_the_latest_after_a_second_start(tmp_path: Path, version: str) -> None:
    """Whether the first start serves it is a race within the broker; check says that it may not."""
    prepared = Prepared(tmp_path, version, "combined")
    try:
        with prepared.disk() as disk:
            old, new = disk.partition().parent, disk.other(disk.partition())
            for directory in old.glob(f"{TOPIC}-*"):
                shutil.move(directory, new)
            disk.log_dirs(new)
            found = [f["severity"] for f in checked(disk, version) if f["code"] == "wrong-directory"]
            assert found and set(found) == {"warning"}
            assert outcome(disk) in (Outcome.STARTS, Outcome.UNSERVED)
            disk.node.stop()
            assert outcome(disk) is Outcome.STARTS
    finally:
        prepared.close()
