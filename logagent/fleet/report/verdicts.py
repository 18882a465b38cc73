"""Orphans, missing replicas and duplicates, decided from the newest complete assignments of each cluster.

Mirrors `logagent.verdict.rules.decide`, which an agent applies to its own disks, using what the fleet
knows: an image without proof of absence (source `admin`) needs the agent's own verdict for `topic-absent` and
`topic-recreated`, and a directory must, by its host's clock, be old enough for the image to know it. An agent that says
`assigned` from an image at least as new is not overruled: the directory is undecided.

Only partitions that are not as assigned are looked at; `parts` says where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.base.dir_names import INTERNAL_TOPICS, METADATA_TOPIC
from logagent.fleet.report.answers import row_id, windowed
from logagent.fleet.report.scope import Scope, decided_frame
from logagent.fleet.tables.frames import Scratch, at_least, is_removal, local_frame, together, whose
from logagent.kafka.image import NEWEST_METADATA_VERSION, RESERVED_DIRECTORY_IDS, Source
from logagent.store.contract import CLOCKS_APART
from logagent.verdict.rules import GONE_FOR_GOOD, ORPHAN_REASONS

BROADCAST_KEYS = 1_000_000
"""Up to this many anomalous partitions are broadcast to every executor instead of shuffling everything else."""
ABSURD_SHARE = 0.5
ABSURD_DIRS = 100
"""Share of a cluster's current and future directories (and their least number) beyond which its assignments are in
doubt."""
MOST_UNCOMMITTED = 500
"""With more uncommitted removals than this, nothing in their cluster is called an orphan."""

HOST = ["cluster_id", "node_id"]
COPY_KEYS = ["cluster_id", "whose", "partition"]
LIVE = ("current", "future")
_GONE_FOR_GOOD = [reason.value for reason in GONE_FOR_GOOD]


class SuspectPartitions:
    """The partitions that are looked at, and what exists of them: `found` directories, `expected` assignments."""

    def __init__(self, scope: Scope, scratch: Scratch) -> None:
        keys = scope.parts.where(~fn.col("same") | fn.col("twice"))
        if scope.choice.undecided:
            keys = keys.where(fn.col("twice") | ~fn.col("cluster_id").isin(scope.choice.undecided))
        # And what its agent finds in another directory than assigned: `parts` does not say where a copy lies.
        odd = (fn.col("kind") == "future") | ((fn.col("kind") == "current") & (fn.col("reason") == "wrong-directory"))
        # And of strays, to tell what else there is of them.
        odd = odd | ((fn.col("kind") == "stray") & fn.col("topic_id").isNotNull())
        # And what its agent calls an orphan, though it may lie just where it is assigned.
        odd = odd | ((fn.col("kind") == "current") & (fn.col("verdict") == "orphan"))
        moved = scope.others.where(odd & fn.col("topic").isNotNull())
        columns = [fn.col("cluster_id"), whose().alias("whose"), fn.col("partition")]
        named = [frame.select(*columns) for frame in (keys, moved, scope.absent)]
        self.keys = scratch.keep("keys", together(named).distinct())
        self.count = scratch.count("keys")
        self.large = self.count > BROADCAST_KEYS
        current = _of(scope.dirs.where(fn.col("kind") == "current"), self.keys, large=self.large)
        others = scope.others.where(fn.col("kind").isin("future", "stray") & fn.col("topic").isNotNull())
        self.found = scratch.keep("found", current.unionByName(others.withColumn("whose", whose())))
        wanted = decided_frame(scope, scope.assignments)
        self.expected = scratch.keep("expected", _of(wanted, self.keys, large=self.large))

    def copies(self) -> DataFrame:
        """`cluster_id, whose, partition, copies, longest`: what exists of each, whatever its topic's name."""
        longest = fn.max(_length()).alias("longest")
        return self.found.groupBy(*COPY_KEYS).agg(fn.count("*").alias("copies"), longest)


def length_known() -> Column:
    return fn.col("last_segment_offset").isNotNull() | fn.col("newest_mtime").isNotNull()


def is_longest() -> Column:
    """Whether no other of `SuspectPartitions.copies` is longer; null if its length is not known."""
    return fn.when(length_known(), _length() >= fn.col("longest"))


