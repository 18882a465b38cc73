"""One partition directory, read in full."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from logagent.broker.partition_metadata import parse_partition_metadata
from logagent.errors import UnreadableError
from logagent.host.disk import OFFLINE_ERRNOS, OpenLogDir
from logagent.host.nested import nested_usage
from logagent.model.records import PartitionDir

PARTITION_METADATA = "partition.metadata"
# Besides its .log, what Kafka changes of the newest segment without changing the directory's mtime.
TAIL_SUFFIXES = ((1, ".index"), (2, ".timeindex"), (4, ".txnindex"))
# An mtime younger than this when it was read may be that of a later change too.
SETTLED_NS = 1_000_000_000

_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_METADATA_LIMIT = 4096
_REGULAR = stat.S_IFREG
_SEGMENT_NAME = 24  # 20 digits and ".log"


class Known:
    """A directory with what the next scan needs to know about it.

    settled: an unchanged mtime will mean that no file came or went. tail_*: the newest segment's files as they were
    last counted; tail_files has the bits of `TAIL_SUFFIXES`.
    """

    __slots__ = ("entry", "settled", "tail_blocks", "tail_bytes", "tail_files")

    def __init__(self, entry: PartitionDir) -> None:
        self.entry = entry
        self.settled = False
        self.tail_bytes = 0
        self.tail_blocks = 0
        self.tail_files = 0


@dataclass(slots=True)
class _Totals:
    files: int = 0
    bytes: int = 0
    blocks: int = 0


class PartitionReader:
    """Reads the partition directories of one log dir; equal topics and ids are stored once."""

    def __init__(self, log_dir: OpenLogDir, now_ns: Callable[[], int]) -> None:
        self._log_dir = log_dir
        self._now_ns = now_ns
        self._shared: dict[str, str] = {}

    def share(self, text: str | None) -> str | None:
        return None if text is None else self._shared.setdefault(text, text)

    def read(self, fd: int, entry: PartitionDir, own_blocks: int) -> Known:
        """Fill `entry` from the open directory `fd`, which has `own_blocks` blocks itself. Raises `OSError` only for errors of a failing disk."""
        known = Known(entry)
        known.settled = entry.mtime_ns < self._now_ns() - SETTLED_NS
        try:
            self._count(fd, known, own_blocks)
        except OSError as error:
            if error.errno in OFFLINE_ERRNOS:
                raise
            entry.error = f"it cannot be read: {error.strerror or error}"
            known.settled = False
        return known

    def _count(self, fd: int, known: Known, blocks: int) -> None:
        entry = known.entry
        names = os.listdir(fd)
        logs = [name for name in names if name.endswith(".log") and _is_segment(name)]
        if logs:
            entry.segments = len(logs)
            first, last = min(logs), max(logs)
            entry.first_offset = int(first[:20])
            entry.last_segment_offset = int(last[:20])
            tail_base = last[:20]
        else:
            tail_base = "no segment"
        files = total = 0
        newest_log = newest_other = 0
        for name in names:
            try:
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                known.settled = False
                continue
            mode = found.st_mode
            if mode & 0o170000 != _REGULAR:
                if stat.S_ISDIR(mode):
                    known.settled = False
                    inner = nested_usage(fd, name, entry.device)
                    files += inner.files
                    total += inner.bytes
                    blocks += inner.allocated // 512
                else:
                    files += 1
                    blocks += found.st_blocks
                continue
            size = found.st_size
            files += 1
            total += size
            blocks += found.st_blocks
            mtime = found.st_mtime_ns
            if name.endswith(".log"):
                if mtime > newest_log:
                    newest_log = mtime
            elif mtime > newest_other:
                newest_other = mtime
            if name.startswith(tail_base):
                self._note_tail(known, name[20:], found)
            elif name == PARTITION_METADATA:
                self._read_topic_id(fd, entry)
        entry.files = files
        entry.bytes = total
        entry.allocated = blocks * 512
        entry.newest_mtime_ns = newest_log or newest_other

    @staticmethod
    def _note_tail(known: Known, suffix: str, found: os.stat_result) -> None:
        if suffix != ".log":
            bit = next((bit for bit, tail in TAIL_SUFFIXES if tail == suffix), 0)
            if not bit:
                return
            known.tail_files |= bit
        known.tail_bytes += found.st_size
        known.tail_blocks += found.st_blocks

    def _read_topic_id(self, fd: int, entry: PartitionDir) -> None:
        try:
            file = os.open(PARTITION_METADATA, _OPEN_FILE, dir_fd=fd)
            try:
                content = os.read(file, _METADATA_LIMIT)
            finally:
                os.close(file)
            entry.topic_id = self.share(parse_partition_metadata(content))
        except UnreadableError as error:
            entry.error = f"{PARTITION_METADATA}: {error}"
        except OSError as error:
            if error.errno in OFFLINE_ERRNOS:
                raise
            entry.error = f"{PARTITION_METADATA} cannot be read: {error.strerror}"


def _is_segment(name: str) -> bool:
    return len(name) == _SEGMENT_NAME and name.isascii() and name[:20].isdigit()
