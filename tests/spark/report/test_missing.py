"""What was deleted between the assignments and the snapshot is not missing, and is not left out without a count."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.spark.conftest import Zoo
from tests.spark.hand_made import AT, Kafka, dir_row
from tests.spark.planting import planted

HEX = "0" * 31 + "1"
CASES: list[tuple[timedelta, bool, str | None, str]] = [
    (timedelta(minutes=10), True, None, "missing"),
    (timedelta(minutes=10), True, "stray", "missing"),
    (timedelta(minutes=10), True, "delete", "unproven"),
    (timedelta(minutes=10), False, None, "not_yet"),
    (timedelta(minutes=10), True, "new version", "unproven"),
    (timedelta(seconds=-10), True, None, "unproven"),
    (timedelta(minutes=-13), True, None, "unproven"),
]
"""When the newest assignments were made (by a Kafka that nobody has tested: who is a replica is not proven by it),
whether there are older ones, what is left of the replica, what it is."""


@planted
def deleted_meanwhile(store: Path) -> dict[str, tuple[timedelta, bool, str | None, str]]:
    """The case of each cluster."""
    cases = {}
    for number, case in enumerate(CASES):
        newest, older, left, _ = case
        kafka = Kafka(store, f"deleted-{number}")
        cases[kafka.cluster_id] = case
        kafka.topic("stays", [1, 2])
        gone = kafka.topic("gone", [1, 2])
        level: dict[str, Any] = {"metadata_version": 1000} if left == "new version" else {}
        kafka.assignments(at=AT + newest, **level)
        if left == "new version":
            left = None
        if older:
            kafka.assignments(at=AT - timedelta(minutes=30), offset=3)
        rest = [dir_row(f"gone-0.{HEX}-{left}", gone, kind=left, topic="gone", partition=0)] if left else []
        for node in (1, 2):
            kafka.snapshot(node, [*(row for row in kafka.replicas_of(node) if row["topic"] == "stays"), *rest])
    return cases


def test_a_host_without_images_of_its_own_is_between_two_that_others_published(zoo: Zoo) -> None:
    """24 replicas of deleted topics were "missing" for as long as no newer assignments had come; then replicas that
    were lost were nowhere. Its own agent told neither."""
    told = zoo.told
    missing, undecided = told.rows("missing_replicas"), told.rows("undecided_replicas")
    clusters = {cluster["cluster_id"]: cluster for cluster in told.content["clusters"]}
    for cluster_id, case in zoo.planted["deleted_meanwhile"].items():
        _, _, left, state = case
        rows = [row for row in (*missing, *undecided) if row["cluster_id"] == cluster_id]
        found = {(row["node_id"], row["topic"], row.get("state", "missing")) for row in rows}
        assert found == {(1, "gone", state), (2, "gone", state)}, case
        assert {row["copies_elsewhere"] for row in rows} == ({2} if left == "stray" else {0}), case
        assert {row.get("left") for row in rows} == ({"stray"} if left == "stray" else {None}), case
        cluster = clusters[cluster_id]
        assert (cluster["assignments"]["topics"], cluster["assignments"]["partitions"]) == (2, 2)
        replicas = cluster["replicas"]
        assert (replicas["expected"], replicas["found"], replicas[state]) == (4, 2, 2), case