def _of(frame: DataFrame, keys: DataFrame, *, large: bool) -> DataFrame:
    keyed = frame.where(fn.col("topic").isNotNull()).withColumn("whose", whose())
    return keyed.join(keys if large else fn.broadcast(keys), COPY_KEYS, how="left_semi")


def _length() -> Column:
    """What decides which copy is the longest; unknown lengths count as shorter."""
    return fn.struct(
        fn.coalesce("last_segment_offset", fn.lit(-1)).alias("offset"),
        fn.coalesce("newest_mtime", fn.timestamp_millis(fn.lit(0))).alias("written"),
    )


def judge(scope: Scope, suspects: SuspectPartitions) -> DataFrame:
    """Adds `fleet_verdict` (assigned, orphan, unknown) and `why` to the current and future ones of `suspects.found`.

    The first line that applies decides. `tests/verdict_table.py` holds these lines and those of `decide` equal.
    """
    lives, namesake = fn.col("living_topic").isNotNull(), fn.col("namesake")
    renamed = lives & (fn.col("living_topic") != fn.col("topic"))
    assigned = fn.array_contains("replicas", fn.col("node_id"))
    proven = fn.coalesce((fn.col("verdict") == "orphan") & fn.col("reason").isin(*_GONE_FOR_GOOD), fn.lit(False))
    reason = (
        fn.when(~fn.col("has_replicas") & ~(fn.col("registered") & fn.col("complete")), "no-assignments")
        .when(fn.col("topic") == METADATA_TOPIC, "internal")
        .when(fn.col("topic_id").isNull(), "no-topic-id")
        .when(renamed & (namesake | fn.col("replicas").isNull() | (fn.col("kind") == "future")), "sources-disagree")
        .when(renamed, fn.when(fn.col("complete"), "copy-of").otherwise("no-assignments"))
        .when(lives & fn.col("replicas").isNull(), "no-assignments")
        .when(
            lives & assigned & (fn.col("kind") == "current") & _is_elsewhere(),
            fn.when(fn.col("newer_version"), "no-assignments").otherwise("wrong-directory"),
        )
        .when(lives & assigned, fn.lit(None))
        .when(lives & fn.col("reassigning"), "reassigning")
        .when(lives, "not-a-replica")
        .when(fn.col("namesake_without_id"), "no-topic-id")
        .when(~fn.col("complete") & ~proven, "no-assignments")
        .when(namesake, "topic-recreated")
        .otherwise("topic-absent")
    )
    orphan = fn.col("why").isin(*(reason.value for reason in ORPHAN_REASONS))
    held_back = _held_back(scope, proven)
    named = _with_image(scope, suspects).withColumn("why", reason)
    contradicted = fn.col("why").isNull() & fn.coalesce(fn.col("verdict") == "orphan", fn.lit(False))
    named = named.withColumn(
        "why",
        fn.when(orphan & held_back.isNotNull(), held_back)
        .when(contradicted, "sources-disagree")
        .otherwise(fn.col("why")),
    )
    verdict = fn.when(fn.col("why").isNull(), "assigned").when(orphan, "orphan").otherwise("unknown")
    return named.withColumn("fleet_verdict", verdict)


def _held_back(scope: Scope, proven: Column) -> Column:
    """Why what looks like an orphan is not called one; null if nothing speaks against it."""
    # A broker applies only committed records: if its agent says that the topic is gone, its removal is committed.
    settled = proven & fn.col("why").isin(*_GONE_FOR_GOOD)
    agent_knows = (fn.col("verdict") == "assigned") & (fn.col("own_image_ms") >= fn.col("image_ms"))
    return (
        fn.when(fn.col("topic").isin(*sorted(INTERNAL_TOPICS)), "internal")
        .when(fn.col("newer_version") & ~fn.col("why").isin(*_GONE_FOR_GOOD), "no-assignments")
        .when(~settled & _uncommitted(scope), "uncommitted")
        .when(~_old_enough(scope.asked.as_of_ms), "stale-assignments")
        .when(fn.coalesce(agent_knows, fn.lit(False)), "sources-disagree")
    )


