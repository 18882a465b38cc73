"""A command in a copy of this process, which may become another user for good."""

from __future__ import annotations

import ctypes
import json
import os
import warnings

from tests.cli_host import CliHost, Ran

_CLONE_NEWNS, _CLONE_NEWPID = 0x20000, 0x20000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000


def run_in_a_copy(host: CliHost, *arguments: str, alone: bool = False) -> Ran:
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
        if libc.mount(b"proc", b"/proc", b"proc", 0, None) != 0:
            raise OSError(ctypes.get_errno(), "mount")
    return inner


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
