"""What comes from elsewhere is shown on a terminal and never obeyed, and nobody keeps a command waiting."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logagent.base.errors import Exit, ServiceUnreachable
from logagent.service.status.command import SOCKET_NAME, ask_status
from tests.host import Host
from tests.waiting import pause

EVIL = "\x1b]0;owned\x07\x1b[2J\u202eevil"
LOG_DIR = {"path": "/d1", "health": "online", "reason": None, "since": None, "probe_ms": 1.0, "watch": "inotify",
           "watch_problem": None}  # fmt: skip
STATUS: dict[str, Any] = {
    "schema": "logagent.status/1", "at": "2026-11-22T02:00:00.000Z", "host": "h", "agent_version": "1.0", "pid": 7,
    "started_at": "2026-11-22T01:00:00.000Z", "state_dir": "/s", "mode": "report", "config": None,
    "kafka_config": None, "log_dirs": [LOG_DIR], "brokers": [], "queue": None, "assignments": None, "cycles": [],
    "open_exchanges": [], "running": None, "next": {}, "publish": None, "clock_doubt": None,
    "failed": [], "reload_failed": None,
}  # fmt: skip
CYCLE: dict[str, Any] = {
    "job": "cleanup", "started_at": STATUS["at"], "seconds": 1.0, "plan_id": None, "planned": 0, "results": [],
    "refusals": {"window": 1}, "waiting": 0, "freed_bytes": 0, "needs_approval": None, "error": None,
    "refused_because": [],
}  # fmt: skip


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host.from_disk(tmp_path)
    made.state.mkdir()
    return made


@contextmanager
def answering(state: Path, answer: Callable[[socket.socket], object]) -> Iterator[None]:
    """Somebody else's socket in the state dir."""
    fd = os.open(state, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{fd}/{SOCKET_NAME}")
        os.close(fd)
        server.listen(4)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    answer(connection)
                except OSError:
                    pass  # it hung up

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        thread.join(100)
        assert not thread.is_alive()


def sends(document: object) -> Callable[[socket.socket], object]:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return lambda connection: connection.sendall(text)


@pytest.mark.parametrize(
    "evil",
    [
        {"agent_version": EVIL},
        {"log_dirs": [{**LOG_DIR, "path": EVIL, "reason": EVIL}]},
        {"failed": [{"job": EVIL, "at": STATUS["at"], "error": EVIL}]},
        {"cycles": [{**CYCLE, "refused_because": [{"guard": "window", "fact": EVIL, "hint": EVIL}]}]},
        {"assignments": {"source": None, "at": None, "usable": False, "problem": EVIL, "log_doubt": None}},
        {"publish": {"at": STATUS["at"], "last_sent_at": None, "waiting": 1, "waiting_bytes": 0, "dropped": 0,
                     "error": EVIL}},
    ],
)  # fmt: skip
def test_no_escape_sequence_of_a_false_daemon_is_passed_on(host: Host, evil: dict[str, Any]) -> None:
    with answering(host.state, sends(STATUS | evil)):
        ran = host.run("status")
    assert ran.status == 0 and "owned" in ran.out + ran.err
    assert not set(EVIL[:1] + "\x07\u202e") & set(ran.out + ran.err)


@pytest.mark.parametrize(
    "document",
    [
        [], {}, {**STATUS, EVIL: 1}, {**STATUS, "pid": EVIL}, {**STATUS, "log_dirs": None},
        {**STATUS, "at": "2026-99-99T99:99:99.000Z"}, {**STATUS, "pid": 10**400}, b"[" * 100_000, b'{"pid": NaN}',
        b"x" * 100,
    ],
)  # fmt: skip
def test_what_is_no_status_is_one_sentence(host: Host, document: object) -> None:
    with answering(host.state, sends(document)):
        ran = host.run("status")
    assert ran.status == Exit.UNREACHABLE and ran.out == ""
    assert "hint:" in ran.err and "Traceback" not in ran.err and "\x1b" not in ran.err


def test_an_answer_that_does_not_end_is_given_up(host: Host) -> None:
    """A byte now and then: no single wait is too long, but all of them are."""

    def drip(connection: socket.socket) -> None:
        while True:
            connection.sendall(b" ")
            pause(0.05, "now and then")

    with answering(host.state, drip), pytest.raises(ServiceUnreachable, match=r"timed out|did not end in time"):
        ask_status(str(host.state), timeout=0.5)  # without a limit for all of them, for ever


@pytest.mark.parametrize(
    "arguments",
    [
        ["scan", "--log-dir", f"/nowhere/{EVIL}"],
        ["explain", "--names", "orders-0", f"--{EVIL}"],
        ["status", f"{EVIL}"],
        ["status", "--state-dir", f"/nowhere/{EVIL}"],
        ["scan", "--config", f"/nowhere/{EVIL}"],
        ["delete", "--partition", f"{EVIL}-0"],
    ],
)
def test_names_in_messages_are_written_out(host: Host, arguments: list[str]) -> None:
    ran = host.run(*arguments)
    assert "owned" in ran.err + ran.out
    assert not set("\x1b\x07\u202e") & set(ran.out + ran.err)


def test_names_from_the_disk_are_written_out(host: Host) -> None:
    (host.d1 / f"a{EVIL}-0").mkdir()
    (host.d1 / f"{EVIL}").mkdir()
    for command in (["scan", "--all"], ["cleanup"], ["check"], ["queue"], ["doctor"]):
        ran = host.run(*command)
        assert not set("\x1b\x07\u202e") & set(ran.out + ran.err), command


def test_a_daemon_of_another_broker_is_no_answer(host: Host) -> None:
    """A daemon is found by its state dir; whoever names a broker does not want to hear of another one."""
    status = {**STATUS, "kafka_config": str(host.properties)}

    def asked(*options: str) -> tuple[int, str]:
        with answering(host.state, sends(status)):
            ran = host.run("status", *options)
        (host.state / SOCKET_NAME).unlink()
        return ran.status, ran.err

    assert asked("--kafka-config", str(host.properties), "--log-dir", "/d1")[0] == 0
    for options, what in (
        (("--kafka-config", "/etc/other.properties"), "not of /etc/other.properties"),
        (("--log-dir", "/d2"), "serves /d1, not /d2"),
    ):
        code, said = asked(*options)
        assert code == Exit.UNREACHABLE and what in said, said


def test_the_status_of_a_daemon_that_carries_out_requests_is_understood(host: Host) -> None:
    status = {**STATUS, "running": "requests", "cycles": [{**CYCLE, "job": "requests"}]}
    with answering(host.state, sends(status)):
        ran = host.run("status", "--json")
    assert ran.status == 0 and ran.json["cycles"][0]["job"] == "requests", ran.err
