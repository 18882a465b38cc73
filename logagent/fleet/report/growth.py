"""Growth and days until full, from several dates.

Log dirs and clusters from their small tables, up to `GROWTH_DATES` dates, on the driver; topics of this date, the day
before, and 7, 30 and 90 days before, by Spark.

What changed since the date before, and since a week ago: of the hosts that reported on both dates.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.report import audit
from logagent.fleet.report.replicas import UNREADABLE
from logagent.fleet.report.scope import Scope
from logagent.fleet.report.usage import fitted, total
from logagent.fleet.tables.choice import Row
from logagent.fleet.tables.frames import local_frame, seen, together, whose
from logagent.fleet.tables.frames import topics as topics_of
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
    `shared`: log dirs last seen on the file system of another one, at which it counts; `ill`: what was last said of a
    log dir that is not online, and the first of the stored dates that said so in a row.
    """

    series: dict[LogDirKey, array[int]] = field(default_factory=dict)
    shared: set[LogDirKey] = field(default_factory=set)
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
                one[name] += total([row], name) or 0
            key = (cluster, row["node_id"], row["log_dir"])
            if row["health"] in ("online", None):
                self.ill.pop(key, None)
            elif self.ill.get(key, ("", day))[0] != row["health"]:
                self.ill[key] = (row["health"], day)
            if row.get("shares_with"):
                self.shared.add(key)
            else:
                self.shared.discard(key)
            if row["used"] is not None:
                self.series.setdefault(key, array("q")).extend((day.toordinal(), row["used"]))
        for cluster, found in nodes.items():
            self.sums[cluster, day]["hosts"] = len(found)

    def by_date(self) -> list[Row]:
        """`chart_growth`: sums of each cluster and date, with the number of hosts they cover, and what the log dirs
        with figures on that date and on the newest one of the cluster used on both."""
        newest: dict[str, int] = {}
        rows: dict[tuple[str, int], Row] = {}
        for (cluster, day), row in self.sums.items():
            newest[cluster] = max(newest.get(cluster, 0), day.toordinal())
            rows[cluster, day.toordinal()] = row
            row |= {"log_dirs": 0, "was": 0, "now": 0}
        for key, series in self.series.items():
            if key in self.shared or series[-2] != newest[key[0]]:
                continue
            now = series[-1]
            for day_number, used in zip(series[::2], series[1::2], strict=True):
                row = rows[key[0], day_number]
                row["log_dirs"] += 1
                row["was"] += used
                row["now"] += now
        return list(rows.values())


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
                "hosts": None,
                "bytes": known[-1][1],
                "bytes_per_day": round(slope) if grows else None,
                "free": row.get("free"),
                "days_to_full": round(row["free"] / slope, 2) if grows and row.get("free") is not None else None,
            }
        )
    return rows


ENOUGH = 0.5
"""A date counts for the topics of a cluster if so many of its hosts reported then: on an outage hardly any did, and
growth over the few that did says nothing of the others."""
Nodes = dict[str, frozenset[int]]


def _reported(store: Store, commit: Commit) -> tuple[Nodes, Nodes]:
    """By cluster: the hosts that have reported on that date, and all that the tables of its run are of."""
    on_date, chosen = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
    for entry in store.small("files", commit):
        if entry["kind"] == "snapshot" and entry["status"] == "taken":
            on_date[entry["cluster_id"]].add(entry["node_id"])
    for row in store.small("choice", commit):
        if row["node_id"] is not None:
            chosen[row["cluster_id"]].add(row["node_id"])
    # One that the run does not count (two machines claim it) is not in its tables.
    return {c: frozenset(nodes & chosen[c]) for c, nodes in on_date.items()}, {
        c: frozenset(n) for c, n in chosen.items()
    }


def shared_hosts(by_date: Mapping[date, Nodes], newest: date) -> dict[str, tuple[frozenset[int], list[date]]]:
    """By cluster: the dates that count for its topics, and the hosts that reported on all of them, `newest` among
    these. A cluster of which no host counts on `newest` has none. Pure."""
    found = {}
    for cluster, nodes in by_date.get(newest, {}).items():
        least = max(1, ENOUGH * len(nodes))
        dates = [day for day, each in by_date.items() if len(each.get(cluster, frozenset()) & nodes) >= least]
        shared = nodes.intersection(*(by_date[day][cluster] for day in dates))
        if len(dates) >= MIN_DATES and shared:
            found[cluster] = shared, sorted(dates)
    return found


