"""Where the expected replicas are, which are missing, and partitions that are twice on one host; what is left over, and
what could not be decided.

And `report.json`: totals, what is unknown and why, and warnings as sentences. Pure: rows in, a document out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.base.config.settings import CleanupSettings
from logagent.base.units import counted, rfc3339
from logagent.fleet.report.answers import row_id, windowed
from logagent.fleet.report.scope import Scope, decided_frame
from logagent.fleet.report.verdicts import (
    COPY_KEYS,
    HOST,
    LIVE,
    SuspectPartitions,
    directory_ids,
    images,
    is_longest,
    living_topics,
)
from logagent.fleet.tables.choice import OLDER, YOUNGER, Choice, Row, happened
from logagent.fleet.tables.frames import at_least, local_frame, whose
from logagent.store.contract import NOT_COMPARED, REPLICA_COUNTS, REPORT_SCHEMA, SHOWN_UNKNOWN_HOSTS, UNDECIDED

REPLICA = [*HOST, "topic", "topic_id", "partition"]
UNREADABLE = ("offline", "unformatted")
COPY = [*HOST, "whose", "partition"]


def states(scope: Scope, suspects: SuspectPartitions, copies: DataFrame, doubted: Collection[str] = ()) -> DataFrame:
    """Every replica of these partitions that is expected on a host that counts, with its `state` and the `reason`.

    `found`: a current or future directory of it is there, or one without topic id that may be it. `missing`: it was
    assigned before the host looked and afterwards, and is not there. `not_yet`: only assignments that are younger than
    that have it. `gone`: only older ones. `not_read`: it may be in a log dir that could not be read. `unproven`:
    nothing shows whether it had to be there. `left`: what else is there of it. Expected is what the newest assignments
    have, and what an agent misses that has read younger ones. `doubted`: clusters whose assignments are.
    """
    size = fn.broadcast if not suspects.large else (lambda frame: frame)
    absent = decided_frame(scope, scope.absent).withColumn("whose", whose())
    wanted = _expected(suspects, absent)
    hosts = scope.host_frame.select(*HOST, "host", "at_ms").join(_standings(scope), HOST, how="inner")
    here = wanted.join(fn.broadcast(hosts), HOST, how="inner")
    here = here.where(fn.col("assigned") | ~fn.coalesce(fn.col("place") == YOUNGER, fn.lit(False)))
    live = suspects.found.where(fn.col("kind").isin(*LIVE))
    by_id = live.select(*HOST, "topic_id", "partition", fn.lit(True).alias("by_id")).distinct()
    nameless = _nameless(scope, live).withColumn("nameless", fn.lit(True))
    aside = scope.others.where(fn.col("kind").isin("stray", "delete") & fn.col("topic").isNotNull())
    left = aside.groupBy(*HOST, whose().alias("whose"), "partition").agg(fn.max("kind").alias("left"))
    marked = (
        here.join(size(by_id), [*HOST, "topic_id", "partition"], how="left")
        .join(size(nameless), [*HOST, "topic", "partition"], how="left")
        .join(size(absent.select(*COPY, fn.lit(True).alias("said")).distinct()), COPY, how="left")
        .join(size(left), COPY, how="left")
        .join(size(copies.select(*COPY_KEYS, "copies")), COPY_KEYS, how="left")
    )
    rows = _in_older(scope, _unread(scope, marked), size)
    judged = _judged(rows.join(images(scope).select("cluster_id", "newer_version"), "cluster_id", how="inner"), doubted)
    return judged.select(
        *REPLICA, "host", "state", "reason", "assigned", fn.when(fn.col("left") == "stray", "stray").alias("left"),
        fn.when(fn.size("isr") > 0, fn.array_contains("isr", fn.col("node_id"))).alias("in_isr"),
        fn.array_contains("adding", fn.col("node_id")).alias("adding"),
        fn.coalesce("copies", fn.lit(0)).alias("copies_elsewhere"),
        fn.timestamp_millis("at_ms").alias("snapshot_at"),
    )  # fmt: skip


def _expected(suspects: SuspectPartitions, absent: DataFrame) -> DataFrame:
    """A row for each assigned replica, and for each that only its agent knows to be assigned."""
    at = fn.transform(
        "replicas", lambda node, n: fn.struct(node.alias("node_id"), fn.get("directories", n).alias("id"))
    )
    replicas = suspects.expected.withColumn("replica", fn.explode(at)).select("*", "replica.node_id", "replica.id")
    columns = [*COPY, "topic", "topic_id", "isr", "adding", "id"]
    assigned = replicas.select(*columns, fn.lit(True).alias("assigned"))
    others = absent.join(replicas.select(*COPY), COPY, how="left_anti")
    none = {"isr": "array<int>", "adding": "array<int>", "id": "string"}
    more = others.withColumns({name: fn.lit(None).cast(kind) for name, kind in none.items()})
    return assigned.unionByName(more.select(*columns, fn.lit(False).alias("assigned")))


def _judged(rows: DataFrame, doubted: Collection[str]) -> DataFrame:
    """Adds `state` and `reason`: the first line that applies decides."""
    here = fn.col("by_id").isNotNull() | fn.col("nameless").isNotNull()
    said = fn.col("own") & fn.col("said").isNotNull()
    known = fn.col("assigned") | fn.coalesce(fn.col("place") == OLDER, fn.lit(False))
    enclosed = fn.col("younger") & fn.col("in_older")
    lines: list[tuple[Column, str, str | None]] = [
        (here, "found", None),
        (fn.col("cluster_id").isin(*doubted), "unproven", "assignments-doubted"),
        (fn.col("newer_version"), "unproven", "metadata-version"),
        (fn.col("unread"), "not_read", "log-dir-not-read"),
        (fn.col("left") == "delete", "unproven", "marked"),
        (said & known, "missing", None),
        (fn.col("own") & ~said & (fn.col("place") == OLDER), "gone", "unassigned-since"),
        (fn.col("own") & ~said & (fn.col("place") == YOUNGER), "not_yet", "assigned-since"),
        (fn.col("own"), "unproven", "assignments-between"),
        (enclosed, "missing", None),
        (fn.col("younger") & fn.col("older").isNull(), "not_yet", "no-older-assignments"),
        (fn.col("younger"), "not_yet", "assigned-since"),
        (fn.lit(True), "unproven", "no-younger-assignments"),
    ]
    state, reason = fn.lit(None).cast("string"), fn.lit(None).cast("string")
    for applies, its_state, its_reason in reversed(lines):
        certain = fn.coalesce(applies, fn.lit(False))
        state = fn.when(certain, its_state).otherwise(state)
        reason = fn.when(certain, fn.lit(its_reason)).otherwise(reason)
    return rows.withColumns({"state": state, "reason": reason})


def _standings(scope: Scope) -> DataFrame:
    """`HOST, own, place, younger, older`: see `Standing`."""
    rows = [
        {"cluster_id": cluster, "node_id": node, **asdict(standing)}
        for (cluster, node), standing in scope.standings.items()
    ]
    ddl = "cluster_id string, node_id int, own boolean, place string, younger boolean, older string"
    return local_frame(scope.store.spark, rows, ddl)


def _in_older(scope: Scope, rows: DataFrame, size: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Adds `in_older`: whether the stored image before the host's first look assigns it."""
    older = scope.older_images()
    if older is None:
        return rows.withColumn("in_older", fn.lit(False))
    named = older.withColumn("whose", whose()).select("cluster_id", "older", "whose", "partition", "replicas")
    keys = rows.select("cluster_id", "older", "whose", "partition").distinct()
    few = named.join(size(keys), ["cluster_id", "older", "whose", "partition"], how="left_semi")
    joined = rows.join(size(few), ["cluster_id", "older", "whose", "partition"], how="left")
    has = fn.coalesce(fn.array_contains("replicas", fn.col("node_id")), fn.lit(False))
    return joined.withColumn("in_older", has)


