"""Demo hosts with real disks: log dirs in Kafka's own format, scanned by the agent itself.

What a scan of a fresh disk cannot show is taken from the plan: when a directory was marked (a ctime cannot be set), and
what the disk held on earlier days (the same scan, dated back, one per cent smaller each day).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from logagent.errors import LogAgentError
from logagent.fleet.demo.planted import Dir
from logagent.fleet.demo.planting import Cluster
from logagent.model.assignments.image import AssignmentImage, PartitionAssignment, Source, Topic, make_image
from logagent.store.contract import SNAPSHOT_SCHEMA
from logagent.store.landing_files import Claim, millis, rfc3339

Export = Callable[[str, AssignmentImage], None]
"""Writes an image as `logagent assignments export` does; passed in, because that code is in the broker layer."""
Scan = tuple[dict[str, Any], list[dict[str, Any]]]
_TIMES = ("newest_mtime", "marked_at", "first_seen")
_LEDGER_OF_DIRS = ("current", "future", "stray", "delete")
_OFFLINE_IS_FINE = (0, 5)


def export_assignments(cluster: Cluster, day: int, path: Path, export: Export) -> None:
    """Writes the file that `logagent assignments export` would write. Raises OSError."""
    topics = {number: Topic(name, id_) for number, (name, id_, _) in enumerate(cluster.topics)}
    for topic, partition, replicas in cluster.assigned:
        topics[topic].partitions[partition] = PartitionAssignment(tuple(replicas), tuple(replicas))
    at = int(cluster.assignments_at(day).timestamp() * 1000)
    image = make_image(
        topics.values(),
        source=Source.KRAFT_LOG,
        cluster_id=cluster.cluster_id,
        at_ms=at,
        known_until_ms=at,
        complete=True,
        offset=1000 + day,
    )
    export(str(path), image)


def lay_out(cluster: Cluster, node: int, place: Path) -> Path:
    """Creates the host's log dirs below `place`; returns its root. Sizes in the plan are updated to those on disk.
    Raises OSError.

    Segments are sparse: they have their full size but take no space.
    """
    last = cluster.fleet.days - 1
    cluster.sizes_are_of_day = last
    root = place / str(node)
    log_dirs = [root / cluster.log_dir_path(n).lstrip("/") for n in range(cluster.log_dirs)]
    for number, path in enumerate(log_dirs):
        if cluster.health(node, number) == "offline":
            continue
        cluster.sick_log_dirs.pop((node, number), None)
        path.mkdir(parents=True)
        lines = {"version": "1", "cluster.id": cluster.cluster_id, "node.id": str(node)}
        lines["directory.id"] = cluster.directory_id(node, number)
        (path / "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    for made in cluster.dirs[node]:
        if cluster.is_seen(node, made, last):
            _make_dir(made, log_dirs[made.log_dir] / made.name, cluster.snapshot_at(node, last))
    properties = {"node.id": str(node), "process.roles": "broker", "log.dirs": ",".join(map(str, log_dirs))}
    (root / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    (root / "logagent.toml").write_text('[kafka]\nversion = "3.9.1"\n\n[assignments]\nmax_age = "365d"\n')
    return root


def _make_dir(made: Dir, path: Path, at: datetime) -> None:
    """A partition directory with one segment, or an empty directory if it is not a partition's."""
    path.mkdir()
    files: dict[str, bytes] = {}
    if made.topic_id is not None:
        files["partition.metadata"] = f"version: 0\ntopic_id: {made.topic_id}\n".encode()
    room = made.bytes - sum(map(len, files.values()))
    for name, content in files.items():
        (path / name).write_bytes(content)
    if made.topic is not None:
        segment = path / f"{made.offset:020d}.log"
        segment.touch()
        os.truncate(segment, max(0, room))
    written = (at - timedelta(days=made.age_days)).timestamp()
    for file in path.iterdir():
        os.utime(file, (written, written))
    os.utime(path, (written, written))
    made.bytes = sum(file.stat().st_size for file in path.iterdir())


