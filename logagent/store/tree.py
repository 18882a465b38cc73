"""The fleet store on a mounted path (`shared.SharedStore`). Everything below its root is opened by `dir_fd` without
following symlinks.

The root itself is chosen by the operator and may be a symlink. Below it, any host that can write to the store may have
put anything: a symlink to a log dir, a FIFO, a name that means something to a shell. No symlink is followed, and
nothing is removed that was not listed as a regular file of ours.

Modes are set explicitly, so that hosts with different user ids and umasks can share a store: every directory gets the
permission bits of the root; files get its read bits and are writable by their owner only. What others may write to is
sticky, as `/tmp` is: 3770 with a common group, or 1777. Else whoever may write could rename what is others'. A node's
own folders are for its agent's user alone. The control folder is closed in either case: whoever makes it shares it with
their own primary group and with nobody else (`KEY_HOLDERS`).
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import IO, NamedTuple, Self

from logagent.base.errors import UnreadableError
from logagent.base.files import safe_open as dir_walk
from logagent.base.files.safe_open import (
    PART,
    FileLimit,
    create_file,
    fsync_directory,
    opened_regular,
    read_open,
    whole_file,
)
from logagent.store.contract import as_node, is_plain

MARKER = ".logagent-store"
MARKER_CONTENT = json.dumps({"schema": "logagent.store/1"}).encode() + b"\n"
LANDING, ANSWERS = "landing", "answers"
MAX_LISTED = 10_000_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
KEY_HOLDERS = 0o2775
"""The mode of the control folder. Its group is that of who made it: never the group that all hosts share."""
# A symlink or a socket under one of our names: the file is bad. Other errors may be the store's.
_NO_FILE_OF_OURS = (errno.ELOOP, errno.ENXIO)
_COPY = 1 << 18


Stamp = tuple[int, float]
"""Of a folder: changes when a file in it is created or removed. The second value is when, in seconds since 1970."""


class StoredFile(NamedTuple):
    """A regular file; `modified` in seconds since 1970, by the store's clock."""

    name: str
    bytes: int
    modified: float


def closed_mode(bits: int) -> int:
    """The mode of a folder that others may write to, so that they cannot rename or remove what is not theirs there;
    with a common group, what is made there is the group's too."""
    if not bits & 0o022:
        return bits
    return bits | stat.S_ISVTX | (0 if bits & 0o002 else stat.S_ISGID)


