"""Attacks on the daemon's edges: no descriptors, no threads, a bug in an answer, a trap beside the textfile."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logagent.base.errors import ItemFailed, ServiceUnreachable
from logagent.base.records import Health
from logagent.disk import bounded_calls
from logagent.disk.calls import Stop
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.service import metrics_server
from logagent.service.metrics import Metrics
from logagent.service.metrics_server import MetricsServer
from logagent.service.status import command as status_module
from logagent.service.status.command import SOCKET_NAME, StatusServer, ask_status
from tests.disk.failing import open_below
from tests.disk.sessions import FailingHost
from tests.host_files import DIRECTORY_IDS, format_log_dir
from tests.waiting import PATIENCE_SECONDS, wait_until


def test_one_bad_answer_is_not_the_end_of_the_status_socket(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = [{"schema": "good"}]

    def status() -> dict[str, Any]:
        if len(answers) == 1:
            answers.append({})
            raise RuntimeError("dictionary changed size during iteration")
        return answers[0]

    server = StatusServer(str(tmp_path), status)
    try:
        with pytest.raises(ServiceUnreachable):
            ask_status(str(tmp_path))
        assert ask_status(str(tmp_path)) == {"schema": "good"}
    finally:
        server.close()


@pytest.mark.parametrize("what", ["status", "metrics"])
def test_without_descriptors_nobody_spins(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection waits, and `accept` fails at once again: each time it pauses."""
    paused, go_on = threading.Event(), threading.Event()

    def pause(seconds: float) -> None:
        assert seconds > 0
        paused.set()
        go_on.wait(PATIENCE_SECONDS)

    for module in (status_module, metrics_server):
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=pause, monotonic=time.monotonic))
    status, metrics = StatusServer(str(tmp_path), dict), MetricsServer(Metrics(), "127.0.0.1:0")
    kinds = {"status": socket.AF_UNIX, "metrics": socket.AF_INET}
    clients = [socket.socket(kinds[what], socket.SOCK_STREAM) for _ in range(3)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        # None is left, not even the one that an answered client gives back.
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        with pytest.raises(OSError, match="Too many open files"):
            os.open("/dev/null", os.O_RDONLY)
        for client in clients:
            address: Any = ("127.0.0.1", int(metrics.address.rpartition(":")[2]))
            client.connect(f"{tmp_path}/{SOCKET_NAME}" if what == "status" else address)
        assert paused.wait(PATIENCE_SECONDS), "it does not pause"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        go_on.set()
        for client in clients:
            client.close()
        status.close()
        metrics.close()


@pytest.mark.parametrize("trap", ["fifo", "hard link", "symlink"])
def test_what_stands_beside_the_textfile_is_neither_waited_for_nor_written_to(trap: str, tmp_path: Path) -> None:
    part, victim = tmp_path / "logagent.prom.tmp", tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    make: dict[str, Callable[[], None]] = {
        "fifo": lambda: os.mkfifo(part),
        "hard link": lambda: part.hardlink_to(victim),
        "symlink": lambda: part.symlink_to(victim),
    }
    make[trap]()
    writer = threading.Thread(target=Metrics().write_textfile, args=(str(tmp_path / "logagent.prom"),), daemon=True)
    writer.start()
    writer.join(60)
    assert not writer.is_alive()
    assert "logagent_build_info" in (tmp_path / "logagent.prom").read_text()
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("precious", 0o600)


def test_where_no_thread_can_be_had_the_others_are_waited_for_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd's TasksMax: what had been begun was forgotten, and its descriptors stayed open cycle after cycle."""
    first = format_log_dir(tmp_path / "first")
    second = format_log_dir(tmp_path / "second", DIRECTORY_IDS[1])
    host = FailingHost(tmp_path / "state", first, second)
    host.round()
    start = bounded_calls._Call.start

    def no_thread(self: bounded_calls._Call[Any]) -> None:
        if self.path == str(second):
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(bounded_calls._Call, "start", no_thread)
    with host.session() as session:
        session.take_inventory()
        assert list(session.inventory.by_log_dir) == [str(first)]
        facts = session.facts().log_dirs[str(second)]
        assert facts.health is Health.OFFLINE and "cannot start a thread" in (facts.health_reason or "")
    wait_until(lambda: not open_below(first), "it is closed")
    monkeypatch.undo()
    assert not host.failures.offline(), "that is no fault of the disk"
    with host.session() as session:
        session.take_inventory()
        assert len(session.inventory.by_log_dir) == 2


def test_a_shortage_of_descriptors_takes_no_log_dir_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = FailingHost(tmp_path / "state", format_log_dir(tmp_path / "log-dir"))

    def shortage(self: OpenLogDir) -> OpenLogDir:
        raise ItemFailed("open failed: Too many open files", path=self.path, errno=24)

    monkeypatch.setattr(OpenLogDir, "__enter__", shortage)
    with host.session() as session:
        (facts,) = session.facts().log_dirs.values()
        assert (facts.health, facts.health_reason) == (Health.OFFLINE, "open failed: Too many open files")
    assert not host.failures.offline()


def test_work_that_hangs_where_nothing_is_probed_makes_the_loop_silent() -> None:
    """A lane waited for the journal on a frozen disk, and the daemon pinged the watchdog for it for ever."""
    now, beats, ended = 0.0, 0, threading.Event()

    def monotonic() -> float:
        nonlocal now
        now += 5
        return now

    def beat() -> None:
        nonlocal beats
        beats += 1
        # As the health loop asks.
        calls.hanging("/d")
        assert now < 100, "it vouches for ever"

    def works(stop: Stop) -> str:
        assert ended.wait(60)
        return "thawed"

    def thaw() -> None:
        wait_until(lambda: now > 200, "time goes on")
        ended.set()

    calls = bounded_calls.BoundedCalls(LogDirFailures(), 1.0, beat=beat, monotonic=monotonic)
    thawing = threading.Thread(target=thaw)
    thawing.start()
    assert calls.work({"/d": works}) == {"/d": "thawed"}
    thawing.join()
    assert beats
