"""A report, whole: what is bounded by hosts and log dirs on the driver, the rest in a handful of Spark actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent import __version__
from logagent.fleet.report import growth, replicas, usage, verdicts
from logagent.fleet.report.leftovers import leftovers, undecided
from logagent.fleet.report.output import Output, run_name
from logagent.fleet.report.scope import Scope, asked, scope
from logagent.fleet.report.summary import document, warnings_of
from logagent.fleet.report.topics import usage_partitions, usage_topics
from logagent.fleet.session import tune
from logagent.fleet.tables.choice import Row
from logagent.fleet.tables.files import literal
from logagent.fleet.tables.frames import Scratch, local_frame
from logagent.fleet.tables.store import Store
from logagent.store.contract import TABLES

Say = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """How a report is made; `now` is aware. `commit`: an older commit of the date, while its run is kept."""

    store: Store
    out: str
    now: datetime
    day: date | None = None
    max_age: timedelta = timedelta(hours=26)
    say: Say = lambda _: None
    with_partitions: bool = False
    commit: int | None = None


def report(job: Job) -> dict[str, Any]:
    """Computes and writes every table, `report.json` and `index.html`; returns what `report.json` holds.

    It lies below `out/<run_id>/`, and `out/latest` names it once it is whole. Raises `LogAgentError` for a date of
    which nothing was ingested, and what Spark raises; the last good report stays as it is.
    """
    store = job.store
    store.refresh()
    question = asked(store, job.now, job.day, job.max_age)
    chosen = scope(store, question, job.commit, job.say)
    output = Output(store.spark, store.files, store.files.qualify(job.out), run_name(str(question.day), job.now))
    try:
        with Scratch(store.spark, store.files, output.uri) as scratch:
            tune(store.spark, sum(host["dirs"] or 0 for host in chosen.choice.counting))
            content = _tables(job, chosen, output, scratch)
        job.say("writing the page")
        output.finish(content, lambda: _page(content, output))
    except BaseException:
        output.drop()
        raise
    return content


def _page(content: dict[str, Any], output: Output) -> str:
    from logagent.fleet.page import render

    return render(content, output.page)


def _tables(job: Job, chosen: Scope, output: Output, scratch: Scratch) -> dict[str, Any]:
    """Writes the tables in an order in which each is made from those before it; `report.json`."""
    job.say("orphans, missing replicas, duplicates")
    odd = verdicts.Odd(chosen, scratch)
    judged = scratch.keep("judged", verdicts.judge(chosen, odd))
    counted = _counted(judged)
    doubted = verdicts.doubted(chosen, counted["orphans"], _not_live(chosen))
    believed, expected = judged, odd.expected
    if doubted:
        believed = judged.withColumns(_doubt(doubted))
        expected = odd.expected.where(~fn.col("cluster_id").isin(*doubted))
    odd.expected = expected
    copies = scratch.keep("copies", odd.copies())
    output.table("orphans", verdicts.orphans(believed, copies))
    sums = _orphan_sums(output, scratch)
    output.table("missing_replicas", replicas.missing(chosen, odd, copies))
    output.table("duplicates", replicas.duplicates(chosen, odd))
    output.table("leftovers", leftovers(chosen, believed))
    output.table("undecided", undecided(believed))
    job.say("usage")
    by_log_dir = output.rows("usage_log_dirs", usage.log_dirs(chosen.choice, chosen.log_dirs, sums.by_log_dir))
    by_host = output.rows("usage_hosts", usage.hosts(chosen.choice, by_log_dir))
    by_cluster = output.rows("usage_clusters", usage.clusters(chosen.choice, by_host))
    output.table("usage_topics", usage_topics(chosen, sums.by_topic))
    if job.with_partitions:
        output.table("usage_partitions", usage_partitions(chosen))
    output.rows("log_dir_health", usage.health(chosen.choice, chosen.log_dirs, counted["differ"], __version__))
    job.say("growth")
    _over_time(chosen, output)
    output.rows("deletion_progress", [])
    output.rows("quarantined_input", chosen.quarantine)
    why = dict(counted["undecided"])
    if doubted:
        why["assignments-doubted"] = sum(count for count, _ in doubted.values())
    told = {name: output.tables[name] for name in TABLES if name in output.tables}
    warnings = warnings_of(chosen, doubted, why, counted["differ"], told, large=odd.large)
    return document(job.now, output.run, chosen, by_cluster, told, warnings)


def _counted(judged: DataFrame) -> dict[str, Any]:
    """One pass over what was judged: orphans by cluster, reasons, hosts whose agent decided otherwise."""
    differs = (
        fn.col("verdict").isin("assigned", "orphan")
        & fn.col("fleet_verdict").isin("assigned", "orphan")
        & (fn.col("verdict") != fn.col("fleet_verdict"))
    )
    rows = (
        judged.groupBy("cluster_id", "node_id", "fleet_verdict", "why", differs.alias("differs"))
        .agg(fn.count("*").alias("n"), fn.min("name").alias("example"))
        .collect()
    )
    orphans: dict[str, int] = {}
    undecided_: dict[str, int] = {}
    differ: dict[tuple[str, int], Row] = {}
    for row in rows:
        if row["fleet_verdict"] == "orphan":
            orphans[row["cluster_id"]] = orphans.get(row["cluster_id"], 0) + row["n"]
        elif row["fleet_verdict"] == "unknown":
            undecided_[row["why"]] = undecided_.get(row["why"], 0) + row["n"]
        if row["differs"]:
            key = (row["cluster_id"], row["node_id"])
            one = differ.setdefault(key, {"cluster_id": key[0], "node_id": key[1], "n": 0, "example": row["example"]})
            one["n"] += row["n"]
            one["example"] = min(one["example"], row["example"])
    return {
        "orphans": [{"cluster_id": cluster, "count": count} for cluster, count in orphans.items()],
        "undecided": undecided_,
        "differ": [differ[key] for key in sorted(differ)],
    }


def _doubt(doubted: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Orphans of clusters whose assignments are doubted are undecided."""
    theirs = fn.col("cluster_id").isin(*doubted) & (fn.col("fleet_verdict") == "orphan")
    return {
        "fleet_verdict": fn.when(theirs, "unknown").otherwise(fn.col("fleet_verdict")),
        "why": fn.when(theirs, "assignments-doubted").otherwise(fn.col("why")),
    }


