"""What can be reclaimed, and what prevents it: now, at the next restart, only with approval, not yet due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.report.output import Output
from logagent.fleet.tables.columns import at_most
from logagent.fleet.tables.frames import Scratch
from logagent.model.times import LAST_MS
from logagent.settings import CleanupSettings
from logagent.store.contract import WINDOWS

KEPT_SECONDS = CleanupSettings().stray_retention // 1000
"""How long a stray is kept where its agent does not say when it is due: the default of `cleanup.stray_retention`."""
TOPIC = ["cluster_id", "topic", "topic_id"]
PLACE = ["cluster_id", "node_id", "log_dir"]
SUMS = (
    *("orphans", "orphan_bytes", "overdue", "barred", "dirs_only", "bytes_only"),
    *(f"{kind}_{window}" for kind in ("dirs", "reclaim", "requestable") for window in WINDOWS),
)
MOST_TOPICS = 5
_SPELLED = r"\\udc[89a-f][0-9a-f]"


def windowed(rows: DataFrame) -> DataFrame:
    """`rows` with `window` and `due_at` filled in; they have `kind`, `age_seconds`, `marked_at`, `only_copy`.

    The agent's answer counts, because it knows the holder of the log dir and its own retention; the fleet knows one
    thing better: the only copy left needs approval. If the agent does not say, the broker is assumed to be running: at
    its next start it loads current dirs, moves future dirs and purges marked ones; strays are due after their
    retention. An obstacle without a window must be repaired first, and stays as it is.
    """
    kept = fn.coalesce(fn.col("age_seconds") >= KEPT_SECONDS, fn.lit(False))
    stray = fn.col("kind") == "stray"
    derived = (
        fn.when(fn.col("obstacle").isNotNull(), fn.lit(None))
        .when(stray & kept, "now")
        .when(stray, "later")
        .otherwise("restart")
    )
    said = fn.coalesce("window", derived)
    only = fn.coalesce("only_copy", fn.lit(False)) & said.isNotNull()
    window = fn.when(only, "approval").otherwise(said)
    kept_until = at_most(fn.unix_millis("marked_at") + KEPT_SECONDS * 1000, LAST_MS)
    due = fn.when(fn.col("window") == "later", fn.timestamp_millis(kept_until))
    return rows.withColumn("window", window).withColumn("due_at", fn.coalesce("due_at", due))


def row_id() -> Column:
    """The stable id of a directory: what `topics purge --id` takes; null for what cannot be requested. For a report
    without it that command computes the same (`cli/deletions/report.py`)."""
    parts = ("cluster_id", fn.col("node_id").cast("string"), "log_dir", "name", fn.coalesce("topic_id", fn.lit("")))
    return fn.when(_is_requestable(), fn.substring(fn.sha2(fn.concat_ws("\n", *parts), 256), 1, 16))


def _is_requestable() -> Column:
    """Whether a request can name the directory, which agents find by topic id, name and log dir (`RequestedDirectory`).
    A byte that is not UTF-8 is spelled out in the store: no such name is on the disk."""
    named = fn.col("topic").rlike("^[a-zA-Z0-9._-]{1,249}$") & fn.col("topic_id").rlike("^[A-Za-z0-9_-]{22}$")
    spelled = fn.col("name").rlike(_SPELLED) | fn.col("log_dir").rlike(_SPELLED)
    return named & (fn.col("partition") >= 0) & ~spelled & (fn.length("log_dir") <= 4096)


@dataclass
class Reclaim:
    """`places`: `SUMS` of every log dir that has any; `topics`: the same by topic, a frame; `largest`: the topics with
    the most to reclaim, with their `nodes`, rows of the driver; `next_due_ms`: when the next directory falls due."""

    places: dict[tuple[str, int, str], dict[str, int]]
    topics: DataFrame
    largest: list[dict[str, Any]]
    next_due_ms: int | None


def reclaim(output: Output, scratch: Scratch) -> Reclaim:
    """Sums of the tables `orphans` and `leftovers` as they were written. An abandoned move is in both, and counts
    once."""
    columns = [*PLACE, "topic", "topic_id", "kind", "bytes", "window", "due_at", "id"]
    orphans = output.written("orphans").select(*columns, fn.lit(True).alias("is_orphan"), "only_copy")
    others = output.written("leftovers").where(fn.col("why") != "abandoned")
    none = [fn.lit(False).alias("is_orphan"), fn.lit(False).alias("only_copy")]
    whole = orphans.unionByName(others.select(*columns, *none))
    sums = [_sum(name) for name in SUMS]
    # Not as a timestamp: a store that an older version wrote may have years that Python does not know.
    due = fn.min(fn.when(fn.col("window") == "later", fn.unix_millis("due_at"))).alias("due")
    rows = whole.groupBy(*PLACE).agg(*sums, due).collect()
    places = {(r["cluster_id"], r["node_id"], r["log_dir"]): {name: r[name] for name in SUMS} for r in rows}
    dues = [r["due"] for r in rows if r["due"] is not None]
    nodes = fn.size(fn.collect_set("node_id")).alias("nodes")
    topics = scratch.keep("reclaim_topics", whole.groupBy(*TOPIC).agg(*sums, nodes))
    most = fn.col("reclaim_now") + fn.col("reclaim_restart")
    largest = topics.where((most > 0) & fn.col("topic").isNotNull()).orderBy(most.desc(), *TOPIC).limit(MOST_TOPICS)
    return Reclaim(places, topics, [row.asDict() for row in largest.collect()], min(dues, default=None))


def _sum(name: str) -> Column:
    kind, _, window = name.partition("_")
    if name in ("orphans", "orphan_bytes"):
        rows: Column = fn.col("is_orphan")
    elif window == "only":
        rows = fn.col("only_copy")
    elif name == "barred":
        rows = fn.col("window").isNull()
    elif name == "overdue":
        rows = fn.col("kind") == "delete"
    else:
        rows = fn.col("window") == window
    if kind == "requestable":
        rows = rows & fn.col("id").isNotNull()
    counts = name == "orphans" or kind in ("dirs", "requestable")
    value = fn.try_sum(fn.when(rows, fn.lit(1) if counts else fn.col("bytes")).otherwise(0))
    return fn.coalesce(value, fn.lit(0)).cast("bigint").alias(name)
