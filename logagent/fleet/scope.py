"""Who counts in a report: the hosts whose newest complete snapshot is fresh, and the clusters with usable assignments.

Everything else is unknown and says why. Verdicts are made from what counts here and from nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from logagent.errors import LogAgentError
from logagent.fleet.store import Scratch, Store

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
    - `dirs`, `log_dirs`: rows of the hosts that count; `assignments`: of the clusters that are decided;
    - `rows`: about how many directories; `topics`: names of the keys of both; `assigned_topics` and `nodes`: topics
      and nodes in the assignments.
    """

    asked: Asked
    hosts: DataFrame
    clusters: DataFrame
    dirs: DataFrame
    log_dirs: DataFrame
    assignments: DataFrame
    topics: DataFrame
    assigned_topics: DataFrame
    nodes: DataFrame
    rows: int


def scope(store: Store, asked: Asked, scratch: Scratch) -> Scope:
    """Chooses; the small frames are kept in `scratch`. Raises `LogAgentError` where two topics share a key."""
    files = store.read("files", asked.heard)
    clusters = scratch.keep("clusters", _clusters(files, asked))
    nodes = scratch.keep("nodes", _of_chosen(store, "brokers", clusters, asked))
    hosts = scratch.keep("hosts", _hosts(files, nodes, asked))
    counting = hosts.where("counts").select("cluster_id", "node_id", "dt")
    sizes = hosts.where("counts").groupBy("dt").agg(fn.sum("dirs").alias("dirs")).collect()
    used = [row.dt for row in sizes]
    counting = fn.broadcast(counting)
    dirs = store.read("dirs", used).join(counting, ["cluster_id", "node_id", "dt"], "left_semi")
    log_dirs = store.read("logdirs", used).join(counting, ["cluster_id", "node_id", "dt"], "left_semi")
    assigned_dates = [row.dt for row in clusters.where("decided").select("dt").distinct().collect()]
    topics = store.read("agg_topic", sorted({*used, *assigned_dates})).select(*TOPIC).distinct()
    topics = scratch.keep("topics", topics)
    assigned = _of_chosen(store, "agg_topic", clusters, asked).where(fn.col("assigned_partitions") > 0)
    return Scope(
        asked,
        hosts,
        clusters,
        dirs,
        log_dirs,
        _of_chosen(store, "assignments", clusters, asked),
        topics,
        assigned.select(*TOPIC),
        nodes,
        sum(int(row.dirs or 0) for row in sizes),
    )


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
    known = everyone.join(newest.select("cluster_id", *columns), "cluster_id", "left").withColumn("why", why)
    return known.withColumn("decided", fn.col("why").isNull())


def _of_chosen(store: Store, table: str, clusters: DataFrame, asked: Asked) -> DataFrame:
    """Rows of the assignments that were chosen, of decided clusters only."""
    chosen = clusters.where("decided").select("cluster_id", "dt")
    rows = store.read(table, asked.heard)
    return rows.join(fn.broadcast(chosen), ["cluster_id", "dt"], "left_semi").drop("dt")


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
    known = everyone.join(newest.select(*key, *columns, "kafka_version", "dirs"), key, "left").join(
        problem, key, "left"
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
