"""Usage by topic and by partition, from `parts`."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.report.scope import Scope
from logagent.fleet.report.usage import WASTE

TOPIC = ["cluster_id", "topic", "topic_id"]


def usage_topics(scope: Scope, waste: DataFrame) -> DataFrame:
    """`usage_topics`: directories of every kind, the spread of sizes over partitions, and what can be reclaimed."""
    mean = fn.try_divide("largest_sum", "partitions")
    rows = scope.topics.where(fn.col("copies") > 0).withColumn(
        "skew", fn.round(fn.try_divide("largest_partition", mean), 6)
    )
    # Topic ids are null in old clusters, and null is not a join key.
    theirs = waste.withColumnsRenamed({name: f"o_{name}" for name in TOPIC})
    counted = rows.join(theirs, _null_safe(), how="left")
    return counted.fillna(0, list(WASTE))


def _null_safe() -> Column:
    same = fn.col("cluster_id") == fn.col("o_cluster_id")
    for name in ("topic", "topic_id"):
        same = same & fn.col(name).eqNullSafe(fn.col(f"o_{name}"))
    return same


def usage_partitions(scope: Scope) -> DataFrame:
    """`usage_partitions`: current directories by partition, and whether they are as assigned.

    `assigned` counts the replicas on hosts that count; it and `as_assigned` are null in clusters without verdicts.
    """
    undecided = [c["cluster_id"] for c in scope.choice.clusters if not c["decided"]]
    decided = ~fn.col("cluster_id").isin(undecided) if undecided else fn.lit(True)
    return scope.parts.select(
        "cluster_id",
        "topic",
        "topic_id",
        "partition",
        fn.size("nodes").alias("copies"),
        fn.when(decided, fn.coalesce(fn.size("replicas"), fn.lit(0))).alias("assigned"),
        fn.when(decided, fn.col("same")).alias("as_assigned"),
        "bytes",
        "allocated",
        fn.col("smallest").alias("smallest_copy"),
        fn.col("largest").alias("largest_copy"),
    )
