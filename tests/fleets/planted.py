"""A fleet in landing, and the truth about it: what the reports must find on its last day."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from logagent.fleet.demo import Cluster, Dir, Fleet, write
from tests.fleets.corruptions import CORRUPTIONS, corrupt

WAYS = (*CORRUPTIONS, "silent", "late")
"""Ways in which a host becomes unknown."""


@dataclass
class Orphan:
    reason: str
    copies_elsewhere: int
    longest: bool
    bytes: int


@dataclass
class Truth:
    """What the reports must find in a cluster on the last day.

    Keys: `node|log dir|name` (orphans, leftovers), `node|topic id|partition` (missing, duplicates), `node|log dir`
    (health).
    """

    cluster_id: str
    unknown_hosts: dict[int, str]
    orphans: dict[str, Orphan] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    leftovers: dict[str, str] = field(default_factory=dict)
    health: dict[str, str] = field(default_factory=dict)
    dirs: int = 0
    bytes: int = 0


def generate(store: Path, fleet: Fleet, *, workers: int = 1) -> list[Truth]:
    """Writes `landing/` below `store`: of any size, in parallel, without Spark. The same fleet gives the same bytes.

    Hosts become unknown in all `WAYS`. Raises OSError.
    """
    make = partial(_make, store, replace(fleet, ways=WAYS))
    if workers == 1:
        return [make(number) for number in range(fleet.clusters)]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(make, range(fleet.clusters)))


def _make(store: Path, fleet: Fleet, number: int) -> Truth:
    cluster = Cluster(fleet, number)
    write(store, cluster, corrupt)
    return truth_of(cluster)


def truth_of(cluster: Cluster) -> Truth:
    """Worked out from what exists, without Spark."""
    truth = Truth(cluster.cluster_id, cluster.unknown_hosts)
    last = cluster.fleet.days - 1
    known = [node for node in cluster.nodes if node not in truth.unknown_hosts]
    seen = [(n, d) for n in known for d in cluster.dirs[n] if cluster.is_seen(n, d, last)]
    truth.orphans = _orphans(cluster, seen)
    truth.missing = _missing(cluster, known)
    twins: dict[str, set[int]] = defaultdict(set)
    for node, made in seen:
        truth.dirs += 1
        truth.bytes += cluster.size(made, last)
        if made.kind == "current":
            twins[f"{node}|{made.topic_id}|{made.partition}"].add(made.log_dir)
        why = {"stray": "stray", "delete": "overdue"}.get(made.kind)
        if made.kind == "future" and made.orphan:
            why = "abandoned"
        if why and not (why == "overdue" and (made.marked_hours or 0) < 1):
            truth.leftovers[f"{node}|{cluster.log_dir_path(made.log_dir)}|{made.name}"] = why
    truth.duplicates = sorted(key for key, places in twins.items() if len(places) > 1)
    sick = [(place, state) for place, state in cluster.sick_log_dirs.items() if place[0] in known]
    truth.health = {f"{node}|{cluster.log_dir_path(number)}": state for (node, number), state in sick}
    return truth


def _orphans(cluster: Cluster, seen: list[tuple[int, Dir]]) -> dict[str, Orphan]:
    last = cluster.fleet.days - 1

    def length(node: int, made: Dir) -> tuple[int, float]:
        """What decides which copy is the longest: the last segment's offset, then the newest write."""
        at = cluster.snapshot_at(node, last) - timedelta(days=made.age_days)
        return made.offset, int(at.timestamp() * 1000)

    wanted = {(made.topic_id, made.partition) for _, made in seen if made.orphan}
    copies: dict[tuple[str | None, int | None], list[tuple[int, float]]] = defaultdict(list)
    for node, made in seen:
        key = (made.topic_id, made.partition)
        if key in wanted and made.kind in ("current", "future", "stray"):
            copies[key].append(length(node, made))
    found = {}
    for node, made in seen:
        if made.orphan:
            all_copies = copies[made.topic_id, made.partition]
            longest = length(node, made) >= max(all_copies)
            orphan = Orphan(made.orphan, len(all_copies) - 1, longest, cluster.size(made, last))
            found[f"{node}|{cluster.log_dir_path(made.log_dir)}|{made.name}"] = orphan
    return found


def _missing(cluster: Cluster, known: list[int]) -> list[str]:
    """Replicas on no disk. Agents say so of hosts whose log dirs could all be read; of the others it is provable unless
    the log dir may be an unreadable one, or no assignments were read from before the snapshot and after it."""
    last = cluster.fleet.days - 1
    since = cluster.assignments_at(last)
    unread = {node for (node, _), state in cluster.sick_log_dirs.items() if state == "offline"}
    enclosed = cluster.fleet.days > 1
    known = [n for n in known if n not in unread or (enclosed and cluster.snapshot_at(n, last) <= since)]
    placed = {(n, d.topic_id, d.partition) for n in known for d in cluster.dirs[n] if d.kind == "current"}
    offline = {place for place, state in cluster.sick_log_dirs.items() if state == "offline"}
    found = []
    for topic, partition, replicas in cluster.assigned:
        id_ = cluster.topics[topic][1]
        for node in replicas:
            if node in known and (node, id_, partition) not in placed:
                here = (node, cluster.log_dir(node, partition))
                doubtful = here in offline if cluster.names_directories else any(n == node for n, _ in offline)
                if not doubtful:
                    found.append(f"{node}|{id_}|{partition}")
    return found
