"""A partition that lives on other nodes now goes here only if its leader there has every record of it.

The clusters are their own, as brokers are stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.evidence.test_orphans_live import RECORDS, logagent, orphans
from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.process import wait_until
from tests.long_form import versions
from tests.waiting import holds


@pytest.mark.parametrize("version", versions("4.4.0", "4.3.1", "3.9.1"))
def test_the_only_records_stay_after_an_unclean_election_and_a_reassignment(
    kafka_cluster: Callable[..., KafkaCluster], version: str, tmp_path: Path
) -> None:
    """Nothing is configured: the leader is found by the metadata log of the stopped node, then by its own listener."""
    checks = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "500"}
    cluster = kafka_cluster(version, nodes=3, log_dirs=1, props=checks).start()
    two, three = cluster.node(2), cluster.node(3)
    for topic in ("only", "moved", "kept"):
        cluster.create_topic(topic, assignments={0: [3, 2]}, config={"unclean.leader.election.enable": "true"})
    cluster.produce("moved", 0, n=RECORDS)
    cluster.produce("kept", 0, n=RECORDS)
    cluster.wait_in_sync("moved")
    two.stop()
    cluster.produce("only", 0, n=RECORDS)
    three.stop()
    two.start()
    cluster.wait_ready()
    wait_until(lambda: leader(cluster, "only") == 2, 60, "node 2, which has no record of it, is elected")
    cluster.reassign("only", {0: [1, 2]})
    cluster.reassign("moved", {0: [1, 2]})
    cluster.wait_reassigned()
    assert len(cluster.read_all("only")) == 0

    exported = str(tmp_path / "assignments.json")
    logagent(cluster.node(1), "assignments", "export", exported)
    (here,) = three.log_dirs
    assert orphans(logagent(three, "scan", "--assignments", exported)) == {
        "only-0": "not-a-replica", "moved-0": "not-a-replica",
    }  # fmt: skip
    marked = logagent(three, "delete", "--partition", "only-0", "--assignments", exported, "--execute", allow=(3,))
    assert "--even-last-copy" in uncovered(marked, "only-0")["hint"]
    offered = logagent(three, "rescue", "--assignments", exported, allow=(0, 4))
    assert {a["name"] for a in offered["actions"] if a["action"] != "drop-checkpoint-entry"} == {"moved-0"}
    assert uncovered(offered, "only-0")

    def cleanup(*options: str) -> Any:
        return logagent(three, "cleanup", "--execute", *options, allow=(0, 3))

    for _ in range(2):
        cleanup("--assignments", exported)
    strays = {d.name.partition("-")[0]: d for d in here.iterdir() if d.name.endswith("-stray")}
    assert set(strays) == {"only", "moved"}, "setting aside needs the verdict only"
    # While node 3 is stopped, the leader is asked at the address that its own metadata log has.
    refused = cleanup("--assignments", exported)
    assert uncovered(refused, strays["only"].name)["guard"] == "assigned"
    assert strays["only"].is_dir() and not strays["moved"].exists()

    # Beside the live broker, by its own metadata log.
    three.start()
    cluster.wait_ready()
    assert "the leader (node" in uncovered(cleanup(), strays["only"].name)["fact"]
    holds(lambda: three.offline_dirs() == [], 2 * 1.5, "two checks of retention find nothing", interval=0.5)
    three.restart()
    cluster.wait_ready()
    assert uncovered(cleanup(), strays["only"].name)
    assert sum(f.stat().st_size for f in strays["only"].glob("*.log")) > RECORDS * 100
    assert three.offline_dirs() == []
    assert [len(cluster.read_all(topic)) for topic in ("moved", "kept")] == [RECORDS, RECORDS]


def test_strays_go_beside_a_broker_that_has_nothing_else(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    """Drained while it was down: every directory is a stray. No partition shows that the broker that answers has these
    disks, but it listens where it was asked."""
    cluster = kafka_cluster("4.4.0", nodes=2, log_dirs=1).start()
    cluster.create_topic("moved", assignments={0: [1, 2]})
    cluster.produce("moved", 0, n=RECORDS)
    cluster.wait_in_sync("moved")
    two = cluster.node(2)
    two.stop()
    cluster.reassign("moved", {0: [1]})
    cluster.wait_reassigned()
    two.start()
    cluster.wait_ready()
    (here,) = two.log_dirs
    (stray,) = (d for d in here.iterdir() if d.name.endswith("-stray"))
    done = logagent(two, "cleanup", "--execute", allow=(0, 3))
    assert [(a["name"], a["outcome"]) for a in done["actions"]] == [(stray.name, "done")], done["refusals"]
    assert not stray.exists() and two.offline_dirs() == []


def leader(cluster: KafkaCluster, topic: str) -> int:
    (described,) = cluster.ask(lambda admin: admin.describe_topics([topic]))
    return int(described["partitions"][0]["leader_id"])


def uncovered(document: Any, name: str) -> Any:
    (refusal,) = [r for r in document["refusals"] if r["name"] == name]
    assert "no copy is known to cover it" in refusal["fact"], refusal
    return refusal
