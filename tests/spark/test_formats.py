"""The fleet stores that 0.1.0 and 1.0 wrote: their dates, commits and tables are read by every later 1.x, and go on."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logagent.fleet.ingest.dates import ingest_dates
from logagent.fleet.job import Job, report
from logagent.fleet.tables.store import Store
from logagent.store.contract import as_date
from tests.formats import FORMATS, WRITERS, unpacked
from tests.long_form import FULL


@pytest.mark.parametrize("writer", WRITERS)
def test_a_store_of_a_1_x_is_reported_on_and_goes_on(spark: SparkSession, tmp_path: Path, writer: str) -> None:
    store = Store.open(spark, str(unpacked(FORMATS / writer / "store.tar.xz", tmp_path / "store")))
    then = json.loads((FORMATS / writer / "documents/fleet-report.json").read_bytes())
    dates = sorted(path.name for path in (tmp_path / "store/commits").iterdir() if as_date(path.name))
    assert len(dates) == 2 and dates[-1] == then["date"]
    now = report(Job(store, str(tmp_path / "out"), datetime.fromisoformat(then["at"])))
    assert {name: now["totals"][name] for name in then["totals"]} == then["totals"]
    # What landed after that ingest is taken in on top of it.
    ingest_dates(store, None)
    assert [as_date(date) for date in dates if len(list((tmp_path / "store/commits" / date).iterdir())) > 1]
    if writer != WRITERS[0] and not FULL:  # by then all is in the tables of today
        return
    after = report(Job(store, str(tmp_path / "out2"), datetime.fromisoformat(then["at"])))
    assert after["totals"]["current"] >= then["totals"]["current"]
