"""Small frames from rows of the driver, and frames that are written to disk instead of being cached.

Bounds of columns. Unlike Spark's `least` and `greatest`, which skip nulls: what is unknown stays unknown.

What Spark reads in `landing/` and keeps in the store: explicit schemas, never inferred ones.

The line schemas contain the fields of a directory and of an assigned partition that the fleet uses; the other kinds of
row are few, and the driver reads them (`ingest/check.py`). Fields of newer schema versions are ignored, a missing
required one makes the row a bad row. The store schemas are `select` lists with casts: every table leaves its module
through one.

`parts`: every partition with its copies and its replicas side by side, for a choice of snapshots and assignments.

It is a cache, created at ingest: a report whose choice only leaves hosts out removes those from the arrays (`seen`);
any other report computes it again with the same code. Nothing is hashed: nodes are compared with nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from logagent.base.records import ID_SHAPE, ZERO_ID
from logagent.fleet.tables.files import Files, literal
from logagent.store.snapshots import ACT_FIELDS, FIELDS


def at_most(value: Column, most: float) -> Column:
    return fn.when(value > most, fn.lit(most)).otherwise(value)


def at_least(value: Column, least: float) -> Column:
    return fn.when(value < least, fn.lit(least)).otherwise(value)


def local_frame(spark: SparkSession, rows: Sequence[dict[str, Any]], ddl: str) -> DataFrame:
    """Rows of the driver as a frame whose size Spark knows and which it reads without a job.

    `spark.createDataFrame` makes an RDD: a job for every use, and no statistics.
    """
    jvm: Any = spark._jvm
    # Lone surrogates (bytes of names that are not UTF-8) would be "?" in Java: they stay as their escape.
    text = "\n".join(json.dumps(_text(row)) for row in rows)
    # One call for all rows: py4j takes a list element by element.
    lines = jvm.org.apache.hadoop.util.StringUtils.getStringCollection(text, "\n")
    dataset = spark._jsparkSession.createDataset(lines, jvm.org.apache.spark.sql.Encoders.STRING())
    frame = DataFrame(dataset.toDF(), spark)
    return frame.select(fn.from_json("value", ddl).alias("row")).select("row.*")


def together(frames: Iterable[DataFrame]) -> DataFrame:
    """The rows of one or more frames with the same columns."""
    return reduce(DataFrame.unionByName, frames)


def _text(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) and _is_odd(value) else value
        for key, value in row.items()
    }


def _is_odd(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


class Scratch:
    """Frames that are written to disk instead of being cached, below a directory that is removed when the work is done.

    A cached frame drags its whole plan through everything made from it, and is lost with its executor; one read back
    from Parquet has a plan of one line and known sizes.
    """

    def __init__(self, spark: SparkSession, files: Files, parent: str) -> None:
        self._spark = spark
        self._files = files
        self._uri = f"{parent}/.scratch-{uuid4().hex}"

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        # The original error matters more than one from cleaning up.
        with suppress(OSError, Py4JError, PySparkException):
            self._files.delete(self._uri)

    def keep(self, name: str, frame: DataFrame) -> DataFrame:
        """`frame`, computed once. A name can be used once."""
        frame.write.parquet(f"{self._uri}/{name}")
        return self._spark.read.schema(frame.schema).parquet(literal(f"{self._uri}/{name}"))

    def count(self, name: str) -> int:
        """The number of rows kept under `name`, from the footers."""
        return sum(self._files.parquet_files(f"{self._uri}/{name}").values())


ROWS_PER_TASK = 2_000_000


def tune(spark: SparkSession, rows: int) -> None:
    """Shuffle partitions for `rows` rows: at least one per core; a small fleet does not need two hundred.

    Left alone if the user has set a number (`--conf`, spark-submit).
    """
    context = spark.sparkContext
    if context.getConf().get("spark.sql.shuffle.partitions") is None:
        parts = max(context.defaultParallelism, -(-rows // ROWS_PER_TASK))
        spark.conf.set("spark.sql.shuffle.partitions", str(parts))


def is_removal(topic_id: object, partition: object) -> bool:
    """Whether these are what an `uncommitted` row has: a topic id, and a partition or null."""
    if not isinstance(topic_id, str) or re.fullmatch(ID_SHAPE, topic_id) is None:
        return False
    if partition is None:
        return True
    return isinstance(partition, int) and not isinstance(partition, bool) and 0 <= partition < 1 << 31


CORRUPT = "_corrupt_record"
_TYPES = {"bool": "boolean", "int": "int", "long": "bigint", "time": "bigint"}
DIR_LINE = ", ".join([*(f"{name} {_TYPES.get(kind, 'string')}" for name, kind in FIELDS.items()), f"{CORRUPT} string"])
"""Times are milliseconds since 1970."""
TEXTS = {"path": 6 * 4096, "name": 6 * 255, "word": 1000, "sentence": 6000}
LONGEST = {name: TEXTS[kind] for name, kind in FIELDS.items() if kind in TEXTS}
"""The longest texts, in bytes: Spark keeps thousands of rows in memory, and a line may have a megabyte. A path has
at most 4,096 bytes, a name 255, and one that is not UTF-8 is six here."""

PARTITION_LINE = f"""
    row string, topic string, topic_id string, partition int, replicas array<int>, adding array<int>,
    removing array<int>, isr array<int>, directories array<string>, {CORRUPT} string
