"""The fleet store on a mounted path: everything below its root is opened by `dir_fd` and never through a symlink.

The root itself is the operator's word and may be a symlink. Below it any host that can write the store may have put
anything: a symlink to a log dir, a FIFO, a name that means something to a shell. None of it is followed, and nothing is
removed that was not listed as a plain file of ours.

Modes are explicit, so that hosts with different user ids share a store whatever their umask: every directory gets the
permission bits of the root, files get its read bits and are written by their owner only. `chmod 2770` with a common
group (then any member may run `ingest --keep-landing`), or `1777` as in `/tmp` (then only root may).
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO

from logagent.errors import ServiceUnreachable
from logagent.store.names import PART

MARKER = ".logagent-store"
LANDING = "landing"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FSYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)


class StoreTree:
    """A store that is open. Use it in a `with` block; methods raise OSError, and take names, never paths."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self.fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        bits = stat.S_IMODE(os.fstat(self.fd).st_mode)
        self.directory_mode = bits | stat.S_IRWXU
        self.file_mode = (bits & 0o444) | stat.S_IRUSR | stat.S_IWUSR

    def __enter__(self) -> StoreTree:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    @contextmanager
    def directory(self, names: Sequence[str], *, create: bool = False) -> Iterator[int]:
        """A descriptor of the directory `names` below the root. ELOOP or ENOTDIR where a symlink is in the way."""
        with ExitStack() as stack:
            here = self.fd
            for name in names:
                here = self._enter(here, name, create=create)
                stack.callback(os.close, here)
            yield here

    def _enter(self, parent: int, name: str, *, create: bool) -> int:
        if create:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
                made = os.open(name, _DIRECTORY, dir_fd=parent)
                try:
                    # Not the umask's business: the next host has another user id.
                    os.fchmod(made, self.directory_mode)
                finally:
                    os.close(made)
                fsync_fd(parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)

    @contextmanager
    def whole_file(
        self, names: Sequence[str], *, modified: datetime | None = None, create: bool = True, durable: bool = True
    ) -> Iterator[IO[bytes]]:
        """A file that appears under its name when the block has ended well, and not at all otherwise.

        It is written as `NAME.tmp` first; one that a kill left behind is replaced by the next attempt, whatever it is.
        """
        *above, name = names
        with self.directory(above, create=create) as parent:
            part = name + PART
            with suppress(FileNotFoundError):
                os.unlink(part, dir_fd=parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with open(os.open(part, flags, 0o600, dir_fd=parent), "wb") as file:
                    os.fchmod(file.fileno(), self.file_mode)
                    yield file
                    file.flush()
                    if durable:
                        os.fsync(file.fileno())
                    if modified is not None:
                        os.utime(file.fileno(), (modified.timestamp(), modified.timestamp()))
                os.rename(part, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(part, dir_fd=parent)
                raise
            if durable:
                fsync_fd(parent)

    def create_new(self, names: Sequence[str], content: bytes) -> bool:
        """Create a whole file if nothing has its name; whether it did. Never overwrites, of two callers one wins.

        `link()` of a private temporary file: atomic on local file systems and NFS, and never half-written.
        """
        *above, name = names
        with self.directory(above, create=True) as parent:
            part = f"{name}.{os.getpid()}.{os.urandom(4).hex()}{PART}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with open(os.open(part, flags, 0o600, dir_fd=parent), "wb") as file:
                    os.fchmod(file.fileno(), self.file_mode)
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                try:
                    os.link(part, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
                except FileExistsError:
                    return False
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(part, dir_fd=parent)
            fsync_fd(parent)
            return True

    def open_file(self, names: Sequence[str]) -> IO[bytes]:
        """A plain file below the root, for reading. Raises OSError for anything else, without blocking on a FIFO."""
        *above, name = names
        with self.directory(above) as parent:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "not a plain file", "/".join(names))
        return open(fd, "rb", buffering=0)

    def entries(self, names: Sequence[str]) -> list[tuple[str, os.stat_result]]:
        """Names in a directory with what they are (symlinks as such), sorted; an entry that vanishes is left out."""
        found = []
        with self.directory(names) as fd:
            for name in sorted(os.listdir(fd)):
                with suppress(FileNotFoundError):
                    found.append((name, os.stat(name, dir_fd=fd, follow_symlinks=False)))
        return found

    def remove_file(self, names: Sequence[str]) -> None:
        """Unlink one file; one that is gone is fine."""
        *above, name = names
        with suppress(FileNotFoundError), self.directory(above) as parent:
            os.unlink(name, dir_fd=parent)

    def remove_empty(self, names: Sequence[str]) -> bool:
        """Remove a directory if it is empty; whether it is gone."""
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


def fsync_fd(fd: int) -> None:
    """Make the names in a directory durable, where its file system knows such a thing (some network ones do not)."""
    try:
        os.fsync(fd)
    except OSError as e:
        if e.errno not in _NO_FSYNC:
            raise


def check_store(path: str) -> None:
    """Raises ServiceUnreachable unless `path` is a fleet store: it has the marker file, or a `landing` of before there
    was one. An empty directory is a mount point on which nothing is mounted: what is written there is lost to sight.
    """
    hint = f"mount it; for a new store run `logagent fleet init --store {path}` once, on any host"
    try:
        with StoreTree(path) as tree:
            names = {name for name, _ in tree.entries([])}
    except OSError as e:
        raise ServiceUnreachable(f"the fleet store {path} is not there: {e.strerror or e}", hint=hint) from e
    if MARKER not in names and LANDING not in names:
        raise ServiceUnreachable(f"{path} is not a fleet store: it has no {MARKER}", hint=hint)


def init_store(path: str) -> bool:
    """Mark the directory `path` as a fleet store, with its `landing`; False if it was one. Raises OSError."""
    with StoreTree(path) as tree:
        made = tree.create_new([MARKER], json.dumps({"schema": "logagent.store/1"}).encode() + b"\n")
        with tree.directory([LANDING], create=True):
            pass
    return made
