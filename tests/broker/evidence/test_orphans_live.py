"""Three real nodes: topics deleted, created again and reassigned while a node is down, strays, moves between log dirs.

logagent has to find exactly the orphans that this makes, clean them by the rules, and leave the brokers healthy: no log
dir offline, every record of every remaining topic still there. The clusters are their own, as brokers are stopped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.forked import run_forked
from tests.long_form import long_form, versions
from tests.waiting import holds

ZERO_AGES = {
    "LOGAGENT_CLEANUP__SIGHTINGS": "2",
    "LOGAGENT_CLEANUP__MIN_AGE": "0s",
    "LOGAGENT_CLEANUP__STRAY_RETENTION": "0s",
    "LOGAGENT_CLEANUP__LEFTOVER_GRACE": "0s",
    "LOGAGENT_CLEANUP__MAX_DIRS": "1000",
    "LOGAGENT_CLEANUP__MAX_FRACTION": "1",
    "LOGAGENT_DELETE__FILE_DELETE_DELAY_MS": "0",
    "LOGAGENT_GUARD__SETTLE": "0s",
}
RECORDS = 60


def logagent(
    node: KafkaNode,
    *arguments: str,
    allow: tuple[int, ...] = (0,),
    settings: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Any:
    """Run the command for `node` (with another `server.properties` if one is given) and return its JSON document."""
    environment = {**ZERO_AGES, "LOGAGENT_KAFKA__VERSION": node.version, **(settings or {})}
    where = ("--kafka-config", str(config or node.config), "--state-dir", str(node.root / "state"))
    ran = run_forked(*arguments, "--json", *where, environment=environment)
    assert ran.status in allow, f"{arguments} came to {ran.status}\n{ran.err}\n{ran.out[-2000:]}"
    return ran.json if ran.out else None


def verdicts(document: Any) -> dict[str, tuple[str, str | None]]:
    return {d["name"]: (d["verdict"], d["reason"]) for d in document["dirs"] if d["verdict"] is not None}


def orphans(document: Any) -> dict[str, str | None]:
    return {name: reason for name, (verdict, reason) in verdicts(document).items() if verdict == "orphan"}


def wait_serving(node: KafkaNode) -> None:
    """Until logagent itself has seen the broker serve every log dir."""

    def held() -> bool:
        logagent(node, "cleanup", "--execute", settings={"LOGAGENT_CLEANUP__STRAY_RETENTION": "30d"}, allow=(0, 3))
        return all(d["holder"]["state"] == "held" for d in logagent(node, "scan")["log_dirs"])

    wait_until(held, 60, "logagent sees the broker serve", interval=0.5)


@pytest.mark.parametrize("version", versions("3.9.1", "4.4.0", "4.3.1"))
def test_exactly_the_orphans_that_the_cluster_made_are_found_and_cleaned(
    kafka_cluster: Callable[..., KafkaCluster], version: str, tmp_path: Path
) -> None:
    cluster = kafka_cluster(version, nodes=3).start()
    three = cluster.node(3)
    everywhere = [1, 2, 3]
    for name in ("kept", "gone", "again", "moved", "shifted"):
        cluster.create_topic(name, assignments={0: everywhere, 1: everywhere})
        for partition in (0, 1):
            cluster.produce(name, partition, n=RECORDS)
    here = next(d for d in three.log_dirs if (d / "shifted-0").is_dir())
    other = next(d for d in three.log_dirs if d != here)
    cluster.move_replica("shifted", 0, 3, str(other))
    cluster.wait_moved("shifted", 0, 3, str(other))
    cluster.wait_in_sync("kept")

    three.stop()
    cluster.delete_topic("gone")
    cluster.delete_topic("again")
    cluster.create_topic("again", assignments={0: everywhere})
    cluster.produce("again", 0, n=RECORDS, prefix="second life")
    cluster.reassign("moved", {0: [1, 2], 1: [1, 2]})
    cluster.wait_reassigned()

    # The stopped node's own log is too old to prove anything.
    alone = {"LOGAGENT_ASSIGNMENTS__MAX_AGE": "1s", "LOGAGENT_ASSIGNMENTS__SOURCES": "kraft-log"}
    assert set(verdicts(logagent(three, "scan", settings=alone)).values()) == {("unknown", "stale-assignments")}
    # What a living node exports proves exactly what was made.
    exported = tmp_path / "assignments.json"
    logagent(cluster.node(1), "assignments", "export", str(exported))
    made = {
        "gone-0": "topic-absent", "gone-1": "topic-absent", "again-0": "topic-recreated", "again-1": "topic-recreated",
        "moved-0": "not-a-replica", "moved-1": "not-a-replica",
    }  # fmt: skip
    assert orphans(logagent(three, "scan", "--assignments", str(exported))) == made

    first = logagent(three, "cleanup", "--execute", "--assignments", str(exported))
    assert [a for a in first["actions"] if a["action"] == "quarantine"] == [], "one sighting is not enough"
    second = logagent(three, "cleanup", "--execute", "--assignments", str(exported))
    set_aside = {a["name"]: (a["reason"], a["outcome"]) for a in second["actions"] if a["action"] == "quarantine"}
    assert set_aside == {name: (reason, "done") for name, reason in made.items()}

    three.start()
    cluster.wait_ready()
    for name in ("kept", "again", "shifted"):
        cluster.wait_in_sync(name)
    assert three.offline_dirs() == []
    strays = [name for name in three.dir_names() if name.endswith("-stray")]
    assert sorted(re.sub(r"\.[0-9a-f]{32}-stray$", "", name) for name in strays) == sorted(made)

    # Beside the live broker: by its own fresh log only the strays are orphans, as before; they go, and nothing else.
    assert orphans(logagent(three, "scan")) == {
        name: made[re.sub(r"\.[0-9a-f]{32}-stray$", "", name)] for name in strays
    }
    wait_serving(three)
    removed = logagent(three, "cleanup", "--execute", allow=(0, 3))
    assert {a["name"] for a in removed["actions"] if a["outcome"] == "done"} == set(strays), removed
    assert not [name for name in three.dir_names() if name.endswith("-stray")]
    assert {r["guard"] for r in removed["refusals"]} <= {"window"}, "what is the broker's is left to it"

    assert three.offline_dirs() == []
    for name, partitions in (("kept", 2), ("moved", 2), ("shifted", 2), ("again", 1)):
        for partition in range(partitions):
            assert len(cluster.read_all(name, partition)) == RECORDS, f"{name}-{partition}"
    three.stop()
    three.start()
    cluster.wait_ready()
    assert three.offline_dirs() == []
    assert "Stopping serving logs" not in three.log_text(every_run=True)


@long_form
@pytest.mark.parametrize("version", versions("3.9.1", "4.4.0", "4.3.1"))
def test_strays_that_a_live_broker_holds_open_give_their_space_back_at_once(
    kafka_cluster: Callable[..., KafkaCluster], version: str
) -> None:
    """The broker itself sets the directories of a deleted topic aside when it starts, and keeps them open."""
    flush = {"log.flush.scheduler.interval.ms": "1000", "log.retention.check.interval.ms": "1000"}
    cluster = kafka_cluster(version, nodes=2, props=flush).start()
    two = cluster.node(2)
    cluster.create_topic("kept", assignments={0: [1, 2]})
    cluster.create_topic("gone", assignments={0: [1, 2]})
    cluster.produce("kept", 0, n=RECORDS)
    cluster.produce("gone", 0, n=2000, size=5000)
    cluster.wait_in_sync("gone")
    two.stop()
    cluster.delete_topic("gone")
    two.start()
    cluster.wait_ready()
    (stray,) = [d / name for d in two.log_dirs for name in os.listdir(d) if name.endswith("-stray")]
    held = [f"/proc/{two.pid}/fd/{n}" for n in os.listdir(f"/proc/{two.pid}/fd")]
    (log_file,) = [fd for fd in held if os.path.exists(fd) and os.readlink(fd).startswith(f"{stray}/") and
                   os.readlink(fd).endswith(".log")]  # fmt: skip
    assert os.stat(log_file).st_blocks * 512 > 9_000_000

    wait_serving(two)
    removed = logagent(two, "cleanup", "--execute", allow=(0, 3))
    (action,) = [a for a in removed["actions"] if a["name"] == stray.name]
    assert action["outcome"] == "done", action
    assert removed["totals"]["freed_bytes"] > 9_000_000
    assert not stray.exists()
    # The broker still has the file open, and yet its blocks are back.
    assert os.readlink(log_file).endswith(" (deleted)")
    assert os.stat(log_file).st_blocks == 0

    # Background tasks of a second each go over it; then a clean stop and the next start.
    holds(lambda: two.offline_dirs() == [], 5, "no background task finds anything", interval=0.5)
    assert two.stop() in (0, 143)
    two.start()
    cluster.wait_ready()
    assert two.offline_dirs() == []
    assert len(cluster.read_all("kept", 0)) == RECORDS
    assert "Stopping serving logs" not in two.log_text(every_run=True)
