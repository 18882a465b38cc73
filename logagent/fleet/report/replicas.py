"""Where the expected replicas are, which are missing, and partitions that are twice on one host.

What is left over, and what could not be decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.base.config.settings import CleanupSettings
from logagent.fleet.report.answers import row_id, windowed
from logagent.fleet.report.scope import Scope, decided_frame
from logagent.fleet.report.verdicts import (
    HOST,
    LIVE,
    WHOSE,
    SuspectPartitions,
    directory_ids,
    images,
    is_longest,
    living_topics,
)
from logagent.fleet.tables.choice import Row
from logagent.fleet.tables.enclosing import OLDER, YOUNGER
from logagent.fleet.tables.frames import at_least, local_frame, whose
from logagent.store.contract import REPLICA_COUNTS, UNDECIDED

REPLICA = [*HOST, "topic", "topic_id", "partition"]
UNREADABLE = ("offline", "unformatted")
COPY = [*HOST, "whose", "partition"]


def states(scope: Scope, suspects: SuspectPartitions, copies: DataFrame, doubted: Collection[str] = ()) -> DataFrame:
    """Every replica of these partitions that is expected on a host that counts, with its `state` and the `reason`.

    `found`: a current or future directory of it is there, or one without topic id that may be it. `missing`: it was
    assigned before the host looked and afterwards, and is not there. `not_yet`: only assignments that are younger than
    that have it. `gone`: only older ones. `not_read`: it may be in a log dir that could not be read. `unproven`:
    nothing shows whether it had to be there. `left`: what else is there of it. Expected is what the newest assignments
    have, and what an agent misses that has read younger ones. `doubted`: clusters whose assignments are.
    """
    size = fn.broadcast if not suspects.large else (lambda frame: frame)
    absent = decided_frame(scope, scope.absent).withColumn("whose", whose())
    wanted = _expected(suspects, absent)
    hosts = scope.host_frame.select(*HOST, "host", "at_ms").join(_standings(scope), HOST, how="inner")
    here = wanted.join(fn.broadcast(hosts), HOST, how="inner")
    here = here.where(fn.col("assigned") | ~fn.coalesce(fn.col("place") == YOUNGER, fn.lit(False)))
    live = suspects.found.where(fn.col("kind").isin(*LIVE))
    by_id = live.select(*HOST, "topic_id", "partition", fn.lit(True).alias("by_id")).distinct()
    nameless = _nameless(scope, live).withColumn("nameless", fn.lit(True))
    aside = scope.others.where(fn.col("kind").isin("stray", "delete") & fn.col("topic").isNotNull())
    left = aside.groupBy(*HOST, whose().alias("whose"), "partition").agg(fn.max("kind").alias("left"))
    marked = (
        here.join(size(by_id), [*HOST, "topic_id", "partition"], how="left")
        .join(size(nameless), [*HOST, "topic", "partition"], how="left")
        .join(size(absent.select(*COPY, fn.lit(True).alias("said")).distinct()), COPY, how="left")
        .join(size(left), COPY, how="left")
        .join(size(copies.select(*WHOSE, "copies")), WHOSE, how="left")
    )
    rows = _in_older(scope, _unread(scope, marked), size)
    judged = _judged(rows.join(images(scope).select("cluster_id", "newer_version"), "cluster_id", how="inner"), doubted)
    return judged.select(
        *REPLICA, "host", "state", "reason", "assigned", fn.when(fn.col("left") == "stray", "stray").alias("left"),
        fn.when(fn.size("isr") > 0, fn.array_contains("isr", fn.col("node_id"))).alias("in_isr"),
        fn.array_contains("adding", fn.col("node_id")).alias("adding"),
        fn.coalesce("copies", fn.lit(0)).alias("copies_elsewhere"),
        fn.timestamp_millis("at_ms").alias("snapshot_at"),
    )  # fmt: skip


def _expected(suspects: SuspectPartitions, absent: DataFrame) -> DataFrame:
    """A row for each assigned replica, and for each that only its agent knows to be assigned."""
    at = fn.transform(
        "replicas", lambda node, n: fn.struct(node.alias("node_id"), fn.get("directories", n).alias("id"))
    )
    replicas = suspects.expected.withColumn("replica", fn.explode(at)).select("*", "replica.node_id", "replica.id")
    columns = [*COPY, "topic", "topic_id", "isr", "adding", "id"]
    assigned = replicas.select(*columns, fn.lit(True).alias("assigned"))
    others = absent.join(replicas.select(*COPY), COPY, how="left_anti")
    none = {"isr": "array<int>", "adding": "array<int>", "id": "string"}
    more = others.withColumns({name: fn.lit(None).cast(kind) for name, kind in none.items()})
    return assigned.unionByName(more.select(*columns, fn.lit(False).alias("assigned")))


def _judged(rows: DataFrame, doubted: Collection[str]) -> DataFrame:
    """Adds `state` and `reason`: the first line that applies decides."""
    here = fn.col("by_id").isNotNull() | fn.col("nameless").isNotNull()
    said = fn.col("own") & fn.col("said").isNotNull()
    known = fn.col("assigned") | fn.coalesce(fn.col("place") == OLDER, fn.lit(False))
    enclosed = fn.col("younger") & fn.col("in_older")
    lines: list[tuple[Column, str, str | None]] = [
        (here, "found", None),
        (fn.col("cluster_id").isin(*doubted), "unproven", "assignments-doubted"),
        (fn.col("newer_version"), "unproven", "metadata-version"),
        (fn.col("unread"), "not_read", "log-dir-not-read"),
        (fn.col("left") == "delete", "unproven", "marked"),
        (said & known, "missing", None),
        (fn.col("own") & ~said & (fn.col("place") == OLDER), "gone", "unassigned-since"),
        (fn.col("own") & ~said & (fn.col("place") == YOUNGER), "not_yet", "assigned-since"),
        (fn.col("own"), "unproven", "assignments-between"),
        (enclosed, "missing", None),
        (fn.col("younger") & fn.col("older").isNull(), "not_yet", "no-older-assignments"),
        (fn.col("younger"), "not_yet", "assigned-since"),
        (fn.lit(True), "unproven", "no-younger-assignments"),
    ]
    state, reason = fn.lit(None).cast("string"), fn.lit(None).cast("string")
    for applies, its_state, its_reason in reversed(lines):
        certain = fn.coalesce(applies, fn.lit(False))
        state = fn.when(certain, its_state).otherwise(state)
        reason = fn.when(certain, fn.lit(its_reason)).otherwise(reason)
    return rows.withColumns({"state": state, "reason": reason})


def _standings(scope: Scope) -> DataFrame:
    """`HOST, own, place, younger, older`: see `Standing`."""
    rows = [
        {"cluster_id": cluster, "node_id": node, **asdict(standing)}
        for (cluster, node), standing in scope.standings.items()
    ]
    ddl = "cluster_id string, node_id int, own boolean, place string, younger boolean, older string"
    return local_frame(scope.store.spark, rows, ddl)


def _in_older(scope: Scope, rows: DataFrame, size: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Adds `in_older`: whether the stored image before the host's first look assigns it."""
    older = scope.older_images()
    if older is None:
        return rows.withColumn("in_older", fn.lit(False))
    named = older.withColumn("whose", whose()).select("cluster_id", "older", "whose", "partition", "replicas")
    keys = rows.select("cluster_id", "older", "whose", "partition").distinct()
    few = named.join(size(keys), ["cluster_id", "older", "whose", "partition"], how="left_semi")
    joined = rows.join(size(few), ["cluster_id", "older", "whose", "partition"], how="left")
    has = fn.coalesce(fn.array_contains("replicas", fn.col("node_id")), fn.lit(False))
    return joined.withColumn("in_older", has)


