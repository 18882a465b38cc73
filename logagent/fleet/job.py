"""A whole report: what is bounded by hosts and log dirs runs on the driver, the rest in a handful of Spark actions."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent import __version__
from logagent.base.config.settings import problem_of
from logagent.base.errors import LogAgentError, TooFewHosts
from logagent.base.units import rfc3339_or_none
from logagent.fleet.page import render
from logagent.fleet.report import answers, audit, growth, replicas, usage, verdicts
from logagent.fleet.report.answers import Reclaimable, reclaim
from logagent.fleet.report.columns import TABLES, UNITS
from logagent.fleet.report.growth import MOST_LOST, changes
from logagent.fleet.report.output import Output, run_name
from logagent.fleet.report.replicas import document, leftovers, undecided, warnings_of
from logagent.fleet.report.scope import Scope, asked, scope
from logagent.fleet.report.usage import usage_partitions, usage_topics
from logagent.fleet.tables.choice import Row
from logagent.fleet.tables.frames import Scratch, local_frame, tune
from logagent.fleet.tables.store import Commit, Store

Say = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """How a report is made; `now` is timezone-aware. `commit`: an older commit of the date, while its run is kept.
    `names`: the operators' names for clusters, by id. `keep`: reports in `out` that are so much older are removed once
    this one is complete; None: none."""

    store: Store
    out: str
    now: datetime
    day: date | None = None
    max_age: timedelta = timedelta(hours=26)
    say: Say = lambda _: None
    with_partitions: bool = False
    commit: int | None = None
    order_keys: tuple[str, ...] = ()
    """`orders.keys`: without them no request is trusted, and no deletion is reported."""
    names: Mapping[str, str] = field(default_factory=dict)
    keep: timedelta | None = None
    bootstrap: Mapping[str, str] = field(default_factory=dict)
    """`bootstrap.servers` of clusters, by id, for the commands of the page."""


def report(job: Job) -> dict[str, Any]:
    """Computes and writes every table, `report.json` and `index.html`; returns what `report.json` holds.

    It is written below `out/<run_id>/`, and `out/latest` names it once it is complete. Raises `LogAgentError` for a
    date without ingested data, and what Spark raises; the last good report stays as it is.
    """
    store = job.store
    store.refresh()
    question = asked(store, job.now, job.day, job.max_age)
    chosen = scope(store, question, job.commit, job.say)
    run = run_name(str(question.day), job.now)
    output = Output(store.spark, store.files, store.files.qualify(job.out), run, question.day, job.keep)
    try:
        with Scratch(store.spark, store.files, output.uri) as scratch:
            tune(store.spark, sum(host["dirs"] or 0 for host in chosen.choice.counting))
            content = _tables(job, chosen, output, scratch)
        job.say("writing the page")
        output.finish(content, lambda: render(content, output.page))
    except BaseException:
        output.drop()
        raise
    return content


def need_hosts(content: Mapping[str, Any], share: float | None) -> None:
    """Raises `TooFewHosts` if less than this share of the known hosts is in a report (`report.json`)."""
    reporting, unknown = content["hosts"]["reporting"], content["hosts"]["unknown_total"]
    if share is not None and (not reporting or reporting < share * (reporting + unknown)):
        raise TooFewHosts(
            f"{reporting} of {reporting + unknown} known hosts report, fewer than {share:.0%}: the others are unknown",
            hint="log_dir_health of the report names them, and why",
        )


def _deletions(job: Job, warn: Say) -> list[Row]:
    """The progress of deletions across the fleet, for a store that is a mounted directory; what of it cannot be
    reported goes to `warn`: an empty table would say that there is none."""
    folder = job.store.files.local(job.store.uri)
    if folder is None:
        if job.store.files.exists(f"{job.store.uri}/control"):
            warn("deletions in an object store are not reported: see `logagent topics status`")
        return []
    if not (folder / "control").is_dir():
        return []
    if not job.order_keys:
        warn("this store has deletion requests, but orders.keys is not set, so none is reported")
        return []
    try:
        # Not everywhere: a machine that runs `submit.py` may have nothing but Spark.
        import cryptography  # noqa: F401

        from logagent.deletion.store.answers import clusters, deletion_progress
        from logagent.store.signing import public_key
    except ImportError as error:
        warn(f"this store has deletion requests, but {error.name} is not here to read them: none is reported")
        return []
    keys = tuple(public_key(text) for text in job.order_keys)
    rows: list[Row] = []
    for cluster_id in clusters(str(folder)):
        try:
            rows += deletion_progress(str(folder), cluster_id, keys, job.now)
        except LogAgentError as error:
            warn(f"the deletions of cluster {cluster_id} cannot be reported: {error}")
    return rows


@dataclass
class _Judged:
    """What the tables of directories come to. `undecided`: directories by reason; `unread`: how many were not read
    whole."""

    waste: Reclaimable
    gone: _Gone
    replicas: replicas.Counted
    doubted: dict[str, tuple[int, int]]
    undecided: dict[str, int]
    differ: list[Row]
    unread: int
    large: bool


def _tables(job: Job, chosen: Scope, output: Output, scratch: Scratch) -> dict[str, Any]:
    """Writes the tables, each from those before it; returns `report.json`."""
    judged = _directories(job, chosen, output, scratch)
    waste = judged.waste
    job.say("usage")
    by_log_dir = output.rows("usage_log_dirs", usage.log_dirs(chosen.choice, chosen.log_dirs, waste.places))
    by_host = output.rows("usage_hosts", usage.hosts(chosen.choice, by_log_dir))
    in_clusters = usage.clusters(chosen.choice, by_host, judged.replicas.clusters)
    by_cluster = output.rows("usage_clusters", in_clusters)
    output.table("usage_topics", usage_topics(chosen, waste.topics))
    if job.with_partitions:
        output.table("usage_partitions", usage_partitions(chosen))
    job.say("growth")
    commits = growth.history(chosen.store, chosen.asked.day, chosen.commit)
    ledgers = growth.ledgers(chosen.store, commits)
    ill = usage.health(chosen.choice, chosen.log_dirs, judged.differ, __version__, ledgers.ill)
    output.rows("log_dir_health", ill)
    growing = _growth(chosen, output, commits, ledgers)
    changed = _acts(job, chosen, output, scratch, commits, judged.gone.lost)
    unreported: list[str] = []
    output.rows("deletion_progress", _deletions(job, unreported.append))
    output.rows("quarantined_input", chosen.quarantine)
    tables = {name: output.tables[name] for name in TABLES if name in output.tables}
    warnings = warnings_of(
        chosen, judged.doubted, judged.undecided, judged.differ, judged.replicas,
        unread=judged.unread, large=judged.large,
    )  # fmt: skip
    only = _sum(waste, "dirs_only"), _sum(waste, "bytes_only")
    lost = judged.gone.partitions, judged.gone.replicas
    risk = answers.risks(chosen.choice, by_log_dir, growing, lost, judged.gone.elsewhere, only)
    answered: dict[str, Any] = {
        "disks": answers.disks(by_log_dir),
        "reclaim": answers.reclaimable(by_log_dir, waste.places, rfc3339_or_none(waste.next_due_ms), by_host),
        "risk": risk,
        "replicas": judged.replicas.document(),
        "steps": answers.steps(by_log_dir, growing, waste.largest, risk),
        "changes": changed,
    }
    warnings += answers.doubts(by_log_dir, answered["disks"]["unread"], risk["pace_unknown"])
    content = document(job.now, output.run, chosen, by_cluster, tables, [*warnings, *unreported])
    for cluster in content["clusters"]:
        cluster["name"] = job.names.get(cluster["cluster_id"])
    key, named = os.environ.get("LOGAGENT_ORDERS_KEY_FILE"), job.store.uri.replace("s3a://", "s3://", 1)
    local = job.store.files.local(job.store.uri)
    ways = {
        "host": socket.gethostname(),
        "store": str(local) if local is not None else None if problem_of(named) else named,
        "key": str(Path(key).absolute()) if key else None,
        "bootstrap": dict(job.bootstrap),
    }
    return content | {"place": output.uri, "commands": ways, "answers": answered}


def _acts(
    job: Job, chosen: Scope, output: Output, scratch: Scratch, commits: Mapping[date, Commit], lost: list[Row]
) -> list[Row]:
    """Writes `audit`; what has changed, by agents and otherwise."""
    job.say("what agents did, and what has changed")
    sinces = audit.since(chosen, commits, growth.compared(commits, chosen.asked.day))
    if not any(commit.rows("acts") for commit in commits.values()):
        output.rows("audit", [])
        return changes(chosen, commits, lost, None, sinces)
    acts = scratch.keep("audit", audit.rows(chosen, commits, sinces))
    audit.note_doubtful(chosen, acts, sinces)
    output.table("audit", acts)
    return changes(chosen, commits, lost, acts, sinces)


def _directories(job: Job, chosen: Scope, output: Output, scratch: Scratch) -> _Judged:
    """Writes the tables of directories and of replicas that are nowhere."""
    job.say("orphans, missing replicas, duplicates")
    suspects = verdicts.SuspectPartitions(chosen, scratch)
    judged = scratch.keep("judged", verdicts.judge(chosen, suspects))
    counted = _counted(judged)
    others = _others(chosen)
    doubted = verdicts.doubted(chosen, counted["orphans"], others.not_live)
    believed = judged
    if doubted:
        believed = judged.withColumns(_doubt(doubted))
    copies = scratch.keep("copies", suspects.copies())
    output.table("orphans", verdicts.orphans(believed, copies))
    compared = scratch.keep("replicas", replicas.states(chosen, suspects, copies, doubted))
    gone = _gone(output, output.table("missing_replicas", replicas.missing(compared)))
    output.table("undecided_replicas", replicas.undecided_replicas(compared))
    output.table("duplicates", replicas.duplicates(chosen, suspects))
    output.table("leftovers", leftovers(chosen, suspects, believed, copies, doubted))
    waste = reclaim(output, scratch)
    output.table("undecided", undecided(believed))
    why = dict(counted["undecided"])
    if doubted:
        why["assignments-doubted"] = sum(count for count, _ in doubted.values())
    in_states = replicas.count(chosen, suspects, compared)
    return _Judged(waste, gone, in_states, doubted, why, counted["differ"], others.unread, suspects.large)


def _sum(waste: Reclaimable, name: str) -> int:
    return sum(sums[name] for sums in waste.places.values())


@dataclass
class _Gone:
    """The missing replicas: partitions without any copy (the first of them as rows) and their replicas, and replicas
    with a copy elsewhere."""

    lost: list[Row]
    partitions: int
    replicas: int
    elsewhere: int


def _gone(output: Output, rows: list[Row] | None) -> _Gone:
    key = ["cluster_id", "topic", "topic_id", "partition"]
    if rows is None:
        written = output.written("missing_replicas").where(fn.col("copies_elsewhere") == 0)
        lost = written.select(*key).distinct()
        first = [row.asDict() for row in lost.limit(MOST_LOST + 1).collect()]
        count = written.count()
        return _Gone(first, lost.count(), count, output.tables["missing_replicas"]["rows"] - count)
    none = [row for row in rows if not row["copies_elsewhere"]]
    found = {tuple(row[name] for name in key): {name: row[name] for name in key} for row in none}
    return _Gone(list(found.values()), len(found), len(none), len(rows) - len(none))


def _counted(judged: DataFrame) -> dict[str, Any]:
    """One pass over the verdicts: orphans by cluster, reasons, hosts whose agent decided differently."""
    # What is assigned and its agent calls an orphan is undecided (`judge`): the two disagree all the same.
    contradicted = (fn.col("verdict") == "orphan") & (fn.col("why") == "sources-disagree")
    differs = fn.coalesce(contradicted, fn.lit(False)) | (
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
    """Orphans of clusters whose assignments are in doubt are undecided."""
    theirs = fn.col("cluster_id").isin(*doubted) & (fn.col("fleet_verdict") == "orphan")
    return {
        "fleet_verdict": fn.when(theirs, "unknown").otherwise(fn.col("fleet_verdict")),
        "why": fn.when(theirs, "assignments-doubted").otherwise(fn.col("why")),
    }


@dataclass
class _Others:
    """`not_live`: directories of each cluster that are neither current nor future. `unread`: partition directories that
    their agents could not read whole."""

    not_live: dict[str, int]
    unread: int


def _others(chosen: Scope) -> _Others:
    live = fn.col("kind").isin("current", "future")
    unread = fn.col("error").isNotNull() & (live | fn.col("kind").isin("stray", "delete"))
    figures = [fn.count_if(~live).alias("not_live"), fn.count_if(unread).alias("unread")]
    rows = chosen.others.groupBy("cluster_id").agg(*figures).collect()
    return _Others({row["cluster_id"]: row["not_live"] for row in rows}, sum(row["unread"] for row in rows))


def _growth(chosen: Scope, output: Output, commits: Mapping[date, Commit], ledgers: growth.Ledgers) -> list[Row]:
    """Writes `growth` and its chart; the rows of log dirs."""
    rows = growth.log_dirs(chosen, ledgers)
    of_topics = growth.topics(chosen, commits)
    if of_topics is None:
        output.rows("growth", rows)
    else:
        types = {name: UNITS[unit][0] for name, unit in TABLES["growth"].units.items()}
        mine = local_frame(output.spark, rows, ", ".join(f"`{name}` {kind}" for name, kind in types.items()))
        theirs = of_topics.select(*(fn.col(name).cast(kind).alias(name) for name, kind in types.items()))
        output.table("growth", mine.unionByName(theirs))
    output.chart("chart_growth", ledgers.by_date())
    return rows
