"""Record batches of one metadata segment or snapshot, read in pieces and verified before they are used.

Kafka's CRC-32C covers a batch from its attributes on, not its base offset, length, leader epoch and magic. These are
verified by other means: offsets in a raft log have no gaps, so every base offset is known beforehand; a wrong length
moves the end of the checked bytes; epochs never decrease; the magic is 2.

The file is read with `pread` in windows, never mapped: a broker may truncate it, and with a mapping that would kill us.

We have our own decoder of `DefaultRecordBatch` (magic 2) because kafka-python's loads its whole client (8 MB and 0.15 s
in every daemon and command that reads assignments) and takes twice as long for 100,000 records.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from logagent.base.errors import NotUnderstood, UnreadableError
from logagent.base.files.safe_open import INDEX, opened_regular

# Base offset, length, leader epoch, magic, CRC; then, covered by the CRC: attributes, last offset delta, base and
# largest timestamp, producer id and epoch, base sequence, number of records.
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKED_FROM = 21
_CODEC = 0x07
_TIMESTAMP_TYPE = 0x08
_CONTROL = 0x20


class RecordDefect(ValueError):
    """The records contradict the header or their own lengths."""


class RecordAttributes(RecordDefect):
    """A record has attributes: no Kafka that we know gives it any."""


class RecordBatch:
    """A batch in `data` (exactly as many bytes as its length says, and at least a complete header).

    The constructor only unpacks the header: call `validate_crc` before using any of it.
    """

    __slots__ = (
        "_attributes",
        "_crc",
        "_data",
        "base_offset",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "next_offset",
        "records_count",
    )

    def __init__(self, data: bytes) -> None:
        self._data = data
        (
            self.base_offset,
            _,
            self.leader_epoch,
            self.magic,
            self._crc,
            self._attributes,
            last_offset_delta,
            _,
            self.max_timestamp,
            _,
            _,
            _,
            self.records_count,
        ) = _HEADER.unpack_from(data)
        self.next_offset: int = self.base_offset + last_offset_delta + 1

    @property
    def compressed(self) -> bool:
        return bool(self._attributes & _CODEC)

    @property
    def control(self) -> bool:
        return bool(self._attributes & _CONTROL)

    @property
    def unknown_attributes(self) -> int:
        """Those that Kafka does not use in its metadata log, and that may change what the records are."""
        return int(self._attributes) & ~(_CODEC | _TIMESTAMP_TYPE | _CONTROL)

    @property
    def crc(self) -> int:
        return int(self._crc)

    def holds(self, piece: bytes) -> bool:
        """Whether these bytes are anywhere in it."""
        return piece in self._data

    def validate_crc(self) -> bool:
        # Imported here because it looks up its own version among all packages, which takes longer than most commands.
        from crc32c import crc32c

        return bool(crc32c(memoryview(self._data)[_CHECKED_FROM:]) == self._crc)

    def records(self) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        """(offset, key, value) of each record of an uncompressed batch. Headers are skipped.

        Raises `RecordDefect` if a length is wrong or bytes are left over.
        """
        data, base, position = self._data, self.base_offset, _HEADER.size
        for _ in range(self.records_count):
            length, start = _varint(data, position)
            end = start + length
            if length < 1 or end > len(data):
                raise RecordDefect(f"a record at byte {position} claims {length} bytes")
            # One byte of attributes, which are unused so far.
            if start < end and data[start]:
                raise RecordAttributes(f"a record at byte {position} has attributes ({data[start]})")
            _, position = _varint(data, start + 1)
            delta, position = _varint(data, position)
            key, position = _bytes(data, position, end)
            value, position = _bytes(data, position, end)
            headers, position = _varint(data, position)
            if headers:
                position = _past_headers(data, position, headers, end)
            if position != end:
                raise RecordDefect(f"a record that ends at byte {end} holds what ends at byte {position}")
            yield base + delta, key, value
        if position != len(data):
            raise RecordDefect(f"{len(data) - position} bytes are left over")


def _bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, start = _varint(data, position)
    if length < 0:
        return None, start
    stop = start + length
    if stop > end:
        raise RecordDefect(f"a field at byte {position} claims {length} bytes")
    return data[start:stop], stop


def _past_headers(data: bytes, position: int, count: int, end: int) -> int:
    if not 0 <= count <= end - position:
        raise RecordDefect(f"a record claims {count} headers")
    for _ in range(count):
        key, position = _bytes(data, position, end)
        if key is None:
            raise RecordDefect("a header has no name")
        _, position = _bytes(data, position, end)
    return position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag-encoded signed number of at most 64 bits (`ByteUtils.readVarlong`), and where it ends."""
    try:
        byte = data[position]
        if byte < 0x80:  # most of them
            return (byte >> 1) ^ -(byte & 1), position + 1
        value, shift = byte & 0x7F, 7
        while True:
            position += 1
            byte = data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise RecordDefect(f"a number at byte {position} has more than 64 bits")
    except IndexError:
        raise RecordDefect("it ends in the middle of a number") from None
    return (value >> 1) ^ -(value & 1), position + 1


