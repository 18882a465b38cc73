"""The same landing gives the same store, byte for byte; the same store the same report, however it is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from logagent.fleet.ingest.dates import ingest_dates
from logagent.fleet.job import Job, report
from logagent.fleet.report.columns import TABLES
from logagent.fleet.tables.frames import STORE
from logagent.fleet.tables.store import SMALL
from tests.long_form import FULL
from tests.spark.conftest import AFTERWARDS, Plain, Told, Zoo

DAY = date(2025, 3, 10)


def _rows(told: Told) -> dict[str, Any]:
    """Number of Parquet files and all rows of every table of the date."""
    told.store.refresh()
    commit = told.store.commit_of(DAY)
    assert commit is not None
    found: dict[str, Any] = {name: told.store.small(name, commit) for name in SMALL}
    for name in STORE:
        stored = told.store.read(name, [commit])
        # As text: Python has no year 0, which a host may print.
        rows = Counter(map(str, stored.select(*(fn.col(column).cast("string") for column in stored.columns)).collect()))
        found[name] = (len(commit.tables[name]), rows)
    return found


def test_a_repeat_gives_the_same_rows(request: pytest.FixtureRequest, spark: SparkSession) -> None:
    """In smaller pieces and more partitions. Of two generated clusters; in the long form of everything that a landing
    may hold."""
    made: Zoo | Plain = request.getfixturevalue("zoo" if FULL else "plain")
    before = _rows(made.told)
    assert ingest_dates(made.told.store, None) == [], "nothing has changed in landing"
    with _set(spark, {"spark.sql.files.maxPartitionBytes": "65536", "spark.sql.shuffle.partitions": "3"}):
        ingest_dates(made.told.store, DAY)
    assert _rows(made.told) == before
    assert not list(made.path.glob(".scratch*"))
    assert sorted(p.name for p in (made.path / "commits" / str(DAY)).iterdir()) == ["1.json", "2.json"]


@contextmanager
def _set(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


def _values(told: Told, table: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in told.rows(table))


def test_other_partitioning_and_shuffle_joins(plain: Plain, spark: SparkSession, tmp_path: Path) -> None:
    """More shuffle partitions, no broadcast, every large table treated as one; in the long form seven of
    them, adaptive, with generated code."""
    settings = {
        "spark.sql.shuffle.partitions": "7" if FULL else "3",
        "spark.sql.adaptive.enabled": str(FULL).lower(),
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.files.maxPartitionBytes": "20000",
    }
    if FULL:
        settings |= {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    with pytest.MonkeyPatch.context() as patch, _set(spark, settings):
        patch.setattr("logagent.fleet.report.verdicts.BROADCAST_KEYS", 0)
        patch.setattr("logagent.fleet.report.output.DRIVER_ROWS", 10)
        patch.setattr("logagent.fleet.job.tune", lambda *_: None)
        content = report(Job(plain.told.store, str(tmp_path / "out"), AFTERWARDS, DAY, with_partitions=True))
    other = Told(plain.told.store, tmp_path / "out" / content["run_id"], content, [])
    for table in TABLES:
        assert _values(other, table) == _values(plain.told, table), table
        csv = plain.told.out / f"{table}.csv"
        if csv.exists():
            theirs = (other.out / csv.name).read_text().replace(other.out.name, plain.told.out.name)
            assert theirs == csv.read_text(), table
    assert content["totals"] == plain.told.content["totals"]


VERDICTS = """
with hosts as (
    select cluster_id, node_id, dt, "at" from (
        select *, row_number() over (partition by cluster_id, node_id order by least("at", received_at) desc, "at" desc)
        as nth
        from files where kind = 'snapshot' and status = 'taken')
    where nth = 1 and least("at", received_at) >= epoch_ms(timestamp '2025-03-10 12:20:00' - interval 26 hour)),
image as (
    select * from (
        select *, row_number() over (partition by cluster_id
            order by least("at", received_at) desc, "at" desc) as nth
        from files where kind = 'assignments' and status = 'taken')
    where nth = 1 and partitions > 0),
assigned as (
    select a.cluster_id, a.topic_id, a.partition, unnest(a.replicas) as node_id
    from assignments a join image i using (cluster_id, dt)),