def _unread(scope: Scope, rows: DataFrame) -> DataFrame:
    """Adds `unread`: whether it may be in a log dir that the host could not read."""
    doubtful = {(r["cluster_id"], r["node_id"]) for r in scope.log_dirs if r.get("health") in UNREADABLE}
    if not doubtful:
        return rows.withColumn("unread", fn.lit(False))
    readable = [
        {"cluster_id": r["cluster_id"], "node_id": r["node_id"], "id": r["directory_id"], "readable": True}
        for r in scope.log_dirs
        if (r["cluster_id"], r["node_id"]) in doubtful
        and r.get("health") not in UNREADABLE
        and r.get("directory_id") is not None
    ]
    spark = scope.store.spark
    names = [{"cluster_id": c, "node_id": n, "doubtful": True} for c, n in sorted(doubtful)]
    hosts = local_frame(spark, names, "cluster_id string, node_id int, doubtful boolean")
    places = local_frame(spark, readable, "cluster_id string, node_id int, id string, readable boolean").distinct()
    placed = rows.join(fn.broadcast(hosts), HOST, how="left").join(fn.broadcast(places), [*HOST, "id"], how="left")
    unread = fn.col("doubtful").isNotNull() & fn.col("readable").isNull()
    return placed.withColumn("unread", unread).drop("doubtful", "readable")


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


