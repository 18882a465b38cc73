"""The report tables that come from the hosts' own sums: usage, health, leftovers. DataFrame → DataFrame."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from logagent.fleet.report.scope import Scope
from logagent.fleet.report.verdicts import HOST
from logagent.fleet.tables.schema import topic_key
from logagent.store.contract import LEDGER

LOG_DIR = [*HOST, "log_dir"]
OVERDUE_SECONDS = 3660
"""`-delete` dirs older than Kafka's default delay (60 s) plus `cleanup.leftover_grace` (1 h) are overdue."""
SKEW_SECONDS = 300


def _sum(*names: str) -> list[Column]:
    return [fn.sum(name).alias(name) for name in names]


def _of_kind(kind: str) -> Column:
    return fn.sum(fn.when(fn.col("kind") == kind, fn.col("bytes")).otherwise(0)).alias(kind)


def orphan_sums(orphans: DataFrame, *key: str) -> DataFrame:
    """`orphans` and `orphan_bytes` by `key`."""
    return orphans.groupBy(*key).agg(fn.count("*").alias("orphans"), fn.sum("bytes").alias("orphan_bytes"))


def with_orphans(frame: DataFrame, orphans: DataFrame, *key: str) -> DataFrame:
    """`frame` with the orphan sums of its key, zero where there are none."""
    counted = frame.join(orphan_sums(orphans, *key), [*key], how="left")
    return counted.fillna(0, ["orphans", "orphan_bytes"])


def log_dirs(scope: Scope, orphans: DataFrame) -> DataFrame:
    """`usage_log_dirs`. `skew` is bytes against the mean of the host's log dirs that can be read."""
    hosts = scope.hosts.where("counts").select(*HOST, "host")
    rows = scope.log_dirs.join(scope.sums, LOG_DIR, how="full_outer").fillna(0, ["dirs", "bytes", "allocated"])
    counted = with_orphans(rows, orphans, *LOG_DIR).join(fn.broadcast(hosts), HOST, how="inner")
    readable = fn.when(fn.coalesce("health", fn.lit("")) != "offline", fn.col("bytes"))
    mean = fn.avg(readable).over(Window.partitionBy(*HOST))
    return counted.withColumns(
        {
            "used_share": fn.round(fn.try_divide("used", "size"), 6),
            "skew": fn.round(fn.try_divide(readable, mean), 6),
        }
    )


def hosts(scope: Scope, by_log_dir: DataFrame) -> DataFrame:
    """`usage_hosts`, from `usage_log_dirs`. `skew` is bytes against the mean of the cluster's hosts."""
    sums = by_log_dir.groupBy(*HOST).agg(
        fn.count("*").alias("log_dirs"),
        fn.count_if(fn.col("health") == "offline").alias("offline_log_dirs"),
        *_sum("dirs", "bytes", "allocated", *LEDGER, "orphans", "orphan_bytes"),
        fn.max("skew").alias("log_dir_skew"),
    )
    known = scope.hosts.where("counts").select(
        *HOST,
        "host",
        "agent_version",
        "kafka_version",
        "snapshot_id",
        fn.col("at").alias("snapshot_at"),
        fn.round("age_seconds", 3).alias("snapshot_age_seconds"),
        fn.round("skew_seconds", 3).alias("clock_skew_seconds"),
    )
    counts = ["log_dirs", "offline_log_dirs", "dirs", "bytes", "allocated", "orphans", "orphan_bytes"]
    rows = known.join(sums, HOST, how="left").fillna(0, counts)
    mean = fn.avg("bytes").over(Window.partitionBy("cluster_id"))
    return rows.withColumns(
        {
            "used_share": fn.round(fn.try_divide("used", "size"), 6),
            "skew": fn.round(fn.try_divide("bytes", mean), 6),
        }
    )