def _is_elsewhere() -> Column:
    """Whether the cluster has this node's replica in another directory; false where either id is not known."""
    assigned = fn.get("directories", fn.array_position("replicas", fn.col("node_id")).cast("int") - 1)
    named = (fn.size("directories") == fn.size("replicas")) & ~assigned.isin(*sorted(RESERVED_DIRECTORY_IDS))
    return fn.coalesce(named & (assigned != fn.col("directory_id")), fn.lit(False))


def _uncommitted(scope: Scope) -> Column:
    """Whether the image has an uncommitted removal of it, which a truncation of the metadata log may yet undo. There
    are few; if there are many, or one that cannot be read, nothing in their cluster is an orphan."""
    found = fn.lit(False)
    for cluster in scope.choice.decided:
        removals = cluster.get("uncommitted") or []
        if len(removals) > MOST_UNCOMMITTED or not all(is_removal(*removal) for removal in removals):
            found = found | (fn.col("cluster_id") == cluster["cluster_id"])
            continue
        for topic_id, partition in removals:
            its = (fn.col("cluster_id") == cluster["cluster_id"]) & (fn.col("topic_id") == fn.lit(topic_id))
            found = found | (its if partition is None else its & (fn.col("partition") == partition))
    return fn.coalesce(found, fn.lit(False))


def _with_image(scope: Scope, suspects: SuspectPartitions) -> DataFrame:
    """Each candidate with what its cluster's image says about its id, partition, name and node."""
    moving = (fn.size("adding") > 0) | (fn.size("removing") > 0)
    # One row each, even if a file repeats it: a directory must not be counted twice.
    partition = suspects.expected.where(fn.col("topic_id").isNotNull()).groupBy("cluster_id", "topic_id", "partition")
    partition_rows = partition.agg(
        fn.flatten(fn.collect_list("replicas")).alias("replicas"),
        fn.flatten(fn.collect_list("directories")).alias("directories"),
        fn.bool_or(moving).alias("reassigning"),
    )
    live = decided_frame(scope, suspects.found.where(fn.col("kind").isin(*LIVE)))
    assigned = living_topics(scope)
    size = fn.broadcast if not suspects.large else (lambda frame: frame)
    ids = size(live.select("cluster_id", "topic_id").where(fn.col("topic_id").isNotNull()).distinct())
    by_id = assigned.join(ids, ["cluster_id", "topic_id"], how="left_semi").groupBy("cluster_id", "topic_id")
    names = size(live.select("cluster_id", "topic").distinct())
    by_name = assigned.join(names, ["cluster_id", "topic"], how="left_semi").groupBy("cluster_id", "topic")
    namesakes = by_name.agg(
        fn.lit(True).alias("namesake"), fn.bool_or(fn.col("topic_id").isNull()).alias("namesake_without_id")
    )
    whole = (
        live.join(images(scope), "cluster_id", how="inner")
        .join(scope.host_frame, HOST, how="inner")
        .join(directory_ids(scope), [*HOST, "log_dir"], how="left")
        .join(size(partition_rows), ["cluster_id", "topic_id", "partition"], how="left")
        .join(size(by_id.agg(fn.max("topic").alias("living_topic"))), ["cluster_id", "topic_id"], how="left")
        .join(size(namesakes), ["cluster_id", "topic"], how="left")
    )
    return whole.fillna(False, ["has_replicas", "registered", "namesake", "namesake_without_id", "reassigning"])


def living_topics(scope: Scope) -> DataFrame:
    """Rows (several a topic) of `cluster_id, topic, topic_id`: what the images of the decided clusters have."""
    # `topics` says the same for less, but lacks the topics whose replicas are all on hosts that do not count.
    living = scope.assignments if scope.choice.silent() else scope.topics.where(fn.col("assigned_partitions") > 0)
    return decided_frame(scope, living)


def _is_untested(cluster: Mapping[str, Any]) -> bool:
    """Whether only removals are proven, as `AssignmentImage.untested_because` says it of the agent's own."""
    level = cluster.get("metadata_version")
    if level is None:
        return bool(cluster["source"] == Source.KRAFT_LOG)
    return bool(level > NEWEST_METADATA_VERSION)