def topics(scope: Scope, commits: Mapping[date, Commit]) -> DataFrame | None:
    """Growth of topics, over the hosts that have reported on every date that counts (`shared_hosts`).

    None without two dates.
    """
    store = scope.store
    days = sorted({scope.asked.day - timedelta(days=n) for n in TOPIC_DAYS} & commits.keys())
    read = {day: _reported(store, commits[day]) for day in days}
    shared = shared_hosts({day: on_date for day, (on_date, _) in read.items()}, scope.asked.day)
    frames = []
    for day in days:
        chosen = {cluster: nodes for cluster, (nodes, dates) in shared.items() if day in dates}
        whole = [cluster for cluster, nodes in chosen.items() if read[day][1][cluster] == nodes]
        some = {cluster: nodes for cluster, nodes in chosen.items() if cluster not in whole}
        rows = [store.read("topics", [commits[day]]).where(fn.col("cluster_id").isin(whole))] if whole else []
        if some:
            rows.append(_of_hosts(store, commits[day], some, read[day][1]))
        frames += [each.where(fn.col("copies") > 0).withColumn("dt", fn.lit(f"{day}").cast("date")) for each in rows]
    if not frames:
        return None
    grouped = (
        together(frame.select("cluster_id", "topic", "topic_id", "allocated", "dt") for frame in frames)
        .groupBy("cluster_id", "topic", "topic_id")
        .agg(
            fn.min("dt").alias("first_date"),
            fn.max("dt").alias("last_date"),
            fn.count("*").alias("dates"),
            fn.max_by("allocated", "dt").alias("bytes"),
            fn.regr_slope("allocated", fn.unix_date("dt")).alias("slope"),
        )
    )
    grown = fn.when(fn.col("slope") > 0, fn.round("slope").cast("bigint"))
    none = dict.fromkeys(("node_id", "host", "log_dir", "free", "days_to_full"), fn.lit(None))
    named = grouped.where(fn.col("dates") >= MIN_DATES).withColumns({"scope": fn.lit("topic"), "bytes_per_day": grown})
    over = [{"cluster_id": cluster, "hosts": len(nodes)} for cluster, (nodes, _) in shared.items()]
    counted = fn.broadcast(local_frame(store.spark, over, "cluster_id string, hosts bigint"))
    return named.withColumns(none).drop("slope").join(counted, "cluster_id")


def _of_hosts(store: Store, commit: Commit, nodes: Nodes, there: Nodes) -> DataFrame:
    """The `topics` of a run, of these hosts of these clusters alone."""
    of_them = fn.col("cluster_id").isin(*nodes)
    silent = [{"cluster_id": cluster, "silent": sorted(there[cluster] - kept)} for cluster, kept in nodes.items()]
    left_out = local_frame(store.spark, silent, "cluster_id string, silent array<int>")
    kept = [{"c": cluster, "n": node} for cluster, each in nodes.items() for node in sorted(each)]
    hosts = fn.broadcast(local_frame(store.spark, kept, "c string, n int"))
    same = (fn.col("cluster_id") == fn.col("c")) & (fn.col("node_id") == fn.col("n"))
    others = store.read("others", [commit]).where(of_them).join(hosts, same, how="left_semi")
    return topics_of(seen(store.read("parts", [commit]).where(of_them), left_out), others)


WEEK = timedelta(days=7)
MOST_LOST = 10_000
"""Up to this many partitions without any copy it is checked whether they had one before."""
KEY = ["cluster_id", "node_id", "log_dir", "whose", "partition"]
_LOG_DIR = "cluster_id string, node_id int, log_dir string"


def compared(dates: Iterable[date], day: date) -> list[date]:
    """The date before `day`, and the newest one that is a week or more before it."""
    past = sorted(each for each in dates if each < day)
    weeks = [each for each in past if each <= day - WEEK]
    return list(dict.fromkeys([*past[-1:], *weeks[-1:]]))


def changes(
    scope: Scope, commits: Mapping[date, Commit], lost: list[Row], acts: DataFrame | None, sinces: Sequence[audit.Since]
) -> list[Row]:
    """One row for each date compared with. `lost`: the partitions that are missing on every host that reports. `acts`:
    the table `audit`; None if it has no rows. `sinces`: what is known of them since each of these dates."""
    found, removed = [], audit.removed(acts) if acts is not None else []
    for then, known in zip(compared(commits, scope.asked.day), sinces, strict=True):
        row: Row = {"date": then.isoformat(), "days": (scope.asked.day - then).days}
        before = scope.store.log_dirs(commits[then])
        row |= _disks(scope.log_dirs, before)
        both = {(r["cluster_id"], r["node_id"]) for r in before} & {
            (r["cluster_id"], r["node_id"]) for r in scope.log_dirs
        }
        ill = (r for r in (*before, *scope.log_dirs) if r["health"] in UNREADABLE)
        unread = {(r["cluster_id"], r["node_id"], r["log_dir"]) for r in ill}
        by_acts = audit.cleared(acts, then) if acts is not None else None
        gone = _directories(scope, commits[then], both, unread, by_acts)
        mine = [each for each in removed if each["since"] >= then]
        row["by_agents"] = {
            **{name: sum(each[name] for each in mine) for name in ("dirs", "bytes")},
            **{name: gone.pop(name) for name in ("otherwise", "otherwise_bytes")},
            "unknown_hosts": len(known.unknown),
            "left_out": known.left_out,
        }
        row |= gone | {"no_copy": _newly_lost(scope, commits[then], lost)}
        found.append(row)
    return found


