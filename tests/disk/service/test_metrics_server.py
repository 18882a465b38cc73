"""Metrics over HTTP and as a textfile: real sockets, real files."""

from __future__ import annotations

import http.client
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from logagent.base.errors import LogAgentError
from logagent.service.metrics import Metrics
from logagent.service.metrics_server import _MOST_CLIENTS, MetricsServer
from tests.disk.conftest import LoopFs
from tests.waiting import PATIENCE_SECONDS, wait_until


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    server = MetricsServer(Metrics("9.9"), "127.0.0.1:0")
    yield server
    server.close()


def get(server: MetricsServer, path: str = "/metrics", method: str = "GET") -> tuple[int, str, str]:
    """Status, content type and text of an answer."""
    host, _, port = server.address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def connect(server: MetricsServer) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)


def threads() -> set[str]:
    return {t.name for t in threading.enumerate()}


def test_metrics_are_answered(server: MetricsServer) -> None:
    status, kind, text = get(server)
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert 'logagent_build_info{version="9.9"} 1.0' in text
    assert list(text_string_to_metric_families(text))


def test_each_scrape_is_of_its_moment() -> None:
    metrics = Metrics()
    server = MetricsServer(metrics, "127.0.0.1:0")
    try:
        assert "logagent_config_last_reload_successful 1" not in get(server)[2]
        metrics.observe_reload(successful=True)
        assert "logagent_config_last_reload_successful 1" in get(server)[2]
    finally:
        server.close()


def test_nothing_else_is_there(server: MetricsServer) -> None:
    for path in ("/", "/metrics/", "/metrics/../etc/passwd", "/debug"):
        assert get(server, path)[0] == 404
    assert get(server, "/metrics", "POST")[0] == 405


def test_it_listens_on_loopback_only(server: MetricsServer) -> None:
    port = int(server.address.rpartition(":")[2])
    listening = subprocess.run(["cat", "/proc/net/tcp"], capture_output=True, text=True, check=True).stdout
    addresses = {line.split()[1] for line in listening.splitlines()[1:] if line.split()[3] == "0A"}
    assert f"0100007F:{port:04X}" in addresses
    assert f"00000000:{port:04X}" not in addresses


def test_metrics_are_served_on_ipv6() -> None:
    server = MetricsServer(Metrics(), "[::1]:0")
    try:
        assert server.address.startswith("[::1]:")
        assert get(server)[0] == 200
    finally:
        server.close()


def test_closed_it_lets_go_of_port_and_thread() -> None:
    before = threads()
    server = MetricsServer(Metrics(), "127.0.0.1:0")
    assert "metrics" in threads() - before
    server.close()
    wait_until(lambda: threads() <= before, "its thread ends")
    again = MetricsServer(Metrics(), server.address)
    assert again.address == server.address
    again.close()


