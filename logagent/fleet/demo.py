"""A made-up fleet with problems: `logagent fleet demo` writes it as its hosts would publish it.

Clusters with terabytes on disks of different sizes and fullness, a week of history, and reasons to act: orphans,
replicas that are missing or there twice, log dirs that fail, hosts that are silent. It is made cluster by cluster from
a seed; the same arguments give the same bytes. Tests plant their fleets with it too (`tests/fleets`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from logagent.base.units import instant
from logagent.store.contract import ASSIGNMENTS_SCHEMA
from logagent.store.landing_files import ManifestHead, land, millis
from logagent.store.snapshots import ACTS_DAYS, SNAPSHOT_SCHEMA

GIB = 1 << 30
REPLICATION = 3
LOG_DIRS = 3
CLUSTERS = ("payments-eu", "clickstream-us", "telemetry")
"""What the clusters of the demo are called in its report."""
RETIRED = ("clicks.raw-v1", "sensors.raw-2024", "ledger.backfill")
"""Topics that were deleted while a host was down: their directories still exist."""
_AREAS = ("checkout", "clicks", "orders", "ledger", "sensors", "search", "fraud", "users", "stock", "audit")
_WHAT = ("events", "raw", "enriched", "changes", "commands", "sessions", "state", "dead-letter")


@dataclass(frozen=True)
class Fleet:
    """The size of a fleet, and its problems.

    `partitions` counts directories; rates are per directory (`sick`), per host (`broken`). `ways`: how a host becomes
    unknown.
    """

    at: datetime
    clusters: int = len(CLUSTERS)
    hosts: int = 24
    partitions: int = 2400
    days: int = 8
    seed: int = 1
    sick: float = 0.01
    broken: float = 0.1
    ways: tuple[str, ...] = ("silent", "truncated", "late")

    @property
    def published(self) -> list[int]:
        """The days of which there are snapshots: those that show the change of a day and of all days."""
        return sorted({0, max(self.days - 2, 0), self.days - 1})

    def share(self, whole: int, cluster: int) -> int:
        """The share of `whole` that belongs to a cluster."""
        return whole // self.clusters + (1 if cluster < whole % self.clusters else 0)


@dataclass
class Dir:
    """One directory. `age_days`: since its newest write; `orphan`: why it is one. It exists from day `comes` until
    before day `goes`."""

    name: str
    kind: str
    topic: str | None
    partition: int | None
    topic_id: str | None
    bytes: int
    log_dir: int
    age_days: float = 0.1
    offset: int = 0
    marked_hours: float | None = None
    orphan: str | None = None
    goes: int | None = None
    comes: int = 0


class Cluster:
    """One cluster: what is where. No I/O."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.fleet = fleet
        self.number = number
        self.random = random.Random(f"{fleet.seed}/{number}")
        self.cluster_id = topic_id("cluster", fleet.seed, number)
        self.nodes = list(range(1, 1 + fleet.share(fleet.hosts, number)))
        self.names_directories = number % 2 == 0
        self.topics: list[tuple[str, str, int]] = []
        self.assigned: list[tuple[int, int, list[int]]] = []
        self.dirs: dict[int, list[Dir]] = {node: [] for node in self.nodes}
        self.unknown_hosts: dict[int, str] = {}
        self.sick_log_dirs: dict[tuple[int, int], str] = {}
        self.capacities: dict[tuple[int, int], int] = {}
        self._plant()

    # Where and when things are

    def host(self, node: int) -> str:
        return f"kafka-{self.number + 1}{node:02d}.example"

    def log_dir_path(self, number: int) -> str:
        return f"/data/kafka-{number}"

    def directory_id(self, node: int, number: int) -> str:
        return topic_id(self.cluster_id, "directory", node, number)

    def log_dir(self, node: int, partition: int) -> int:
        return (partition + node) % LOG_DIRS

    def health(self, node: int, number: int) -> str:
        return self.sick_log_dirs.get((node, number), "online")

    def snapshot_at(self, node: int, day: int) -> datetime:
        """Hosts report at different times within half an hour, some before and some after the assignments."""
        return self._day(day) - timedelta(seconds=node * 397 % 1800)

    def assignments_at(self, day: int) -> datetime:
        return self._day(day) - timedelta(minutes=15)

    def _day(self, day: int) -> datetime:
        return self.fleet.at - timedelta(days=self.fleet.days - 1 - day)

    def is_seen(self, node: int, made: Dir, day: int) -> bool:
        """Whether the host's snapshot of that day lists the directory."""
        is_there = made.comes <= day and (made.goes is None or day < made.goes)
        return is_there and self.health(node, made.log_dir) != "offline"

    def size(self, made: Dir, day: int) -> int:
        """Bytes of a directory on a day: one per cent more each day."""
        return made.bytes + made.bytes // 100 * day

    # Construction

    def _plant(self) -> None:
        """Plants replicas where they belong, then the problems."""
        self._make_topics(self.fleet.share(self.fleet.partitions, self.number))
        self._break_hosts()
        for number, (_, _, size) in enumerate(self.topics):
            start = self.random.randrange(len(self.nodes))
            for partition in range(size):
                self._place(number, partition, start)
        for node in self.nodes:
            for nth in range(int(len(self.dirs[node]) * self.fleet.sick) + 1 if self.fleet.sick else 0):
                for plant in (self._absent, self._recreated, self._stranger, self._leftovers, self._bystanders):
                    if self.random.random() < 0.7:
                        plant(node, nth)
            self._retired(node)
            self.capacities |= {(node, n): self._capacity(node, n) for n in range(LOG_DIRS)}

    def _make_topics(self, directories: int) -> None:
        """Topics of very different sizes, the first with a fifth of all partitions."""
        left = max(1, directories // min(REPLICATION, len(self.nodes)))
        size = max(1, left // 5)
        while left > 0:
            number = len(self.topics)
            size = min(size, left)
            self.topics.append((_topic_name(number), topic_id(self.cluster_id, number), size))
            left -= size
            size = self.random.choice((1, 3, 6, 12, 24, 48))

    def _break_hosts(self) -> None:
        """Some hosts do not report; some of the others have a failing log dir. The first host is always healthy."""
        for node in self.nodes[1:]:
            if self.random.random() < self.fleet.broken:
                self.unknown_hosts[node] = self.random.choice(self.fleet.ways)
            elif self.random.random() < self.fleet.broken:
                self.sick_log_dirs[node, 1] = self.random.choice(("offline", "read-only", "full"))

    def _place(self, topic: int, partition: int, start: int) -> None:
        name, id_, _ = self.topics[topic]
        count = min(REPLICATION, len(self.nodes))
        replicas = [self.nodes[(start + partition + step) % len(self.nodes)] for step in range(count)]
        self.assigned.append((topic, partition, replicas))
        size = self._size()
        # One partition is lost completely: an operator must see that before anything else.
        lost = topic == len(self.topics) // 2 and partition == 0
        for node in replicas:
            log_dir = self.log_dir(node, partition)
            chance = self.random.random()
            if lost or chance < self.fleet.sick / 2:
                continue
            offset = self.random.randrange(1_000_000)
            twice = ((log_dir + 1) % LOG_DIRS,) if chance < self.fleet.sick else ()
            for number in (log_dir, *twice):
                self.dirs[node].append(
                    Dir(f"{name}-{partition}", "current", name, partition, id_, size, number, 0.1, offset)
                )

    def _size(self) -> int:
        """Bytes of a partition: most have a few gigabytes, some have hundreds."""
        return min(int(self.random.lognormvariate(23.2, 1.1)), 600 * GIB)

    def _capacity(self, node: int, number: int) -> int:
        """The size of a file system: some are nearly full, most are not."""
        last = self.fleet.days - 1
        used = sum(self.size(made, last) for made in self.dirs[node] if made.log_dir == number)
        fullness = min(max(self.random.betavariate(6, 3), 0.15), 0.975)
        return max(int((used + 6 * GIB) / fullness), 64 * GIB)

    def _absent(self, node: int, nth: int) -> None:
        """Copies of a deleted topic, shared by hosts, so that "only" and "longest" differ."""
        name = f"gone.{nth}.{self.random.randrange(3)}"
        made = Dir(f"{name}-0", "current", name, 0, topic_id(self.cluster_id, name), self._size(), nth % 2, 30)
        made.offset, made.orphan = self.random.randrange(5), "topic-absent"
        if self.random.random() < 0.2:
            made.kind, made.name = "future", f"{name}-0.{uuid_hex(name, node)}-future"
        self.dirs[node].append(made)

    def _recreated(self, node: int, nth: int) -> None:
        """The old incarnation of an existing topic, in a log dir that does not have the new one."""
        name, _, size = self.random.choice(self.topics)
        partition = self.random.randrange(size)
        here = {d.log_dir for d in self.dirs[node] if d.name == f"{name}-{partition}"}
        free = [log_dir for log_dir in range(LOG_DIRS) if log_dir not in here]
        if free:
            old = topic_id(self.cluster_id, name, "old")
            made = Dir(f"{name}-{partition}", "current", name, partition, old, self._size(), free[0], 40, nth)
            made.orphan = "topic-recreated"
            self.dirs[node].append(made)

    def _stranger(self, node: int, nth: int) -> None:
        """A partition of an existing topic on a broker that is not one of its replicas."""
        topic, partition, replicas = self.random.choice(self.assigned)
        name, id_, _ = self.topics[topic]
        if node not in replicas and not any(d.name == f"{name}-{partition}" for d in self.dirs[node]):
            made = Dir(f"{name}-{partition}", "current", name, partition, id_, self._size(), nth % 2, 10)
            made.offset, made.orphan = self.random.randrange(2_000_000), "not-a-replica"
            self.dirs[node].append(made)

    def _leftovers(self, node: int, nth: int) -> None:
        name = f"retired.{nth}"
        plants = (("stray", 1, 480.0), ("delete", 2, 50.0), ("delete", 3, 0.01), ("delete", 4, 60.0))
        for kind, partition, hours in plants:
            full = f"{name}-{partition}.{uuid_hex(node, nth, partition)}-{kind}"
            id_ = topic_id(self.cluster_id, name)
            made = Dir(full, kind, name, partition, id_, self._size(), partition % 2, 20, marked_hours=hours)
            made.goes = self.fleet.days - 1 if partition == 4 else None
            self.dirs[node].append(made)

    def _bystanders(self, node: int, nth: int) -> None:
        """What looks like a problem but is none: Kafka's own dirs, a move under way, a topic too young to be known."""
        moved = next((d for d in self.dirs[node] if d.kind == "current" and d.orphan is None), None)
        if nth == 0:
            self.dirs[node] += [
                Dir("__cluster_metadata-0", "metadata", "__cluster_metadata", 0, None, self._size() % (200 << 20), 0),
                Dir("remote-log-index-cache", "cache", None, None, None, 0, 1),
                Dir("<img src=x onerror=alert(1)>\udcff", "invalid", None, None, None, 7, 1),
            ]
        if moved is not None and nth == 0:
            name = f"{moved.name}.{uuid_hex(node, moved.name)}-future"
            to = (moved.log_dir + 1) % LOG_DIRS
            future = Dir(name, "future", moved.topic, moved.partition, moved.topic_id, 9, to, 0.1, 1)
            self.dirs[node].append(future)
        last = self.fleet.days - 1
        if self.snapshot_at(node, last) - self.assignments_at(last) > timedelta(minutes=5):
            young = f"young.{node}.{nth}"
            id_ = topic_id(self.cluster_id, young)
            self.dirs[node].append(Dir(f"{young}-0", "current", young, 0, id_, 1, 0, age_days=1 / 1440))

    def _retired(self, node: int) -> None:
        """What deleted topics have left on a host: orphans shared with its neighbour (those of one topic only since the
        last day), and strays, old and young."""
        for number, name in enumerate(RETIRED):
            if (node + number) % 3 == 0:
                continue
            id_ = topic_id(self.cluster_id, name)
            for shared in (node, node % len(self.nodes) + 1):
                size, offset = 40 * GIB + shared * 977 * (GIB >> 8), 1000 + shared
                orphan = Dir(f"{name}-{shared}", "current", name, shared, id_, size, number % LOG_DIRS, 40, offset)
                orphan.orphan = "topic-absent"
                orphan.comes = self.fleet.days - 1 if number == 2 else 0
                self.dirs[node].append(orphan)
        for partition, hours in enumerate((500.0, 260.0, 50.0, 20.0)):
            if self.random.random() < 0.6:
                name = f"sessions.v{partition + 1}"
                full = f"{name}-{node}.{uuid_hex(self.cluster_id, node, name)}-stray"
                id_ = topic_id(self.cluster_id, name)
                stray = Dir(full, "stray", name, node, id_, self._size(), node % LOG_DIRS, 20, marked_hours=hours)
                self.dirs[node].append(stray)


def generate(store: Path, fleet: Fleet) -> list[Cluster]:
    """Writes `landing/` below `store`. Raises OSError."""
    clusters = [Cluster(fleet, number) for number in range(fleet.clusters)]
    for cluster in clusters:
        write(store, cluster)
    return clusters


def _truncate(data: Path, way: str) -> None:
    """Half of the file is lost; its times are kept."""
    del way
    seen = data.stat()
    os.truncate(data, seen.st_size // 2)
    os.utime(data, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def write(store: Path, cluster: Cluster, damage: Callable[[Path, str], None] = _truncate) -> None:
    """Writes what a cluster's hosts have published; `damage` is done to the last snapshot of an unknown host that is
    neither silent nor late. Raises OSError."""
    last = cluster.fleet.days - 1
    for day in cluster.fleet.published:
        at = cluster.assignments_at(day)
        name = f"kraft-log-{_offset(at):020d}"
        claim = ManifestHead(name, "assignments", cluster.cluster_id, None, cluster.host(1), at)
        land(store, claim, _assignment_lines(cluster, at), received_at=at + timedelta(seconds=2))
        for node in cluster.nodes:
            way = cluster.unknown_hosts.get(node)
            if _publishes(way, day, last):
                data = _write_host(store, cluster, node, day, late=way == "late")
                if way is not None and way != "late" and day == last:
                    damage(data, way)


def _publishes(way: str | None, day: int, last: int) -> bool:
    """Whether a host has a snapshot of a day: an unknown one has no recent one that could stand in for its last."""
    if way == "late":
        return day == 0
    return way is None or (way != "silent" and day != last - 1)


def _offset(at: datetime) -> int:
    """Where the metadata log ends: two records a second are written while nothing happens."""
    return 2 * round(at.timestamp())


def _write_host(store: Path, cluster: Cluster, node: int, day: int, *, late: bool) -> Path:
    at = cluster.snapshot_at(node, day) - timedelta(days=3 if late else 0)
    claim = ManifestHead(f"{at:%Y%m%dT%H%M%S}Z-{node}", "snapshot", cluster.cluster_id, node, cluster.host(node), at)
    return land(store, claim, _host_lines(cluster, node, day, claim), received_at=at + timedelta(seconds=2))


def _assignment_lines(cluster: Cluster, at: datetime) -> Iterator[str]:
    yield json.dumps(
        {
            "row": "assignments",
            "schema": ASSIGNMENTS_SCHEMA,
            "cluster_id": cluster.cluster_id,
            "at": instant(at),
            "source": "kraft-log",
            "offset": _offset(at),
            "metadata_version": 21,
        }
    )
    for node in cluster.nodes:
        ids = [cluster.directory_id(node, n) for n in range(LOG_DIRS)]
        yield json.dumps({"row": "broker", "node_id": node, "directory_ids": ids})
    for topic, partition, replicas in cluster.assigned:
        name, id_, _ = cluster.topics[topic]
        directories = [cluster.directory_id(n, cluster.log_dir(n, partition)) for n in replicas]
        yield (
            f'{{"row":"partition","topic":{json.dumps(name)},"topic_id":"{id_}","partition":{partition},'
            f'"replicas":{replicas},"adding":[],"removing":[],"isr":{replicas},'
            f'"directories":{json.dumps(directories) if cluster.names_directories else "[]"}}}'
        )


def _host_lines(cluster: Cluster, node: int, day: int, claim: ManifestHead) -> Iterator[str]:
    at = claim.at
    seen = [d for d in cluster.dirs[node] if cluster.is_seen(node, d, day)]
    absent = _absent(cluster, node, seen)
    told, acts = _acts(cluster, node, at)
    began = at - timedelta(seconds=20)
    yield json.dumps(
        {
            "row": "snapshot",
            "schema": SNAPSHOT_SCHEMA,
            "snapshot_id": claim.snapshot_id,
            "at": instant(at),
            "host": claim.host,
            "cluster_id": claim.cluster_id,
            "node_id": node,
            "agent_version": "1.0.0",
            "boot_id": uuid_hex("boot", claim.host),
            "mode": "enforce" if node % 3 else "report",
            "accepts": "demo" if node % 4 else "none",
            "kafka_version": "3.9.1",
            "assignments": {"source": "kraft-log", "cluster_id": claim.cluster_id, "at": instant(at)},
            "began": instant(began),
            "images": {
                name: {"source": "kraft-log", "at": instant(read), "offset": _offset(read)}
                for name, read in (("before", began), ("after", at))
            },
            "absent": len(absent) if absent is not None else None,
            **({"acts": told} if told is not None else {}),
            "unread_processes": 0 if node % 5 else 130,
        }
    )
    for number in range(LOG_DIRS):
        yield json.dumps(_log_dir_row(cluster, node, number, [d for d in seen if d.log_dir == number], day))
    for row in (*(absent or ()), *acts):
        yield json.dumps(row)
    for made in seen:
        yield _dir_line(cluster, made, at, day)


def _acts(cluster: Cluster, node: int, at: datetime) -> tuple[dict[str, object] | None, list[dict[str, object]]]:
    """What the head of a snapshot says of acts, and its rows of them; None of every eighth host: its agent is older."""
    if node % 8 == 0:
        return None, []
    since = at - timedelta(days=ACTS_DAYS)
    everything = [row for made in cluster.dirs[node] if (row := _act(cluster, node, made)) is not None]
    everything.sort(key=lambda row: (row["finished_at"], row["name"]))
    told = [{"row": "act", "id": n, **row} for n, row in enumerate(everything, 1) if row["finished_at"] <= millis(at)]
    rows: list[dict[str, object]] = [row for row in told if row["finished_at"] >= millis(since)]
    return {"since": instant(since), "rows": len(rows), "left_out": 0, "last_id": len(told)}, rows


def _act(cluster: Cluster, node: int, made: Dir) -> dict[str, Any] | None:
    """What an agent did with a directory: it removed what goes, and set strays aside; in report mode only operators
    do."""
    last = cluster.fleet.days - 1
    if made.goes is not None and node % 3:
        finished, size = cluster.snapshot_at(node, made.goes) - timedelta(hours=3), cluster.size(made, made.goes - 1)
        what: dict[str, Any] = {"action": "remove", "name": made.name, "new_name": None, "claim": "kept"}
        what |= {"witness": "name", "claims": "stopped by lock, kept by name"}
    elif made.kind == "stray" and made.marked_hours is not None:
        finished, size = cluster.snapshot_at(node, last) - timedelta(hours=made.marked_hours), made.bytes
        name = f"{made.topic}-{made.partition}"
        what = {"action": "quarantine", "name": name, "new_name": made.name, "claim": "topic-absent"}
        what |= {"witness": "kraft-log", "claims": "stopped by lock, topic-absent by kraft-log"}
    else:
        return None
    failed = cluster.health(node, made.log_dir) != "online" and what["action"] == "remove"
    return what | {
        "at": millis(finished - timedelta(seconds=2)),
        "finished_at": millis(finished),
        "outcome": "failed" if failed else "done",
        "log_dir": cluster.log_dir_path(made.log_dir),
        "topic": made.topic,
        "topic_id": made.topic_id,
        "partition": made.partition,
        "bytes": size,
        "allocated": -(-size // 4096) * 4096,
        "actor": "daemon" if node % 3 else "cli:anna",
        "approved": not node % 3,
        "plan_id": uuid_hex(node, finished.date())[:16],
        "as_of": millis(finished - timedelta(minutes=1)),
        "error": "Input/output error" if failed else None,
    }


def _absent(cluster: Cluster, node: int, seen: list[Dir]) -> list[dict[str, object]] | None:
    """What is assigned to a host and lies nowhere; None if one of its log dirs is offline."""
    if any(cluster.health(node, number) == "offline" for number in range(LOG_DIRS)):
        return None
    here = {(d.topic_id, d.partition) for d in seen if d.kind in ("current", "future")}
    assigned = (
        (*cluster.topics[topic][:2], partition) for topic, partition, nodes in cluster.assigned if node in nodes
    )
    return [
        {"row": "absent", "topic": name, "topic_id": id_, "partition": partition, "left": None}
        for name, id_, partition in assigned
        if (id_, partition) not in here
    ]


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
    size = used if health == "full" else max(cluster.capacities[node, number], used)
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
        f'"inode":{zlib.crc32(made.name.encode("utf-8", "surrogateescape"))},"end_offset":{made.offset},'
        f'"in_use":null,"verdict":{json.dumps("orphan" if made.orphan else None)},"reason":{json.dumps(made.orphan)}}}'
    )


def _topic_name(number: int) -> str:
    area = _AREAS[number % len(_AREAS)]
    version = number // (len(_AREAS) * len(_WHAT))
    return f"{area}.{_WHAT[number // len(_AREAS) % len(_WHAT)]}{f'-v{version + 1}' if version else ''}"


def topic_id(*words: object) -> str:
    """22 characters as Kafka prints a `Uuid`, from a hash of `words`."""
    digest = hashlib.md5(repr(words).encode(), usedforsecurity=False).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def uuid_hex(*words: object) -> str:
    return hashlib.md5(repr(words).encode(), usedforsecurity=False).hexdigest()
