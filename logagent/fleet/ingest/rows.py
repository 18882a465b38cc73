"""Lines of intact files → typed rows of the store, the good ones only. `unpack` has counted how many there must be.

The rows of a file that the driver reads: header, log dirs, brokers. Pure.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from logagent.fleet.ingest.landing import LONGEST_LINE, Landed, Manifest, Problem, Unpacked, millis
from logagent.fleet.tables.files import literal
from logagent.fleet.tables.frames import (
    CORRUPT,
    DIR_LINE,
    DIR_LINE_1,
    PARTITION_LINE,
    TIMES,
    at_most,
    is_removal,
    real_id,
)
from logagent.model.times import FIRST_MS, LAST_MS
from logagent.store.contract import LEDGER, OF_FILE_SYSTEM
from logagent.store.snapshots import base_named

LARGEST_SIZE = 1 << 53
"""The most bytes that a directory, a file system or all of a host can have; more is false, and sums would overflow."""
TOO_MANY_BYTES = "too-many-bytes"
MOST_NODES = 20_000
TOO_MANY_NODES = "too-many-nodes"
"""No cluster has more: each is a host that the report would list as missing."""
MOST_LOG_DIRS = 1_000
"""No host has more; each is a row that the driver and every report keep."""
TOO_MANY_LOG_DIRS = "too-many-log-dirs"
Row = dict[str, Any]


def inside(landed: Landed, manifest: Manifest, seen: Unpacked) -> Problem | None:
    """The first contradiction between a file and its manifest or its place."""
    if seen.sha256 and seen.sha256 != manifest.sha256:
        return "sha256-differs", f"SHA-256 is {seen.sha256}, its manifest says {manifest.sha256}"
    if seen.problem is not None:
        return seen.problem
    if seen.rows != manifest.rows:
        return "rows-differ", f"{seen.rows} rows, its manifest says {manifest.rows}"
    kind = "snapshot" if landed.node_id is not None else "assignments"
    heads = [row for row in seen.others if row["row"] == kind]
    bad = len(seen.bad) + sum(not _is_good(row) for row in seen.others)
    if bad:
        return "bad-rows", f"{bad} of {seen.rows} rows"
    brokers = sum(row["row"] == "broker" for row in seen.others)
    if brokers > MOST_NODES:
        return TOO_MANY_NODES, f"{brokers} brokers"
    if len(heads) != 1:
        return "header-differs", f"{len(heads)} header rows"
    head = heads[0]
    if head["cluster_id"] != landed.cluster_id:
        return "wrong-cluster", f"its header says {head['cluster_id']}"
    if kind == "snapshot":
        if head["node_id"] != landed.node_id:
            return "wrong-host", f"its header says node {head['node_id']}"
        if head["snapshot_id"] != manifest.snapshot_id:
            return "wrong-snapshot", f"its header says {head['snapshot_id']}"
        # Read as a whole one, a delta would be a host that has lost most of its directories.
        has_changes = any(row["row"] == "changes" for row in seen.others)
        if base_named(head) != manifest.base or (has_changes and manifest.base is None):
            return "wrong-base", f"its header names another base than its manifest: {head.get('base')}"
        paths = [row["path"] for row in seen.others if row["row"] == "log_dir"]
        if len(paths) > MOST_LOG_DIRS:
            return TOO_MANY_LOG_DIRS, f"it lists {len(paths)} log dirs, more than {MOST_LOG_DIRS}"
        for name in [name for name in LEDGER if name not in OF_FILE_SYSTEM]:
            if sum(abs((row.get("ledger") or {}).get(name) or 0) for row in seen.others) > LARGEST_SIZE:
                return TOO_MANY_BYTES, f"`{name}` of its log dirs adds up to more than {LARGEST_SIZE} bytes"
        if len(set(paths)) != len(paths):
            return "log-dir-twice", "it lists a log dir twice"
    return None


def bad_rows(seen: Unpacked) -> list[tuple[str, str]]:
    """(what is wrong, the row) for the bad rows that the driver found."""
    found = [("not JSON, or not a row", text) for text in seen.bad]
    wrong = [row for row in seen.others if not _is_good(row)]
    return found + [(f"{row['row']}: a required field is missing or bad", str(row)[:200]) for row in wrong]


def _is_good(row: Row) -> bool:
    try:
        if row["row"] == "snapshot":
            return (
                str(row["schema"]).startswith("logagent.snapshot/")
                and _is_int(row["node_id"])
                and isinstance(row["snapshot_id"], str)
                and isinstance(row["cluster_id"], str)
                and millis(row["at"]) is not None
                and (base_named(row) is not None or row.get("base") is None)
            )
        if row["row"] == "assignments":
            known = str(row["schema"]).startswith("logagent.assignments/") and isinstance(row["cluster_id"], str)
            return known and millis(row["at"]) is not None
        if row["row"] == "broker":
            return _is_int(row["node_id"])
        if row["row"] == "uncommitted":
            return is_removal(row["topic_id"], row.get("partition"))
        if row["row"] == "log_dir":
            return isinstance(row["path"], str) and isinstance(row["health"], str) and _is_ledger(row.get("ledger"))
    except (KeyError, TypeError, ValueError):
        return False
    return True  # a kind of a newer schema


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _is_ledger(ledger: object) -> bool:
    if ledger is None:
        return True
    if not isinstance(ledger, dict):
        return False
    for name in LEDGER:
        value = ledger.get(name)
        least = -LARGEST_SIZE if name == "unexplained" else 0
        if value is not None and not (isinstance(value, int) and least <= value <= LARGEST_SIZE):
            return False
    return True


def header(seen: Unpacked) -> Row:
    """The fields of the header that the store keeps. `image_at`: how recent the agent's own assignments were; of
    assignments, until when their source is known to be complete, which may be before they were read."""
    head = next(row for row in seen.others if row["row"] in ("snapshot", "assignments"))
    image = head.get("assignments")
    image = image if isinstance(image, dict) else {}
    texts = {name: _text(head.get(name)) for name in ("agent_version", "kafka_version", "source", "boot_id", "schema")}
    numbers = {name: head.get(name) for name in ("offset", "metadata_version")}
    return {
        **texts,
        "host": _text(head.get("host")),
        **{name: n if isinstance(n, int) and abs(n) < 1 << 62 else None for name, n in numbers.items()},
        "image_at": millis(head.get("known_until") if head["row"] == "assignments" else image.get("at")),
    }


def uncommitted(seen: Unpacked) -> list[list[Any]]:
    """Removals in the metadata log that were not committed: `[topic id, partition or null]` each."""
    rows = [row for row in seen.others if row["row"] == "uncommitted"]
    return [[row["topic_id"], row.get("partition")] for row in rows]


def log_dirs(landed: Landed, seen: Unpacked) -> list[Row]:
    """Log dir rows for the store; a ledger that the agent could not compute is null throughout."""
    rows = []
    for row in seen.others:
        if row["row"] == "log_dir":
            ledger = row.get("ledger") or {}
            rows.append(
                {
                    "cluster_id": landed.cluster_id,
                    "node_id": landed.node_id,
                    "log_dir": row["path"],
                    "directory_id": _text(row.get("directory_id")),
                    "health": row["health"],
                    "reason": _text(row.get("reason")),
                    "device": _device(row.get("device")),
                    **{name: ledger.get(name) for name in LEDGER},
                }
            )
    return rows


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _device(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 63 else None


_PATH, _NAME, _WORD, _NODES = 6 * 4096, 6 * 255, 1000, 1000
_LONGEST = {
    "log_dir": _PATH,
    **dict.fromkeys(("name", "topic", "full_topic"), _NAME),
    **dict.fromkeys(("kind", "uuid", "topic_id", "verdict", "reason", "window", "covered", "obstacle"), _WORD),
    **dict.fromkeys(("claim", "witness"), _WORD),
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
