"""Streams that are closed, full, or that nobody reads any more: what a command does never depends on them.

stderr swallows what cannot be written. stdout does not: a command that only prints has nothing else to do then, and
ends; one that acts says on stderr what was done.
"""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Stderr(io.FileIO):
    """Under every buffer, so that nothing is left there that makes Python end with 120. Where it is full and does not
    block (whoever shares it has set O_NONBLOCK), it waits for its reader all the same: a refusal is not lost."""

    def write(self, data: ReadableBuffer) -> int:
        with suppress(OSError):
            while (written := super().write(data)) is None:
                select.select((), (self,), ())
            return written
        return memoryview(data).nbytes


def secure_streams() -> None:
    """Once for a process, before it opens anything. Descriptors 0 to 2 that are closed (`>&-`) become /dev/null: no
    file of a log dir may get such a number, and be written to in place of a stream."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest one that is free: this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    encoding = sys.stderr.encoding if sys.stderr is not None else "utf-8"
    raw = io.BufferedWriter(_Stderr(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace", line_buffering=True)


def forget_stdout() -> None:
    """Discard what is still buffered for stdout: it cannot be written."""
    with suppress(OSError):  # a test's stdout has no descriptor, and then nothing is buffered for one
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def said_on_stderr(say: Callable[[str], None], done: str) -> Iterator[None]:
    """For what is printed once something was done: where stdout cannot be written, `done` is said on stderr. Raises the
    OSError all the same."""
    try:
        yield
        sys.stdout.flush()
    except OSError:
        say(done)
        raise


@contextmanager
def whoever_reads(say: Callable[[str], None], failed: Callable[[], None] = lambda: None) -> Iterator[None]:
    """For what is printed while there is still something to do, or where the exit status says more: where stdout cannot
    be written, that is said, and the command goes on; `failed` is called unless it is only that nobody reads it."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        forget_stdout()
        if not isinstance(error, BrokenPipeError):
            say(f"stdout cannot be written: {error.strerror}")
            failed()
