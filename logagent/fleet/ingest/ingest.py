"""Landing → a run of one date: check, choose, parse, reconcile, compact, commit.

The result depends only on what is in landing: the same files give the same rows in the same order in the same number of
files, however many executors ran. A file is taken if its bytes, SHA-256, rows and identity agree with its manifest and
none of its rows is bad; the newest such file of each host counts. Everything else is listed with its reason. Nothing
ingested before is touched: a run counts once its commit exists (`tables/store.py`).

Rows that Spark cannot parse show as a difference from what `check` counted: that file is rejected with its bad rows,
the host's next older file takes its place, and no other rows are parsed again. So is a file whose sums or nodes are
absurd. Whose files are wrong again and again (`MAX_TRIES`) is given up, and nobody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from logagent.base.errors import LogAgentError
from logagent.base.units import FIRST_MS, LAST_MS
from logagent.fleet.ingest.check import (
    ASIDE,
    BAD_ROWS_KEPT,
    LARGEST_SIZE,
    LONGEST_LINE,
    MOST_LOG_DIRS,
    MOST_NODES,
    TOO_MANY_BYTES,
    TOO_MANY_LOG_DIRS,
    TOO_MANY_NODES,
    Checked,
    check,
    choose,
    groups,
    quarantine,
    records,
    reject,
)
from logagent.fleet.ingest.landing import Landing, Listing, Problem
from logagent.fleet.tables.choice import Choice, ReportScope, Row, chosen_rows, happened, silent_frame
from logagent.fleet.tables.choice import choose as choose_hosts
from logagent.fleet.tables.files import literal
from logagent.fleet.tables.frames import (
    ABSENT_LINE,
    ACT_LINE,
    ACT_STARTS,
    CORRUPT,
    DIR_LINE,
    KEY,
    LONGEST,
    PARTITION_LINE,
    STORE,
    at_most,
    local_frame,
    parts,
    real_id,
    seen,
    shaped,
    together,
    topics,
    tune,
    whose,
)
from logagent.fleet.tables.store import Commit, Run, Store
from logagent.store.contract import ASSIGNMENTS, DATA, publisher_of
from logagent.store.snapshots import ACT_FIELDS, TIMES

MOST_TWICE = 10_000
"""Partitions with two directories on one host that are looked up fast."""
MAX_AGE = timedelta(hours=26)
"""The maximum age of snapshots in `parts`: a report with another age leaves hosts out, or computes its own."""


ROWS_PER_FILE = 500_000
"""Approximate number of partition dirs per Parquet file of the store: enough files for each executor from some hundreds
of hosts on, and each worth a task."""
MAX_TRIES = 3
"""How many files of a host (of assignments: of a publisher) are tried that turn out to be broken inside: each costs the
others a rewrite of what is written."""
MAX_ROUNDS = 20
"""How often a table is rewritten for broken files: then every host or cluster that still has one is given up."""
DIR_ORDER = ("cluster_id", "topic", "topic_id", "partition", "node_id", "log_dir", "name")

Key = tuple[str, int | None]

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
    store: Store,
    day: date,
    landing: Landing,
    listing: Listing,
    *,
    say: Say = lambda _: None,
    still_ours: Callable[[], None] = lambda: None,
    pinned: frozenset[int] | None = None,
) -> Ingested:
    """Turns what landing has for `day` into a run, and commits it. Raises what Spark raises; then nothing has changed.

    `still_ours` raises if another ingest has taken over the store.
    """
    say(f"{day}: checking files")
    run = store.new_run()
    try:
        found = check(run, landing, listing, day, pinned, say)
        _write(store, run, found, landing, say)
        still_ours()
        store.add_commit(run.as_commit(day, store.next_number(day)))
    except BaseException:
        run.drop()
        raise
    counts = Counter(e["status"] for e in found.entries)
    taken = sum(e["rows"] for e in found.entries if e["status"] == "taken")
    return Ingested(day, counts["taken"], counts["superseded"], counts["waiting"], counts["rejected"], taken)


def _write(store: Store, run: Run, found: Checked, landing: Landing, say: Say) -> None:
    tune(store.spark, sum(e.get("dirs") or 0 for e in found.chosen("snapshot")))
    say(f"{found.day}: reading {len(found.chosen('assignments'))} assignment files")
    replicas = settle(run, found, landing, "assignments", frame_of(run, found.chosen("assignments"), "assignments"))
    run.write_small("nodes", _nodes(found, replicas))
    frame = frame_of(run, found.chosen("snapshot"), "dirs")
    while True:  # until no host is left out
        say(f"{found.day}: reading {len(found.chosen('snapshot'))} snapshots")
        sums = settle(run, found, landing, "dirs", frame)
        dirs = run.read("dirs")
        said_other = fn.coalesce(fn.col("verdict") != "assigned", fn.lit(False))
        others = dirs.where((fn.col("kind") != "current") | said_other | fn.col("error").isNotNull())
        run.write("others", _one_file(others, DIR_ORDER))
        say(f"{found.day}: comparing partitions")
        run.write_small("files", found.files())
        chosen = _choice(store, run, found)
        _parts(store, run, found, chosen)
        twice = _listed_twice(run)
        entries = [e for e in found.chosen("snapshot") if key_of(e) in twice]
        if not entries:
            break
        for entry in entries:
            reject(entry, "directory-twice", f"it lists a directory twice: {twice[key_of(entry)]}")
        frame = without(run, "dirs", entries)
    _absent(run, found)
    _acts(run, found)
    _earlier(run, found)
    run.write_small("choice", chosen.rows())
    run.write_small("log_dirs", _log_dirs(found, sums))
    run.write_small("files", found.files())
    run.write_small("quarantine", quarantine(found))
    store.files.delete(f"{run.uri}/{ASIDE}")
    # Before the commit: checks that the Parquet footers have as many rows as the driver counted.
    expected = rows_of(found.chosen("snapshot"))
    if run.count("dirs") != expected:
        raise LogAgentError(
            f"{found.day}: {run.count('dirs')} of {expected} directories were written",
            hint="run `logagent fleet ingest` again; nothing has changed",
        )


def _absent(run: Run, found: Checked) -> None:
    """Writes the replicas that agents say are not there. Their rows were read at `check`, which has counted them."""
    paths = [e["read_from"] for e in found.chosen("snapshot") if e.get("absent")]
    if not paths:
        run.write_none("absent")
        return
    rows = placed(fast(run.store.spark, paths, ABSENT_LINE).where(fn.col("row") == "absent"))
    order = ("cluster_id", "topic", "partition", "node_id")
    run.write("absent", _one_file(rows.withColumn("topic_id", real_id()), order))
    expected = sum(e["absent"] for e in found.chosen("snapshot") if e.get("absent"))
    if run.count("absent") != expected:
        raise LogAgentError(
            f"{found.day}: {run.count('absent')} of {expected} absent replicas were written",
            hint="run `logagent fleet ingest` again; nothing has changed",
        )


def _acts(run: Run, found: Checked) -> None:
    """Writes what agents say that they have done. Their rows were read at `check`, which has counted them."""
    entries = [e for e in found.chosen("snapshot") if e.get("acts") and e["acts"]["rows"]]
    if not entries:
        run.write_none("acts")
        return
    starts = [fn.col("value").startswith(start.decode()) for start in ACT_STARTS]
    lines = of_lines(run.store.spark, [e["read_from"] for e in entries], ACT_LINE, starts[0] | starts[1])
    times = {name: fn.timestamp_millis(name) for name, kind in ACT_FIELDS.items() if kind == "time"}
    named = [{name: e[name] for name in ("cluster_id", "node_id", "host")} for e in entries]
    hosts = fn.broadcast(local_frame(run.store.spark, named, "cluster_id string, node_id int, host string"))
    rows = placed(lines).withColumns({**times, "topic_id": real_id()}).join(hosts, ["cluster_id", "node_id"])
    run.write("acts", _one_file(rows, ("cluster_id", "node_id", "finished_at", "id")))
    expected = sum(e["acts"]["rows"] for e in entries)
    if run.count("acts") != expected:
        raise LogAgentError(
            f"{found.day}: {run.count('acts')} of {expected} rows of what was done were written",
            hint="run `logagent fleet ingest` again; nothing has changed",
        )


def _earlier(run: Run, found: Checked) -> None:
    """Writes the assignments that are read for hosts without images of their own; one whose rows are not good is
    rejected, and not used."""
    entries = [e for e in found.entries if e.get("earlier")]
    if not entries:
        run.write_none("earlier")
        return
    frame = fast(run.store.spark, [e["read_from"] for e in entries], PARTITION_LINE)
    stem = fn.substring_index(fn.substring_index("file_path", "/", -1), DATA, 1)
    good = good_partitions(frame.withColumn("image", stem))
    counts = good.groupBy("cluster_id", "image").count().collect()
    known = {(row["cluster_id"], row["image"]): row["count"] for row in counts}
    for entry in entries:
        key = entry["cluster_id"], entry["stem"]
        if known.get(key, 0) != entry["counted"]:
            entry["earlier"] = None
            reject(entry, "bad-rows", f"{entry['counted'] - known.get(key, 0)} of {entry['rows']} rows")
    whole = [e["stem"] for e in entries if e.get("earlier")]
    order = ("cluster_id", "topic", "topic_id", "partition", "image")
    run.write("earlier", _one_file(good.where(fn.col("image").isin(whole)), order))


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
        topics_of: dict[str, int] = {}
        if table == "dirs":
            counts, absurd, sums = _counted_dirs(written, hosts)
        else:
            counts, absurd, sums, topics_of = _counted_partitions(written)
        wrong = {
            key_of(e): ("bad-rows", f"{e['counted'] - counts.get(key_of(e), 0)} of {e['rows']} rows")
            for e in found.chosen(kind)
            if counts.get(key_of(e), 0) != e["counted"]
        }
        wrong = absurd | wrong
        if not wrong:
            for one in found.chosen("assignments") if table == "assignments" else ():
                one["topics"] = topics_of.get(one["cluster_id"])
            return sums
        rounds += 1
        broken = [e for e in found.chosen(kind) if key_of(e) in wrong]
        again = _reject_bad(run, found, landing, broken, wrong, last=rounds >= MAX_ROUNDS)
        frame = without(run, table, broken).unionByName(frame_of(run, again, table))


def frame_of(run: Run, entries: list[Row], table: str) -> DataFrame:
    """Good rows of files, as the table has them."""
    clean = [e["read_from"] for e in entries if not e["odd"]]
    odd = [e["read_from"] for e in entries if e["odd"]]
    kind, good = ("dir", good_dirs) if table == "dirs" else ("partition", good_partitions)
    frames = [good(frame) for frame in of_files(run.store.spark, clean, odd, kind)]
    if not frames:
        return local_frame(run.store.spark, [], STORE[table])
    return together(shaped(each, STORE[table]) for each in frames)


def of_files(spark: SparkSession, clean: list[str], odd: list[str], kind: str) -> list[DataFrame]:
    """Frames of all lines: of `clean` files the fast way, of `odd` ones the slow one."""
    ddl = DIR_LINE if kind == "dir" else PARTITION_LINE
    frames = [fast(spark, clean, ddl)] if clean else []
    return frames + ([slow(spark, odd, ddl)] if odd else [])


_LINES = {
    "lineSep": "\n",
    # Longer lines were rejected before; a file that has changed since must not crash the executor.
    "mapreduce.input.linerecordreader.line.maxlength": str(4 * LONGEST_LINE),
}
# Keep the escape of a lone low surrogate as text: Java would replace each with "?", so that two names become one. A
# pair (an emoji) is left alone.
_LONE_SURROGATE = r"(?<!\\u[dD][89abAB][0-9a-fA-F]{2})(?<!\\)((?:\\\\)*)\\u([dD][cC-fF][89a-fA-F0-9][0-9a-fA-F])"


def fast(spark: SparkSession, paths: list[str], ddl: str) -> DataFrame:
    """Lines of files through Spark's JSON source: `file_path` and the fields of `ddl`."""
    reader = spark.read.schema(ddl).options(**_LINES, mode="PERMISSIVE", columnNameOfCorruptRecord=CORRUPT)
    return reader.json([literal(path) for path in paths]).select("*", fn.col("_metadata.file_path").alias("file_path"))


