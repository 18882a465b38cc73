"""The store's tables as our own reader has them, and as `deltalake` and Spark with Delta do through the Delta log."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import functions as fn

from logagent.fleet.tables.frames import STORE, fields
from logagent.fleet.tables.store import Commit, Store
from tests.broker.rig.jars import cache_dir
from tests.needs import need_command
from tests.object_servers import fetched

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Rows = list[tuple[Any, ...]]
PYSPARK, DELTA = "4.2.0", "4.4.0"
"""The newest Spark that a Delta exists for: another than ours, so in a virtual environment of its own."""
_BY_SPARK = """
import json, sys
from pyspark.sql import SparkSession, functions as fn
asked, conf = json.load(sys.stdin)
builder = SparkSession.builder.master("local[1]")
for key, value in conf.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
answers = []
for path, options, statement in asked:
    if statement:
        try:
            spark.sql(statement).collect()
            answers.append("done")
        except Exception as error:
            answers.append(str(error))
        continue
    frame = spark.read.format("delta").options(**options).load(path)
    times = {name: fn.unix_micros(name) for name, kind in frame.dtypes if kind == "timestamp"}
    frame = frame.withColumns(times) if times else frame
    rows = frame.withColumn("date", fn.col("date").cast("string")).collect()
    answers.append([frame.columns, [list(row) for row in rows]])
with open(sys.argv[1], "w") as out:
    json.dump(answers, out)
"""


def by_delta(store: Path, table: str, version: int | None = None) -> dict[date, Rows]:
    """Sorted rows of each date, as of a version or the newest; times are microseconds since 1970."""
    read = DeltaTable(str(store / "tables" / table), version=version)
    names = [name for name, _ in fields(STORE[table])]
    found = QueryBuilder().register("t", read).execute("select * from t").read_all()
    assert found.schema.names == [*names, "date"]
    rows: dict[date, Rows] = {}
    for day, *values in zip(*(found.column(name).to_pylist() for name in ("date", *names)), strict=True):
        rows.setdefault(day, []).append(tuple(_plain(value) for value in values))
    return {day: sorted(each, key=repr) for day, each in sorted(rows.items())}


def by_spark(folder: Path, asked: list[tuple[Path, dict[str, str], str]]) -> list[Any]:
    """What Spark with Delta answers to each `(table, options of its reader, statement)`, in one session: columns and
    rows; of a statement its error, or "done"."""
    need_command("java")
    make = f"{shlex.quote(sys.executable)} -m venv . && bin/python -m pip install pyspark=={PYSPARK}"
    home = fetched(f"pyspark-{PYSPARK}", ["sh", "-c", make])
    conf = {
        "spark.jars.packages": f"io.delta:delta-spark_{PYSPARK.rpartition('.')[0]}_2.13:{DELTA}",
        "spark.jars.ivy": str(cache_dir() / "ivy"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_", "PYTHONPATH"))}
    questions = json.dumps([[(str(path), options, says) for path, options, says in asked], conf])
    done = subprocess.run(
        [str(home / "bin/python"), "-c", _BY_SPARK, str(folder / "answers")],
        env=kept | {"SPARK_LOCAL_IP": "127.0.0.1"},
        input=questions,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return list(json.loads((folder / "answers").read_text()))


def of_answer(answer: tuple[list[str], list[list[Any]]], table: str) -> dict[date, Rows]:
    """An answer of `by_spark` as the other readers have it."""
    columns, found = answer
    assert columns == [*(name for name, _ in fields(STORE[table])), "date"]
    rows: dict[date, Rows] = {}
    for *values, day in found:
        rows.setdefault(date.fromisoformat(day), []).append(tuple(values))
    return {day: sorted(each, key=repr) for day, each in sorted(rows.items())}


def by_us(store: Store, table: str, commits: dict[date, Commit]) -> dict[date, Rows]:
    """The same of these commits, from our own reader."""
    columns = [
        fn.unix_micros(name).alias(name) if kind == "timestamp" else fn.col(name) for name, kind in fields(STORE[table])
    ]
    rows = {day: store.read(table, [commit]).select(*columns).collect() for day, commit in sorted(commits.items())}
    return {day: sorted((tuple(row) for row in each), key=repr) for day, each in rows.items() if each}


def versions(store: Path, table: str) -> list[int]:
    """The versions whose files are there."""
    return sorted(int(path.stem) for path in (store / "tables" / table / "_delta_log").glob("*.json"))


def _plain(value: object) -> object:
    return (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value
