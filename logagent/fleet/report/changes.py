"""What changed since the date before, and since a week ago: of the hosts that reported on both dates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.report.scope import Scope
from logagent.fleet.tables.choice import Row
from logagent.fleet.tables.frames import local_frame
from logagent.fleet.tables.spark_schemas import whose
from logagent.fleet.tables.store import Commit

WEEK = timedelta(days=7)
MOST_LOST = 10_000
"""Up to this many partitions without any copy it is checked whether they had one before."""
KEY = ["cluster_id", "node_id", "log_dir", "whose", "partition"]


def compared(dates: Iterable[date], day: date) -> list[date]:
    """The date before `day`, and the newest one that is a week or more before it."""
    past = sorted(each for each in dates if each < day)
    weeks = [each for each in past if each <= day - WEEK]
    return list(dict.fromkeys([*past[-1:], *weeks[-1:]]))


def changes(scope: Scope, commits: Mapping[date, Commit], lost: list[Row]) -> list[Row]:
    """One row for each date compared with. `lost`: the partitions that are missing on every host that reports."""
    found = []
    for then in compared(commits, scope.asked.day):
        row: Row = {"date": then.isoformat(), "days": (scope.asked.day - then).days}
        before = scope.store.log_dirs(commits[then])
        row |= _disks(scope.log_dirs, before)
        both = {(r["cluster_id"], r["node_id"]) for r in before} & {
            (r["cluster_id"], r["node_id"]) for r in scope.log_dirs
        }
        row |= _directories(scope, commits[then], both) | {"no_copy": _newly_lost(scope, commits[then], lost)}
        found.append(row)
    return found


def _disks(now: list[Row], then: list[Row]) -> Row:
    """Used bytes of the log dirs with a figure on both dates, and the log dirs that went offline between them."""
    before = {(r["cluster_id"], r["node_id"], r["log_dir"]): r for r in then}
    pairs = [(r, before.get((r["cluster_id"], r["node_id"], r["log_dir"]))) for r in now]
    known = [
        (r["used"], old["used"])
        for r, old in pairs
        if old is not None and r["used"] is not None and old["used"] is not None
    ]
    offline = sum(old is not None and r["health"] == "offline" != old["health"] for r, old in pairs)
    return {"log_dirs": len(known), "used": sum(new - old for new, old in known), "offline": offline}


def _directories(scope: Scope, then: Commit, both: set[tuple[str, int]]) -> Row:
    """New orphans, and former orphans, strays and marked directories that are none of these any more.

    By the agents' own verdicts on both dates; a directory that was only renamed is the same one.
    """
    spark = scope.store.spark
    rows = [{"cluster_id": cluster, "node_id": node} for cluster, node in sorted(both)]
    hosts = fn.broadcast(local_frame(spark, rows, "cluster_id string, node_id int"))
    today = _waste(scope.others).withColumn("is_new", fn.lit(True))
    before = _waste(scope.store.read("others", [then])).withColumn("is_new", fn.lit(False))
    each = today.unionByName(before).join(hosts, ["cluster_id", "node_id"], how="left_semi").groupBy(*KEY)
    now, old, size = fn.col("is_new"), ~fn.col("is_new"), fn.col("bytes")
    one = each.agg(
        fn.bool_or(now).alias("now"),
        fn.bool_or(old).alias("old"),
        fn.bool_or(now & fn.col("is_orphan")).alias("orphan"),
        fn.max(fn.when(now, size)).alias("bytes_now"),
        fn.max(fn.when(old, size)).alias("bytes_old"),
    )
    new, gone = fn.col("orphan") & ~fn.col("old"), ~fn.col("now")
    counted = [_count(new, "orphans"), _bytes(new, "bytes_now", "orphan_bytes")]
    return one.agg(*counted, _count(gone, "cleared"), _bytes(gone, "bytes_old", "cleared_bytes")).collect()[0].asDict()


def _waste(rows: DataFrame) -> DataFrame:
    live = fn.col("kind").isin("current", "future")
    orphan = live & (fn.col("verdict") == "orphan")
    wanted = rows.where(orphan | fn.col("kind").isin("stray", "delete")).withColumn("whose", whose())
    return wanted.select(*KEY, "bytes", fn.coalesce(orphan, fn.lit(False)).alias("is_orphan"))


def _count(rows: Column, name: str) -> Column:
    return fn.coalesce(fn.sum(rows.cast("int")), fn.lit(0)).alias(name)


def _bytes(rows: Column, column: str, name: str) -> Column:
    return fn.coalesce(fn.try_sum(fn.when(rows, fn.col(column))), fn.lit(0)).alias(name)


def _newly_lost(scope: Scope, then: Commit, lost: list[Row]) -> int | None:
    """How many of the partitions without a copy had one then; null if they are too many to check."""
    if not lost:
        return 0
    if len(lost) > MOST_LOST:
        return None
    names = ("cluster_id", "topic_id", "partition")
    rows: list[dict[str, Any]] = [{name: row[name] for name in names} for row in lost]
    keys = local_frame(scope.store.spark, rows, "cluster_id string, topic_id string, partition int")
    had = scope.store.read("parts", [then]).where(fn.size("nodes") > 0)
    return had.join(fn.broadcast(keys), list(names), how="left_semi").count()
