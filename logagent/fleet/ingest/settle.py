"""Writes the rows of files into a table of a run, until each file in it has as many good rows as the driver counted.

Rows that Spark cannot parse show as a difference: that file is rejected with its bad rows, the host's next older file
takes its place, and no other rows are parsed again. So is a file whose sums or nodes are absurd. Whose files are wrong
again and again (`MAX_TRIES`) is given up, and nobody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.ingest import checked as checking
from logagent.fleet.ingest import headers, rows
from logagent.fleet.ingest.checked import Checked, choose, groups, reject
from logagent.fleet.ingest.landing import Landing
from logagent.fleet.ingest.manifests import Problem
from logagent.fleet.tables.frames import local_frame
from logagent.fleet.tables.spark_schemas import STORE, shaped
from logagent.fleet.tables.store import Run
from logagent.store.names import ASSIGNMENTS, publisher_of

ROWS_PER_FILE = 2_000_000
"""Approximate number of partition dirs per Parquet file of the store: what one task reads in a second or two."""
MAX_TRIES = 3
"""How many files of a host (of assignments: of a publisher) are tried that turn out to be broken inside: each costs the
others a rewrite of what is written."""
MAX_ROUNDS = 20
"""How often a table is rewritten for broken files: then every host or cluster that still has one is given up."""
ASIDE = ".aside"
DIR_ORDER = ("cluster_id", "topic", "topic_id", "partition", "node_id", "log_dir", "name")

Row = dict[str, Any]
Key = tuple[str, int | None]


def settle(run: Run, found: Checked, landing: Landing, table: str, frame: DataFrame) -> list[Row]:
    """Writes `table` until every file in it has as many good rows as the driver counted; returns sums by log dir, or
    the replicas of each node.

    A file that has fewer is rejected, and the host's next older file is tried: the others' rows are not parsed again.
    """
    kind = "snapshot" if table == "dirs" else "assignments"
    rounds = 0
    while True:
        written = run.write(table, _compacted(frame, table, rows_of(found.chosen(kind))))
        hosts = len(found.chosen(kind))
        counts, absurd, sums = _counted_dirs(written, hosts) if table == "dirs" else _counted_partitions(written)
        wrong = {
            key_of(e): _bad_rows(e, counts.get(key_of(e), 0))
            for e in found.chosen(kind)
            if counts.get(key_of(e), 0) != e["counted"]
        }
        wrong = absurd | wrong
        if not wrong:
            return sums
        rounds += 1
        broken = [e for e in found.chosen(kind) if key_of(e) in wrong]
        again = _reject_bad(run, found, landing, broken, wrong, last=rounds >= MAX_ROUNDS)
        frame = without(run, table, broken).unionByName(frame_of(run, again, table))


def _bad_rows(entry: Row, good: int) -> Problem:
    return "bad-rows", f"{entry['counted'] - good} of {entry['rows']} rows"


def without(run: Run, table: str, entries: list[Row]) -> DataFrame:
    """What was written of `table`, without the rows of some files; copied elsewhere, because `table` is rewritten from
    it."""
    keys = [{"c": e["cluster_id"], "n": e["node_id"]} for e in entries]
    same = fn.col("cluster_id") == fn.col("c")
    if table == "dirs":
        same = same & (fn.col("node_id") == fn.col("n"))
    gone = fn.broadcast(local_frame(run.store.spark, keys, "c string, n int"))
    aside = Run(run.store, f"{run.name}/{ASIDE}/{uuid4().hex}")
    return aside.write(table, run.read(table).join(gone, same, how="left_anti"))


def key_of(entry: Row) -> Key:
    return entry["cluster_id"], entry["node_id"]


def rows_of(entries: list[Row]) -> int:
    return sum(e["counted"] for e in entries)


def frame_of(run: Run, entries: list[Row], table: str) -> DataFrame:
    """Good rows of files, as the table has them."""
    landing = run.store.landing
    clean = [f"{landing}/{e['file']}" for e in entries if not e["odd"]]
    odd = [f"{landing}/{e['file']}" for e in entries if e["odd"]]
    if table == "dirs":
        frames = [rows.dirs(f) for f in rows.of_files(run.store.spark, clean, odd, "dir")]
    else:
        frames = [rows.partitions(f) for f in rows.of_files(run.store.spark, clean, odd, "partition")]
    if not frames:
        return local_frame(run.store.spark, [], STORE[table])
    frames = [shaped(each, STORE[table]) for each in frames]
    whole = frames[0]
    for each in frames[1:]:
        whole = whole.unionByName(each)
    return whole


def _compacted(frame: DataFrame, table: str, count: int) -> DataFrame:
    """`frame` in sorted files whose number follows from the rows alone. Copies of one partition are stored together,
    whatever host they are from.

    Rows are placed by a hash of topic and partition block, so that one topic with a million partitions spreads over all
    files.
    """
    number = max(1, -(-count // ROWS_PER_FILE))
    block = fn.floor(fn.coalesce(fn.col("partition"), fn.lit(0)) / 64)
    placed = frame.repartition(number, "cluster_id", "topic", block)
    if table == "dirs":
        return placed.sortWithinPartitions(*DIR_ORDER)
    # One row per partition: the grouping needs no further shuffle.
    return rows.merged(placed).sortWithinPartitions("cluster_id", "topic", "topic_id", "partition")


def _counted_partitions(written: DataFrame) -> tuple[dict[Key, int], dict[Key, Problem], list[Row]]:
    """Rows of each cluster in the written table, what is wrong with a cluster as a whole, and the replicas that each of
    its nodes has."""
    said = written.groupBy("cluster_id").agg(fn.sum("said").alias("said")).collect()
    nodes = (
        written.select("cluster_id", fn.explode("replicas").alias("node_id")).groupBy("cluster_id", "node_id").count()
    )
    most = headers.MOST_NODES * len(said)
    rows = [row.asDict() for row in nodes.limit(most + 1).collect()]
    per_cluster = Counter(row["cluster_id"] for row in rows)
    if len(rows) > most:
        per_cluster = Counter(
            {row["cluster_id"]: row["count"] for row in nodes.groupBy("cluster_id").count().collect()}
        )
    absurd: dict[Key, Problem] = {
        (cluster, None): (headers.TOO_MANY_NODES, f"it names {count} nodes, more than {headers.MOST_NODES}")
        for cluster, count in per_cluster.items()
        if count > headers.MOST_NODES
    }
    return {(row["cluster_id"], None): row["said"] for row in said}, absurd, rows


def _counted_dirs(written: DataFrame, hosts: int) -> tuple[dict[Key, int], dict[Key, Problem], list[Row]]:
    """Rows of each of the hosts in the written table, what is wrong with a host as a whole, and sums by log dir."""
    sums = [fn.try_sum(name).alias(name) for name in ("bytes", "allocated")]
    by = written.groupBy("cluster_id", "node_id", "log_dir").agg(fn.count("*").alias("dirs"), *sums)
    most = headers.MOST_LOG_DIRS * hosts
    found = [row.asDict() for row in by.limit(most + 1).collect()]
    if len(found) > most:
        # Names that one host made up: nothing of it is kept, so only the number is needed.
        of_host = by.groupBy("cluster_id", "node_id").agg(fn.sum("dirs").alias("dirs"), fn.count("*").alias("log_dirs"))
        each = of_host.collect()
        many = {(r["cluster_id"], r["node_id"]): r["log_dirs"] for r in each if r["log_dirs"] > headers.MOST_LOG_DIRS}
        return {(r["cluster_id"], r["node_id"]): r["dirs"] for r in each}, _many_log_dirs(many), []
    many = Counter((row["cluster_id"], row["node_id"]) for row in found)
    counts: Counter[Key] = Counter()
    bytes_of: Counter[tuple[Key, str]] = Counter()
    for row in found:
        key = row["cluster_id"], row["node_id"]
        counts[key] += row["dirs"]
        for name in ("bytes", "allocated"):
            # Null: the sum of the log dir alone is too much.
            bytes_of[key, name] += headers.LARGEST_SIZE + 1 if row[name] is None else row[name]
    says = f"its directories add up to more than {headers.LARGEST_SIZE} bytes"
    absurd = {key: (headers.TOO_MANY_BYTES, says) for (key, _), size in bytes_of.items() if size > headers.LARGEST_SIZE}
    return dict(counts), absurd | _many_log_dirs(many), found


def _many_log_dirs(log_dirs: Mapping[Key, int]) -> dict[Key, Problem]:
    return {
        key: (headers.TOO_MANY_LOG_DIRS, f"its directories are in {count} log dirs, more than {headers.MOST_LOG_DIRS}")
        for key, count in log_dirs.items()
        if count > headers.MOST_LOG_DIRS
    }


def _reject_bad(
    run: Run, found: Checked, landing: Landing, broken: list[Row], wrong: dict[Key, Problem], *, last: bool
) -> list[Row]:
    """Rejects files for what is wrong with them, lists their bad rows, and takes the next older files, which it
    returns; none if this is the last round."""
    kind = broken[0]["kind"]
    row_kind, good = ("dir", rows.is_good_dir()) if kind == "snapshot" else ("partition", rows.is_good_partition())
    paths = [f"{run.store.landing}/{e['file']}" for e in broken]
    by_key: dict[Key, list[tuple[str, str]]] = {}
    for frame in rows.of_files(run.store.spark, [], paths, row_kind):
        bad = rows.rejected_rows(frame, good, row_kind).orderBy("cluster_id", "node_id", "record", "detail")
        for row in bad.limit(checking.BAD_ROWS_KEPT * 100).collect():
            by_key.setdefault((row.cluster_id, row.node_id), []).append((row.detail, row.record))
    for entry in broken:
        found.records += checking._records(entry, by_key.get(key_of(entry), []))
        reject(entry, *wrong[key_of(entry)])
    # Only a file that was taken has been counted.
    tried = Counter(_sender(e) for e in found.entries if e["status"] == "rejected" and "counted" in e)
    again: list[Row] = []
    for entry in broken:
        group = [
            e for e in found.entries if key_of(e) == key_of(entry) and e["kind"] == kind and e["status"] == "superseded"
        ]
        for each in group:
            each["status"] = "whole"
            if last or tried[_sender(each)] >= MAX_TRIES:
                sender = "host" if kind == "snapshot" else "publisher"
                why = f"{tried[_sender(each)]} newer files of this {sender} are broken inside"
                reject(each, "not-tried", "too many files were broken inside" if last else why)
        for candidates in groups(group):
            choose(landing, found, candidates)
        again += [e for e in group if e["status"] == "taken"]
    return again


def _sender(entry: Row) -> tuple[str, str, int | None]:
    """Who is answerable for a file: the host, of assignments the node that published them."""
    node = publisher_of(entry["stem"]) if entry["kind"] == ASSIGNMENTS else entry["node_id"]
    return entry["kind"], entry["cluster_id"], node
