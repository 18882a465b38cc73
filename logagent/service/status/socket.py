"""The UNIX socket of a running daemon: each connection gets its status as one JSON document and is closed."""

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

from logagent.base.errors import ServiceUnreachable
from logagent.base.files.safe_open import bounded, parse_json

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