def slow(spark: SparkSession, paths: list[str], ddl: str) -> DataFrame:
    """The same for files with escapes that Java cannot represent, line by line."""
    return of_lines(spark, paths, ddl, fn.lit(True))


def of_lines(spark: SparkSession, paths: list[str], ddl: str, wanted: Column) -> DataFrame:
    """`slow`, of the lines alone whose `value` is wanted: the others are not parsed."""
    lines = spark.read.options(**_LINES).text([literal(path) for path in paths]).where(wanted)
    escaped = fn.when(
        fn.lower("value").contains("\\ud"), fn.regexp_replace("value", _LONE_SURROGATE, r"$1\\\\u$2")
    ).otherwise(fn.col("value"))
    fields = fn.from_json(escaped, ddl, {"columnNameOfCorruptRecord": CORRUPT})
    # A generator: a filter on a field of a plain struct would be pushed below, and every line parsed twice.
    return lines.select(fn.inline(fn.array(fields)), fn.col("_metadata.file_path").alias("file_path"))


def placed(frame: DataFrame) -> DataFrame:
    """Adds `cluster_id, node_id` from a file's path: names there are plain, so nothing has to be decoded."""
    part = fn.split(fn.substring_index("file_path", "/", -4), "/")
    return frame.withColumns({"cluster_id": part[0], "node_id": part[2].try_cast("int")}).drop("file_path")


