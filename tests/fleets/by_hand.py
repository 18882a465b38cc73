"""Clusters made by hand for what a planted one has not: changes on a base, log dirs on one file system, verdicts that
differ, names that are not UTF-8, hosts that moved, a broker more, deletions that were asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from logagent.base.units import instant
from logagent.deletion.store.answers import Answer, Answers, DirectoryAnswer
from logagent.deletion.store.requests import (
    ControlFolder,
    Request,
    RequestedDirectory,
    RequestedPartition,
    RequestedTopic,
    write_request,
)
from logagent.store.signing import PrivateKey
from tests.fleets.published import ms
from tests.spark.hand_made import AT, GIB, NOW, Kafka, dir_row, idle, log_dir_row

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LEDGER = {"current": 1, "future": 2, "stray": 3, "delete": 4, "other": 5, "open_removed": 6, "unexplained": 7}
OLD = {"newest_mtime": ms(AT - 9 * DAY)}
HEX = "0" * 32
ODD = "/d\udcff"
Row = dict[str, Any]


def shared_disks(store: Path) -> Kafka:
    """Hourly changes on a base, two log dirs on one file system, one that fills up."""
    kafka = Kafka(store, "shared")
    kafka.topic("orders", *([1, 2] for _ in range(9)))
    kafka.topic("single", [1])
    gone = "G" * 22
    for days in (2, 1, 0):
        at = AT - timedelta(days=days)
        used = (60 - 10 * days) * GIB + days
        kafka.assignments(at=at + timedelta(minutes=10), offset=9 - days)
        for node in (1, 2):
            ledger = {"size": 100 * GIB + node, "used": used + node, "free": 100 * GIB - used, **LEDGER}
            places = [log_dir_row(f"/d{n}", device=5 if n < 2 else 6, ledger=ledger | {"other": n}) for n in range(3)]
            rows = [row | OLD for row in kafka.replicas_of(node)]
            orphan = dir_row("gone-0", gone, bytes=7_777, allocated=12_288, log_dir="/d1", **OLD)
            waste = [dir_row(f"gone-{n}.{HEX}-stray", gone, kind="stray", topic="gone", partition=n, bytes=11 + n,
                             allocated=4096 << n, marked_at=ms(AT - timedelta(days=6 + n)), **OLD)
                     for n in range(3)]  # fmt: skip
            base = kafka.hourly(node, [*rows, orphan, *waste], at=at - timedelta(hours=2), log_dirs=places)
            grown = [row | {"bytes": row["bytes"] + 3 + n, "allocated": 8192 + n} for n, row in enumerate(rows[1:])]
            new = dir_row("new-0", "N" * 22, bytes=1 << 33, allocated=16_384, log_dir="/d2", **OLD)
            kafka.hourly(node, [*grown, orphan, new, *waste[:2]], at=at, base=base, log_dirs=places)
    return kafka


def odd(store: Path, key: PrivateKey) -> Kafka:
    """Agents and fleet disagree; a topic moves, one is internal, one has no id, one a name that is cut; a broker more
    today, an old agent, a slow clock, a log dir that is ill since yesterday and one whose path is not UTF-8."""
    kafka = Kafka(store, "odd")
    orders = kafka.topic("orders", [1, 2, 3], [2, 3, 1], [3, 1])
    moving = kafka.topic("moving", [1, 2])
    lost = kafka.topic("lost", [1], [2, 1])
    gone, theirs, offsets, long = ("A" * 21 + letter for letter in "GTOL")
    for days in (1, 0):
        rows = kafka.partition_rows()
        for row in rows:
            row["adding"] = [2] if row["topic"] == "moving" else []
        at = AT - days * DAY
        kafka.assignments(rows, at=at + timedelta(minutes=10), offset=9 - days, brokers=(1, 2, 3, 4))
        for node in (1, 2, 3, *([4] if not days else [])):
            own = {
                "assignments": {"source": "kraft-log", "at": instant(at + timedelta(minutes=11)), "offset": 9 - days}
            }
            head: Row = {"agent_version": "0.9.0"} if node == 1 else idle(at) | {"acts": _acts(node, at)[0]}
            dirs = _dirs(node, days, orders=orders, moving=moving, lost=lost, gone=gone, theirs=theirs,
                         offsets=offsets, long=long)  # fmt: skip
            mine = [row | OLD | {"bytes": 1000 + 3 * days, "allocated": 4096 * (node + days)}
                    for row in kafka.replicas_of(node) if row["topic_id"] != lost]  # fmt: skip
            ill = "read-only" if node == 2 else "online"
            why = "EROFS" if node == 2 else None
            places = [
                log_dir_row(directory_id=f"odd-{node}", ledger=_ledger(node, days)),
                log_dir_row(ODD, ill, reason=why, ledger=_ledger(node, 2 * days)),
            ]
            head |= own if node == 3 else {}
            kafka.hourly(node, [*mine, *dirs], at=at, log_dirs=places, done=_acts(node, at)[1], **head)
    _ask(store, kafka.cluster_id, orders, key)
    return kafka


def _ledger(node: int, days: int) -> Row:
    used = (70 + node - 7 * days) * GIB + node
    return {"size": 100 * GIB, "used": used, "free": 100 * GIB - used, **LEDGER}


def _dirs(node: int, days: int, **id_: str) -> list[Row]:
    later = {"window": "later", "due_at": ms(AT + 5 * DAY), "covered": "no", "inode": 5, "end_offset": 9}
    barred = {"obstacle": "holder", "obstacle_detail": "its log dir is held by another broker", "inode": 6}
    says = {"verdict": "orphan", "reason": "topic-absent", "sightings": 3, "first_seen": ms(AT - 3 * DAY), **OLD}
    found = [
        dir_row("gone-1", id_["gone"], bytes=9000 + node, allocated=1 << 20, log_dir=ODD, inode=8, **says),
        dir_row("gone-2", id_["gone"], bytes=11, allocated=4096, **barred, **says),
        dir_row(f"gone-{3 + node}", id_["gone"], bytes=12, allocated=8192, window="now", inode=9 + node, **says),
        dir_row(f"gone-9.{HEX}-stray", id_["gone"], kind="stray", topic="gone", partition=9, bytes=5,
                allocated=20_480, marked_at=ms(AT - 2 * DAY), **later, **OLD),
    ]  # fmt: skip
    if node == 1:
        found += [
            dir_row("nameless-0", None, **OLD),
            dir_row("__consumer_offsets-7", id_["offsets"], **OLD),
            dir_row(f"orders-0.{HEX}-stray", id_["orders"], kind="stray", topic="orders", partition=0, bytes=8,
                    allocated=4096, last_segment_offset=4, marked_at=ms(AT - 9 * DAY), **OLD),
            dir_row(f"orders-2.{HEX}-stray", id_["orders"], kind="stray", topic="orders", partition=2, bytes=8,
                    allocated=4096, last_segment_offset=99, marked_at=ms(AT - 9 * DAY), **OLD),
            dir_row(f"lost-0.{HEX}-stray", id_["lost"], kind="stray", topic="lost", partition=0, marked_at=None, **OLD),
            dir_row("orders-1", id_["orders"], log_dir=ODD, **OLD | {"allocated": 12_288}),
        ]  # fmt: skip
    if node == 2:
        name = f"very-long-topic-{'n' * 190}"
        found += [
            dir_row("orders-2", id_["orders"], log_dir=ODD, bytes=9, allocated=4096, last_segment_offset=7, **OLD),
            dir_row(f"{name}-3.{HEX}-future", id_["long"], kind="future", topic=name, topic_truncated=True,
                    full_topic=f"{name}-whole", partition=3, last_segment_offset=None, newest_mtime=None,
                    first_seen=ms(AT - DAY)),
            dir_row(f"lost-1.{HEX}-delete", id_["lost"], kind="delete", topic="lost", partition=1,
                    marked_at=ms(AT - timedelta(minutes=5)), **OLD),
            dir_row(f"gone-8.{HEX}-delete", id_["gone"], kind="delete", topic="gone", partition=8, marked_at=None,
                    bytes=3, allocated=24_576, **OLD),
        ]  # fmt: skip
    if node == 3:
        found += [
            dir_row("theirs-0", id_["theirs"], verdict="assigned", **OLD),
            dir_row("moving-0", id_["moving"], **OLD),
            dir_row("old-0", id_["theirs"], **(OLD | {"newest_mtime": ms(AT + timedelta(minutes=12))})),
        ] if not days else []  # fmt: skip
    return found


def _acts(node: int, at: datetime) -> tuple[Row, Sequence[Row]]:
    """What node 2 set aside yesterday, and what it removed today; 3 failed, under a name that is not UTF-8."""

    def act(number: int, hours: int, **fields: Any) -> Row:
        done = ms(AT - hours * HOUR)
        row: Row = {"id": number, "at": done - 7, "finished_at": done, "action": "remove", "outcome": "done"}
        row |= {
            "log_dir": "/d0",
            "name": f"gone-{number}",
            "new_name": None,
            "topic": "gone",
            "topic_id": "A" * 21 + "G",
        }
        row |= {"partition": number, "bytes": 10**number, "allocated": 3 * 10**number, "actor": "daemon"}
        row |= {"approved": False, "plan_id": "p1", "claim": "kept", "witness": "name", "as_of": done - 9}
        return row | {"claims": "kept by name", "error": None} | fields

    every = {
        2: [act(1, 30, action="quarantine", new_name=f"gone-1.{HEX}-stray"), act(2, 5), act(3, 3, action="restore")],
        3: [act(1, 4, outcome="failed", error="Input/output error \udcfe", log_dir=ODD, actor="cli:anna")],
    }.get(node, [])
    told = [row for row in every if row["finished_at"] <= ms(at)]
    return {"since": instant(at - 8 * DAY), "rows": len(told), "left_out": 0, "last_id": len(told)}, told


def _ask(store: Path, cluster: str, id_: str, key: PrivateKey) -> None:
    """A topic, and three directories of which one was removed and one set aside."""

    def request(number: int, kind: Any, **what: Any) -> str:
        times = instant(NOW - number * DAY), instant(NOW + DAY)
        asked = Request(cluster, kind, "a" * 24, "ops", *times, f"{number:032x}", **what)
        return write_request(ControlFolder(store, cluster), asked, key)

    request(
        1,
        "topics",
        topics=(RequestedTopic("orders", id_, (RequestedPartition(0, (1, 2)), RequestedPartition(1, (2,))), 70),),
    )
    dirs = [
        RequestedDirectory(n, "/d0", f"gone-{n}", "gone", "A" * 21 + "G", n, "orphan", 7, bytes=100 * n)
        for n in (1, 2, 3)
    ]
    number = request(2, "directories", directories=tuple(dirs))
    for node, result in ((1, "removed"), (2, "quarantined")):
        done = DirectoryAnswer("/d0", f"gone-{node}", "done", result, bytes=100 * node)  # type: ignore[arg-type]
        Answers(store, cluster).write(Answer(cluster, node, number, f"odd-{node}", "0" * 32, instant(NOW), (done,)))


def bare(store: Path) -> Kafka:
    """Nobody publishes its assignments, a partition lies twice on a host, and a clock is slow."""
    kafka = Kafka(store, "bare")
    id_ = kafka.topic("orders", [1, 2])
    twin = dir_row("orders-0", id_, log_dir="/d1", bytes=5, allocated=4096)
    stray = dir_row(
        f"gone-0.{HEX}-stray", "G" * 22, kind="stray", topic="gone", partition=0, marked_at=ms(AT - 9 * DAY)
    )
    kafka.snapshot(1, [*kafka.replicas_of(1), twin, stray], log_dirs=[log_dir_row(), log_dir_row("/d1", ledger=None)])
    kafka.snapshot(2, kafka.replicas_of(2), at=AT - HOUR, received_at=AT - timedelta(minutes=5))
    return kafka


def moved(store: Path) -> list[Kafka]:
    """Node 3 is node 4 since five hours, and a cluster of two has another id since yesterday."""
    moves, old, new = Kafka(store, "moves"), Kafka(store, "old-id"), Kafka(store, "new-id")

    def publish(kafka: Kafka, node: int, of: int, before: timedelta) -> None:
        disk = f"{'moves' if kafka is moves else 'renamed'}-{of}"
        size = 1000 * of - before // HOUR
        rows = [row | OLD | {"bytes": size, "allocated": 10 * size} for row in kafka.replicas_of(of)]
        places = [log_dir_row(directory_id=disk, ledger=_ledger(of, before // HOUR // 10))]
        kafka.hourly(node, rows, at=AT - before, log_dirs=places, directory_ids=(disk,))

    for kafka, nodes in ((moves, [1, 2, 3]), (old, [1, 2]), (new, [1, 2])):
        kafka.topic("orders", nodes, nodes)
        if kafka is not new:
            kafka.assignments(brokers=nodes, at=AT - 20 * HOUR, offset=3)
        if kafka is not old:
            kafka.assignments(brokers=nodes)
    for node, of, hours in ((1, 1, 20), (2, 2, 20), (3, 3, 20), (1, 1, 0), (2, 2, 0), (4, 3, 5), (4, 3, 0)):
        publish(moves, node, of, hours * HOUR)
    for node in (1, 2):
        publish(old, node, node, 20 * HOUR)
        publish(new, node, node, 0 * HOUR)
    return [moves, old, new]


def twins(store: Path) -> Kafka:
    """Two machines on a node id: 1 by their names, 2 by boots that alternate, 3 perhaps: two boots were up at once."""
    kafka, other = Kafka(store, "twins"), Kafka(store, "twins-b")
    kafka.topic("orders", [1, 2, 3])
    kafka.assignments()
    kafka.snapshot(1, kafka.replicas_of(1))
    other.snapshot(1, kafka.replicas_of(1), at=AT - HOUR, cluster_id=kafka.cluster_id)
    for node, boots in ((2, "aba"), (3, "ab")):
        for ago, boot in enumerate(reversed(boots)):
            head: Row = {"boot_id": boot, "booted_at": AT - 9 * HOUR}
            kafka.hourly(node, kafka.replicas_of(node), at=AT - ago * HOUR, **head)
    return kafka


def generate(store: Path, key: PrivateKey) -> dict[str, Kafka]:
    """All of them, by name."""
    made = [shared_disks(store), odd(store, key), bare(store), twins(store), *moved(store)]
    return {kafka.name: kafka for kafka in made}
