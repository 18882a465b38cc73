"""Runs commands of one checkout quickly: everything is imported once, and each command is a fork of that.

A program of its own (`python forks.py CHECKOUT`), started by `tests.frozen.hosts`. One JSON line a request on stdin
(`arguments`, `cwd`, `environment`, and files for stdin, stdout and stderr), one line with the exit status back.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import sys
import threading
import traceback
from typing import NoReturn


def _preload(checkout: str) -> None:
    package = importlib.import_module("logagent")
    where = os.path.realpath(str(package.__file__))
    assert where.startswith(os.path.realpath(checkout) + os.sep), f"{where} is not below {checkout}"
    for module in pkgutil.walk_packages(package.__path__, "logagent.", onerror=lambda _: None):
        # Spark is started by its own commands; `__main__` runs at import.
        if "fleet" not in module.name and not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def _become(request: dict[str, object]) -> None:
    """The command: its files, environment and arguments. What follows is what `python -m logagent` does."""
    for number, name, flags in (
        (0, "stdin", os.O_RDONLY),
        (1, "stdout", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, "stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        fd = os.open(str(request[name]), flags, 0o600)
        os.dup2(fd, number)
        os.close(fd)
    environment, arguments = request["environment"], request["arguments"]
    assert isinstance(environment, dict) and isinstance(arguments, list)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(request["cwd"]))
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv[1:] = arguments


def _run() -> NoReturn:
    """The command, and what the interpreter does at its end, without taking apart what was imported."""
    status: object = 0
    try:
        runpy.run_module("logagent", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


def main() -> None:
    _preload(sys.argv[1])
    gc.collect()
    gc.freeze()
    requests, answers = os.dup(0), os.dup(1)
    with open(requests, encoding="utf-8", closefd=False) as lines:
        for line in iter(lines.readline, ""):
            pid = os.fork()
            if pid == 0:
                os.close(requests)
                os.close(answers)
                _become(json.loads(line))
                _run()
            _, status = os.waitpid(pid, 0)
            os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