_NAME, _WORD, _NODES = LONGEST["name"], LONGEST["kind"], 1000


def is_good_dir() -> Column:
    """Whether a `dir` row is valid in every field that decides something.

    Times must be in the years that an agent can print (1 to 9999): a file may have a time before 1970. Only `due_at`
    may be later (any delay can be configured) and is stored as the last of these times.
    """
    in_use = fn.col("kind").isin("current", "future")
    size = fn.col("bytes").between(0, LARGEST_SIZE) & fn.col("allocated").between(0, LARGEST_SIZE)
    named = fn.col("log_dir").isNotNull() & fn.col("name").isNotNull() & fn.col("kind").isNotNull()
    partition = fn.col("partition").isNull() | (fn.col("partition") >= 0)
    whole = ~in_use | (fn.col("topic").isNotNull() & fn.col("partition").isNotNull())
    good = fn.col(CORRUPT).isNull() & named & size & partition & whole
    for name in TIMES:
        known = fn.col(name) >= FIRST_MS if name == "due_at" else fn.col(name).between(FIRST_MS, LAST_MS)
        good = good & fn.coalesce(known, fn.lit(True))
    for name, longest in LONGEST.items():
        good = good & _is_short(name, longest)
    return (fn.col("row") == "dir") & fn.coalesce(good, fn.lit(False))


