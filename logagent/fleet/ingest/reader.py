"""Opens whole files, newest first, and says which of them are taken."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.tables import rows
from logagent.fleet.tables.store import Scratch, Store

MAX_ROUNDS = 50
"""Older files of a host that are tried when its newest ones turn out broken inside."""


class Reader:
    """Reads the newest file of each host (or cluster), and the next older one where that turns out broken inside."""

    def __init__(self, store: Store, scratch: Scratch, candidates: DataFrame, kind: str) -> None:
        self.store = store
        self.scratch = scratch
        self.kind = kind
        self.candidates = candidates.where(fn.col("kind") == kind)
        self.judged: list[DataFrame] = []
        self.verdicts: list[DataFrame] = []

    def run(self) -> None:
        """Fills `judged` and `verdicts`, one round per rank."""
        wanted = self.candidates
        for rank in range(1, MAX_ROUNDS + 1):
            # A plan holds its list of files on the driver in any case (Spark's own file index does).
            paths = [row.path for row in wanted.where(fn.col("rank") == rank).select("path").sort("path").collect()]
            if not paths:
                break
            self._round(rows.lines(self.store.spark, paths), wanted.where(fn.col("rank") == rank))
            failed = (
                self.verdicts[-1]
                .where(fn.col("inside").isNotNull())
                .select(fn.col("cluster_id").alias("failed_cluster"), fn.col("node_id").alias("failed_node"))
            )
            same = fn.col("cluster_id") == fn.col("failed_cluster")
            same = same & fn.col("node_id").eqNullSafe(fn.col("failed_node"))
            wanted = self.candidates.join(failed, same, how="left_semi")
        if not self.judged:
            nothing = self.store.spark.createDataFrame([], "value string, of_file string")
            self._round(nothing, self.candidates.where(fn.lit(False)))

    def _round(self, lines: DataFrame, files: DataFrame) -> None:
        name = f"{self.kind}-{len(self.judged)}"
        judged = self.scratch.keep(f"{name}-rows", self._judge(lines))
        self.judged.append(judged)
        self.verdicts.append(self.scratch.keep(f"{name}-files", self._verdicts(judged, files)))

    def _judge(self, lines: DataFrame) -> DataFrame:
        return rows.snapshot_rows(lines) if self.kind == "snapshot" else rows.assignment_rows(lines)

    def _verdicts(self, judged: DataFrame, files: DataFrame) -> DataFrame:
        """`files` with what their rows say: counts, the header, and `inside`: what does not reconcile, or null."""
        counted = files.withColumnRenamed("path", "of_file").join(rows.census(judged), "of_file", how="left")
        return counted.join(rows.headers(judged), "of_file", how="left").withColumn("inside", _inside(self.kind))

    def good(self) -> DataFrame:
        """Rows of the taken files, with `cluster_id` and `node_id` of their place."""
        return union([self._of_taken(*pair) for pair in zip(self.judged, self.verdicts, strict=True)])

    def _of_taken(self, judged: DataFrame, verdicts: DataFrame) -> DataFrame:
        place = ["cluster_id", *(["node_id"] if self.kind == "snapshot" else [])]
        taken = verdicts.where(fn.col("inside").isNull()).select("of_file", *place)
        return judged.drop(*place).join(fn.broadcast(taken), "of_file", how="inner")

    def bad(self) -> DataFrame:
        """Every bad row that was met."""
        return union([rows.bad_rows(judged) for judged in self.judged])

    def opened(self) -> DataFrame:
        """What became of every file that was opened: the columns that the `files` table takes from its rows."""
        text, number = fn.lit(None).cast("string"), fn.lit(None).cast("bigint")
        if self.kind == "snapshot":
            own = [fn.col(f"header.{n}").alias(n) for n in ("host", "agent_version", "kafka_version")]
            own += [text.alias("source"), number.alias("offset")]
        else:
            own = [text.alias(n) for n in ("host", "agent_version", "kafka_version")]
            own += [fn.col(f"header.{n}").alias(n) for n in ("source", "offset")]
        counts = [fn.col("read").alias("rows"), *(fn.col(n) for n in ("dirs", "log_dirs", "partitions"))]
        return union(self.verdicts).select(fn.col("of_file").alias("path"), "inside", *own, *counts)


def union(parts: list[DataFrame]) -> DataFrame:
    """Rows of all parts, by column name."""
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return whole


def _inside(kind: str) -> Column:
    """The first thing in a file that its manifest and place do not agree with ("reason: detail"), null if complete."""
    read = fn.coalesce(fn.col("read"), fn.lit(0))
    headers = fn.coalesce(fn.col("headers"), fn.lit(0))
    found = [
        fn.when(
            read != fn.col("claimed_rows"),
            fn.format_string("rows-differ: %d rows, its manifest says %d", read, fn.col("claimed_rows")),
        ),
        fn.when(fn.col("bad") > 0, fn.format_string("bad-rows: %d of %d rows", fn.col("bad"), read)),
        fn.when(headers != 1, fn.format_string("header-differs: %d header rows", headers)),
        fn.when(
            fn.col("header.cluster_id") != fn.col("cluster_id"),
            fn.concat(fn.lit("wrong-cluster: its header says "), fn.col("header.cluster_id")),
        ),
    ]
    if kind == "snapshot":
        found += [
            fn.when(
                fn.col("header.node_id") != fn.col("node_id"),
                fn.format_string("wrong-host: its header says node %d", fn.col("header.node_id")),
            ),
            fn.when(
                fn.col("header.snapshot_id") != fn.col("snapshot_id"),
                fn.concat(fn.lit("wrong-snapshot: its header says "), fn.col("header.snapshot_id")),
            ),
        ]
    return fn.coalesce(*found)
