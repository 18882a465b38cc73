"""Writes the rows of files into a table of a run, until each file in it has as many good rows as the driver counted.

Rows that Spark cannot parse show as a difference: that file is rejected with its bad rows, the host's next older file
takes its place, and no other rows are parsed again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.errors import LogAgentError
from logagent.fleet.ingest import checked as checking
from logagent.fleet.ingest import rows
from logagent.fleet.ingest.checked import Checked, choose, groups, reject
from logagent.fleet.ingest.landing import Landing
from logagent.fleet.tables.frames import local_frame
from logagent.fleet.tables.spark_schemas import STORE, shaped
from logagent.fleet.tables.store import Run

ROWS_PER_FILE = 2_000_000
"""Approximate number of partition dirs per Parquet file of the store: what one task reads in a second or two."""
MAX_ROUNDS = 20
"""How many older files of a host are tried if its newest ones turn out to be broken inside."""
ASIDE = ".aside"
DIR_ORDER = ("cluster_id", "topic", "topic_id", "partition", "node_id", "log_dir", "name")

Row = dict[str, Any]


def settle(run: Run, found: Checked, landing: Landing, table: str, frame: DataFrame) -> list[Row]:
    """Writes `table` until every file in it has as many good rows as the driver counted; returns sums by log dir.

    A file that has fewer is rejected, and the host's next older file is tried: the others' rows are not parsed again.
    """
    kind = "snapshot" if table == "dirs" else "assignments"
    for _ in range(MAX_ROUNDS):
        written = run.write(table, _compacted(frame, table, rows_of(found.chosen(kind))))
        counts, sums = _counted(written, table)
        broken = [e for e in found.chosen(kind) if counts.get(key_of(e), 0) != e["counted"]]
        if not broken:
            return sums
        again = _reject_bad(run, found, landing, broken, kind, counts)
        frame = without(run, table, broken).unionByName(frame_of(run, again, table))
    raise LogAgentError(f"{found.day}: more than {MAX_ROUNDS} files of one host are corrupt inside")


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


def key_of(entry: Row) -> tuple[str, int | None]:
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


def _counted(written: DataFrame, table: str) -> tuple[dict[tuple[str, int | None], int], list[Row]]:
    """Rows of each host (or cluster) in the written table, and for `dirs` sums by log dir."""
    if table == "assignments":
        found = written.groupBy("cluster_id").agg(fn.sum("said").alias("said")).collect()
        return {(r["cluster_id"], None): r["said"] for r in found}, []
    sums = [fn.sum(name).alias(name) for name in ("bytes", "allocated")]
    by = written.groupBy("cluster_id", "node_id", "log_dir").agg(fn.count("*").alias("dirs"), *sums)
    counts: Counter[tuple[str, int | None]] = Counter()
    found_rows = [row.asDict() for row in by.collect()]
    for row in found_rows:
        counts[row["cluster_id"], row["node_id"]] += row["dirs"]
    return dict(counts), found_rows


def _reject_bad(
    run: Run, found: Checked, landing: Landing, broken: list[Row], kind: str, counts: dict[Any, int]
) -> list[Row]:
    """Rejects files with bad rows, lists these rows, and takes the next older files, which it returns."""
    row_kind, good = ("dir", rows.is_good_dir()) if kind == "snapshot" else ("partition", rows.is_good_partition())
    paths = [f"{run.store.landing}/{e['file']}" for e in broken]
    by_key: dict[tuple[str, int | None], list[tuple[str, str]]] = {}
    for frame in rows.of_files(run.store.spark, [], paths, row_kind):
        bad = rows.bad_rows(frame, good, row_kind).orderBy("cluster_id", "node_id", "record", "detail")
        for row in bad.limit(checking.BAD_ROWS_KEPT * 100).collect():
            by_key.setdefault((row.cluster_id, row.node_id), []).append((row.detail, row.record))
    again: list[Row] = []
    for entry in broken:
        missing = entry["counted"] - counts.get(key_of(entry), 0)
        found.records += checking._records(entry, by_key.get(key_of(entry), []))
        reject(entry, "bad-rows", f"{missing} of {entry['rows']} rows")
    for entry in broken:
        group = [
            e for e in found.entries if key_of(e) == key_of(entry) and e["kind"] == kind and e["status"] == "superseded"
        ]
        for each in group:
            each["status"] = "whole"
        for candidates in groups(group):
            choose(landing, found, candidates)
        again += [e for e in group if e["status"] == "taken"]
    return again
