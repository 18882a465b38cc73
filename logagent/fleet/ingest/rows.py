"""Lines of intact files → typed rows of the store, the good ones only. `unpack` has counted how many there must be."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from logagent.fleet.ingest.headers import LARGEST_SIZE
from logagent.fleet.ingest.unpack import LONGEST_LINE
from logagent.fleet.tables.columns import at_most
from logagent.fleet.tables.files import literal
from logagent.fleet.tables.spark_schemas import CORRUPT, DIR_LINE, DIR_LINE_1, PARTITION_LINE, TIMES, real_id
from logagent.model.times import FIRST_MS, LAST_MS

_PATH, _NAME, _WORD, _NODES = 6 * 4096, 6 * 255, 1000, 1000
_LONGEST = {
    "log_dir": _PATH,
    **dict.fromkeys(("name", "topic", "full_topic"), _NAME),
    **dict.fromkeys(("kind", "uuid", "topic_id", "verdict", "reason", "window", "covered", "obstacle"), _WORD),
}
"""The longest texts, in bytes: Spark keeps thousands of rows in memory, and a line may have a megabyte. A path has
at most 4,096 bytes, a name 255, and one that is not UTF-8 is six here."""
RECORD_SHOWN = 200
"""Characters of a bad row that are kept with the reason."""
_LINES = {
    "lineSep": "\n",
    # Longer lines were rejected before; a file that has changed since must not crash the executor.
    "mapreduce.input.linerecordreader.line.maxlength": str(4 * LONGEST_LINE),
}
# Keep the escape of a lone low surrogate as text: Java would replace each with "?", so that two names become one. A
# pair (an emoji) is left alone.
_LONE_SURROGATE = r"(?<!\\u[dD][89abAB][0-9a-fA-F]{2})(?<!\\)((?:\\\\)*)\\u([dD][cC-fF][89a-fA-F0-9][0-9a-fA-F])"


def fast(spark: SparkSession, paths: list[str], ddl: str) -> DataFrame:
    """Lines of files through Spark's JSON source: `file_path` and the fields of `ddl`."""
    reader = spark.read.schema(ddl).options(**_LINES, mode="PERMISSIVE", columnNameOfCorruptRecord=CORRUPT)
    return reader.json([literal(path) for path in paths]).select("*", fn.col("_metadata.file_path").alias("file_path"))


def slow(spark: SparkSession, paths: list[str], ddl: str) -> DataFrame:
    """The same for files with escapes that Java cannot represent, line by line."""
    lines = spark.read.options(**_LINES).text([literal(path) for path in paths])
    escaped = fn.when(
        fn.lower("value").contains("\\ud"), fn.regexp_replace("value", _LONE_SURROGATE, r"$1\\\\u$2")
    ).otherwise(fn.col("value"))
    fields = fn.from_json(escaped, ddl, {"columnNameOfCorruptRecord": CORRUPT})
    # A generator: a filter on a field of a plain struct would be pushed below, and every line parsed twice.
    return lines.select(fn.inline(fn.array(fields)), fn.col("_metadata.file_path").alias("file_path"))


def placed(frame: DataFrame) -> DataFrame:
    """Adds `cluster_id, node_id` from a file's path: names there are plain, so nothing has to be decoded."""
    part = fn.split(fn.substring_index("file_path", "/", -4), "/")
    return frame.withColumns({"cluster_id": part[0], "node_id": part[2].try_cast("int")}).drop("file_path")


def is_good_dir() -> Column:
    """Whether a `dir` row is valid in every field that decides something.

    Times must be in the years that an agent can print (1 to 9999): a file may have a time before 1970. Only `due_at`
    may be later (any delay can be configured) and is stored as the last of these times.
    """
    in_use = fn.col("kind").isin("current", "future")
    size = fn.col("bytes").between(0, LARGEST_SIZE) & fn.coalesce("allocated", fn.lit(0)).between(0, LARGEST_SIZE)
    named = fn.col("log_dir").isNotNull() & fn.col("name").isNotNull() & fn.col("kind").isNotNull()
    partition = fn.col("partition").isNull() | (fn.col("partition") >= 0)
    whole = ~in_use | (fn.col("topic").isNotNull() & fn.col("partition").isNotNull())
    good = fn.col(CORRUPT).isNull() & named & size & partition & whole
    for name in TIMES:
        # In lines of any version a time may be text that is no number.
        number = fn.col(name).try_cast("bigint")
        known = number >= FIRST_MS if name == "due_at" else number.between(FIRST_MS, LAST_MS)
        good = good & fn.coalesce(known, fn.lit(True))
    for name, longest in _LONGEST.items():
        good = good & _is_short(name, longest)
    return (fn.col("row") == "dir") & fn.coalesce(good, fn.lit(False))