def _is_short(name: str, longest: int) -> Column:
    return fn.coalesce(fn.octet_length(name) <= longest, fn.lit(True))


def good_dirs(frame: DataFrame) -> DataFrame:
    """Directory rows for the store. `topic` is the full name if the directory's own name is truncated."""
    return placed(frame.where(is_good_dir())).withColumns(
        {
            "topic_truncated": fn.coalesce("topic_truncated", fn.lit(False)) & fn.col("full_topic").isNull(),
            "topic": fn.coalesce("full_topic", "topic"),
            "topic_id": real_id(),
            "error": fn.left("error", fn.lit(_WORD)),
            **{name: fn.timestamp_millis(at_most(fn.col(name), LAST_MS)) for name in TIMES},
        }
    )


def is_good_partition() -> Column:
    """Whether a `partition` row is valid in every field that decides something. Lists have a node, or its directory,
    each."""
    replicas = (fn.size("replicas") > 0) & ~fn.exists("replicas", lambda node: node.isNull())
    good = fn.col(CORRUPT).isNull() & fn.col("topic").isNotNull() & (fn.col("partition") >= 0) & replicas
    good = good & _is_short("topic", _NAME) & _is_short("topic_id", _WORD)
    for name in ("replicas", "adding", "removing", "isr", "directories"):
        good = good & fn.coalesce(fn.size(name) <= _NODES, fn.lit(True))
    long = fn.exists("directories", lambda one: fn.octet_length(one) > _WORD)
    good = good & ~fn.coalesce(long, fn.lit(False))
    return (fn.col("row") == "partition") & fn.coalesce(good, fn.lit(False))


