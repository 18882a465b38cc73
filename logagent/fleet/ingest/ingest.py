"""Landing → a run of one date: check, choose, parse, reconcile, compact, commit.

The result depends only on what is in landing: the same files give the same rows in the same order in the same number of
files, however many executors ran. A file is taken if its bytes, SHA-256, rows and identity agree with its manifest and
none of its rows is bad; the newest such file of each host counts. Everything else is listed with its reason. Nothing
ingested before is touched: a run counts once its commit exists (`tables/store.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.errors import LogAgentError
from logagent.fleet.ingest.checked import Checked, check, quarantine, reject
from logagent.fleet.ingest.landing import Landing, Listing
from logagent.fleet.ingest.settle import (
    ASIDE,
    DIR_ORDER,
    ROWS_PER_FILE,
    frame_of,
    key_of,
    rows_of,
    settle,
    without,
)
from logagent.fleet.spark_session import tune
from logagent.fleet.tables.choice import Choice, ReportScope
from logagent.fleet.tables.choice import choose as choose_hosts
from logagent.fleet.tables.chosen import chosen_rows, silent_frame
from logagent.fleet.tables.frames import local_frame
from logagent.fleet.tables.parts import KEY, parts, seen, topics
from logagent.fleet.tables.plausible import happened
from logagent.fleet.tables.store import Commit, Run, Store

MOST_TWICE = 10_000
"""Partitions with two directories on one host that are looked up fast."""
MAX_AGE = timedelta(hours=26)
"""The maximum age of snapshots in `parts`: a report with another age leaves hosts out, or computes its own."""

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
    """Turns what landing has for `day` into a run, and commits it. Raises what Spark raises; then nothing has changed.

    `still_ours` raises if another ingest has taken over the store.
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
    replicas = settle(run, found, landing, "assignments", frame_of(run, found.chosen("assignments"), "assignments"))
    run.write_small("nodes", _nodes(found, replicas))
    frame = frame_of(run, found.chosen("snapshot"), "dirs")
    while True:  # until no host is left out
        say(f"{found.day}: reading {len(found.chosen('snapshot'))} snapshots")
        sums = settle(run, found, landing, "dirs", frame)
        dirs = run.read("dirs")
        said_other = fn.coalesce(fn.col("verdict") != "assigned", fn.lit(False))
        run.write("others", _one_file(dirs.where((fn.col("kind") != "current") | said_other), DIR_ORDER))
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
    run.write_small("choice", chosen.rows())
    run.write_small("log_dirs", _log_dirs(found, sums))
    run.write_small("files", found.files())
    run.write_small("quarantine", quarantine(found))
    store.files.delete(f"{run.uri}/{ASIDE}")
    _reconcile(run, found)


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


def _nodes(found: Checked, replicas: list[Row]) -> list[Row]:
    """Every node that the assignments name: as a registered broker, as a replica, or both."""
    counted = {(row["cluster_id"], row["node_id"]): row["count"] for row in replicas}
    registered = {(e["cluster_id"], n) for e in found.chosen("assignments") for n in found.brokers[e["file"]]}
    return [
        {"cluster_id": c, "node_id": n, "registered": (c, n) in registered, "replicas": counted.get((c, n), 0)}
        for c, n in sorted(registered | counted.keys())
    ]


def _choice(store: Store, run: Run, found: Checked) -> Choice:
    """The newest snapshots of this date and of earlier dates that were still fresh when the last one arrived."""
    whole = [e for e in found.entries if e["status"] == "taken"]
    as_of = max((happened(e) for e in whole), default=0)
    asked = ReportScope(found.day, as_of, MAX_AGE)
    commits = _commits(store, asked, found.day)
    files = {day: store.small("files", commit) for day, commit in commits.items()}
    nodes = {day: store.small("nodes", commit) for day, commit in commits.items()}
    files[found.day] = found.files()
    nodes[found.day] = store.small("nodes", run.as_commit(found.day, 0))
    return choose_hosts(asked, files, nodes)


def _commits(store: Store, asked: ReportScope, but: date) -> dict[date, Commit]:
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


def _reconcile(run: Run, found: Checked) -> None:
    """Before the commit: checks that the Parquet footers have as many rows as the driver counted."""
    expected = rows_of(found.chosen("snapshot"))
    if run.count("dirs") != expected:
        raise LogAgentError(
            f"{found.day}: {run.count('dirs')} of {expected} directories were written",
            hint="run `logagent fleet ingest` again; nothing has changed",
        )
