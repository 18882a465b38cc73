"""Builds the documents of `logagent.documents` from what the agent knows, as plain dicts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from logagent import __version__
from logagent.agent.log_manager import Execution
from logagent.agent.session import Session
from logagent.host.journal import CheckpointEntry, Entry
from logagent.host.scan import LogDirInventory
from logagent.model.facts import Facts, LogDirFacts
from logagent.model.plan import Plan, Proposal, Refusal, action_id
from logagent.model.queue import Mark, QueueEntry, full_topic, marked_at_ms
from logagent.model.records import Kind, PartitionDir
from logagent.model.sightings import Sighting
from logagent.model.times import rfc3339, rfc3339_or_none

_HAS_VERDICT = (Kind.CURRENT, Kind.FUTURE)
_IS_MARKED = (Kind.STRAY, Kind.DELETE)


def scan_head(session: Session, facts: Facts, host: str) -> dict[str, Any]:
    """`logagent.scan/1` without its `dirs`, which are many."""
    version = facts.kafka_version
    return {
        "schema": "logagent.scan/1",
        "at": rfc3339(facts.now_ms),
        "host": host,
        "agent_version": __version__,
        "cluster_id": session.sight.cluster.cluster_id,
        "node_id": session.sight.cluster.node_id,
        "kafka_version": ".".join(map(str, version)) if version else None,
        "assignments": session.assignments.document(facts.now_ms),
        "log_dirs": [log_dir_row(f, session.inventories.get(path)) for path, f in facts.log_dirs.items()],
    }


def log_dir_row(facts: LogDirFacts, inventory: LogDirInventory | None) -> dict[str, Any]:
    return {
        "path": facts.path,
        "directory_id": facts.directory_id,
        "health": facts.health.value,
        "reason": facts.health_reason,
        "holder": {
            "state": facts.holder.state.value,
            "pid": facts.holder.pid,
            "start_time": rfc3339_or_none(facts.holder.start_time_ms),
        },
        "ledger": ledger(inventory, facts.open_removed_bytes) if inventory is not None else None,
    }


def ledger(inventory: LogDirInventory, open_removed: int) -> dict[str, int]:
    """Where the allocated bytes are. `unexplained` is what the file system holds besides: its own metadata, other
    directories on it, and whatever changed while we looked (so it may be negative)."""
    kinds = dict.fromkeys((Kind.CURRENT, Kind.FUTURE, Kind.STRAY, Kind.DELETE), 0)
    for d in inventory.dirs:
        if d.kind in kinds:
            kinds[d.kind] += d.allocated
    known = sum(kinds.values()) + inventory.other_allocated + open_removed
    return {
        "size": inventory.size,
        "used": inventory.used,
        "free": inventory.free,
        **{kind.value: total for kind, total in kinds.items()},
        "other": inventory.other_allocated,
        "open_removed": open_removed,
        "unexplained": inventory.used - known,
    }


def dir_rows(
    dirs: Sequence[PartitionDir], facts: Facts, marks: Mapping[tuple[str, str], Mark], known: Mapping[Any, Sighting]
) -> Iterator[dict[str, Any]]:
    for d in dirs:
        yield dir_row(d, facts, marks.get((d.log_dir, d.name)), known.get((d.log_dir, d.name)))


def dir_row(d: PartitionDir, facts: Facts, mark: Mark | None, sighting: Sighting | None) -> dict[str, Any]:
    where = facts.log_dirs.get(d.log_dir)
    ruling = facts.rulings.get((d.log_dir, d.name)) if d.kind in _HAS_VERDICT else None
    marked = d.kind in _IS_MARKED
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
        "verdict": ruling.verdict.value if ruling is not None else None,
        "reason": ruling.reason if ruling is not None else None,
        "error": d.error,
    }


def _in_use(where: LogDirFacts | None, name: str) -> bool | None:
    """True where a process has it open; None where that cannot be told."""
    if where is None:
        return None
    if where.open_by.get(name):
        return True
    return None if where.open_files_unreadable else False


def plan_document(
    session: Session,
    plan: Plan,
    host: str,
    *,
    mode: str,
    execution: Execution | None = None,
    drops: Mapping[str, tuple[CheckpointEntry, ...]] = MappingProxyType({}),
) -> dict[str, Any]:
    """`logagent.plan/1`, with outcomes where the plan was executed."""
    refusals = [*plan.refusals, *(execution.refusals if execution is not None else ())]
    actions = [_action_row(p, execution) for p in plan.actions]
    actions += [
        _drop_row(row, entry)
        for row in list(actions)
        for entry in drops.get(row["id"], ())
        if row["action"] != "restore"
    ]
    return {
        "schema": "logagent.plan/1",
        "at": rfc3339(plan.made_at_ms),
        "host": host,
        "cluster_id": session.sight.cluster.cluster_id,
        "node_id": session.sight.cluster.node_id,
        "plan_id": plan.plan_id,
        "mode": mode,
        "assignments": session.assignments.document(plan.made_at_ms),
        "actions": actions,
        "refusals": [_refusal_row(r) for r in refusals],
        "waiting": [
            {
                "log_dir": w.log_dir,
                "name": w.name,
                "action": w.action.value,
                "reason": w.reason,
                "until": rfc3339_or_none(w.until_ms),
                "sightings": w.sightings,
            }
            for w in plan.waiting
        ],
        "totals": {
            "actions": len(plan.actions),
            "bytes": plan.bytes,
            "refusals": len(refusals),
            "waiting": len(plan.waiting),
            "freed_bytes": execution.freed_bytes if execution is not None else 0,
        },
    }


def _action_row(p: Proposal, execution: Execution | None) -> dict[str, Any]:
    number = action_id(p)
    result = execution.results.get(number) if execution is not None else None
    return {
        "id": number,
        "action": p.action.value,
        "log_dir": p.dir.log_dir,
        "name": p.dir.name,
        "new_name": p.new_name,
        "topic": p.full_topic or p.dir.topic,
        "partition": p.dir.partition,
        "topic_id": p.dir.topic_id,
        "reason": p.reason,
        "bytes": p.dir.bytes,
        "allocated": p.dir.allocated,
        "sightings": p.sightings,
        "due_at": rfc3339_or_none(p.due_at_ms),
        "outcome": result.outcome.value if result is not None else None,
        "error": result.error if result is not None else None,
    }


def _drop_row(rename: Mapping[str, Any], entry: CheckpointEntry) -> dict[str, Any]:
    """An offset checkpoint entry that leaves with the rename it belongs to (and comes back with a restore)."""
    digest = hashlib.sha256(f"{rename['id']} {entry.file}".encode()).hexdigest()
    return {
        **rename,
        "id": digest[:12],
        "action": "drop-checkpoint-entry",
        "new_name": None,
        "reason": f"{entry.file}: offset {entry.offset}",
        "bytes": 0,
        "allocated": 0,
        "sightings": 0,
        "due_at": None,
        "error": None,
    }


def _refusal_row(r: Refusal) -> dict[str, Any]:
    return {
        "log_dir": r.log_dir,
        "name": r.name,
        "guard": r.guard,
        "fact": r.fact,
        "hint": r.hint,
        "bytes": r.bytes,
    }


def queue_document(queue: Sequence[QueueEntry], now_ms: int, delay_ms: int) -> dict[str, Any]:
    """`logagent.queue/1`. An entry that is due already has a positive `overdue_seconds`, the others a negative one."""
    return {
        "schema": "logagent.queue/1",
        "at": rfc3339(now_ms),
        "delay_ms": delay_ms,
        "next_due_at": rfc3339(queue[0].due_at_ms) if queue else None,
        "entries": [
            {
                "log_dir": e.dir.log_dir,
                "name": e.dir.name,
                "topic": e.dir.topic,
                "full_topic": e.full_topic,
                "partition": e.dir.partition,
                "bytes": e.dir.bytes,
                "marked_at": rfc3339(e.marked_at_ms),
                "due_at": rfc3339(e.due_at_ms),
                "overdue_seconds": (now_ms - e.due_at_ms) / 1000,
                "attempts": e.attempts.count if e.attempts is not None else 0,
                "last_error": e.attempts.last_error if e.attempts is not None else None,
                "owner": e.owner,
            }
            for e in queue
        ],
    }


def history_row(entry: Entry) -> dict[str, Any]:
    i = entry.intent
    return {
        "id": entry.id,
        "at": rfc3339(entry.at_ms),
        "action": i.action.value,
        "log_dir": i.log_dir,
        "name": i.name,
        "new_name": i.new_name,
        "topic": i.topic,
        "partition": i.partition,
        "topic_id": i.topic_id,
        "bytes": i.bytes,
        "plan_id": i.plan_id,
        "actor": i.actor,
        "outcome": entry.outcome.value if entry.outcome is not None else None,
        "finished_at": rfc3339_or_none(entry.finished_at_ms),
        "error": entry.error,
    }
