"""Fills the documents of plans, queue and history; mypy compares them with their types."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from logagent.base.claims import Proof, since_when
from logagent.base.console.render import human_bytes
from logagent.base.records import ActionKind, HolderState
from logagent.base.times import rfc3339, rfc3339_or_none
from logagent.cleanup.plan.plan import Execution, Plan, Proposal, Refusal, Waiting, action_id
from logagent.cleanup.plan.queue import QueueEntry
from logagent.cleanup.state.journal import CheckpointEntry, Entry
from logagent.verdict.duplicates import Move
from logagent.verdict.facts import StrayRuling

if TYPE_CHECKING:
    from logagent.cleanup.commands.documents import (
        ActionDoc,
        HistoryEntry,
        MoveDoc,
        PlanDoc,
        QueueDoc,
        RefusalDoc,
        WaitingDoc,
    )
    from logagent.cleanup.session.session import Session


def plan_document(
    session: Session,
    plan: Plan,
    host: str,
    *,
    mode: Literal["dry-run", "execute"],
    execution: Execution | None = None,
    drops: Mapping[str, tuple[CheckpointEntry, ...]] = MappingProxyType({}),
) -> PlanDoc:
    """`logagent.plan/1`, with outcomes where the plan was executed."""
    refusals = [*plan.refusals, *(execution.refusals if execution is not None else ())]
    actions = [_action_row(p, plan.proofs.get(p.key, ()), execution, plan.strays.get(p.key)) for p in plan.actions]
    actions += [
        _drop_row(row, entry)
        for row in list(actions)
        for entry in drops.get(row["id"], ())
        if row["action"] is not ActionKind.RESTORE
    ]
    return {
        "schema": "logagent.plan/1",
        "at": rfc3339(plan.made_at_ms),
        "host": host,
        "cluster_id": session.log_dirs.cluster.cluster_id,
        "node_id": session.log_dirs.cluster.node_id,
        "plan_id": plan.plan_id,
        "mode": mode,
        "assignments": session.assignments.document(plan.made_at_ms),
        "as_of": {witness: rfc3339(ms) for witness, ms in since_when(plan.proofs.values()).items()},
        "actions": actions,
        "refusals": [_refusal_row(r) for r in refusals],
        "waiting": [_waiting_row(w) for w in plan.waiting],
        "totals": {
            "actions": len(plan.actions),
            "bytes": plan.allocated,
            "refusals": len(refusals),
            "waiting": len(plan.waiting),
            "freed_bytes": execution.freed_bytes if execution is not None else 0,
        },
    }


def _action_row(p: Proposal, proof: Proof, execution: Execution | None, stray: StrayRuling | None) -> ActionDoc:
    number = action_id(p)
    result = execution.results.get(number) if execution is not None else None
    row: ActionDoc = {
        "id": number,
        "action": p.action,
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
        "claims": [{"claim": held.claim, "witness": held.witness} for held in proof],
        "outcome": result.outcome if result is not None else None,
        "error": result.error if result is not None else None,
    }
    if p.leftovers:
        row["files"] = list(p.leftovers)
    if stray is not None and stray.ruling is not None:
        row |= {"verdict": stray.ruling.verdict, "fact": stray.detail}
    return row


def _drop_row(rename: ActionDoc, entry: CheckpointEntry) -> ActionDoc:
    """An offset checkpoint entry that is removed with its rename (and put back by a restore)."""
    digest = hashlib.sha256(f"{rename['id']} {entry.file}".encode()).hexdigest()
    return {
        **rename,
        "id": digest[:12],
        "action": ActionKind.DROP_CHECKPOINT_ENTRY,
        "new_name": None,
        "reason": f"{entry.file}: offset {entry.offset}",
        "bytes": 0,
        "allocated": 0,
        "sightings": 0,
        "due_at": None,
        "claims": [],
        "error": None,
    }


def _waiting_row(w: Waiting) -> WaitingDoc:
    return {
        "log_dir": w.log_dir,
        "name": w.name,
        "action": w.action,
        "reason": w.reason,
        "until": rfc3339_or_none(w.until_ms),
        "sightings": w.sightings,
        "bytes": w.bytes,
        "allocated": w.allocated,
        "claim": w.claim,
    }


def _refusal_row(r: Refusal) -> RefusalDoc:
    row: RefusalDoc = {
        "log_dir": r.log_dir,
        "name": r.name,
        "guard": r.guard,
        "fact": r.fact,
        "hint": r.hint,
        "bytes": r.bytes,
        "allocated": r.allocated,
        "claim": r.claim,
    }
    if r.command is not None:
        row["command"] = r.command
    return row


def move_row(move: Move) -> MoveDoc:
    return {
        "name": move.future.name,
        "partition": move.partition,
        "source": move.source.log_dir if move.source is not None else None,
        "to": move.future.log_dir,
        "copied_bytes": move.future.segment_bytes,
        "bytes": move.source.segment_bytes if move.source is not None else None,
    }


def move_in_words(move: Move, holder: HolderState) -> str:
    """`holder`: of the log dir that it goes to."""
    copied, to = human_bytes(move.future.segment_bytes), move.future.log_dir
    if move.source is None:
        return f"{move.partition} moves to {to}: {copied} copied, and the directory that it is copied from was not seen"
    of = human_bytes(move.source.segment_bytes)
    says = (
        f"{move.partition} moves from {move.source.log_dir} to {to}: {copied} of {of} copied. At the end the copy takes"
    )
    says += f" its name, and the broker removes {move.source.log_dir}/{move.source.name}"
    return f"{says}; it goes on when the broker runs" if holder is HolderState.FREE else says


def queue_document(queue: Sequence[QueueEntry], moves: Sequence[Move], now_ms: int, delay_ms: int) -> QueueDoc:
    """`logagent.queue/1`. An entry that is already due has a positive `overdue_seconds`, the others a negative one."""
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
                "allocated": e.dir.allocated,
                "marked_at": rfc3339(e.marked_at_ms),
                "due_at": rfc3339(e.due_at_ms),
                "overdue_seconds": (now_ms - e.due_at_ms) / 1000,
                "attempts": e.attempts.count if e.attempts is not None else 0,
                "last_error": e.attempts.last_error if e.attempts is not None else None,
                "owner": e.owner,
            }
            for e in queue
        ],
        "moves": [move_row(move) for move in moves],
    }


def history_row(entry: Entry) -> HistoryEntry:
    i = entry.intent
    return {
        "id": entry.id,
        "at": rfc3339(entry.at_ms),
        "action": i.action,
        "log_dir": i.log_dir,
        "name": i.name,
        "new_name": i.new_name,
        "topic": i.topic,
        "partition": i.partition,
        "topic_id": i.topic_id,
        "bytes": i.bytes,
        "allocated": i.allocated,
        "plan_id": i.plan_id,
        "actor": i.actor,
        "outcome": entry.outcome,
        "finished_at": rfc3339_or_none(entry.finished_at_ms),
        "error": entry.error,
        "claims": [{"claim": c, "witness": w, "as_of": rfc3339(at)} for c, w, at in i.claims],
    }
