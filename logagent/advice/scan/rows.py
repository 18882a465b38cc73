"""The rows of an inventory as `logagent scan` and published snapshots print them, as plain dicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from logagent import __version__
from logagent.base.claims import of_ruling, since_when
from logagent.base.records import LOADED_KINDS, Kind
from logagent.base.times import rfc3339, rfc3339_or_none
from logagent.cleanup.plan.planner import Told
from logagent.cleanup.plan.queue import full_topic, marked_at_ms
from logagent.cleanup.session.session import Session
from logagent.disk.scan import LogDirInventory
from logagent.verdict.facts import Facts, LogDirFacts

_IS_MARKED = (Kind.STRAY, Kind.DELETE)


def scan_head(session: Session, facts: Facts, host: str) -> dict[str, Any]:
    """`logagent.scan/2` without its `dirs`, of which there are many."""
    version = facts.kafka_version
    return {
        "schema": "logagent.scan/2",
        "at": rfc3339(facts.now_ms),
        "host": host,
        "agent_version": __version__,
        "cluster_id": session.log_dirs.cluster.cluster_id,
        "node_id": session.log_dirs.cluster.node_id,
        "kafka_version": ".".join(map(str, version)) if version else None,
        "assignments": session.assignments.document(facts.now_ms),
        "as_of": {
            witness.value: rfc3339(ms)
            for witness, ms in since_when(ruling.proof for ruling in facts.rulings.values()).items()
        },
        "log_dirs": log_dir_rows(facts.log_dirs, session.inventory.by_log_dir),
    }


def log_dir_rows(
    log_dirs: Mapping[str, LogDirFacts], inventories: Mapping[str, LogDirInventory]
) -> list[dict[str, Any]]:
    ledgers = ledgers_of(log_dirs, inventories)
    return [_log_dir_row(facts, ledgers.get(path)) for path, facts in log_dirs.items()]


def _log_dir_row(facts: LogDirFacts, ledger: dict[str, int] | None) -> dict[str, Any]:
    return {
        "path": facts.path,
        "device": facts.identity.device if facts.identity is not None else None,
        "directory_id": facts.directory_id,
        "health": facts.health.value,
        "reason": facts.health_reason,
        "holder": {
            "state": facts.holder.state.value,
            "pid": facts.holder.pid,
            "start_time": rfc3339_or_none(facts.holder.start_time_ms),
        },
        "ledger": ledger,
    }


def ledgers_of(
    log_dirs: Mapping[str, LogDirFacts], inventories: Mapping[str, LogDirInventory]
) -> dict[str, dict[str, int]]:
    """Where the allocated bytes are, by log dir. `size`, `used`, `free` and `unexplained` are of its file system, which
    several log dirs may share (`device` tells): those count once.

    `unexplained` is everything that is in none of these log dirs: the file system's own metadata, other directories,
    and what changed while we looked (so it may be negative).
    """
    own = {
        path: _own(inventory, log_dirs[path].open_removed_bytes)
        for path, inventory in inventories.items()
        if path in log_dirs
    }
    known: Counter[object] = Counter()
    for path, figures in own.items():
        known[_file_system(log_dirs[path])] += sum(figures.values())
    return {
        path: {
            "size": inventories[path].size,
            "used": inventories[path].used,
            "free": inventories[path].free,
            **figures,
            "unexplained": inventories[path].used - known[_file_system(log_dirs[path])],
        }
        for path, figures in own.items()
    }


def sharing(log_dirs: Mapping[str, LogDirFacts], inventories: Mapping[str, LogDirInventory]) -> frozenset[str]:
    """The log dirs on a file system whose figures count at another one: the first of them there, by path."""
    first: dict[object, str] = {}
    known = sorted(path for path in inventories if path in log_dirs)
    return frozenset(path for path in known if first.setdefault(_file_system(log_dirs[path]), path) != path)


def _own(inventory: LogDirInventory, open_removed: int) -> dict[str, int]:
    kinds = dict.fromkeys(LOADED_KINDS, 0)
    for d in inventory.dirs:
        if d.kind in kinds:
            kinds[d.kind] += d.allocated
    named = {kind.value: total for kind, total in kinds.items()}
    return {**named, "other": inventory.other_allocated, "open_removed": open_removed}


def _file_system(facts: LogDirFacts) -> object:
    return facts.identity.device if facts.identity is not None else facts.path


def dir_row(told: Told, facts: Facts) -> dict[str, Any]:
    d, ruling, mark, sighting = told.dir, told.ruling, told.mark, told.sighting
    where = facts.log_dirs.get(d.log_dir)
    marked = d.kind in _IS_MARKED
    says = of_ruling(ruling.proof) if ruling is not None else None
    return {
        "log_dir": d.log_dir,
        "name": d.name,
        "kind": d.kind.value,
        "topic": d.topic,
        "topic_truncated": d.truncated,
        "full_topic": full_topic(d, mark) if d.topic is not None else None,
        "partition": d.partition,
        "uuid": d.uuid,
        "topic_id": d.topic_id,
        "bytes": d.bytes,
        "allocated": d.allocated,
        "files": d.files,
        "segments": d.segments,
        "newest_mtime": rfc3339(d.newest_mtime_ns // 1_000_000) if d.newest_mtime_ns else None,
        "marked_at": rfc3339(marked_at_ms(d, mark)) if marked else None,
        "first_offset": d.first_offset,
        "last_segment_offset": d.last_segment_offset,
        "sightings": sighting.count if sighting is not None else 0,
        "first_seen": rfc3339_or_none(sighting.first_ms) if sighting is not None else None,
        "in_use": _in_use(where, d.name),
        "verdict": told.verdict.value if told.verdict is not None else None,
        "reason": ruling.reason if ruling is not None else None,
        "claim": says.claim.value if says is not None else None,
        "witness": says.witness.value if says is not None else None,
        "error": d.error,
    }


def _in_use(where: LogDirFacts | None, name: str) -> bool | None:
    """True if a process has it open; None if that is unknown."""
    if where is None:
        return None
    if where.open_by.get(name):
        return True
    return None if where.open_files_unreadable else False
