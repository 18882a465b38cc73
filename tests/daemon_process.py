"""A daemon as a process of its own, for tests: its log lines as they come, and a stand-in for systemd's socket."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from logagent.base.errors import ServiceUnreachable
from logagent.service.status.command import ask_status
from tests.waiting import PATIENCE_SECONDS, wait_until

FIRST = (sys.executable, "-m", "logagent", "run", "--log-format", "json")


def log_lines(text: str) -> list[dict[str, Any]]:
    """The log lines of a daemon that writes JSON. The last one may still be on its way, and is left out then."""
    whole, _, _ = text.rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]


class DaemonProcess:
    """`logagent run` with `arguments`; a context manager that ends it. Its log lines go to a file in `folder`."""

    def __init__(
        self, folder: Path, *arguments: str | Path, command: Sequence[str] = FIRST, **environment: str
    ) -> None:
        self._log = folder / f"daemon-{len(list(folder.glob('daemon-*.log')))}.log"
        self._out = self._log.open("wb")
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LOGAGENT_METRICS__LISTEN": "", **environment},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        self._out.close()
        if error is not None:
            sys.stderr.write(self.text)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def text(self) -> str:
        return self._log.read_text()

    def events(self, event: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """The log lines so far; only those of `event` with these fields."""
        found = log_lines(self.text)
        return [
            e for e in found if event in (None, e["event"]) and all(e.get(key) == want for key, want in fields.items())
        ]

    def wait_for(self, event: str, seconds: float = PATIENCE_SECONDS, *, count: int = 1, **fields: Any) -> Any:
        """The `count`-th such event."""

        def there() -> bool:
            assert self.process.poll() is None or self.events(event, **fields), f"it ended: {self.text}"
            return len(self.events(event, **fields)) >= count

        wait_until(there, f"{event} {fields}", seconds)
        return self.events(event, **fields)[count - 1]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status, once it has ended."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)


def status_of(state_dir: Path) -> Any:
    """The status document, as soon as there is one."""

    def ask() -> Any:
        try:
            return ask_status(str(state_dir))
        except ServiceUnreachable:
            return None

    return wait_until(ask, "the status socket")


class NotifySocket:
    """What systemd would listen on. `seen`: every message so far, as fields."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.seen: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._socket.setblocking(False)

    def read(self) -> list[dict[str, str]]:
        while True:
            try:
                message = self._socket.recv(4096).decode()
            except BlockingIOError:
                return list(self.seen)
            self.seen.append(dict(line.split("=", 1) for line in message.splitlines()))

    def wait_for(self, *wanted: str, count: int = 1) -> list[dict[str, str]]:
        """All messages, once `count` of them have every field of `wanted`."""
        wait_until(lambda: sum(all(w in f for w in wanted) for f in self.read()) >= count, f"{count} of {wanted}")
        return self.read()

    def close(self) -> None:
        self._socket.close()


@contextmanager
def notify_socket() -> Iterator[NotifySocket]:
    # Not below tmp_path: addresses have room for 107 characters.
    folder = tempfile.mkdtemp(prefix="logagent-notify-")
    listening = NotifySocket(f"{folder}/notify")
    try:
        yield listening
    finally:
        listening.close()
        shutil.rmtree(folder)
