"""Plays the broker: a process that holds the lock of each log dir the way Kafka does (a POSIX record lock)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Reads stdin until it is closed, so it never outlives the demo.
_PROGRAM = """
import fcntl, sys
held = [open(f"{log_dir}/.lock", "a") for log_dir in sys.argv[1:]]
for file in held:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def broker_holds(log_dirs: list[Path]) -> Iterator[int]:
    """While this is open, another process (whose PID is the value) holds the locks of `log_dirs`."""
    command = [sys.executable, "-I", "-c", _PROGRAM, *map(str, log_dirs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            if process.stdout.readline() != b"locked\n":
                raise RuntimeError("the process that plays the broker could not lock the log dirs")
            yield process.pid
        finally:
            process.stdin.close()
            process.wait(10)