def _disks(now: list[Row], then: list[Row]) -> Row:
    """Used bytes of the log dirs with a figure on both dates, and the log dirs that went offline between them."""
    before = {(r["cluster_id"], r["node_id"], r["log_dir"]): r for r in then}
    pairs = [(r, before.get((r["cluster_id"], r["node_id"], r["log_dir"]))) for r in now]
    known = [(r, old) for r, old in pairs if old and r["used"] is not None and old["used"] is not None]
    offline = sum(old is not None and r["health"] == "offline" != old["health"] for r, old in pairs)
    return {
        "log_dirs": len(known),
        "used": sum(new["used"] - old["used"] for new, old in known if not new.get("shares_with")),
        "offline": offline,
    }


def _directories(
    scope: Scope, then: Commit, both: set[tuple[str, int]], unread: set[LogDirKey], acts: DataFrame | None
) -> Row:
    """New orphans, and former orphans, strays and marked directories that are none of these any more; `otherwise`: of
    these, what is at no place of `acts`.

    By the agents' own verdicts on both dates; a directory that was only renamed is the same one. What lies in a log dir
    that could not be read on one of them (`unread`) is neither new nor gone.
    """
    spark = scope.store.spark
    rows = [{"cluster_id": cluster, "node_id": node} for cluster, node in sorted(both)]
    hosts = fn.broadcast(local_frame(spark, rows, "cluster_id string, node_id int"))
    today = _waste(scope.others).withColumn("is_new", fn.lit(True))
    before = _waste(scope.store.read("others", [then])).withColumn("is_new", fn.lit(False))
    rest = today.unionByName(before).join(hosts, ["cluster_id", "node_id"], how="left_semi")
    if unread:
        away = local_frame(spark, [dict(zip(KEY, key, strict=False)) for key in sorted(unread)], _LOG_DIR)
        rest = rest.join(fn.broadcast(away), KEY[:3], how="left_anti")
    each = rest.groupBy(*KEY)
    now, old, size = fn.col("is_new"), ~fn.col("is_new"), fn.col("allocated")
    one = each.agg(
        fn.bool_or(now).alias("now"),
        fn.bool_or(old).alias("old"),
        fn.bool_or(now & fn.col("is_orphan")).alias("orphan"),
        fn.max(fn.when(now, size)).alias("bytes_now"),
        fn.max(fn.when(old, size)).alias("bytes_old"),
    )
    by_act = fn.lit(False)
    if acts is not None:
        one = one.join(acts.withColumn("by_act", fn.lit(True)), KEY, how="left")
        by_act = fn.coalesce("by_act", fn.lit(False))
    new, gone = fn.col("orphan") & ~fn.col("old"), ~fn.col("now")
    other = gone & ~by_act
    counted = [_count(new, "orphans"), _bytes(new, "bytes_now", "orphan_bytes")]
    counted += [_count(other, "otherwise"), _bytes(other, "bytes_old", "otherwise_bytes")]
    return one.agg(*counted, _count(gone, "cleared"), _bytes(gone, "bytes_old", "cleared_bytes")).collect()[0].asDict()


def _waste(rows: DataFrame) -> DataFrame:
    live = fn.col("kind").isin("current", "future")
    orphan = live & (fn.col("verdict") == "orphan")
    wanted = rows.where(orphan | fn.col("kind").isin("stray", "delete")).withColumn("whose", whose())
    return wanted.select(*KEY, "allocated", fn.coalesce(orphan, fn.lit(False)).alias("is_orphan"))


def _count(rows: Column, name: str) -> Column:
    return fn.coalesce(fn.sum(rows.cast("int")), fn.lit(0)).alias(name)


def _bytes(rows: Column, column: str, name: str) -> Column:
    return fn.coalesce(fn.try_sum(fn.when(rows, fn.col(column))), fn.lit(0)).alias(name)


def _newly_lost(scope: Scope, then: Commit, lost: list[Row]) -> int | None:
    """How many of the partitions without a copy had one then; null if they are too many to check."""
    if not lost:
        return 0
    if len(lost) > MOST_LOST:
        return None
    names = ("cluster_id", "topic_id", "partition")
    rows: list[dict[str, Any]] = [{name: row[name] for name in names} for row in lost]
    keys = local_frame(scope.store.spark, rows, "cluster_id string, topic_id string, partition int")
    had = scope.store.read("parts", [then]).where(fn.size("nodes") > 0)
    return had.join(fn.broadcast(keys), list(names), how="left_semi").count()
