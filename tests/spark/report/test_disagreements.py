"""Who contradicts whom is said: an agent and the assignments about one replica, two machines about one node id."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import Told, Zoo
from tests.spark.hand_made import AT, Kafka, dir_row
from tests.spark.planting import planted

BOOTS = {
    "two machines": ("a", "b", "a"),
    "two machines, each once more": ("a", "b", "a", "b"),
    "a reboot": ("a", "a", "b"),
    "two reboots": ("a", "b", "c"),
    "an agent that does not say": (None, None, "b"),
}
"""Boot ids of one host name in the hours of one date, the newest last. Only the newest snapshot is read."""

ONCE_EACH = {
    "one snapshot of each": (("A",), ("B",)),
    "one of each before 3.7": ((), ()),
    "a moved one": (("A",), ("A",)),
}
"""Ids of the log dirs of two machines that are both up, of which each has sent one snapshot."""


@planted
def disagreements(store: Path) -> str:
    """The cluster whose agent and assignments contradict each other."""
    for name, boots in BOOTS.items():
        kafka = Kafka(store, name.replace(" ", "-").replace(",", ""))
        kafka.topic("orders", [1])
        for hour, boot in enumerate(reversed(boots)):
            at = AT - timedelta(hours=hour)
            kafka.hourly(1, kafka.replicas_of(1), at=at, boot_id=boot)
        kafka.assignments()
    for name, ids in ONCE_EACH.items():
        kafka = Kafka(store, name.replace(" ", "-"))
        kafka.topic("orders", [1])
        for hour, boot, one in zip((0, 1), "ab", ids, strict=True):
            at, since = AT - timedelta(hours=hour), AT - timedelta(days=3 + hour)
            kafka.hourly(1, kafka.replicas_of(1), at=at, boot_id=boot, booted_at=since, directory_ids=one)
        kafka.assignments()
    contradicted = kafka = Kafka(store, "contradicted")
    kafka.topic("orders", [1, 2], [2, 1])
    for node in (1, 2):
        rows = kafka.replicas_of(node)
        if node == 1:
            rows[0] |= {"verdict": "orphan", "reason": "topic-absent"}
        kafka.snapshot(node, rows)
    kafka.assignments()
    kafka = Kafka(store, "unreadable")
    kafka.topic("orders", [1], [1])
    why = {"error": "it cannot be read: Permission denied", "verdict": "assigned"}
    first, second = kafka.replicas_of(1)
    kafka.snapshot(
        1,
        [
            first | why | {"bytes": 0, "allocated": 0},
            second,
            dir_row("orders-7x-0", None, kind="invalid", topic=None, partition=None, error="not a partition"),
        ],
    )
    kafka.assignments()
    return contradicted.cluster_id


@pytest.fixture(scope="module")
def told(zoo: Zoo) -> Told:
    return zoo.told


def test_a_well_placed_replica_that_its_agent_calls_an_orphan_is_listed(zoo: Zoo) -> None:
    """It counts as assigned everywhere else: nothing is missing, and nothing of it can be reclaimed."""
    cluster, told = zoo.planted["disagreements"], zoo.told

    def mine(table: str) -> list[dict[str, Any]]:
        return [row for row in told.rows(table) if row["cluster_id"] == cluster]

    (row,) = mine("undecided")
    assert (row["name"], row["node_id"], row["reason"]) == ("orders-0", 1, "sources-disagree")
    assert (row["agent_verdict"], row["agent_reason"]) == ("orphan", "topic-absent")
    (ill,) = (r for r in mine("log_dir_health") if r["finding"] == "verdicts-differ")
    assert ill["node_id"] == 1 and "orders-0" in ill["detail"]
    assert any("the agent and the fleet disagree" in warning for warning in told.content["warnings"]), told.content[
        "warnings"
    ]
    assert mine("missing_replicas") == mine("orphans") == []


@pytest.mark.parametrize("name", BOOTS)
def test_two_machines_with_one_name_are_found_within_one_date(told: Told, name: str) -> None:
    host = name.replace(" ", "-").replace(",", "") + "-1"
    unknown = {r["host"]: r["detail"] for r in told.rows("log_dir_health") if r["finding"] == "unknown-host"}
    assert (host in unknown) == name.startswith("two machines")
    if host in unknown:
        assert "two machines with the same host name" in unknown[host]


@pytest.mark.parametrize(
    ("name", "finding"),
    [*zip(ONCE_EACH, ("unknown-host", "perhaps-two-machines", None), strict=True)],
)
def test_one_snapshot_of_each_is_found_where_anything_tells_and_said_where_nothing_does(
    told: Told, name: str, finding: str | None
) -> None:
    host = name.replace(" ", "-") + "-1"
    found = [r["finding"] for r in told.rows("log_dir_health") if r["host"] == host]
    assert found == ([] if finding is None else [finding])


def test_bytes_of_a_directory_that_was_not_read_are_not_zero_in_silence(told: Told) -> None:
    assert [w for w in told.content["warnings"] if "could not be read whole" in w] == [
        "1 directory could not be read whole by their agents (logagent scan there says why):"
        " there may be more than is counted"
    ]
