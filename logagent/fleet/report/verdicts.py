"""Orphans, missing replicas and duplicates, decided from the newest complete assignments of each cluster.

Mirrors `logagent.model.assignments.verdict.decide`, which an agent applies to its own disks, with what the fleet
knows: an image without proof of absence (source `admin`) needs the agent's own verdict for `topic-absent` and
`topic-recreated`, and a directory must be old enough to be known to the image on the clock of its host.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.report.scope import Scope
from logagent.model.naming.topic_names import INTERNAL_TOPICS

BROADCAST_KEYS = 1_000_000
"""Anomalous partitions up to which they are sent to every executor instead of shuffling everything to them."""
ABSURD_SHARE = 0.5
ABSURD_DIRS = 100
"""Share of a cluster's current and future directories (and their least number) beyond which its assignments are
doubted."""
SKEW_SECONDS = 300

HOST = ["cluster_id", "node_id"]


LIVE = ("current", "future")
KEPT = (*LIVE, "stray")
"""Kinds of directories that are copies of a partition: those that are marked for deletion are none."""


def wanted(scope: Scope, keys: DataFrame) -> DataFrame:
    """`topic_key, partition` of what has to be looked at: odd and moved partitions, under every name of theirs.

    What belongs together by topic id may lie under several names (those of moves and strays are cut off at 255 bytes),
    so it has several keys. Here they are brought together, without reading ids of all directories.
    """
    moved = scope.others.where((fn.col("kind") == "future") & fn.col("topic").isNotNull())
    columns = ["cluster_id", "topic_id", "topic_key", "partition"]
    every = keys.select(*columns).union(moved.select(*columns)).distinct()
    names = scope.topics.select("cluster_id", "topic_id", fn.col("topic_key").alias("key"))
    named = every.join(names, ["cluster_id", "topic_id"], how="inner").select(
        fn.col("key").alias("topic_key"), "partition"
    )
    return every.select("topic_key", "partition").union(named).distinct()


def looked_at(scope: Scope, wanted: DataFrame, *, large: bool) -> DataFrame:
    """Every copy of the partitions that are `wanted`, of clusters with verdicts."""
    decided = fn.broadcast(scope.clusters.where("decided").select("cluster_id"))
    wanted = wanted if large else fn.broadcast(wanted)
    current = scope.dirs.where(fn.col("kind") == "current").join(wanted, ["topic_key", "partition"], how="left_semi")
    others = scope.others.where(fn.col("kind").isin(*KEPT) & fn.col("topic").isNotNull())
    return current.unionByName(others).join(decided, "cluster_id", how="left_semi")


def expected(scope: Scope, wanted: DataFrame, *, large: bool) -> DataFrame:
    """Assignments of the partitions that are `wanted`."""
    wanted = wanted if large else fn.broadcast(wanted)
    return scope.assignments.join(wanted, ["topic_key", "partition"], how="left_semi")


def copies(found: DataFrame) -> DataFrame:
    """`whose, partition, copies, longest`: what there is of each partition, whatever its topic is called.

    `whose` is the topic id, or the packed name where there is none: `whose()` of a row that is to be compared.
    """
    kept = found.where(fn.col("kind").isin(*KEPT))
    return kept.groupBy(whose().alias("whose"), "cluster_id", "partition").agg(
        fn.count("*").alias("copies"), fn.max(_length()).alias("longest")
    )


def whose() -> Column:
    return fn.coalesce(fn.col("topic_id"), fn.col("topic_key").cast("string"))


def _length() -> Column:
    """What decides which copy is the longest; unknown lengths count as shorter."""
    return fn.struct(
        fn.coalesce("last_segment_offset", fn.lit(-1)).alias("offset"),
        fn.coalesce("newest_mtime", fn.lit("1970-01-01").cast("timestamp")).alias("written"),
    )


def judge(scope: Scope, found: DataFrame, expected: DataFrame) -> DataFrame:
    """Adds `fleet_verdict` (assigned, orphan, unknown) and `why` to the current and future ones of `looked_at`.

    `expected` are the assignments that they are compared with. The first line that applies decides.
    """
    known = _with_image(scope, found.where(fn.col("kind").isin(*LIVE)), expected)
    assigned = fn.array_contains("replicas", fn.col("node_id"))
    lives = fn.col("living_topic").isNotNull()
    gone = fn.when(fn.col("namesake_without_id"), "no-topic-id").when(fn.col("unproven"), "no-assignments")
    reason = (
        fn.when(~fn.col("has_replicas"), "no-assignments")
        .when(fn.col("topic_id").isNull(), "no-topic-id")
        .when(lives & (fn.col("living_topic") != fn.col("topic")), "sources-disagree")
        .when(lives & fn.col("replicas").isNull(), "no-assignments")
        .when(lives & assigned, fn.lit(None))
        .when(lives & fn.col("reassigning"), "reassigning")
        .when(lives, "not-a-replica")
        .when(gone.isNotNull(), gone)
        .when(fn.col("namesake"), "topic-recreated")
        .otherwise("topic-absent")
    )
    orphan = fn.col("why").isin("not-a-replica", "topic-recreated", "topic-absent")
    held_back = fn.when(fn.col("topic").isin(*sorted(INTERNAL_TOPICS)), "internal").when(
        ~_old_enough(scope), "stale-assignments"
    )
    named = known.withColumn("why", reason)
    named = named.withColumn("why", fn.when(orphan & held_back.isNotNull(), held_back).otherwise(fn.col("why")))
    verdict = fn.when(fn.col("why").isNull(), "assigned").when(orphan, "orphan").otherwise("unknown")
    return named.withColumn("fleet_verdict", verdict)


def _with_image(scope: Scope, found: DataFrame, expected: DataFrame) -> DataFrame:
    """Each candidate with what its cluster's image says of its id, its partition, its name and its node."""
    moving = (fn.size("adding") > 0) | (fn.size("removing") > 0)
    # One row each, whatever a file says twice: a directory must not be counted twice.
    partition = expected.groupBy("cluster_id", "topic_id", "partition").agg(
        fn.flatten(fn.collect_list("replicas")).alias("replicas"), fn.bool_or(moving).alias("reassigning")
    )
    topics = scope.assigned_topics
    by_id = topics.where(fn.col("topic_id").isNotNull()).groupBy("cluster_id", "topic_id")
    by_name = topics.groupBy("cluster_id", "topic").agg(
        fn.lit(True).alias("namesake"), fn.bool_or(fn.col("topic_id").isNull()).alias("namesake_without_id")
    )
    nodes = scope.nodes.where(fn.col("replicas") > 0).select(*HOST, fn.lit(True).alias("has_replicas"))
    clusters = scope.clusters.select(
        "cluster_id",
        (fn.col("source") == "admin").alias("incomplete"),
        fn.col("at").alias("image_at"),
        fn.col("received_at").alias("image_received_at"),
    )
    snapshots = scope.hosts.select(*HOST, "host", "at", "received_at")
    whole = (
        found.join(fn.broadcast(clusters), "cluster_id", how="inner")
        .join(fn.broadcast(snapshots), HOST, how="inner")
        .join(nodes, HOST, how="left")
        .join(partition, ["cluster_id", "topic_id", "partition"], how="left")
        .join(by_id.agg(fn.max("topic").alias("living_topic")), ["cluster_id", "topic_id"], how="left")
        .join(by_name, ["cluster_id", "topic"], how="left")
    )
    proven = (fn.col("verdict") == "orphan") & fn.col("reason").isin("topic-absent", "topic-recreated")
    whole = whole.withColumn("unproven", fn.col("incomplete") & ~fn.coalesce(proven, fn.lit(False)))
    return whole.fillna(False, ["has_replicas", "namesake", "namesake_without_id", "reassigning"])


