"""A partition that comes back past its retention: a broker deletes it at its first check, if nobody says so before.

Seen on 3.9.1 and 4.3.1 without the refusal: 0 of 100 records after two checks. Where a topic's settings are not on the
host (ZooKeeper mode), the operator's word decides. The brokers are their own, as they are stopped.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable

import pytest

from tests.broker.restores import PROPERTIES, act, logagent, retention_checks, write
from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.jars import run_configs
from tests.broker.rig.kafka import KafkaNode
from tests.long_form import versions

COUNT = 100
DAY_MS = 86_400_000
BACK = ("restore", "--replace", "--even-last-copy")


def pasted(node: KafkaNode, command: str) -> None:
    """Run a `kafka-configs.sh` command line as it was printed."""
    script, *words = shlex.split(command.replace("HOST:PORT", node.bootstrap))
    assert script == "kafka-configs.sh"
    run_configs(node.version, *words)


@pytest.mark.parametrize(
    ("version", "mode"), versions(("3.9.1", "kraft"), ("3.5.2", "zookeeper"), ("4.3.1", "kraft"), ("4.4.0", "kraft"))
)
def test_what_retention_would_delete_comes_back_once_it_is_kept(
    kafka: Callable[..., KafkaNode], version: str, mode: str
) -> None:
    node = kafka(version, log_dirs=1, mode=mode, props=PROPERTIES).start()
    node.create_topic("canary-1", config={"retention.ms": "1000"})
    node.create_topic("orders", config={"retention.ms": "-1"})
    # Written now, with timestamps of the day before yesterday.
    values = write(node, "orders", 0, COUNT, at_ms=int(time.time() * 1000) - 2 * DAY_MS)
    node.stop()
    (node.root / "quarantine").mkdir()
    # A broker before 3.6.1 does not start with what stands in the way as a `-stray`.
    settings = {"LOGAGENT_CLEANUP__QUARANTINE_DIRS": str(node.root / "quarantine")} if mode == "zookeeper" else {}
    (aside,) = act(node, "delete", "--topic", "orders", "--allow-assigned", "--even-last-copy", **settings).values()
    node.start()
    alter = "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name orders"
    pasted(node, f"{alter} --add-config retention.ms={DAY_MS}")
    node.stop()

    (refused,) = logagent(node, *BACK, aside, "--execute", allow=(3,), settings=settings)["refusals"]
    log = next((node.log_dirs[0] / aside).glob("*.log"))
    if mode == "kraft":
        assert f"deletes all its {log.stat().st_size} bytes" in refused["fact"]
        assert f"retention.ms={DAY_MS} (of the topic)" in refused["fact"]
    else:
        assert "may delete" in refused["fact"] and "ZooKeeper mode" in refused["fact"]

    node.start()
    pasted(node, refused["command"])
    node.stop()
    word = () if mode == "kraft" else ("--retention-will-delete",)
    act(node, *BACK, *word, aside, **settings)
    node.start()
    retention_checks(node, 1)
    assert [r.value for r in node.read_all("orders")] == values and node.offline_dirs() == []


def test_what_other_brokers_keep_of_it_now_decides(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    """The host's own metadata log ends when its broker stops: the retention of `orders` was changed since, and of
    `led` the leader has deleted what the host has. A follower deletes what is below its leader's log start: it had 0 of
    100 records a moment after the restore."""
    from kafka import TopicPartition

    cluster = kafka_cluster("4.3.1", nodes=2, log_dirs=1, props=PROPERTIES).start()
    other, node = cluster.node(1), cluster.node(2)
    cluster.create_topic("canary-2", assignments={0: [2]}, config={"retention.ms": "1000"})
    cluster.create_topic("orders", assignments={0: [2]}, config={"retention.ms": "-1"})
    config = {"retention.ms": "-1", "segment.bytes": str(1 << 20)}
    cluster.create_topic("led", assignments={0: [1, 2]}, config=config)
    values = write(cluster, "orders", 0, COUNT, at_ms=int(time.time() * 1000) - 2 * DAY_MS)
    write(cluster, "led", 0, COUNT)
    cluster.wait_in_sync("led")
    node.stop()
    names = act(node, "delete", "--topic", "orders|led", "--allow-assigned", "--even-last-copy")
    aside, led = names["orders-0"], names["led-0"]
    alter = "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name orders"
    pasted(other, f"{alter} --add-config retention.ms={DAY_MS}")
    write(cluster, "led", COUNT, 1)
    cluster.ask(lambda admin: admin.delete_records({TopicPartition("led", 0): COUNT + 1}))

    back, stale = ("restore", aside, "--execute"), {"LOGAGENT_ASSIGNMENTS__MAX_AGE": "1s"}
    other.pause()
    (unknown,) = logagent(node, *back, allow=(3,), settings=stale)["refusals"]
    other.resume()
    assert "may delete" in unknown["fact"] and "no living broker could be asked" in unknown["fact"]
    # Its address is in that metadata log: nothing is configured. And that log, fresh as it is, does not decide.
    for settings in (stale, {}):
        (known,) = logagent(node, *back, allow=(3,), settings=settings)["refusals"]
        assert f"retention.ms={DAY_MS} (of the topic)" in known["fact"]
    (refused,) = logagent(node, "restore", led, "--execute", allow=(3,), settings={})["refusals"]
    assert f"begins at offset {COUNT + 1}, and a follower deletes what is older: all its " in refused["fact"]

    pasted(other, known["command"])
    act(node, *back[:2], **stale)
    act(node, "restore", led, "--retention-will-delete")
    node.start()
    cluster.wait_ready()
    cluster.wait_in_sync("led")
    retention_checks(cluster, 2)
    assert [r.value for r in cluster.read_all("orders")] == values
    retained = sorted(int(log.stem) for log in (node.log_dirs[0] / "led-0").glob("*.log"))
    assert retained == [COUNT + 1]
