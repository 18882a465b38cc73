"""What counts: the hosts whose newest complete snapshot is fresh, and the clusters with usable assignments; and the
rows of the store for that choice. Everything else is unknown, with the reason. Verdicts are based only on what counts
here.

`standing`: between which images of the assignments a host's look at its disks lies, so that what it has not is known to
be missing. An agent reads its image before its inventory and after it, and says which replicas both assign to it and it
does not have. Where it has none of its own, the images that others published stand in: one at or before its first look,
and one at or after its last, of one lineage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import combinations, groupby
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.fleet.tables.frames import STORE, local_frame, together
from logagent.fleet.tables.store import Commit, Store
from logagent.kafka.image import Source
from logagent.store.contract import ASSIGNMENTS, CLOCKS_APART

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
    return together(frames)


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


HEARD_DAYS = 7
"""A host that sent something within this many days before the report is reported as missing if it is silent."""
Row = dict[str, Any]
"""An entry is a row of the `files` table. The newest is the latest by the earlier of the host's clock and the arrival,
so that a fast clock does not outrank newer files."""
Host = tuple[str, int]


def happened(entry: Row) -> int:
    return int(min(entry["at"], entry["received_at"]))


def newest_first(entries: Iterable[Row]) -> list[Row]:
    return sorted(entries, key=lambda e: (happened(e), e["at"], e["snapshot_id"], e["file"]), reverse=True)


def claimants(entries: list[Row]) -> str | None:
    """Why the intact snapshots of a node id come from two machines; None if nothing shows it. Newest first.

    Two host names on one date; two boots that were up at once, and whose log dirs have nothing but other ids; or two
    boot ids that alternate, by the times of the snapshots and by those of their arrival: a machine never returns to an
    earlier boot. A clock that is set back at a reboot mixes up only the former, what a host sends later than it was
    taken only the latter.
    """
    hosts = sorted({str(e["host"]) for e in entries if e["host"] is not None})
    if len(hosts) > 1:
        return f"{len(hosts)} hosts claim this node id: {', '.join(hosts[:3])}"
    two = "two machines with the same host name claim this node id: "
    taken = [e for e in reversed(entries) if e.get("boot_id")]
    arrived = sorted(taken, key=lambda e: int(e["received_at"]))
    if all(_alternate([str(e["boot_id"]) for e in order]) for order in (taken, arrived)):
        return f"{two}their boot ids alternate"
    if any(pair == (True, False) for pair in _pairs(entries)):
        return f"{two}both were up at once, and their log dirs have different ids"
    return None


def perhaps_two(entries: list[Row]) -> str | None:
    """Why the snapshots of a node id may come from two machines, though nothing shows it (`claimants`); None for one
    boot, for a reboot, and for log dirs that went along to another machine."""
    boots = len({e["boot_id"] for e in entries if e.get("boot_id")})
    if boots > _MOST_BOOTS:
        return f"{boots} boots sent its snapshots: a machine that is rebooted again and again, or several machines"
    says = {
        (True, None): "two boots that were up at once, by their clocks, sent its snapshots: a broker that was moved, a"
        " clock that was set back, or a second machine",
        (False, False): "after a reboot none of its log dirs has an id of before: new disks, or a second machine",
        (None, False): "two boots sent its snapshots, with different log dirs: new disks, or a second machine",
        (None, None): "two boots sent its snapshots, and do not say when they began: a reboot, or a second machine",
    }
    return next((says[pair] for pair in _pairs(entries) if pair in says), None)


_MOST_BOOTS = 20
"""So many boots of a node, the newest, are compared, each with each: a host can publish any number."""


def _pairs(entries: list[Row]) -> Iterator[tuple[bool | None, bool | None]]:
    """Of every two boots: whether both were up at once, and whether they have a log dir in common; None: unknown."""
    boots: dict[str, list[Row]] = defaultdict(list)
    for entry in entries:
        if entry.get("boot_id"):
            boots[str(entry["boot_id"])].append(entry)
    known = [
        (_up(boot), {id_ for e in boot for id_ in e.get("directory_ids") or ()})
        for boot in list(boots.values())[:_MOST_BOOTS]
    ]
    for (one, ids), (other, others) in combinations(known, 2):
        yield _at_once(one, other), not ids.isdisjoint(others) if ids and others else None


_Span = tuple[int, int]


def _up(boot: list[Row]) -> _Span | None:
    """When a boot began at the latest, and when it was last heard of at the earliest: by its arrival it began later at
    most than its own clock says, and was last heard of earlier."""
    begun = [int(e["booted_at"]) + max(0, int(e["received_at"]) - int(e["at"])) for e in boot if e.get("booted_at")]
    return (min(begun), max(happened(e) for e in boot)) if begun else None


def _at_once(one: _Span | None, other: _Span | None) -> bool | None:
    """Whether each of two boots had begun when the other one was last heard of."""
    if one is None or other is None:
        return None
    apart = CLOCKS_APART // timedelta(milliseconds=1)
    return one[0] + apart <= other[1] and other[0] + apart <= one[1]


def _alternate(boots: list[str]) -> bool:
    """Whether a boot comes back after another one."""
    turns = [boot for boot, _ in groupby(boots)]
    return len(turns) != len(set(turns))


@dataclass(frozen=True)
class ReportScope:
    """What a report covers. `as_of_ms`: the time that ages are measured against, by the collector's clock."""

    day: date
    as_of_ms: int
    max_age: timedelta

    @property
    def window(self) -> list[date]:
        """Dates that may contain a snapshot that is still fresh, and one more day for skewed clocks; oldest first."""
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
    `skew_seconds`, `counts`, `why`, and the `cause` of an unknown one (never heard, silent, broken file,
    contradiction, moved); `perhaps_two` of one that counts: why it may be two machines, if so. A cluster's row has
    `day`, `source`, `at`, `received_at`, `age_seconds`, `decided`, `why` of its assignments (null if it has none).
    """

    hosts: list[Row]
    clusters: list[Row]

    @property
    def counting(self) -> list[Row]:
        return [host for host in self.hosts if host["counts"]]

    @property
    def decided(self) -> list[Row]:
        return [cluster for cluster in self.clusters if cluster["decided"]]

    @property
    def undecided(self) -> list[str]:
        return [cluster["cluster_id"] for cluster in self.clusters if not cluster["decided"]]

    def silent(self) -> dict[str, list[int]]:
        """Nodes of each cluster that do not count, sorted."""
        found: dict[str, list[int]] = defaultdict(list)
        for host in self.hosts:
            if not host["counts"]:
                found[host["cluster_id"]].append(host["node_id"])
        return {cluster: sorted(nodes) for cluster, nodes in found.items()}

    def rows(self) -> list[Row]:
        """The choice as rows of the `choice` table: one row per host that counts, one per cluster that is decided."""
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
        """Whether `made` (another choice's `rows`) has every host of this one, and exactly the same assignments."""
        theirs = {(row["cluster_id"], row["node_id"]): row for row in made}
        ours = self.rows()
        images = {key for key in theirs if key[1] is None}
        return images == {(r["cluster_id"], None) for r in ours if r["node_id"] is None} and all(
            theirs.get((row["cluster_id"], row["node_id"])) == row for row in ours
        )


def choose(asked: ReportScope, files: Mapping[date, list[Row]], nodes: Mapping[date, list[Row]]) -> Choice:
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
    hosts = [_host(asked, key, by_host.get(key, [])) for key in everyone]
    return Choice(count_once(hosts, by_host, asked.as_of_ms), clusters)


MOVED_FOR = timedelta(hours=2)
"""A host that was silent for so long, twice the usual interval, while another one published its log dirs, has moved."""


def count_once(hosts: list[Row], entries: Mapping[Host, list[Row]], as_of_ms: int) -> list[Row]:
    """Of hosts with a log dir in common (by `directory.id`) only the one with the newest snapshot counts: the log dir
    has moved, with its host, or the cluster got another id. The other's snapshot is from before that, so it is unknown.

    Only where the other one has published nothing since the log dir was seen here, for `MOVED_FOR`: two that go on are
    a disk and its copy, or one of them is wrong. Nobody who claims the ids of another host that lives silences it, not
    with a snapshot from the future either: in a directory a file's times are what its host sets.
    """

    def seen(entry: Row) -> int:
        return min(happened(entry), as_of_ms)

    claims: dict[str, list[Row]] = defaultdict(list)
    for host in hosts:
        if host["counts"]:
            for id_ in set(host.get("directory_ids") or ()):
                claims[id_].append(host)
    left: dict[Host, str] = {}
    for id_, claiming in sorted(claims.items()):
        *others, last = sorted(claiming, key=lambda host: (seen(host), _key(host)))
        whole = (e for e in entries[_key(last)] if e["status"] in ("taken", "superseded")) if others else ()
        since = min((seen(e) for e in whole if id_ in (e.get("directory_ids") or ())), default=0)
        for host in others:
            silent = seen(last) - seen(host)
            if seen(host) < since and silent >= MOVED_FOR // timedelta(milliseconds=1):
                where = f"node {last['node_id']}"
                if last["cluster_id"] != host["cluster_id"]:
                    where += f" of cluster {last['cluster_id']}"
                left[_key(host)] = f"its log dir {id_} (directory.id) is on {where}, whose snapshot is newer and counts"
    moved = {"counts": False, "cause": "moved"}
    return [host | moved | {"why": left[_key(host)]} if _key(host) in left else host for host in hosts]


def _key(host: Row) -> Host:
    return host["cluster_id"], host["node_id"]


def _host(asked: ReportScope, key: Host, entries: list[Row]) -> Row:
    taken = newest_first(e for e in entries if e["status"] == "taken")
    problems = [e for e in entries if e["status"] in ("rejected", "waiting")]
    row: Row = {
        "cluster_id": key[0],
        "node_id": key[1],
        "why": None,
        "cause": None,
        "age_seconds": None,
        "skew_seconds": None,
    }
    if taken:
        newest = taken[0]
        row = newest | row
        row["age_seconds"] = asked.age_seconds(newest)
        row["skew_seconds"] = (newest["at"] - newest["received_at"]) / 1000
        whole = [e for e in entries if e["status"] in ("taken", "superseded")]
        fresh = [e for e in whole if asked.age_seconds(e) <= asked.max_age.total_seconds()]
        if row["age_seconds"] > asked.max_age.total_seconds():
            row["why"] = f"its newest complete snapshot is {_age(row)} old"
            row["cause"] = "silent"
        elif (claims := claimants(newest_first(fresh))) is not None:
            row["why"] = claims
            row["cause"] = "contradiction"
            problems = []
        else:
            row["perhaps_two"] = perhaps_two(fresh)
    else:
        hosts = [e["host"] for e in problems if e.get("host")]
        row |= dict.fromkeys(("host", "at", "received_at", "agent_version", "kafka_version", "snapshot_id", "day"))
        row["host"] = max(hosts, default=None)
        row["why"] = "it has sent no complete snapshot"
        row["cause"] = "never heard"
    if row["why"] is not None and problems:
        row["cause"] = "broken file"
        last = max(problems, key=lambda e: (e["received_at"] or 0, e["file"]))
        row["why"] += f" ({last['reason']}{': ' + last['detail'] if last['detail'] else ''})"
    return row | {"counts": row["why"] is None}


def _age(row: Row) -> str:
    hours = row["age_seconds"] / 3600
    return f"{hours:.1f} h" if hours < 72 else f"{hours / 24:.1f} days"


def _clusters(asked: ReportScope, entries: list[Row]) -> list[Row]:
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
                row["why"] = f"its newest complete assignments are {_age(row)} old"
            elif not row["partitions"]:
                row["why"] = "its newest complete assignments are empty"
        found.append(row | {"decided": row["why"] is None})
    return found


_APART_MS = CLOCKS_APART // timedelta(milliseconds=1)
OLDER, YOUNGER = "older", "younger"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the newest image of its cluster stands to what a host has seen.

    `own`: the agent has said what is absent. `place`: whether the image is `OLDER` than what the agent read before its
    inventory, or `YOUNGER` than what it read after it; None: between them, or it cannot be told. `younger`: it is at or
    after the host's last look. `older`: the name of a stored image at or before its first one.
    """

    own: bool
    place: str | None
    younger: bool
    older: str | None


def first_look(snapshot: Row) -> int:
    """When a host began to look, by its clock. Agents that do not say read their image right before; of one without
    that, what differs by less than five minutes from the snapshot's time proves nothing."""
    known = [snapshot.get(name) for name in ("began", "image_at")]
    return min([int(at) for at in known if at is not None] or [int(snapshot["at"]) - _APART_MS])


def has_own_images(snapshot: Row) -> bool:
    return snapshot.get("images") is not None and snapshot.get("absent") is not None


def can_follow(older: Row, newer: Row) -> bool:
    """Whether one image comes before another of the same lineage: of the metadata log, its time and its end tell it."""
    if older["at"] > newer["at"] or older.get("source") != newer.get("source"):
        return False
    if newer.get("source") != Source.KRAFT_LOG:
        return True
    ends = (older.get("offset"), newer.get("offset"))
    return ends[0] is not None and ends[1] is not None and ends[0] <= ends[1]


def standing(host: Row, newest: Row, stored: Iterable[tuple[str, Row]], as_of_ms: int) -> Standing:
    """`newest`: the image that counts for its cluster; `stored`: the names and rows of all of that cluster that can be
    read, this one too."""
    behind = _behind(host, newest, as_of_ms)
    first, last = first_look(host) + min(behind, 0), host["at"] + max(behind, 0)
    until = newest["at"] if newest.get("image_at") is None else min(newest["at"], newest["image_at"])
    before = [(row["at"], name) for name, row in stored if row["at"] <= first and can_follow(row, newest)]
    own = has_own_images(host)
    place = _place(newest, host["images"]["before"], host["images"]["after"]) if own else None
    return Standing(own, place, until >= last, max(before)[1] if before else None)


def _behind(host: Row, newest: Row, as_of_ms: int) -> int:
    """How far the host's clock is behind that of the image, in milliseconds, from how long each file took to arrive;
    0 for less than five minutes."""
    delays = [min(row["received_at"], as_of_ms) - row["at"] for row in (host, newest)]
    behind = int(delays[0] - delays[1])
    return behind if abs(behind) > _APART_MS else 0


def _place(newest: Row, before: Row, after: Row) -> str | None:
    if newest.get("source") == before["source"] == Source.KRAFT_LOG:
        older, younger = can_follow(newest, before), can_follow(after, newest)
    else:
        older = newest["at"] + _APART_MS <= before["at"]
        younger = after["at"] + _APART_MS <= newest["at"]
    if older == younger:
        return None
    return OLDER if older else YOUNGER


MOST_EARLIER = 6
"""Newest snapshots are of the last hour or two, in which few assignments are published."""


def worth_reading(snapshots: Iterable[Row], newest: Row, superseded: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the images that a newer one superseded, the last before each host without images of its own looked; the latest
    ones, if these are many."""
    candidates = sorted(
        (row for row in superseded if row["at"] < newest["at"]), key=lambda r: (r["at"], str(r["file"]))
    )
    times = [row["at"] for row in candidates]
    found = {bisect_right(times, first_look(host)) - 1 for host in snapshots if not has_own_images(host)}
    return [candidates[index] for index in sorted(found - {-1})[-MOST_EARLIER:]]
