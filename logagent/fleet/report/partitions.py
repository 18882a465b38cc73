"""Usage by partition, and which partitions are not where the assignments have them: one pass over everything.

Directories and assignments are not joined. Each current directory becomes (topic key, partition, 1 copy, hash of its
node), each
assignment (topic key, partition, minus nothing, n replicas, XOR of the hashes of their nodes), and one aggregation
by (topic key, partition)
adds them up. Where the number of copies is the number of replicas and the XOR of all hashes is zero, the nodes are the
same ones (two different sets agree by chance once in 2^64); only the rest is looked at in full, in `verdicts.py`.

`spec` of the plan before: key = (topic id, partition, broker) over exploded assignments. Aggregating by partition
shuffles a
third of the rows on each side and gives usage by partition in the same pass.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.report.scope import TOPIC, Scope
from logagent.fleet.tables.rows import fingerprinted
from logagent.fleet.tables.schema import topic_key


def usage(scope: Scope) -> DataFrame:
    """`usage_partitions`: current directories by partition, and whether they are as assigned.

    `assigned` counts the replicas on hosts that count; it and `as_assigned` are null in clusters without verdicts.
    """
    zero = fn.lit(0).cast("bigint")
    on_disk = scope.dirs.where((fn.col("kind") == "current") & fn.col("topic_key").isNotNull()).select(
        "topic_key",
        "partition",
        fn.lit(1).cast("bigint").alias("copies"),
        zero.alias("assigned"),
        fn.xxhash64("node_id").alias("nodes"),
        "bytes",
        "allocated",
        fn.col("bytes").alias("smallest_copy"),
        fn.col("bytes").alias("largest_copy"),
    )
    nothing = fn.lit(None).cast("bigint")
    assigned = expected(scope).select(
        "topic_key",
        "partition",
        zero.alias("copies"),
        fn.col("assigned").cast("bigint").alias("assigned"),
        fn.col("assigned_xor").alias("nodes"),
        zero.alias("bytes"),
        zero.alias("allocated"),
        nothing.alias("smallest_copy"),
        nothing.alias("largest_copy"),
    )
    summed = (
        on_disk.union(assigned)
        .groupBy("topic_key", "partition")
        .agg(
            *(fn.sum(name).alias(name) for name in ("copies", "assigned", "bytes", "allocated")),
            fn.bit_xor("nodes").alias("nodes"),
            fn.min("smallest_copy").alias("smallest_copy"),
            fn.max("largest_copy").alias("largest_copy"),
        )
    )
    return summed.transform(lambda frame: _named(scope, frame))


def _named(scope: Scope, summed: DataFrame) -> DataFrame:
    decided = scope.clusters.select("cluster_id", "decided")
    names = scope.topics.join(fn.broadcast(decided), "cluster_id", how="inner").withColumnRenamed("topic_key", "key")
    same = (fn.col("copies") == fn.col("assigned")) & (fn.col("nodes") == 0)
    named = summed.join(names, fn.col("topic_key") == fn.col("key"), how="inner")
    return named.withColumns(
        {
            "as_assigned": fn.when(fn.col("decided"), same),
            "assigned": fn.when(fn.col("decided"), fn.col("assigned")),
        }
    )


def expected(scope: Scope) -> DataFrame:
    """Assignments with replicas on hosts that count only, and `assigned`, `assigned_xor` for those."""
    silent = (
        scope.hosts.where(~fn.col("counts"))
        .groupBy("cluster_id")
        .agg(fn.sort_array(fn.collect_list("node_id")).alias("silent"))
    )
    known = scope.assignments.join(fn.broadcast(silent), "cluster_id", how="left")
    whole = known.where(fn.col("silent").isNull()).drop("silent")
    part = known.where(fn.col("silent").isNotNull())
    part = part.withColumn("replicas", fn.array_except("replicas", "silent")).drop("silent")
    return whole.unionByName(part.transform(fingerprinted))


def anomalies(usage_partitions: DataFrame) -> DataFrame:
    """Keys and copies of the partitions that are not as assigned, from the written `usage_partitions`."""
    odd = usage_partitions.where(~fn.col("as_assigned")).withColumn("topic_key", topic_key())
    return odd.select(*TOPIC, fn.col("partition").cast("int").alias("partition"), "copies")
