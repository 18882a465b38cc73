"""Replicas that are nowhere, and partitions that are twice on one host.

What is left over, and what could not be decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.report.answers import row_id, windowed
from logagent.fleet.report.scope import Scope
from logagent.fleet.report.verdicts import (
    HOST,
    LIVE,
    WHOSE,
    SuspectPartitions,
    directory_ids,
    images,
    is_longest,
    known_until,
    living_topics,
)
from logagent.fleet.tables.frames import at_least, local_frame, whose
from logagent.settings import CleanupSettings

REPLICA = [*HOST, "topic", "topic_id", "partition"]
UNREADABLE = ("offline", "unformatted")
FILE_DELETE_DELAY_MS = 60_000
"""Kafka's default of file.delete.delay.ms."""


def missing(scope: Scope, suspects: SuspectPartitions, copies: DataFrame) -> DataFrame:
    """The `missing_replicas` table: assigned to a host that counts, and in none of its readable log dirs.

    Left out, because they may exist after all, or may not have to: replicas whose log dir may be an offline one;
    replicas for whose topic and partition there is a directory without topic id on that host; and what may have been
    deleted between the assignments and the snapshot (`_not_deleted_since`).
    """
    at = fn.transform(
        "replicas", lambda node, n: fn.struct(node.alias("node_id"), fn.get("directories", n).alias("id"))
    )
    replicas = suspects.expected.withColumn("replica", fn.explode(at)).select("*", "replica.node_id", "replica.id")
    here = replicas.join(scope.host_frame, HOST, how="inner").join(images(scope), "cluster_id", how="inner")
    live = suspects.found.where(fn.col("kind").isin(*LIVE))
    size = fn.broadcast if not suspects.large else (lambda frame: frame)
    by_id = live.select(*HOST, "topic_id", "partition").distinct()
    lost = _not_deleted_since(scope, here.join(size(by_id), [*HOST, "topic_id", "partition"], how="left_anti"), size)
    lost = lost.join(size(_nameless(scope, live)), [*HOST, "topic", "partition"], how="left_anti")
    elsewhere = copies.select(*WHOSE, fn.col("copies").alias("copies_elsewhere"))
    counted = _provable(scope, lost).join(size(elsewhere), WHOSE, how="left")
    return counted.withColumns(
        {
            "in_isr": fn.when(fn.size("isr") > 0, fn.array_contains("isr", fn.col("node_id"))),
            "adding": fn.array_contains("adding", fn.col("node_id")),
            "copies_elsewhere": fn.coalesce("copies_elsewhere", fn.lit(0)),
        }
    )


