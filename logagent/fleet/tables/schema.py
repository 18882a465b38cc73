"""What Spark reads in `landing/` and keeps in the store: explicit schemas, never inferred ones.

The JSON schemas hold every field of `logagent.scan/1` that the fleet uses plus `_corrupt_record`; fields of newer
schema
versions are ignored, a missing required one makes the row a bad row (`rows.py`). The store schemas are `select`
lists with casts: every table leaves its module through one of them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.model.naming.topic_ids import ZERO_ID

CORRUPT = "_corrupt_record"

MANIFEST_LINE = f"""
    schema string, snapshot_id string, kind string, cluster_id string, node_id int, host string, at string,
    rows bigint, bytes bigint, sha256 string, {CORRUPT} string
"""

SNAPSHOT_LINE = f"""
    row string,
    schema string, snapshot_id string, at string, host string, cluster_id string, node_id int,
    agent_version string, kafka_version string,
    path string, directory_id string, health string,
    ledger struct<size bigint, used bigint, free bigint, current bigint, future bigint, stray bigint,
                  delete bigint, other bigint, open_removed bigint, unexplained bigint>,
    log_dir string, name string, kind string, topic string, topic_truncated boolean, full_topic string,
    partition int, uuid string, topic_id string, bytes bigint, allocated bigint, files bigint, segments bigint,
    newest_mtime string, marked_at string, first_offset bigint, last_segment_offset bigint, sightings bigint,
    first_seen string, in_use boolean, verdict string, reason string,
    {CORRUPT} string
"""

ASSIGNMENTS_LINE = f"""
    row string,
    schema string, cluster_id string, at string, source string, `offset` bigint, metadata_version string,
    node_id int, directory_ids array<string>,
    topic string, topic_id string, partition int, replicas array<int>, adding array<int>, removing array<int>,
    isr array<int>, directories array<string>,
    {CORRUPT} string
"""

FILES = """
    kind string, cluster_id string, node_id int, host string, snapshot_id string, file string, at timestamp,
    received_at timestamp, bytes bigint, rows bigint, sha256 string, status string, reason string, detail string,
    agent_version string, kafka_version string, source string, offset bigint, dirs bigint, log_dirs bigint,
    partitions bigint, topics bigint
"""
"""One row per file of landing. `status` is taken, superseded, waiting (no manifest yet) or rejected."""

DIRS = """
    cluster_id string, node_id int, topic_key bigint, log_dir string, name string, kind string, topic string,
    topic_truncated boolean, partition int, uuid string, topic_id string, bytes bigint, allocated bigint,
    files bigint, segments bigint, newest_mtime timestamp, marked_at timestamp, first_offset bigint,
    last_segment_offset bigint, sightings bigint, first_seen timestamp, in_use boolean, verdict string,
    reason string
"""

LOG_DIRS = """
    cluster_id string, node_id int, log_dir string, directory_id string, health string, reason string,
    size bigint, used bigint, free bigint, current bigint, future bigint, stray bigint, delete bigint,
    other bigint, open_removed bigint, unexplained bigint
"""

ASSIGNMENTS = """
    cluster_id string, topic_key bigint, topic string, topic_id string, partition int, replicas array<int>,
    adding array<int>, removing array<int>, isr array<int>, directories array<string>, assigned int,
    assigned_xor bigint
"""

BROKERS = "cluster_id string, node_id int, registered boolean, replicas bigint"
"""Every node that the assignments name: as a registered broker, as a replica, or both."""

AGG_TOPIC = """
    cluster_id string, topic string, topic_id string, topic_key bigint, assigned_partitions bigint, partitions bigint,
    dirs bigint, bytes bigint, allocated bigint
"""
"""One row per topic that has a directory or an assignment, or both."""

AGG_LOG_DIR = """
    cluster_id string, node_id int, log_dir string, dirs bigint, bytes bigint, allocated bigint, size bigint,
    used bigint, free bigint
"""

QUARANTINE = """
    cluster_id string, node_id int, kind string, file string, reason string, detail string, record string
"""

STORE: dict[str, str] = {
    "files": FILES,
    "dirs": DIRS,
    "others": DIRS,
    "logdirs": LOG_DIRS,
    "assignments": ASSIGNMENTS,
    "brokers": BROKERS,
    "agg_topic": AGG_TOPIC,
    "agg_logdir": AGG_LOG_DIR,
    "quarantine": QUARANTINE,
}
"""The tables of the store, each partitioned by `dt`. `others` repeats the directories that are not current: a few of
many, which most reports want without reading all. `files` is written last: a date without it is not ingested."""


def fields(ddl: str) -> list[tuple[str, str]]:
    """(name, type) of each field of one of the store schemas above (flat types only)."""
    return [(name, kind) for name, kind in (part.split() for part in " ".join(ddl.split()).split(", "))]


def shaped(frame: DataFrame, ddl: str) -> DataFrame:
    """`frame` with exactly the columns of `ddl`, cast, in that order; raises `AnalysisException` if one is absent."""
    return frame.select(*(fn.col(name).cast(kind).alias(name) for name, kind in fields(ddl)))


def instant(column: Column | str) -> Column:
    """Timestamp of RFC 3339 text, null where it is none."""
    return fn.try_to_timestamp(fn.col(column) if isinstance(column, str) else column)


def rfc3339(column: Column | str) -> Column:
    """RFC 3339 text in UTC with milliseconds (the session's time zone is UTC)."""
    return fn.date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def real_id(name: str = "topic_id") -> Column:
    """A topic id, null for Kafka's zero id (clusters before 2.8 have none)."""
    return fn.nullif(fn.col(name), fn.lit(ZERO_ID))


def topic_key() -> Column:
    """64-bit hash of (cluster id, topic id, topic), null without a topic.

    Grouping by it keeps names out of the shuffles. Two of n topics collide with a chance of n² / 2^65 (a million
    topics:
    3·10^-8), not two of n directories, and `hosts.topics` checks that none did.
    """
    return fn.when(fn.col("topic").isNotNull(), fn.xxhash64("cluster_id", fn.coalesce("topic_id", fn.lit("")), "topic"))