def _is_short(name: str, longest: int) -> Column:
    return fn.coalesce(fn.octet_length(name) <= longest, fn.lit(True))


def dirs(frame: DataFrame) -> DataFrame:
    """Directory rows for the store. `topic` is the full name if the directory's own name is truncated."""
    return placed(frame.where(is_good_dir())).withColumns(
        {
            "topic_truncated": fn.coalesce("topic_truncated", fn.lit(False)) & fn.col("full_topic").isNull(),
            "topic": fn.coalesce("full_topic", "topic"),
            "topic_id": real_id(),
            "allocated": fn.coalesce("allocated", fn.lit(0)),
            **{name: _instant(frame, name) for name in TIMES},
        }
    )


def _instant(frame: DataFrame, name: str) -> Column:
    if frame.schema[name].dataType.typeName() == "long":
        return fn.timestamp_millis(at_most(fn.col(name), LAST_MS))
    number = at_most(fn.col(name).try_cast("bigint"), LAST_MS)
    found = fn.coalesce(fn.timestamp_millis(number), fn.try_to_timestamp(fn.col(name)))
    return fn.when(fn.unix_millis(found).between(FIRST_MS, LAST_MS), found)


def is_good_partition() -> Column:
    """Whether a `partition` row is valid in every field that decides something. Lists have a node, or its directory,
    each."""
    replicas = (fn.size("replicas") > 0) & ~fn.exists("replicas", lambda node: node.isNull())
    good = fn.col(CORRUPT).isNull() & fn.col("topic").isNotNull() & (fn.col("partition") >= 0) & replicas
    good = good & _is_short("topic", _NAME) & _is_short("topic_id", _WORD)
    for name in ("replicas", "adding", "removing", "isr", "directories"):
        good = good & fn.coalesce(fn.size(name) <= _NODES, fn.lit(True))
    long = fn.exists("directories", lambda one: fn.octet_length(one) > _WORD)
    good = good & ~fn.coalesce(long, fn.lit(False))
    return (fn.col("row") == "partition") & fn.coalesce(good, fn.lit(False))


def partitions(frame: DataFrame) -> DataFrame:
    """Assigned partitions as the lines have them; `merged` makes one row of repeated ones."""
    good = placed(frame.where(is_good_partition())).drop("node_id")
    empty = fn.array().cast("array<int>")
    ids = {name: fn.coalesce(name, empty) for name in ("adding", "removing", "isr")}
    return good.withColumns(
        ids | {"topic_id": real_id(), "replicas": fn.array_distinct("replicas"), "said": fn.lit(1).cast("bigint")}
    )


def merged(frame: DataFrame) -> DataFrame:
    """One row per partition: if it is repeated, the replicas of all count, and the directory ids are unknown."""
    lists = ("replicas", "adding", "removing", "isr")
    rows = frame.groupBy("cluster_id", "topic", "topic_id", "partition").agg(
        fn.collect_list(fn.struct(*lists, "directories")).alias("each"), fn.sum("said").alias("said")
    )
    several = fn.size("each") > 1

    def one(name: str) -> Column:
        all_of = fn.array_distinct(fn.flatten(fn.col(f"each.{name}")))
        return fn.when(several, all_of).otherwise(fn.col("each")[0][name])

    directories = fn.when(~several, fn.col("each")[0]["directories"])
    return rows.withColumns({name: one(name) for name in lists} | {"directories": directories}).drop("each")


def rejected_rows(frame: DataFrame, good: Column, kind: str) -> DataFrame:
    """`cluster_id, node_id, detail, record` of bad rows, for files that have any."""
    readable = fn.col(CORRUPT).isNull()
    detail = fn.when(readable, f"{kind}: a required field is missing or bad").otherwise(
        "not JSON, or a field of the wrong type"
    )
    record = fn.coalesce(CORRUPT, fn.to_json(fn.struct(*(c for c in frame.columns if c not in (CORRUPT, "file_path")))))
    wrong = frame.where(~good & ((fn.col("row") == kind) | ~readable))
    return placed(wrong.withColumns({"detail": detail, "record": fn.substring(record, 1, RECORD_SHOWN)})).select(
        "cluster_id", "node_id", "detail", "record"
    )


def of_files(spark: SparkSession, clean: list[str], odd: list[str], kind: str) -> list[DataFrame]:
    """Frames of all lines: of `clean` files the fast way, of `odd` ones (and of old versions) the slow one."""
    ddl, any_ddl = (DIR_LINE, DIR_LINE_1) if kind == "dir" else (PARTITION_LINE, PARTITION_LINE)
    frames = [fast(spark, clean, ddl)] if clean else []
    return frames + ([slow(spark, odd, any_ddl)] if odd else [])