def _not_deleted_since(scope: Scope, lost: DataFrame, size: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Only replicas that still were assigned when the snapshot was taken. An agent reads the assignments right before
    its inventory, so the newest ones are always a little older than the snapshot that came with them: what was deleted
    in between is there for `FILE_DELETE_DELAY_MS` under its `-delete` name."""
    until = known_until(scope.asked.as_of_ms)
    marked = scope.others.where((fn.col("kind") == "delete") & fn.col("topic").isNotNull())
    marked = marked.select(*HOST, whose().alias("whose"), "partition", fn.lit(True).alias("marked")).distinct()
    young = lost.where(fn.col("at_ms") <= until + FILE_DELETE_DELAY_MS)
    named = young.join(size(marked), [*HOST, "whose", "partition"], how="left")
    return named.where((fn.col("at_ms") <= until) | fn.col("marked").isNull()).drop("marked")


def _nameless(scope: Scope, live: DataFrame) -> DataFrame:
    """Replicas that a directory without topic id may be: `HOST, topic, partition`.

    A truncated name may belong to any topic that begins with it.
    """
    without = live.where(fn.col("topic_id").isNull()).select(*HOST, "topic", "partition", "topic_truncated")
    exact = without.where(~fn.col("topic_truncated")).drop("topic_truncated")
    cut = without.where("topic_truncated").withColumnRenamed("topic", "begins").drop("topic_truncated")
    topics = scope.topics.where(fn.col("assigned_partitions") > 0).select("cluster_id", "topic")
    longer = topics.join(fn.broadcast(cut), "cluster_id", how="inner").where(fn.startswith("topic", "begins"))
    return exact.union(longer.select(*HOST, "topic", "partition")).distinct()


def _provable(scope: Scope, lost: DataFrame) -> DataFrame:
    """Only replicas that cannot be in a log dir that the host could not read."""
    doubtful = {(r["cluster_id"], r["node_id"]) for r in scope.log_dirs if r.get("health") in UNREADABLE}
    if not doubtful:
        return lost
    rows = [{"cluster_id": c, "node_id": n, "doubtful": True} for c, n in sorted(doubtful)]
    readable = [
        {"cluster_id": r["cluster_id"], "node_id": r["node_id"], "id": r["directory_id"], "readable": True}
        for r in scope.log_dirs
        if (r["cluster_id"], r["node_id"]) in doubtful
        and r.get("health") not in UNREADABLE
        and r.get("directory_id") is not None
    ]
    spark = scope.store.spark
    hosts = local_frame(spark, rows, "cluster_id string, node_id int, doubtful boolean")
    places = local_frame(spark, readable, "cluster_id string, node_id int, id string, readable boolean").distinct()
    placed = lost.join(fn.broadcast(hosts), HOST, how="left").join(fn.broadcast(places), [*HOST, "id"], how="left")
    return placed.where(fn.col("doubtful").isNull() | fn.col("readable")).drop("doubtful", "readable")


def duplicates(scope: Scope, suspects: SuspectPartitions) -> DataFrame:
    """The `duplicates` table: one topic id and partition current in more than one log dir of a host."""
    rows = suspects.found.where(fn.col("kind") == "current")
    grouped = rows.groupBy(*REPLICA).agg(
        fn.sort_array(fn.collect_set("log_dir")).alias("places"),
        fn.try_sum("bytes").alias("bytes"),
        fn.try_sum("allocated").alias("allocated"),
    )
    named = grouped.where(fn.size("places") > 1).join(scope.host_frame, HOST, how="inner")
    return named.withColumns({"copies": fn.size("places"), "log_dirs": fn.array_join("places", ", ")})


OVERDUE_SECONDS = 60 + CleanupSettings().leftover_grace // 1000
"""`-delete` dirs older than Kafka's default delay (60 s) plus that of `cleanup.leftover_grace` are overdue."""
_COLUMNS = [*HOST, "host", "log_dir", "name", "kind", "topic", "topic_id", "partition", "bytes", "allocated"]
_COLUMNS += ["directory_id", "inode", "end_offset"]


def leftovers(
    scope: Scope, suspects: SuspectPartitions, judged: DataFrame, copies: DataFrame, doubted: Collection[str] = ()
) -> DataFrame:
    """`leftovers`: strays, `-delete` dirs that are overdue, and `-future` dirs that are orphans.

    Ages are on the host's own clock; a `-delete` dir without a known time of marking is listed with unknown age. How
    many other copies there are is told of strays and of `-future` dirs. `doubted`: clusters whose assignments are.
    """
    rows = scope.others.where(fn.col("kind").isin("stray", "delete")).join(scope.host_frame, HOST, how="inner")
    rows = rows.join(directory_ids(scope), [*HOST, "log_dir"], how="left")
    age = (fn.col("at_ms") - fn.unix_millis("marked_at")) / 1000
    aged = rows.withColumn("age_seconds", at_least(fn.round(age, 3), 0.0))
    due = (fn.col("kind") == "stray") | fn.coalesce(fn.col("age_seconds") > OVERDUE_SECONDS, fn.lit(True))
    why = fn.when(fn.col("kind") == "stray", "stray").otherwise("overdue")
    abandoned = judged.where((fn.col("kind") == "future") & (fn.col("fleet_verdict") == "orphan"))
    since = (fn.col("at_ms") - fn.unix_millis(fn.coalesce("first_seen", "newest_mtime"))) / 1000
    abandoned = abandoned.withColumn("age_seconds", at_least(fn.round(since, 3), 0.0))
    columns = ["age_seconds", "marked_at", "why", "window", "due_at", "covered", "obstacle", "snapshot_at"]
    columns += ["verdict", "reason", "last_segment_offset", "newest_mtime"]
    moment = {"snapshot_at": fn.timestamp_millis("at_ms")}
    both = aged.where(due).withColumns(moment | {"why": why}).select(*_COLUMNS, *columns)
    gone = abandoned.withColumns(moment | {"why": fn.lit("abandoned")}).select(*_COLUMNS, *columns)
    size = fn.broadcast if not suspects.large else (lambda frame: frame)
    # Those marked for deletion are no copies (`SuspectPartitions`), and a name alone does not tell of what.
    counted = copies.select(*WHOSE, "copies", "longest")
    one = both.unionByName(gone).withColumn("whose", fn.when(fn.col("kind") != "delete", fn.col("topic_id")))
    counted_dirs = one.join(size(counted), WHOSE, how="left").withColumns(
        {
            "copies_elsewhere": fn.col("copies") - 1,
            "only_copy": fn.col("copies") == 1,
            "longest_copy": fn.when(fn.col("copies").isNotNull(), is_longest()),
        }
    )
    judged_strays = _with_held(scope, counted_dirs, size, doubted)
    # Only strays: no other leftovers can be requested across the fleet.
    return windowed(judged_strays, fn.col("held")).withColumn("id", fn.when(fn.col("kind") == "stray", row_id()))


def _with_held(
    scope: Scope, dirs: DataFrame, size: Callable[[DataFrame], DataFrame], doubted: Collection[str]
) -> DataFrame:
    """Adds `held`: nothing that the fleet knows lets the host remove the stray (`strays.decide_stray`). One of a living
    topic id goes only if another copy has all of it, any other only if it is proven that its id is gone.
    """
    ids = dirs.where((fn.col("kind") == "stray") & fn.col("topic_id").isNotNull()).select("cluster_id", "topic_id")
    living = living_topics(scope).join(size(ids.distinct()), ["cluster_id", "topic_id"], how="left_semi")
    living = living.select("cluster_id", "topic_id", fn.lit(True).alias("lives")).distinct()
    complete = fn.col("complete")
    if doubted:
        complete = complete & ~fn.col("cluster_id").isin(*doubted)
    known = images(scope).select("cluster_id", complete.alias("tells_absence"))
    lives, longer = fn.col("lives").isNotNull(), fn.coalesce(~fn.col("longest_copy"), fn.lit(False))
    absent = fn.coalesce(fn.col("tells_absence"), fn.lit(False)) & fn.col("topic_id").isNotNull()
    said_gone = fn.col("reason").isin("topic-absent", "topic-recreated")
    proven = absent | fn.coalesce((fn.col("verdict") == "orphan") & said_gone, fn.lit(False))
    may_go = fn.when(lives, longer).otherwise(proven)
    joined = dirs.join(size(living), ["cluster_id", "topic_id"], how="left").join(known, "cluster_id", how="left")
    return joined.withColumn("held", ~may_go)


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
