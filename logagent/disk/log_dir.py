"""Log directories and what may be done in them: open, rename, fsync, all inside one wrapper that recognises a failing
disk.

Mirrors Kafka's `LogDirFailureChannel` and `LocalLog.maybeHandleIOException`: refuse if the log dir is offline, act, and
on an error of the disk mark it offline once and raise `KafkaStorageError`. Deviation: Kafka treats every `IOException`
as a failing disk; here the errno decides, because an agent meets directories that it merely may not touch or rename:

| errno | outcome |
| --- | --- |
| EIO, EREMOTEIO, EROFS, ENODEV, ENXIO, ENOMEDIUM, ESTALE, ENOTCONN, ECONNABORTED, ESHUTDOWN, ETIMEDOUT, EHOSTDOWN, EUCLEAN, EBADMSG | the log dir is offline |
| everything else (EACCES, EPERM, ENOTEMPTY, EBUSY, ENOSPC, EDQUOT, ENAMETOOLONG, EMFILE, ENOMEM ...) | this item failed
and is tried again later |
| ENOENT, ENOTDIR, ELOOP, EACCES, EPERM when the log dir **itself** is opened | the log dir is offline |

Directories in a log dir are reached only through its descriptor, without following symlinks.
"""  # noqa: E501

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Self

from logagent.base.dir_names import CHECKPOINTS
from logagent.base.errors import ItemFailed, KafkaStorageError, LogAgentError, NotAsPlanned, UnreadableError
from logagent.base.linux.kernel import close_unlocked, mount_id, rename_exchange, rename_noreplace
from logagent.base.records import Identity
from logagent.disk.calls import OFFLINE_ERRNOS, LogDirFailures
from logagent.kafka.files.checkpoint_files import Entries, read_checkpoint
from logagent.kafka.files.properties import META_PROPERTIES
from logagent.kafka.processes.lock import LOCK_FILE, Watch

__all__ = [
    "OFFLINE_ERRNOS",
    "OPEN_CHILD",
    "OPEN_DIRECTORY",
    "LogDirFailures",
    "OpenLogDir",
    "check_child_name",
]


class Place(NamedTuple):
    """A directory by its name, and which one it should be (`check` raises if it is not)."""

    log_dir: OpenLogDir
    name: str
    identity: Identity
    check: Callable[[int], None]


def exchange(one: Place, other: Place, interlock: Watch) -> None:
    """`renameat2(RENAME_EXCHANGE)` of two directories, if they are the ones that were planned; no fsync. The current
    name exists at every moment.

    `interlock.before()` is the last check before the call. If a process swapped one of them between our check and the
    call, they are exchanged back. Raises NotAsPlanned, BrokerHoldsLogDir, ItemFailed (EXDEV: they are on two file
    systems; nothing was renamed) or KafkaStorageError.
    """
    with one.log_dir.acting("exchange", one.name):
        for place in (one, other):
            fd = place.log_dir.open_child(place.name, place.identity)
            try:
                place.check(fd)
            finally:
                os.close(fd)
        interlock.before()
        rename_exchange(one.log_dir.fd, one.name, other.name, other.log_dir.fd)
        if _stands(one.log_dir, one.name, other.identity) and _stands(other.log_dir, other.name, one.identity):
            return
        interlock.before()
        rename_exchange(one.log_dir.fd, one.name, other.name, other.log_dir.fd)
    raise NotAsPlanned(
        f"{one.log_dir.path}/{one.name} or {other.name} was replaced by something else; they were put back",
        hint="find out what is replacing directories there",
    )


def _stands(log_dir: OpenLogDir, name: str, identity: Identity) -> bool:
    status = os.stat(name, dir_fd=log_dir.fd, follow_symlinks=False)
    return (status.st_dev, status.st_ino) == (identity.device, identity.inode)


# If the log dir itself cannot be opened, these errors are our own shortage and say nothing about it.
_OUR_SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR})

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
OPEN_CHILD = OPEN_DIRECTORY | os.O_NOFOLLOW

_HINTS = {
    errno.EACCES: "run as the broker's user",
    errno.EPERM: "run as the broker's user; an immutable file (lsattr) causes this too",
    errno.EBUSY: "is it a mount point? Mount points are never touched",
    errno.EEXIST: "the new name already exists; nothing is ever replaced",
    errno.EINVAL: "this file system cannot rename without replacing (renameat2 with RENAME_NOREPLACE),"
    " and nothing less is safe enough",
    errno.ENOSYS: "renameat2 is needed (Linux 3.15, glibc 2.28); nothing less is safe enough",
    errno.EXDEV: "the two names are on different file systems or mounts, or it is in the lower layer of an overlay;"
    " nothing is ever copied",
    errno.ENOSPC: "even this needs a little free space on the file system",
}


