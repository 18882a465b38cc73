"""A command in a copy of this process, which may become another user for good."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import warnings
from itertools import pairwise
from pathlib import Path

from tests.command_line import Ran
from tests.host import Host

_CLONE_NEWNS, _CLONE_NEWPID = 0x20000, 0x20000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000


def run_in_a_copy(host: Host, *arguments: str, alone: bool = False) -> Ran:
    """`alone`: its `/proc` shows no process but this one, as that of a host does where nobody else uses the disks."""
    reader, writer = os.pipe()
    if (child := _fork()) == 0:
        try:
            if alone and (inner := _with_its_own_proc()) != 0:
                os.waitpid(inner, 0)
            else:
                ran = host.run(*arguments)
                with os.fdopen(writer, "wb") as pipe:
                    pipe.write(json.dumps([ran.status, ran.out, ran.err]).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return Ran(*json.loads(answer))


def _with_its_own_proc() -> int:
    """Goes on twice, as after a fork: 0 in a process that is alone in its namespaces."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS | _CLONE_NEWPID) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    inner = _fork()
    if inner == 0:
        libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
        _mount(libc, b"proc", b"/proc", b"proc")
        _open_python(libc)
    return inner


def _open_python(libc: ctypes.CDLL) -> None:
    """Only root reads root's home, where Python may live; whoever this process becomes has to read it."""
    whole = [*Path(sys.executable).resolve().parents][::-1]
    for closed, below in pairwise(whole):
        if closed.stat().st_mode & 0o055 != 0o055:
            fd = os.open(below, os.O_PATH)
            _mount(libc, b"tmpfs", bytes(closed), b"tmpfs", b"mode=755")
            below.mkdir()
            _mount(libc, f"/proc/self/fd/{fd}".encode(), bytes(below), None, flags=_MS_BIND)
            os.close(fd)


def _mount(
    libc: ctypes.CDLL, what: bytes, where: bytes, kind: bytes | None, options: bytes | None = None, flags: int = 0
) -> None:
    if libc.mount(what, where, kind, flags, options) != 0:
        raise OSError(ctypes.get_errno(), "mount", where)


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