def images(scope: Scope) -> DataFrame:
    """What is known of each decided cluster's assignments as a whole. `complete`: what they lack does not exist."""
    rows = [
        {
            "cluster_id": c["cluster_id"],
            "complete": c["source"] == Source.KRAFT_LOG,
            "newer_version": _is_untested(c),
            "image_ms": c["at"],
            "image_until_ms": min(c["at"], c["image_at"]) if c.get("image_at") is not None else c["at"],
            "image_received_ms": c["received_at"],
        }
        for c in scope.choice.decided
    ]
    times = "image_ms bigint, image_until_ms bigint, image_received_ms bigint"
    ddl = f"cluster_id string, complete boolean, newer_version boolean, {times}"
    return fn.broadcast(local_frame(scope.store.spark, rows, ddl))


def directory_ids(scope: Scope) -> DataFrame:
    """`directory.id` by host and log dir."""
    names = (*HOST, "log_dir", "directory_id")
    rows = [{name: row[name] for name in names} for row in scope.log_dirs if row.get("directory_id") is not None]
    ddl = "cluster_id string, node_id int, log_dir string, directory_id string"
    return fn.broadcast(local_frame(scope.store.spark, rows, ddl))


def _old_enough(as_of_ms: int) -> Column:
    """Whether the image can know the directory: it was seen or written before `known_until`. A file modified after the
    report's time (a copied store) proves no more than one that arrived at that time."""
    seen = [fn.coalesce(fn.unix_millis(name), "at_ms") for name in ("first_seen", "newest_mtime")]
    return fn.coalesce(fn.least("at_ms", *seen) <= known_until(as_of_ms), fn.lit(False))


def known_until(as_of_ms: int) -> Column:
    """The time of the image's newest committed record (of agents that do not say: of the image) by the host's clock, in
    milliseconds; of rows of `Scope.host_frame` with the columns of `images`.

    How far the host's clock is behind the controller's follows from the delay between a file's own time and its
    arrival, compared with that of the assignments' file. More than five minutes counts: a slow clock must not make a
    new topic look old.
    """

    def delay(at: str, received: str) -> Column:
        return fn.least(fn.col(received), fn.lit(as_of_ms)) - fn.col(at)

    behind = delay("at_ms", "received_ms") - delay("image_ms", "image_received_ms")
    return fn.col("image_until_ms") - fn.when(behind > CLOCKS_APART // timedelta(milliseconds=1), behind).otherwise(0)


def doubted(scope: Scope, orphans: Iterable[Any], others: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Clusters with so many would-be orphans that the assignments must be wrong: `{cluster: (orphans, dirs)}`.

    `orphans`: rows of `cluster_id, count`; `others`: how many directories of a cluster are neither current nor future.
    """
    all_dirs: dict[str, int] = {}
    for host in scope.choice.counting:
        all_dirs[host["cluster_id"]] = all_dirs.get(host["cluster_id"], 0) + (host["dirs"] or 0)
    found = {}
    for row in orphans:
        dirs = all_dirs.get(row["cluster_id"], 0) - others.get(row["cluster_id"], 0)
        if row["count"] >= ABSURD_DIRS and row["count"] > dirs * ABSURD_SHARE:
            found[row["cluster_id"]] = (int(row["count"]), dirs)
    return found


def orphans(judged: DataFrame, copies: DataFrame) -> DataFrame:
    """The `orphans` table: with how many other copies of the partition are left, and whether this is the longest.

    Copies are current, future and stray directories of the same topic id and partition on hosts that count; those
    marked for deletion do not count. Unknown lengths count as shorter, so that in doubt a copy is called the longest.
    """
    found = judged.where(fn.col("fleet_verdict") == "orphan")
    age = (fn.col("at_ms") - fn.unix_millis("first_seen")) / 1000
    with_copies = found.join(copies, COPY_KEYS, how="inner").withColumns(
        {
            "agent_verdict": fn.col("verdict"),
            "agent_reason": fn.col("reason"),
            "reason": fn.col("why"),
            "age_seconds": at_least(fn.round(age, 3), 0.0),
            "copies_elsewhere": fn.col("copies") - 1,
            "only_copy": fn.col("copies") == 1,
            "longest_copy": is_longest(),
            "snapshot_at": fn.timestamp_millis("at_ms"),
            "id": row_id(),
        }
    )
    return windowed(with_copies)
