"""One partition directory, read in full."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from logagent.base.dir_names import PARTITION_METADATA
from logagent.base.errors import UnreadableError
from logagent.base.files import safe_open as limits
from logagent.base.files.safe_open import read_regular
from logagent.base.records import PartitionDir
from logagent.base.units import NOTHING, Space
from logagent.disk.log_dir import OFFLINE_ERRNOS, OPEN_CHILD, OpenLogDir
from logagent.kafka.files.properties import parse_partition_metadata


@dataclass(slots=True)
class Usage:
    """files: entries that are not directories. bytes: sizes of regular files. allocated: blocks of everything. alone:
    what its removal frees, so directories and files without another hard link."""

    files: int = 0
    bytes: int = 0
    allocated: int = 0
    alone: Space = NOTHING


def nested_usage(parent_fd: int, name: str, device: int) -> Usage:
    """Add up the directory `name` and all below it on `device`. Kafka makes no directories below a partition's, so this
    only has to be safe and bounded.

    Uses no recursion, one descriptor whatever the depth, and follows no symlinks. Entries that vanish or change type
    during the walk are left out. Raises `OSError` for what cannot be read, EAGAIN if directories are moved during the
    walk.
    """
    usage = Usage()
    entered = _open(parent_fd, name, device)
    if entered is None:
        return usage
    fd, identity = entered
    levels = [(identity, _count(fd, usage))]
    try:
        while levels:
            subdirs = levels[-1][1]
            if subdirs:
                entered = _open(fd, subdirs.pop(), device)
                if entered is not None:
                    os.close(fd)
                    fd, identity = entered
                    levels.append((identity, _count(fd, usage)))
                continue
            levels.pop()
            if levels:
                up = os.open("..", OPEN_CHILD, dir_fd=fd)
                os.close(fd)
                fd = up
                status = os.fstat(fd)
                if (status.st_dev, status.st_ino) != levels[-1][0]:
                    raise OSError(errno.EAGAIN, "directories were moved while being read", name)
        return usage
    finally:
        os.close(fd)


def _open(parent_fd: int, name: str, device: int) -> tuple[int, tuple[int, int]] | None:
    try:
        fd = os.open(name, OPEN_CHILD, dir_fd=parent_fd)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise
    status = os.fstat(fd)
    if status.st_dev != device:
        os.close(fd)
        return None
    return fd, (status.st_dev, status.st_ino)


def _count(fd: int, usage: Usage) -> list[str]:
    """Add the entries of the open directory to `usage`; returns the names of its subdirectories."""
    subdirs: list[str] = []
    own = os.fstat(fd).st_blocks * 512
    usage.allocated += own
    usage.alone += Space(own, 1)
    for name in os.listdir(fd):
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(status.st_mode):
            subdirs.append(name)
            continue
        usage.files += 1
        usage.allocated += status.st_blocks * 512
        if status.st_nlink == 1:
            usage.alone += Space(status.st_blocks * 512, 1)
        if stat.S_ISREG(status.st_mode):
            usage.bytes += status.st_size
    return subdirs


# A broker follows it; an inventory does not, so the id is not known, which is not the same as none.
LINKED_ID = f"{PARTITION_METADATA} is a symlink, which is not followed"
# Besides the .log, the files of the newest segment that Kafka changes without changing the directory's mtime.
TAIL_INDEXES = ((1, ".index"), (2, ".timeindex"), (4, ".txnindex"))
_TAIL_SUFFIXES = {".log": 0, **{suffix: bit for bit, suffix in TAIL_INDEXES}}
# If an mtime is younger than this when read, a later change may leave it the same.
SETTLED_NS = 1_000_000_000

_MOST_NUMBERS = 20_000


class Known(PartitionDir):
    """A directory together with what the next scan needs to know about it, in one object because there are 100,000 of
    them.

    settled: an unchanged mtime will mean that no file was added or removed. log_*: the newest segment's `.log` as it
    was last counted; index_*: the sum of its other files that Kafka changes in place; index_files has the bits of
    `TAIL_INDEXES` for those that exist.
    """

    __slots__ = ("index_blocks", "index_bytes", "index_files", "log_blocks", "log_bytes", "settled")

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.settled = False
        self.log_bytes = 0
        self.log_blocks = 0
        self.index_bytes = 0
        self.index_blocks = 0
        self.index_files = 0


class PartitionReader:
    """Reads the partition directories of one log dir; equal topics and ids are stored once."""

    def __init__(self, log_dir: OpenLogDir, now_ns: Callable[[], int]) -> None:
        self._log_dir = log_dir
        self._now_ns = now_ns
        self._shared: dict[str, str] = {}
        self._numbers: dict[int, int] = {}

    def share(self, text: str | None) -> str | None:
        return None if text is None else self._shared.setdefault(text, text)

    def _share_numbers(self, known: Known) -> None:
        """Share one object for sizes that many directories have (preallocated indexes, few blocks); beyond some
        thousands of distinct sizes each directory keeps its own."""
        if len(self._numbers) < _MOST_NUMBERS:
            same = self._numbers.setdefault
            known.allocated = same(known.allocated, known.allocated)
            known.log_blocks = same(known.log_blocks, known.log_blocks)
            known.beside_log_bytes = same(known.beside_log_bytes, known.beside_log_bytes)
            known.index_bytes = same(known.index_bytes, known.index_bytes)
            known.index_blocks = same(known.index_blocks, known.index_blocks)

    def read(self, fd: int, known: Known, own_blocks: int) -> None:
        """Fill `known` from the open directory `fd`, which itself occupies `own_blocks` blocks.

        Raises `OSError` for the errors of a failing disk only; others end up in `known.error`.
        """
        known.settled = known.mtime_ns < self._now_ns() - SETTLED_NS
        try:
            self._count(fd, known, own_blocks)
        except OSError as error:
            if error.errno in OFFLINE_ERRNOS:
                raise
            known.error = f"it cannot be read: {error.strerror or error}"
            known.settled = False

    def _count(self, fd: int, known: Known, blocks: int) -> None:
        names = os.listdir(fd)
        newest = _note_segments(known, names)
        files = len(names)
        total = of_logs = 0
        plain = True
        lstat, regular = os.lstat, stat.S_IFREG
        # Kept lean: a full scan spends its time in this loop.
        for name in names:
            try:
                status = lstat(name, dir_fd=fd)
            except FileNotFoundError:
                known.settled = False
                files -= 1
                continue
            if status.st_nlink != 1:
                plain = False
            if status.st_mode & 0o170000 != regular:
                if name == PARTITION_METADATA:
                    known.error = LINKED_ID if stat.S_ISLNK(status.st_mode) else f"{name}: it is not a regular file"
                inner = self._odd(fd, name, status, known)
                files += inner.files - 1
                total += inner.bytes
                blocks += inner.allocated // 512
                continue
            total += status.st_size
            blocks += status.st_blocks
            if name[20:] == ".log":
                of_logs += status.st_size
            if name[:20] == newest:
                _note_tail(known, name[20:], status)
            elif name == PARTITION_METADATA:
                self._read_topic_id(fd, known)
        # What is not a regular file has taken `settled` away.
        known.plain = plain and known.settled
        known.files = files
        known.bytes = total
        known.beside_log_bytes = total - of_logs
        known.allocated = blocks * 512
        self._share_numbers(known)
        if not known.newest_mtime_ns:
            known.newest_mtime_ns = known.mtime_ns

    @staticmethod
    def _odd(fd: int, name: str, found: os.stat_result, known: Known) -> Usage:
        """Anything but a regular file: a directory with everything in it, or a symlink, socket, FIFO or device."""
        # Kafka makes none of these, and changes further down do not show in this directory's mtime.
        known.settled = False
        if not stat.S_ISDIR(found.st_mode):
            return Usage(files=1, allocated=found.st_blocks * 512)
        return nested_usage(fd, name, known.device)

    def _read_topic_id(self, fd: int, entry: PartitionDir) -> None:
        try:
            content = read_regular(PARTITION_METADATA, limits.PARTITION_METADATA, dir_fd=fd)
            entry.topic_id = self.share(parse_partition_metadata(content))
        except UnreadableError as error:
            entry.error = str(error)
        except OSError as error:
            if error.errno in OFFLINE_ERRNOS:
                raise
            entry.error = f"{PARTITION_METADATA} cannot be read: {error.strerror}"


def _note_segments(known: Known, names: list[str]) -> str:
    """Returns what the names of the newest segment's files begin with; empty if there is none."""
    logs = _segments(names)
    if not logs:
        return ""
    newest = max(logs)[:20]
    known.segments = len(logs)
    known.last_segment_offset = _offset(newest)
    known.first_offset = _offset(min(logs)[:20]) if len(logs) > 1 else known.last_segment_offset
    return newest


def _note_tail(known: Known, suffix: str, found: os.stat_result) -> None:
    """A file of the newest segment."""
    bit = _TAIL_SUFFIXES.get(suffix)
    if bit == 0:
        known.newest_mtime_ns = found.st_mtime_ns
        known.log_bytes = found.st_size
        known.log_blocks = found.st_blocks
    elif bit is not None:
        known.index_files |= bit
        known.index_bytes += found.st_size
        known.index_blocks += found.st_blocks


def _offset(base: str) -> int | None:
    """The base offset in a segment's name; None for one above every offset, which no broker loads."""
    return offset if (offset := int(base)) < 1 << 63 else None


def _segments(names: list[str]) -> list[str]:
    """The segments' `.log` names: 20 digits before the suffix, nothing else."""
    logs = [name for name in names if name[20:] == ".log"]
    digits = "".join(logs).replace(".log", "")
    if len(digits) != 20 * len(logs) or not (digits.isdigit() and digits.isascii()):
        logs = [name for name in logs if name[:20].isdigit() and name.isascii()]
    return logs
