"""Growth, days until full, and deletion progress: what several dates say together."""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from logagent.fleet.report.scope import Scope
from logagent.fleet.report.verdicts import HOST
from logagent.fleet.tables.store import Store

MIN_DATES = 2


def growth(store: Store, scope: Scope, days: list[date]) -> DataFrame:
    """`growth`: bytes a day by least squares over the dates at hand, of log dirs and of topics.

    Of a log dir it is the used bytes of its file system, and `days_to_full` = free / growth. Of a topic only dates
    count on which
    exactly the same hosts of its cluster reported as on the newest. Without two dates, or where it does not grow,
    there is no number.
    """
    return _log_dirs(store, scope, days).unionByName(_topics(store, days), allowMissingColumns=True)


def _fitted(rows: DataFrame, key: list[str], value: str) -> DataFrame:
    day = fn.unix_date("dt")
    newest = fn.max_by(value, "dt")
    return (
        rows.groupBy(*key)
        .agg(
            fn.min("dt").alias("first_date"),
            fn.max("dt").alias("last_date"),
            fn.count_distinct("dt").alias("dates"),
            newest.alias("bytes"),
            fn.regr_slope(value, day).alias("slope"),
        )
        .where(fn.col("dates") >= MIN_DATES)
        .withColumn("bytes_per_day", fn.when(fn.col("slope") > 0, fn.round("slope").cast("bigint")))
    )


def _log_dirs(store: Store, scope: Scope, days: list[date]) -> DataFrame:
    key = [*HOST, "log_dir"]
    rows = store.read("agg_logdir", days).where(fn.col("used").isNotNull())
    now = scope.log_dirs.select(*key, "free")
    fitted = _fitted(rows, key, "used").join(now, key, how="inner")
    named = fitted.join(fn.broadcast(scope.hosts.select(*HOST, "host")), HOST, how="inner")
    full = fn.when(fn.col("slope") > 0, fn.round(fn.col("free") / fn.col("slope"), 2))
    return named.withColumns({"scope": fn.lit("log_dir"), "days_to_full": full}).drop("slope")


def _topics(store: Store, days: list[date]) -> DataFrame:
    reported = store.read("files", days).where((fn.col("status") == "taken") & (fn.col("kind") == "snapshot"))
    hosts = reported.groupBy("cluster_id", "dt").agg(fn.sort_array(fn.collect_set("node_id")).alias("hosts"))
    newest = fn.max_by("hosts", "dt").over(Window.partitionBy("cluster_id"))
    same = hosts.withColumn("newest", newest).where(fn.col("hosts") == fn.col("newest"))
    same = same.select("cluster_id", "dt")
    rows = store.read("agg_topic", days).where(fn.col("dirs") > 0)
    rows = rows.join(fn.broadcast(same), ["cluster_id", "dt"], how="left_semi")
    fitted = _fitted(rows, ["cluster_id", "topic", "topic_id"], "bytes")
    return fitted.withColumns({"scope": fn.lit("topic"), "days_to_full": fn.lit(None).cast("double")}).drop("slope")


def by_date(store: Store, days: list[date]) -> DataFrame:
    """`chart_growth`: sums of each cluster and date, with how many hosts they are of."""
    return (
        store.read("agg_logdir", days)
        .groupBy("cluster_id", fn.col("dt").alias("date"))
        .agg(
            fn.count_distinct("node_id").alias("hosts"),
            *(fn.sum(name).alias(name) for name in ("bytes", "used", "size")),
        )
    )


def deletion_progress(store: Store, scope: Scope, days: list[date]) -> DataFrame:
    """`deletion_progress`: of the directories seen marked since the first date, how many are gone, by topic.

    A directory counts as removed when its host reported later without it; one on a host or in a log dir that does not
    count today is still to be removed.
    """
    key = [*HOST, "log_dir", "name"]
    marked = store.read("others", days).where(fn.col("kind") == "delete")
    ever = marked.groupBy(*key).agg(
        fn.min("dt").alias("since"),
        fn.max("bytes").alias("bytes"),
        fn.max("topic").alias("topic"),
    )
    now = scope.others.where(fn.col("kind") == "delete").select(*key, fn.lit(True).alias("there")).distinct()
    readable = scope.log_dirs.where(fn.col("health") != "offline").select(
        *HOST, "log_dir", fn.lit(True).alias("looked")
    )
    rows = ever.join(now, key, how="left").join(fn.broadcast(readable.distinct()), [*HOST, "log_dir"], how="left")
    gone = fn.col("there").isNull() & fn.col("looked").isNotNull()
    host_done = rows.withColumn("gone", gone).groupBy("cluster_id", "topic", "node_id")
    by_host = host_done.agg(
        fn.count("*").alias("marked"),
        fn.sum("bytes").alias("marked_bytes"),
        fn.count_if("gone").alias("removed"),
        fn.sum(fn.when(fn.col("gone"), fn.col("bytes")).otherwise(0)).alias("removed_bytes"),
        fn.min("since").alias("since"),
    )
    sums = [fn.sum(name).alias(name) for name in ("marked", "marked_bytes", "removed", "removed_bytes")]
    progress = by_host.groupBy("cluster_id", "topic").agg(
        *sums,
        fn.count("*").alias("hosts"),
        fn.count_if(fn.col("removed") == fn.col("marked")).alias("hosts_done"),
        fn.min("since").alias("since"),
    )
    share = fn.round(fn.col("removed") / fn.col("marked"), 6)
    return progress.withColumns({"remaining": fn.col("marked") - fn.col("removed"), "done_share": share})
