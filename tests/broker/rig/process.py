"""A server process of the rig: started, looked at and ended by its process id, with its output in one file."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from tests import waiting

# PR_SET_PDEATHSIG is bound to the thread that forked, so one thread that lives as long as the test run forks them all.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kafka-rig-spawner")


class ServerDied(AssertionError):
    """A server ended (or did not answer in time) where the test needed it; the message ends with its last output."""


def wait_until(condition: Callable[[], bool], timeout: float, what: str, interval: float = 0.02) -> None:
    """Return as soon as `condition()` holds; after `timeout` seconds fail, saying `what` did not happen."""
    waiting.wait_until(condition, what, timeout, interval=interval)


class ServerProcess:
    """Starts and ends one JVM. Subclasses say what runs (`_command`) and which line means that it is ready."""

    ready_line: str

    def __init__(self, name: str, log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._run_begins = 0
        self._paused = False

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        raise NotImplementedError

    def start(self, wait: bool = True, timeout: float = 90) -> Self:
        """Start it; with `wait`, return only when it serves (and fail if it does not)."""
        self.start_async()
        if wait:
            self.wait_ready(timeout)
        return self

    def start_async(self) -> Self:
        """Start it and return at once."""
        if self.alive:
            raise AssertionError(f"{self.name} is already running as process {self.pid}")
        command = self._command()
        if shutil.which("setpriv"):
            # Nothing is left behind even if the test run itself is killed; setpriv execs, so the PID stays.
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with self.log_path.open("ab") as log:
            self._run_begins = log.tell()
            self._process = _SPAWNER.submit(
                subprocess.Popen,
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ).result()
        self._paused = False
        return self

    def wait_ready(self, timeout: float = 90) -> Self:
        """Return when the current run serves; fail with its output if it ends or takes longer."""
        self.wait_log(self.ready_line, timeout)
        return self

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the current or last run."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Exit status of the last run (negative: the signal; Java's own for SIGTERM is 143), None while it runs."""
        return None if self._process is None else self._process.poll()

    def wait_exit(self, timeout: float = 60) -> int:
        """The exit status, once it has ended by itself."""
        wait_until(lambda: not self.alive, timeout, f"{self.name} ends by itself")
        assert self._process is not None
        return self._process.wait()

    def stop(self, timeout: float = 60) -> int:
        """SIGTERM and wait for the clean end; fail if it takes longer than `timeout` (it is killed then)."""
        return self._end(signal.SIGTERM, timeout)

    def kill(self) -> int:
        """SIGKILL and wait."""
        return self._end(signal.SIGKILL, 30)

    def _end(self, number: signal.Signals, timeout: float) -> int:
        if self._process is None:
            raise AssertionError(f"{self.name} was never started")
        self.resume()
        if self.alive:
            os.kill(self.pid, number)
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.kill(self.pid, signal.SIGKILL)
            self._process.wait(30)
            raise ServerDied(f"{self.name} did not stop within {timeout:g} s\n{self.log_tail()}") from None

    def pause(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """SIGCONT after `pause()`; nothing otherwise."""
        if self._paused and self.alive:
            os.kill(self.pid, signal.SIGCONT)
        self._paused = False

    def close(self) -> None:
        """End it if it runs, without asking."""
        if self.alive:
            self.kill()

    def log_text(self, every_run: bool = False) -> str:
        """What it printed: in the current or last run, or in every run."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(0 if every_run else self._run_begins)
            return log.read().decode(errors="replace")

    def log_tail(self, lines: int = 15, width: int = 300) -> str:
        """What matters most in the current or last run's output: errors, then the last lines; long ones cut."""
        printed = self.log_text().splitlines()
        bad = [line for line in printed if " ERROR " in line or " FATAL " in line or "Exception" in line][:10]
        return "\n".join(line[:width] for line in [*bad, "...", *printed[-lines:]])

    def wait_log(self, pattern: str, timeout: float = 60) -> re.Match[str]:
        """The first match of `pattern` in what the current run printed; fail if it ends first or takes longer."""
        expression = re.compile(pattern)
        deadline = time.monotonic() + timeout
        while True:
            running = self.alive
            if found := expression.search(self.log_text()):
                return found
            if not running:
                break
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        why = f"no line like {pattern!r} within {timeout:g} s" if self.alive else f"exited {self.exit_status}"
        raise ServerDied(f"{self.name}: {why}\n{self.log_tail()}")