def _unread(scope: Scope, rows: DataFrame) -> DataFrame:
    """Adds `unread`: whether it may be in a log dir that the host could not read."""
    doubtful = {(r["cluster_id"], r["node_id"]) for r in scope.log_dirs if r.get("health") in UNREADABLE}
    if not doubtful:
        return rows.withColumn("unread", fn.lit(False))
    readable = [
        {"cluster_id": r["cluster_id"], "node_id": r["node_id"], "id": r["directory_id"], "readable": True}
        for r in scope.log_dirs
        if (r["cluster_id"], r["node_id"]) in doubtful
        and r.get("health") not in UNREADABLE
        and r.get("directory_id") is not None
    ]
    spark = scope.store.spark
    names = [{"cluster_id": c, "node_id": n, "doubtful": True} for c, n in sorted(doubtful)]
    hosts = local_frame(spark, names, "cluster_id string, node_id int, doubtful boolean")
    places = local_frame(spark, readable, "cluster_id string, node_id int, id string, readable boolean").distinct()
    placed = rows.join(fn.broadcast(hosts), HOST, how="left").join(fn.broadcast(places), [*HOST, "id"], how="left")
    unread = fn.col("doubtful").isNotNull() & fn.col("readable").isNull()
    return placed.withColumn("unread", unread).drop("doubtful", "readable")


