"""What growth and deletion progress read: small tables per date, made once at ingest."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

TOPIC = ["cluster_id", "topic", "topic_id", "topic_key"]


def topics(dirs: DataFrame, assignments: DataFrame) -> DataFrame:
    """Per topic: its dirs of every kind, how many partitions have a current one, and how many are assigned."""
    by_partition = (
        dirs.where(fn.col("topic").isNotNull())
        .groupBy(*TOPIC, fn.when(fn.col("kind") == "current", fn.col("partition")).alias("partition"))
        .agg(fn.count("*").alias("dirs"), fn.sum("bytes").alias("bytes"), fn.sum("allocated").alias("allocated"))
        .withColumn("assigned_partitions", fn.lit(0))
    )
    assigned = assignments.groupBy(*TOPIC).agg(fn.count("*").alias("assigned_partitions"))
    zero = {name: fn.lit(0) for name in ("dirs", "bytes", "allocated")}
    assigned = assigned.withColumns({"partition": fn.lit(None).cast("int"), **zero})
    return (
        by_partition.unionByName(assigned)
        .groupBy(*TOPIC)
        .agg(
            fn.count("partition").alias("partitions"),
            *(fn.sum(name).alias(name) for name in ("assigned_partitions", "dirs", "bytes", "allocated")),
        )
    )


def log_dirs(dirs: DataFrame, ledgers: DataFrame) -> DataFrame:
    """Per log dir: its dirs, and the sizes that `statvfs` gave."""
    place = ["cluster_id", "node_id", "log_dir"]
    sums = dirs.groupBy(*place).agg(
        fn.count("*").alias("dirs"), fn.sum("bytes").alias("bytes"), fn.sum("allocated").alias("allocated")
    )
    known = ledgers.select(*place, "size", "used", "free").join(sums, place, how="full_outer")
    return known.fillna(0, ["dirs", "bytes", "allocated"])


def others(dirs: DataFrame) -> DataFrame:
    """Directories that are not current ones: moves, strays, deletions, and what is no partition."""
    return dirs.where(fn.col("kind") != "current")
