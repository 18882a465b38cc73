"""What is left over, and what could not be decided."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.report.reclaim import row_id, windowed
from logagent.fleet.report.scope import Scope
from logagent.fleet.report.verdicts import HOST
from logagent.fleet.tables.columns import at_least
from logagent.settings import CleanupSettings

OVERDUE_SECONDS = 60 + CleanupSettings().leftover_grace // 1000
"""`-delete` dirs older than Kafka's default delay (60 s) plus that of `cleanup.leftover_grace` are overdue."""
_COLUMNS = [*HOST, "host", "log_dir", "name", "kind", "topic", "topic_id", "partition", "bytes", "allocated"]


def leftovers(scope: Scope, judged: DataFrame) -> DataFrame:
    """`leftovers`: strays, `-delete` dirs that are overdue, and `-future` dirs that are orphans.

    Ages are on the host's own clock; a `-delete` dir without a known time of marking is listed with unknown age.
    """
    rows = scope.others.where(fn.col("kind").isin("stray", "delete")).join(scope.host_frame, HOST, how="inner")
    age = (fn.col("at_ms") - fn.unix_millis("marked_at")) / 1000
    aged = rows.withColumn("age_seconds", at_least(fn.round(age, 3), 0.0))
    due = (fn.col("kind") == "stray") | fn.coalesce(fn.col("age_seconds") > OVERDUE_SECONDS, fn.lit(True))
    why = fn.when(fn.col("kind") == "stray", "stray").otherwise("overdue")
    abandoned = judged.where((fn.col("kind") == "future") & (fn.col("fleet_verdict") == "orphan"))
    since = (fn.col("at_ms") - fn.unix_millis(fn.coalesce("first_seen", "newest_mtime"))) / 1000
    abandoned = abandoned.withColumn("age_seconds", at_least(fn.round(since, 3), 0.0))
    said = ["age_seconds", "marked_at", "why", "window", "due_at", "covered", "obstacle", "snapshot_at", "only_copy"]
    none = {"only_copy": fn.lit(None).cast("boolean")}
    moment = {"snapshot_at": fn.timestamp_millis("at_ms")}
    both = aged.where(due).withColumns(moment | none | {"why": why}).select(*_COLUMNS, *said)
    gone = abandoned.withColumns(moment | none | {"why": fn.lit("abandoned")}).select(*_COLUMNS, *said)
    # Only strays: no other leftovers can be requested across the fleet.
    return windowed(both.unionByName(gone)).withColumn("id", fn.when(fn.col("kind") == "stray", row_id()))


def undecided(judged: DataFrame) -> DataFrame:
    """`undecided`: directories that are not where the assignments place them but are not orphans, with the reason."""
    return judged.where(fn.col("fleet_verdict") == "unknown").withColumns(
        {
            "agent_verdict": fn.col("verdict"),
            "agent_reason": fn.col("reason"),
            "reason": fn.col("why"),
            "snapshot_at": fn.timestamp_millis("at_ms"),
        }
    )
