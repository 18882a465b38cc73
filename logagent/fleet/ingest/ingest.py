"""Landing → a run of one date: check, choose, parse, reconcile, compact, commit.

The result depends only on what lies in landing: the same files give the same rows in the same order in as many files,
however many executors ran. A file is taken if its bytes, SHA-256, rows and identity agree with its manifest and no row
of it is bad; of each host the newest such file counts. Everything else is listed with its reason. Nothing that was
ingested before is touched: a run counts when its commit is there (`tables/store.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.errors import LogAgentError
from logagent.fleet.ingest import checked as checking
from logagent.fleet.ingest import rows
from logagent.fleet.ingest.checked import Checked, check, choose, groups, quarantine, reject
from logagent.fleet.ingest.landing import Landing, Listing
from logagent.fleet.session import tune
from logagent.fleet.tables.believed import happened
from logagent.fleet.tables.choice import Asked, Choice
from logagent.fleet.tables.choice import choose as choose_hosts
from logagent.fleet.tables.chosen import chosen_rows, silent_frame
from logagent.fleet.tables.frames import local_frame
from logagent.fleet.tables.parts import KEY, parts, seen, topics
from logagent.fleet.tables.schema import STORE, shaped
from logagent.fleet.tables.store import Commit, Run, Store

ROWS_PER_FILE = 4_000_000
"""Partition dirs per Parquet file of the store, about: what one task reads in a second or two."""
MAX_ROUNDS = 20
"""Older files of a host that are tried when its newest ones turn out broken inside."""
MOST_TWICE = 10_000
ASIDE = ".aside"
MAX_AGE = timedelta(hours=26)
"""Snapshots that `parts` is made of: a report with another age leaves hosts out, or makes its own."""

Say = Callable[[str], None]
Row = dict[str, Any]


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
    """Makes what landing has for `day` a run, and commits it. Raises what Spark raises; then nothing has changed.

    `still_ours` raises if another ingest has taken the store meanwhile.
    """
    say(f"{day}: checking files")
    found = check(landing, listing, day, pinned)
    run = store.new_run()
    try:
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
    _settle(run, found, landing, "assignments", _frame(run, found.chosen("assignments"), "assignments"))
    run.write_small("nodes", _nodes(run, found))
    frame = _frame(run, found.chosen("snapshot"), "dirs")
    for _ in range(MAX_ROUNDS):
        say(f"{found.day}: reading {len(found.chosen('snapshot'))} snapshots")
        sums = _settle(run, found, landing, "dirs", frame)
        dirs = run.read("dirs")
        said_other = fn.coalesce(fn.col("verdict") != "assigned", fn.lit(False))
        run.write("others", _one_file(dirs.where((fn.col("kind") != "current") | said_other), DIR_ORDER))
        say(f"{found.day}: comparing partitions")
        run.write_small("files", found.files())
        chosen = _choice(store, run, found)
        _parts(store, run, found, chosen)
        twice = _listed_twice(run)
        entries = [e for e in found.chosen("snapshot") if _key(e) in twice]
        if not entries:
            break
        for entry in entries:
            reject(entry, "directory-twice", f"it lists a directory twice: {twice[_key(entry)]}")
        frame = _without(run, "dirs", entries)
    run.write_small("choice", chosen.rows())
    run.write_small("log_dirs", _log_dirs(found, sums))
    run.write_small("files", found.files())
    run.write_small("quarantine", quarantine(found))
    store.files.delete(f"{run.uri}/{ASIDE}")
    _reconcile(run, found)


def _settle(run: Run, found: Checked, landing: Landing, table: str, frame: DataFrame) -> list[Row]:
    """Writes `table` until every file that it is of has as many good rows as the driver counted; sums by log dir.

    A file that has fewer is rejected, and the next older one of its host is tried: rows of the others are not parsed
    again.
    """
    kind = "snapshot" if table == "dirs" else "assignments"
    for _ in range(MAX_ROUNDS):
        written = run.write(table, _compacted(frame, table, _rows_of(found.chosen(kind))))
        counts, sums = _counted(written, table)
        broken = [e for e in found.chosen(kind) if counts.get(_key(e), 0) != e["counted"]]
        if not broken:
            return sums
        again = _reject_bad(run, found, landing, broken, kind, counts)
        frame = _without(run, table, broken).unionByName(_frame(run, again, table))
    raise LogAgentError(f"{found.day}: more than {MAX_ROUNDS} files of one host are broken inside")


def _without(run: Run, table: str, entries: list[Row]) -> DataFrame:
    """What was written of `table`, without the rows of some files; elsewhere, for it is written anew from this."""
    keys = [{"c": e["cluster_id"], "n": e["node_id"]} for e in entries]
    same = fn.col("cluster_id") == fn.col("c")
    if table == "dirs":
        same = same & (fn.col("node_id") == fn.col("n"))
    gone = fn.broadcast(local_frame(run.store.spark, keys, "c string, n int"))
    aside = Run(run.store, f"{run.name}/{ASIDE}/{uuid4().hex}")
    return aside.write(table, run.read(table).join(gone, same, how="left_anti"))


def _listed_twice(run: Run) -> dict[tuple[str, int | None], str]:
    """Hosts whose snapshot has a directory of one name in one log dir twice, each with such a name."""
    place = ["cluster_id", "node_id", "log_dir", "name"]
    odd = run.read("parts").where(fn.size(fn.array_distinct("nodes")) < fn.size("nodes"))
    keys = odd.select(*(fn.col(name).alias(f"k_{name}") for name in KEY)).limit(MOST_TWICE).collect()
    others = run.read("others").where(fn.col("kind") != "current").select(*place)
    if keys:
        rows = [row.asDict() for row in keys]
        of_keys = local_frame(
            run.store.spark, rows, "k_cluster_id string, k_topic string, k_topic_id string, k_partition int"
        )
        same = fn.lit(True)
        for name in KEY:
            same = same & fn.col(name).eqNullSafe(fn.col(f"k_{name}"))
        dirs = run.read("dirs").where(fn.col("kind") == "current")
        others = others.unionByName(dirs.join(fn.broadcast(of_keys), same, how="left_semi").select(*place))
    twice = others.groupBy(*place).count().where(fn.col("count") > 1).limit(MOST_TWICE).collect()
    return {(row.cluster_id, row.node_id): f"{row.log_dir}/{row.name}" for row in twice}


def _key(entry: Row) -> tuple[str, int | None]:
    return entry["cluster_id"], entry["node_id"]


def _rows_of(entries: list[Row]) -> int:
    return sum(e["counted"] for e in entries)


def _frame(run: Run, entries: list[Row], table: str) -> DataFrame:
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


DIR_ORDER = ("cluster_id", "topic", "topic_id", "partition", "node_id", "log_dir", "name")


def _compacted(frame: DataFrame, table: str, count: int) -> DataFrame:
    """`frame` in sorted files whose number follows from the rows alone. Copies of one partition come to lie together,
    whatever host they are from.

    Rows are placed by a hash of topic and partition block, so that one topic with a million partitions fills all files.
    """
    number = max(1, -(-count // ROWS_PER_FILE))
    block = fn.floor(fn.coalesce(fn.col("partition"), fn.lit(0)) / 64)
    placed = frame.repartition(number, "cluster_id", "topic", block)
    if table == "dirs":
        return placed.sortWithinPartitions(*DIR_ORDER)
    # One row per partition: the grouping finds its rows where they are.
    return rows.merged(placed).sortWithinPartitions("cluster_id", "topic", "topic_id", "partition")


def _one_file(frame: DataFrame, order: tuple[str, ...]) -> DataFrame:
    return frame.coalesce(1).sortWithinPartitions(*order)


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
    """Rejects files with bad rows, lists these, and takes the next older files; those."""
    row_kind, good = ("dir", rows.is_good_dir()) if kind == "snapshot" else ("partition", rows.is_good_partition())
    paths = [f"{run.store.landing}/{e['file']}" for e in broken]
    by_key: dict[tuple[str, int | None], list[tuple[str, str]]] = {}
    for frame in rows.of_files(run.store.spark, [], paths, row_kind):
        bad = rows.bad_rows(frame, good, row_kind).orderBy("cluster_id", "node_id", "record", "detail")
        for row in bad.limit(checking.BAD_ROWS_KEPT * 100).collect():
            by_key.setdefault((row.cluster_id, row.node_id), []).append((row.detail, row.record))
    again: list[Row] = []
    for entry in broken:
        missing = entry["counted"] - counts.get(_key(entry), 0)
        found.records += checking._records(entry, by_key.get(_key(entry), []))
        reject(entry, "bad-rows", f"{missing} of {entry['rows']} rows")
    for entry in broken:
        group = [
            e for e in found.entries if _key(e) == _key(entry) and e["kind"] == kind and e["status"] == "superseded"
        ]
        for each in group:
            each["status"] = "whole"
        for candidates in groups(group):
            choose(landing, found, candidates)
        again += [e for e in group if e["status"] == "taken"]
    return again


def _nodes(run: Run, found: Checked) -> list[Row]:
    """Every node that the assignments name: as a registered broker, as a replica, or both."""
    assigned = run.read("assignments").select("cluster_id", fn.explode("replicas").alias("node_id"))
    counted = {
        (row["cluster_id"], row["node_id"]): row["count"]
        for row in assigned.groupBy("cluster_id", "node_id").count().collect()
    }
    registered = {(e["cluster_id"], n) for e in found.chosen("assignments") for n in found.brokers[e["file"]]}
    return [
        {"cluster_id": c, "node_id": n, "registered": (c, n) in registered, "replicas": counted.get((c, n), 0)}
        for c, n in sorted(registered | counted.keys())
    ]


def _choice(store: Store, run: Run, found: Checked) -> Choice:
    """The newest snapshots of this date and of those before it that were fresh when the last one arrived."""
    whole = [e for e in found.entries if e["status"] == "taken"]
    as_of = max((happened(e) for e in whole), default=0)
    asked = Asked(found.day, as_of, MAX_AGE)
    commits = _commits(store, asked, found.day)
    files = {day: store.small("files", commit) for day, commit in commits.items()}
    nodes = {day: store.small("nodes", commit) for day, commit in commits.items()}
    files[found.day] = found.files()
    nodes[found.day] = store.small("nodes", run.as_commit(found.day, 0))
    return choose_hosts(asked, files, nodes)


def _commits(store: Store, asked: Asked, but: date) -> dict[date, Commit]:
    known = {day: store.commit_of(day) for day in asked.heard if day != but and day in store.dates()}
    return {day: commit for day, commit in known.items() if commit is not None}


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
    number = max(1, -(-(_rows_of(found.chosen("snapshot"))) // ROWS_PER_FILE))
    made = parts(dirs, assigned).repartition(number, "cluster_id", "topic").sortWithinPartitions(*KEY)
    rows_seen = seen(run.write("parts", made), silent_frame(store, chosen))
    others = chosen_rows(store, commits, chosen, "others")
    run.write("topics", _one_file(topics(rows_seen, others), ("cluster_id", "topic", "topic_id")))


def _log_dirs(found: Checked, sums: list[Row]) -> list[Row]:
    """Per log dir: its ledger, and its directories added up."""
    by_place = {(r["cluster_id"], r["node_id"], r["log_dir"]): r for r in sums}
    result = []
    for entry in found.chosen("snapshot"):
        for row in found.log_dirs[entry["file"]]:
            own = by_place.pop((row["cluster_id"], row["node_id"], row["log_dir"]), {})
            result.append(row | {name: own.get(name) or 0 for name in ("dirs", "bytes", "allocated")})
    return result + list(by_place.values())


def _reconcile(run: Run, found: Checked) -> None:
    """Before the commit: the footers have as many rows as the driver counted."""
    expected = _rows_of(found.chosen("snapshot"))
    if run.count("dirs") != expected:
        raise LogAgentError(
            f"{found.day}: {run.count('dirs')} of {expected} directories were written",
            hint="run `logagent fleet ingest` again; nothing has changed",
        )
