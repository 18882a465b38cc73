"""Where to begin in a long segment: a hint from the `.index` file beside it, which the caller verifies.

An idle cluster writes two NoOp batches per second; a segment may then contain a week of them before the snapshot that
makes them obsolete. Walking a million batch headers takes seconds, an index lookup microseconds.
"""

from __future__ import annotations

import os
import struct

from logagent.errors import UnreadableError
from logagent.files.safe_open import INDEX, opened_regular

_ENTRY = struct.Struct(">ii")


def position_before(dir_fd: int, base_offset: int, offset: int) -> int:
    """The byte position in the segment where an append with records below `offset` began; 0 if none is known.

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
    low, high, found = 0, os.fstat(fd).st_size // _ENTRY.size, 0
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
            low, found = middle + 1, position
    return max(found, 0)