def good_partitions(frame: DataFrame) -> DataFrame:
    """Assigned partitions as the lines have them; `merged` makes one row of repeated ones."""
    good = placed(frame.where(is_good_partition())).drop("node_id")
    empty = fn.array().cast("array<int>")
    ids = {name: fn.coalesce(name, empty) for name in ("adding", "removing", "isr")}
    return good.withColumns(
        ids | {"topic_id": real_id(), "replicas": fn.array_distinct("replicas"), "said": fn.lit(1).cast("bigint")}
    )


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
    return merged(placed).sortWithinPartitions("cluster_id", "topic", "topic_id", "partition")


def merged(frame: DataFrame) -> DataFrame:
    """One row per partition: if it is repeated, the replicas of all count, and the directory ids are unknown."""
    lists = ("replicas", "adding", "removing", "isr")
    rows = frame.groupBy("cluster_id", "topic", "topic_id", "partition").agg(
        fn.collect_list(fn.struct(*lists, "directories")).alias("each"), fn.sum("said").alias("said")
    )
    several = fn.size("each") > 1

    def one(name: str) -> Column:
        all_of = fn.array_distinct(fn.flatten(fn.col(f"each.{name}")))
        return fn.when(several, all_of).otherwise(fn.col("each")[0][name])

    directories = fn.when(~several, fn.col("each")[0]["directories"])
    return rows.withColumns({name: one(name) for name in lists} | {"directories": directories}).drop("each")


def _counted_partitions(written: DataFrame) -> tuple[dict[Key, int], dict[Key, Problem], list[Row], dict[str, int]]:
    """Rows of each cluster in the written table, what is wrong with a cluster as a whole, the replicas that each of its
    nodes has, and its number of topics."""
    topics_seen = fn.count_distinct(whose()).alias("topics")
    by_cluster = written.groupBy("cluster_id").agg(fn.sum("said").alias("said"), topics_seen).collect()
    nodes = (
        written.select("cluster_id", fn.explode("replicas").alias("node_id")).groupBy("cluster_id", "node_id").count()
    )
    most = MOST_NODES * len(by_cluster)
    found = [row.asDict() for row in nodes.limit(most + 1).collect()]
    per_cluster = Counter(row["cluster_id"] for row in found)
    if len(found) > most:
        per_cluster = Counter(
            {row["cluster_id"]: row["count"] for row in nodes.groupBy("cluster_id").count().collect()}
        )
    absurd: dict[Key, Problem] = {
        (cluster, None): (TOO_MANY_NODES, f"it names {count} nodes, more than {MOST_NODES}")
        for cluster, count in per_cluster.items()
        if count > MOST_NODES
    }
    counts: dict[Key, int] = {(row["cluster_id"], None): row["said"] for row in by_cluster}
    return counts, absurd, found, {row["cluster_id"]: row["topics"] for row in by_cluster}


def _counted_dirs(written: DataFrame, hosts: int) -> tuple[dict[Key, int], dict[Key, Problem], list[Row]]:
    """Rows of each of the hosts in the written table, what is wrong with a host as a whole, and sums by log dir."""
    sums = [fn.try_sum(name).alias(name) for name in ("bytes", "allocated")]
    by = written.groupBy("cluster_id", "node_id", "log_dir").agg(fn.count("*").alias("dirs"), *sums)
    most = MOST_LOG_DIRS * hosts
    found = [row.asDict() for row in by.limit(most + 1).collect()]
    if len(found) > most:
        # Names that one host made up: nothing of it is kept, so only the number is needed.
        of_host = by.groupBy("cluster_id", "node_id").agg(fn.sum("dirs").alias("dirs"), fn.count("*").alias("log_dirs"))
        each = of_host.collect()
        many = {(r["cluster_id"], r["node_id"]): r["log_dirs"] for r in each if r["log_dirs"] > MOST_LOG_DIRS}
        return {(r["cluster_id"], r["node_id"]): r["dirs"] for r in each}, _many_log_dirs(many), []
    many = Counter((row["cluster_id"], row["node_id"]) for row in found)
    counts: Counter[Key] = Counter()
    bytes_of: Counter[tuple[Key, str]] = Counter()
    for row in found:
        key = row["cluster_id"], row["node_id"]
        counts[key] += row["dirs"]
        for name in ("bytes", "allocated"):
            # Null: the sum of the log dir alone is too much.
            bytes_of[key, name] += LARGEST_SIZE + 1 if row[name] is None else row[name]
    says = f"its directories add up to more than {LARGEST_SIZE} bytes"
    absurd = {key: (TOO_MANY_BYTES, says) for (key, _), size in bytes_of.items() if size > LARGEST_SIZE}
    return dict(counts), absurd | _many_log_dirs(many), found


