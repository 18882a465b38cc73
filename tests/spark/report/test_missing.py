"""What was deleted between the assignments and the snapshot is not missing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import tell
from tests.spark.hand_made import AT, Kafka, dir_row

HEX = "0" * 31 + "1"


@pytest.mark.parametrize(
    ("image", "marked", "missing"),
    [
        (timedelta(minutes=10), False, True),
        (timedelta(minutes=10), True, True),
        (timedelta(seconds=-10), False, True),
        (timedelta(seconds=-10), True, False),
        (timedelta(minutes=-13), False, False),
    ],
    ids=["younger", "younger-marked", "just-before", "just-before-marked", "older"],
)
def test_assignments_older_than_the_snapshot_miss_nothing(
    spark: SparkSession, tmp_path: Path, image: timedelta, marked: bool, missing: bool
) -> None:
    """24 replicas of deleted topics were "missing" for as long as no newer assignments had come. Agents read the
    assignments seconds before their inventory: what is deleted in between lies there, marked, for a minute."""
    kafka = Kafka(tmp_path / "store", "deleted")
    kafka.store.mkdir()
    kafka.topic("stays", [1, 2])
    gone = kafka.topic("gone", [1, 2])
    kafka.assignments(at=AT + image)
    left = [dir_row(f"gone-0.{HEX}-delete", gone, kind="delete", topic="gone", partition=0)] if marked else []
    for node in (1, 2):
        rows: list[dict[str, Any]] = [row for row in kafka.replicas_of(node) if row["topic"] == "stays"]
        kafka.snapshot(node, [*rows, *left])
    told = tell(spark, kafka.store, tmp_path / "out")
    found = {(row["node_id"], row["topic"]) for row in told.rows("missing_replicas")}
    assert found == ({(1, "gone"), (2, "gone")} if missing else set())
    risk = told.content["answers"]["risk"]
    assert (risk["no_copy"], risk["no_copy_replicas"]) == ((1, 2) if missing else (0, 0))
    (cluster,) = told.content["clusters"]
    assert (cluster["assignments"]["topics"], cluster["assignments"]["partitions"]) == (2, 2)
