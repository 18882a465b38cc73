"""What agents did: the table `audit`, and what of it cleared something since an earlier date.

Each snapshot has what its host did in the days before (`ACTS_DAYS`), so an act is there on several dates; it is told by
its host, its id in the journal, its time and its directory. Not by the id alone: a journal that was lost begins anew,
and one that was restored from a copy gives the same ids to other acts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.report.scope import Scope
from logagent.fleet.tables.choice import Host, Row
from logagent.fleet.tables.frames import ACTS, fields, local_frame, whose
from logagent.fleet.tables.store import Commit
from logagent.store.contract import CLOCKS_APART

KEEP = timedelta(days=90)
"""As long as an agent's own journal, and as many dates as growth looks back."""
KEY = ["cluster_id", "node_id", "id", "at", "action", "log_dir", "name"]
CLEARS = ("remove", "restore")
"""After these a directory is no orphan, stray or marked one any more."""
PLACE = ["cluster_id", "node_id", "log_dir", "whose", "partition"]


@dataclass
class Since:
    """What is known of the acts since an earlier date: `then`: when each host that reported on both dates was looked at
    on that one (ms); `unknown`: those of which it is not known, or not in full, what they did since; `left_out`: how
    many acts of the last days their agents say that they have left out."""

    day: date
    then: Mapping[Host, int]
    unknown: list[Host] = field(default_factory=list)
    left_out: int = 0


def since(scope: Scope, commits: Mapping[date, Commit], days: Sequence[date]) -> list[Since]:
    """For each of `days`, earlier dates that a report compares with."""
    if not days:
        return []
    files = {day: _snapshots(scope, commit) for day, commit in commits.items() if day >= min(days)}
    now = {(host["cluster_id"], host["node_id"]): host for host in scope.choice.counting}
    found = []
    for day in days:
        one = Since(day, {host: int(entry["at"]) for host, entry in files[day].items() if host in now})
        for host, at in one.then.items():
            earlier = (files[each].get(host) for each in sorted(files, reverse=True) if each >= day)
            if not is_known([now[host], *(e for e in earlier if e is not None and e["at"] < now[host]["at"])], at):
                one.unknown.append(host)
                one.left_out += (now[host].get("acts") or {}).get("left_out", 0)
        found.append(one)
    return found


def _snapshots(scope: Scope, commit: Commit) -> dict[Host, Row]:
    rows = scope.store.small("files", commit)
    return {(e["cluster_id"], e["node_id"]): e for e in rows if e["kind"] == "snapshot" and e["status"] == "taken"}


def is_known(entries: Iterable[Row], then_ms: int) -> bool:
    """Whether these snapshots of one host, newest first, together have all that it did since `then_ms`. Pure.

    Not if one of them has nothing on it, and no other one covers its time; nor if the journal's ids went back: what was
    done between two snapshots, one of which is of another journal, may be in neither.
    """
    needed: int | None = None
    last_id: int | None = None
    for entry in entries:
        acts = entry.get("acts")
        if acts is None:
            if needed is None:
                return False
            continue
        if last_id is not None and acts["last_id"] > last_id:
            return False
        last_id = acts["last_id"]
        if needed is None or entry["at"] >= needed:
            needed = acts["since"] if needed is None else min(needed, acts["since"])
    return needed is not None and needed <= then_ms


def rows(scope: Scope, commits: Mapping[date, Commit], sinces: Sequence[Since]) -> DataFrame:
    """The table `audit`: what is stored of the last `KEEP`, each act once."""
    spark = scope.store.spark
    acts = scope.store.read("acts", [commit for commit in commits.values() if commit.rows("acts")])
    rest = [name for name, _ in fields(ACTS) if name not in KEY]
    kept = acts.where(fn.col("finished_at") >= fn.timestamp_millis(fn.lit(scope.asked.as_of_ms) - fn.lit(_ms(KEEP))))
    # The same act has the same fields, but for the name of its host.
    once = kept.groupBy(*KEY).agg(fn.max(fn.struct(*rest)).alias("rest")).select(*KEY, "rest.*")
    named = {"id": "act_id", "at": "began_at"}
    then = [
        {"cluster_id": host[0], "node_id": host[1], "day": str(one.day), "ms": at}
        for one in sinces
        for host, at in one.then.items()
    ]
    hosts = (
        local_frame(spark, then, "cluster_id string, node_id int, day string, ms bigint")
        .groupBy("cluster_id", "node_id")
        .agg(fn.collect_list(fn.struct("day", "ms")).alias("looks"))
    )
    later = fn.filter("looks", lambda look: (look["ms"] < fn.unix_millis("finished_at")) & ~_is_ahead(scope))
    newest = fn.array_max(fn.transform(later, lambda look: look["day"])).cast("date")
    joined = once.join(fn.broadcast(hosts), ["cluster_id", "node_id"], how="left")
    return joined.withColumn("since", newest).drop("looks").withColumnsRenamed(named)


def _is_ahead(scope: Scope) -> Column:
    """Whether an act is from after the report: its host's clock or its host says so, and it would be news every day."""
    return fn.unix_millis("finished_at") > scope.asked.as_of_ms + _ms(CLOCKS_APART)


def note_doubtful(scope: Scope, acts: DataFrame, sinces: Sequence[Since]) -> None:
    """Adds to `unknown` the hosts that gave an id to two acts, the later of them since that date: their journal was
    replaced by a copy, and nobody knows what stood in the one before. And those with acts that are still to come."""
    ids = acts.withColumn("ahead", _is_ahead(scope)).groupBy("cluster_id", "node_id", "act_id")
    twice = ids.agg(
        fn.count_distinct("began_at").alias("n"),
        fn.max_by("since", "began_at").alias("later"),
        fn.bool_or("ahead").alias("ahead"),
    ).where((fn.col("n") > 1) | fn.col("ahead"))
    hosts = twice.groupBy("cluster_id", "node_id").agg(
        fn.max("later").alias("later"), fn.bool_or("ahead").alias("ahead")
    )
    for row in hosts.collect():
        host = row["cluster_id"], row["node_id"]
        for one in sinces:
            since_then = row["ahead"] or (row["later"] is not None and row["later"] >= one.day)
            if since_then and host in one.then and host not in one.unknown:
                one.unknown.append(host)


def _ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


def is_done(*actions: str) -> Column:
    return fn.col("action").isin(*actions) & (fn.col("outcome") == "done")


def removed(audit: DataFrame) -> list[Row]:
    """What was removed since each `since` (until the next one): directories, and what they took up."""
    sums = fn.count("*").alias("dirs"), fn.coalesce(fn.try_sum("allocated"), fn.lit(0)).alias("bytes")
    done = audit.where(is_done("remove") & fn.col("since").isNotNull())
    return [row.asDict() for row in done.groupBy("since").agg(*sums).collect()]


def cleared(audit: DataFrame, day: date) -> DataFrame:
    """The places (`PLACE`) of the directories that agents have removed or restored since `day`."""
    done = audit.where(is_done(*CLEARS) & (fn.col("since") >= fn.lit(day)))
    return done.withColumn("whose", whose()).select(*PLACE).where(fn.col("partition").isNotNull()).distinct()
