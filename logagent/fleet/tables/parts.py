"""`parts`: every partition with its copies and its replicas side by side, for a choice of snapshots and assignments.

It is a cache, created at ingest: a report whose choice only leaves hosts out removes those from the arrays (`seen`);
any other report computes it again with the same code. Nothing is hashed: nodes are compared with nodes.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

KEY = ["cluster_id", "topic", "topic_id", "partition"]
TOPIC = ["cluster_id", "topic", "topic_id"]


def parts(dirs: DataFrame, assignments: DataFrame, number: int | None = None) -> DataFrame:
    """The `parts` of directories (of hosts that count) and assignments (of clusters that have usable ones).

    `number`: spread over so many partitions by topic before they are grouped, as they are to be written.
    """
    on_disk = dirs.where((fn.col("kind") == "current") & fn.col("topic").isNotNull()).select(
        *KEY,
        fn.struct("node_id", "bytes", "allocated").alias("copy"),
        fn.lit(None).cast("array<int>").alias("replicas"),
        "bytes",
        "allocated",
    )
    none = fn.lit(None)
    assigned = assignments.select(
        *KEY,
        none.cast("struct<node_id:int,bytes:bigint,allocated:bigint>").alias("copy"),
        fn.sort_array("replicas").alias("replicas"),
        none.cast("bigint").alias("bytes"),
        none.cast("bigint").alias("allocated"),
    )
    both = on_disk.union(assigned)
    if number is not None:
        both = both.repartition(number, "cluster_id", "topic")
    rows = both.groupBy(*KEY).agg(
        fn.sort_array(fn.collect_list("copy")).alias("copies"),
        fn.first("replicas", ignorenulls=True).alias("replicas"),
        fn.coalesce(fn.try_sum("bytes"), fn.lit(0)).alias("bytes"),
        fn.coalesce(fn.try_sum("allocated"), fn.lit(0)).alias("allocated"),
        fn.max("allocated").alias("largest"),
        fn.min("allocated").alias("smallest"),
    )
    names = {"nodes": "node_id", "sizes": "bytes", "allocations": "allocated"}
    return rows.withColumns({name: fn.col(f"copies.{of}") for name, of in names.items()}).drop("copies")


def seen(frame: DataFrame, left_out: DataFrame | None) -> DataFrame:
    """`parts` without the nodes of `left_out` (`cluster_id, silent`: sorted node ids), with `same` and `twice`.

    `same`: exactly its replicas have it; `twice`: a node has it in two log dirs.
    """
    if left_out is not None:
        known = frame.join(fn.broadcast(left_out), "cluster_id", how="left")
        frame = known.where(fn.col("silent").isNull()).unionByName(
            known.where(fn.col("silent").isNotNull()).transform(_without)
        )
        frame = frame.drop("silent").where((fn.size("nodes") > 0) | (fn.size("replicas") > 0))
    distinct = fn.array_distinct("nodes")
    replicas = fn.coalesce("replicas", fn.array().cast("array<int>"))
    return frame.withColumns({"same": fn.col("nodes") == replicas, "twice": fn.size(distinct) < fn.size("nodes")})


def _without(frame: DataFrame) -> DataFrame:
    here = fn.filter(
        fn.arrays_zip("nodes", "sizes", "allocations"), lambda copy: ~fn.array_contains("silent", copy["nodes"])
    )
    rows = frame.withColumns({"here": here, "replicas": fn.array_except("replicas", "silent")})
    rows = rows.withColumns({name: fn.col(f"here.{name}") for name in ("nodes", "sizes", "allocations")})
    return rows.drop("here").withColumns(
        {
            "bytes": _added("sizes"),
            "allocated": _added("allocations"),
            "largest": fn.array_max("allocations"),
            "smallest": fn.array_min("allocations"),
        }
    )


def _added(name: str) -> Column:
    return fn.aggregate(name, fn.lit(0).cast("bigint"), lambda total, size: total + size)


def topics(rows: DataFrame, others: DataFrame) -> DataFrame:
    """The `topics` table: `rows` as `seen` gives them, and the directories of other kinds."""
    here = fn.size("nodes") > 0
    current = rows.groupBy(*TOPIC).agg(
        fn.count_if(fn.size("replicas") > 0).alias("assigned_partitions"),
        fn.count_if(here).alias("partitions"),
        fn.sum(fn.size("nodes")).alias("copies"),
        _total("bytes"),
        _total("allocated"),
        fn.max("largest").alias("largest_partition"),
        _total("largest", "largest_sum"),
    )
    zero = fn.lit(0).cast("bigint")
    nothing = dict.fromkeys(("future", "stray", "delete"), zero)
    current = current.withColumns({"current": fn.col("allocated"), **nothing})
    kinds = [fn.coalesce(fn.try_sum(fn.when(fn.col("kind") == k, fn.col("allocated"))), zero).alias(k) for k in nothing]
    kept = others.where((fn.col("kind") != "current") & fn.col("topic").isNotNull()).groupBy(*TOPIC)
    of_others = kept.agg(fn.count("*").alias("copies"), _total("bytes"), _total("allocated"), *kinds)
    none = dict.fromkeys(("assigned_partitions", "partitions", "current", "largest_sum"), zero)
    of_others = of_others.withColumns(none | {"largest_partition": fn.lit(None).cast("bigint")})
    both = current.unionByName(of_others)
    sums = ("assigned_partitions", "partitions", "copies", "bytes", "allocated", "current", *nothing, "largest_sum")
    return both.groupBy(*TOPIC).agg(
        *(_total(name) for name in sums), fn.max("largest_partition").alias("largest_partition")
    )


def _total(name: str, alias: str | None = None) -> Column:
    return fn.coalesce(fn.try_sum(name), fn.lit(0)).cast("bigint").alias(alias or name)