def _old_enough(scope: Scope) -> Column:
    """Whether the image can know the directory: it was seen or written before the image's moment, on its host's clock.

    How far the host's clock lies behind the controller's shows in how much later than its own time its file arrived,
    compared with the assignments' file. Over five minutes it counts: a slow clock must not make a new topic look old.
    A file that was touched after the report's moment (a copied store) proves no more than one that arrived then.
    """
    moment = fn.lit(scope.asked.as_of).cast("timestamp")

    def delay(at: str, received: str) -> Column:
        return fn.least(fn.col(received), moment).cast("double") - fn.col(at).cast("double")

    behind = delay("at", "received_at") - delay("image_at", "image_received_at")
    until = fn.col("image_at").cast("double") - fn.when(behind > SKEW_SECONDS, behind).otherwise(0.0)
    return fn.coalesce(
        fn.least(
            fn.col("at").cast("double"),
            fn.coalesce(fn.col("first_seen").cast("double"), fn.col("at").cast("double")),
            fn.coalesce(fn.col("newest_mtime").cast("double"), fn.col("at").cast("double")),
        )
        <= until,
        fn.lit(False),
    )


def doubted(scope: Scope, judged: DataFrame) -> DataFrame:
    """Clusters in which so much would be an orphan that the assignments must be wrong: `cluster_id, orphans, dirs`."""
    all_dirs = scope.hosts.where("counts").groupBy("cluster_id").agg(fn.sum("dirs").alias("all_dirs"))
    not_live = (
        scope.others.where(~fn.col("kind").isin(*LIVE)).groupBy("cluster_id").agg(fn.count("*").alias("not_live"))
    )
    found = judged.where(fn.col("fleet_verdict") == "orphan").groupBy("cluster_id").agg(fn.count("*").alias("orphans"))
    share = found.join(all_dirs, "cluster_id", how="inner").join(not_live, "cluster_id", how="left")
    share = share.withColumn("dirs", fn.col("all_dirs") - fn.coalesce("not_live", fn.lit(0)))
    return share.where((fn.col("orphans") >= ABSURD_DIRS) & (fn.col("orphans") > fn.col("dirs") * ABSURD_SHARE))


def orphans(judged: DataFrame, copies: DataFrame) -> DataFrame:
    """The `orphans` table: with how many other copies of the partition are left, and whether this is the longest.

    Copies are current, future and stray directories of the same topic id and partition on hosts that count; those
    marked for deletion are none. Unknown lengths count as shorter, so that in doubt a copy is called the longest.
    """
    found = judged.where(fn.col("fleet_verdict") == "orphan").withColumn("whose", whose())
    unknown = fn.col("last_segment_offset").isNull() & fn.col("newest_mtime").isNull()
    age = fn.col("at").cast("double") - fn.col("first_seen").cast("double")
    return found.join(copies, ["cluster_id", "whose", "partition"], how="inner").withColumns(
        {
            "agent_verdict": fn.col("verdict"),
            "agent_reason": fn.col("reason"),
            "reason": fn.col("why"),
            "age_seconds": fn.greatest(fn.round(age, 3), fn.lit(0.0)),
            "copies_elsewhere": fn.col("copies") - 1,
            "only_copy": fn.col("copies") == 1,
            "longest_copy": fn.when(~unknown, _length() >= fn.col("longest")),
        }
    )