def _many_log_dirs(log_dirs: Mapping[Key, int]) -> dict[Key, Problem]:
    return {
        key: (TOO_MANY_LOG_DIRS, f"its directories are in {count} log dirs, more than {MOST_LOG_DIRS}")
        for key, count in log_dirs.items()
        if count > MOST_LOG_DIRS
    }


def _reject_bad(
    run: Run, found: Checked, landing: Landing, broken: list[Row], wrong: dict[Key, Problem], *, last: bool
) -> list[Row]:
    """Rejects files for what is wrong with them, lists their bad rows, and takes the next older files, which it
    returns; none if this is the last round."""
    kind = broken[0]["kind"]
    row_kind, good = ("dir", is_good_dir()) if kind == "snapshot" else ("partition", is_good_partition())
    paths = [e["read_from"] for e in broken]
    by_key: dict[Key, list[tuple[str, str]]] = {}
    for frame in of_files(run.store.spark, [], paths, row_kind):
        bad = rejected_rows(frame, good, row_kind).orderBy("cluster_id", "node_id", "record", "detail")
        for row in bad.limit(BAD_ROWS_KEPT * 100).collect():
            by_key.setdefault((row.cluster_id, row.node_id), []).append((row.detail, row.record))
    for entry in broken:
        found.records += records(entry, by_key.get(key_of(entry), []))
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


RECORD_SHOWN = 200
"""Characters of a bad row that are kept with the reason."""


def rejected_rows(frame: DataFrame, good: Column, kind: str) -> DataFrame:
    """`cluster_id, node_id, detail, record` of bad rows, for files that have any."""
    readable = fn.col(CORRUPT).isNull()
    detail = fn.when(readable, f"{kind}: a required field is missing or bad").otherwise(
        "not JSON, or a field of the wrong type"
    )
    record = fn.coalesce(CORRUPT, fn.to_json(fn.struct(*(c for c in frame.columns if c not in (CORRUPT, "file_path")))))
    wrong = frame.where(~good & ((fn.col("row") == kind) | ~readable))
    return placed(wrong.withColumns({"detail": detail, "record": fn.substring(record, 1, RECORD_SHOWN)})).select(
        "cluster_id", "node_id", "detail", "record"
    )


def without(run: Run, table: str, entries: list[Row]) -> DataFrame:
    """What was written of `table`, without the rows of some files; copied elsewhere, because `table` is rewritten from
    it."""
    keys = [{"c": e["cluster_id"], "n": e["node_id"]} for e in entries]
    same = fn.col("cluster_id") == fn.col("c")
    if table == "dirs":
        same = same & (fn.col("node_id") == fn.col("n"))
    gone = fn.broadcast(local_frame(run.store.spark, keys, "c string, n int"))
    # Not below the table's own folder, which is replaced while this is read.
    aside = f"{run.uri}/{ASIDE}/{uuid4().hex}"
    shaped(run.read(table).join(gone, same, how="left_anti"), STORE[table]).write.parquet(aside)
    return run.store.spark.read.schema(STORE[table]).parquet(literal(aside))


def key_of(entry: Row) -> Key:
    return entry["cluster_id"], entry["node_id"]


def rows_of(entries: list[Row]) -> int:
    return sum(e["counted"] for e in entries)


def _nodes(found: Checked, replicas: list[Row]) -> list[Row]:
    """Every node that the assignments name: as a registered broker, as a replica, or both."""
    counted = {(row["cluster_id"], row["node_id"]): row["count"] for row in replicas}
    registered = {(e["cluster_id"], n) for e in found.chosen("assignments") for n in found.brokers[e["file"]]}
    return [
        {"cluster_id": c, "node_id": n, "registered": (c, n) in registered, "replicas": counted.get((c, n), 0)}
        for c, n in sorted(registered | counted.keys())
    ]


