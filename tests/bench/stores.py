"""Compacted stores of any size, as `logagent fleet ingest` would have left them: for measuring the report alone.

    python -m tests.bench.stores ROWS DIR [--one-topic]

Spark makes the rows from numbers, so that 40 million of them take minutes; what lies in landing is measured at sizes
that can be published. What was planted is printed as JSON. `--one-topic` makes one cluster in which one topic has a
million directories or a quarter of all, whichever is more.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from logagent import __version__
from logagent.fleet.ingest.ingest import ROWS_PER_FILE
from logagent.fleet.spark_session import build_session
from logagent.fleet.tables.choice import ReportScope, Row, choose
from logagent.fleet.tables.frames import KEY, parts, seen, topics
from logagent.fleet.tables.store import Run, Store

COPIES = 3
CLUSTER_DIRS = 400_000
HOST_DIRS = 4000
TOPIC_PARTITIONS = 16
SICK = 1000
"""Of so many partitions one has a replica that is missing, and another one a copy where none belongs."""


@dataclass(frozen=True)
class Shape:
    """How many of everything; `large` partitions of the first topic of each cluster."""

    clusters: int
    partitions: int
    hosts: int
    large: int

    @classmethod
    def of(cls, rows: int, *, one_topic: bool) -> Shape:
        clusters = 1 if one_topic else max(1, rows // CLUSTER_DIRS)
        partitions = rows // clusters // COPIES
        large = partitions // 5
        if one_topic:
            large = min(partitions - TOPIC_PARTITIONS, max(1_000_000, rows // 4) // COPIES)
        return cls(clusters, partitions, max(4, partitions * COPIES // HOST_DIRS), large)


def _id(*words: Column) -> Column:
    """22 characters, as Kafka prints a `Uuid`."""
    digest = fn.base64(fn.unhex(fn.md5(fn.concat_ws("/", *words))))
    return fn.translate(fn.substring(digest, 1, 22), "+/", "-_")


def _partitions(spark: SparkSession, shape: Shape, parts: int) -> DataFrame:
    """Every partition: `cluster_id, number, topic, topic_id, partition, start`."""
    number = fn.col("id") % shape.partitions
    small = number - shape.large
    first = number < shape.large
    topic = fn.when(first, 0).otherwise(1 + fn.floor(small / TOPIC_PARTITIONS))
    cluster = fn.floor(fn.col("id") / shape.partitions).cast("string")
    named = fn.concat(fn.lit("team."), fn.pmod(topic, fn.lit(7)), fn.lit(".orders_"), fn.lpad(topic, 7, "0"))
    frame = spark.range(0, shape.clusters * shape.partitions, 1, parts)
    return frame.select(
        _id(fn.lit("cluster"), cluster).alias("cluster_id"),
        number.alias("number"),
        named.alias("topic"),
        _id(cluster, topic.cast("string")).alias("topic_id"),
        fn.when(first, number).otherwise(small % TOPIC_PARTITIONS).cast("int").alias("partition"),
        fn.pmod(topic * 7 + number, fn.lit(shape.hosts)).alias("start"),
    )


def _node(shape: Shape, step: Column | int) -> Column:
    return (1 + (fn.col("start") + step) % shape.hosts).cast("int")


def _dirs(partitions: DataFrame, shape: Shape, at: datetime) -> DataFrame:
    """A row per replica; `step` 3 is the copy on a host that is no replica."""
    sick = fn.pmod(fn.xxhash64("cluster_id", "number"), fn.lit(SICK))
    steps = fn.when(sick == 0, fn.array(*map(fn.lit, (0, 1)))).when(sick == 1, fn.array(*map(fn.lit, range(4))))
    steps = steps.otherwise(fn.array(*map(fn.lit, range(COPIES))))
    chance = fn.xxhash64("cluster_id", "number", "step")
    size = fn.pow(2.0, 10 + fn.pmod(chance, fn.lit(2000)) / 100).cast("bigint")
    none = fn.lit(None).cast("string")
    rows = partitions.withColumn("step", fn.explode(steps)).withColumn("node_id", _node(shape, fn.col("step")))
    age = fn.pmod(chance, fn.lit(86_400_000)) / 1000
    written = fn.lit(at - timedelta(hours=2)).cast("timestamp").cast("double") - age
    made = {
        "log_dir": fn.concat(fn.lit("/data/kafka-"), fn.pmod(fn.col("partition") + fn.col("node_id"), fn.lit(2))),
        "name": fn.concat_ws("-", "topic", "partition"),
        "kind": fn.lit("current"),
        "topic_truncated": fn.lit(False),
        "bytes": size,
        "allocated": size + 4096,
        "files": fn.lit(4),
        "segments": fn.lit(1),
        "newest_mtime": written.cast("timestamp"),
        "first_offset": fn.lit(0),
        "last_segment_offset": fn.pmod(chance, fn.lit(1_000_000)),
        "sightings": fn.when(fn.col("step") == COPIES, 4).otherwise(0),
        "first_seen": fn.when(fn.col("step") == COPIES, written.cast("timestamp")),
        "verdict": fn.when(fn.col("step") == COPIES, "orphan").otherwise("assigned"),
        "reason": fn.when(fn.col("step") == COPIES, "not-a-replica"),
        **dict.fromkeys(("uuid", "marked_at", "in_use", "window", "due_at", "covered"), none),
        **dict.fromkeys(("obstacle", "obstacle_detail", "error"), none),
        **dict.fromkeys(("claim", "witness", "inode", "end_offset"), none),
    }
    return rows.withColumns(made)


def _entries(run: Run, at: datetime) -> list[Row]:
    """A taken snapshot per host and a taken assignment file per cluster."""
    hosts = run.read("dirs").groupBy("cluster_id", "node_id").count().collect()
    images = run.read("assignments").groupBy("cluster_id").agg(fn.count("*").alias("count")).collect()
    moment = round(at.timestamp() * 1000)
    found: list[Row] = []
    for row in [each.asDict() for each in [*hosts, *images]]:
        node = row.get("node_id")
        name = f"{row['cluster_id']}/{at.date()}/{'assignments' if node is None else node}/made"
        entry: Row = dict.fromkeys(("reason", "detail", "boot_id", "image_at", "topics", "partitions", "dirs"))
        entry |= {"cluster_id": row["cluster_id"], "node_id": node, "file": name, "snapshot_id": name, "bytes": 1}
        entry |= {"kind": "snapshot" if node is not None else "assignments", "status": "taken", "rows": row["count"]}
        entry |= {
            "host": f"kafka-{node}",
            "agent_version": __version__,
            "kafka_version": "3.9.1",
            "source": "kraft-log",
        }
        entry |= {"metadata_version": None if node is not None else 21, "booted_at": None, "directory_ids": []}
        # As an agent does: it reads the assignments right before its inventory.
        entry |= {"at": moment - (30_000 if node is None else 0), "sha256": "0" * 64, "offset": 1}
        entry |= {"received_at": entry["at"], "received_manifest": True}
        entry["partitions" if node is None else "dirs"] = row["count"]
        if node is not None:
            image = {"source": "kraft-log", "at": moment - 30_000, "offset": 1}
            entry |= {"began": entry["at"], "images": {"before": image, "after": image}, "absent": 0}
        found.append(entry)
    return found


def _log_dirs(run: Run) -> list[Row]:
    size = 1 << 40
    sums = [fn.sum(name).alias(name) for name in ("bytes", "allocated")]
    rows = run.read("dirs").groupBy("cluster_id", "node_id", "log_dir").agg(fn.count("*").alias("dirs"), *sums)
    nothing = dict.fromkeys(("future", "stray", "delete", "other", "open_removed", "unexplained"), 0)
    return [
        row.asDict()
        | nothing
        | {"size": size, "used": row.bytes, "current": row.bytes, "free": max(0, size - row.bytes)}
        | {"health": "online", "reason": None, "directory_id": None}
        for row in rows.collect()
    ]


def make(spark: SparkSession, where: Path, rows: int, *, at: datetime, one_topic: bool = False) -> dict[str, int]:
    """A store of about `rows` directories at `where`; what a report must find in it."""
    shape = Shape.of(rows, one_topic=one_topic)
    where.mkdir(parents=True, exist_ok=True)
    store, day = Store.open(spark, str(where)), at.date()
    run = store.new_run()
    number = max(1, -(-rows // ROWS_PER_FILE))
    partitions = _partitions(spark, shape, number)
    run.write("dirs", _dirs(partitions, shape, at))
    run.write("others", run.read("dirs").where("kind <> 'current' or verdict <> 'assigned'").coalesce(1))
    replicas = fn.array(*(_node(shape, step) for step in range(COPIES)))
    empty = {name: fn.array().cast("array<int>") for name in ("adding", "removing")}
    assigned = partitions.withColumns({"replicas": replicas, "isr": replicas, **empty, "said": fn.lit(1)})
    run.write("assignments", assigned.withColumn("directories", fn.array().cast("array<string>")))
    sick = fn.pmod(fn.xxhash64("cluster_id", "number"), fn.lit(SICK))
    run.write("absent", partitions.where(sick == 0).withColumn("node_id", _node(shape, COPIES - 1)).coalesce(1))
    run.write_none("earlier")
    nodes = run.read("assignments").select("cluster_id", fn.explode("replicas").alias("node_id"))
    counted = nodes.groupBy("cluster_id", "node_id").agg(fn.count("*").alias("replicas")).collect()
    run.write_small("nodes", [row.asDict() | {"registered": True} for row in counted])
    entries = _entries(run, at)
    run.write_small("files", entries)
    run.write_small("log_dirs", _log_dirs(run))
    run.write_small("quarantine", [])
    made = parts(run.read("dirs"), run.read("assignments"), number)
    written = run.write("parts", made.sortWithinPartitions(*KEY))
    run.write("topics", topics(seen(written, None), run.read("others")).coalesce(1))
    asked = ReportScope(day, round(at.timestamp() * 1000), timedelta(hours=26))
    run.write_small("choice", choose(asked, {day: entries}, {day: [row.asDict() for row in counted]}).rows())
    store.add_commit(run.as_commit(day, store.next_number(day)))
    found = partitions.agg(
        fn.count_if(sick == 1).alias("orphans"), fn.count_if(sick == 0).alias("missing"), fn.count("*").alias("n")
    ).collect()[0]
    orphans, missing = int(found.orphans), int(found.missing)
    dirs_in_all = int(found.n) * COPIES + orphans - missing
    return {"dirs": dirs_in_all, "orphans": orphans, "missing_replicas": missing, "hosts": shape.hosts * shape.clusters}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.stores", description=__doc__)
    parser.add_argument("rows", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--one-topic", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    spark = build_session(master=f"local[{chosen.threads}]", conf={"spark.driver.memory": "4g"})
    try:
        at = datetime.now(UTC).replace(microsecond=0)
        print(json.dumps(make(spark, chosen.folder, chosen.rows, at=at, one_topic=chosen.one_topic)))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
