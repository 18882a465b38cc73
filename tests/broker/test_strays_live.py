"""Strays of partitions that live here, on three brokers: one that the leader covers goes, an only copy stays.

The cluster is its own, as brokers are stopped.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.base.dir_names import stray_name
from tests.broker.evidence.test_orphans_live import RECORDS, logagent, wait_serving
from tests.broker.rig.cluster import KafkaCluster
from tests.hosts import HEX
from tests.long_form import versions


@pytest.mark.parametrize("version", versions("4.4.0", "4.3.1"))
def test_a_stray_goes_if_its_leader_has_all_of_it_and_else_stays(
    kafka_cluster: Callable[..., KafkaCluster], version: str
) -> None:
    """The leader of `emptied` lost its log and was filled anew: as long as the stray, and none of its records."""
    cluster = kafka_cluster(version, nodes=3, log_dirs=1).start()
    two, three = cluster.node(2), cluster.node(3)
    for topic in ("whole", "emptied"):
        cluster.create_topic(topic, assignments={0: [3, 2]})
        cluster.produce(topic, 0, n=RECORDS)
        cluster.wait_in_sync(topic)
    admin = {
        "LOGAGENT_ASSIGNMENTS__SOURCES": "admin",
        "LOGAGENT_KAFKA__BOOTSTRAP_SERVERS": ",".join(node.bootstrap for node in cluster.nodes),
    }
    # From now on it knows the brokers of its cluster.
    logagent(two, "cleanup", "--execute", settings=admin)

    two.stop()
    three.stop()
    shutil.rmtree(three.log_dirs[0] / "emptied-0")
    three.start()
    cluster.wait_ready()
    cluster.produce("emptied", 0, n=2 * RECORDS, prefix="refilled")
    strays = {topic: set_aside(two.log_dirs[0], topic) for topic in ("whole", "emptied")}

    # To come back it must be covered, too, or its leader would truncate it. The leader is asked.
    back = ("restore", *(stray.name for stray in strays.values()))
    restored = logagent(two, *back, settings=admin, allow=(0,))
    assert [a["name"] for a in restored["actions"] if a["action"] == "restore"] == [strays["whole"].name]
    (refused,) = restored["refusals"]
    assert refused["name"] == strays["emptied"].name and "that leader would truncate it" in refused["fact"]
    assert "the leader (node 3)" in refused["fact"], refused

    def cleanup() -> dict[str, str]:
        """What went, and why the others stayed."""
        done = logagent(two, "cleanup", "--execute", settings=admin, allow=(0, 3))
        assert {a["name"] for a in done["actions"]} == {a["name"] for a in done["actions"] if a["outcome"] == "done"}
        went = {a["name"]: "done" for a in done["actions"]}
        return went | {r["name"]: f"{r['guard']}: {r['fact']}" for r in done["refusals"]}

    said = cleanup()
    assert said.pop(strays["whole"].name) == "done", said
    assert "assigned: its partition is assigned to this node" in said[strays["emptied"].name]
    assert f"it ends at offset {RECORDS} in leader epoch" in said[strays["emptied"].name]
    assert not strays["whole"].exists()

    # The same beside the live broker, which has made a follower of its own under that name.
    two.start()
    cluster.wait_ready()
    cluster.wait_in_sync("emptied")
    wait_serving(two)
    assert "no copy is known to cover it" in cleanup()[strays["emptied"].name]
    assert strays["emptied"].is_dir() and sum(f.stat().st_size for f in strays["emptied"].glob("*.log")) > 1000
    assert [len(cluster.read_all(topic, 0)) for topic in ("whole", "emptied")] == [RECORDS, 2 * RECORDS]
    assert two.offline_dirs() == []


def set_aside(log_dir: Path, topic: str) -> Path:
    return (log_dir / f"{topic}-0").rename(log_dir / stray_name(topic, 0, HEX))
