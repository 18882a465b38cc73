"""Runs a question in a child process: as another user, or against a disk that may never answer.

A call to a hung disk cannot be ended, but its caller can stop waiting: the child is killed and left behind. A child
stuck in such a call dies before it makes another one. The asking process keeps its own identity.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from logagent.base.linux.access import READ, SEARCH, WRITE, in_words

T = TypeVar("T")
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user to switch to, with these groups."""

    uid: int
    gid: int
    groups: tuple[int, ...]


class Child:
    """A child process that answers one question in bytes. It lives from construction until `answer` or `end`.

    It takes no lock that one of our threads could hold, as long as the question takes none; with `identity` it becomes
    that user first. It dies with us. `reap_seconds`: how long `end` waits for it to exit.
    """

    def __init__(
        self, question: Callable[[], bytes], identity: Credentials | None = None, reap_seconds: float = 1.0
    ) -> None:
        self._reap_seconds = reap_seconds
        self._reader, writer = os.pipe()
        parent = os.getpid()
        try:
            with warnings.catch_warnings():
                # Newer Pythons warn of any fork beside threads.
                warnings.simplefilter("ignore", DeprecationWarning)
                self.pid = os.fork()
        except BaseException:  # the limit of processes
            os.close(self._reader)
            os.close(writer)
            raise
        if self.pid == 0:
            os.close(self._reader)
            _answer(parent, identity, question, writer)
        os.close(writer)

    def answer(self, timeout: float) -> bytes:
        """Its answer. Raises TimeoutError if nothing comes within `timeout` seconds, OSError if it ended without an
        answer. The child is ended in every case."""
        deadline = time.monotonic() + timeout
        answer = bytearray()
        try:
            while True:
                # An answer that has already arrived counts, however late it is read.
                if not select.select([self._reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    raise TimeoutError(f"no answer within {timeout:g} s")
                part = os.read(self._reader, 1 << 16)
                if not part:
                    break
                answer += part
        finally:
            self.end()
        if not answer:
            raise OSError("the child process ended without an answer")
        return bytes(answer)

    def end(self) -> None:
        os.close(self._reader)
        with suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self.pid, signal.SIGKILL)
        # A child stuck in a call to a hung disk cannot be ended; it is left behind.
        deadline = time.monotonic() + self._reap_seconds
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.005)


def ask_as(identity: Credentials | None, question: Callable[[], Any], timeout: float) -> Any:
    """What `question` returns (anything that JSON can hold) when `identity` asks it; None for ourselves. The question
    must only read: list, call `access(2)`, perhaps bind a port for a moment. Raises as `Child.answer` does."""
    return json.loads(Child(lambda: json.dumps(question(), ensure_ascii=True).encode(), identity).answer(timeout))


def work_in_child(work: Callable[[], T], timeout: float) -> T:
    """`work()` in a child: returns or raises what it does (anything that pickle can hold). Raises TimeoutError as soon
    as `timeout` is over. Only for processes without other threads."""
    result, error = pickle.loads(Child(lambda: _outcome(work), reap_seconds=0.05).answer(timeout))
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _outcome(work: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps((work(), None))
    except Exception as error:
        error.add_note("in a child process:\n" + "".join(traceback.format_exception(error)))
        return pickle.dumps((None, error))


def real_path(path: str, timeout: float) -> str | None:
    """`path` without symlinks; None if its disk does not answer in time."""
    try:
        return str(ask_as(None, lambda: os.path.realpath(path), timeout))
    except OSError:
        return None


def lacking(path: str, wants: int) -> dict[str, Any]:
    """What the asking process lacks of `wants` on `path`: {lacks, at, exists}; `lacks` is None if it lacks nothing.

    `at` is the first directory on the way, or the path itself, that is inaccessible or missing. Access control lists
    and capabilities count, because the kernel is asked. A read-only file system does not count as lacking; its mount
    options show that.
    """
    parts = path.rstrip("/").split("/")
    for end in range(1, len(parts)):
        above = "/".join(parts[:end]) or "/"
        if not os.access(above, SEARCH, effective_ids=True):
            return _closed(above, SEARCH)
    missing = sum(bit for bit in (READ, WRITE, SEARCH) if wants & bit and not _may(path, bit))
    return _closed(path, missing) if missing else {"lacks": None, "at": None, "exists": True}


def _may(path: str, bit: int) -> bool:
    return os.access(path, bit, effective_ids=True) or (bit == WRITE and _is_read_only(path))


def _is_read_only(path: str) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _closed(path: str, bits: int) -> dict[str, Any]:
    return {"lacks": in_words(bits), "at": path, "exists": os.path.lexists(path)}


def _answer(parent: int, identity: Credentials | None, question: Callable[[], bytes], writer: int) -> NoReturn:
    try:
        if identity is not None:
            os.setgroups(identity.groups)
            os.setresgid(identity.gid, identity.gid, identity.gid)
            os.setresuid(identity.uid, identity.uid, identity.uid)
        # After the change of identity, which would reset it. The parent may be dead already.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            data = question()
            while data:
                data = data[os.write(writer, data) :]
    except BaseException:
        os._exit(1)
    os._exit(0)


def unlistable(path: str, most: int) -> tuple[int, str | None]:
    """How many directories in `path` may not be emptied by the asking process, and one of them; (0, None) if that
    cannot be determined. Reads `most` names."""
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
