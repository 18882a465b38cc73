"""`logagent run` as a process of its own, for tests of what it does while disks fail under it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from logagent.base.errors import LogAgentError
from logagent.service.status.command import ask_status
from tests.daemon_process import log_lines
from tests.waiting import PATIENCE_SECONDS, wait_until

# Everything is due at once, and a probe comes five times a second. Disks that hang have a shorter limit.
QUICK = {
    "CLEANUP__MODE": "enforce",
    "CLEANUP__INTERVAL": "500ms",
    "CLEANUP__STRAY_RETENTION": "0s",
    "CLEANUP__LEFTOVER_GRACE": "0s",
    "CLEANUP__MAX_DIRS": "1000",
    "CLEANUP__MAX_FRACTION": "1",
    "DELETE__FILE_DELETE_DELAY_MS": "0",
    "HEALTH__PROBE_INTERVAL": "200ms",
    "HEALTH__PROBE_TIMEOUT": "30s",
    "HEALTH__RECOVERY_PROBES": "2",
    "KAFKA__VERSION": "3.9.1",
    "METRICS__LISTEN": "",
}
HANGS = {"HEALTH__PROBE_TIMEOUT": "3s"}
LOGAGENT = (sys.executable, "-m", "logagent")


class DaemonProcess:
    """A running daemon; a context manager that ends it."""

    def __init__(
        self,
        root: Path,
        *arguments: str,
        settings: Mapping[str, str] | None = None,
        wait: bool = True,
        prefix: tuple[str, ...] = (),
        program: tuple[str, ...] = LOGAGENT,
    ) -> None:
        self.state = root / "state"
        self.metrics_file = root / "logagent.prom"
        self._log = root / "daemon.log"
        wanted = {**QUICK, "METRICS__TEXTFILE": str(self.metrics_file), **(settings or {})}
        environment = {**os.environ, **{f"LOGAGENT_{key}": value for key, value in wanted.items()}}
        environment["PYTHONFAULTHANDLER"] = "1"
        command = [*prefix, *program, "run", "--log-format", "json", "--state-dir", str(self.state), *arguments]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)
        if wait:
            with ExitStack() as stack:
                stack.push(self)
                wait_until(lambda: self.process.poll() is not None or bool(self.said("started")), "the daemon starts")
                assert self.process.poll() is None, self.log_text()
                stack.pop_all()

    @classmethod
    def of(cls, root: Path, *log_dirs: Path, **more: Any) -> Self:
        return cls(root, *(f"--log-dir={path}" for path in log_dirs), **more)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """If the test failed: shows where the daemon's threads are (SIGABRT and faulthandler), and its last lines."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL if kind is None else signal.SIGABRT)
        try:
            self.process.wait(PATIENCE_SECONDS)
        finally:
            if kind is not None:
                print(self.log_text()[-30_000:])

    @property
    def pid(self) -> int:
        return self.process.pid

    def log_text(self) -> str:
        return self._log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        return log_lines(self.log_text())

    def said(self, event: str, **fields: object) -> list[dict[str, Any]]:
        """The lines of this event with these fields."""
        return [
            line for line in self.lines() if line["event"] == event and all(line.get(k) == v for k, v in fields.items())
        ]

    def status(self) -> dict[str, Any]:
        """What it says over its socket; {} while it cannot be asked."""
        try:
            return ask_status(str(self.state))
        except LogAgentError:
            return {}

    def health(self) -> dict[str, str | None]:
        return {d["path"]: d["health"] for d in self.status().get("log_dirs", ())}

    def wait_health(self, *healths: tuple[Path, str]) -> None:
        """Wait until these log dirs are in these states."""
        wanted = {str(path): health for path, health in healths}
        wait_until(lambda: wanted.items() <= self.health().items(), f"{wanted}, but {self.health()}")
        assert self.process.poll() is None

    def metric(self, name: str, path: Path, **labels: str) -> float | None:
        """The value of a gauge for a log dir (and these labels), in the textfile."""
        wanted = [f'"{path}"', *(f'{label}="{value}"' for label, value in labels.items())]
        for line in self.metrics_file.read_text().splitlines():
            if line.startswith(f"{name}{{") and all(each in line for each in wanted):
                return float(line.rpartition(" ")[2])
        return None

    def reload(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def end(self) -> None:
        """End it with SIGTERM. It ends well."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE_SECONDS)
        assert status == 0, (status, self.log_text()[-3000:])

    def end_while_a_disk_hangs(self) -> None:
        """Send SIGTERM, and wait until the process has exited. The kernel may keep what is left of it: threads in a
        request that the FUSE server has already read, or that close files there on their way out. Nobody can end those
        before the disk answers."""
        self.process.send_signal(signal.SIGTERM)
        stat = Path(f"/proc/{self.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "it ends while a disk hangs")

    def open_below(self, path: Path) -> list[str]:
        """What it has open at or below `path`."""
        found = []
        directory = f"/proc/{self.pid}/fd"
        for number in os.listdir(directory):
            try:
                link = os.readlink(f"{directory}/{number}")
            except FileNotFoundError:
                continue
            if link == str(path) or link.startswith(f"{path}/"):
                found.append(link)
        return found
