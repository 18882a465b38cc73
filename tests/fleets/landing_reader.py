"""What the replicas of a landing come to, by the rule alone and from its files alone: shares no code with the job.

Slow and plain: files are read whole, one replica is decided after another.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

Replica = tuple[str, int, int]


@dataclass
class File:
    """A data file: its first row, and the others by kind."""

    head: dict[str, Any]
    rows: dict[str, list[dict[str, Any]]]

    @property
    def at(self) -> datetime:
        return time_of(self.head["at"])

    def replicas(self) -> set[Replica]:
        return {(r["topic_id"], r["partition"], node) for r in self.rows.get("partition", []) for node in r["replicas"]}


@dataclass
class Decided:
    """The state of each replica by `(topic id, partition, node)`."""

    states: dict[Replica, str] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        names = ("found", "missing", "not_yet", "unproven", "gone", "not_heard", "not_read")
        counted = Counter(self.states.values())
        return {"expected": len(self.states), **{name: counted[name] for name in names}}

    def of(self, *states: str) -> set[Replica]:
        return {replica for replica, state in self.states.items() if state in states}


def time_of(text: str) -> datetime:
    return datetime.fromisoformat(text)


def read(data: Path) -> File:
    first, *rest = (json.loads(line) for line in gzip.decompress(data.read_bytes()).splitlines())
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in rest:
        rows.setdefault(row["row"], []).append(row)
    return File(first, rows)


def decide(landing: Path) -> Decided:
    """`landing`: the folder of one cluster, with one date."""
    (day,) = landing.iterdir()
    images = sorted((read(path) for path in (day / "assignments").glob("*.jsonl.gz")), key=lambda file: file.at)
    newest, found = images[-1], Decided()
    hosts = {int(folder.name): folder for folder in day.iterdir() if folder.name != "assignments"}
    snapshots = {
        node: max((read(path) for path in folder.glob("*.jsonl.gz")), key=lambda file: file.at)
        for node, folder in hosts.items()
    }
    expected = newest.replicas()
    for replica in expected:
        host = snapshots.get(replica[2])
        found.states[replica] = "not_heard" if host is None else _state(replica, host, images, newest)
    for node, host in snapshots.items():
        for row in host.rows.get("absent", []):
            replica = (row["topic_id"], row["partition"], node)
            if replica in expected:
                continue
            # Made after the newest image, unless that is younger, and it was deleted.
            before, after = (host.head["images"][name]["offset"] for name in ("before", "after"))
            if newest.head["offset"] <= before:
                found.states[replica] = "missing"
            elif newest.head["offset"] < after:
                found.states[replica] = "unproven"
    return found


def _state(replica: Replica, host: File, images: Iterable[File], newest: File) -> str:
    """`images`: all of them, oldest first."""
    id_, partition, node = replica
    kinds = {r["kind"] for r in host.rows.get("dir", []) if (r["topic_id"], r["partition"]) == (id_, partition)}
    if "current" in kinds or "future" in kinds:
        return "found"
    healthy = {row["directory_id"] for row in host.rows["log_dir"] if row["health"] != "offline"}
    if len(healthy) < len(host.rows["log_dir"]):
        (row,) = (r for r in newest.rows["partition"] if (r["topic_id"], r["partition"]) == (id_, partition))
        place = row["directories"][row["replicas"].index(node)] if row["directories"] else None
        if place not in healthy:
            return "not_read"
    if "delete" in kinds and "stray" not in kinds:
        return "unproven"
    if host.head.get("absent") is not None:
        if any((r["topic_id"], r["partition"]) == (id_, partition) for r in host.rows.get("absent", [])):
            return "missing"
        before, after = (host.head["images"][name]["offset"] for name in ("before", "after"))
        if newest.head["offset"] <= before:
            return "gone"
        return "not_yet" if newest.head["offset"] >= after else "unproven"
    if newest.at < host.at:
        return "unproven"
    known = host.head.get("began") or (host.head["assignments"] or {}).get("at")
    seconds = host.at.timestamp() - 300 if known is None else time_of(known).timestamp()
    if host.head["assignments"] is not None:
        seconds = min(seconds, time_of(host.head["assignments"]["at"]).timestamp())
    older = [image for image in images if image.at.timestamp() <= seconds]
    return "missing" if older and replica in older[-1].replicas() else "not_yet"