class StoreTree:
    """An open store. Use it in a `with` block; methods raise OSError and take names, not paths."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self.fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        bits = stat.S_IMODE(os.fstat(self.fd).st_mode)
        self.directory_mode = closed_mode(bits | stat.S_IRWXU)
        self.shared_group = os.fstat(self.fd).st_gid if bits & 0o020 else None
        self.file_mode = (bits & 0o444) | stat.S_IRUSR | stat.S_IWUSR

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    @contextmanager
    def directory(self, names: Sequence[str], *, create: bool = False, keyed: bool = False) -> Iterator[int]:
        """A descriptor of the directory `names` below the root. ELOOP or ENOTDIR if a symlink is in the way. `keyed`:
        what is created is for key holders only."""
        with ExitStack() as stack:
            here = self.fd
            for depth, name in enumerate(names):
                here = self._enter(here, names[: depth + 1], keyed=keyed) if create else self._open(here, name)
                stack.callback(os.close, here)
            yield here

    def _open(self, parent: int, name: str) -> int:
        return os.open(name, _DIRECTORY, dir_fd=parent)

    def _enter(self, parent: int, names: Sequence[str], *, keyed: bool) -> int:
        top, name = names[0], names[-1]
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
            made = os.open(name, _DIRECTORY, dir_fd=parent)
            try:
                # Independent of the umask: the next host has another user id.
                mode = self.directory_mode
                if top in (LANDING, ANSWERS) and len(names) > 2 and as_node(name) is not None:
                    mode &= ~0o022  # nobody but its node's agent has anything to write there
                if keyed and len(names) == 1:
                    with suppress(PermissionError):  # an export that squashes users has one group for all of them
                        os.fchown(made, -1, os.getegid())
                if keyed:
                    mode = KEY_HOLDERS if os.fstat(made).st_gid != self.shared_group else KEY_HOLDERS & ~0o2020
                os.fchmod(made, mode)
            finally:
                os.close(made)
            fsync_directory(parent)
        return self._open(parent, name)

    def create_new(self, names: Sequence[str], content: bytes, *, keyed: bool = False) -> bool:
        *above, name = names
        with self.directory(above, create=True, keyed=keyed) as parent:
            return create_file(name, content, dir_fd=parent, mode=0o644 if keyed else self.file_mode)

    def put(
        self,
        names: Sequence[str],
        source: IO[bytes],
        beat: Callable[[], None] = lambda: None,
        *,
        keyed: bool = False,
    ) -> None:
        *above, name = names
        mode = 0o644 if keyed else self.file_mode
        with (
            self.directory(above, create=True, keyed=keyed) as parent,
            whole_file(name, dir_fd=parent, mode=mode) as target,
        ):
            while piece := source.read(_COPY):
                beat()
                target.write(piece)

    def open_to_others(self, names: Sequence[str]) -> tuple[str, str] | None:
        path, group = quote(str(self.root.joinpath(*names))), os.getegid()
        closed = f"chmod 755 {path}" if group == self.shared_group else f"chgrp {group} {path} && chmod 2775 {path}"
        with suppress(FileNotFoundError), self.directory(names) as fd:
            status = os.fstat(fd)
            if status.st_mode & 0o002:
                return f"everybody may write to it (mode {stat.S_IMODE(status.st_mode):o})", closed
            if status.st_mode & 0o020 and status.st_gid == self.shared_group:
                return f"the group that the whole store is shared with may write to it (group {status.st_gid})", closed
            # Nothing keeps root out of what somebody made before a key holder came.
            if os.geteuid() == 0 and status.st_uid not in (0, os.fstat(self.fd).st_uid) and self._makes_files_of() == 0:
                return f"it belongs to user {status.st_uid}", f"chown root {path}"
        return None

    def _makes_files_of(self) -> int:
        """The user that our files belong to here: an export may squash root to another."""
        name = f".{os.urandom(16).hex()}{PART}"
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.fd)
        try:
            return os.fstat(fd).st_uid
        finally:
            os.close(fd)
            os.unlink(name, dir_fd=self.fd)

    def read(self, names: Sequence[str], limit: FileLimit) -> bytes:
        return self.read_owned(names, limit)[0]

    def read_owned(self, names: Sequence[str], limit: FileLimit) -> tuple[bytes, frozenset[int]]:
        *above, name = names
        with self.directory(above) as parent:
            try:
                with opened_regular(name, limit, dir_fd=parent) as fd:
                    return read_open(fd, name, limit), frozenset((os.fstat(fd).st_uid, os.fstat(parent).st_uid))
            except OSError as error:
                if error.errno in _NO_FILE_OF_OURS:
                    raise UnreadableError(f"{name} is not a regular file") from error
                raise

    def owner(self, folder: Sequence[str]) -> int | None:
        with self.directory(folder) as fd:
            return os.fstat(fd).st_uid

    def exists(self, names: Sequence[str]) -> bool:
        *above, name = names
        with suppress(FileNotFoundError), self.directory(above) as parent:
            os.stat(name, dir_fd=parent, follow_symlinks=False)
            return True
        return False

    def modified(self, names: Sequence[str]) -> float:
        *above, name = names
        with self.directory(above) as parent:
            return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mtime

    def open_file(self, names: Sequence[str]) -> IO[bytes]:
        """Open a regular file below the root for reading. Raises OSError for any other kind; a FIFO does not block."""
        *above, name = names
        with self.directory(above) as parent:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "not a plain file", "/".join(names))
        return open(fd, "rb", buffering=0)

    def entries(self, names: Sequence[str], most: int = MAX_LISTED) -> list[tuple[str, os.stat_result]]:
        """Names and `lstat` results of a directory, sorted; entries that vanish meanwhile are left out. Raises
        UnreadableError if there are more than `most`."""
        with self.directory(names) as fd:
            return dir_walk.entries(fd, most)

    def files(self, names: Sequence[str], most: int = MAX_LISTED) -> list[StoredFile]:
        with suppress(FileNotFoundError):
            found = self.entries(names, most)
            return [StoredFile(n, s.st_size, s.st_mtime) for n, s in found if stat.S_ISREG(s.st_mode)]
        return []

    def folders(self, names: Sequence[str], most: int = MAX_LISTED) -> dict[str, Stamp]:
        with suppress(FileNotFoundError):
            found = self.entries(names, most)
            return {n: (s.st_mtime_ns, s.st_mtime) for n, s in found if stat.S_ISDIR(s.st_mode)}
        return {}

    def names(self, names: Sequence[str]) -> list[str]:
        with suppress(FileNotFoundError), self.directory(names) as fd:
            return os.listdir(fd)
        return []

    def is_marked(self) -> bool:
        return not {MARKER, LANDING}.isdisjoint(self.names([]))

    def loose(self) -> dict[Path, int]:
        found: dict[Path, int] = {}
        for names in ([], *([top] for top in (LANDING, ANSWERS)), *self._clusters()):
            # What is no directory, or is not ours to read, is no parent of ours.
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError), self.directory(names) as fd:
                bits = stat.S_IMODE(os.fstat(fd).st_mode)
                if bits != closed_mode(bits):
                    found[self.root.joinpath(*names)] = closed_mode(bits)
        return found

    def _clusters(self) -> Iterator[list[str]]:
        for top in (LANDING, ANSWERS):
            with suppress(NotADirectoryError, PermissionError):
                yield from ([top, name] for name in self.folders([top]) if is_plain(name))

    def mark(self) -> bool:
        for path, mode in self.loose().items():
            with suppress(PermissionError), self.directory(path.relative_to(self.root).parts) as fd:
                os.fchmod(fd, mode)
        if self.loose():
            return False
        self.directory_mode = closed_mode(self.directory_mode)
        made = self.create_new([MARKER], MARKER_CONTENT)
        for top in (LANDING, ANSWERS):  # else they would belong to whichever agent comes first
            with self.directory([top], create=True):
                pass
        return made

    def remove_file(self, names: Sequence[str]) -> None:
        """Unlink one file; it need not exist. A directory in its place stays."""
        *above, name = names
        with suppress(FileNotFoundError, IsADirectoryError), self.directory(above) as parent:
            os.unlink(name, dir_fd=parent)

    def remove_empty(self, names: Sequence[str]) -> bool:
        """Remove a directory if it is empty; returns whether it no longer exists."""
        *above, name = names
        try:
            with self.directory(above) as parent:
                os.rmdir(name, dir_fd=parent)
        except FileNotFoundError:
            return True
        except OSError as e:
            if e.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                return False
            raise
        return True
