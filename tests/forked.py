"""A command in a fork of this process: with descriptors, an environment and an exit of its own, at a tenth of what it
costs to start Python and import the product. What the start itself does is for `run_apart` to show."""

from __future__ import annotations

import gc
import importlib
import io
import os
import pkgutil
import resource
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import logagent
from logagent.__main__ import main
from tests.command_line import Ran

# Nothing takes a tenth of that.
_PATIENCE = 300.0


@cache
def import_product() -> None:
    """Else each fork imports for itself what no command in this process needed before (but for `fleet`: pyspark)."""
    for module in pkgutil.walk_packages(logagent.__path__, "logagent."):
        if not module.name.startswith(("logagent.fleet", "logagent.__main__")):
            importlib.import_module(module.name)


def fork_command(
    arguments: Sequence[str], *, prepare: Callable[[], object], environment: Mapping[str, str] | None = None
) -> int:
    """Start `logagent` with these arguments; its pid. `prepare` is called first, in the fork, and sets its descriptors
    up. Variables that are empty in `environment` are taken away."""
    import_product()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        # Nothing that is garbage here may close a file of the command's later, and collecting would copy all there is.
        gc.freeze()
        prepare()
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        for name, value in (environment or {}).items():
            if value:
                os.environ[name] = value
            else:
                os.environ.pop(name, None)
        sys.argv = ["logagent", *arguments]
        sys.stdin, sys.stdout, sys.stderr = _stream(0, "r"), _stream(1, "w"), _stream(2, "w")
        status = _end(main)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def _stream(fd: int, mode: str) -> Any:
    """As Python starts with it: none where the descriptor is closed."""
    try:
        raw = io.FileIO(fd, mode, closefd=False)
    except OSError:
        return None
    buffered = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    errors = "backslashreplace" if fd == 2 else "strict"
    return io.TextIOWrapper(buffered, encoding="utf-8", errors=errors, line_buffering=fd == 2 or raw.isatty())


def _end(command: Callable[[], None]) -> int:
    """The status with which Python would end."""
    status = 0
    try:
        command()
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            status = 120
    return status


def wait(pid: int) -> int:
    """Its exit status, once it has ended."""
    ended = os.pidfd_open(pid)
    try:
        if not select.select([ended], [], [], _PATIENCE)[0]:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(ended)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_forked(
    *arguments: str,
    stdin: bytes | None = None,
    prepare: Callable[[], object] = lambda: None,
    environment: Mapping[str, str] | None = None,
) -> Ran:
    """The command line in a fork. Its stdout and stderr are read unless `prepare` leads them elsewhere."""
    out, err = os.memfd_create("stdout"), os.memfd_create("stderr")
    given = os.open(os.devnull, os.O_RDONLY) if stdin is None else os.memfd_create("stdin")

    def streams() -> None:
        for number, fd in enumerate((given, out, err)):
            os.dup2(fd, number)
        prepare()

    try:
        if stdin is not None:
            os.pwrite(given, stdin, 0)
        status = wait(fork_command(arguments, prepare=streams, environment=environment))
        return Ran(status, *(os.pread(fd, os.fstat(fd).st_size, 0).decode() for fd in (out, err)))
    finally:
        for fd in (given, out, err):
            os.close(fd)
