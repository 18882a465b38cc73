"""What another user (the broker's, when it starts) may do with a file: judged by owner and mode, or asked by a child
that becomes the user.

Access control lists are not evaluated: if a file has one, nothing is reported as denied. Security modules and the
immutable flag are not considered either.

Which files root may trust, because only trusted users could have put them where they are. A path is walked from the
root directory, symlinks included. If a directory belongs to a trusted user and nobody else can write to it, nobody else
can swap its entries, so the next step can be taken by name.

A child also asks a disk that may never answer. A call to a hung disk cannot be ended, but its caller can stop waiting:
the child is killed and left behind. A child stuck in such a call dies before it makes another one. The asking process
keeps its own identity.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import pwd
import select
import signal
import stat
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

from logagent.base.errors import LogAgentError
from logagent.base.files.safe_open import FileLimit, read_regular
from logagent.base.records import Denied

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40


class Untrusted(LogAgentError):
    """Somebody else could have written the file, or redirected the path."""

    slug = "untrusted"


Where = Literal["nowhere", "at its end", "anywhere"]


def trusted_path(path: str, owners: Collection[int], *, others_may_write: Where = "nowhere") -> str:
    """`path` (absolute) without symlinks, if it and every directory on the way belong to `owners` and nobody else can
    write to them. `others_may_write`: "at its end" if it only matters who could have made it; "anywhere" checks the
    owners alone, for a path whose result is shown before it is used.

    Raises Untrusted that names the first offending step, or OSError (FileNotFoundError if it does not exist).
    """
    return _walk(path, owners, others_may_write)[0]


def sole_owner(path: str) -> int:
    """The one user besides root who owns `path` or anything on the way to it, and so may change it; else 0.

    Raises Untrusted if there are two of them or if others can write, or OSError.
    """
    others = _walk(path, None, "nowhere")[1] - {0}
    if len(others) > 1:
        raise Untrusted(f"{path}: users {', '.join(map(str, sorted(others)))} can all change it", hint=_HINT)
    return next(iter(others), 0)


def _walk(path: str, owners: Collection[int] | None, others_may_write: Where) -> tuple[str, set[int]]:
    """The path without symlinks, and the owners of everything on the way. `owners` None: any owner is accepted."""
    if not path.startswith("/") or any(ord(c) < 32 or ord(c) == 127 for c in path):
        raise Untrusted(f"{path}: not a plain absolute path")
    trail: list[str] = []
    rest = deque(path.split("/"))
    seen = {_check("/", owners, others_may_write == "anywhere").st_uid}
    links = 0
    while rest:
        name = rest.popleft()
        if name in ("", ".", ".."):
            trail = trail[:-1] if name == ".." else trail
            continue
        step = "/" + "/".join([*trail, name])
        loose = others_may_write == "anywhere" or (others_may_write == "at its end" and _is_kept(step, rest))
        status = _check(step, owners, loose)
        seen.add(status.st_uid)
        if not stat.S_ISLNK(status.st_mode):
            trail.append(name)
            continue
        links += 1
        if links > _MOST_LINKS:
            raise Untrusted(f"{path}: too many symlinks")
        target = os.readlink(step)
        trail = [] if target.startswith("/") else trail
        rest.extendleft(reversed(target.split("/")))
    return "/" + "/".join(trail), seen


def _is_kept(step: str, rest: Iterable[str]) -> bool:
    """Whether the path ends here, or others may write here but cannot have made or swapped its next step: that is
    root's, in a sticky directory such as /tmp."""
    name = next(filter(None, rest), None)
    if name is None:
        return True
    sticky = os.lstat(step).st_mode & stat.S_ISVTX
    return bool(sticky) and name not in (".", "..") and os.lstat(f"{step}/{name}").st_uid == 0


def read_trusted(path: str, limit: FileLimit, owners: Collection[int]) -> bytes:
    """The content of `path` if `trusted_path` accepts it. Raises as that does, and as `read_regular`."""
    return read_regular(trusted_path(path, owners), limit)


_HINT = "make root (or the broker's user) its owner, and let nobody else write to it or the directories above it"


