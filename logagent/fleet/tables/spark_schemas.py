"""What Spark reads in `landing/` and keeps in the store: explicit schemas, never inferred ones.

The line schemas contain the fields of a directory and of an assigned partition that the fleet uses; the other kinds of
row are few, and the driver reads them (`ingest/unpack.py`). Fields of newer schema versions are ignored, a missing
required one makes the row a bad row. The store schemas are `select` lists with casts: every table leaves its module
through one.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.model.naming.topic_ids import ZERO_ID

CORRUPT = "_corrupt_record"
TIMES = ("newest_mtime", "marked_at", "first_seen", "due_at")

_DIR = """
    row string, log_dir string, name string, kind string, topic string, topic_truncated boolean, full_topic string,
    partition int, uuid string, topic_id string, bytes bigint, allocated bigint, files bigint, segments bigint,
    newest_mtime {time}, marked_at {time}, first_offset bigint, last_segment_offset bigint, sightings bigint,
    first_seen {time}, in_use boolean, verdict string, reason string, window string, due_at {time}, covered string,
    obstacle string, _corrupt_record string
"""
DIR_LINE = _DIR.format(time="bigint")
"""Lines of `logagent.snapshot/2`: times are milliseconds since 1970."""
DIR_LINE_1 = _DIR.format(time="string")
"""Lines of any version: times are as in the line, RFC 3339 or milliseconds."""

PARTITION_LINE = f"""
    row string, topic string, topic_id string, partition int, replicas array<int>, adding array<int>,
    removing array<int>, isr array<int>, directories array<string>, {CORRUPT} string
"""

DIRS = """
    cluster_id string, node_id int, log_dir string, name string, kind string, topic string, topic_truncated boolean,
    partition int, uuid string, topic_id string, bytes bigint, allocated bigint, files bigint, segments bigint,
    newest_mtime timestamp, marked_at timestamp, first_offset bigint, last_segment_offset bigint, sightings bigint,
    first_seen timestamp, in_use boolean, verdict string, reason string, window string, due_at timestamp,
    covered string, obstacle string
"""

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

TOPICS = """
    cluster_id string, topic string, topic_id string, assigned_partitions bigint, partitions bigint, copies bigint,
    bytes bigint, allocated bigint, current bigint, future bigint, stray bigint, delete bigint,
    largest_partition bigint, largest_sum bigint
"""
"""One row per topic that has a directory of any kind or an assignment."""

STORE: dict[str, str] = {"dirs": DIRS, "others": DIRS, "assignments": ASSIGNMENTS, "parts": PARTS, "topics": TOPICS}
"""The Parquet tables of a run. `others` repeats the directories that are not current, and those that their agent does
not call `assigned`: a small part, which most reports need without reading everything."""


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
