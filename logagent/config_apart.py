"""Loads the configuration in a process of its own: what validates it (pydantic, 9 MB) does not stay in a daemon that
runs for months."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Mapping

from logagent.config import Loaded, load
from logagent.errors import ConfigError


def load_apart(path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] = os.environ) -> Loaded:
    """As `logagent.config.load`, errors included.

    Where there are threads already (a fork would copy the locks that they hold), and where that process fails, it is
    done here.
    """
    if threading.active_count() > 1:
        return load(path, environ)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(write, path, environ)
    os.close(write)
    with open(read, "rb") as answered:
        content = answered.read()
    if os.waitpid(child, 0)[1] != 0:
        return load(path, environ)
    answer = pickle.loads(content)
    if isinstance(answer, ConfigError):
        raise answer
    assert isinstance(answer, Loaded)
    return answer


def _answer(write: int, path: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> None:
    """In the child: nothing of the parent's (buffers, handlers at exit) is run twice."""
    status = 1
    try:
        with open(write, "wb") as out:
            try:
                pickle.dump(load(path, environ), out)
            except ConfigError as e:
                pickle.dump(e, out)
        status = 0
    finally:
        os._exit(status)
