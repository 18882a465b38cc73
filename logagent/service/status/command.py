"""`logagent status`: the state of the running daemon, from its UNIX socket: each connection gets the status as one JSON
document and is closed.
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
from datetime import datetime
from typing import Any

import click

from logagent import __version__
from logagent.base.console.options import RUN_AS_BROKER, Call, common
from logagent.base.console.render import dump, human_bytes, human_ms, table
from logagent.base.errors import Exit, NotPermitted, ServiceUnreachable
from logagent.base.files.safe_open import bounded, parse_json
from logagent.base.units import human_time
from logagent.verdict.clock_doubt import TRUST_CLOCK

SOCKET_NAME = "status.sock"
# A client that does not read keeps others waiting no longer than this.
_PATIENCE_SECONDS = 2.0
_SHORTAGE_SECONDS = 0.2
_MOST_BYTES = 16 << 20


class StatusServer:
    """Answers with `document()` in a separate thread. Only the owner of the state dir (and root) may connect (mode
    0600)."""

    def __init__(self, state_dir: str, document: Callable[[], dict[str, Any]]) -> None:
        self._document = document
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
        # A socket that stays is removed by the next daemon.
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
                connection.sendall(json.dumps(self._document(), ensure_ascii=True).encode() + b"\n")


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


@click.command()
@common
def status(call: Call) -> None:
    """Show the state of the daemon that uses this state dir: log dirs, queue, last cycles, what comes next.

    A daemon that does not answer within five seconds counts as unreachable.
    """
    directory = call.state_dir
    try:
        document = _ask(directory)
    except ServiceUnreachable:
        # Another user has a state dir of his own by default: that no daemon uses it says nothing of the service.
        service = call.state_dir_of_service
        if call.state_dir_named is not None or service == directory or not os.path.lexists(service):
            raise
        document = _ask(service)
    _refuse_another_broker(call, document)
    if any(d["health"] == "offline" for d in document["log_dirs"]):
        call.record_status(Exit.OFFLINE)
    if call.json:
        dump(document)
    else:
        _show(call, document)


def _ask(directory: str) -> dict[str, Any]:
    """Raises NotPermitted where nothing can be said, and ServiceUnreachable."""
    try:
        return _known_form(ask_status(directory), directory)
    except ServiceUnreachable as e:
        if isinstance(e.__cause__, PermissionError):
            says = f"whether a daemon runs in {directory} cannot be seen as this user"
            raise NotPermitted(says, hint=RUN_AS_BROKER) from e
        raise


def _refuse_another_broker(call: Call, document: dict[str, Any]) -> None:
    """A daemon is reached by its state dir. Raises ServiceUnreachable if it does not serve the named broker."""
    served, named = {d["path"] for d in document["log_dirs"]}, {os.path.abspath(path) for path in call.log_dirs}
    config = document["kafka_config"]
    if named - served:
        wrong = f"{', '.join(sorted(served)) or 'no log dir'}, not {', '.join(sorted(named - served))}"
    elif call.kafka_config is not None and (
        config is None or os.path.realpath(config) != os.path.realpath(call.kafka_config)
    ):
        wrong = f"the broker of {config or 'no configuration file'}, not of {call.kafka_config}"
    else:
        return
    raise ServiceUnreachable(
        f"the daemon in {call.state_dir} serves {wrong}", hint="name the state dir of the right daemon with --state-dir"
    )


def _known_form(document: dict[str, Any], directory: str) -> dict[str, Any]:
    """The document, if it is valid: the owner of the state dir can make anything answer. Raises ServiceUnreachable."""
    from pydantic import TypeAdapter, ValidationError

    from logagent.service.status.documents import StatusDoc

    try:
        # A broker's command line may contain bytes that are not UTF-8: lone surrogates, which no validator accepts.
        TypeAdapter(StatusDoc).validate_json(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))
    except ValidationError as e:
        wrong = ".".join(map(str, e.errors()[0]["loc"]))
        raise ServiceUnreachable(
            f"what answers in {directory} is not a daemon of this version ({__version__}): it calls itself "
            f"{document.get('agent_version') or 'nothing'}; invalid in its answer: {wrong or 'all of it'}",
            hint="restart the daemon after an upgrade; journalctl -u logagent shows its state",
        ) from e
    return document


def _show(call: Call, s: dict[str, Any]) -> None:
    now = _ms(s["at"])
    up = human_ms(now - _ms(s["started_at"]))
    call.say(f"logagent {s['agent_version']} is running as process {s['pid']}, up {up} (cleanup.mode = {s['mode']})")
    rows = [
        [d["path"], d["health"] or "not probed yet", f"{human_ms(now - _ms(d['since']))}" if d["since"] else "",
         f"{d['probe_ms']:.0f} ms" if d["probe_ms"] is not None else "", d["watch"],
         d["reason"] or d["watch_problem"] or ""]
        for d in s["log_dirs"]
    ]  # fmt: skip
    columns = [("log dir", "path"), ("health", "left"), ("since", "right"), ("probe", "right?"), ("watch", "left?")]
    table("Log dirs", [*columns, ("reason", "text")], rows, color=call.color)
    if s["cycles"]:
        columns = [("job", "left"), ("started", "left"), ("took", "right?"), ("planned", "right?"), ("result", "text")]
        columns += [("refused", "right"), ("waiting", "right?"), ("freed", "right")]
        table("Last cycles", columns, [_cycle(c, s["mode"]) for c in s["cycles"]], color=call.color)
    for line in _lines(s, now):
        call.say(line)


def _cycle(c: dict[str, Any], mode: str) -> list[str]:
    results = ", ".join(f"{r['dirs']} {r['action']} {r['outcome']}" for r in c["results"])
    return [
        c["job"],
        human_time(_ms(c["started_at"])),
        f"{c['seconds']:.1f} s",
        str(c["planned"]),
        c["error"] or results or _nothing(c, mode),
        str(sum(c["refusals"].values())),
        str(c["waiting"]),
        human_bytes(c["freed_bytes"]),
    ]


def _nothing(c: dict[str, Any], mode: str) -> str:
    """Why a cycle did nothing."""
    if c["needs_approval"]:
        return "nothing: its plan needs approval, see below"
    if c["planned"]:
        return "nothing: cleanup.mode = report" if mode == "report" else "nothing was carried out"
    return "nothing: all of it is refused" if c["refusals"] else "nothing was due"


def _lines(s: dict[str, Any], now: int) -> list[str]:
    lines = [_broker(b, now) for b in s["brokers"]]
    for f in s["failed"]:
        lines.append(f"{f['job']} failed {human_time(_ms(f['at']))}: {f['error']} (the daemon's log says more)")
    if s["reload_failed"]:
        r = s["reload_failed"]
        at = human_time(_ms(r["at"]))
        lines.append(f"it runs with its configuration of before; the reload of {at} failed: {r['error']}")
    if s["running"]:
        lines.append(f"running now: {s['running']}")
    if s["queue"]:
        due = f"; the next is due {_when(s['queue']['next_due_at'], now)}" if s["queue"]["next_due_at"] else ""
        lines.append(f"delete queue: {s['queue']['entries']} ({human_bytes(s['queue']['bytes'])}){due}")
    if s["assignments"]:
        a = s["assignments"]
        age = f", {human_ms(now - _ms(a['at']))} old" if a["at"] else ""
        state = f"from {a['source']}{age}" if a["usable"] else f"not usable: {a['problem'] or 'none read'}"
        lines.append(f"assignments: {state}")
        if (doubt := a["log_doubt"]) is not None:
            lines.append(f"{doubt['says']}; hint: {doubt['hint']}")
    if s["clock_doubt"]:
        lines.append(f"nothing is done that depends on an age: {s['clock_doubt']} ({TRUST_CLOCK})")
    for path in s["open_exchanges"]:
        lines.append(
            f"restore --replace was cut short: {path} is the directory it displaced (logagent check says more)"
        )
    for c in s["cycles"]:
        for r in c["refused_because"]:
            count = c["refusals"][r["guard"]]
            lines.append(f"{c['job']}: {count} refused by guard {r['guard']}: {r['fact']}; hint: {r['hint']}")
    approval = next((c["needs_approval"] for c in s["cycles"] if c["job"] == "cleanup" and c["needs_approval"]), None)
    if approval:
        lines.append(f"a plan needs approval: logagent cleanup --execute --approve {approval}")
    if s["publish"]:
        p = s["publish"]
        sent = f"last sent {human_time(_ms(p['last_sent_at']))}" if p["last_sent_at"] else "nothing sent yet"
        lines.append(f"fleet store: {sent}, {p['waiting']} waiting" + (f": {p['error']}" if p["error"] else ""))
    coming = [f"{job} {_when(at, now)}" for job, at in s["next"].items() if at]
    return [*lines, f"next: {', '.join(coming)}"]


def _broker(b: dict[str, Any], now: int) -> str:
    files = f", {b['open_files']} of {b['open_files_limit'] or 'unlimited'} file descriptors" if b["open_files"] else ""
    io = (
        f", {human_bytes(b['read_bytes'])} read and {human_bytes(b['written_bytes'])} written"
        if b["read_bytes"] is not None and b["written_bytes"] is not None
        else ""
    )
    up = human_ms(now - _ms(b["start_time"]))
    return f"broker: process {b['pid']} of {b['user']}, up {up}{files}{io}: {b['command']}"


def _when(at: str, now: int) -> str:
    left = _ms(at) - now
    return f"in {human_ms(left)}" if left > 0 else "now"


def _ms(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp() * 1000)
