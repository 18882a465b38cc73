"""The command line under test, in this process or in one of its own; and processes that stand beside it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logagent.cli import run


@dataclass(frozen=True)
class Ran:
    """What a command left: exit status, stdout and stderr."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout; a ValueError where there is anything else."""
        return json.loads(self.out)

    def guards(self) -> dict[str, str]:
        """Guard by directory name of each refusal; each has to say fact and hint."""
        refusals = self.json["refusals"]
        assert all(r["fact"] and r["hint"] for r in refusals), refusals
        return {r["name"]: r["guard"] for r in refusals}

    @property
    def deeds(self) -> list[Any]:
        """The actions on directories (what leaves the checkpoints with them is listed beside them)."""
        return [a for a in self.json["actions"] if a["action"] != "drop-checkpoint-entry"]

    def outcomes(self) -> dict[str, str]:
        """Outcome by directory name of each action on a directory."""
        return {a["name"]: a["outcome"] for a in self.deeds}


def run_here(*arguments: str) -> Ran:
    """The command line in this process. stdout is strict UTF-8: a name that cannot be printed is an error."""
    raw_out, raw_err = io.BytesIO(), io.BytesIO()
    out = io.TextIOWrapper(raw_out, encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(raw_err, encoding="utf-8", errors="backslashreplace", write_through=True)
    with redirect_stdout(out), redirect_stderr(err):
        status = run(arguments)
    return Ran(status, raw_out.getvalue().decode(), raw_err.getvalue().decode())


def run_apart(*arguments: str, stdin: str | None = None, **environment: str) -> Ran:
    """The command line in a process of its own, with `environment` over this one's."""
    done = subprocess.run(
        [sys.executable, "-m", "logagent", *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment},
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


LOCKER = """
import fcntl, os, sys
files = [open(f"{d}/.lock", "a") for d in sys.argv[1:]]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def process(source: str, *arguments: str | Path) -> Iterator[int]:
    """A process of this Python program, which has said "ready"; it ends with the end of its stdin."""
    command = [sys.executable, "-c", source, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        try:
            yield running.pid
        finally:
            running.stdin.close()
            running.wait(200)