def _listed_twice(run: Run) -> dict[tuple[str, int | None], str]:
    """Hosts whose snapshot lists a directory of the same log dir and name twice, each with such a name."""
    place = ["cluster_id", "node_id", "log_dir", "name"]
    odd = run.read("parts").where(fn.size(fn.array_distinct("nodes")) < fn.size("nodes"))
    keys = odd.select(*(fn.col(name).alias(f"k_{name}") for name in KEY))
    few = [row.asDict() for row in keys.limit(MOST_TWICE + 1).collect()]
    others = run.read("others").where(fn.col("kind") != "current").select(*place)
    if few:
        if len(few) <= MOST_TWICE:
            ddl = "k_cluster_id string, k_topic string, k_topic_id string, k_partition int"
            keys = fn.broadcast(local_frame(run.store.spark, few, ddl))
        same = fn.lit(True)
        for name in KEY:
            same = same & fn.col(name).eqNullSafe(fn.col(f"k_{name}"))
        dirs = run.read("dirs").where(fn.col("kind") == "current")
        others = others.unionByName(dirs.join(keys, same, how="left_semi").select(*place))
    twice = others.groupBy(*place).count().where(fn.col("count") > 1)
    one = fn.min(fn.struct("log_dir", "name")).alias("one")
    found = twice.groupBy("cluster_id", "node_id").agg(one).collect()
    return {(row.cluster_id, row.node_id): f"{row.one.log_dir}/{row.one.name}" for row in found}


def _one_file(frame: DataFrame, order: tuple[str, ...]) -> DataFrame:
    return frame.coalesce(1).sortWithinPartitions(*order)


def _choice(store: Store, run: Run, found: Checked) -> Choice:
    """The newest snapshots of this date and of earlier dates that were still fresh when the last one arrived."""
    whole = [e for e in found.entries if e["status"] == "taken"]
    as_of = max((happened(e) for e in whole), default=0)
    asked = ReportScope(found.day, as_of, MAX_AGE)
    known = {day: store.commit_of(day) for day in asked.heard if day != found.day}
    commits = {day: commit for day, commit in known.items() if commit is not None}
    files = {day: store.small("files", commit) for day, commit in commits.items()}
    nodes = {day: store.small("nodes", commit) for day, commit in commits.items()}
    files[found.day] = found.files()
    nodes[found.day] = store.small("nodes", run.as_commit(found.day, 0))
    return choose_hosts(asked, files, nodes)


def _parts(store: Store, run: Run, found: Checked, chosen: Choice) -> None:
    """Writes `parts` and `topics`."""
    commits: dict[date, Commit] = {found.day: run.as_commit(found.day, 0)}
    for row in [*chosen.counting, *chosen.decided]:
        if row["day"] not in commits:
            commit = store.commit_of(row["day"])
            if commit is not None:
                commits[row["day"]] = commit
    dirs = chosen_rows(store, commits, chosen, "dirs")
    assigned = chosen_rows(store, commits, chosen, "assignments")
    number = max(1, -(-(rows_of(found.chosen("snapshot"))) // ROWS_PER_FILE))
    made = parts(dirs, assigned, number).sortWithinPartitions(*KEY)
    rows_seen = seen(run.write("parts", made), silent_frame(store, chosen))
    others = chosen_rows(store, commits, chosen, "others")
    run.write("topics", _one_file(topics(rows_seen, others), ("cluster_id", "topic", "topic_id")))


def _log_dirs(found: Checked, sums: list[Row]) -> list[Row]:
    """Per log dir: its ledger, and the sums of its directories."""
    by_place = {(r["cluster_id"], r["node_id"], r["log_dir"]): r for r in sums}
    result = []
    for entry in found.chosen("snapshot"):
        for row in found.log_dirs[entry["file"]]:
            own = by_place.pop((row["cluster_id"], row["node_id"], row["log_dir"]), {})
            result.append(row | {name: own.get(name) or 0 for name in ("dirs", "bytes", "allocated")})
    return result + list(by_place.values())
