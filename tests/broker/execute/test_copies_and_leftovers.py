"""Copies made by hand, and files that a start drops: what goes, beside real brokers that keep every record.

Seen on 3.9.1 and 4.3.1: a copy of a living partition under another name is loaded at each start and never written
again, as its topic id lives; `.deleted` files are gone after a start. The brokers are their own: they are stopped, and
find on their disks what was put there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.restores import PER_SEGMENT, PROPERTIES, SEGMENT_BYTES, act, logagent, retention_checks, write
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.disk.conftest import run
from tests.long_form import FULL, versions

VERSIONS = versions("4.4.0", "4.3.1", "3.9.1")
COUNT = 100
# Starts after which every record is there, with checks of retention before each.
STARTS = range(2 if FULL else 1)
AT_ONCE = {
    "LOGAGENT_CLEANUP__SIGHTINGS": "1",
    "LOGAGENT_CLEANUP__MIN_AGE": "0s",
    "LOGAGENT_CLEANUP__STRAY_RETENTION": "0s",
    "LOGAGENT_CLEANUP__MAX_FRACTION": "1",
    "LOGAGENT_GUARD__SETTLE": "0s",
}


def values(node: KafkaNode, topic: str) -> list[bytes | None]:
    return [r.value for r in node.read_all(topic)]


def said(node: KafkaNode, name: str) -> tuple[Any, Any, str]:
    (row,) = (d for d in logagent(node, "scan", settings=AT_ONCE)["dirs"] if d["name"].startswith(name))
    return row["verdict"], row["reason"], row.get("detail") or ""


def flipped(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_copy_under_another_name_goes_once_the_real_one_has_all_of_it(
    kafka: Callable[..., KafkaNode], version: str
) -> None:
    node = kafka(version, log_dirs=1, props=PROPERTIES).start()
    (here,) = node.log_dirs
    node.create_topic("canary-1", config={"retention.ms": "1000"})
    node.create_topic("orders", config={"retention.ms": "-1"})
    written = write(node, "orders", 0, COUNT)
    run("cp", "-a", here / "orders-0", here / "backup-0")
    written += write(node, "orders", COUNT, COUNT)
    node.restart()
    assert (here / "backup-0").is_dir(), "Kafka takes it for a partition, by its topic id"
    assert values(node, "orders") == written
    node.stop()

    verdict, reason, detail = said(node, "backup-0")
    assert (verdict, reason) == ("orphan", "copy-of") and "a copy of orders-0" in detail
    assert said(node, "orders-0")[0] == "assigned"
    aside = act(node, "cleanup", **AT_ONCE)
    assert [*aside] == ["backup-0"]
    # The copy beside it counts only where this node leads, which nobody says while the only broker is stopped.
    verdict, reason, detail = said(node, "backup-0.")
    assert (verdict, reason) == ("orphan", "copy-of") and detail.endswith("nobody was asked")
    refused = logagent(node, "cleanup", "--execute", allow=(3,), settings=AT_ONCE)["refusals"]
    assert [(r["name"], r["guard"]) for r in refused] == [(aside["backup-0"], "assigned")], refused

    node.start()
    verdict, reason, detail = said(node, "backup-0.")
    assert (verdict, reason) == ("orphan", "copy-of") and detail.endswith("another copy has all of it")
    # Damaged in the middle, which neither its end nor its size shows, the real one does not count.
    (log,) = (here / "orders-0").glob("*.log")
    flipped(log, log.stat().st_size // 4)
    refused = logagent(node, "cleanup", "--execute", allow=(3,), settings=AT_ONCE)["refusals"]
    assert [(r["name"], r["guard"]) for r in refused] == [(aside["backup-0"], "assigned")], refused
    flipped(log, log.stat().st_size // 4)

    assert [*act(node, "cleanup", **AT_ONCE)] == [aside["backup-0"]]
    assert [d.name for d in here.iterdir() if d.name.startswith("backup")] == []
    for _ in STARTS:
        retention_checks(node, 1)
        assert values(node, "orders") == written and node.offline_dirs() == []
        node.restart()
    assert values(node, "orders") == written


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_start_drops_goes_before_it_with_an_approval(kafka: Callable[..., KafkaNode], version: str) -> None:
    from kafka import TopicPartition

    node = kafka(version, log_dirs=1, props=PROPERTIES).start()
    (here,) = node.log_dirs
    node.create_topic("canary-1", config={"retention.ms": "1000"})
    node.create_topic("orders", config={"retention.ms": "-1", "segment.bytes": str(SEGMENT_BYTES)})
    node.create_topic("lost", config={"retention.ms": "-1"})
    write(node, "lost", 0, 1)
    written = write(node, "orders", 0, 4 * PER_SEGMENT)
    kept = 2 * PER_SEGMENT
    node.ask(lambda admin: admin.delete_records({TopicPartition("orders", 0): kept}))
    wait_until(lambda: any((here / "orders-0").glob("*.log.deleted")), 60, "segments are deleted")
    assert values(node, "orders") == written[kept:]
    live = logagent(node, "rescue", allow=(0, 4), settings={})
    assert "leftovers" not in {a["step"] for a in live["actions"]}, "not beside its broker"
    node.kill()

    shutil.rmtree(here / "lost-0")
    findings = [
        f for f in logagent(node, "check", allow=(0, 6), settings={})["findings"] if f["code"] == "no-directory"
    ]
    assert [f["path"] for f in findings] == ["lost-0"] and "no other replica is in sync" in findings[0]["says"]
    assert [w["topic"] for w in logagent(node, "scan", settings={})["without_directory"]] == ["lost"]

    before = {path.name for path in (here / "orders-0").iterdir()}
    (offered,) = (a for a in logagent(node, "rescue", allow=(0, 4), settings={})["actions"] if a["name"] == "orders-0")
    assert offered["step"] == "leftovers" and {*offered["files"]} == {n for n in before if n.endswith(".deleted")}
    act(node, "rescue")
    assert {path.name for path in (here / "orders-0").iterdir()} == before - {*offered["files"]}
    node.start()
    for _ in STARTS:
        retention_checks(node, 1)
        assert values(node, "orders") == written[kept:] and node.offline_dirs() == []
        node.restart()
    assert values(node, "orders") == written[kept:]
    assert values(node, "lost") == [], "a start made it anew, empty"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_copy_is_not_covered_by_another_partition_of_its_topic(kafka: Callable[..., KafkaNode], version: str) -> None:
    """`cp -a orders-0 orders-0-1` is called partition 1 of a topic `orders-0`, and has its topic's id: partition 1 of
    `orders` is longer, in the same epoch, and has none of its records."""
    from kafka import TopicPartition

    node = kafka(version, log_dirs=1, props=PROPERTIES).start()
    (here,) = node.log_dirs
    node.create_topic("canary-1", config={"retention.ms": "1000"})
    node.create_topic("orders", partitions=2, config={"retention.ms": "-1"})
    written = write(node, "orders", 0, COUNT)
    node.produce("orders", 1, n=3 * COUNT)
    run("cp", "-a", here / "orders-0", here / "orders-0-1")
    # And one that is what its name says.
    run("cp", "-a", here / "orders-1", here / "backup-1")
    node.restart()
    node.ask(lambda admin: admin.delete_records({TopicPartition("orders", 0): COUNT}))
    assert values(node, "orders") == []
    node.stop()

    assert "by its name a copy of orders-1" in said(node, "orders-0-1")[2]
    aside = act(node, "cleanup", **AT_ONCE)
    assert {*aside} == {"orders-0-1", "backup-1"}
    node.start()
    assert said(node, "orders-0-1.")[2].count("only its name says that this is a copy of it") == 1
    assert said(node, "backup-1.")[2].endswith("another copy has all of it")
    for _ in range(2):
        done = logagent(node, "cleanup", "--execute", allow=(0, 3, 4), settings=AT_ONCE)
        assert aside["orders-0-1"] in {r["name"] for r in done["refusals"]}, done
    assert not (here / aside["backup-1"]).exists()
    # What was deleted by mistake is still in it.
    node.stop()
    (log,) = (here / aside["orders-0-1"]).glob("*.log")
    assert [record for record in written if record is not None if record not in log.read_bytes()] == []
