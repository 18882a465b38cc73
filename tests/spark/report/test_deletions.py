"""Deletions across the fleet in a report: those that `orders.keys` vouch for, and no other."""

from __future__ import annotations

import csv
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from logagent.fleet.demo import Fleet
from logagent.fleet.ingest.dates import ingest_dates
from logagent.fleet.job import Job, report
from logagent.fleet.tables.store import Store
from logagent.store.control import Control
from logagent.store.records import RequestedPartition, RequestedTopic, instant
from logagent.store.requests import Request, write_request
from logagent.store.signing import PrivateKey
from tests.fleets.planted import generate
from tests.spark.hand_made import AT, NOW

KEY, STRANGER = PrivateKey("ops", b"\x01" * 32), PrivateKey("ops", b"\x02" * 32)
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"


def test_deletions_that_the_keys_vouch_for_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    generate(store, Fleet(at=AT, clusters=1, hosts=3, partitions=12, days=2))
    asked = RequestedTopic("clicks", "A" * 22, (RequestedPartition(0, (1, 2, 3)),))
    for number, key in ((1, KEY), (2, STRANGER)):
        request = Request(CLUSTER, "topics", "a" * 24, "ops", instant(NOW), instant(NOW + timedelta(days=1)),
                          f"{number:032x}", topics=(asked,))  # fmt: skip
        write_request(Control(store, CLUSTER), request, key)
    (store / "control" / "zz").mkdir()
    (store / "control" / "zz" / "requests").write_text("somebody else's")
    opened = Store.open(spark, str(store))
    ingest_dates(opened, None)
    reject_implausible = report(Job(opened, str(tmp_path / "out"), NOW))
    assert reject_implausible["tables"]["deletion_progress"]["rows"] == 0
    later = NOW + timedelta(seconds=1)
    told = report(Job(opened, str(tmp_path / "out"), later, order_keys=(KEY.public(),)))
    of_zz = "the deletions of cluster zz cannot be reported: requests of"
    assert [line for line in told["warnings"] if line.startswith(of_zz)]
    text = (tmp_path / "out" / told["run_id"] / "deletion_progress.csv").read_text(encoding="utf-8")
    (row,) = csv.DictReader(text.splitlines())
    assert (row["topic"], row["marked"], row["removed"], row["since"]) == ("clicks", "3", "0", NOW.date().isoformat())
