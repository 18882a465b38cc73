"""The two jobs, whole: `ingest_dates` and `report`.

Everything below works on DataFrames; what is small is collected here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from pyspark.sql import functions as fn

from logagent import __version__
from logagent.errors import LogAgentError
from logagent.fleet.report import growth, partitions, replicas, reports, verdicts
from logagent.fleet.report.output import Output
from logagent.fleet.report.scope import Asked, Scope, check_keys, scope
from logagent.fleet.report.summary import document, totals, warnings_of
from logagent.fleet.session import tune
from logagent.fleet.tables.store import Scratch, Store
from logagent.store.contract import GROWTH_DATES

Say = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """How a report is made; `now` is aware."""

    store: Store
    out: str
    now: datetime
    day: date | None = None
    max_age: timedelta = timedelta(hours=26)
    say: Say = lambda _: None


def asked(job: Job) -> Asked:
    """The date and the moment of a report.

    Without `day` it is the newest date of the store, seen from now; a day of the past is seen from its end. Raises
    `LogAgentError`
    if nothing was ingested.
    """
    known = job.store.dates()
    if job.day is not None:
        end = datetime.combine(job.day + timedelta(days=1), time(), UTC)
        return Asked(job.day, min(job.now, end), job.max_age)
    past = [day for day in known if day <= job.now.date()]
    if not past:
        raise LogAgentError(
            f"nothing was ingested into {job.store.uri}", hint="run `logagent fleet ingest` with the same --store first"
        )
    return Asked(past[-1], job.now, job.max_age)


def report(job: Job) -> dict[str, Any]:
    """Computes and writes every table, `report.json` and `index.html`; returns what `report.json` holds."""
    question = asked(job)
    job.say(f"{question.day}: choosing snapshots and assignments")
    output = Output(job.store.spark, job.store.files, job.store.files.qualify(job.out))
    output.begin()
    with Scratch(job.store.spark, job.store.files, output.uri) as scratch:
        chosen = scope(job.store, question, scratch)
        check_keys(chosen.topics)
        tune(job.store.spark, chosen.rows)
        warnings = _tables(job, chosen, output, scratch)
        content = document(job.now, question, chosen, output, totals(output), warnings)
    job.say("writing the page")
    _write(job, output, content)
    return content


def _tables(job: Job, chosen: Scope, output: Output, scratch: Scratch) -> list[str]:
    """Writes the tables in an order in which each is made from those before it; the warnings they gave."""
    say, store = job.say, job.store
    say("partitions against assignments")
    by_partition = output.table("usage_partitions", partitions.usage(chosen))
    keys = scratch.keep("keys", partitions.anomalies(by_partition))
    say("orphans, missing replicas, duplicates")
    wanted = scratch.keep("wanted", verdicts.wanted(chosen, keys))
    large = wanted.count() > verdicts.BROADCAST_KEYS
    found = scratch.keep("found", verdicts.looked_at(chosen, wanted, large=large))
    expected = scratch.keep("expected", verdicts.expected(chosen, wanted, large=large))
    judged = scratch.keep("judged", verdicts.judge(chosen, found, expected))
    doubted = {row.cluster_id: row.asDict() for row in verdicts.doubted(chosen, judged).collect()}
    believed, odd = (
        frame.where(~fn.col("cluster_id").isin(*doubted)) if doubted else frame for frame in (judged, expected)
    )
    copies = scratch.keep("copies", verdicts.copies(found))
    orphans = output.table("orphans", verdicts.orphans(believed, copies))
    output.table("missing_replicas", replicas.missing(chosen, odd, found, copies))
    output.table("duplicates", replicas.duplicates(chosen, found))
    say("usage")
    by_log_dir = output.table("usage_log_dirs", reports.log_dirs(chosen, orphans))
    by_host = output.table("usage_hosts", reports.hosts(chosen, by_log_dir))
    output.table("usage_clusters", reports.clusters(chosen, by_host))
    output.table("usage_topics", reports.topics(chosen, by_partition, orphans))
    say("leftovers, health, growth, deletion progress")
    output.table("leftovers", reports.leftovers(chosen, believed))
    output.table("log_dir_health", reports.health(chosen, believed, __version__))
    _over_time(store, chosen, output)
    return warnings_of(chosen, judged, doubted, output, large=large)


def _over_time(store: Store, chosen: Scope, output: Output) -> None:
    days = [day for day in store.dates() if day <= chosen.asked.day][-GROWTH_DATES:]
    output.table("growth", growth.growth(store, chosen, days))
    output.chart("chart_growth", growth.by_date(store, days), GROWTH_DATES * 1000)
    output.table("deletion_progress", growth.deletion_progress(store, chosen, days))
    input_of = store.read("quarantine", chosen.asked.window).withColumn("date", fn.col("dt"))
    output.table("quarantined_input", input_of.where(fn.col("dt") <= fn.lit(chosen.asked.day)))


def _write(job: Job, output: Output, content: dict[str, Any]) -> None:
    from logagent.fleet.page import render

    files = job.store.files
    files.write(f"{output.uri}/index.html", render(content, output.page).encode("utf-8", "backslashreplace"))
    files.write(f"{output.uri}/report.json", (json.dumps(content, indent=2) + "\n").encode())