def _nameless(scope: Scope, live: DataFrame) -> DataFrame:
    """Replicas that a directory without topic id may be: `HOST, topic, partition`.

    A truncated name may belong to any topic that begins with it.
    """
    without = live.where(fn.col("topic_id").isNull()).select(*HOST, "topic", "partition", "topic_truncated")
    exact = without.where(~fn.col("topic_truncated")).drop("topic_truncated")
    cut = without.where("topic_truncated").withColumnRenamed("topic", "begins").drop("topic_truncated")
    topics = scope.topics.where(fn.col("assigned_partitions") > 0).select("cluster_id", "topic")
    longer = topics.join(fn.broadcast(cut), "cluster_id", how="inner").where(fn.startswith("topic", "begins"))
    return exact.union(longer.select(*HOST, "topic", "partition")).distinct()


@dataclass(frozen=True)
class Counted:
    """How many replicas are in which state. `clusters`: `REPLICA_COUNTS` by cluster; `undecided`: of the fleet, by
    state and reason, with the number of hosts; `no_copy`: partitions of which no copy was found, nor a replica that is
    known to be missing."""

    clusters: dict[str, Row]
    undecided: list[Row]
    no_copy: int

    def document(self) -> Row:
        """The section `answers.replicas` of `report.json`."""
        total = {name: sum(each[name] for each in self.clusters.values()) for name in REPLICA_COUNTS}
        return {"total": total, "not_compared": self.undecided, "no_copy": self.no_copy}


def count(scope: Scope, suspects: SuspectPartitions, judged: DataFrame) -> Counted:
    """`judged`: what `states` gives. All other partitions are where they are assigned."""
    clusters: dict[str, Row] = {c["cluster_id"]: dict.fromkeys(REPLICA_COUNTS, 0) for c in scope.choice.decided}
    counting = {(h["cluster_id"], h["node_id"]) for h in scope.choice.counting}
    for (cluster, node), row in scope.nodes.items():
        clusters[cluster]["expected"] += row["replicas"]
        clusters[cluster]["not_heard"] += 0 if (cluster, node) in counting else row["replicas"]
    same = decided_frame(scope, scope.parts.where("same")).withColumn("whose", whose())
    same = same.join(suspects.keys if suspects.large else fn.broadcast(suspects.keys), COPY_KEYS, how="left_anti")
    for found in same.groupBy("cluster_id").agg(fn.sum(fn.size("replicas")).alias("n")).collect():
        clusters[found["cluster_id"]]["found"] += max(found["n"] or 0, 0)
    figures = [fn.count("*").alias("n"), fn.count_if(~fn.col("assigned")).alias("more")]
    figures.append(fn.count_distinct("node_id").alias("hosts"))
    undecided: dict[tuple[str, str], Row] = {}
    for each in judged.groupBy("cluster_id", "state", "reason").agg(*figures).collect():
        clusters[each["cluster_id"]][each["state"]] += each["n"]
        clusters[each["cluster_id"]]["expected"] += each["more"]
        if each["state"] in UNDECIDED:
            key = each["state"], each["reason"]
            one = undecided.setdefault(key, {"state": key[0], "reason": key[1], "replicas": 0, "hosts": 0})
            one["replicas"] += each["n"]
            one["hosts"] += each["hosts"]
    alone = judged.where(fn.col("copies_elsewhere") == 0).groupBy("cluster_id", "topic", "topic_id", "partition")
    told = alone.agg(
        fn.bool_or(fn.col("state") == "missing").alias("lost"),
        fn.bool_or(fn.col("state").isin(*UNDECIDED)).alias("some"),
    )
    return Counted(clusters, [undecided[key] for key in sorted(undecided)], told.where("some and not lost").count())