def clusters(scope: Scope, by_host: DataFrame) -> DataFrame:
    """`usage_clusters`. `host_skew` is the largest host against the mean."""
    sums = by_host.groupBy("cluster_id").agg(
        *_sum("log_dirs", "dirs", "bytes", "allocated", *LEDGER, "orphans", "orphan_bytes"),
        fn.max("skew").alias("host_skew"),
    )
    heard = scope.hosts.groupBy("cluster_id").agg(
        fn.count_if("counts").alias("hosts"), fn.count_if(~fn.col("counts")).alias("unknown_hosts")
    )
    known = (
        scope.clusters.select("cluster_id").join(heard, "cluster_id", how="left").join(sums, "cluster_id", how="left")
    )
    counts = ["hosts", "unknown_hosts", "log_dirs", "dirs", "bytes", "allocated", "orphans", "orphan_bytes"]
    return known.fillna(0, counts)


def topics(scope: Scope, partitions: DataFrame, orphans: DataFrame) -> DataFrame:
    """`usage_topics`: directories of every kind, and the spread of sizes over partitions (the written ones).

    `partitions` is the written `usage_partitions`: the current directories have been added up there.
    """
    key = ["cluster_id", "topic", "topic_id"]
    others = scope.others.where(fn.col("topic_key").isNotNull()).groupBy("topic_key")
    of_others = others.agg(
        fn.count("*").alias("copies"), *_sum("bytes", "allocated"), *map(_of_kind, ("future", "stray", "delete"))
    )
    nothing = {name: fn.lit(0) for name in ("future", "stray", "delete")}
    current = partitions.where(fn.col("copies") > 0).groupBy(topic_key().alias("topic_key"))
    of_current = current.agg(
        *_sum("copies", "bytes", "allocated"),
        fn.count("*").alias("partitions"),
        fn.max("largest_copy").alias("largest_partition"),
        fn.avg("largest_copy").alias("mean"),
    ).withColumns({"current": fn.col("bytes"), **nothing})
    both = of_current.unionByName(of_others.withColumn("current", fn.lit(0)), allowMissingColumns=True)
    sums = both.groupBy("topic_key").agg(
        *_sum("copies", "bytes", "allocated", "current", *nothing, "partitions"),
        *(fn.max(name).alias(name) for name in ("largest_partition", "mean")),
    )
    named = sums.join(scope.topics, "topic_key", how="inner").fillna(0, ["partitions"])
    named = named.withColumn("skew", fn.round(fn.try_divide("largest_partition", "mean"), 6))
    found = orphan_sums(orphans.where(fn.col("topic").isNotNull()), *key).transform(_same_keys)
    counted = named.join(found, _null_safe(key), how="left")
    return counted.fillna(0, ["orphans", "orphan_bytes"])


def _same_keys(frame: DataFrame) -> DataFrame:
    """`frame` with its topic columns under names of their own: topic ids are null in old clusters, and null is no
    key."""
    return frame.withColumnsRenamed({name: f"r_{name}" for name in ("cluster_id", "topic", "topic_id")})


def _null_safe(key: list[str]) -> list[Column]:
    return [fn.col(name).eqNullSafe(fn.col(f"r_{name}")) for name in key]


def leftovers(scope: Scope, judged: DataFrame) -> DataFrame:
    """`leftovers`: strays, `-delete` dirs that are overdue, and `-future` dirs that are orphans.

    Ages are on the host's own clock; a `-delete` dir without a known moment of marking is listed, its age being
    unknown.
    """
    host = scope.hosts.select(*HOST, "host", fn.col("at").alias("snapshot_at"))
    rows = scope.others.where(fn.col("kind").isin("stray", "delete")).join(fn.broadcast(host), HOST, how="inner")
    age = fn.col("snapshot_at").cast("double") - fn.col("marked_at").cast("double")
    aged = rows.withColumn("age_seconds", fn.greatest(fn.round(age, 3), fn.lit(0.0)))
    due = (fn.col("kind") == "stray") | fn.coalesce(fn.col("age_seconds") > OVERDUE_SECONDS, fn.lit(True))
    why = fn.when(fn.col("kind") == "stray", "stray").otherwise("overdue")
    abandoned = judged.where((fn.col("kind") == "future") & (fn.col("fleet_verdict") == "orphan"))
    since = fn.col("at").cast("double") - fn.coalesce("first_seen", "newest_mtime").cast("double")
    abandoned = abandoned.withColumn("age_seconds", fn.greatest(fn.round(since, 3), fn.lit(0.0)))
    columns = [*HOST, "host", "log_dir", "name", "kind", "topic", "topic_id", "partition", "bytes", "allocated"]
    columns += ["age_seconds", "marked_at", "why"]
    both = aged.where(due).withColumn("why", why).select(*columns)
    return both.unionByName(abandoned.withColumn("why", fn.lit("abandoned")).select(*columns))


