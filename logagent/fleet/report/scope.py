"""Who counts in a report: the hosts whose newest complete snapshot is fresh, and the clusters with usable assignments.

Everything else is unknown and says why. Verdicts are made from what counts here and from nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from logagent.errors import LogAgentError, UnreadableError
from logagent.fleet.tables.store import Scratch, Store

HEARD_DAYS = 7
"""A host that sent something within these days before the report is missed when it is silent."""
TOPIC = ["cluster_id", "topic", "topic_id", "topic_key"]


@dataclass(frozen=True)
class Asked:
    """What a report is about. `as_of` is what ages are measured against; both times are aware."""

    day: date
    as_of: datetime
    max_age: timedelta

    @property
    def window(self) -> list[date]:
        """Dates on which a snapshot can lie that is still fresh at `as_of`, and a day more for skewed clocks."""
        days = self.max_age.days + 2
        return [self.day - timedelta(days=n) for n in reversed(range(days + 1))]

    @property
    def heard(self) -> list[date]:
        days = max(HEARD_DAYS, len(self.window))
        return [self.day - timedelta(days=n) for n in reversed(range(days + 1))]


@dataclass(frozen=True)
class Scope:
    """The frames that reports start from.

    - `hosts`: one row per known node: `cluster_id, node_id, host, snapshot_id, dt, at, received_at, age_seconds,
      skew_seconds,
      agent_version, kafka_version, dirs, counts` (bool: its snapshot is used) `, why` (null where it counts);
    - `clusters`: `cluster_id, source, offset, at, received_at, age_seconds, topics, partitions, dt, decided` (bool)
      `, why`;
    - `dirs`, `log_dirs`: rows of the hosts that count; `others`: those of `dirs` that are not current; `sums`: `dirs`
      by log dir, as ingest added them up; `assignments`: of the clusters that are decided;
    - `rows`: about how many directories; `topics`: names of the keys of both; `assigned_topics` and `nodes`: topics
      and nodes in the assignments.
    """

    asked: Asked
    hosts: DataFrame
    clusters: DataFrame
    dirs: DataFrame
    others: DataFrame
    log_dirs: DataFrame
    sums: DataFrame
    assignments: DataFrame
    topics: DataFrame
    assigned_topics: DataFrame
    nodes: DataFrame
    rows: int
    undecided: bool


def scope(store: Store, asked: Asked, scratch: Scratch) -> Scope:
    """Chooses; the small frames are kept in `scratch`. Raises `UnreadableError` where the store has lost rows."""
    files = store.read("files", asked.heard)
    clusters = scratch.keep("clusters", _clusters(files, asked))
    nodes = scratch.keep("nodes", _of_chosen(store, "brokers", clusters, asked))
    hosts = scratch.keep("hosts", _hosts(files, nodes, asked))
    used = _dates_used(files, hosts)
    counting = fn.broadcast(hosts.where("counts").select("cluster_id", "node_id", "dt"))

    def of_counting(table: str) -> DataFrame:
        """Rows of the hosts that count. A date all of whose hosts do is read as it is: nothing to look up per row."""
        whole = store.read(table, [row["dt"] for row in used if row["counting"] == row["hosts"]])
        mixed = [row["dt"] for row in used if row["counting"] != row["hosts"]]
        if not mixed:
            return whole
        return whole.unionByName(
            store.read(table, mixed).join(counting, ["cluster_id", "node_id", "dt"], how="left_semi")
        )

    decided = clusters.groupBy("decided", "dt").count().collect()
    ingested: dict[date, int | None] = {row.dt: None for row in decided if row.decided}
    ingested |= {row["dt"]: row["dirs"] for row in used}
    for day, dirs in sorted(ingested.items()):
        _reconcile(store, day, dirs)
    topics = store.read("agg_topic", sorted(ingested)).select(*TOPIC).distinct()
    topics = scratch.keep("topics", topics)
    assigned = _of_chosen(store, "agg_topic", clusters, asked).where(fn.col("assigned_partitions") > 0)
    return Scope(
        asked,
        hosts,
        clusters,
        of_counting("dirs"),
        scratch.keep("others", of_counting("others")),
        of_counting("logdirs"),
        of_counting("agg_logdir").select("cluster_id", "node_id", "log_dir", "dirs", "bytes", "allocated"),
        _of_chosen(store, "assignments", clusters, asked),
        topics,
        assigned.select(*TOPIC),
        nodes,
        sum(row["used"] for row in used),
        any(not row.decided for row in decided),
    )


def _dates_used(files: DataFrame, hosts: DataFrame) -> list[dict[str, Any]]:
    """Per date that a chosen snapshot lies in: `dt, hosts, dirs` that were ingested, `counting, used` of the chosen."""
    taken = files.where((fn.col("status") == "taken") & (fn.col("kind") == "snapshot")).groupBy("dt")
    ingested = taken.agg(fn.count("*").alias("hosts"), fn.sum("dirs").alias("dirs"))
    chosen = hosts.where("counts").groupBy("dt").agg(fn.count("*").alias("counting"), fn.sum("dirs").alias("used"))
    rows = chosen.join(ingested, "dt", how="inner").fillna(0).orderBy("dt").collect()
    return [row.asDict() for row in rows]


def _reconcile(store: Store, day: date, ingested: int | None) -> None:
    """The store has every row that ingest counted, in all tables that are read beside each other.

    `ingested` directories, None where none of the date are used. Footers are enough for most of it. Raises
    `UnreadableError`: assignments that lost their topics would be orphans, directories that are lost missing replicas.
    """
    partitions = store.read("assignments", [day]).count()
    by_topic = store.read("agg_topic", [day]).agg(
        fn.sum("dirs").alias("dirs"), fn.sum("assigned_partitions").alias("n")
    )
    topics = by_topic.collect()[0]
    hint = f"run `logagent fleet ingest --date {day}` again"
    if partitions != (topics.n or 0):
        raise UnreadableError(f"the store has {partitions} of {topics.n or 0} assigned partitions of {day}", hint=hint)
    if ingested is None:
        return
    found = store.read("dirs", [day]).count()
    nameless = store.read("others", [day]).where(fn.col("topic").isNull()).count()
    sums = store.read("agg_logdir", [day]).agg(fn.sum("dirs").alias("dirs")).collect()[0].dirs or 0
    if {found, sums, (topics.dirs or 0) + nameless} != {ingested}:
        raise UnreadableError(f"the store has {found} of {ingested} directories of {day}", hint=hint)


def check_keys(topics: DataFrame) -> None:
    """Raises `LogAgentError` if two topics have one key: their directories would be counted as one topic's."""
    counted = topics.agg(fn.count("*").alias("n"), fn.count_distinct("topic_key").alias("keys")).head()
    if counted is not None and counted["n"] != counted["keys"]:
        raise LogAgentError("two topics have the same 64-bit key", hint="report this: verdicts would not be exact")


