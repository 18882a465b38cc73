"""One topic that has nearly all directories: `python -m tests.bench.fleet --one-topic 4000000` in small."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from logagent.fleet.job import Job, report
from logagent.fleet.tables.store import Store
from tests.bench.stores import make
from tests.long_form import long_form
from tests.spark.conftest import Told
from tests.spark.hand_made import NOW


@long_form
def test_one_topic_with_nearly_everything(spark: SparkSession, tmp_path: Path) -> None:
    planted = make(spark, tmp_path / "store", 24_000, at=NOW, one_topic=True)
    store = Store.open(spark, str(tmp_path / "store"))
    content = report(Job(store, str(tmp_path / "out"), NOW))
    told = Told(store, tmp_path / "out" / content["run_id"], content, [])
    totals = told.content["totals"]
    assert planted["orphans"] > 0
    assert planted["missing_replicas"] > 0
    assert {name: totals[name] for name in ("orphans", "missing_replicas")} == {
        name: planted[name] for name in ("orphans", "missing_replicas")
    }
    topics = sorted(told.rows("usage_topics"), key=lambda row: -int(row["copies"]))
    assert topics[0]["copies"] > 0.99 * planted["dirs"]
    assert sum(row["copies"] for row in topics) == planted["dirs"]
    assert [
        row for row in told.rows("orphans") if not (row["reason"] == "not-a-replica" and row["copies_elsewhere"] == 3)
    ] == []
