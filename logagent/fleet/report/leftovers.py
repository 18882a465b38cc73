"""What is left over, and what could not be decided."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.report.scope import Scope
from logagent.fleet.report.verdicts import HOST, host_frame

OVERDUE_SECONDS = 3660
"""`-delete` dirs older than Kafka's default delay (60 s) plus `cleanup.leftover_grace` (1 h) are overdue."""
_COLUMNS = [*HOST, "host", "log_dir", "name", "kind", "topic", "topic_id", "partition", "bytes", "allocated"]


def leftovers(scope: Scope, judged: DataFrame) -> DataFrame:
    """`leftovers`: strays, `-delete` dirs that are overdue, and `-future` dirs that are orphans.

    Ages are on the host's own clock; a `-delete` dir without a known moment of marking is listed, its age being
    unknown.
    """
    rows = scope.others.where(fn.col("kind").isin("stray", "delete")).join(host_frame(scope), HOST, how="inner")
    age = (fn.col("at_ms") - fn.unix_millis("marked_at")) / 1000
    aged = rows.withColumn("age_seconds", fn.greatest(fn.round(age, 3), fn.lit(0.0)))
    due = (fn.col("kind") == "stray") | fn.coalesce(fn.col("age_seconds") > OVERDUE_SECONDS, fn.lit(True))
    why = fn.when(fn.col("kind") == "stray", "stray").otherwise("overdue")
    abandoned = judged.where((fn.col("kind") == "future") & (fn.col("fleet_verdict") == "orphan"))
    since = (fn.col("at_ms") - fn.unix_millis(fn.coalesce("first_seen", "newest_mtime"))) / 1000
    abandoned = abandoned.withColumn("age_seconds", fn.greatest(fn.round(since, 3), fn.lit(0.0)))
    said = ["age_seconds", "marked_at", "why", "window", "due_at", "covered", "snapshot_at"]
    moment = {"snapshot_at": fn.timestamp_millis("at_ms")}
    both = aged.where(due).withColumns(moment | {"why": why}).select(*_COLUMNS, *said)
    return both.unionByName(abandoned.withColumns(moment | {"why": fn.lit("abandoned")}).select(*_COLUMNS, *said))


def undecided(judged: DataFrame) -> DataFrame:
    """`undecided`: what is not where the assignments have it and is no orphan, with the reason."""
    return judged.where(fn.col("fleet_verdict") == "unknown").withColumns(
        {
            "agent_verdict": fn.col("verdict"),
            "agent_reason": fn.col("reason"),
            "reason": fn.col("why"),
            "snapshot_at": fn.timestamp_millis("at_ms"),
        }
    )
