"""One record batch (magic 2) in the format of Kafka's `DefaultRecordBatch`: header, checksum, records.

We have our own decoder because kafka-python's loads its whole client (8 MB and 0.15 s in every daemon and command that
reads assignments) and takes twice as long for 100,000 records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

# Base offset, length, leader epoch, magic, CRC; then, covered by the CRC: attributes, last offset delta, base and
# largest timestamp, producer id and epoch, base sequence, number of records.
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKED_FROM = 21
_CODEC = 0x07
_CONTROL = 0x20


class RecordDefect(ValueError):
    """The records contradict the header or their own lengths."""


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
            if length < 0 or end > len(data):
                raise RecordDefect(f"a record at byte {position} claims {length} bytes")
            # Skip one byte of attributes, which are unused so far.
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
