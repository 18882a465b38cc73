"""A terminal for tests: what a command writes to one of so many columns, stdout and stderr together."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator

from tests.forked import fork_command, wait

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def on_a_terminal(arguments: list[str], *, columns: int, apart: bool = False, **environment: str) -> str:
    """What `logagent` writes, in a fork of this process, or with `apart` in a Python of its own; an empty value takes a
    variable out of the environment."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {"TERM": "xterm-256color", "COLUMNS": "", **environment}

    def streams() -> None:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(theirs, 1)
        os.dup2(theirs, 2)

    try:
        if apart:
            with subprocess.Popen(
                [sys.executable, "-m", "logagent", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                env={k: v for k, v in {**os.environ, **environment}.items() if v},
            ):
                os.close(theirs)
                text = b"".join(_read(ours))
        else:
            pid = fork_command(arguments, prepare=streams, environment=environment)
            os.close(theirs)
            text = b"".join(_read(ours))
            wait(pid)
    finally:
        os.close(ours)
    return text.decode()


def plain(text: str) -> list[str]:
    """The lines as they stand there in the end: what a bar drew before in the same line is gone."""
    return [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in _CONTROL.sub("", text).split("\n")]


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError as e:
            assert e.errno == errno.EIO
            return
        if not piece:
            return
        yield piece