@dataclass(frozen=True)
class Counted:
    """How many replicas are in which state. `clusters`: `REPLICA_COUNTS` by cluster; `undecided`: of the fleet, by
    state and reason, with the number of hosts; `no_copy`: partitions of which no copy was found, nor a replica that is
    known to be missing."""

    clusters: dict[str, Row]
    undecided: list[Row]
    no_copy: int

    def document(self) -> Row:
        """The section `answers.replicas` of `report.json`."""
        total = {name: sum(each[name] for each in self.clusters.values()) for name in REPLICA_COUNTS}
        return {"total": total, "not_compared": self.undecided, "no_copy": self.no_copy}


def count(scope: Scope, suspects: SuspectPartitions, judged: DataFrame) -> Counted:
    """`judged`: what `states` gives. All other partitions are where they are assigned."""
    clusters: dict[str, Row] = {c["cluster_id"]: dict.fromkeys(REPLICA_COUNTS, 0) for c in scope.choice.decided}
    counting = {(h["cluster_id"], h["node_id"]) for h in scope.choice.counting}
    for (cluster, node), row in scope.nodes.items():
        clusters[cluster]["expected"] += row["replicas"]
        clusters[cluster]["not_heard"] += 0 if (cluster, node) in counting else row["replicas"]
    same = decided_frame(scope, scope.parts.where("same")).withColumn("whose", whose())
    same = same.join(suspects.keys if suspects.large else fn.broadcast(suspects.keys), WHOSE, how="left_anti")
    for found in same.groupBy("cluster_id").agg(fn.sum(fn.size("replicas")).alias("n")).collect():
        clusters[found["cluster_id"]]["found"] += max(found["n"] or 0, 0)
    figures = [fn.count("*").alias("n"), fn.count_if(~fn.col("assigned")).alias("more")]
    figures.append(fn.count_distinct("node_id").alias("hosts"))
    undecided: dict[tuple[str, str], Row] = {}
    for each in judged.groupBy("cluster_id", "state", "reason").agg(*figures).collect():
        clusters[each["cluster_id"]][each["state"]] += each["n"]
        clusters[each["cluster_id"]]["expected"] += each["more"]
        if each["state"] in UNDECIDED:
            key = each["state"], each["reason"]
            one = undecided.setdefault(key, {"state": key[0], "reason": key[1], "replicas": 0, "hosts": 0})
            one["replicas"] += each["n"]
            one["hosts"] += each["hosts"]
    alone = judged.where(fn.col("copies_elsewhere") == 0).groupBy("cluster_id", "topic", "topic_id", "partition")
    told = alone.agg(
        fn.bool_or(fn.col("state") == "missing").alias("lost"),
        fn.bool_or(fn.col("state").isin(*UNDECIDED)).alias("some"),
    )
    return Counted(clusters, [undecided[key] for key in sorted(undecided)], told.where("some and not lost").count())


def undecided_replicas(judged: DataFrame) -> DataFrame:
    """The `undecided_replicas` table."""
    return judged.where(fn.col("state").isin(*UNDECIDED))


def missing(judged: DataFrame) -> DataFrame:
    """The `missing_replicas` table."""
    return judged.where(fn.col("state") == "missing")


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
    columns = ["age_seconds", "marked_at", "why", "window", "due_at", "covered", "obstacle", "obstacle_detail"]
    columns += ["snapshot_at", "verdict", "reason", "last_segment_offset", "newest_mtime"]
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
