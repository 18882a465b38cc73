"""The rows of the store for a choice of snapshots and assignments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.tables.choice import Choice
from logagent.fleet.tables.frames import local_frame
from logagent.fleet.tables.spark_schemas import STORE
from logagent.fleet.tables.store import Commit, Store

_HOSTS = "c string, n int"


def chosen_rows(store: Store, commits: Mapping[date, Commit], choice: Choice, table: str) -> DataFrame:
    """Rows of `dirs` or `others` of the hosts that count, of `assignments` of the clusters that are decided.

    A date whose hosts all count is read as it is, without a lookup per row.
    """
    of_clusters = table == "assignments"
    wanted: dict[date, set[tuple[str, int | None]]] = defaultdict(set)
    for row in choice.decided if of_clusters else choice.counting:
        wanted[row["day"]].add((row["cluster_id"], None if of_clusters else row["node_id"]))
    frames = [_of_day(store, commits[day], keys, table) for day, keys in sorted(wanted.items())]
    if not frames:
        return local_frame(store.spark, [], STORE[table])
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def _of_day(store: Store, commit: Commit, keys: set[tuple[str, int | None]], table: str) -> DataFrame:
    frame = store.read(table, [commit])
    kind = "assignments" if table == "assignments" else "snapshot"
    there = {
        (e["cluster_id"], e["node_id"])
        for e in store.small("files", commit)
        if e["kind"] == kind and e["status"] == "taken"
    }
    if there <= keys:
        return frame
    rows = [{"c": cluster, "n": node} for cluster, node in sorted(keys, key=str)]
    same = fn.col("cluster_id") == fn.col("c")
    if kind == "snapshot":
        same = same & (fn.col("node_id") == fn.col("n"))
    return frame.join(fn.broadcast(local_frame(store.spark, rows, _HOSTS)), same, how="left_semi")


def silent_frame(store: Store, choice: Choice) -> DataFrame | None:
    """`cluster_id, silent`: the nodes of each cluster that do not count; None if all do."""
    rows = [{"cluster_id": cluster, "silent": nodes} for cluster, nodes in choice.silent().items()]
    return local_frame(store.spark, rows, "cluster_id string, silent array<int>") if rows else None
