"""Fills the documents of queue and history; mypy compares them with their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from logagent.base.claims import decisive
from logagent.base.console.render import human_bytes
from logagent.base.records import DirKey, HolderState
from logagent.base.units import rfc3339, rfc3339_or_none
from logagent.cleanup.plan.queue import QueueEntry

if TYPE_CHECKING:
    from logagent.cleanup.commands.documents import HistoryEntry, MoveDoc, QueueDoc
    from logagent.cleanup.state.journal import Entry
    from logagent.verdict.copies import Move
    from logagent.verdict.facts import LogDirFacts


def move_row(move: Move) -> MoveDoc:
    return {
        "name": move.future.name,
        "partition": move.partition,
        "source": move.source.log_dir if move.source is not None else None,
        "to": move.future.log_dir,
        "copied_bytes": move.future.segment_bytes,
        "bytes": move.source.segment_bytes if move.source is not None else None,
    }


def copied_by(move: Move) -> str:
    """How far it is, in words."""
    copied = human_bytes(move.future.segment_bytes)
    return copied if move.source is None else f"{copied} of {human_bytes(move.source.segment_bytes)}"


def move_in_words(move: Move, holder: HolderState) -> str:
    """`holder`: of the log dir that it goes to."""
    copied, to = copied_by(move), move.future.log_dir
    if move.source is None:
        return (
            f"{to}/{move.future.name}: the copy of a move between log dirs ({copied}), and {move.partition}, which it"
            " is copied from, was not seen: logagent scan says whose it is"
        )
    says = f"{move.partition} moves from {move.source.log_dir} to {to}: {copied} copied. At the end the copy takes"
    says += f" its name, and the broker removes {move.source.log_dir}/{move.source.name}"
    return f"{says}; it continues when the broker runs" if holder is HolderState.FREE else says


def queue_document(
    queue: Sequence[QueueEntry],
    moves: Sequence[Move],
    now_ms: int,
    delay_ms: int,
    log_dirs: Mapping[str, LogDirFacts],
    waits: Mapping[DirKey, str],
) -> QueueDoc:
    """`logagent.queue/1`, in the order of `queue`. An entry that is already due has a positive `overdue_seconds`, the
    others a negative one. `log_dirs`: who holds them, and removes what is marked there. `waits`: why an
    entry stays, whenever its time is over."""
    dated = [(e, e.goes_at_ms(log_dirs.get(e.dir.log_dir))) for e in queue]
    return {
        "schema": "logagent.queue/1",
        "at": rfc3339(now_ms),
        "delay_ms": delay_ms,
        "next_due_at": rfc3339_or_none(min((at for e, at in dated if e.dir.key not in waits), default=None)),
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
                "due_at": rfc3339(goes_at),
                "overdue_seconds": (now_ms - goes_at) / 1000,
                "attempts": e.attempts.count if e.attempts is not None else 0,
                "last_error": e.attempts.last_error if e.attempts is not None else None,
                "owner": e.owner,
                "waits_for": waits.get(e.dir.key),
            }
            for e, goes_at in dated
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


MOST_ERROR = 1000


def act_row(entry: Entry) -> dict[str, object]:
    """A settled entry as snapshots have it (`SnapshotAct`)."""
    i = entry.intent
    claim = decisive(i.claims)
    return {
        "row": "act",
        "id": entry.id,
        "at": entry.at_ms,
        "finished_at": entry.finished_at_ms or entry.at_ms,
        "action": i.action,
        "outcome": entry.outcome,
        "log_dir": i.log_dir,
        "name": i.name,
        "new_name": i.new_name,
        "topic": i.topic,
        "topic_id": i.topic_id,
        "partition": i.partition,
        "bytes": i.bytes,
        "allocated": i.allocated,
        "actor": i.actor,
        "approved": i.approved,
        "plan_id": i.plan_id,
        "claim": claim[0] if claim else None,
        "witness": claim[1] if claim else None,
        "as_of": claim[2] if claim else None,
        "claims": ", ".join(f"{said} by {witness}" for said, witness, _ in i.claims),
        "error": entry.error[:MOST_ERROR] if entry.error else None,
    }