def _happened() -> Column:
    """When a snapshot was taken, at the latest: a clock that runs ahead makes nothing younger than its arrival."""
    return fn.least("at", "received_at")


def _newest(files: DataFrame, kind: str, *key: str) -> DataFrame:
    newest = Window.partitionBy(*key).orderBy(_happened().desc(), fn.col("at").desc(), fn.col("file").desc())
    taken = files.where((fn.col("status") == "taken") & (fn.col("kind") == kind))
    return taken.withColumn("rank", fn.row_number().over(newest)).where(fn.col("rank") == 1).drop("rank")


def _age(asked: Asked) -> Column:
    return fn.lit(asked.as_of).cast("timestamp").cast("double") - _happened().cast("double")


def _clusters(files: DataFrame, asked: Asked) -> DataFrame:
    """Every cluster that sent anything, with its newest complete assignments and whether they can be used."""
    newest = _newest(files, "assignments", "cluster_id").withColumn("age_seconds", _age(asked))
    columns = ("source", "offset", "at", "received_at", "age_seconds", "topics", "partitions", "dt")
    everyone = files.select("cluster_id").where(fn.col("cluster_id").isNotNull()).distinct()
    limit = asked.max_age.total_seconds()
    why = (
        fn.when(fn.col("at").isNull(), "no complete assignments")
        .when(
            fn.col("age_seconds") > limit,
            fn.format_string("its newest complete assignments are %.1f h old", fn.col("age_seconds") / 3600),
        )
        .when(fn.coalesce("partitions", fn.lit(0)) == 0, "its newest complete assignments are empty")
    )
    known = everyone.join(newest.select("cluster_id", *columns), "cluster_id", how="left").withColumn("why", why)
    return known.withColumn("decided", fn.col("why").isNull())


def _of_chosen(store: Store, table: str, clusters: DataFrame, asked: Asked) -> DataFrame:
    """Rows of the assignments that were chosen, of decided clusters only."""
    chosen = clusters.where("decided").select("cluster_id", "dt")
    rows = store.read(table, asked.heard)
    return rows.join(fn.broadcast(chosen), ["cluster_id", "dt"], how="left_semi").drop("dt")


def _hosts(files: DataFrame, nodes: DataFrame, asked: Asked) -> DataFrame:
    key = ["cluster_id", "node_id"]
    newest = _newest(files, "snapshot", *key).withColumn("age_seconds", _age(asked))
    newest = newest.withColumn("skew_seconds", fn.col("at").cast("double") - fn.col("received_at").cast("double"))
    sent = files.where((fn.col("kind") == "snapshot") & fn.col("node_id").isNotNull())
    problems = sent.where(fn.col("status").isin("rejected", "waiting")).groupBy(*key)
    problem = problems.agg(
        fn.max_by(fn.concat_ws(": ", "reason", "detail"), fn.struct("received_at", "file")).alias("problem"),
        fn.max("host").alias("host_of_problem"),
    )
    everyone = sent.select(*key).union(nodes.select(*key)).distinct()
    columns = ("host", "snapshot_id", "dt", "at", "received_at", "age_seconds", "skew_seconds", "agent_version")
    known = everyone.join(newest.select(*key, *columns, "kafka_version", "dirs"), key, how="left").join(
        problem, key, how="left"
    )
    limit = asked.max_age.total_seconds()
    old = fn.format_string("its newest complete snapshot is %.1f h old", fn.col("age_seconds") / 3600)
    silent = fn.when(fn.col("at").isNull(), "it has sent no complete snapshot").when(fn.col("age_seconds") > limit, old)
    because = fn.when(
        silent.isNotNull() & fn.col("problem").isNotNull(), fn.concat(fn.lit(" ("), "problem", fn.lit(")"))
    )
    why = fn.concat(silent, fn.coalesce(because, fn.lit("")))
    named = known.withColumns({"why": why, "host": fn.coalesce("host", "host_of_problem")})
    return named.withColumn("counts", fn.col("why").isNull()).drop("problem", "host_of_problem")
