"""A host that moved to another node id and a cluster with a new id count once, by their log dirs' `directory.id`."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from pathlib import Path

from tests.spark.conftest import Zoo
from tests.spark.hand_made import AT, Kafka, dir_row, log_dir_row
from tests.spark.planting import planted

HOUR = timedelta(hours=1)


@planted
def moved_hosts(store: Path) -> list[Kafka]:
    """Node 3 is node 4 since five hours. Node 1 was reinstalled an hour ago, as node 5: too lately to tell it from a
    copy of its disk. And a cluster of two whose id has changed."""
    moves, old, new = Kafka(store, "moves"), Kafka(store, "old-id"), Kafka(store, "new-id")
    for kafka, nodes in ((moves, [1, 2, 3]), (old, [1, 2]), (new, [1, 2])):
        kafka.topic("orders", nodes, nodes)
        kafka.assignments(brokers=nodes)

    def publish(kafka: Kafka, node: int, of: int, before: timedelta) -> None:
        disk = f"{'moves' if kafka is moves else 'renamed'}-{of}"
        rows = [row | {"bytes": 1000 * of} for row in kafka.replicas_of(of)]
        places = [log_dir_row(directory_id=disk)]
        kafka.hourly(node, rows, at=AT - before, log_dirs=places, directory_ids=(disk,))

    for hours in (7, 6):
        publish(moves, 3, 3, hours * HOUR)
    for hours in (5, 1, 0):
        publish(moves, 4, 3, hours * HOUR)
    publish(moves, 2, 2, 0 * HOUR)
    publish(moves, 1, 1, 1 * HOUR)
    publish(moves, 5, 1, 0 * HOUR)
    for node in (1, 2):
        publish(old, node, node, 9 * HOUR)
        publish(new, node, node, 0 * HOUR)
    return [moves, old, new]


def seen_last(landing: Path, clusters: set[str]) -> dict[str, tuple[str, int, int]]:
    """From the files alone: where each log dir was seen last, and the bytes of its directories there."""
    found: dict[str, tuple[str, str, int, int]] = {}
    for path in (path for cluster in clusters for path in landing.glob(f"{cluster}/*/[0-9]*/*.jsonl.gz")):
        rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        for disk in (row["directory_id"] for row in rows if row["row"] == "log_dir"):
            size = sum(row["bytes"] for row in rows if row["row"] == "dir")
            here = rows[0]["at"], rows[0]["cluster_id"], rows[0]["node_id"], size
            found[disk] = max(here, found.get(disk, here))
    return {disk: here[1:] for disk, here in found.items()}


def test_hosts_count_where_their_log_dirs_were_seen_last(zoo: Zoo) -> None:
    moves, old, new = zoo.planted["moved_hosts"]
    ids = {kafka.cluster_id for kafka in (moves, old, new)}
    told = zoo.told
    places = seen_last(Path(told.store.landing.removeprefix("file:")), ids)
    assert len(places) == 5
    hosts = [row for row in told.rows("usage_hosts") if row["cluster_id"] in ids]
    counted = {(row["cluster_id"], row["node_id"]): row["bytes"] for row in hosts}
    lately = moves.cluster_id, 1
    assert counted.pop(lately) == counted[moves.cluster_id, 5], "counted in both places, and said"
    assert counted == {(cluster, node): size for cluster, node, size in places.values()}
    health = [row for row in told.rows("log_dir_health") if row["cluster_id"] in ids and row["cause"] == "moved"]
    says = {(row["cluster_id"], row["node_id"]): row["detail"] for row in health}
    assert says.keys() == {(moves.cluster_id, 3), (old.cluster_id, 1), (old.cluster_id, 2)}
    assert "(directory.id) is on node 4, whose snapshot is newer and counts" in says[moves.cluster_id, 3]
    assert f"is on node 1 of cluster {new.cluster_id}" in says[old.cluster_id, 1]
    warnings = told.content["warnings"]
    assert any("hosts whose log dirs moved, which count once: 4" in one for one in warnings), warnings
    assert any("log dirs under two nodes: 2" in one for one in warnings), warnings


@planted
def claimed_hosts(store: Path) -> Kafka:
    """Node 3 names the log dirs of 1 and 2 as its own, last in a snapshot that is from five hours after the report. 1
    lives, 2 has been silent for three hours. Each of them has an orphan and lacks a replica."""
    kafka = Kafka(store, "claimed")
    kafka.topic("orders", [1, 2, 3], [2, 3, 1])
    lost, gone = kafka.topic("lost", [1], [2]), "0" * 21 + "g"
    kafka.assignments(at=AT - 4 * HOUR, offset=3)
    kafka.assignments()
    for node, hours in ((1, (2, 1, 0)), (2, (4, 3)), (3, (2, 1, 0, -5))):
        mine = [row for row in kafka.replicas_of(node) if row["topic_id"] != lost]
        mine += [dir_row("gone-0", gone, bytes=5000 * node, verdict="orphan", reason="topic-absent")]
        disks = ("claimed-1", "claimed-2", "claimed-3") if node == 3 else (f"claimed-{node}",)
        for ago in hours:
            places = [log_dir_row(directory_id=f"claimed-{node}")]
            kafka.hourly(node, mine, at=AT - ago * HOUR, log_dirs=places, directory_ids=disks)
    return kafka


def test_who_names_the_log_dirs_of_another_host_takes_nothing_of_it_away_unsaid(zoo: Zoo) -> None:
    cluster_id, told = zoo.planted["claimed_hosts"].cluster_id, zoo.told

    def rows(table: str, **also: object) -> list[int]:
        wanted = {"cluster_id": cluster_id} | also
        return [r["node_id"] for r in told.rows(table) if all(r[name] == value for name, value in wanted.items())]

    assert sorted(rows("usage_log_dirs")) == [1, 3], "the one that lives counts, with all it has"
    assert 1 in rows("orphans", topic="gone")
    assert rows("missing_replicas", topic="lost") == [1]
    (unknown,) = (r for r in told.rows("log_dir_health") if r["cluster_id"] == cluster_id and r["cause"] == "moved")
    assert (unknown["node_id"], unknown["finding"]) == (2, "unknown-host")
    assert "its log dir claimed-2 (directory.id) is on node 3" in unknown["detail"]
    (cluster,) = (each for each in told.content["clusters"] if each["cluster_id"] == cluster_id)
    replicas = cluster["replicas"]
    expected = {"expected": 8, "found": 4, "missing": 1, "not_heard": 3}
    assert {name: count for name, count in replicas.items() if count} == expected
    warnings = told.content["warnings"]
    assert any("log dirs under two nodes" in one for one in warnings), warnings
