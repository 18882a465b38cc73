"""Orphans, missing replicas and duplicates, decided from the newest complete assignments of each cluster.

Mirrors `logagent.model.verdict.decide`, which an agent applies to its own disks, with what the fleet knows: an image
without
proof of absence (source `admin`) needs the agent's own verdict for `topic-absent` and `topic-recreated`, and a
directory must be old enough to be known to the image on the clock of its host.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.scope import Scope
from logagent.model.topic_names import INTERNAL_TOPICS

BROADCAST_KEYS = 1_000_000
"""Anomalous partitions up to which they are sent to every executor instead of shuffling everything to them."""
ABSURD_SHARE = 0.5
ABSURD_DIRS = 100
"""Share of a cluster's current and future directories (and their least number) beyond which its assignments are
doubted."""
SKEW_SECONDS = 300

HOST = ["cluster_id", "node_id"]
PLACE = [*HOST, "log_dir", "name"]


def candidates(scope: Scope, keys: DataFrame, *, large: bool) -> DataFrame:
    """Directories that may be orphans: the current ones of odd partitions, and all future ones."""
    decided = fn.broadcast(scope.clusters.where("decided").select("cluster_id"))
    wanted = keys.select("topic_key", "partition")
    wanted = wanted if large else fn.broadcast(wanted)
    current = scope.dirs.where(fn.col("kind") == "current").join(wanted, ["topic_key", "partition"], "left_semi")
    future = scope.dirs.where((fn.col("kind") == "future") & fn.col("topic").isNotNull())
    return current.unionByName(future).join(decided, "cluster_id", "left_semi")


def judge(scope: Scope, found: DataFrame) -> DataFrame:
    """Adds `verdict` (assigned, orphan, unknown) and `why` to `candidates`: the first line that applies."""
    known = _with_image(scope, found)
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


def _with_image(scope: Scope, found: DataFrame) -> DataFrame:
    """Each candidate with what its cluster's image says of its id, its partition, its name and its node."""
    wanted = found.select("cluster_id", "topic_id", "partition").distinct()
    rows = scope.assignments.join(fn.broadcast(wanted), ["cluster_id", "topic_id", "partition"], "left_semi")
    moving = (fn.size("adding") > 0) | (fn.size("removing") > 0)
    partition = rows.select("cluster_id", "topic_id", "partition", "replicas", moving.alias("reassigning"))
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
        found.join(fn.broadcast(clusters), "cluster_id")
        .join(fn.broadcast(snapshots), HOST)
        .join(nodes, HOST, "left")
        .join(partition, ["cluster_id", "topic_id", "partition"], "left")
        .join(by_id.agg(fn.max("topic").alias("living_topic")), ["cluster_id", "topic_id"], "left")
        .join(by_name, ["cluster_id", "topic"], "left")
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
    all_dirs = scope.dirs.where(fn.col("kind").isin("current", "future"))
    total = all_dirs.groupBy("cluster_id").agg(fn.count("*").alias("dirs"))
    found = judged.where(fn.col("fleet_verdict") == "orphan").groupBy("cluster_id").agg(fn.count("*").alias("orphans"))
    share = found.join(total, "cluster_id")
    return share.where((fn.col("orphans") >= ABSURD_DIRS) & (fn.col("orphans") > fn.col("dirs") * ABSURD_SHARE))


def orphans(scope: Scope, judged: DataFrame, *, large: bool) -> DataFrame:
    """The `orphans` table: with how many other copies of the partition are left, and whether this is the longest.

    Copies are current, future and stray directories of the same topic id and partition on hosts that count, under
    whatever topic name: names of strays and of moves in progress are cut off at 255 bytes. Those marked for deletion
    are none. Unknown lengths count as shorter, so that in doubt a copy is called the longest.
    """
    found = judged.where(fn.col("fleet_verdict") == "orphan")
    key = ["cluster_id", "topic_id", "partition"]
    wanted = _every_name(scope, found)
    wanted = wanted if large else fn.broadcast(wanted)
    length = fn.struct(
        fn.coalesce("last_segment_offset", fn.lit(-1)).alias("offset"),
        fn.coalesce("newest_mtime", fn.lit("1970-01-01").cast("timestamp")).alias("written"),
    )
    kept = scope.dirs.where(fn.col("kind").isin("current", "future", "stray"))
    copies = kept.join(wanted, ["topic_key", "partition"], "left_semi")
    counted = copies.groupBy(*key).agg(fn.count("*").alias("copies"), fn.max(length).alias("longest"))
    unknown = fn.col("last_segment_offset").isNull() & fn.col("newest_mtime").isNull()
    age = fn.col("at").cast("double") - fn.col("first_seen").cast("double")
    return found.join(counted, key).withColumns(
        {
            "agent_verdict": fn.col("verdict"),
            "agent_reason": fn.col("reason"),
            "reason": fn.col("why"),
            "age_seconds": fn.greatest(fn.round(age, 3), fn.lit(0.0)),
            "copies_elsewhere": fn.col("copies") - 1,
            "only_copy": fn.col("copies") == 1,
            "longest_copy": fn.when(~unknown, length >= fn.col("longest")),
        }
    )


def _every_name(scope: Scope, found: DataFrame) -> DataFrame:
    """`topic_key, partition` of the partitions of `found`, once for every name that a directory has for the topic id.

    So that what belongs together by id is found by the packed key, without ids in the scan of all directories.
    """
    partitions = found.select("cluster_id", "topic_id", "partition").distinct()
    names = scope.topics.select("cluster_id", "topic_id", "topic_key")
    return partitions.join(names, ["cluster_id", "topic_id"]).select("topic_key", "partition").distinct()
