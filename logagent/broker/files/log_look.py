"""Where the log of a partition dir ends on disk, and its leader epochs: from its last segment and its checkpoint.

Kafka knows this for the logs it has loaded (`UnifiedLog.logEndOffset`, `LeaderEpochFileCache`); for a directory that no
broker serves under its name, we determine it from the files. Anything uncertain is left unknown, never guessed: a torn
tail, a last batch with a wrong checksum, records of the old formats, epochs that contradict the records.
"""

from __future__ import annotations

import itertools
import os
import struct
from dataclasses import dataclass

from logagent.broker.files.segment_files import ENTRY_BYTES, LOG, OFFSET_INDEX, is_segment_file
from logagent.broker.metadata_log.record_batch import RecordBatch
from logagent.errors import UnreadableError
from logagent.files.safe_open import INDEX, LEADER_EPOCHS, SEGMENT, opened_regular, read_regular
from logagent.model.assignments.covered import LogLook
from logagent.model.naming.dir_names import parse_int

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
SWAP = ".log.swap"

# `DefaultRecordBatch`: base offset, length, leader epoch, magic; later the last offset delta.
_HEAD = struct.Struct(">qiib")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_DELTA_AT = 23
_HEADER_BYTES = 61
_LENGTH_FROM = 12
_WINDOW = 1 << 16
_INDEX_ENTRY = struct.Struct(">ii")


def segment_bases(dir_fd: int) -> list[str]:
    """The base offsets (20 digits) of the segments in the open partition dir `dir_fd`, in order."""
    return _bases(os.listdir(dir_fd))


def _bases(names: list[str]) -> list[str]:
    return sorted(name[:20] for name in names if is_segment_file(name, LOG))


def look_at_log(dir_fd: int, *, whole: bool = False) -> LogLook:
    """The log in the open partition dir `dir_fd`. `whole`: where every segment ends, not just the last one, so that
    `gaps` is known. Raises OSError only if the disk fails."""
    names = os.listdir(dir_fd)
    bases = _bases(names)
    if not bases:
        return LogLook(None, None, problem="it has no segment")
    start = int(bases[0])
    swap = next((name for name in sorted(names) if name.endswith(SWAP)), None)
    if swap is not None:
        # Records may be in this file only; the broker completes the compaction at its next start
        # (`LogLoader.completeSwapOperations`).
        return LogLook(
            start, None, problem=f"{swap} is left from an interrupted compaction", last_segment=int(bases[-1])
        )
    size = 0
    try:
        for base in bases:
            size += os.stat(base + LOG, dir_fd=dir_fd, follow_symlinks=False).st_size
        epochs = _epochs(dir_fd)
        end = _end_of(dir_fd, bases[-1])
        ends = [(_end_of(dir_fd, base).offset, int(after)) for base, after in itertools.pairwise(bases) if whole]
    except (UnreadableError, _UnknownEnd, FileNotFoundError, PermissionError) as error:
        return LogLook(start, None, problem=str(error), last_segment=int(bases[-1]))
    if end.offset == start:
        return LogLook(start, start, tuple(e for e in epochs if e[1] <= start))
    # An epoch that begins at the end has no records yet.
    epochs = tuple(e for e in epochs if e[1] < end.offset)
    if not epochs:
        return LogLook(start, end.offset, problem=f"its {LEADER_EPOCH_CHECKPOINT} is missing or empty")
    if end.epoch is not None and epochs[-1][0] != end.epoch:
        said = (
            f"its last record is of leader epoch {end.epoch}, its {LEADER_EPOCH_CHECKPOINT} ends with {epochs[-1][0]}"
        )
        return LogLook(start, end.offset, problem=said)
    gaps = tuple((end_there, after) for end_there, after in ends if end_there < after)
    return LogLook(start, end.offset, epochs, log_bytes=size, gaps=gaps)


class _UnknownEnd(Exception):
    """The end is unknown; the message says why."""


@dataclass(frozen=True, slots=True)
class _End:
    """The offset after the last record, and that record's leader epoch (None for an empty segment)."""

    offset: int
    epoch: int | None