WINDOW = 1 << 20
LOG_OVERHEAD = 12  # base offset and length, which the length field does not include
HEADER_SIZE_UP_TO_MAGIC = 17  # `Records`: where less is left, Kafka looks for no further batch
RECORD_OVERHEAD_V0 = 14  # `LegacyRecord`: a length below is an error
HEADER_SIZE = 61
MAX_BATCH = 64 << 20  # KafkaRaftClient writes batches of at most 8 MiB
MAGIC = 2


class BatchDefect(Exception):
    """There is no complete, correct batch at `position`."""

    def __init__(self, position: int, says: str) -> None:
        super().__init__(says)
        self.position = position


class Batch(NamedTuple):
    """A batch whose header fits its position. The CRC is not checked until `records` is called."""

    base_offset: int
    next_offset: int
    time_ms: int
    epoch: int
    control: bool
    position: int
    raw: RecordBatch

    def records(self) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        """(offset, key, value) of each record.

        Raises `BatchDefect` before the first record if the CRC is wrong. If the CRC is right but the content is
        inconsistent, it was written that way and is not a torn tail: this raises `UnreadableError`, possibly after some
        records were yielded.
        """
        if not self.raw.validate_crc():
            raise BatchDefect(self.position, "its checksum is wrong")
        where = f"byte {self.position}: the batch at offset {self.base_offset}"
        if self.raw.records_count != self.next_offset - self.base_offset:
            raise UnreadableError(f"{where} counts {self.raw.records_count} records")
        if self.raw.compressed:
            raise UnreadableError(f"{where} is compressed, which Kafka does not do in this log")
        if self.raw.unknown_attributes:
            raise NotUnderstood(
                f"{where} has attributes that no batch of this log has ({self.raw.unknown_attributes:#x})"
            )
        expected = self.base_offset
        try:
            for offset, key, value in self.raw.records():
                if offset != expected:
                    raise UnreadableError(f"{where} has offset {offset} instead of {expected}")
                yield expected, key, value
                expected += 1
        except RecordAttributes as error:
            raise NotUnderstood(f"{where}: {error}") from error
        except RecordDefect as error:
            raise UnreadableError(f"{where} cannot be read: {error}") from error


