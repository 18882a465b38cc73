"""Fills the documents of plans, queue, history, check and doctor; mypy compares them with their types."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from logagent import __version__
from logagent.host.state.journal import CheckpointEntry, Entry
from logagent.model.claims import Proof, since_when
from logagent.model.facts import StrayRuling
from logagent.model.finding import Finding, Severity
from logagent.model.kafka_version import Version, version_text
from logagent.model.planning.plan import Execution, Plan, Proposal, Refusal, Waiting, action_id
from logagent.model.planning.queue import QueueEntry
from logagent.model.records import ActionKind
from logagent.model.times import rfc3339, rfc3339_or_none

if TYPE_CHECKING:
    from logagent.agent.check.run_check import CheckReport
    from logagent.agent.session.session import Session
    from logagent.documents.doctor import CheckDoc, DoctorDoc, DoctorFindingDoc, DoctorLogDir, DoctorService, FindingDoc
    from logagent.documents.plans import ActionDoc, HistoryEntry, PlanDoc, QueueDoc, RefusalDoc, WaitingDoc
    from logagent.model.doctor.doctor_facts import DoctorFacts, DoctorLogDirFacts, ServiceFacts

_CHECK_WORDS: dict[Severity, Literal["fatal", "warning", "info"]] = {
    Severity.FATAL: "fatal",
    Severity.WARNING: "warning",
    Severity.INFO: "info",
}
_DOCTOR_WORDS: dict[Severity, Literal["works", "info", "warning", "fails"]] = {
    Severity.FATAL: "fails",
    Severity.WARNING: "warning",
    Severity.INFO: "info",
    Severity.WORKS: "works",
}


def check_document(report: CheckReport, at: str) -> CheckDoc:
    """`logagent.check/1`."""
    return {
        "schema": "logagent.check/1",
        "at": at,
        "kafka_version": _text(report.kafka_version),
        "log_dirs": [
            {"path": d.path, "health": d.health, "reason": d.reason, "probe_ms": d.probe_ms} for d in report.log_dirs
        ],
        "findings": [finding_row(f) for f in report.findings],
    }


def finding_row(finding: Finding) -> FindingDoc:
    """One finding of `check` and `prestart`."""
    return {
        "severity": _CHECK_WORDS[finding.severity],
        "code": finding.code,
        "path": finding.path,
        "kafka_versions": str(finding.releases),
        "says": finding.says,
        "hint": finding.hint,
    }


def doctor_document(facts: DoctorFacts, findings: Sequence[Finding], host: str, at: str) -> DoctorDoc:
    """`logagent.doctor/1`."""
    subject = facts.subject
    return {
        "schema": "logagent.doctor/1",
        "at": at,
        "host": host,
        "agent_version": __version__,
        "config": facts.config.file,
        "kafka_config": facts.config.kafka_config,
        "state_dir": facts.state.path if facts.state is not None else "",
        "user": {"name": subject.name, "uid": subject.uid, "how": subject.how, "service": subject.service},
        "brokers": [
            {
                "config": b.config,
                "how": b.how,
                "pid": b.pid,
                "user": b.user,
                "unit": b.unit,
                "kafka_version": _text(b.version),
                "chosen": b.chosen,
            }
            for b in facts.brokers
        ],
        "kafka_version": _text(facts.kafka_version.version),
        "kafka_version_from": facts.kafka_version.says(),
        "at_least": facts.kafka_version.exact is None,
        "cluster_id": facts.cluster_id,
        "node_id": facts.node_id,
        "log_dirs": [_doctor_log_dir(d) for d in facts.log_dirs],
        "service": _doctor_service(facts.service) if facts.service is not None else None,
        "daemon": facts.daemon.state if facts.daemon is not None else "none",
        "assignments_source": facts.assignments.source if facts.assignments is not None else "none",
        "assignments_age_seconds": facts.assignments.age_seconds if facts.assignments is not None else None,
        "findings": [_doctor_finding(f) for f in findings],
    }


def _doctor_log_dir(d: DoctorLogDirFacts) -> DoctorLogDir:
    return {
        "path": d.path,
        "health": d.health,
        "reason": d.reason,
        "holder": {"state": d.holder, "pid": d.pid, "start_time": rfc3339_or_none(d.started_ms)},
        "owner": d.owner,
        "lacks": d.access.lacks if d.access is not None else None,
        "mount_point": d.mount.point if d.mount is not None else None,
        "file_system": d.mount.kind if d.mount is not None else None,
    }


def _doctor_service(s: ServiceFacts) -> DoctorService:
    return {
        "unit": s.unit,
        "known_by": s.known_by,
        "user": s.user,
        "file": s.file,
        "active": s.active,
        "main_pid": s.main_pid,
    }


def doctor_word(severity: Severity) -> str:
    """The word `doctor` uses: `works`, `info`, `warning`, `fails`."""
    return _DOCTOR_WORDS[severity]


def _doctor_finding(f: Finding) -> DoctorFindingDoc:
    assert f.area is not None, f
    c = f.change
    return {
        "area": f.area,
        "state": _DOCTOR_WORDS[f.severity],
        "code": f.code,
        "path": f.path,
        "says": f.says,
        "hint": f.hint,
        "change": None
        if c is None
        else {"file": c.file, "number": c.number, "section": c.section, "line": c.line, "then": c.then},
    }


def _text(version: Version | None) -> str | None:
    return version_text(version) if version is not None else None


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


def queue_document(queue: Sequence[QueueEntry], now_ms: int, delay_ms: int) -> QueueDoc:
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