def undecided_replicas(judged: DataFrame) -> DataFrame:
    """The `undecided_replicas` table."""
    return judged.where(fn.col("state").isin(*UNDECIDED))


def missing(judged: DataFrame) -> DataFrame:
    """The `missing_replicas` table."""
    return judged.where(fn.col("state") == "missing")


def duplicates(scope: Scope, suspects: SuspectPartitions) -> DataFrame:
    """The `duplicates` table: one topic id and partition current in more than one log dir of a host."""
    rows = suspects.found.where(fn.col("kind") == "current")
    grouped = rows.groupBy(*REPLICA).agg(
        fn.sort_array(fn.collect_set("log_dir")).alias("places"),
        fn.try_sum("bytes").alias("bytes"),
        fn.try_sum("allocated").alias("allocated"),
    )
    named = grouped.where(fn.size("places") > 1).join(scope.host_frame, HOST, how="inner")
    return named.withColumns({"copies": fn.size("places"), "log_dirs": fn.array_join("places", ", ")})


OVERDUE_SECONDS = 60 + CleanupSettings().leftover_grace // 1000
"""`-delete` dirs older than Kafka's default delay (60 s) plus that of `cleanup.leftover_grace` are overdue."""
_COLUMNS = [*HOST, "host", "log_dir", "name", "kind", "topic", "topic_id", "partition", "bytes", "allocated"]
_COLUMNS += ["directory_id", "inode", "end_offset"]


