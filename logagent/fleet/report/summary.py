"""`report.json`: totals, what is unknown and why, and warnings in sentences."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.report.output import Output
from logagent.fleet.report.scope import Asked, Scope
from logagent.fleet.tables.schema import rfc3339 as rfc3339_column
from logagent.fleet.tables.store import literal
from logagent.store.contract import REPORT_SCHEMA, SHOWN_UNKNOWN_HOSTS, TABLES
from logagent.store.files import rfc3339

SHOWN_CLUSTERS = 10_000
NAMED_IN_WARNINGS = 5
_SUMS = ("bytes", "allocated", "current", "future", "stray", "delete", "other", "orphans", "orphan_bytes")


def totals(output: Output) -> dict[str, int]:
    """The totals of `report.json`, from the tables that were written."""
    written = output.spark.read.parquet(literal(f"{output.uri}/parquet/usage_clusters"))
    sums = written.agg(*(fn.coalesce(fn.sum(name), fn.lit(0)).alias(name) for name in _SUMS)).first()
    found = {name: int(sums[name]) for name in _SUMS} if sums is not None else dict.fromkeys(_SUMS, 0)
    counts = {name: output.tables[name]["rows"] for name in ("missing_replicas", "duplicates", "leftovers")}
    return {**found, **counts}


def document(
    at: datetime, asked: Asked, scope: Scope, output: Output, sums: dict[str, int], warnings: list[str]
) -> dict[str, Any]:
    """`report.json`, as the contract defines it."""
    unknown = scope.hosts.where(~fn.col("counts"))
    shown = unknown.orderBy("cluster_id", "node_id").limit(SHOWN_UNKNOWN_HOSTS)
    return {
        "schema": REPORT_SCHEMA,
        "run_id": f"{asked.day}-{at:%Y%m%dT%H%M%SZ}",
        "at": rfc3339(at),
        "as_of": rfc3339(asked.as_of),
        "date": asked.day.isoformat(),
        "clusters": _clusters(scope, output),
        "hosts": {
            "reporting": scope.hosts.where("counts").count(),
            "unknown": [row.asDict() for row in shown.select("cluster_id", "node_id", "why").collect()],
            "unknown_total": unknown.count(),
        },
        "totals": sums,
        "tables": {name: output.tables[name] for name in TABLES},
        "warnings": warnings,
    }


def _clusters(scope: Scope, output: Output) -> list[dict[str, Any]]:
    usage = output.spark.read.parquet(literal(f"{output.uri}/parquet/usage_clusters")).select(
        "cluster_id", "hosts", "unknown_hosts"
    )
    known = scope.clusters.join(usage, "cluster_id", how="left").withColumn("at", rfc3339_column("at"))
    rows = known.orderBy("cluster_id").limit(SHOWN_CLUSTERS).collect()
    return [
        {
            "cluster_id": row.cluster_id,
            "hosts": int(row.hosts or 0),
            "unknown_hosts": int(row.unknown_hosts or 0),
            "assignments": None
            if row["at"] is None
            else {
                "source": row.source,
                "at": row["at"],
                "age_seconds": round(row.age_seconds, 3),
                "topics": int(row.topics or 0),
                "partitions": int(row.partitions or 0),
            },
            "verdicts": "decided" if row.decided else "unknown",
            "why": row.why,
        }
        for row in rows
    ]


def warnings_of(
    scope: Scope, judged: DataFrame, doubted: dict[str, dict[str, Any]], output: Output, *, large: bool
) -> list[str]:
    """What an operator must know before believing the numbers; the first few are named, all are counted."""
    found = [*_unknown(scope), *_undecided(scope)]
    for cluster_id, share in sorted(doubted.items()):
        found.append(
            f"cluster {cluster_id}: {share['orphans']} of {share['dirs']} directories would be orphans: its "
            "assignments are doubted, and none of its directories is called one"
        )
    if large:
        found.append("more than a million partitions are not where the assignments have them: are those complete?")
    reasons = judged.where(fn.col("fleet_verdict") == "unknown").groupBy("why").count().orderBy("why").collect()
    if reasons:
        counted = ", ".join(f"{row.why}: {row['count']}" for row in reasons)
        found.append(f"directories that could not be decided: {counted}")
    unread = scope.log_dirs.where(fn.col("health") == "offline").count()
    if unread:
        found.append(f"{unread} log dirs are offline: what lies there is counted nowhere, and not called missing")
    differ = list(_health(output, "verdicts-differ").collect())
    for row in differ[:NAMED_IN_WARNINGS]:
        found.append(f"node {row.node_id} of {row.cluster_id}: {row.detail}")
    if len(differ) > NAMED_IN_WARNINGS:
        found.append(f"{len(differ)} hosts in all: the agent and the fleet decide otherwise")
    if output.tables["quarantined_input"]["rows"]:
        found.append(
            f"{output.tables['quarantined_input']['rows']} files or rows were not taken: see quarantined_input"
        )
    if not output.tables["growth"]["rows"]:
        found.append("growth needs two dates on which the same hosts reported")
    return found


def _health(output: Output, finding: str) -> DataFrame:
    written = output.spark.read.parquet(literal(f"{output.uri}/parquet/log_dir_health"))
    return written.where(fn.col("finding") == finding).orderBy("cluster_id", "node_id")


def _unknown(scope: Scope) -> list[str]:
    unknown = scope.hosts.where(~fn.col("counts"))
    count, everyone = unknown.count(), scope.hosts.count()
    if everyone == 0:
        return ["no host is known: landing had no snapshot and no assignments for these dates"]
    if not count:
        return []
    # Hosts are unknown in two ways, each with one example: a list of hundreds would hide the warnings after it.
    example = fn.min(fn.struct("cluster_id", "node_id", "why")).alias("example")
    kinds = unknown.groupBy(fn.col("at").isNull().alias("never")).agg(fn.count("*").alias("hosts"), example)
    named = [
        f"{row.hosts} without a complete snapshot{'' if row.never else ' that is new enough'}: "
        f"node {row.example.node_id} of {row.example.cluster_id}{' and others' if row.hosts > 1 else ''}: "
        f"{row.example.why}"
        for row in kinds.orderBy("never").collect()
    ]
    first = f"{count} of {everyone} hosts are unknown, nothing is said about them: see log_dir_health"
    if count == everyone:
        first = f"all {count} hosts are unknown: nothing can be said about this date"
    return [first, *named]


def _undecided(scope: Scope) -> list[str]:
    rows = scope.clusters.where(~fn.col("decided")).orderBy("cluster_id").limit(100).collect()
    return [f"cluster {row.cluster_id}: no verdicts: {row.why}" for row in rows]
