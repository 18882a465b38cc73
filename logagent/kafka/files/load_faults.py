"""Files of a partition directory that a broker fails on when it loads the log, whatever the records are.

Mirrors `LogLoader.load`, `LogSegment.sanityCheck`, `FileLogInputStream.nextBatch` and `ProducerStateManager`. What each
release makes of them was seen on real brokers (tests/damages/files.py).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from logagent.base.errors import UnreadableError
from logagent.base.files.safe_open import INDEX, NOWHERE, SEGMENT, opened_regular
from logagent.kafka.files.log_extent import LEADER_EPOCH_CHECKPOINT
from logagent.kafka.files.segment_files import LOG, OFFSET_INDEX, TIME_INDEX, last_index_entry, segment_bases
from logagent.kafka.node_files import LoadFault, LoadFile

TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
LOG_SWAP: Final = LOG + ".swap"
EPOCHS_BEING_WRITTEN: Final = "leader-epoch-checkpoint.tmp"
MOST_OFFSET: Final = (1 << 63) - 1
_INDEX_ENTRY = struct.Struct(">ii")
# `Records.HEADER_SIZE_UP_TO_MAGIC`, `LegacyRecord.RECORD_OVERHEAD_V0`, `Records.LOG_OVERHEAD`.
_HEADER_UP_TO_MAGIC, _LEAST_LENGTH, _LENGTH_FROM = 17, 14, 12
_HEAD = struct.Struct(">qi")
_DELTA_AT, _HEADER_BYTES = 23, 61
# `AbortedTxn`: its version comes first.
_ABORTED_BYTES, _ABORTED_VERSION = 34, 0
_WINDOW = 1 << 16
_MOST_BYTES = (1 << 31) - 1


def load_faults(
    dir_fd: int,
    files: Collection[str],
    others: Mapping[str, str],
    *,
    clean: bool,
    log_starts: Callable[[], Collection[int]],
) -> Iterator[LoadFault]:
    """What is wrong in the open partition directory `dir_fd`, which has these regular `files`, and `others` with what
    they are. `clean`: its log dir has the clean-shutdown marker, beside which nothing is recovered. `log_starts`: where
    a log without segments may begin. Raises OSError only if the disk fails."""
    bases = segment_bases(files)
    for name, what in sorted(others.items()):
        file = _place(dir_fd, name, what, files, bases, log_starts)
        if file is not None:
            yield LoadFault(file, name, f"it is {what}")
    if clean and bases and bases[-1] + OFFSET_INDEX in files:
        position = _no_batch_at(dir_fd, bases[-1])
        if position is not None:
            says = f"at byte {position} begins what is no batch, and beside a clean-shutdown marker it is not cut off"
            yield LoadFault(LoadFile.TAIL, bases[-1] + LOG, says)
    yield from _too_large(dir_fd, files, bases)
    for name in sorted(files):
        if name.endswith(LOG_SWAP) and name[:20].isdigit() and (fault := _swap_fault(dir_fd, name)) is not None:
            yield fault
    for base in bases:
        if base + TXN_INDEX in files and (version := _foreign_version(dir_fd, base + TXN_INDEX)) is not None:
            yield LoadFault(LoadFile.ABORTED, base + TXN_INDEX, f"an entry is of version {version}")


def _place(
    dir_fd: int,
    name: str,
    what: str,
    files: Collection[str],
    bases: list[str],
    log_starts: Callable[[], Collection[int]],
) -> LoadFile | None:
    """Whether a start needs a file where there is something else (PLACE), or a later moment would (AHEAD)."""
    base, suffix = name[:20], name[20:]
    if name == EPOCHS_BEING_WRITTEN or (name == LEADER_EPOCH_CHECKPOINT and what == NOWHERE):
        return LoadFile.PLACE  # another kind of epoch file cannot be read, which is said
    numbered = base.isdigit() and base.isascii() and int(base) <= MOST_OFFSET
    if not numbered or suffix not in (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT):
        return None
    if suffix == LOG:
        needed = not bases and int(base) in log_starts()  # then the first segment is made there
    elif suffix == SNAPSHOT:
        needed = bool(bases) and int(base) == _end_of(dir_fd, bases[-1]) > 0  # where a loaded log takes one
    else:
        # An index of aborted transactions is opened only if it is there.
        needed = base + LOG in files and not (suffix == TXN_INDEX and what == NOWHERE)
    return LoadFile.PLACE if needed else LoadFile.AHEAD


def _too_large(dir_fd: int, files: Collection[str], bases: Iterable[str]) -> Iterator[LoadFault]:
    """`FileRecords.open` and `AbstractIndex` take no file above `Integer.MAX_VALUE`."""
    for base in bases:
        for name in (base + LOG, base + OFFSET_INDEX, base + TIME_INDEX):
            if name not in files:
                continue
            try:
                size = os.stat(name, dir_fd=dir_fd).st_size
            except (FileNotFoundError, PermissionError):
                continue
            if size > _MOST_BYTES:
                yield LoadFault(LoadFile.LARGE, name, f"it has {size} bytes, and a broker reads {_MOST_BYTES} at most")


def _swap_fault(dir_fd: int, name: str) -> LoadFault | None:
    """The broker puts a `.swap` in the place of the segments that it was made from, whatever is in it."""
    try:
        with opened_regular(name, SEGMENT, dir_fd=dir_fd, follow=True) as fd:
            size, head = os.fstat(fd).st_size, os.pread(fd, _HEAD.size, 0)
    except (FileNotFoundError, PermissionError, UnreadableError):
        return None
    if size == 0:
        return LoadFault(LoadFile.EMPTY_SWAP, name, "it is empty")
    length = _HEAD.unpack(head)[1] if len(head) == _HEAD.size else size
    if _LEAST_LENGTH <= length <= size - _LENGTH_FROM:
        return None
    torn = length > size - _LENGTH_FROM
    return LoadFault(LoadFile.TORN_SWAP if torn else LoadFile.SWAP, name, "it begins with what is no batch")


def _no_batch_at(dir_fd: int, base: str) -> int | None:
    """Where `LogSegment.readNextOffset` fails in the last segment; None if it does not. What is cut off within a batch
    is passed over."""
    return _walk(dir_fd, base)[0]


def _end_of(dir_fd: int, base: str) -> int:
    return _walk(dir_fd, base)[1]


def _walk(dir_fd: int, base: str) -> tuple[int | None, int]:
    """From the last entry of its index to where there is no whole batch: where that is no batch at all, and the offset
    after the last one."""
    end = int(base)
    try:
        with opened_regular(base + LOG, SEGMENT, dir_fd=dir_fd, follow=True) as fd:
            size = os.fstat(fd).st_size
            _, position = last_index_entry(dir_fd, base + OFFSET_INDEX, _INDEX_ENTRY) or (0, 0)
            position = position if 0 <= position < size else 0
            window, window_at = b"", position
            while size - position > _HEADER_UP_TO_MAGIC:
                if position + _HEADER_BYTES > window_at + len(window):
                    window, window_at = os.pread(fd, _WINDOW, position), position
                at = position - window_at
                if len(window) - at < _HEAD.size:
                    return None, end  # it became shorter
                first, length = _HEAD.unpack_from(window, at)
                if length < _LEAST_LENGTH:
                    return position, end
                if length + _LENGTH_FROM > size - position:
                    return None, end
                delta = int.from_bytes(window[at + _DELTA_AT : at + _DELTA_AT + 4], "big", signed=True)
                end, position = first + max(delta, 0) + 1, position + _LENGTH_FROM + length
    except (FileNotFoundError, PermissionError, UnreadableError):
        pass
    return None, end


def _foreign_version(dir_fd: int, name: str) -> int | None:
    """The version of the first entry that is of another one than Kafka writes; a torn entry at the end is ignored."""
    try:
        with opened_regular(name, INDEX, dir_fd=dir_fd, follow=True) as fd:
            position = 0
            while len(data := os.pread(fd, _ABORTED_BYTES * 1024, position)) >= _ABORTED_BYTES:
                for at in range(0, len(data) - _ABORTED_BYTES + 1, _ABORTED_BYTES):
                    version = int.from_bytes(data[at : at + 2], "big", signed=True)
                    if version != _ABORTED_VERSION:
                        return version
                position += len(data)
    except (FileNotFoundError, PermissionError, UnreadableError):
        pass
    return None