def test_closing_waits_for_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logagent.service.metrics_server._Handler.timeout", PATIENCE_SECONDS)
    silent = MetricsServer(Metrics(), "127.0.0.1:0")
    with connect(silent) as client:
        wait_until(lambda: silent._server._open, "the client is served")
        silent.close()
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)  # it is still connected: nobody waited until it was dropped


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nX: "])
def test_idle_connections_of_any_number_keep_nobody_from_the_metrics(
    server: MetricsServer, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any local user can hold connections open, and send half a request on each. Until they are dropped for that, the
    scrape would have given up."""
    monkeypatch.setattr("logagent.service.metrics_server._Handler.timeout", 10 * PATIENCE_SECONDS)
    with ExitStack() as stack:
        for _ in range(3 * _MOST_CLIENTS):
            stack.enter_context(connect(server)).sendall(sent)
        for _ in range(3):
            assert get(server)[0] == 200


def test_clients_are_bounded_and_dropped_oldest_first(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logagent.service.metrics_server._Handler.timeout", 10 * PATIENCE_SECONDS)
    before = threading.active_count()
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(4 * _MOST_CLIENTS)]
        assert clients[0].recv(1) == b""
        wait_until(lambda: threading.active_count() <= before + _MOST_CLIENTS, "the oldest are dropped")
        assert get(server)[0] == 200


def test_clients_that_say_nothing_are_dropped(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logagent.service.metrics_server._Handler.timeout", 0.5)
    before = threading.active_count()
    with connect(server) as client, connect(server):
        assert client.recv(1) == b""
        wait_until(lambda: threading.active_count() <= before, "all are dropped")
        assert get(server)[0] == 200


def test_a_client_that_goes_away_is_no_event(server: MetricsServer, capfd: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    for _ in range(5):
        with connect(server) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert get(server)[0] == 200
    wait_until(lambda: threading.active_count() <= before, "all are dropped")
    assert capfd.readouterr().err == ""


def test_a_taken_port_is_reported(server: MetricsServer) -> None:
    with pytest.raises(LogAgentError, match=f"cannot serve metrics on {server.address}: .*in use") as raised:
        MetricsServer(Metrics(), server.address)
    assert raised.value.hint is not None


@pytest.mark.parametrize("listen", ["192.0.2.1:0", "no-such-host.invalid:0"])
def test_an_address_of_another_host_is_reported(listen: str) -> None:
    with pytest.raises(LogAgentError, match="cannot serve metrics on"):
        MetricsServer(Metrics(), listen)


# The textfile


def test_the_textfile_is_what_is_scraped_and_everybody_may_read_it(tmp_path: Path) -> None:
    metrics = Metrics()
    path = tmp_path / "logagent.prom"
    before = os.umask(0o077)
    try:
        metrics.write_textfile(str(path))
    finally:
        os.umask(before)
    names = [f.name for f in text_string_to_metric_families(path.read_text())]
    assert names == [f.name for f in text_string_to_metric_families(metrics.exposition().decode())]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["logagent.prom"]


def test_a_reader_never_sees_half_a_textfile(tmp_path: Path) -> None:
    metrics = Metrics()
    path = tmp_path / "logagent.prom"
    metrics.write_textfile(str(path))
    last = path.read_text().splitlines()[-1].split()[0]
    done = threading.Event()

    def write() -> None:
        for _ in range(100):
            metrics.write_textfile(str(path))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not done.is_set():
        text = path.read_text()
        assert text.endswith("\n")
        assert text.splitlines()[-1].split()[0] == last
        reads += 1
    writer.join()
    assert reads > 0


def test_a_full_disk_leaves_the_old_textfile(loop_fs: LoopFs) -> None:
    where = loop_fs("tmpfs", size=1 << 20)
    metrics = Metrics()
    path = where / "logagent.prom"
    metrics.write_textfile(str(path))
    old = path.read_bytes()
    with (where / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
        while True:
            filler.write(b"x" * 4096)
    metrics.observe_reload(successful=True)
    with pytest.raises(OSError, match="No space"):
        metrics.write_textfile(str(path))
    assert path.read_bytes() == old
    assert sorted(entry.name for entry in where.iterdir()) == ["filler", "logagent.prom"]


def test_a_planted_symlink_is_not_followed(tmp_path: Path) -> None:
    """The textfile's directory may belong to somebody else."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "logagent.prom.tmp").symlink_to(precious)
    Metrics().write_textfile(str(tmp_path / "logagent.prom"))
    assert precious.read_text() == "precious"
    assert sorted(entry.name for entry in tmp_path.iterdir() if not entry.is_symlink()) == ["logagent.prom", "precious"]


def test_a_kill_in_the_middle_leaves_what_the_next_one_overwrites(tmp_path: Path) -> None:
    (tmp_path / "logagent.prom.tmp").write_text("half of someth")
    Metrics().write_textfile(str(tmp_path / "logagent.prom"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["logagent.prom"]


def test_metrics_cost_a_command_nothing() -> None:
    """Commands that are run by hand do not import the daemon's libraries."""
    code = "import sys, logagent.cli, logagent.advice.scan.command; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
