"""A year of 50 hosts, night by night: what a store holds, and what a night asks of its file system, stays bounded.

The nights publish, list, commit and trim as `ingest` does; what Spark makes of the rows is left out of all but two of
them, which are ingested and compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pyspark.sql import SparkSession

from logagent.fleet.ingest.check import _FIELDS
from logagent.fleet.ingest.dates import changed, ingest_dates, sweep, trim_landing
from logagent.fleet.ingest.landing import Landed, Landing
from logagent.fleet.tables.choice import Row
from logagent.fleet.tables.delta_log import DeltaLogs
from logagent.fleet.tables.files import Files
from logagent.fleet.tables.frames import STORE
from logagent.fleet.tables.store import SMALL, Store
from logagent.store.contract import DATA, MANIFEST
from tests.long_form import long_form
from tests.spark.hand_made import AT, Kafka

HOSTS, NIGHTS, KEPT = range(1, 51), 365, 3
REAL = {20: 1, NIGHTS - 1: NIGHTS}
"""The nights that are ingested with Spark."""


class CountingFiles(Files):
    """Counts what is asked of the file system: each is a request or two of an object store."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self.asked: Counter[str] = Counter()

    def read(self, uri: str) -> bytes:
        self.asked["read"] += 1
        return super().read(uri)

    def names(self, uri: str) -> list[str]:
        self.asked["list"] += 1
        return super().names(uri)

    def create_new(self, uri: str, content: bytes) -> bool:
        self.asked["write"] += 1
        return super().create_new(uri, content)

    def write(self, uri: str, content: bytes, *, durable: bool = True) -> None:
        self.asked["write"] += 1
        super().write(uri, content, durable=durable)


def publish(root: Path, cluster: str, day: date) -> None:
    """What is listed of a base and a delta of each host; nobody reads them."""
    for node in HOSTS:
        folder = root / "landing" / cluster / day.isoformat() / str(node)
        folder.mkdir(parents=True)
        for stem in (f"000000-{node}", f"230000-{node}"):
            (folder / f"{stem}{DATA}").write_bytes(b"rows")
            (folder / f"{stem}{MANIFEST}").write_bytes(b"{}")


def commit(store: Store, day: date, landed: list[Landed]) -> None:
    """A run in which every file of a date was taken, without rows."""
    run = store.new_run()
    for table in STORE:
        run.write_none(table)
    at = int(datetime.combine(day, AT.timetz()).timestamp() * 1000)
    rows: list[Row] = [
        dict.fromkeys(_FIELDS)
        | {"cluster_id": each.cluster_id, "node_id": each.node_id, "kind": "snapshot", "file": each.file, "at": at}
        | {"bytes": each.data.bytes, "received_at": each.data.modified_ms, "received_manifest": True, "status": "taken"}
        | {"snapshot_id": each.stem, "host": f"kafka-{each.node_id}"}
        for each in landed
        if each.data is not None
    ]
    for table in SMALL:
        run.write_small(table, rows if table == "files" else [])
    store.add_commit(run.as_commit(day, store.next_number(day)))


def night(store: Store, day: date, landing: Landing) -> None:
    """The steps of `ingest_dates` and of the trim after it."""
    store.refresh()
    commits = store.commits()
    DeltaLogs(store, lambda said: None).follow(commits)
    sweep(store, datetime.combine(day, AT.timetz()) + timedelta(hours=20))
    listing = landing.listed()
    assert changed(store, listing) == [day]
    commit(store, day, listing.landed[day])
    trim_landing(store, day - timedelta(days=KEPT - 1))


@pytest.fixture
def tmpfs() -> Iterator[Path]:
    """Where a sync costs nothing: a year has some thousands."""
    with TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@long_form
@pytest.mark.timeout(3600)
def test_a_year_of_fifty_hosts(spark: SparkSession, tmpfs: Path) -> None:
    files = CountingFiles(spark)
    store = replace(Store.open(spark, str(tmpfs)), files=files)
    kafka = Kafka(tmpfs, "year")
    kafka.topic("orders", *([1 + n % len(HOSTS)] for n in HOSTS))
    asked: dict[int, Counter[str]] = {}
    with Landing(store.uri, files) as landing:
        for number in range(NIGHTS):
            day = AT.date() + timedelta(days=number)
            files.asked.clear()
            if number in REAL:
                at = datetime.combine(day, AT.timetz())
                kafka.assignments(at=at, brokers=HOSTS)
                for node in HOSTS:
                    kafka.snapshot(node, kafka.replicas_of(node), at=at)
                (done,) = ingest_dates(store, day)
                assert (done.taken, done.rejected) == (len(HOSTS) + 1, 0)
                trim_landing(store, day - timedelta(days=KEPT - 1))
            else:
                publish(tmpfs, kafka.cluster_id, day)
                night(store, day, landing)
            asked[number] = Counter(files.asked)
            there = [path for path in (tmpfs / "landing").rglob("*") if not path.is_dir()]
            assert len(there) <= KEPT * len(HOSTS) * 4, f"night {number}"
            folders = list((tmpfs / "landing").glob("*/*/*"))
            assert len(folders) <= KEPT * (len(HOSTS) + 1), f"night {number}: empty folders stay"
    kept = Counter(path.relative_to(tmpfs).parts[0] for path in tmpfs.rglob("*") if path.is_file())
    assert kept["commits"] == 2 * NIGHTS - KEPT, "one that counts, one that says that landing was trimmed"
    assert kept["runs"] == NIGHTS * len(SMALL)
    # A version of each Delta log, some checkpoints, and the files of rows. (Versions go by the clock, after 30 days.)
    assert kept["tables"] <= (NIGHTS + NIGHTS // 50 + 1) * len(STORE) + 20 * len(REAL), kept
    # A night reads each date's commit twice, to see what counts and what may go, and nothing else more often than the
    # first ones did.
    for early, late in ((10, NIGHTS - 2), tuple(REAL)):
        grown = asked[late] - asked[early]
        assert grown["read"] <= 2 * (late - early), (asked[early], asked[late])
        # On a mounted path each date's folder is listed whenever commits are; of an object store it is one listing.
        assert grown["list"] <= 4 * (late - early) and grown["write"] <= 2, (asked[early], asked[late])