def health(scope: Scope, judged: DataFrame, oldest_agent: str) -> DataFrame:
    """`log_dir_health`: log dirs that are not online, hosts and agents that need a look."""
    hosts = scope.hosts
    none = fn.lit(None).cast("string")
    columns: list[Column | str] = [*HOST, "host", "log_dir", "finding", "detail", fn.col("at").alias("snapshot_at")]
    sick = scope.log_dirs.where(fn.col("health") != "online").join(
        fn.broadcast(hosts.select(*HOST, "host", "at")), HOST, how="inner"
    )
    sick = sick.withColumns({"finding": fn.col("health"), "detail": fn.col("reason")}).select(*columns)
    unknown = hosts.where(~fn.col("counts"))
    unknown = unknown.withColumns({"log_dir": none, "finding": fn.lit("unknown-host"), "detail": fn.col("why")})
    counting = hosts.where("counts").withColumn("log_dir", none)
    version = fn.col("agent_version")
    old = counting.where(_version(version) < _version(fn.lit(oldest_agent)))
    says = fn.concat(fn.lit("agent "), version, fn.lit(f"; the newest here is {oldest_agent}"))
    old = old.withColumns({"finding": fn.lit("old-agent"), "detail": says})
    skewed = counting.where(fn.abs("skew_seconds") > SKEW_SECONDS)
    ahead = fn.format_string("its clock is %.0f s ahead of the store", fn.col("skew_seconds"))
    behind = fn.format_string(
        "received %.0f s after its own time: a slow clock, or delivered late", -fn.col("skew_seconds")
    )
    skew = fn.when(fn.col("skew_seconds") > 0, ahead).otherwise(behind)
    skewed = skewed.withColumns({"finding": fn.lit("clock-skew"), "detail": skew})
    differ = verdicts_differ(judged).join(fn.broadcast(hosts.select(*HOST, "host", "at")), HOST, how="inner")
    parts = [unknown, old, skewed, differ.withColumn("log_dir", none)]
    whole = sick
    for part in parts:
        whole = whole.unionByName(part.select(*columns))
    return whole


def _version(text: Column) -> Column:
    """Major, minor and patch as one comparable array; null where the text is no version."""
    numbers = fn.regexp_extract_all(text, fn.lit(r"(\d{1,6})"))
    return fn.when(fn.size(numbers) >= 2, fn.transform(fn.slice(numbers, 1, 3), lambda n: n.cast("int")))


def verdicts_differ(judged: DataFrame) -> DataFrame:
    """Hosts whose agent decided otherwise about directories that were looked at: `finding, detail`."""
    said = fn.col("verdict").isin("assigned", "orphan")
    other = judged.where(said & fn.col("fleet_verdict").isin("assigned", "orphan"))
    other = other.where(fn.col("verdict") != fn.col("fleet_verdict"))
    counted = other.groupBy(*HOST).agg(fn.count("*").alias("n"), fn.min("name").alias("example"))
    detail = fn.format_string("%d directories, e.g. %s: the agent and the fleet decide otherwise", "n", "example")
    return counted.withColumns({"finding": fn.lit("verdicts-differ"), "detail": detail})