def check_child_name(name: str) -> None:
    """Raise `NotAsPlanned` unless `name` names a direct child and nothing else."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise NotAsPlanned(f"{name!r} is not the name of a directory in a log dir")


class OpenLogDir:
    """A log dir, opened once per batch; a context manager.

    `fd` stays on the same directory whatever happens to its path, so `identity` and `mount_id` hold for everything done
    through it. `path` is the configured path: it may lead through symlinks, as it may for Kafka; nothing below it may.
    Opening raises `KafkaStorageError` (and marks the log dir offline) if it is missing, not a directory, unreadable, on
    a failing disk or already offline.
    """

    def __init__(self, path: str, failures: LogDirFailures) -> None:
        self.path = path
        self.failures = failures
        self.fd = -1
        self.identity = Identity(0, 0)
        self.mount_id = 0
        self._since = 0
        self._closing = threading.Lock()

    def __enter__(self) -> Self:
        self._since = self.failures.count(self.path)
        self.failures.check(self.path)
        try:
            self.fd = os.open(self.path, OPEN_DIRECTORY)
            try:
                self.failures.note_real_path(self.path, os.readlink(f"/proc/self/fd/{self.fd}"))
                status = os.fstat(self.fd)
                self.identity = Identity(status.st_dev, status.st_ino)
                self.mount_id = mount_id(self.fd)
            except BaseException:
                self.close()
                raise
        except OSError as error:
            if error.errno in _OUR_SHORTAGE:
                raise ItemFailed(
                    f"open of {self.path} failed: {error.strerror}", path=self.path, errno=error.errno
                ) from error
            raise self._offline(f"it cannot be opened ({error.strerror})") from error
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._closing:
            fd, self.fd = self.fd, -1
        if fd >= 0:
            close_unlocked(fd)

    def offline(self) -> str | None:
        """Why this may no longer be used: the log dir is offline, or has been since it was opened."""
        return self.failures.reason(self.path, self._since)

    def check(self) -> None:
        """Raise `KafkaStorageError` if the log dir is offline, or has been since it was opened."""
        self.failures.check(self.path, self._since)

    @contextmanager
    def acting(self, what: str, name: str | None = None) -> Iterator[None]:
        """Wrap an action on this log dir: `with log_dir.acting("rename", name): ...`.

        Raises `KafkaStorageError` at once if the log dir is offline. An `OSError` from the body becomes
        `KafkaStorageError`, with the log dir marked offline, or `ItemFailed`, as the table above says.
        """
        self.check()
        try:
            yield
        except OSError as error:
            raise self.explain(error, what, name) from error

    def explain(self, error: OSError, what: str, name: str | None) -> KafkaStorageError | ItemFailed:
        """Our error for `error`; marks the log dir offline if the disk is failing."""
        path = self.path if name is None else f"{self.path}/{name}"
        reason = error.strerror or str(error)
        # Errors of calls on a descriptor name only its number.
        if isinstance(error.filename, str | bytes) and error.filename != name:
            reason = f"{reason}: {os.fsdecode(error.filename)}"
        if error.errno in OFFLINE_ERRNOS:
            return self._offline(f"{what} of {path} failed ({reason})")
        hint = _HINTS.get(error.errno) if error.errno is not None else None
        return ItemFailed(f"{what} of {path} failed: {reason}", path=path, errno=error.errno, hint=hint)

    def _offline(self, reason: str) -> KafkaStorageError:
        self.failures.mark_offline(self.path, reason)
        return KafkaStorageError(f"log dir {self.path} is offline: {reason}", log_dir=self.path)

    def has(self, name: str) -> bool:
        """Whether anything has this name in it. Raises KafkaStorageError or ItemFailed."""
        with self.acting("read", name):
            try:
                os.stat(name, dir_fd=self.fd, follow_symlinks=False)
            except FileNotFoundError:
                return False
        return True

    def checkpoint(self, name: str) -> Entries | None:
        """The entries of one of its checkpoint files, none if it is not there; None if it is damaged. For what
        explains, never for what acts."""
        try:
            with self.acting("read", name):
                return read_checkpoint(self.fd, name) or {}
        except UnreadableError:
            return None
        except LogAgentError:
            if self.offline() is not None:
                raise
            return None

    def written_ms(self, name: str) -> int | None:
        """When one of its files was last written; None if that cannot be told. For what explains, as `checkpoint`."""
        try:
            with self.acting("read", name):
                return os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mtime_ns // 1_000_000
        except LogAgentError:
            if self.offline() is not None:
                raise
            return None

    def open_child(self, name: str, expect: Identity | None = None) -> int:
        """Open the directory `name` in this log dir and return its descriptor, which the caller closes.

        Raises `NotAsPlanned` if it no longer exists, is a symlink or not a directory, is on another device or a mount
        point (including a bind mount of the same device), or is not the one that `expect` identifies. Other `OSError`s
        pass through.
        """
        check_child_name(name)
        path = f"{self.path}/{name}"
        try:
            fd = os.open(name, OPEN_CHILD, dir_fd=self.fd)
        except FileNotFoundError as error:
            raise NotAsPlanned(f"{path} is gone") from error
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise NotAsPlanned(f"{path} is not a directory (a symlink is never followed)") from error
            raise
        try:
            self._check_child(fd, path, expect)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _check_child(self, fd: int, path: str, expect: Identity | None) -> None:
        status = os.fstat(fd)
        if expect is not None and (status.st_dev, status.st_ino) != (expect.device, expect.inode):
            raise NotAsPlanned(
                f"{path} is not the directory that was planned (inode {status.st_ino}, not {expect.inode})",
                hint="run the command again for a new plan",
            )
        if status.st_dev != self.identity.device or mount_id(fd) != self.mount_id:
            raise NotAsPlanned(f"{path} is a mount point", hint="mount points are never touched; unmount it first")

    def rename(
        self,
        name: str,
        new_name: str,
        expect: Identity,
        interlock: Watch,
        into: OpenLogDir | None = None,
        check: Callable[[int], None] | None = None,
    ) -> None:
        """Rename the directory `name` to `new_name` in this log dir, if its identity is `expect`, replacing nothing.

        `into`: the target directory, if it is another one on the same file system (a quarantine directory, for brokers
        that do not start with a `-stray` dir in a log dir, or the way back from there).

        Mirrors the rename of `LogManager.asyncDelete`; deviations: never a non-atomic fallback, never a copy (EXDEV is
        an error), no fsync (the caller does one `fsync()` for the batch). `check` gets the directory's own descriptor
        and raises if it must not be renamed after all; `interlock.before()` is the last check before the call. The
        caller then asks `interlock.after_rename()`, when it knows that this rename is done.

        A process may swap the directory between our check of it and the rename. Nothing prevents that, so the result is
        checked, and the wrong directory is renamed back (again replacing nothing).

        Raises `NotAsPlanned`, `BrokerHoldsLogDir`, `ItemFailed` (EEXIST, EINVAL, EXDEV, EBUSY ...: nothing was
        renamed) or `KafkaStorageError`.
        """
        check_child_name(new_name)
        with self.acting("rename", name):
            fd = self.open_child(name, expect)
            try:
                if check is not None:
                    check(fd)
            finally:
                os.close(fd)
            interlock.before()
            target = self if into is None else into
            rename_noreplace(self.fd, name, new_name, target.fd)
            self._check_renamed(name, new_name, expect, interlock, target)

    def _check_renamed(self, name: str, new_name: str, expect: Identity, interlock: Watch, target: OpenLogDir) -> None:
        try:
            status = os.stat(new_name, dir_fd=target.fd, follow_symlinks=False)
        except FileNotFoundError as error:
            raise NotAsPlanned(f"{target.path}/{new_name} was moved away right after it got its name") from error
        if (status.st_dev, status.st_ino) == (expect.device, expect.inode) and stat.S_ISDIR(status.st_mode):
            return
        swapped = f"{self.path}/{name} was replaced by something else while being renamed"
        try:
            interlock.before()
            rename_noreplace(target.fd, new_name, name, self.fd)
        except Exception as error:
            raise NotAsPlanned(
                f"{swapped}, and could not be put back ({error}): it is now {new_name}",
                hint=f"find out what is replacing directories there, then rename {new_name} by hand",
            ) from error
        raise NotAsPlanned(f"{swapped}; it was put back", hint="find out what is replacing directories there")

    def fsync(self) -> None:
        """Make the renames in this log dir durable. Raises `KafkaStorageError` or `ItemFailed`."""
        with self.acting("fsync"):
            os.fsync(self.fd)


CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
# What a broker writes while it runs and when it stops.
BROKER_FILES = (*CHECKPOINTS, META_PROPERTIES, LOCK_FILE, CLEAN_SHUTDOWN)


def changed_ms(log_dir: OpenLogDir) -> list[int]:
    """The ctimes (ms) of the log dir itself and of those of the broker's own files that exist in it: the kernel's own
    times, which nobody can set. Raises KafkaStorageError or ItemFailed."""
    with log_dir.acting("read"):
        ctimes = [os.fstat(log_dir.fd).st_ctime_ns]
        for name in BROKER_FILES:
            try:
                ctimes.append(os.stat(name, dir_fd=log_dir.fd, follow_symlinks=False).st_ctime_ns)
            except FileNotFoundError:
                continue
    return [at // 1_000_000 for at in ctimes]
