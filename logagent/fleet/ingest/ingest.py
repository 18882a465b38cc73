"""Landing → store for one date: check, choose, parse, reconcile, compact.

The result depends only on what lies in landing: the same files give the same bytes in the store, however many executors
ran. A file is taken if its bytes, SHA-256, rows and identity agree with its manifest and no row of it is bad; of each
host the newest such file counts. Everything else is listed with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from logagent.fleet.ingest import manifests
from logagent.fleet.ingest.reader import Reader
from logagent.fleet.session import tune
from logagent.fleet.tables import aggregates, rows
from logagent.fleet.tables.store import Scratch, Store

ROWS_PER_FILE = 4_000_000
"""Partition dirs per Parquet file of the store, about: what one task reads in a second or two."""
BAD_ROWS_KEPT = 100
"""Bad rows that are listed per file; their number is in the file's own entry."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ingested:
    """What happened to the files of one date; `rows` are those of the files taken."""

    date: date
    taken: int = 0
    superseded: int = 0
    waiting: int = 0
    rejected: int = 0
    rows: int = 0

    def document(self) -> dict[str, str | int]:
        """For `--json`."""
        return {**asdict(self), "date": self.date.isoformat()}


def ingest(
    store: Store, day: date, *, say: Say = lambda _: None, still_ours: Callable[[], None] = lambda: None
) -> Ingested:
    """Replaces `day` in the store by what landing has for it.

    Raises what Spark raises; from the first write until the end the date counts as not ingested. `still_ours` raises if
    another ingest has taken the store meanwhile.
    """
    say(f"{day}: checking manifests")
    with Scratch(store.spark, store.files, store.uri) as scratch:
        checked = scratch.keep("checked", manifests.checked(store.spark, store.landing, day.isoformat()))
        candidates = scratch.keep("candidates", manifests.ranked(checked))
        snapshots, assignments = (Reader(store, scratch, candidates, kind) for kind in ("snapshot", "assignments"))
        say(f"{day}: reading assignments")
        assignments.run()
        say(f"{day}: reading snapshots")
        snapshots.run()
        files = scratch.keep("files", _files(checked, snapshots, assignments))
        numbers = [fn.sum(name).alias(name) for name in ("rows", "dirs", "partitions")]
        counts = {
            row["status"]: row for row in files.groupBy("status").agg(fn.count("*").alias("n"), *numbers).collect()
        }
        still_ours()
        store.uncommit(day)
        say(f"{day}: writing")
        taken = counts["taken"].asDict() if "taken" in counts else {}
        sizes = {name: int(taken.get(name) or 0) for name in ("rows", "dirs", "partitions")}
        tune(store.spark, sizes["rows"])
        _write(store, day, files, sizes, snapshots, assignments, still_ours)
    by_status = {name: int(row["n"]) for name, row in counts.items()}
    return Ingested(day, **by_status, rows=sizes["rows"])


def _files(checked: DataFrame, snapshots: Reader, assignments: Reader) -> DataFrame:
    """The `files` table: every file of the date with its status. `reason` is a word, `detail` what was seen."""
    opened = snapshots.opened().unionByName(assignments.opened())
    known = checked.withColumnRenamed("host", "claimed_host").join(opened, "path", how="left")
    reason = fn.coalesce("problem", fn.nullif(fn.regexp_extract("inside", "^([^:]+): ", 1), fn.lit("")))
    status = (
        fn.when(fn.col("problem") == "no-manifest", "waiting")
        .when(reason.isNotNull(), "rejected")
        .when(fn.col("rows").isNotNull(), "taken")
        .otherwise("superseded")
    )
    detail = fn.coalesce("detail", fn.nullif(fn.regexp_extract("inside", "^[^:]+: (.*)$", 1), fn.lit("")))
    named = known.withColumns({"status": status, "reason": reason, "detail": detail})
    return named.withColumn("host", fn.coalesce("host", "claimed_host"))