def _not_live(chosen: Scope) -> dict[str, int]:
    """How many directories of each cluster are neither current nor future."""
    rows = chosen.others.where(~fn.col("kind").isin("current", "future")).groupBy("cluster_id").count().collect()
    return {row["cluster_id"]: row["count"] for row in rows}


@dataclass
class _Sums:
    by_log_dir: dict[tuple[str, int, str], tuple[int, int]]
    by_topic: DataFrame


def _orphan_sums(output: Output, scratch: Scratch) -> _Sums:
    """Orphans by log dir and by topic, from the written table."""
    written = output.spark.read.schema(
        "cluster_id string, node_id bigint, log_dir string, topic string, topic_id string, bytes bigint"
    ).parquet(literal(f"{output.uri}/parquet/orphans"))
    if not output.tables["orphans"]["rows"]:
        ddl = "cluster_id string, topic string, topic_id string, orphans bigint, orphan_bytes bigint"
        return _Sums({}, local_frame(output.spark, [], ddl))
    counted = [fn.count("*").alias("orphans"), fn.coalesce(fn.try_sum("bytes"), fn.lit(0)).alias("orphan_bytes")]
    places = written.groupBy("cluster_id", "node_id", "log_dir").agg(*counted).collect()
    by_log_dir = {(r["cluster_id"], r["node_id"], r["log_dir"]): (r["orphans"], r["orphan_bytes"]) for r in places}
    return _Sums(by_log_dir, written.groupBy("cluster_id", "topic", "topic_id").agg(*counted))


def _over_time(chosen: Scope, output: Output) -> None:
    commits = growth.history(chosen.store, chosen.asked.day, chosen.commit)
    ledgers = {day: chosen.store.small("log_dirs", commit) for day, commit in commits.items()}
    rows = growth.log_dirs(chosen, ledgers)
    of_topics = growth.topics(chosen, commits)
    if of_topics is None:
        output.rows("growth", rows)
    else:
        names = TABLES["growth"].names
        types = {c.name: c.unit for c in TABLES["growth"].columns}
        kinds = {"int": "bigint", "bytes": "bigint", "days": "double", "date": "date", "text": "string"}
        ddl = ", ".join(f"`{name}` {kinds[types[name]]}" for name in names)
        mine = local_frame(output.spark, rows, ddl)
        theirs = of_topics.select(*(fn.col(name).cast(kinds[types[name]]).alias(name) for name in names))
        output.table("growth", mine.unionByName(theirs))
    output.chart("chart_growth", growth.by_date(ledgers))