def scan(cluster: Cluster, node: int, root: Path, assignments: Path) -> Scan:
    """What `logagent scan` reports for a host: the head and the directories. Raises `LogAgentError` if it fails."""
    command = [sys.executable, "-m", "logagent", "scan", "--jsonl", "--assignments", str(assignments)]
    command += ["--kafka-config", str(root / "server.properties"), "--config", str(root / "logagent.toml")]
    command += ["--state-dir", str(root / "state")]
    done = subprocess.run(command, capture_output=True)
    if done.returncode not in _OFFLINE_IS_FINE:
        raise LogAgentError(f"the scan of {root} failed: {done.stderr.decode(errors='replace').strip()[-300:]}")
    head, *rows = (json.loads(line) for line in done.stdout.splitlines())
    prefix = str(root)
    for row in rows:
        row["log_dir"] = row["log_dir"].removeprefix(prefix)
    for log_dir in head["log_dirs"]:
        log_dir["path"] = log_dir["path"].removeprefix(prefix)
    planned = {(cluster.log_dir_path(d.log_dir), d.name): d for d in cluster.dirs[node]}
    for row in rows:
        made = planned.get((row["log_dir"], row["name"]))
        if made is not None and made.marked_hours is not None:
            at = cluster.snapshot_at(node, cluster.fleet.days - 1)
            row["marked_at"] = rfc3339(at - timedelta(hours=made.marked_hours))
    gone = [d for d in cluster.dirs[node] if d.goes is not None]
    return head, [*rows, *(_gone_row(cluster, made, node) for made in gone)]


def _gone_row(cluster: Cluster, made: Dir, node: int) -> dict[str, Any]:
    """The row of a directory that existed only on earlier days, and so is no longer on disk."""
    at = cluster.snapshot_at(node, cluster.fleet.days - 1)
    marked = rfc3339(at - timedelta(hours=made.marked_hours or 0))
    row: dict[str, Any] = {
        "row": "dir",
        "log_dir": cluster.log_dir_path(made.log_dir),
        "name": made.name,
        "kind": made.kind,
    }
    row |= {"topic": made.topic, "topic_id": made.topic_id, "newest_mtime": marked, "marked_at": marked}
    numbers = {"partition": made.partition, "bytes": made.bytes, "allocated": made.bytes, "goes": made.goes}
    return {**row, **numbers, "first_seen": None}


def snapshot_lines(cluster: Cluster, scanned: Scan, day: int, claim: Claim) -> Iterator[str]:
    """Lines of a day's snapshot file."""
    head, rows = scanned
    back = cluster.fleet.days - 1 - day
    first = {name: head[name] for name in ("agent_version", "kafka_version", "cluster_id", "node_id", "assignments")}
    first |= {"row": "snapshot", "schema": SNAPSHOT_SCHEMA, "snapshot_id": claim.snapshot_id, "host": claim.host}
    first["boot_id"] = None
    yield json.dumps(first | {"at": rfc3339(claim.at)})
    for log_dir in head["log_dirs"]:
        yield json.dumps({"row": "log_dir", **log_dir, "ledger": _ledger(log_dir["ledger"], back)})
    for row in rows:
        if row.get("goes") is None or day < row["goes"]:
            times = {name: None if row[name] is None else _dated_back(row[name], back) for name in _TIMES}
            size = row["bytes"] - row["bytes"] // 100 * back
            kept = {name: value for name, value in row.items() if name != "goes"}
            said = dict.fromkeys(("window", "due_at", "covered", "obstacle"))
            yield json.dumps({**kept, **times, **said, "bytes": size})


def _ledger(ledger: dict[str, int] | None, back: int) -> dict[str, int] | None:
    """The ledger of `back` days earlier."""
    if ledger is None or back == 0:
        return ledger
    less = sum(ledger[kind] for kind in _LEDGER_OF_DIRS) // 100 * back
    current = max(0, ledger["current"] - less)
    less = ledger["current"] - current
    return {**ledger, "current": current, "used": ledger["used"] - less, "free": ledger["free"] + less}


def _dated_back(text: str, days: int) -> int:
    return millis(datetime.fromisoformat(text) - timedelta(days=days))