def _write(
    store: Store,
    day: date,
    files: DataFrame,
    sizes: dict[str, int],
    snapshots: Reader,
    assignments: Reader,
    still_ours: Callable[[], None],
) -> None:
    good = snapshots.good()
    assigned = assignments.good()
    dirs = compacted(rows.dirs(good), _parts(sizes["dirs"]), DIR_ORDER)
    store.replace("dirs", day, dirs)
    partitions = compacted(rows.partitions(assigned), _parts(sizes["partitions"]), PARTITION_ORDER)
    store.replace("assignments", day, partitions)
    store.replace("logdirs", day, _one_file(rows.log_dirs(good), "cluster_id", "node_id", "log_dir"))
    written = store.read("dirs", [day])
    partitions = store.read("assignments", [day])
    store.replace("brokers", day, _one_file(rows.brokers(assigned, partitions), "cluster_id", "node_id"))
    ledgers = store.read("logdirs", [day])
    store.replace(
        "agg_topic", day, _one_file(aggregates.topics(written, partitions), "cluster_id", "topic", "topic_id")
    )
    by_log_dir = aggregates.log_dirs(written, ledgers)
    store.replace("agg_logdir", day, _one_file(by_log_dir, "cluster_id", "node_id", "log_dir"))
    others = aggregates.others(written)
    store.replace("others", day, _one_file(others, "cluster_id", "node_id", "log_dir", "name"))
    store.replace("quarantine", day, _one_file(_quarantine(files, snapshots, assignments), "file", "reason", "record"))
    topics = store.read("agg_topic", [day]).where(fn.col("assigned_partitions") > 0)
    named = files.join(topics.groupBy("cluster_id").agg(fn.count("*").alias("topics")), "cluster_id", how="left")
    still_ours()
    store.replace("files", day, _one_file(named, "file", "status"))
    store.commit(day)


DIR_ORDER = ("cluster_id", "topic", "topic_key", "partition", "node_id", "log_dir", "name")
PARTITION_ORDER = ("cluster_id", "topic", "topic_key", "partition")


def _parts(rows: int) -> int:
    """Number of Parquet files: it follows from the rows alone, so that a repeat gives the same files."""
    return max(1, -(-rows // ROWS_PER_FILE))


def compacted(frame: DataFrame, parts: int, order: tuple[str, ...]) -> DataFrame:
    """`frame` in `parts` sorted files. Copies of one partition come to lie together, whatever host they are from.

    Rows are placed by a hash of topic and partition block, so that one topic with a million partitions fills all files.
    The order is total: neither executors nor input order show in the bytes.
    """
    block = fn.floor(fn.coalesce(fn.col("partition"), fn.lit(0)) / 64)
    placed = frame.repartition(parts, "cluster_id", "topic", block)
    return placed.sortWithinPartitions(*order)


def _one_file(frame: DataFrame, *order: str) -> DataFrame:
    return frame.coalesce(1).sortWithinPartitions(*order)


def _quarantine(files: DataFrame, snapshots: Reader, assignments: Reader) -> DataFrame:
    """Every file that was not taken because of what is wrong with it, and its bad rows."""
    wrong = files.where(fn.col("status").isin("rejected", "waiting")).withColumn("record", fn.lit(None).cast("string"))
    first = Window.partitionBy("of_file").orderBy("record", "detail")
    bad = snapshots.bad().unionByName(assignments.bad())
    listed = bad.withColumn("nth", fn.row_number().over(first)).where(fn.col("nth") <= BAD_ROWS_KEPT)
    owner = files.select(fn.col("path").alias("of_file"), "cluster_id", "node_id", "kind", "file")
    records = listed.join(owner, "of_file", how="inner").withColumn("reason", fn.lit("bad-row"))
    columns = ("cluster_id", "node_id", "kind", "file", "reason", "detail", "record")
    return wrong.select(*columns).unionByName(records.select(*columns))