def _check(path: str, owners: Collection[int] | None, may_be_writable: bool) -> os.stat_result:
    status = os.lstat(path)
    if owners is not None and status.st_uid not in owners:
        raise Untrusted(f"{path} belongs to user {status.st_uid}", hint=_HINT)
    # The mode of a symlink is always 0777 and means nothing.
    if status.st_mode & _WRITABLE_BY_OTHERS and not (may_be_writable or stat.S_ISLNK(status.st_mode)):
        raise Untrusted(f"{path} can be written by others (mode {stat.S_IMODE(status.st_mode):04o})", hint=_HINT)
    return status


READ, WRITE, SEARCH = os.R_OK, os.W_OK, os.X_OK
_WORDS = ((READ, "read"), (WRITE, "write"), (SEARCH, "search"))
_CAP_DAC_OVERRIDE = 1 << 1
_CAP_FOWNER = 1 << 3
_ACL = "system.posix_acl_access"


@dataclass(frozen=True, slots=True)
class User:
    """A user and its groups. `privileged`: owner and mode do not apply to it (root, with CAP_DAC_OVERRIDE).

    `known_by` says how we know that it is the broker's.
    """

    uid: int
    gids: frozenset[int]
    privileged: bool
    name: str
    known_by: str

    def lacks(self, status: os.stat_result, wants: int) -> int:
        """The bits of `wants` that the owner and mode in `status` do not grant this user."""
        if self.privileged:
            return 0
        if status.st_uid == self.uid:
            given = status.st_mode >> 6
        elif status.st_gid in self.gids:
            given = status.st_mode >> 3
        else:
            given = status.st_mode
        return wants & ~given


def user_named(text: str) -> User:
    """The user with this name or number, and its groups on this host. Raises LookupError."""
    if text.isdecimal():
        return _user(int(text), (), "--broker-user")
    try:
        return _user(pwd.getpwnam(text).pw_uid, (), "--broker-user")
    except KeyError:
        raise LookupError(f"there is no user {text!r} on this host") from None


def owner_of(status: os.stat_result, path: str) -> User:
    """The user that owns `path`, the best guess while no broker runs."""
    return _user(status.st_uid, (status.st_gid,), f"owner of {path}")


def _user(uid: int, gids: Iterable[int], known_by: str) -> User:
    """`gids`: those of a user that this host does not know."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return User(uid, frozenset(gids), uid == 0, str(uid), known_by)
    return User(uid, frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid)), uid == 0, entry.pw_name, known_by)


def user_of_process(pid: int) -> User | None:
    """The effective user of a running broker; None if it cannot be read."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        uid, gid = int(fields["Uid"].split()[1]), int(fields["Gid"].split()[1])
        gids = frozenset((gid, *map(int, fields["Groups"].split())))
        privileged = bool(int(fields["CapEff"], 16) & _CAP_DAC_OVERRIDE)
    except (OSError, KeyError, ValueError):
        return None
    return User(uid, gids, privileged, user_name(uid), f"process {pid}")


def may_as_any_owner() -> bool:
    """Whether we may do with every file what only its owner may (CAP_FOWNER)."""
    try:
        with open("/proc/thread-self/status", encoding="utf-8", errors="replace") as file:
            bits = next(line.split()[1] for line in file if line.startswith("CapEff:"))
        return bool(int(bits, 16) & _CAP_FOWNER)
    except (OSError, StopIteration, ValueError):
        return os.geteuid() == 0


def denied(user: User, dir_fd: int, name: str, path: str, status: os.stat_result, wants: int) -> Iterator[Denied]:
    """What `user` lacks on `name` in `dir_fd`, unless an access control list may grant it."""
    lacks = user.lacks(status, wants)
    if lacks and not _has_acl(dir_fd, name):
        yield Denied(path, in_words(lacks), status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))


def in_words(bits: int) -> str:
    """ "read and write"."""
    return " and ".join(word for bit, word in _WORDS if bits & bit)


def user_name(uid: int) -> str:
    """The name of a user, or the number where this host has none for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _has_acl(dir_fd: int, name: str) -> bool:
    try:
        return bool(os.getxattr(f"/proc/self/fd/{dir_fd}/{name}", _ACL))
    except OSError:
        return False


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
    return os.access(path, bit, effective_ids=True) or (bit == WRITE and is_read_only(path))


def is_read_only(path: str) -> bool:
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
                if not os.access(entry.path, READ | WRITE | SEARCH, effective_ids=True) and not is_read_only(path):
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
