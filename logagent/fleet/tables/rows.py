"""Lines of whole files → typed rows, each judged: a row is good or it says what is wrong with it.

Every column is parsed here, once, in PERMISSIVE mode with the corrupt-record column kept: a line that is no JSON, a
field of
the wrong type and an absent required field are all seen. A bad row makes its whole file not complete (`census`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from logagent.fleet.tables.schema import ASSIGNMENTS_LINE, CORRUPT, SNAPSHOT_LINE, instant, real_id, topic_key
from logagent.fleet.tables.store import literal

RECORD_SHOWN = 200
"""Characters of a bad row that are kept beside the reason."""

# A file name's bytes that are no UTF-8 arrive as the escape of a lone low surrogate. Java's UTF-8 has no form for it
# and
# would make one "?" of all of them, so two names one: keep the escape as text. A pair (an emoji) is left alone.
_LONE_SURROGATE = r"(?<!\\u[dD][89abAB][0-9a-fA-F]{2})(?<!\\)((?:\\\\)*)\\u([dD][cC][89a-fA-F][0-9a-fA-F])"


def lines(spark: SparkSession, paths: list[str]) -> DataFrame:
    """`value, of_file` of every line of the files.

    A file that breaks off gives the lines before the break: `census` counts them against the manifest.
    """
    # It comes as a URI, percent-encoded, unlike the path that a listing gives; a plus sign is one in both.
    file = fn.url_decode(fn.replace(fn.col("_metadata.file_path"), fn.lit("+"), fn.lit("%2B")))
    reader = spark.read.option("lineSep", "\n").option("ignoreCorruptFiles", "true")
    return reader.text(list(map(literal, paths))).select("value", file.alias("of_file"))


def _parsed(frame: DataFrame, schema: str) -> DataFrame:
    """`of_file, value, readable` and the fields of `schema`."""
    escaped = fn.when(
        fn.col("value").contains("\\udc") | fn.col("value").contains("\\uDC"),
        fn.regexp_replace("value", _LONE_SURROGATE, r"$1\\\\u$2"),
    ).otherwise(fn.col("value"))
    fields = fn.from_json(escaped, schema, {"columnNameOfCorruptRecord": CORRUPT})
    readable = fn.col("f").isNotNull() & fn.col(f"f.{CORRUPT}").isNull()
    flat = frame.select("of_file", "value", fields.alias("f")).select(
        "of_file", "value", readable.alias("readable"), "f.*"
    )
    return flat.drop(CORRUPT)


def _judged(frame: DataFrame, required: dict[str, list[Column]]) -> DataFrame:
    """Adds `wrong` (what is wrong with a line, null if nothing is) and keeps the line itself, cut, only then."""
    found = [
        fn.when(~fn.col("readable"), fn.lit("no JSON, or a field of a wrong type")),
        fn.when(fn.col("row").isNull(), fn.lit("no kind of row")),
    ]
    for kind, conditions in required.items():
        says = fn.lit(f"{kind}: a required field is missing or bad")
        found += [
            fn.when((fn.col("row") == kind) & ~fn.coalesce(condition, fn.lit(False)), says) for condition in conditions
        ]
    judged = frame.withColumn("wrong", fn.coalesce(*found))
    record = fn.when(fn.col("wrong").isNotNull(), fn.substring("value", 1, RECORD_SHOWN))
    return judged.withColumn("record", record).drop("value", "readable")


def _there(*names: str) -> list[Column]:
    return [fn.col(name).isNotNull() for name in names]


def snapshot_rows(frame: DataFrame) -> DataFrame:
    """Judged lines of snapshot files: `of_file, wrong, record` and the fields of `SNAPSHOT_LINE`."""
    in_use = fn.col("kind").isin("current", "future")
    required = {
        "snapshot": [
            *_there("snapshot_id", "cluster_id", "node_id"),
            fn.col("schema").startswith("logagent.snapshot/"),
            instant("at").isNotNull(),
        ],
        "log_dir": _there("path", "health"),
        "dir": [
            *_there("log_dir", "name", "kind", "bytes"),
            fn.col("bytes") >= 0,
            ~in_use | (fn.col("topic").isNotNull() & fn.col("partition").isNotNull()),
        ],
    }
    return _judged(_parsed(frame, SNAPSHOT_LINE), required)


def assignment_rows(frame: DataFrame) -> DataFrame:
    """Judged lines of assignment files: `of_file, wrong, record` and the fields of `ASSIGNMENTS_LINE`."""
    required = {
        "assignments": [
            *_there("cluster_id"),
            fn.col("schema").startswith("logagent.assignments/"),
            instant("at").isNotNull(),
        ],
        "broker": _there("node_id"),
        "partition": [
            *_there("topic", "partition", "replicas"),
            (fn.size("replicas") > 0) & ~fn.exists("replicas", lambda node: node.isNull()),
        ],
    }
    return _judged(_parsed(frame, ASSIGNMENTS_LINE), required)


def census(judged: DataFrame) -> DataFrame:
    """Per file: `rows, bad` and the good ones by kind of row. Counts only, so that it is one hash aggregation."""
    good = fn.col("wrong").isNull()

    def count(*kinds: str) -> Column:
        return fn.count_if(good & fn.col("row").isin(*kinds))

    return judged.groupBy("of_file").agg(
        fn.count("*").alias("read"),
        fn.count_if(~good).alias("bad"),
        count("snapshot", "assignments").alias("headers"),
        count("dir").alias("dirs"),
        count("log_dir").alias("log_dirs"),
        count("partition").alias("partitions"),
    )


def headers(judged: DataFrame) -> DataFrame:
    """`of_file, header`: the header row of each file (one of them where there are several: `census` counts)."""
    found = judged.where(fn.col("wrong").isNull() & fn.col("row").isin("snapshot", "assignments"))
    names = [name for name in found.columns if name not in ("of_file", "wrong", "record")]
    return found.select("of_file", fn.struct(*names).alias("header")).dropDuplicates(["of_file"])


def bad_rows(judged: DataFrame) -> DataFrame:
    """`of_file, detail, record` of every bad row; `record` is cut."""
    return judged.where(fn.col("wrong").isNotNull()).select("of_file", fn.col("wrong").alias("detail"), "record")


def dirs(good: DataFrame) -> DataFrame:
    """Directory rows for the store. `topic` is the full name where the directory's own is cut off."""
    return (
        good.where(fn.col("row") == "dir")
        .withColumn("topic", fn.coalesce("full_topic", "topic"))
        .withColumn("topic_id", real_id())
        .withColumn("topic_key", topic_key())
        .withColumn("allocated", fn.coalesce("allocated", fn.lit(0)))
        .withColumn("topic_truncated", fn.coalesce("topic_truncated", fn.lit(False)) & fn.col("full_topic").isNull())
        .withColumn("newest_mtime", instant("newest_mtime"))
        .withColumn("marked_at", instant("marked_at"))
        .withColumn("first_seen", instant("first_seen"))
    )


