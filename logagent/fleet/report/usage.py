"""Usage by log dir, host and cluster, and what needs a look: rows of the driver, bounded by hosts and log dirs. Pure.

Null stays null: a ledger that an agent could not compute is not zero.

Usage by topic and by partition, from `parts`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.base.units import counted
from logagent.fleet.report.scope import Scope
from logagent.fleet.tables.choice import Choice, Row
from logagent.fleet.tables.frames import TOPIC
from logagent.store.contract import CLOCKS_APART, LEDGER, OF_FILE_SYSTEM, REPLICA_COUNTS, WINDOWS

Places = Mapping[tuple[str, int, str], Mapping[str, int]]
"""Sums of `reclaim.SUMS` by cluster, node and log dir."""
WASTE = ("orphans", "orphan_bytes", *(f"reclaim_{window}" for window in WINDOWS))


def total(rows: Iterable[Row], name: str) -> int | None:
    """The sum of a column, of a file system once (`tables.store.by_file_system`); null if every value is."""
    once = name in OF_FILE_SYSTEM
    known = [row[name] for row in rows if row.get(name) is not None and not (once and row.get("shares_with"))]
    return sum(known) if known else None


def _ratio(value: float | None, of: float | None) -> float | None:
    return None if value is None or not of else round(value / of, 6)


def log_dirs(choice: Choice, ledgers: list[Row], places: Places) -> list[Row]:
    """`usage_log_dirs`. `skew` is what is allocated relative to the mean of the host's readable log dirs.
    `open_unread`: what processes hold open that an agent could not read is used, and is explained by nothing."""
    hosts = {(h["cluster_id"], h["node_id"]): h for h in choice.counting}
    by_host: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in ledgers:
        key = (row["cluster_id"], row["node_id"])
        waste = places.get((*key, row["log_dir"]), {})
        host = hosts.get(key, {})
        made = row | {"host": host.get("host")} | {name: waste.get(name, 0) for name in WASTE}
        made["used_share"] = _ratio(made["used"], made["size"])
        hides = made["unexplained"] is not None and host.get("unread_processes") != 0
        made["open_unread"] = max(0, made["unexplained"]) if hides else 0
        by_host[key].append(made)
    for rows in by_host.values():
        readable = [row["allocated"] for row in rows if row["health"] != "offline"]
        mean = sum(readable) / len(readable) if readable else None
        for row in rows:
            row["skew"] = _ratio(row["allocated"], mean) if row["health"] != "offline" else None
    return [row for rows in by_host.values() for row in rows]


def hosts(choice: Choice, by_log_dir: list[Row]) -> list[Row]:
    """`usage_hosts`, from `usage_log_dirs`. `skew` is what is allocated relative to the mean of the cluster's hosts."""
    of_host: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in by_log_dir:
        of_host[row["cluster_id"], row["node_id"]].append(row)
    found: dict[str, list[Row]] = defaultdict(list)
    for host in choice.counting:
        rows = of_host.get((host["cluster_id"], host["node_id"]), [])
        made: Row = {name: total(rows, name) for name in LEDGER}
        made |= {name: total(rows, name) or 0 for name in ("dirs", "bytes", "allocated", "open_unread", *WASTE)}
        named = ("cluster_id", "node_id", "host", "agent_version", "kafka_version")
        told = ("mode", "accepts", "unread_processes")
        made |= {name: host[name] for name in named} | {name: host.get(name) for name in told}
        made |= {
            "snapshot_id": host["snapshot_id"],
            "snapshot_at": host["at"],
            "snapshot_age_seconds": round(host["age_seconds"], 3),
            "clock_skew_seconds": round(host["skew_seconds"], 3),
            "log_dirs": len(rows),
            "offline_log_dirs": sum(row["health"] == "offline" for row in rows),
            "used_share": _ratio(made["used"], made["size"]),
            "log_dir_skew": max((r["skew"] for r in rows if r["skew"] is not None), default=None),
        }
        found[host["cluster_id"]].append(made)
    for rows in found.values():
        mean = sum(row["allocated"] for row in rows) / len(rows)
        for row in rows:
            row["skew"] = _ratio(row["allocated"], mean)
    return [row for rows in found.values() for row in rows]


def clusters(choice: Choice, by_host: list[Row], replicas: Mapping[str, Row]) -> list[Row]:
    """`usage_clusters`. `host_skew` is the largest host relative to the mean. `replicas`: of each cluster that has
    verdicts, what they come to."""
    of_cluster: dict[str, list[Row]] = defaultdict(list)
    for row in by_host:
        of_cluster[row["cluster_id"]].append(row)
    silent = choice.silent()
    found = []
    for cluster in choice.clusters:
        rows = of_cluster.get(cluster["cluster_id"], [])
        made: Row = {name: total(rows, name) for name in LEDGER}
        counts = ("log_dirs", "dirs", "bytes", "allocated", "open_unread", *WASTE)
        made |= {name: total(rows, name) or 0 for name in counts}
        made |= {"cluster_id": cluster["cluster_id"], "hosts": len(rows)}
        made["unknown_hosts"] = len(silent.get(cluster["cluster_id"], []))
        made["host_skew"] = max((r["skew"] for r in rows if r["skew"] is not None), default=None)
        found.append(made | (replicas.get(cluster["cluster_id"]) or dict.fromkeys(REPLICA_COUNTS)))
    return found


