"""Who counts: the hosts whose newest complete snapshot is fresh, and the clusters with usable assignments. Pure.

Everything else is unknown and says why. Verdicts are made from what counts here and from nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from logagent.fleet.tables.believed import claimants, happened, newest_first
from logagent.store.names import ASSIGNMENTS

HEARD_DAYS = 7
"""A host that sent something within these days before the report is missed when it is silent."""
Row = dict[str, Any]
Host = tuple[str, int]


@dataclass(frozen=True)
class Asked:
    """What a report is about. `as_of_ms` is what ages are measured against, on the collector's clock."""

    day: date
    as_of_ms: int
    max_age: timedelta

    @property
    def window(self) -> list[date]:
        """Dates on which a snapshot can lie that is still fresh, and a day more for skewed clocks; oldest first."""
        return [self.day - timedelta(days=n) for n in reversed(range(self.max_age.days + 3))]

    @property
    def heard(self) -> list[date]:
        days = max(HEARD_DAYS, len(self.window)) + 1
        return [self.day - timedelta(days=n) for n in reversed(range(days))]

    def age_seconds(self, entry: Row) -> float:
        return (self.as_of_ms - happened(entry)) / 1000


@dataclass(frozen=True)
class Choice:
    """`hosts` and `clusters`: one row per known node and per cluster, with `counts`/`decided` and `why`.

    A host's row has the fields of its `files` entry, `day` (the date whose run has its rows), `age_seconds`,
    `skew_seconds`, `counts`, `why`. A cluster's row has `day`, `source`, `at`, `received_at`, `age_seconds`, `decided`,
    `why` of its assignments (null where it has none).
    """

    hosts: list[Row]
    clusters: list[Row]

    @property
    def counting(self) -> list[Row]:
        return [host for host in self.hosts if host["counts"]]

    @property
    def decided(self) -> list[Row]:
        return [cluster for cluster in self.clusters if cluster["decided"]]

    def silent(self) -> dict[str, list[int]]:
        """Nodes of each cluster that do not count, sorted."""
        found: dict[str, list[int]] = defaultdict(list)
        for host in self.hosts:
            if not host["counts"]:
                found[host["cluster_id"]].append(host["node_id"])
        return {cluster: sorted(nodes) for cluster, nodes in found.items()}

    def rows(self) -> list[Row]:
        """What it chose, for the `choice` table: one row per host that counts, one per cluster that is decided."""
        chosen = [*self.counting, *(c | {"node_id": None} for c in self.decided)]
        return [
            {
                "cluster_id": one["cluster_id"],
                "node_id": one["node_id"],
                "date": one["day"].isoformat(),
                "snapshot_id": one["snapshot_id"],
                "sha256": one["sha256"],
            }
            for one in chosen
        ]

    def is_within(self, made: Iterable[Row]) -> bool:
        """Whether `made` (another choice's `rows`) has every host and exactly the assignments that this one has."""
        theirs = {(row["cluster_id"], row["node_id"]): row for row in made}
        ours = self.rows()
        images = {key for key in theirs if key[1] is None}
        return images == {(r["cluster_id"], None) for r in ours if r["node_id"] is None} and all(
            theirs.get((row["cluster_id"], row["node_id"])) == row for row in ours
        )


def choose(asked: Asked, files: Mapping[date, list[Row]], nodes: Mapping[date, list[Row]]) -> Choice:
    """Chooses from the `files` rows of every date of `asked.heard`, and the `nodes` of the assignments chosen."""
    entries = [entry | {"day": day} for day, rows in files.items() for entry in rows]
    clusters = _clusters(asked, entries)
    expected = {
        (row["cluster_id"], row["node_id"])
        for cluster in clusters
        if cluster["decided"]
        for row in nodes.get(cluster["day"], [])
        if row["cluster_id"] == cluster["cluster_id"]
    }
    by_host: dict[Host, list[Row]] = defaultdict(list)
    for entry in entries:
        if entry["kind"] == "snapshot" and entry["node_id"] is not None:
            by_host[entry["cluster_id"], entry["node_id"]].append(entry)
    everyone = sorted(expected | by_host.keys())
    return Choice([_host(asked, key, by_host.get(key, [])) for key in everyone], clusters)


def _host(asked: Asked, key: Host, entries: list[Row]) -> Row:
    taken = newest_first(e for e in entries if e["status"] == "taken")
    problems = [e for e in entries if e["status"] in ("rejected", "waiting")]
    row: Row = {"cluster_id": key[0], "node_id": key[1], "why": None, "age_seconds": None, "skew_seconds": None}
    if taken:
        newest = taken[0]
        row = newest | row
        row["age_seconds"] = asked.age_seconds(newest)
        row["skew_seconds"] = (newest["at"] - newest["received_at"]) / 1000
        whole = [e for e in entries if e["status"] in ("taken", "superseded")]
        fresh = [e for e in whole if asked.age_seconds(e) <= asked.max_age.total_seconds()]
        if row["age_seconds"] > asked.max_age.total_seconds():
            row["why"] = f"its newest complete snapshot is {row['age_seconds'] / 3600:.1f} h old"
        elif (claims := claimants(newest_first(fresh))) is not None:
            row["why"] = claims
            problems = []
    else:
        hosts = [e["host"] for e in problems if e.get("host")]
        row |= dict.fromkeys(("host", "at", "received_at", "agent_version", "kafka_version", "snapshot_id", "day"))
        row["host"] = max(hosts, default=None)
        row["why"] = "it has sent no complete snapshot"
    if row["why"] is not None and problems:
        last = max(problems, key=lambda e: (e["received_at"] or 0, e["file"]))
        row["why"] += f" ({last['reason']}{': ' + last['detail'] if last['detail'] else ''})"
    return row | {"counts": row["why"] is None}


def _clusters(asked: Asked, entries: list[Row]) -> list[Row]:
    """Every cluster that sent anything, with its newest complete assignments and whether they can be used."""
    images: dict[str, list[Row]] = {e["cluster_id"]: [] for e in entries if e["cluster_id"] is not None}
    for entry in entries:
        if entry["kind"] == ASSIGNMENTS and entry["status"] == "taken":
            images[entry["cluster_id"]].append(entry)
    found = []
    for cluster_id, taken in sorted(images.items()):
        row: Row = dict.fromkeys(("source", "offset", "at", "received_at", "partitions", "topics", "day"))
        row |= {"cluster_id": cluster_id, "age_seconds": None, "why": "no complete assignments"}
        if taken:
            newest = newest_first(taken)[0]
            row = newest | {"cluster_id": cluster_id, "age_seconds": asked.age_seconds(newest), "why": None}
            if row["age_seconds"] > asked.max_age.total_seconds():
                row["why"] = f"its newest complete assignments are {row['age_seconds'] / 3600:.1f} h old"
            elif not row["partitions"]:
                row["why"] = "its newest complete assignments are empty"
        found.append(row | {"decided": row["why"] is None})
    return found
