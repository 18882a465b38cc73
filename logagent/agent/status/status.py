"""`logagent.status/1`: what a running daemon reports about itself.

The UNIX socket on which a running daemon reports its status: each connection gets one JSON document and is
closed.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from logagent import __version__
from logagent.agent.daemon.daemon import Daemon
from logagent.errors import ServiceUnreachable
from logagent.files.safe_open import bounded, parse_json
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


SOCKET_NAME = "status.sock"
# A client that does not read keeps others waiting no longer than this.
_PATIENCE_SECONDS = 2.0
_SHORTAGE_SECONDS = 0.2
_MOST_BYTES = 16 << 20


class StatusServer:
    """Answers with `status()` in a separate thread. Only the owner of the state dir (and root) may connect (mode
    0600)."""

    def __init__(self, state_dir: str, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status
        self._state_dir = state_dir
        self._ending = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Before `bind`, so that it never exists with another mode.
            os.fchmod(self._socket.fileno(), 0o600)
            with _short_path(state_dir) as path:
                # We hold the daemon's lock, so an existing socket was left by a daemon that was killed.
                with suppress(FileNotFoundError):
                    os.unlink(path)
                self._socket.bind(path)
            self._socket.listen(8)
            self._thread = threading.Thread(target=self._serve, name="logagent-status", daemon=True)
            self._thread.start()
        except (OSError, RuntimeError):
            self._socket.close()
            raise

    def close(self) -> None:
        self._ending = True
        # Wakes the accepting thread.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        # Clients still being answered are dropped: shutdown waits for nobody.
        self._thread.join(0.2)
        self._socket.close()
        with suppress(OSError), _short_path(self._state_dir) as path:
            os.unlink(path)

    def _serve(self) -> None:
        while not self._ending:
            try:
                connection, _ = self._socket.accept()
            except OSError as e:
                if e.errno in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED, errno.ENOMEM) and not self._ending:
                    # The pending connection makes `accept` return at once again.
                    time.sleep(_SHORTAGE_SECONDS)
                    continue
                return
            # A bug in one answer must not end the server.
            with connection, suppress(Exception):
                connection.settimeout(_PATIENCE_SECONDS)
                connection.sendall(json.dumps(self._status(), ensure_ascii=True).encode() + b"\n")


def ask_status(state_dir: str, timeout: float = 5.0) -> dict[str, Any]:
    """The status document of the daemon that uses `state_dir`, within `timeout` seconds. Raises ServiceUnreachable.

    The state dir's owner may have put another socket there: the answer is read to the end or not at all, and its
    content is not trusted.
    """
    deadline = time.monotonic() + timeout
    try:
        document = parse_json(_answer(state_dir, deadline), integers=bounded)
        if not isinstance(document, dict):
            raise ValueError("its answer is not a status document")
    except (OSError, ValueError) as e:
        missing = isinstance(e, FileNotFoundError | ConnectionRefusedError | NotADirectoryError)
        why = "no daemon is running there" if missing else getattr(e, "strerror", None) or str(e) or "it did not answer"
        raise ServiceUnreachable(
            f"cannot reach a daemon in {state_dir}: {why}",
            hint="start one with `logagent run`, or name its state dir with --state-dir",
        ) from e
    return document


def _answer(state_dir: str, deadline: float) -> bytes:
    answer = bytearray()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s, _short_path(state_dir) as path:
        s.settimeout(max(deadline - time.monotonic(), 0.001))
        s.connect(path)
        while part := s.recv(1 << 16):
            answer += part
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(errno.ETIMEDOUT, "its answer did not end in time")
            if len(answer) > _MOST_BYTES:
                raise ValueError("its answer is too long")
            s.settimeout(left)
    return bytes(answer)


@contextmanager
def _short_path(state_dir: str) -> Iterator[str]:
    """The socket's path by way of a descriptor: socket addresses are limited to 107 characters, paths to 4096."""
    fd = os.open(state_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET_NAME}"
    finally:
        os.close(fd)
