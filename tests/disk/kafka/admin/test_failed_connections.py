"""A broker that is down is tried for days: no attempt may cost a descriptor."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from logagent.base.errors import ServiceUnreachable
from logagent.kafka.admin.client import AdminClient

# A reserved port, on which nothing listens.
REFUSED = "127.0.0.1:1,[::1]:1"


@contextmanager
def listener(answer: bytes | None) -> Iterator[str]:
    """Accepts, says `answer` and closes the connection; None: never accepts."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.sendall(answer or b"")

        if answer is not None:
            threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize("answer", ["refused", "silent", "closed", "nonsense"])
def test_a_connection_that_fails_is_closed(answer: str, protocol: str) -> None:
    """Without the garbage collector: what it would find later was open until then."""
    content = {"closed": b"", "nonsense": b"x" * 100}.get(answer)
    with listener(content) as address, pytest.MonkeyPatch.context() as patch:
        opened: list[socket.socket] = []
        make = socket.socket.__init__

        def remember(self: socket.socket, *args: object, **kwargs: object) -> None:
            make(self, *args, **kwargs)  # type: ignore[arg-type]
            if threading.current_thread().name.startswith("kafka-io"):
                opened.append(self)

        patch.setattr(socket.socket, "__init__", remember)
        gc.disable()
        try:
            for timeout in (0.3, 3, 30):  # on a busy machine nothing may be opened within the first
                with (
                    pytest.raises(ServiceUnreachable),
                    AdminClient(
                        REFUSED if answer == "refused" else address, {"security_protocol": protocol}, timeout=timeout
                    ) as client,
                ):
                    client.connect()
                if opened:
                    break
        finally:
            gc.enable()
        mine = [s for s in opened if s.fileno() != -1]
    assert opened
    assert not mine