def health(
    choice: Choice,
    ledgers: list[Row],
    differ: Iterable[Row],
    newest_agent: str,
    ill: Mapping[tuple[str, int, str], tuple[str, date]],
) -> list[Row]:
    """`log_dir_health`: log dirs that are not online, hosts and agents to look after. `ill`: of `growth.Ledgers`."""
    known = {(h["cluster_id"], h["node_id"]): h for h in choice.hosts}

    def made(key: tuple[str, int], log_dir: str | None, finding: str, detail: str | None) -> Row:
        host = known[key]
        named = {"cluster_id": key[0], "node_id": key[1], "host": host["host"], "snapshot_at": host["at"]}
        reported, since = ill.get((*key, log_dir or ""), (None, None))
        made = named | {"log_dir": log_dir, "finding": finding, "detail": detail}
        return made | {"cause": host["cause"], "since": since.isoformat() if since and reported == finding else None}

    found = [
        made((row["cluster_id"], row["node_id"]), row["log_dir"], row["health"], row.get("reason"))
        for row in ledgers
        if row.get("health") not in ("online", None)
    ]
    for key, host in known.items():
        if not host["counts"]:
            found.append(made(key, None, "unknown-host", host["why"]))
            continue
        version, newest = _version(host["agent_version"]), _version(newest_agent)
        if version is not None and newest is not None and version < newest:
            says = f"agent {host['agent_version']}; the newest here is {newest_agent}"
            found.append(made(key, None, "old-agent", says))
        skew = host["skew_seconds"]
        if abs(skew) > CLOCKS_APART.total_seconds():
            ahead = f"its clock is {skew:.0f} s ahead of the store"
            behind = f"received {-skew:.0f} s after its own time: a slow clock, or delivered late"
            found.append(made(key, None, "clock-skew", ahead if skew > 0 else behind))
        if host.get("perhaps_two"):
            found.append(made(key, None, "perhaps-two-machines", host["perhaps_two"]))
    for row in differ:
        says = f"{counted(row['n'], 'directory')}, e.g. {row['example']}: the agent and the fleet disagree"
        found.append(made((row["cluster_id"], row["node_id"]), None, "verdicts-differ", says))
    return found


def _version(text: str | None) -> list[int] | None:
    numbers = re.findall(r"\d{1,6}", text or "")
    return [int(n) for n in numbers[:3]] if len(numbers) >= 2 else None


def fitted(days: list[tuple[int, int]]) -> float | None:
    """Least-squares slope of (day, value); null with fewer than two days."""
    if len(days) < 2:
        return None
    mean_x = sum(x for x, _ in days) / len(days)
    mean_y = sum(y for _, y in days) / len(days)
    above = sum((x - mean_x) * (y - mean_y) for x, y in days)
    below = sum((x - mean_x) ** 2 for x, _ in days)
    return above / below if below else None


def number(value: Any) -> int:
    """A count that may be absent."""
    return int(value or 0)


def usage_topics(scope: Scope, waste: DataFrame) -> DataFrame:
    """`usage_topics`: directories of every kind, the spread of sizes over partitions, and what can be reclaimed."""
    mean = fn.try_divide("largest_sum", "partitions")
    rows = scope.topics.where(fn.col("copies") > 0).withColumn(
        "skew", fn.round(fn.try_divide("largest_partition", mean), 6)
    )
    # Topic ids are null in old clusters, and null is not a join key.
    theirs = waste.withColumnsRenamed({name: f"o_{name}" for name in TOPIC})
    counted = rows.join(theirs, _null_safe(), how="left")
    return counted.fillna(0, list(WASTE))


def _null_safe() -> Column:
    same = fn.col("cluster_id") == fn.col("o_cluster_id")
    for name in ("topic", "topic_id"):
        same = same & fn.col(name).eqNullSafe(fn.col(f"o_{name}"))
    return same


def usage_partitions(scope: Scope) -> DataFrame:
    """`usage_partitions`: current directories by partition, and whether they are as assigned.

    `assigned` counts the replicas on hosts that count; it and `as_assigned` are null in clusters without verdicts.
    """
    undecided = scope.choice.undecided
    decided = ~fn.col("cluster_id").isin(undecided) if undecided else fn.lit(True)
    return scope.parts.select(
        "cluster_id",
        "topic",
        "topic_id",
        "partition",
        fn.size("nodes").alias("copies"),
        fn.when(decided, fn.coalesce(fn.size("replicas"), fn.lit(0))).alias("assigned"),
        fn.when(decided, fn.col("same")).alias("as_assigned"),
        "bytes",
        "allocated",
        fn.col("smallest").alias("smallest_copy"),
        fn.col("largest").alias("largest_copy"),
    )
