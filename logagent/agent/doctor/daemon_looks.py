"""What doctor looks at around the daemon: its status, the metrics port, the state dir, other instances."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from logagent.agent.doctor.broker_looks import LOOK_SECONDS
from logagent.agent.doctor.host_looks import look_at_access, service_state_dir
from logagent.config import key_lines, load
from logagent.errors import LogAgentError, ServiceUnreachable
from logagent.host.linux.child import Identity, ask_as, real_path
from logagent.host.state.journal_schema import SCHEMA_VERSION
from logagent.host.state.peek import look_at_journal
from logagent.host.state.reserve import lacks_room_for_journal, lacks_room_for_reserve
from logagent.host.state.state_dir import log_dir_above, look_at_directory, nearest_directory
from logagent.model.doctor.doctor_facts import DaemonLook, PortLook, ServiceLook, SiblingLook, StateLook

_LISTEN = "0A"
_PORTS_TRIED = 64


def look_at_daemon(state_dir: str) -> DaemonLook:
    """What the daemon of this state dir reports."""
    from logagent.agent.status.status_socket import SOCKET_NAME, ask_status

    path = os.path.join(state_dir, SOCKET_NAME)
    try:
        status = ask_status(state_dir, LOOK_SECONDS)
    except ServiceUnreachable as e:
        cause = e.__cause__
        if isinstance(cause, FileNotFoundError | NotADirectoryError):
            return DaemonLook(socket=path, state="none")
        if isinstance(cause, ConnectionRefusedError):
            return DaemonLook(socket=path, state="dead")
        closed = isinstance(cause, PermissionError)
        return DaemonLook(socket=path, state="refused" if closed else "silent", detail=str(cause))
    rows = status.get("log_dirs")
    dirs = None
    if isinstance(rows, list):
        dirs = tuple(str(row.get("path")) if isinstance(row, dict) else str(row) for row in rows)
    return DaemonLook(
        socket=path,
        state="running",
        pid=status.get("pid"),
        version=status.get("agent_version"),
        log_dirs=dirs,
        mode=status.get("mode"),
    )


def look_at_port(listen: str | None, identity: Identity | None, daemon_pid: int | None) -> PortLook | None:
    """Whether the metrics could be served at `listen` (None if they are not wanted)."""
    if not listen:
        return None
    host, _, port = listen.rpartition(":")
    host, number = host.strip("[]"), int(port)
    try:
        code = int(ask_as(identity, lambda: _bind(host, number), LOOK_SECONDS))
    except OSError:
        return PortLook(listen=listen, problem="it could not be tried")
    if code == 0:
        return PortLook(listen=listen, next_free=_free(host, number))
    words = {errno.EADDRINUSE: "taken", errno.EADDRNOTAVAIL: "not-local", errno.EACCES: "not-permitted"}
    problem = "not-local" if code < 0 else words.get(code, os.strerror(code))
    pids = sorted(_listening(number)) if problem == "taken" else []
    ours = problem == "taken" and daemon_pid is not None and (daemon_pid in pids or not pids)
    by = f"process {pids[0]} ({_command(pids[0])})" if pids else None
    free = _free("127.0.0.1" if problem == "not-local" else host, max(number, 1024))
    return PortLook(listen=listen, problem=problem, by=by, ours=ours, next_free=free)


def _bind(host: str, port: int) -> int:
    """0, or the errno; -1 if the name cannot be resolved."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(address)
            s.listen(1)
    except socket.gaierror:
        return -1
    except OSError as e:
        return e.errno or errno.EIO
    return 0


def _free(host: str, after: int) -> int | None:
    return next((p for p in range(after + 1, min(after + _PORTS_TRIED, 65536)) if _bind(host, p) == 0), None)


def _listening(port: int) -> Iterator[int]:
    """The processes that listen at this port, as far as we may see."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(table, encoding="ascii") as file:
            for line in list(file)[1:]:
                words = line.split()
                if words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{words[9]}]")
    for name in os.listdir("/proc") if inodes else ():
        if name.isdecimal():
            with suppress(OSError):
                if any(_link(f"/proc/{name}/fd/{n}") in inodes for n in os.listdir(f"/proc/{name}/fd")):
                    yield int(name)


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "?"


def look_at_state(
    path: str,
    service: ServiceLook | None,
    log_dirs: Sequence[str],
    strangers: Iterable[str],
    identity: Identity | None,
) -> StateLook:
    """The state dir; `strangers` are log dirs of other brokers."""
    exists = os.path.isdir(path)
    nearest = nearest_directory(path)
    given = service_state_dir(service)
    seen = look_at_journal(path)
    there = {log_dir: found for log_dir in log_dirs if (found := look_at_directory(log_dir)) is not None}
    return StateLook(
        path=path,
        exists=exists,
        access=look_at_access(nearest, "the state dir", os.W_OK | os.X_OK, identity),
        made_by_unit=given == path,
        in_log_dir=log_dir_above(path, there),
        full=lacks_room_for_journal(nearest, path),
        no_reserve=lacks_room_for_reserve(nearest, path),
        journal=seen.exists,
        journal_schema=seen.schema,
        known_schema=SCHEMA_VERSION,
        foreign=tuple(sorted(seen.log_dirs & set(strangers))),
        service_path=given,
    )


def look_at_siblings(file: str, log_dirs: Sequence[str], listen: str | None) -> tuple[SiblingLook, ...]:
    """The other configurations beside `file`, and what they share with this one."""
    from logagent.agent.target import resolve_target

    folder = os.path.dirname(file)
    ours = {real_path(d, LOOK_SECONDS) or d: d for d in log_dirs}
    found = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        if not name.endswith(".toml") or os.path.realpath(path) == os.path.realpath(file):
            continue
        try:
            settings = load(path, environ={}).settings
            target = resolve_target(settings) if settings.kafka.config is not None else None
        except LogAgentError as e:
            found.append(SiblingLook(file=path, problem=str(e)))
            continue
        theirs = [real_path(d, LOOK_SECONDS) or d for d in target.log_dirs] if target is not None else []
        found.append(
            SiblingLook(
                file=path,
                number=key_lines(path).get("kafka.config"),
                log_dirs=tuple(ours[d] for d in theirs if d in ours),
                listen=bool(listen) and settings.metrics.listen == listen,
            )
        )
    return tuple(found)
