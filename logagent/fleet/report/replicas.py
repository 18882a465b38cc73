"""Replicas that are nowhere, and partitions that are in two places of one host."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.report.scope import Scope
from logagent.fleet.report.verdicts import HOST, LIVE, whose

REPLICA = [*HOST, "topic", "topic_id", "partition"]


def missing(scope: Scope, expected: DataFrame, found: DataFrame, copies: DataFrame) -> DataFrame:
    """The `missing_replicas` table: assigned to a host that counts, and in none of its log dirs that can be read.

    `expected` are the assignments of the odd partitions (or more), `found` their directories and `copies` the number of
    those. Left out, because it may be there after all: a replica whose log dir may be an offline one, and one of whose
    topic and partition a directory without topic id is on that host.
    """
    at = fn.transform(
        "replicas", lambda node, n: fn.struct(node.alias("node_id"), fn.get("directories", n).alias("id"))
    )
    replicas = expected.withColumn("replica", fn.explode(at)).select("*", "replica.node_id", "replica.id")
    known = scope.hosts.where("counts").select(*HOST, "host", "at")
    here = replicas.join(fn.broadcast(known), HOST, how="inner")
    live = found.where(fn.col("kind").isin(*LIVE))
    by_id = live.select(*HOST, "topic_id", "partition").distinct()
    nameless = _nameless(scope, live)
    lost = here.join(by_id, [*HOST, "topic_id", "partition"], how="left_anti")
    lost = lost.join(nameless, [*HOST, "topic", "partition"], how="left_anti").transform(lambda f: _provable(scope, f))
    elsewhere = copies.select("cluster_id", "whose", "partition", fn.col("copies").alias("copies_elsewhere"))
    counted = lost.withColumn("whose", whose()).join(elsewhere, ["cluster_id", "whose", "partition"], how="left")
    return counted.withColumns(
        {
            "in_isr": fn.when(fn.size("isr") > 0, fn.array_contains("isr", fn.col("node_id"))),
            "adding": fn.array_contains("adding", fn.col("node_id")),
            "copies_elsewhere": fn.coalesce("copies_elsewhere", fn.lit(0)),
        }
    )


def _nameless(scope: Scope, live: DataFrame) -> DataFrame:
    """Replicas that a directory without topic id may be: `HOST, topic, partition`.

    A name that is cut off may be that of every topic which begins like it.
    """
    without = live.where(fn.col("topic_id").isNull()).select(*HOST, "topic", "partition", "topic_truncated")
    exact = without.where(~fn.col("topic_truncated")).drop("topic_truncated")
    begun = without.where("topic_truncated").withColumnRenamed("topic", "begins").drop("topic_truncated")
    topics = scope.assigned_topics.select("cluster_id", "topic").distinct()
    longer = (
        begun.join(topics, "cluster_id", how="inner")
        .where(fn.startswith("topic", "begins"))
        .select(*HOST, "topic", "partition")
    )
    return exact.union(longer).distinct()


def _provable(scope: Scope, lost: DataFrame) -> DataFrame:
    """Only replicas that cannot lie in a log dir which the host could not read."""
    unreadable = scope.log_dirs.where(fn.col("health").isin("offline", "unformatted"))
    doubtful = unreadable.select(*HOST, fn.lit(True).alias("doubtful")).distinct()
    online = scope.log_dirs.where(~fn.col("health").isin("offline", "unformatted") & fn.col("directory_id").isNotNull())
    readable = online.select(*HOST, fn.col("directory_id").alias("id"), fn.lit(True).alias("readable")).distinct()
    placed = lost.join(fn.broadcast(doubtful), HOST, how="left").join(fn.broadcast(readable), [*HOST, "id"], how="left")
    return placed.where(fn.col("doubtful").isNull() | fn.col("readable")).drop("doubtful", "readable")


def duplicates(scope: Scope, found: DataFrame) -> DataFrame:
    """The `duplicates` table: one topic id and partition current in more than one log dir of a host.

    In clusters with verdicts only odd partitions (`found`) can be; in the others all have to be looked at.
    """
    columns = [*REPLICA, "log_dir", "bytes", "allocated"]
    rows = found.where(fn.col("kind") == "current").select(*columns)
    if scope.undecided:
        undecided = fn.broadcast(scope.clusters.where(~fn.col("decided")).select("cluster_id"))
        rest = scope.dirs.where((fn.col("kind") == "current") & fn.col("topic_key").isNotNull())
        rows = rows.unionByName(rest.join(undecided, "cluster_id", how="left_semi").select(*columns))
    places = fn.sort_array(fn.collect_set("log_dir"))
    grouped = rows.groupBy(*REPLICA).agg(
        places.alias("places"), fn.sum("bytes").alias("bytes"), fn.sum("allocated").alias("allocated")
    )
    twice = grouped.where(fn.size("places") > 1)
    hosts = scope.hosts.select(*HOST, "host")
    named = twice.join(fn.broadcast(hosts), HOST, how="inner")
    return named.withColumns({"copies": fn.size("places"), "log_dirs": fn.array_join("places", ", ")})