def leftovers(
    scope: Scope, suspects: SuspectPartitions, judged: DataFrame, copies: DataFrame, doubted: Collection[str] = ()
) -> DataFrame:
    """`leftovers`: strays, `-delete` dirs that are overdue, and `-future` dirs that are orphans.

    Ages are on the host's own clock; a `-delete` dir without a known time of marking is listed with unknown age. How
    many other copies there are is told of strays and of `-future` dirs. `doubted`: clusters whose assignments are.
    """
    rows = scope.others.where(fn.col("kind").isin("stray", "delete")).join(scope.host_frame, HOST, how="inner")
    rows = rows.join(directory_ids(scope), [*HOST, "log_dir"], how="left")
    age = (fn.col("at_ms") - fn.unix_millis("marked_at")) / 1000
    aged = rows.withColumn("age_seconds", at_least(fn.round(age, 3), 0.0))
    due = (fn.col("kind") == "stray") | fn.coalesce(fn.col("age_seconds") > OVERDUE_SECONDS, fn.lit(True))
    why = fn.when(fn.col("kind") == "stray", "stray").otherwise("overdue")
    abandoned = judged.where((fn.col("kind") == "future") & (fn.col("fleet_verdict") == "orphan"))
    since = (fn.col("at_ms") - fn.unix_millis(fn.coalesce("first_seen", "newest_mtime"))) / 1000
    abandoned = abandoned.withColumn("age_seconds", at_least(fn.round(since, 3), 0.0))
    columns = ["age_seconds", "marked_at", "why", "window", "due_at", "covered", "obstacle", "obstacle_detail"]
    columns += ["snapshot_at", "verdict", "reason", "last_segment_offset", "newest_mtime"]
    moment = {"snapshot_at": fn.timestamp_millis("at_ms")}
    both = aged.where(due).withColumns(moment | {"why": why}).select(*_COLUMNS, *columns)
    gone = abandoned.withColumns(moment | {"why": fn.lit("abandoned")}).select(*_COLUMNS, *columns)
    size = fn.broadcast if not suspects.large else (lambda frame: frame)
    # Those marked for deletion are no copies (`SuspectPartitions`), and a name alone does not tell of what.
    counted = copies.select(*COPY_KEYS, "copies", "longest")
    one = both.unionByName(gone).withColumn("whose", fn.when(fn.col("kind") != "delete", fn.col("topic_id")))
    counted_dirs = one.join(size(counted), COPY_KEYS, how="left").withColumns(
        {
            "copies_elsewhere": fn.col("copies") - 1,
            "only_copy": fn.col("copies") == 1,
            "longest_copy": fn.when(fn.col("copies").isNotNull(), is_longest()),
        }
    )
    # Adds `held`: nothing that the fleet knows lets the host remove the stray (`strays.decide_stray`). One of a living
    # topic id goes only if another copy has all of it, any other only if it is proven that its id is gone.
    ids = counted_dirs.where((fn.col("kind") == "stray") & fn.col("topic_id").isNotNull()).select(
        "cluster_id", "topic_id"
    )
    living = living_topics(scope).join(size(ids.distinct()), ["cluster_id", "topic_id"], how="left_semi")
    living = living.select("cluster_id", "topic_id", fn.lit(True).alias("lives")).distinct()
    complete = fn.col("complete")
    if doubted:
        complete = complete & ~fn.col("cluster_id").isin(*doubted)
    known = images(scope).select("cluster_id", complete.alias("tells_absence"))
    lives, longer = fn.col("lives").isNotNull(), fn.coalesce(~fn.col("longest_copy"), fn.lit(False))
    absent = fn.coalesce(fn.col("tells_absence"), fn.lit(False)) & fn.col("topic_id").isNotNull()
    said_gone = fn.col("reason").isin("topic-absent", "topic-recreated")
    proven = absent | fn.coalesce((fn.col("verdict") == "orphan") & said_gone, fn.lit(False))
    may_go = fn.when(lives, longer).otherwise(proven)
    joined = counted_dirs.join(size(living), ["cluster_id", "topic_id"], how="left").join(
        known, "cluster_id", how="left"
    )
    judged_strays = joined.withColumn("held", ~may_go)
    # Only strays: no other leftovers can be requested across the fleet.
    return windowed(judged_strays, fn.col("held")).withColumn("id", fn.when(fn.col("kind") == "stray", row_id()))


def undecided(judged: DataFrame) -> DataFrame:
    """`undecided`: directories that are not where the assignments place them but are not orphans, with the reason."""
    return judged.where(fn.col("fleet_verdict") == "unknown").withColumns(
        {
            "agent_verdict": fn.col("verdict"),
            "agent_reason": fn.col("reason"),
            "reason": fn.col("why"),
            "snapshot_at": fn.timestamp_millis("at_ms"),
        }
    )


SHOWN_CLUSTERS = 10_000
NAMED_IN_WARNINGS = 5
_SUMS = ("bytes", "allocated", "current", "future", "stray", "delete", "other", "orphans", "orphan_bytes")


