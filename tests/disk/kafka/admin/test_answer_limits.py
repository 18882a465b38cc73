"""What listens at `kafka.bootstrap_servers` may be anybody: it cannot make us take more than a fair answer."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

ASK = """
import json, resource, sys
from logagent.kafka.admin.client import AdminClient, cluster_request
from logagent.base.errors import ServiceUnreachable
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    with AdminClient(sys.argv[1], {}, timeout=5.0) as client:
        client.send(cluster_request)
    said = None
except ServiceUnreachable as e:
    said = str(e)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"said": said, "grown": grown * 1024}))
"""
HUGE = 500 << 20
API_VERSIONS = 18


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def api_versions(correlation: int) -> bytes:
    """Version 3 and later: every request of the client, in all of its first versions."""
    keys = b"".join(struct.pack(">hhhB", key, 0, 12, 0) for key in range(70))
    return frame(struct.pack(">ihB", correlation, 0, 71) + keys + struct.pack(">iB", 0, 0))


@contextmanager
def stranger(polite: bool) -> Iterator[tuple[str, list[int]]]:
    """A listener whose answer has 500 MB: the first one, or (`polite`) the first after the greeting. Gives its address
    and what it could send on each connection."""
    sent: list[int] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        sent.append(0)
        me = len(sent) - 1
        with connection, suppress(OSError, struct.error):
            while True:
                (length,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                request = connection.recv(length, socket.MSG_WAITALL)
                key, _, correlation = struct.unpack(">hhi", request[:8])
                if polite and key == API_VERSIONS:
                    connection.sendall(api_versions(correlation))
                    continue
                connection.sendall(struct.pack(">ii", HUGE, correlation))
                block = b"\0" * (1 << 20)
                for _ in range(HUGE // len(block)):
                    connection.sendall(block)
                    sent[me] += len(block)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}", sent
    finally:
        server.close()


@pytest.mark.parametrize("polite", [False, True])
def test_an_answer_of_500_mb_costs_next_to_nothing(polite: bool) -> None:
    with stranger(polite) as (address, sent):
        done = subprocess.run(
            [sys.executable, "-c", ASK, address], capture_output=True, text=True, timeout=600, check=True
        )
    found = json.loads(done.stdout)
    assert found["said"] is not None
    assert found["grown"] < 60_000_000
    assert sent and max(sent) < 40 << 20, "it was hung up on"
    assert "Traceback" not in done.stderr


def test_a_socket_is_read_in_pieces_however_fast_it_is_filled() -> None:
    from logagent.kafka.admin.client import receive

    class Endless:
        def recv(self, size: int) -> bytes:
            return b"\0" * size

    data, error = receive(Endless())
    assert len(data) == 1 << 20 and error is None
