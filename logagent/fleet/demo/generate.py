"""Fleets of any size with planted truth: deterministic, in parallel, without Spark.

A fleet is generated cluster by cluster from a seed; the same arguments give the same bytes. What was planted is
returned (and written to `truth.json` beside `landing/`): tests compare it with the reports, benchmarks only use the
files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from logagent.fleet.demo.corruptions import corrupt
from logagent.fleet.demo.disks import Export, export_assignments, lay_out, scan, snapshot_lines
from logagent.fleet.demo.planted import Dir, Fleet, Truth
from logagent.fleet.demo.planting import Cluster
from logagent.store.contract import ASSIGNMENTS_SCHEMA, SNAPSHOT_SCHEMA
from logagent.store.landing_files import Claim, land, millis, rfc3339

GIB = 1 << 30
DISK = 4096 * GIB


def generate(store: Path, fleet: Fleet, *, workers: int = 1, disks: Export | None = None) -> list[Truth]:
    """Writes `landing/` and `truth.json` below `store`. Raises OSError.

    With `disks` (a function that exports assignments) every host is first laid out below `store/disks`, in Kafka's own
    format, and publishes what the agent's scan of it finds; for fleets of some thousand directories.
    """
    _make = partial(_make_from_disks, disks) if disks is not None else _make_rows
    numbers = range(fleet.clusters)
    if workers > 1:
        with ProcessPoolExecutor(workers) as pool:
            truths = list(pool.map(_make, [store] * fleet.clusters, [fleet] * fleet.clusters, numbers))
    else:
        truths = [_make(store, fleet, number) for number in numbers]
    (store / "truth.json").write_text(json.dumps([asdict(truth) for truth in truths]))
    return truths


Lines = Callable[[Cluster, int, int, Claim], Iterable[str]]


def _make_rows(store: Path, fleet: Fleet, number: int) -> Truth:
    cluster = Cluster(fleet, number)
    cluster.plant()
    return _write(store, cluster, _host_lines)


def _make_from_disks(export: Export, store: Path, fleet: Fleet, number: int) -> Truth:
    cluster = Cluster(fleet, number)
    cluster.plant()
    place = store / "disks" / cluster.name
    exported = place / "assignments.json"
    place.mkdir(parents=True)
    export_assignments(cluster, fleet.days - 1, exported, export)
    scans = {node: scan(cluster, node, lay_out(cluster, node, place), exported) for node in cluster.nodes}
    cluster.settle()
    return _write(store, cluster, lambda made, node, day, claim: snapshot_lines(made, scans[node], day, claim))


def _write(store: Path, cluster: Cluster, lines: Lines) -> Truth:
    for day in cluster.fleet.told:
        _write_assignments(store, cluster, day)
        for node in cluster.nodes:
            _write_host(store, cluster, node, day, lines)
    return cluster.truth


def _write_assignments(store: Path, cluster: Cluster, day: int) -> None:
    at = cluster.assignments_at(day)
    claim = Claim(f"kraft-log-{1000 + day:020d}", "assignments", cluster.cluster_id, None, f"{cluster.name}-1", at)
    land(store, claim, _assignment_lines(cluster, at, 1000 + day), received_at=at + timedelta(seconds=2))


def _assignment_lines(cluster: Cluster, at: datetime, offset: int) -> Iterator[str]:
    yield json.dumps(
        {
            "row": "assignments",
            "schema": ASSIGNMENTS_SCHEMA,
            "cluster_id": cluster.cluster_id,
            "at": rfc3339(at),
            "source": "kraft-log",
            "offset": offset,
            "metadata_version": 21,
        }
    )
    for node in cluster.nodes:
        ids = [cluster.directory_id(node, n) for n in range(cluster.log_dirs)]
        yield json.dumps({"row": "broker", "node_id": node, "directory_ids": ids})
    for topic, partition, replicas in cluster.assigned:
        name, id_, _ = cluster.topics[topic]
        directories = [cluster.directory_id(n, cluster.log_dir(n, partition)) for n in replicas]
        yield (
            f'{{"row":"partition","topic":{json.dumps(name)},"topic_id":"{id_}","partition":{partition},'
            f'"replicas":{replicas},"adding":[],"removing":[],"isr":{replicas},'
            f'"directories":{json.dumps(directories) if cluster.names_directories else "[]"}}}'
        )


def _write_host(store: Path, cluster: Cluster, node: int, day: int, lines: Lines) -> None:
    """Writes the host's snapshot of a day, then damages it if the host is a broken one. A broken host has no other
    recent snapshot."""
    last = cluster.fleet.days - 1
    broken = cluster.truth.unknown_hosts.get(node)
    if broken is not None and (broken in ("silent", "late") or day == last - 1) and not (broken == "late" and day == 0):
        return
    at = cluster.snapshot_at(node, day)
    if broken == "late" and day == 0:
        at -= timedelta(days=3)
    snapshot_id = f"{at:%Y%m%dT%H%M%S}Z-{node}"
    claim = Claim(snapshot_id, "snapshot", cluster.cluster_id, node, cluster.host(node), at)
    data = land(store, claim, lines(cluster, node, day, claim), received_at=at + timedelta(seconds=2))
    if broken is not None and day == last:
        corrupt(data, broken)


def _host_lines(cluster: Cluster, node: int, day: int, claim: Claim) -> Iterator[str]:
    at = claim.at
    yield json.dumps(
        {
            "row": "snapshot",
            "schema": SNAPSHOT_SCHEMA,
            "snapshot_id": claim.snapshot_id,
            "at": rfc3339(at),
            "host": claim.host,
            "cluster_id": claim.cluster_id,
            "node_id": node,
            "agent_version": "0.1.0",
            "kafka_version": "3.9.1",
            "assignments": {"source": "kraft-log", "cluster_id": claim.cluster_id, "at": rfc3339(at)},
        }
    )
    seen = [d for d in cluster.dirs[node] if cluster.is_seen(node, d, day)]
    for number in range(cluster.log_dirs):
        yield json.dumps(_log_dir_row(cluster, node, number, [d for d in seen if d.log_dir == number], day))
    for made in seen:
        yield _dir_line(cluster, made, at, day)


def _log_dir_row(cluster: Cluster, node: int, number: int, dirs: list[Dir], day: int) -> dict[str, object]:
    health = cluster.health(node, number)
    row: dict[str, object] = {"row": "log_dir", "path": cluster.log_dir_path(number), "health": health}
    row |= {"directory_id": cluster.directory_id(node, number), "reason": "EIO" if health == "offline" else None}
    row["holder"] = {"state": "held", "pid": 4242, "start_time": None}
    if health == "offline":
        return row | {"ledger": None}
    kinds = {
        kind: sum(cluster.size(d, day) for d in dirs if d.kind == kind)
        for kind in ("current", "future", "stray", "delete")
    }
    hidden = {"other": 5 * GIB, "open_removed": GIB // 2, "unexplained": GIB // 4}
    used = sum(kinds.values()) + sum(hidden.values())
    size = max(cluster.capacities[node, number], used) if cluster.capacities else max(DISK, used + 64 * GIB)
    return row | {"ledger": {"size": size, "used": used, "free": size - used, **kinds, **hidden}}


def _dir_line(cluster: Cluster, made: Dir, at: datetime, day: int) -> str:
    """One `dir` row; formatted by hand because a large fleet has tens of millions of them."""
    size = cluster.size(made, day)
    marked = "null" if made.marked_hours is None else millis(at - timedelta(hours=made.marked_hours))
    first_seen = millis(at - timedelta(days=3)) if made.orphan else "null"
    uuid = made.name.rsplit(".", 1)[1].split("-")[0] if made.kind in ("future", "stray", "delete") else None
    return (
        f'{{"row":"dir","log_dir":"{cluster.log_dir_path(made.log_dir)}","name":{json.dumps(made.name)},'
        f'"kind":"{made.kind}","topic":{json.dumps(made.topic)},"topic_truncated":false,"full_topic":null,'
        f'"partition":{json.dumps(made.partition)},"uuid":{json.dumps(uuid)},"topic_id":{json.dumps(made.topic_id)},'
        f'"bytes":{size},"allocated":{-(-size // 4096) * 4096},"files":9,"segments":3,'
        f'"newest_mtime":{millis(at - timedelta(days=made.age_days))},"marked_at":{marked},"first_offset":0,'
        f'"last_segment_offset":{made.offset},"sightings":{4 if made.orphan else 0},"first_seen":{first_seen},'
        f'"in_use":null,"verdict":{json.dumps("orphan" if made.orphan else None)},"reason":{json.dumps(made.orphan)}}}'
    )
