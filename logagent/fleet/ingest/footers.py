"""Parquet footers without what differs from one JVM to the next, so that the same rows are the same bytes.

parquet-mr lists a column's encodings in the order of a hash set over enum constants, whose hashes are addresses of a
kind:
another JVM, another order, the same meaning. Here the list is sorted. The footer is Thrift's compact protocol; only as
much of it is read as leads to those lists, and a footer that is not understood to its end is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable

MAGIC = b"PAR1"
TRAILER = 8
"""Length of the footer (4 bytes, little endian) and the magic at the end of every Parquet file."""

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
_ROW_GROUPS, _COLUMNS, _META_DATA, _ENCODINGS = 4, 1, 3, 2


class _Walk:
    """A position in a footer. Raises `IndexError` or `ValueError` where it is no Thrift."""

    def __init__(self, content: bytes) -> None:
        self.content = bytearray(content)
        self.at = 0

    def byte(self) -> int:
        value = self.content[self.at]
        self.at += 1
        return value

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def fields(self, wanted: int, then: Callable[[int], None]) -> None:
        """Reads a struct: `then(kind)` for the field `wanted`, every other one is skipped."""
        last = 0
        while (head := self.byte()) & 0x0F != _STOP:
            kind, delta = head & 0x0F, head >> 4
            zigzag = 0 if delta else self.varint()
            last = last + delta if delta else (zigzag >> 1) ^ -(zigzag & 1)
            if last == wanted:
                then(kind)
            else:
                self.skip(kind)

    def elements(self) -> tuple[int, int]:
        """Head of a list: (kind of its elements, how many)."""
        head = self.byte()
        count = self.varint() if head >> 4 == 15 else head >> 4
        if count > len(self.content) - self.at:
            raise ValueError("a list is longer than the footer")
        return head & 0x0F, count

    def skip(self, kind: int, *, inside: bool = False) -> None:
        """Passes over a value. A boolean is in its field's head, or a byte of its own `inside` a list."""
        if kind in (_TRUE, _FALSE):
            self.at += inside
        elif kind == _BYTE:
            self.at += 1
        elif kind in (_I16, _I32, _I64):
            self.varint()
        elif kind == _DOUBLE:
            self.at += 8
        elif kind == _BINARY:
            length = self.varint()
            self.at += length
        elif kind in (_LIST, _SET):
            of, count = self.elements()
            for _ in range(count):
                self.skip(of, inside=True)
        elif kind == _STRUCT:
            self.fields(0, self.skip)
        else:
            raise ValueError(f"a footer has no values of kind {kind}")

    def each_struct(self, kind: int, then: Callable[[], None]) -> None:
        of, count = self.elements()
        if kind != _LIST or of != _STRUCT:
            raise ValueError("not a list of structs")
        for _ in range(count):
            then()

    def sort_encodings(self, kind: int) -> None:
        """At a list of encodings: small numbers, so one byte each."""
        of, count = self.elements()
        end = self.at + count
        listed = self.content[self.at : end]
        if kind != _LIST or of != _I32 or len(listed) != count or any(byte > 0x7F for byte in listed):
            raise ValueError("not a list of encodings")
        self.content[self.at : end] = bytes(sorted(listed))
        self.at = end

    def column(self) -> None:
        self.fields(_META_DATA, lambda _: self.fields(_ENCODINGS, self.sort_encodings))

    def row_group(self) -> None:
        self.fields(_COLUMNS, lambda kind: self.each_struct(kind, self.column))


def canonical(footer: bytes) -> bytes:
    """`footer` (without length and magic) with every list of encodings sorted; as it is if it is not understood."""
    walk = _Walk(footer)
    try:
        walk.fields(_ROW_GROUPS, lambda kind: walk.each_struct(kind, walk.row_group))
    except (IndexError, ValueError):
        return footer
    return bytes(walk.content) if walk.at == len(footer) else footer
