"""The product's commands under strace, as processes of their own that are forked from one that has imported it.

A process that is started anew takes half a second of a core until all is imported, under strace twice that; a forked
one a hundredth. It has an environment, output and an end of its own like any other, and can be killed.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

from pydantic import TypeAdapter

from logagent.base.config.settings import Settings
from logagent.cli import main
from tests.forked import import_product

LIMIT_SECONDS = 300
# Yama lets only ancestors trace a process, if it does not say otherwise itself.
_PR_SET_PTRACER, _PTRACER_ANY = 0x59616D61, -1
_ATTACHED = re.compile(r"^strace: Process \d+ attached\n", re.MULTILINE)


def traced(
    arguments: Sequence[str], environment: Mapping[str, str], *options: str, alone: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run `logagent` with these arguments under `strace -f` with these options, from its first call on.

    `alone` (as root): it sees no other processes, and no file system that was mounted since the first of these runs."""
    request = {"arguments": list(arguments), "environment": dict(environment), "options": options}
    server = _server(alone and os.geteuid() == 0)
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    line = server.stdout.readline()
    assert line, "the process that forks has ended"
    answer = json.loads(line)
    assert "problem" not in answer, answer["problem"]
    return subprocess.CompletedProcess(["logagent", *arguments], answer["status"], answer["out"], answer["err"])


@cache
def _server(alone: bool) -> subprocess.Popen[str]:
    # Every command inspects all processes, and each look is a call that strace stops at.
    apart = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"] if alone else []
    process = subprocess.Popen(
        [*apart, sys.executable, "-c", "from tests.traced import serve; serve()"],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(process.communicate)
    return process


# In the process that forks


def serve() -> None:
    import_product()
    TypeAdapter(Settings)  # or each child looks for pydantic's plugins among all packages
    gc.collect()
    gc.freeze()
    # Nothing that is forked here writes to whoever asks.
    answers = os.fdopen(os.dup(1), "w")
    requests = os.fdopen(os.dup(0))
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    for line in requests:
        request = json.loads(line)
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            released, release = os.pipe()
            pid = os.fork()
            if not pid:
                os.close(release)
                _work(released, out, err, request)
            os.close(released)
            answer = _traced(pid, release, request["options"])
            for name, file in (("out", out), ("err", err)):
                file.seek(0)
                answer[name] = file.read() + answer.get(name, "")
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _work(released: int, out: IO[str], err: IO[str], request: Mapping[str, Any]) -> NoReturn:
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _PTRACER_ANY)
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.read(released, 1)
    os.close(released)
    main(request["arguments"])
    raise SystemExit("main returned")


def _traced(pid: int, release: int, options: Sequence[str]) -> dict[str, Any]:
    """Attach strace to the forked process, let it go, and wait for both."""
    command = ["strace", "-f", "--quiet=personality,exit", "-p", str(pid), *options]
    # Unbuffered: after its first line the rest is read by communicate().
    strace = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0)
    assert strace.stderr is not None
    first = strace.stderr.readline()
    os.write(release, b"x")
    os.close(release)
    try:
        said = (first + strace.communicate(timeout=LIMIT_SECONDS)[1]).decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.kill(pid, 9)
        said = f"{strace.communicate()[1].decode(errors='replace')}\nnot ended after {LIMIT_SECONDS} s"
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not _ATTACHED.match(said) or "not ended after" in said:
        return {"problem": said}
    return {"status": status, "err": _ATTACHED.sub("", said)}
