"""`logagent.status/1`: what a running daemon reports about itself."""

from __future__ import annotations

import os
from typing import Any

from logagent import __version__
from logagent.agent.daemon.daemon import Daemon
from logagent.host.brokers.broker_process import BrokerProcess
from logagent.model.daemon_summary import CycleSummary
from logagent.model.times import rfc3339, rfc3339_or_none

_JOBS = ("cleanup", "queue", "health", "publish")


def status_document(daemon: Daemon, work: dict[str, Any], now_ms: int, host: str, state_dir: str) -> dict[str, Any]:
    config = daemon.config
    cleanup = daemon.last.get("cleanup") or daemon.last.get("inventory")
    latest = max(list(daemon.last.values()), key=lambda s: s.started_ms, default=None)
    return {
        "schema": "logagent.status/1",
        "at": rfc3339(now_ms),
        "host": host,
        "agent_version": __version__,
        "pid": os.getpid(),
        "started_at": rfc3339(daemon.started_ms),
        "state_dir": state_dir,
        "mode": config.settings.cleanup.mode,
        "config": config.file,
        "kafka_config": config.target.config,
        "log_dirs": _log_dirs(daemon, work),
        "brokers": [_broker(b) for b in work.get("brokers", ())],
        "queue": _queue(latest),
        "assignments": _assignments(cleanup),
        "open_exchanges": list(cleanup.open_exchanges) if cleanup is not None else [],
        "cycles": [_cycle(s) for _, s in sorted(dict(daemon.last).items())],
        "failed": [
            {"job": job, "at": rfc3339(at), "error": why} for job, (at, why) in sorted(dict(daemon.failed).items())
        ],
        "running": daemon.loops["act"].job,
        "next": {job: rfc3339_or_none(daemon.scheduler.next_ms(job)) for job in _JOBS},
        "publish": _publish(daemon),
    }


def _log_dirs(daemon: Daemon, work: dict[str, Any]) -> list[dict[str, Any]]:
    health = {d.path: d for d in (daemon.last_health.log_dirs if daemon.last_health is not None else ())}
    watch = work["watch"]
    rows = []
    for path in daemon.config.target.log_dirs:
        d = health.get(path)
        rows.append(
            {
                "path": path,
                "health": d.health.value if d is not None else None,
                "reason": d.reason if d is not None else None,
                "since": rfc3339(d.since_ms) if d is not None else None,
                "probe_ms": d.probe_ms if d is not None else None,
                "watch": "inotify" if watch.get(path) is None else "polling",
                "watch_problem": watch.get(path),
            }
        )
    return rows


def _broker(b: BrokerProcess) -> dict[str, Any]:
    return {
        "pid": b.pid,
        "start_time": rfc3339(b.start_time_ms),
        "user": b.user,
        "command": b.short_command,
        "cpu_seconds": b.cpu_seconds,
        "resident_bytes": b.resident_bytes,
        "read_bytes": b.read_bytes,
        "written_bytes": b.write_bytes,
        "open_files": b.open_files,
        "open_files_limit": b.open_files_limit,
    }


def _queue(s: CycleSummary | None) -> dict[str, Any] | None:
    if s is None or s.error is not None:
        return None
    oldest = [q.oldest_marked_ms for q in s.queues.values() if q.oldest_marked_ms is not None]
    return {
        "entries": sum(q.entries for q in s.queues.values()),
        "bytes": sum(q.bytes for q in s.queues.values()),
        "oldest_marked_at": rfc3339_or_none(min(oldest, default=None)),
        "next_due_at": rfc3339_or_none(s.next_due_ms),
    }


def _assignments(s: CycleSummary | None) -> dict[str, Any] | None:
    if s is None:
        return None
    a = s.assignments
    return {"source": a.source, "at": rfc3339_or_none(a.at_ms), "usable": a.usable, "problem": a.problem}


def _cycle(s: CycleSummary) -> dict[str, Any]:
    return {
        "job": s.job,
        "started_at": rfc3339(s.started_ms),
        "seconds": s.seconds,
        "plan_id": s.plan_id,
        "planned": s.planned,
        "results": [{"action": a, "outcome": o, "dirs": n} for (a, o), n in sorted(s.results.items())],
        "refusals": dict(sorted(s.refusals.items())),
        "refused_because": [{"guard": g, "fact": f, "hint": h} for g, (f, h) in sorted(s.refused_because.items())],
        "waiting": s.waiting,
        "freed_bytes": s.freed_bytes,
        "needs_approval": s.needs_approval,
        "error": s.error,
    }


def _publish(daemon: Daemon) -> dict[str, Any] | None:
    s = daemon.last_publish
    if s is None:
        return None
    return {
        "at": rfc3339(s.at_ms),
        "last_sent_at": rfc3339_or_none(s.last_sent_ms),
        "waiting": s.waiting,
        "waiting_bytes": s.waiting_bytes,
        "dropped": s.dropped,
        "error": s.error,
    }
