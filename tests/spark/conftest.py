"""One Spark session for the folder, and one fleet that most tests look at: starting and running Spark is what costs."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JVMView
from pyspark.sql import DataFrame, SparkSession

from logagent.fleet.demo import Fleet
from logagent.fleet.ingest.dates import ingest_dates
from logagent.fleet.ingest.ingest import Ingested
from logagent.fleet.job import Job, report
from logagent.fleet.report.columns import STAMP
from logagent.fleet.spark_session import build_session
from logagent.fleet.tables.store import Store
from logagent.store.signing import PrivateKey
from tests.fleets.planted import Truth, generate
from tests.long_form import FULL
from tests.needs import need_command
from tests.spark.hand_made import AT, NOW, small_cluster
from tests.spark.planting import PLANTED
from tests.spark.scenarios import Expected, write_all

# Together these show everything that a generated cluster may have (`test_the_seeds_show_everything`).
SEEDS = range(1, 21) if FULL else range(1, 9)
DAY = AT.date()
AFTERWARDS = AT + timedelta(days=9)
KEY = PrivateKey("ops", b"\x01" * 32)
"""Who may ask for deletions."""

# The fleets of these tests are small: what they cost is starting, planning and collecting garbage, in hundreds of
# queries of a few rows each. The interpreter and C1 take a third of the time of Java's compilers, with room for all
# they compile: in C1's own 48 MB it is thrown out and compiled again. Spark takes 32 MB of memory for each sort and
# each broadcast table where 1 MB is enough, and for pages that nobody serves it keeps what a thousand queries were
# like. Hadoop starts `chmod` for each folder: without the helper that Java starts first, that is half the work. One
# shuffle partition: `test_same_result.py` has three. The benchmarks run with what everybody else gets.
C1 = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
FEW_ROWS = {
    "spark.buffer.pageSize": "1m",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "1",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "100",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
QUICK = {
    **FEW_ROWS,
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": f"{C1} -Xms1g -Xmn500m -XX:MetaspaceSize=512m"
    " -Djdk.lang.Process.launchMechanism=VFORK -Dlog4j2.configurationFile={log4j}",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of the folder, on two local threads."""
    need_command("java")
    import logagent.fleet.spark_session as module

    log4j = Path(module.__file__).with_name("log4j2.properties").as_uri()
    conf = {key: value.format(log4j=log4j) for key, value in QUICK.items()}
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = build_session(master="local[2]", conf=conf)
    with pytest.MonkeyPatch.context() as patch:
        # Each of the two thousand times that a report names `functions` or `PythonUtils`, Java looks in 250 jars.
        patch.setattr(JVMView, "__getattr__", cache(JVMView.__getattr__))
        yield session
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        session.stop()


@dataclass
class Told:
    """A report and where it lies."""

    store: Store
    out: Path
    """The report's own directory, below the one asked for."""
    content: dict[str, Any]
    ingested: list[Ingested]

    def stored(self, table: str, *, day: date = DAY) -> DataFrame:
        """A Parquet table of the store, as committed for a date."""
        commit = self.store.commit_of(day)
        assert commit is not None
        return self.store.read(table, [commit])

    def small(self, table: str, *, day: date = DAY) -> list[dict[str, Any]]:
        """A small table of the store, as committed for a date."""
        commit = self.store.commit_of(day)
        assert commit is not None
        return self.store.small(table, commit)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a report table, without what says which report it is."""
        frame = self.store.spark.read.parquet(f"{self.out}/parquet/{table}").drop(*(c.name for c in STAMP))
        return [row.asDict() for row in frame.collect()]


def tell(spark: SparkSession, store: Path, out: Path) -> Told:
    """Ingests what is new and reports, as of `NOW`."""
    opened = Store.open(spark, str(store))
    ingested = ingest_dates(opened, None)
    content = report(Job(opened, str(out), NOW, with_partitions=True, order_keys=(KEY.public(),)))
    return Told(opened, out / content["run_id"], content, ingested)


@dataclass
class Zoo:
    """Generated clusters, every scenario and what the test files add (`planting.py`) in one store, ingested and
    reported on once."""

    path: Path
    told: Told
    truths: list[Truth]
    expected: dict[str, Expected]
    planted: dict[str, Any]

    @property
    def known(self) -> set[str]:
        """The clusters that were generated, and those of the scenarios."""
        return {truth.cluster_id for truth in self.truths} | {one.cluster_id for one in self.expected.values()}


@pytest.fixture(scope="session")
def zoo(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    folder = tmp_path_factory.mktemp("zoo")
    store = folder / "store"
    store.mkdir()
    at = AT + timedelta(minutes=15)
    truths = [
        truth
        for seed in SEEDS
        for truth in generate(
            store, Fleet(at=at, clusters=1, hosts=6, partitions=120, days=2, seed=seed, sick=0.04, broken=0.2)
        )
    ]
    expected = write_all(store)
    added = {name: plant(store) for name, plant in PLANTED.items()}
    return Zoo(store, tell(spark, store, folder / "out"), truths, expected, added)


@dataclass
class Plain:
    """Two generated clusters, ingested and reported on by the session of the folder as of the end of their last date,
    for what does the same in another way. `untouched`: their landing, as it was before that."""

    untouched: Path
    path: Path
    told: Told


@pytest.fixture(scope="session")
def plain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    folder = tmp_path_factory.mktemp("plain")
    untouched, path = folder / "untouched", folder / "store"
    untouched.mkdir()
    fleet = Fleet(at=AT + timedelta(minutes=15), clusters=2, hosts=6, partitions=80, days=2, seed=99, sick=0.03)
    generate(untouched, fleet)
    shutil.copytree(untouched, path)
    store = Store.open(spark, str(path))
    ingested = ingest_dates(store, None)
    content = report(Job(store, str(folder / "out"), AFTERWARDS, DAY, with_partitions=True))
    return Plain(untouched, path, Told(store, folder / "out" / content["run_id"], content, ingested))


@pytest.fixture(scope="session")
def small(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A healthy small store with a report; tests take copies of both."""
    folder = tmp_path_factory.mktemp("small")
    small_cluster(folder / "store")
    return tell(spark, folder / "store", folder / "out")
