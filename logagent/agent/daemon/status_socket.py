"""The UNIX socket on which a running daemon says how it is: whoever connects gets one JSON document and the end."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from logagent.errors import ServiceUnreachable

SOCKET_NAME = "status.sock"
# Nobody who does not read keeps others waiting longer than this.
_PATIENCE_SECONDS = 2.0
_SHORTAGE_SECONDS = 0.2
_MOST_BYTES = 16 << 20


class StatusServer:
    """Answers `status()` in a thread of its own. Only the owner of the state dir (and root) may connect (mode 0600)."""

    def __init__(self, state_dir: str, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status
        self._state_dir = state_dir
        self._ending = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Before `bind`, so that it never exists with another mode.
            os.fchmod(self._socket.fileno(), 0o600)
            with _short_path(state_dir) as path:
                # Whoever starts here holds the daemon's lock: what is there is of one that was killed.
                with suppress(FileNotFoundError):
                    os.unlink(path)
                self._socket.bind(path)
            self._socket.listen(8)
        except OSError:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="logagent-status", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ending = True
        # Wakes the thread that accepts.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        # Whoever is still being answered is let go: the end waits for nobody.
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
                    # Whoever waits is still there at once.
                    time.sleep(_SHORTAGE_SECONDS)
                    continue
                return
            # A bug in one answer must not be the end of all.
            with connection, suppress(Exception):
                connection.settimeout(_PATIENCE_SECONDS)
                connection.sendall(json.dumps(self._status(), ensure_ascii=True).encode() + b"\n")


def ask_status(state_dir: str, timeout: float = 5.0) -> dict[str, Any]:
    """The status document of the daemon that uses `state_dir`, within `timeout` seconds. Raises ServiceUnreachable.

    Whoever owns the state dir may have put another socket there: the answer is read to the end or not at all, and what
    is in it is anybody's.
    """
    deadline = time.monotonic() + timeout
    try:
        document = json.loads(_answer(state_dir, deadline), parse_int=_bounded, parse_constant=_refused)
        if not isinstance(document, dict):
            raise ValueError("its answer is no status")
    except (OSError, ValueError, RecursionError) as e:
        missing = isinstance(e, FileNotFoundError | ConnectionRefusedError | NotADirectoryError)
        why = "none is running there" if missing else getattr(e, "strerror", None) or str(e) or "it did not answer"
        raise ServiceUnreachable(
            f"no daemon can be asked in {state_dir}: {why}",
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
                raise TimeoutError(errno.ETIMEDOUT, "its answer does not end")
            if len(answer) > _MOST_BYTES:
                raise ValueError("its answer is too long")
            s.settimeout(left)
    return bytes(answer)


def _bounded(digits: str) -> int:
    """Larger numbers than these count nothing, and overflow where they are shown."""
    if len(digits) > 19:
        raise ValueError("a number in its answer is too long")
    return int(digits)


def _refused(word: str) -> NoReturn:
    raise ValueError(f"a number in its answer is {word}")


@contextmanager
def _short_path(state_dir: str) -> Iterator[str]:
    """The socket's path by way of a descriptor: addresses of sockets have room for 107 characters, paths for 4096."""
    fd = os.open(state_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET_NAME}"
    finally:
        os.close(fd)