def parse_leader_epochs(data: bytes) -> tuple[tuple[int, int], ...]:
    """(epoch, start offset) as `LeaderEpochCheckpointFile` writes them. Raises UnreadableError."""
    try:
        lines = data.decode("ascii").splitlines()
        if not lines:
            return ()
        if parse_int(lines[0]) != 0:
            raise ValueError(f"unrecognized version {lines[0]}")
        found = tuple((int(epoch), int(start)) for epoch, start in (line.split() for line in lines[2:]))
        if len(found) != parse_int(lines[1]):
            raise ValueError(f"{lines[1]} entries announced, {len(found)} found")
        if any(a[0] >= b[0] or a[1] > b[1] for a, b in itertools.pairwise(found)):
            raise ValueError("the entries do not ascend")
    except (ValueError, IndexError) as error:
        raise UnreadableError(f"{LEADER_EPOCH_CHECKPOINT} cannot be read: {error}") from None
    return found


def _epochs(dir_fd: int) -> tuple[tuple[int, int], ...]:
    try:
        return parse_leader_epochs(read_regular(LEADER_EPOCH_CHECKPOINT, LEADER_EPOCHS, dir_fd=dir_fd))
    except FileNotFoundError:
        return ()


def _end_of(dir_fd: int, base: str) -> _End:
    with opened_regular(base + LOG, SEGMENT, dir_fd=dir_fd) as fd:
        size = os.fstat(fd).st_size
        if size == 0:
            return _End(int(base), None)
        hint = _last_indexed(dir_fd, base, size)
        try:
            position = _last_batch(fd, hint, size, int(base))
        except _UnknownEnd:
            if hint == 0:
                raise
            # The index was misleading: start from the beginning.
            position = _last_batch(fd, 0, size, int(base))
        batch = RecordBatch(_read(fd, position, size - position))
    if not batch.validate_crc():
        raise _UnknownEnd(f"the last batch of {base}{LOG} has a wrong checksum")
    return _End(batch.next_offset, batch.leader_epoch)


def _last_indexed(dir_fd: int, base: str, size: int) -> int:
    """Where, according to the index, a batch near the end of the `.log` begins; 0 if the index does not say."""
    entry = ENTRY_BYTES[OFFSET_INDEX]
    try:
        with opened_regular(base + OFFSET_INDEX, INDEX, dir_fd=dir_fd) as fd:
            length = os.fstat(fd).st_size
            if length < entry or length % entry:
                return 0
            _, position = _INDEX_ENTRY.unpack(os.pread(fd, entry, length - entry))
    except (UnreadableError, FileNotFoundError, PermissionError, struct.error):
        return 0
    return position if 0 <= position < size else 0


def _last_batch(fd: int, position: int, size: int, base: int) -> int:
    """Where the last batch begins, found by walking the batches from `position`; raises _Undecided unless it ends
    exactly at `size`."""
    window, window_at = b"", position
    previous, expected = position, base
    while position < size:
        if position + _HEADER_BYTES > window_at + len(window):
            window, window_at = os.pread(fd, _WINDOW, position), position
        at = position - window_at
        if len(window) - at < _HEADER_BYTES:
            raise _UnknownEnd(f"it ends in a torn batch (at byte {position} of {size})")
        first, length, _, magic = _HEAD.unpack_from(window, at)
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(window, at + _DELTA_AT)
        end = position + _LENGTH_FROM + length
        if magic != 2:
            raise _UnknownEnd(f"it has no batch of format 2 at byte {position} of {size}")
        if first < expected or delta < 0 or length < _HEADER_BYTES - _LENGTH_FROM or end > size:
            raise _UnknownEnd(f"it ends in a torn batch (at byte {position} of {size})")
        expected = first + delta + 1
        previous, position = position, end
    return previous


def _read(fd: int, position: int, count: int) -> bytes:
    data = bytearray()
    while len(data) < count and (piece := os.pread(fd, count - len(data), position + len(data))):
        data += piece
    if len(data) < count:
        raise _UnknownEnd("it became shorter while it was read")
    return bytes(data)