def totals(by_cluster: list[Row], tables: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """The totals of `report.json`, from the tables that were written."""
    found = {name: sum(row[name] or 0 for row in by_cluster) for name in _SUMS}
    return found | {name: int(tables[name]["rows"]) for name in ("missing_replicas", "duplicates", "leftovers")}


def document(
    now: datetime, run: str, scope: Scope, by_cluster: list[Row], tables: dict[str, Any], warnings: list[str]
) -> dict[str, Any]:
    """`report.json`, as the contract defines it."""
    unknown = [h for h in scope.choice.hosts if not h["counts"]]
    shown = [{name: h[name] for name in ("cluster_id", "node_id", "why")} for h in unknown[:SHOWN_UNKNOWN_HOSTS]]
    commit = scope.commit
    return {
        "schema": REPORT_SCHEMA,
        "run_id": run,
        "at": rfc3339(round(now.timestamp() * 1000)),
        "as_of": rfc3339(scope.asked.as_of_ms),
        "date": scope.asked.day.isoformat(),
        "ingested": {"run": commit.run, "commit": commit.number, "at": commit.at},
        "clusters": _clusters(scope.choice, by_cluster),
        "hosts": {
            "reporting": len(counting := scope.choice.counting),
            "unknown": shown,
            "unknown_total": len(unknown),
            "enforcing": sum(host.get("mode") == "enforce" for host in counting),
            "accepting": sum(host.get("accepts") not in (None, "none") for host in counting),
            "refusing": sum(host.get("accepts") == "none" for host in counting),
            "acts_unknown": sum(host.get("acts") is None for host in counting),
        },
        "totals": totals(by_cluster, tables),
        "tables": tables,
        "warnings": warnings,
    }


def _clusters(choice: Choice, by_cluster: list[Row]) -> list[dict[str, Any]]:
    usage = {row["cluster_id"]: row for row in by_cluster}
    return [
        {
            "cluster_id": row["cluster_id"],
            "hosts": usage[row["cluster_id"]]["hosts"],
            "unknown_hosts": usage[row["cluster_id"]]["unknown_hosts"],
            "assignments": None
            if row["at"] is None
            else {
                "source": row["source"],
                "at": rfc3339(row["at"]),
                "age_seconds": round(row["age_seconds"], 3),
                "topics": int(row["topics"] or 0),
                "partitions": int(row["partitions"] or 0),
            },
            "replicas": {name: usage[row["cluster_id"]][name] for name in REPLICA_COUNTS} if row["decided"] else None,
            "verdicts": "decided" if row["decided"] else "unknown",
            "why": row["why"],
        }
        for row in choice.clusters[:SHOWN_CLUSTERS]
    ]


def _disagreements(differ: Sequence[Row]) -> Iterator[str]:
    for row in differ[:NAMED_IN_WARNINGS]:
        says = f"{counted(row['n'], 'directory')}, e.g. {row['example']}: the agent and the fleet disagree"
        yield f"node {row['node_id']} of {row['cluster_id']}: {says}"
    if len(differ) > NAMED_IN_WARNINGS:
        yield f"{counted(len(differ), 'host')} in all: the agent and the fleet disagree"


def _unsaid(hosts: Sequence[Row]) -> Iterator[str]:
    """What agents do not say of themselves, because they are older: that is not "no"."""
    for name, what in (
        ("mode", "whether it cleans up without being asked"),
        ("accepts", "whether it carries out requests"),
        ("acts", "what it did (it may have no journal)"),
        ("boot_id", "which boot it is: two machines under one node id may be taken for one"),
        ("unread_processes", "how many processes it could not read, whose removed files are not counted"),
    ):
        if silent := sum(host.get(name) is None for host in hosts):
            yield f"not said by {silent} of {counted(len(hosts), 'agent')}: {what}"


def _not_compared(replicas: Counted) -> Iterator[str]:
    for row in replicas.undecided:
        many = f"{counted(row['replicas'], 'replica')} on {counted(row['hosts'], 'host')} could not be compared"
        yield f"{many}, and not called missing: {NOT_COMPARED[row['reason']]}"
    if replicas.no_copy:
        unfound = counted(replicas.no_copy, "partition")
        yield f"of {unfound} with such replicas no copy was found: see undecided_replicas"
    for cluster_id, row in replicas.clusters.items():
        rest = row["expected"] - sum(row[name] for name in REPLICA_COUNTS if name != "expected")
        if rest:
            yield f"cluster {cluster_id}: its replicas do not add up: {rest} of {row['expected']} are counted nowhere"


def warnings_of(
    scope: Scope,
    doubted: Mapping[str, tuple[int, int]],
    undecided: Mapping[str, int],
    differ: list[Row],
    replicas: Counted,
    *,
    unread: int,
    large: bool,
) -> list[str]:
    """What an operator must know before trusting the numbers; the first few are named, all are counted."""
    choice = scope.choice
    found = _unknown(choice)
    found += [
        f"cluster {row['cluster_id']}: no verdicts: {row['why']}" for row in choice.clusters if not row["decided"]
    ][:100]
    for cluster_id, (count, dirs) in sorted(doubted.items()):
        found.append(
            f"cluster {cluster_id}: {count} of {dirs} directories would be orphans:"
            " its assignments are in doubt, so none of its directories is called an orphan"
        )
    if large:
        found.append(
            "more than a million partitions are not where the assignments place them: are the assignments complete?"
        )
    if undecided:
        whys = ", ".join(f"{why}: {count}" for why, count in sorted(undecided.items()))
        found.append(f"directories that could not be decided: {whys}")
    if unread:
        found.append(
            f"{counted(unread, 'directory')} could not be read whole by their agents (logagent scan there says why):"
            " there may be more than is counted"
        )
    offline = sum(row.get("health") == "offline" for row in scope.log_dirs)
    if offline:
        found.append(f"{counted(offline, 'log dir')} offline: what is there is not counted, and not called missing")
    if shared := counted_twice(choice, scope.log_dirs):
        found.append(
            f"{shared} file systems are shared by several brokers of one machine: what is used and free there counts"
            " once for each of them"
        )
    found += moved(choice)
    found += _unsaid(choice.counting)
    found += _not_compared(replicas)
    found += _disagreements(differ)
    reasons = Counter(row["reason"] for row in scope.quarantine)
    if reasons:
        counts = ", ".join(f"{reason}: {count}" for reason, count in sorted(reasons.items()))
        found.append(f"rejected files or rows: {sum(reasons.values())} ({counts}): see quarantined_input")
    return found


def moved(choice: Choice) -> list[str]:
    """Hosts that do not count because their log dirs have moved; and log dirs of two hosts that both count, by
    `directory.id`: the sums have them twice."""
    found = []
    gone = [host for host in choice.hosts if host["cause"] == "moved"]
    if gone:
        clusters = {host["cluster_id"] for host in gone} - {host["cluster_id"] for host in choice.counting}
        renamed = f"; of cluster {min(clusters)} no host counts: it may have a new id" if clusters else ""
        first = f"node {gone[0]['node_id']} of cluster {gone[0]['cluster_id']}: {gone[0]['why']}"
        found.append(f"hosts whose log dirs moved, which count once: {len(gone)}, such as {first}{renamed}")
    hosts: dict[str, list[Row]] = defaultdict(list)
    for host in choice.counting:
        for one in host.get("directory_ids") or ():
            hosts[one].append(host)
    twice = [sorted(each, key=happened) for each in hosts.values() if len(each) > 1]
    if twice:
        old, new = twice[0][0], twice[0][-1]
        says = f"node {old['node_id']} of cluster {old['cluster_id']} and node {new['node_id']} of {new['cluster_id']}"
        why = "both published within two hours, or in turns: moved just now, or a disk and its copy; both count"
        found.append(f"log dirs under two nodes: {len(twice)} (by directory.id), such as {says}: {why}")
    return found


def counted_twice(choice: Choice, log_dirs: Iterable[Row]) -> int:
    """How many file systems have log dirs of several nodes: one boot has one device of a number. Within a node they
    count once (`tables.store.by_file_system`)."""
    boots = {(host["cluster_id"], host["node_id"]): host.get("boot_id") for host in choice.counting}
    nodes: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    for row in log_dirs:
        node = row["cluster_id"], row["node_id"]
        boot, device = boots.get(node), row.get("device")
        if boot is not None and device is not None and row.get("used") is not None:
            nodes[boot, device].add(node)
    return sum(len(each) > 1 for each in nodes.values())


def _unknown(choice: Choice) -> list[str]:
    everyone = choice.hosts
    unknown = [h for h in everyone if not h["counts"]]
    if not everyone:
        return ["no host is known: landing had no snapshot and no assignments for these dates"]
    if not unknown:
        return []
    # Hosts are unknown in two ways, each with one example: a list of hundreds would hide the warnings after it.
    named = []
    for never in (False, True):
        hosts = [h for h in unknown if (h["at"] is None) == never]
        if hosts:
            first = hosts[0]
            named.append(
                f"{len(hosts)} without a complete snapshot{'' if never else ' that can be used'}: "
                f"node {first['node_id']} of {first['cluster_id']}{' and others' if len(hosts) > 1 else ''}: "
                f"{first['why']}"
            )
    says = f"{len(unknown)} of {len(everyone)} hosts are unknown and left out: see log_dir_health"
    if len(unknown) == len(everyone):
        says = f"all {len(unknown)} hosts are unknown: nothing can be said about this date"
    return [says, *named]