seen as (select d.* from dirs d join hosts using (cluster_id, node_id, dt)),
live as (select * from seen where kind in ('current', 'future') and topic_id is not null)
"""


@pytest.fixture(scope="module")
def duck(zoo: Zoo) -> duckdb.DuckDBPyConnection:
    """DuckDB on the Parquet files of the store."""
    made = duckdb.connect()
    made.execute("set timezone = 'UTC'")
    store = zoo.told.store
    commits = {day: store.commit_of(day) for day in store.dates()}
    for name in (*STORE, *SMALL):
        parts = []
        for day, commit in commits.items():
            assert commit is not None
            for each in commit.tables[name]:
                reader = "read_parquet" if name in STORE else "read_json"
                path = f"{zoo.path}/{commit.folder(name)}/{each['file']}"
                if each["rows"]:
                    parts.append(f"select *, date '{day}' as dt from {reader}('{path}')")
        made.execute(f"create view {name} as " + " union all by name ".join(parts))
    return made


def test_duckdb_finds_the_same_replicas_missing(zoo: Zoo, duck: duckdb.DuckDBPyConnection) -> None:
    generated = [truth.cluster_id for truth in zoo.truths]
    rows = duck.execute(
        VERDICTS
        + """select distinct a.cluster_id, a.node_id, a.topic_id, a.partition from assigned a
             join hosts h using (cluster_id, node_id) join image i using (cluster_id)
             where not exists (select 1 from live s where s.cluster_id = a.cluster_id and s.node_id = a.node_id
                               and s.topic_id = a.topic_id and s.partition = a.partition)
             and not exists (select 1 from log_dirs l where l.cluster_id = a.cluster_id and l.node_id = a.node_id
                             and l.health = 'offline')"""
    ).fetchall()
    offline = {(r["cluster_id"], r["node_id"]) for r in zoo.told.rows("log_dir_health") if r["finding"] == "offline"}
    reported = {
        (r["cluster_id"], r["node_id"], r["topic_id"], r["partition"])
        for r in zoo.told.rows("missing_replicas")
        if r["cluster_id"] in generated and (r["cluster_id"], r["node_id"]) not in offline
    }
    assert {row for row in rows if row[0] in generated} == reported
    assert len(reported) > 10


def test_duckdb_finds_the_same_orphans(zoo: Zoo, duck: duckdb.DuckDBPyConnection) -> None:
    generated = [truth.cluster_id for truth in zoo.truths]
    rows = duck.execute(
        VERDICTS
        + """select s.cluster_id, s.node_id, s.log_dir, s.name from live s join image i on i.cluster_id = s.cluster_id
             join hosts h on h.cluster_id = s.cluster_id and h.node_id = s.node_id
             where not exists (select 1 from assigned a where s.cluster_id = a.cluster_id and s.node_id = a.node_id
                               and s.topic_id = a.topic_id and s.partition = a.partition)
             and least(s.newest_mtime, coalesce(s.first_seen, s.newest_mtime)) <= make_timestamp(i."at" * 1000)
             """
    ).fetchall()
    reported = {
        (r["cluster_id"], r["node_id"], r["log_dir"], r["name"])
        for r in zoo.told.rows("orphans")
        if r["cluster_id"] in generated
    }
    assert {row for row in rows if row[0] in generated} == reported
    assert len(reported) > 50


def test_duckdb_adds_up_the_same(zoo: Zoo, duck: duckdb.DuckDBPyConnection) -> None:
    by_host = duck.execute(
        VERDICTS + "select cluster_id, node_id, count(*), sum(bytes) from seen group by all"
    ).fetchall()
    reported = {(r["cluster_id"], r["node_id"]): (r["dirs"], r["bytes"]) for r in zoo.told.rows("usage_hosts")}
    assert {(c, n): (count, int(total)) for c, n, count, total in by_host if c in zoo.known} == {
        k: v for k, v in reported.items() if v[0] and k[0] in zoo.known
    }
    partitions = duck.execute(
        VERDICTS
        + """select cluster_id, topic, topic_id, partition, count(*), sum(bytes), min(allocated), max(allocated)
             from seen
             where kind = 'current' and topic is not null group by all"""
    ).fetchall()
    mine = {
        (r["cluster_id"], r["topic"], r["topic_id"], r["partition"]): (
            r["copies"], r["bytes"], r["smallest_copy"], r["largest_copy"],
        )
        for r in zoo.told.rows("usage_partitions")
        if r["copies"] and r["cluster_id"] in zoo.known
    }  # fmt: skip
    assert {row[:4]: (row[4], int(row[5]), row[6], row[7]) for row in partitions if row[0] in zoo.known} == mine
