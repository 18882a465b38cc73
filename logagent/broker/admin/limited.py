"""kafka-python's connections, with limits on what the other side may send.

`kafka.bootstrap_servers` can lead to any server: an answer of 500 MB, read completely before it was looked at, took
5 GB of memory. Until a connection is authenticated, answers are small; after that they may be as large as the metadata
of the largest clusters. kafka-python reads a socket until it is empty, which never happens with a fast sender, so that
is limited too. This uses kafka-python's private `_build_transport`, `_sock`, `_sock_recv` and `_max_frame_size`, so its
version is pinned.
"""

from __future__ import annotations

import ssl
from typing import Any

import kafka.errors as kafka_errors
from kafka.net.manager import KafkaConnectionManager

# ApiVersions and SASL handshakes take a few hundred bytes.
BEFORE_AUTHENTICATION_BYTES = 64 << 10
# 200,000 partitions with their replicas are 20 MB.
MAX_RESPONSE_BYTES = 32 << 20
_READ_BYTES = 64 << 10
_MOST_AT_ONCE = 1 << 20


class LimitedManager(KafkaConnectionManager):  # type: ignore[misc]
    """Create it with `receive_message_max_bytes` = `BEFORE_AUTHENTICATION_BYTES`."""

    def get_connection(self, node_id: Any, *args: Any, **kwargs: Any) -> Any:
        known = node_id in self._conns
        connection = super().get_connection(node_id, *args, **kwargs)
        if not known:
            connection.init_future.add_callback(lambda _: _allow_more(connection))
        return connection

    async def _build_transport(self, *args: Any, **kwargs: Any) -> Any:
        transport = await super()._build_transport(*args, **kwargs)
        transport._sock_recv = lambda: receive(transport._sock)
        return transport


def _allow_more(connection: Any) -> None:
    if connection.parser is not None:
        connection.parser._max_frame_size = MAX_RESPONSE_BYTES


def receive(sock: Any) -> tuple[bytes, Exception | None]:
    """Read what a non-blocking socket has now, up to about `_MOST_AT_ONCE` bytes; returns it and the error, if any."""
    data = bytearray()
    # Selectors do not report data that TLS has already decrypted, so it must not be left behind.
    while len(data) < _MOST_AT_ONCE or (isinstance(sock, ssl.SSLSocket) and sock.pending()):
        try:
            piece = sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            break
        except Exception as error:
            return bytes(data), kafka_errors.KafkaConnectionError(error)
        if not piece:
            return bytes(data), kafka_errors.KafkaConnectionError("socket disconnected")
        data += piece
    return bytes(data), None
