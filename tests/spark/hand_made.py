"""Small clusters written by hand into a landing, for scenarios that the generator does not make."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from logagent import __version__
from logagent.base.records import DirKey
from logagent.base.units import instant
from logagent.fleet.demo import topic_id
from logagent.store.landing_files import ManifestHead, land
from logagent.store.snapshots import SNAPSHOT_SCHEMA, Base, Rest, delta_of, dir_line, whole_lines

AT = datetime(2025, 3, 10, 12, 0, tzinfo=UTC)
"""When the snapshots of these tests were taken; assignments are some minutes younger."""
NOW = AT + timedelta(minutes=20)
GIB = 1 << 30


def dir_row(name: str, id_: str | None, **fields: Any) -> dict[str, Any]:
    """A `dir` row with everything an agent fills in; topic and partition come from a current name. With
    `bytes` alone, as much is allocated."""
    topic, _, partition = name.partition(".")[0].rpartition("-") if "." in name else name.rpartition("-")
    row: dict[str, Any] = {"row": "dir", "log_dir": "/d0", "name": name, "kind": "current", "topic": topic}
    row |= {"topic_truncated": False, "full_topic": None, "partition": int(partition), "uuid": None}
    row |= {"topic_id": id_, "bytes": 1000, "allocated": fields.get("bytes", 4096), "files": 4, "segments": 1}
    row |= {"newest_mtime": instant(AT - timedelta(days=9)), "marked_at": None, "first_offset": 0}
    row |= {"last_segment_offset": 5, "sightings": 0, "first_seen": None, "in_use": None}
    return row | {"verdict": None, "reason": None, "error": None} | fields


def with_millis(row: dict[str, Any]) -> dict[str, Any]:
    """A row as agents write it, its times in milliseconds."""
    times = {name: row.get(name) for name in ("newest_mtime", "marked_at", "first_seen", "due_at")}
    said = {name: datetime.fromisoformat(at) for name, at in times.items() if isinstance(at, str)}
    return row | {name: round(at.timestamp() * 1000) for name, at in said.items()}


def log_dir_row(path: str = "/d0", health: str = "online", **fields: Any) -> dict[str, Any]:
    """A `log_dir` row; offline ones have no ledger."""
    kinds = dict.fromkeys(("current", "future", "stray", "delete", "other", "open_removed", "unexplained"), 0)
    ledger = {"size": 100 * GIB, "used": 10 * GIB, "free": 90 * GIB, **kinds}
    row: dict[str, Any] = {"row": "log_dir", "path": path, "directory_id": None, "health": health, "reason": None}
    return row | {"holder": {"state": "free"}, "ledger": None if health == "offline" else ledger} | fields


def idle(at: datetime) -> dict[str, Any]:
    """What the head of a snapshot says of an agent that has done nothing."""
    acts = {"since": instant(at - timedelta(days=8)), "rows": 0, "left_out": 0, "last_id": 0}
    return {"mode": "report", "accepts": "none", "acts": acts, "unread_processes": 0}


@dataclass
class Kafka:
    """One cluster: `topics` maps a name to its id and the replicas of each partition."""

    store: Path
    name: str
    topics: dict[str, tuple[str | None, list[list[int]]]] = field(default_factory=dict)

    @property
    def cluster_id(self) -> str:
        return topic_id("hand made", self.name)

    def topic(self, name: str, *replicas: list[int], id_: str | None = "made") -> str:
        """Adds a topic, a list of replicas per partition; its id."""
        made = topic_id(self.name, name) if id_ == "made" else id_
        self.topics[name] = (made, list(replicas))
        return made or ""

    def partition_rows(self, **fields: Any) -> list[dict[str, Any]]:
        return [
            {"row": "partition", "topic": name, "topic_id": id_, "partition": n, "replicas": nodes, "adding": []}
            | {"removing": [], "isr": nodes, "directories": []}
            | fields
            for name, (id_, partitions) in self.topics.items()
            for n, nodes in enumerate(partitions)
        ]

    def assignments(
        self,
        rows: Iterable[dict[str, Any]] | None = None,
        *,
        at: datetime = AT + timedelta(minutes=10),
        brokers: Iterable[int] = (1, 2, 3),
        source: str = "kraft-log",
        offset: int = 7,
        received_at: datetime | None = None,
        publisher: int | None = None,
        **header: Any,
    ) -> Path:
        """Writes an assignment file of what `topics` says (or of `rows`)."""
        first: dict[str, Any] = {
            "row": "assignments",
            "schema": "logagent.assignments/1",
            "cluster_id": self.cluster_id,
        }
        first |= {"at": instant(at), "source": source, "offset": offset, "metadata_version": 21} | header
        nodes = [{"row": "broker", "node_id": node, "directory_ids": []} for node in brokers]
        body = self.partition_rows() if rows is None else list(rows)
        stem = f"{source}-{offset:020d}" if publisher is None else f"{offset:020d}-{publisher}"
        claim = ManifestHead(stem, "assignments", self.cluster_id, None, f"{self.name}-1", at)
        return land(self.store, claim, map(json.dumps, [first, *nodes, *body]), received_at=received_at or at)

    def snapshot(
        self,
        node: int,
        dirs: Iterable[dict[str, Any]],
        *,
        at: datetime = AT,
        log_dirs: Iterable[dict[str, Any]] | None = None,
        received_at: datetime | None = None,
        cluster_id: str | None = None,
        **header: Any,
    ) -> Path:
        """Writes a snapshot file of a node; `header` overrides fields of its first row."""
        cluster = cluster_id or self.cluster_id
        claim = ManifestHead(f"{at:%H%M%S}-{node}", "snapshot", cluster, node, f"{self.name}-{node}", at)
        first: dict[str, Any] = {"row": "snapshot", "schema": SNAPSHOT_SCHEMA, "snapshot_id": claim.snapshot_id}
        first |= {"at": instant(at), "host": claim.host, "cluster_id": cluster, "node_id": node}
        first |= {"agent_version": __version__, "kafka_version": "3.9.1", "assignments": None} | header
        places = [log_dir_row()] if log_dirs is None else list(log_dirs)
        lines = map(json.dumps, [first, *places, *map(with_millis, dirs)])
        return land(self.store, claim, lines, received_at=received_at or at + timedelta(seconds=2))

    def hourly(
        self,
        node: int,
        dirs: Iterable[dict[str, Any]],
        *,
        at: datetime = AT,
        base: Path | None = None,
        log_dirs: Iterable[dict[str, Any]] | None = None,
        not_there: Sequence[dict[str, Any]] = (),
        done: Sequence[dict[str, Any]] = (),
        **header: Any,
    ) -> Path:
        """Writes a snapshot of a node as agents do: whole, or as the changes of `base`."""
        claim = ManifestHead(
            f"{at:%H%M%S}-{node}", "snapshot", self.cluster_id, node, f"{self.name}-{node}", at,
            boot_id=header.get("boot_id"), booted_at=header.pop("booted_at", None),
            directory_ids=header.pop("directory_ids", ()),
        )  # fmt: skip
        head: dict[str, Any] = {"schema": SNAPSHOT_SCHEMA, "snapshot_id": claim.snapshot_id, "at": instant(at)}
        head |= {"host": claim.host, "cluster_id": self.cluster_id, "node_id": node, "assignments": None}
        head |= {
            "agent_version": __version__,
            "kafka_version": "3.9.1",
            "as_of": {},
            "seen": [],
            "boot_id": None,
        } | header
        places = [log_dir_row() if log_dirs is None else row for row in (log_dirs or [{}])]
        rows = [{k: v for k, v in row.items() if k != "row"} for row in dirs]
        keyed = sorted((DirKey(row["log_dir"], row["name"]), dir_line(row, {})) for row in rows)
        received = at + timedelta(seconds=2)
        places = [{k: v for k, v in row.items() if k != "row"} for row in places]
        if base is None:
            lines = whole_lines(head, Rest(places, not_there, done), (line for _, line in keyed))
            return land(self.store, claim, lines, received_at=received)
        packed = base.read_bytes()
        named = Base(base.name.removesuffix(".jsonl.gz"), hashlib.sha256(packed).hexdigest())
        delta = delta_of(named, packed, keyed)
        assert delta is not None
        claim = replace(claim, kind="delta", base=named)
        return land(self.store, claim, delta.lines(head, Rest(places, not_there, done)), received_at=received)

    def replicas_of(self, node: int) -> list[dict[str, Any]]:
        """Rows of everything that is assigned to a node."""
        return [
            dir_row(f"{name}-{n}", id_)
            for name, (id_, partitions) in self.topics.items()
            for n, nodes in enumerate(partitions)
            if node in nodes
        ]

    def everyone(self, *more: dict[str, Any], nodes: Iterable[int] = (1, 2, 3)) -> None:
        """Snapshots of all nodes with their replicas; `more` lies on node 1 besides."""
        for node in nodes:
            self.snapshot(node, [*self.replicas_of(node), *(more if node == 1 else ())])


def small_kafka(store: Path) -> Kafka:
    """A small cluster, nothing of it written yet."""
    kafka = Kafka(store, "small")
    kafka.topic("orders", [1, 2, 3], [2, 3, 1])
    return kafka


def small_cluster(store: Path) -> Kafka:
    """The landing of a small cluster of which nothing is wrong."""
    store.mkdir(parents=True, exist_ok=True)
    kafka = small_kafka(store)
    kafka.assignments()
    kafka.everyone()
    return kafka