def log_dirs(good: DataFrame) -> DataFrame:
    """Log dir rows for the store; a ledger that the agent could not make is null throughout."""
    return good.where(fn.col("row") == "log_dir").select(
        "cluster_id", "node_id", fn.col("path").alias("log_dir"), "directory_id", "health", "reason", "ledger.*"
    )


def partitions(good: DataFrame) -> DataFrame:
    """Assignment rows for the store, one per partition: repeated ones are merged, replicas of both count.

    `assigned` and `assigned_xor` are the number of replicas and the XOR of their nodes' hashes: what the report
    compares.
    """
    fields = good.where(fn.col("row") == "partition")
    empty = fn.array().cast("array<int>")
    ids = [fn.coalesce(name, empty).alias(name) for name in ("adding", "removing", "isr")]
    rows = fields.select(
        "cluster_id",
        "topic",
        "topic_id",
        "partition",
        fn.array_distinct("replicas").alias("replicas"),
        *ids,
        "directories",
    )
    keyed = rows.withColumn("topic_id", real_id()).withColumn("topic_key", topic_key())
    return keyed.transform(_merged).transform(fingerprinted)


def _merged(rows: DataFrame) -> DataFrame:
    return rows.groupBy("cluster_id", "topic", "topic_id", "topic_key", "partition").agg(
        *(
            fn.sort_array(fn.array_distinct(fn.flatten(fn.collect_list(name)))).alias(name)
            for name in ("replicas", "adding", "removing", "isr")
        ),
        fn.max("directories").alias("directories"),
    )


def fingerprinted(rows: DataFrame) -> DataFrame:
    """Adds `assigned` and `assigned_xor` for `replicas`."""
    folded = fn.aggregate("replicas", fn.lit(0).cast("bigint"), lambda seen, node: seen.bitwiseXOR(fn.xxhash64(node)))
    return rows.withColumn("assigned", fn.size("replicas")).withColumn("assigned_xor", folded)


def brokers(good: DataFrame, partitions: DataFrame) -> DataFrame:
    """Nodes for the store, from registrations and from the replicas of `partitions` (the store's own table)."""
    registered = good.where(fn.col("row") == "broker").select("cluster_id", "node_id").distinct()
    holders = partitions.select("cluster_id", fn.explode("replicas").alias("node_id"))
    counted = holders.groupBy("cluster_id", "node_id").agg(fn.count("*").alias("replicas"))
    both = registered.withColumn("registered", fn.lit(True)).join(counted, ["cluster_id", "node_id"], how="full_outer")
    return both.fillna(False, ["registered"]).fillna(0, ["replicas"])
