"""Asks questions of the system as another user would: in a child process that becomes that user, looks, and ends.

The process that asks keeps its own identity. The child changes nothing: it lists, asks `access(2)`, and may bind a port
for a moment. It is given up after a while, because a hung disk answers nothing.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

READ, WRITE, SEARCH = os.R_OK, os.W_OK, os.X_OK
_WORDS = ((READ, "read"), (WRITE, "write"), (SEARCH, "search"))


@dataclass(frozen=True, slots=True)
class Identity:
    """A user to be: with these groups."""

    uid: int
    gid: int
    groups: tuple[int, ...]


def ask_as(identity: Identity | None, question: Callable[[], Any], timeout: float) -> Any:
    """What `question` returns (anything that JSON can hold) when `identity` asks it; None for ourselves.

    Raises TimeoutError where no answer comes within `timeout` seconds, OSError where the child ended without one.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Newer Pythons warn of any fork beside threads. The child takes no lock that a thread could hold: it asks the
        # kernel, writes to a pipe, and ends without cleaning up.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.close(reader)
        _answer(identity, question, writer)
    os.close(writer)
    try:
        return _read(reader, timeout)
    finally:
        os.close(reader)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        # One that sits in a call to a hung disk cannot be ended; it is left behind.
        deadline = time.monotonic() + 1.0
        while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.005)


def real_path(path: str, timeout: float) -> str | None:
    """`path` without symlinks; None where its disk does not answer in time."""
    try:
        return str(ask_as(None, lambda: os.path.realpath(path), timeout))
    except OSError:
        return None


def lacking(path: str, wants: int) -> dict[str, Any]:
    """What the asking process lacks of `wants` on `path`: {lacks, at, exists}; `lacks` is None where it has it all.

    `at` is the first directory on the way, or the path itself, that is closed or missing. Access lists and capabilities
    count: the kernel is asked. That a file system is read-only does not count as lacking: how it is mounted tells that.
    """
    parts = path.rstrip("/").split("/")
    for end in range(1, len(parts)):
        above = "/".join(parts[:end]) or "/"
        if not os.access(above, SEARCH, effective_ids=True):
            return _closed(above, SEARCH)
    missing = [(bit, word) for bit, word in _WORDS if wants & bit and not _may(path, bit)]
    if not missing:
        return {"lacks": None, "at": None, "exists": True}
    return _closed(path, sum(bit for bit, _ in missing))


def _may(path: str, bit: int) -> bool:
    if os.access(path, bit, effective_ids=True):
        return True
    return bit == WRITE and _is_read_only(path)


def _is_read_only(path: str) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _closed(path: str, bits: int) -> dict[str, Any]:
    words = " and ".join(word for bit, word in _WORDS if bits & bit)
    return {"lacks": words, "at": path, "exists": os.path.lexists(path)}


def _answer(identity: Identity | None, question: Callable[[], Any], writer: int) -> NoReturn:
    try:
        if identity is not None:
            os.setgroups(identity.groups)
            os.setresgid(identity.gid, identity.gid, identity.gid)
            os.setresuid(identity.uid, identity.uid, identity.uid)
        data = json.dumps(question(), ensure_ascii=True).encode()
        while data:
            data = data[os.write(writer, data) :]
    except BaseException:
        os._exit(1)
    os._exit(0)


def _read(reader: int, timeout: float) -> Any:
    deadline = time.monotonic() + timeout
    answer = bytearray()
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            raise TimeoutError(f"no answer within {timeout:g} s")
        part = os.read(reader, 1 << 16)
        if not part:
            break
        answer += part
    if not answer:
        raise OSError("the child that looked ended without an answer")
    return json.loads(bytes(answer))


def unlistable(path: str, most: int) -> tuple[int, str | None]:
    """How many directories in `path` may not be emptied by the asking process, and one of them; (0, None) where it
    cannot be told. Looks at `most` names."""
    count, example = 0, None
    try:
        with os.scandir(path) as entries:
            for _, entry in zip(range(most), entries, strict=False):
                if not entry.is_dir(follow_symlinks=False):
                    continue
                if not os.access(entry.path, READ | WRITE | SEARCH, effective_ids=True) and not _is_read_only(path):
                    count, example = count + 1, example or entry.path
    except OSError:
        return 0, None
    return count, example


def readable_process(pid: int) -> str:
    """ "readable", "hidden" or "refused": what the asking process sees of the open files of `pid`."""
    try:
        numbers: Sequence[str] = os.listdir(f"/proc/{pid}/fd")
        for number in numbers[:1]:
            os.readlink(f"/proc/{pid}/fd/{number}")
        with open(f"/proc/{pid}/maps", "rb"):
            return "readable"
    except FileNotFoundError:
        return "hidden" if not os.path.exists(f"/proc/{pid}") else "readable"
    except OSError:
        return "refused" if os.path.exists(f"/proc/{pid}") else "hidden"
