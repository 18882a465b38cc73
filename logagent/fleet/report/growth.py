"""Growth and days until full, from several dates.

Log dirs and clusters from their small tables, up to `GROWTH_DATES` dates, on the driver; topics of this date, the day
before, and 7, 30 and 90 days before, by Spark.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.report.scope import Scope
from logagent.fleet.report.usage import fitted
from logagent.fleet.tables.choice import Row
from logagent.fleet.tables.store import Commit, Store
from logagent.store.contract import GROWTH_DATES

TOPIC_DAYS = (0, 1, 7, 30, 90)
MIN_DATES = 2
LogDirKey = tuple[str, int, str]


def history(store: Store, until: date, own: Commit) -> dict[date, Commit]:
    """The commits of the last dates, oldest first; the report's own run for its own date."""
    days = [day for day in store.dates() if day <= until][-GROWTH_DATES:]
    found = {day: own if day == until else store.commit_of(day) for day in days}
    return {day: commit for day, commit in found.items() if commit is not None}


@dataclass
class Ledgers:
    """The sums of the ledgers of several dates: 90 dates of 40,000 log dirs are millions of rows, which are never in
    memory together. `series`: (date, used bytes) of each log dir, one after the other; `sums`: of a cluster and date;
    `ill`: what was last said of a log dir that is not online, and the first of the stored dates that said so in a row.
    """

    series: dict[LogDirKey, array[int]] = field(default_factory=dict)
    ill: dict[LogDirKey, tuple[str, date]] = field(default_factory=dict)
    sums: dict[tuple[str, date], Row] = field(default_factory=dict)

    def add(self, day: date, rows: list[Row]) -> None:
        """Adds one date; dates must come oldest first."""
        nodes: dict[str, set[int]] = defaultdict(set)
        for row in rows:
            cluster = row["cluster_id"]
            nodes[cluster].add(row["node_id"])
            empty = {"cluster_id": cluster, "date": day.isoformat(), "bytes": 0, "used": 0, "size": 0}
            one = self.sums.setdefault((cluster, day), empty)
            for name in ("bytes", "used", "size"):
                one[name] += row[name] or 0
            key = (cluster, row["node_id"], row["log_dir"])
            if row["health"] in ("online", None):
                self.ill.pop(key, None)
            elif self.ill.get(key, ("", day))[0] != row["health"]:
                self.ill[key] = (row["health"], day)
            if row["used"] is not None:
                self.series.setdefault(key, array("q")).extend((day.toordinal(), row["used"]))
        for cluster, found in nodes.items():
            self.sums[cluster, day]["hosts"] = len(found)

    def by_date(self) -> list[Row]:
        """`chart_growth`: sums of each cluster and date, with the number of hosts they cover."""
        return list(self.sums.values())


def ledgers(store: Store, commits: Mapping[date, Commit]) -> Ledgers:
    """The ledgers of these dates, oldest first."""
    found = Ledgers()
    for day, commit in commits.items():
        found.add(day, store.log_dirs(commit))
    return found


def log_dirs(scope: Scope, found: Ledgers) -> list[Row]:
    """Growth of log dirs that count: the used bytes of their file system; `days_to_full` = free / growth.

    Without two dates there is no row; if it does not grow there is no number.
    """
    hosts = scope.hosts()
    rows = []
    for row in scope.log_dirs:
        key = (row["cluster_id"], row["node_id"], row["log_dir"])
        series = found.series.get(key, array("q"))
        known = list(zip(series[::2], series[1::2], strict=True))
        slope = fitted(known)
        if slope is None:
            continue
        grows = slope > 0
        rows.append(
            {
                "scope": "log_dir",
                "cluster_id": key[0],
                "node_id": key[1],
                "host": hosts[key[:2]]["host"],
                "log_dir": key[2],
                "topic": None,
                "topic_id": None,
                "first_date": date.fromordinal(known[0][0]).isoformat(),
                "last_date": date.fromordinal(known[-1][0]).isoformat(),
                "dates": len(known),
                "bytes": known[-1][1],
                "bytes_per_day": round(slope) if grows else None,
                "free": row.get("free"),
                "days_to_full": round(row["free"] / slope, 2) if grows and row.get("free") is not None else None,
            }
        )
    return rows


def topics(scope: Scope, commits: Mapping[date, Commit]) -> DataFrame | None:
    """Growth of topics; a date of a cluster counts only if exactly the same hosts reported as on the newest.

    None without two dates.
    """
    store = scope.store
    days = {scope.asked.day - timedelta(days=n) for n in TOPIC_DAYS} & commits.keys()
    hosts: dict[date, dict[str, frozenset[Any]]] = {}
    for day in days:
        by_cluster: dict[str, set[int]] = defaultdict(set)
        for entry in store.small("files", commits[day]):
            if entry["kind"] == "snapshot" and entry["status"] == "taken":
                by_cluster[entry["cluster_id"]].add(entry["node_id"])
        chosen: dict[str, set[int]] = defaultdict(set)
        for row in store.small("choice", commits[day]):
            if row["node_id"] is not None:
                chosen[row["cluster_id"]].add(row["node_id"])
        hosts[day] = {c: frozenset(n) for c, n in by_cluster.items() if n == chosen.get(c)}
    newest = hosts.get(scope.asked.day, {})
    frames = []
    for day in sorted(days):
        same = [cluster for cluster, nodes in hosts[day].items() if newest.get(cluster) == nodes]
        if same:
            rows = store.read("topics", [commits[day]]).where(fn.col("cluster_id").isin(same) & (fn.col("copies") > 0))
            frames.append(rows.withColumn("dt", fn.lit(day.isoformat()).cast("date")))
    if len(frames) < MIN_DATES:
        return None
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    grouped = whole.groupBy("cluster_id", "topic", "topic_id").agg(
        fn.min("dt").alias("first_date"),
        fn.max("dt").alias("last_date"),
        fn.count("*").alias("dates"),
        fn.max_by("bytes", "dt").alias("bytes"),
        fn.regr_slope("bytes", fn.unix_date("dt")).alias("slope"),
    )
    grown = fn.when(fn.col("slope") > 0, fn.round("slope").cast("bigint"))
    none = dict.fromkeys(("node_id", "host", "log_dir", "free", "days_to_full"), fn.lit(None))
    named = grouped.where(fn.col("dates") >= MIN_DATES).withColumns({"scope": fn.lit("topic"), "bytes_per_day": grown})
    return named.withColumns(none).drop("slope")