"""


def _stored(fields: Mapping[str, str]) -> str:
    """As a table of the store has the fields of a line."""
    columns = (
        f"{name} {'timestamp' if kind == 'time' else _TYPES.get(kind, 'string')}"
        for name, kind in fields.items()
        if name not in ("row", "full_topic")
    )
    return ", ".join(("cluster_id string, node_id int", *columns))


DIRS = _stored(FIELDS)
"""`topic` is the full name, where the directory's own is cut."""

ASSIGNMENTS = """
    cluster_id string, topic string, topic_id string, partition int, replicas array<int>, adding array<int>,
    removing array<int>, isr array<int>, directories array<string>, said bigint
"""
"""One row per partition; `said`: how many rows of the file it comes from (if repeated, all replicas count)."""

PARTS = """
    cluster_id string, topic string, topic_id string, partition int, nodes array<int>, sizes array<bigint>,
    allocations array<bigint>, replicas array<int>, bytes bigint, allocated bigint, largest bigint, smallest bigint
"""
"""One row per partition that has a current directory or an assignment: its copies in the order of their nodes (a node
with two copies is listed twice), and its replicas, sorted; null if it is not assigned."""

ABSENT_LINE = f"row string, topic string, topic_id string, partition int, {CORRUPT} string"
ABSENT = "cluster_id string, node_id int, topic string, topic_id string, partition int"
"""One row per replica of which its agent says that it was assigned before and after its inventory, and is not there."""

ACT_LINE = ", ".join(f"{name} {_TYPES.get(kind, 'string')}" for name, kind in ACT_FIELDS.items())
ACT_NEEDS = ("id", "at", "finished_at", "action", "outcome", "log_dir", "name")
ACT_STARTS = (b'{"row":"act"', b'{"row": "act"')
"""How `act` lines begin: Spark parses these lines alone."""
ACTS = _stored(ACT_FIELDS) + ", host string"
"""One row per act of the last days in each snapshot: the same one is there on several dates. `host`: as it called
itself then."""

EARLIER = "cluster_id string, image string, topic string, topic_id string, partition int, replicas array<int>"
"""Assignments that newer ones of their date have superseded, for hosts that have read none themselves. `image`: the
`snapshot_id` of their file."""

TOPICS = """
    cluster_id string, topic string, topic_id string, assigned_partitions bigint, partitions bigint, copies bigint,
    bytes bigint, allocated bigint, current bigint, future bigint, stray bigint, delete bigint,
    largest_partition bigint, largest_sum bigint
"""
"""One row per topic that has a directory of any kind or an assignment."""

STORE: dict[str, str] = {
    "dirs": DIRS,
    "others": DIRS,
    "assignments": ASSIGNMENTS,
    "parts": PARTS,
    "topics": TOPICS,
    "absent": ABSENT,
    "acts": ACTS,
    "earlier": EARLIER,
}
"""The Parquet tables of a run. `others` repeats the directories that are not current, those that their agent does not
call `assigned`, and those that it could not read whole: a small part, which most reports need without reading
everything."""


def fields(ddl: str) -> list[tuple[str, str]]:
    """(name, type) of each field of one of the store schemas above (flat types only)."""
    return [(name, kind) for name, kind in (part.split() for part in " ".join(ddl.split()).split(", "))]


def shaped(frame: DataFrame, ddl: str) -> DataFrame:
    """`frame` with exactly the columns of `ddl`, cast, in that order; raises `AnalysisException` if one is absent."""
    return frame.select(*(fn.col(name).cast(kind).alias(name) for name, kind in fields(ddl)))


def rfc3339(column: Column | str) -> Column:
    """RFC 3339 text in UTC with milliseconds (the session's time zone is UTC)."""
    return fn.date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def real_id(name: str = "topic_id") -> Column:
    """A topic id, null for Kafka's zero id (clusters before 2.8 have none)."""
    return fn.nullif(fn.col(name), fn.lit(ZERO_ID))


def whose() -> Column:
    """What a directory is a copy of: the topic id, or the name if there is none (no id begins with a slash)."""
    return fn.coalesce(fn.col("topic_id"), fn.concat(fn.lit("/"), fn.col("topic")))


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