class BatchFile:
    """The batches of one open file, in order.

    `size` is fixed when the file is opened: what a live broker appends later is not read.
    """

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self.name = name
        self.size = os.fstat(fd).st_size
        self._start = 0
        self._window = b""

    def bytes_at(self, position: int, length: int) -> bytes:
        """Bytes of the file; raises `FileShrank` if it has become shorter since it was opened."""
        offset = position - self._start
        if offset < 0 or offset + length > len(self._window):
            self._start = position
            self._window = self._read(position, min(max(length, WINDOW), self.size - position))
            offset = 0
        return self._window[offset : offset + length]

    def _read(self, position: int, length: int) -> bytes:
        pieces = []
        while length > 0:
            piece = os.pread(self._fd, length, position)
            if not piece:
                raise FileShrank(f"{self.name} became shorter while it was read")
            pieces.append(piece)
            position += len(piece)
            length -= len(piece)
        return b"".join(pieces)

    def offset_at(self, position: int) -> int | None:
        """The base offset of the batch at `position`; None unless there is a complete, correct one."""
        left = self.size - position
        if not position >= 0 or left < HEADER_SIZE:
            return None
        length = int.from_bytes(self.bytes_at(position + 8, 4), "big", signed=True) + LOG_OVERHEAD
        if not HEADER_SIZE <= length <= min(left, MAX_BATCH):
            return None
        batch = RecordBatch(self.bytes_at(position, length))
        return batch.base_offset if batch.magic == MAGIC and batch.validate_crc() else None

    def batches(self, first_offset: int, min_epoch: int, position: int = 0, *, gaps: bool = False) -> Iterator[Batch]:
        """Every batch from `position` on, where the one with `first_offset` must be; `gaps`: offsets may be missing
        before a batch, as compaction leaves them (never in the metadata log).

        Raises `BatchDefect` at the first position without a complete batch that continues the previous one.
        """
        expected, epoch = first_offset, min_epoch
        while position < self.size:
            header = self._header(position, expected, epoch, gaps)
            raw = RecordBatch(self.bytes_at(position, header))
            batch = Batch(
                raw.base_offset,
                raw.next_offset,
                raw.max_timestamp,
                raw.leader_epoch,
                raw.control,
                position,
                raw,
            )
            if batch.next_offset <= batch.base_offset:
                raise BatchDefect(position, f"it ends at offset {batch.next_offset}")
            yield batch
            position += header
            expected, epoch = batch.next_offset, batch.epoch

    def _header(self, position: int, expected: int, epoch: int, gaps: bool) -> int:
        """The total length of the batch at `position`, whose header must fit its position."""
        left = self.size - position
        if left < HEADER_SIZE:
            raise BatchDefect(position, f"only {left} bytes are left")
        head = self.bytes_at(position, HEADER_SIZE)
        base_offset = int.from_bytes(head[:8], "big", signed=True)
        length = int.from_bytes(head[8:12], "big", signed=True) + LOG_OVERHEAD
        leader_epoch = int.from_bytes(head[12:16], "big", signed=True)
        if head[16] > MAGIC and not gaps and base_offset == expected and HEADER_SIZE <= length <= left:
            # No torn tail, which has no batch that goes on where the last one ended.
            raise NotUnderstood(f"byte {position}: a batch has format {head[16]}, known is {MAGIC}")
        if head[16] != MAGIC:
            raise BatchDefect(position, f"its format is {head[16]}")
        if base_offset < expected or (base_offset > expected and not gaps):
            raise BatchDefect(position, f"it begins at offset {base_offset}, expected {expected}")
        if leader_epoch < epoch:
            raise BatchDefect(position, f"its epoch {leader_epoch} is older than {epoch}")
        if not HEADER_SIZE <= length <= min(left, MAX_BATCH):
            raise BatchDefect(position, f"it claims {length} bytes where {left} are left")
        return length

    def batch_after(self, position: int, offset: int) -> int | None:
        """The position of a complete, correct batch after `position` with an offset above `offset`; None if there is
        none.

        This distinguishes a torn tail (nothing valid follows) from damage in the middle: valid records after it must
        not be ignored silently.
        """
        left = self.size - position
        if left > MAX_BATCH:
            raise UnreadableError(f"{self.name}: {left} bytes after byte {position} hold no readable batch")
        tail = self.bytes_at(position, left)
        examined = 0
        for match in _like_a_header(offset, left).finditer(tail, 17):
            start = match.start() - 16
            base_offset = int.from_bytes(tail[start : start + 8], "big", signed=True)
            length = int.from_bytes(tail[start + 8 : start + 12], "big", signed=True) + LOG_OVERHEAD
            if not (offset < base_offset <= offset + left and HEADER_SIZE <= length <= left - start):
                continue
            examined += length
            if examined > MAX_BATCH:
                raise UnreadableError(f"{self.name}: too much after byte {position} looks like a batch")
            if RecordBatch(tail[start : start + length]).validate_crc():
                return position + start
        return None


def _like_a_header(offset: int, left: int) -> re.Pattern[bytes]:
    """Matches the magic byte of anything that looks like the header of a batch within the next `left` offsets; only
    these candidates are examined. (The search starts from the magic because that byte is rare.)"""
    high = {n.to_bytes(5, "big") for n in range(offset >> 24, ((offset + left) >> 24) + 1)}
    offsets, magic = b"|".join(re.escape(prefix) for prefix in sorted(high)), re.escape(bytes([MAGIC]))
    return re.compile(magic + b"(?<=(?:" + offsets + b").{3}[\\x00-\\x04].{7}" + magic + b")", re.DOTALL)


class FileShrank(UnreadableError):
    """The broker truncated a file while we read it: reading starts over."""


_ENTRY = struct.Struct(">ii")


def position_before(dir_fd: int, base_offset: int, offset: int) -> int:
    """The byte position in the segment where an append with records below `offset` starts; 0 if none is known. An idle
    cluster writes two NoOp batches per second: walking a week of them takes seconds, an index lookup microseconds.

    Mirrors `OffsetIndex.lookup`: entries of (offset of the last record of an append − base offset, position of that
    append), ascending, in a file that is padded with zeros while the segment is active. A wrong or missing index gives
    0 or a position without a batch: the caller checks that, and then begins at 0.
    """
    try:
        with opened_regular(f"{base_offset:020}.index", INDEX, dir_fd=dir_fd) as fd:
            return _lookup(fd, offset - base_offset)
    except (OSError, UnreadableError):
        return 0


def _lookup(fd: int, relative: int) -> int:
    low, high, best = 0, os.fstat(fd).st_size // _ENTRY.size, 0
    while low < high:
        middle = (low + high) // 2
        raw = os.pread(fd, _ENTRY.size, middle * _ENTRY.size)
        if len(raw) < _ENTRY.size:
            return 0
        entry_offset, position = _ENTRY.unpack(raw)
        # Zeros pad the file after the last entry; only the very first entry may have an offset of 0.
        if (entry_offset == 0 and middle > 0) or entry_offset >= relative:
            high = middle
        else:
            low, best = middle + 1, position
    return max(best, 0)
