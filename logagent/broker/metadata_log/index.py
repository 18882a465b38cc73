"""Where in a long segment to begin: the `.index` file beside it, as a hint that is never believed unchecked.

An idle cluster writes two NoOp batches a second; a segment then holds a week of them before the snapshot that makes
them useless. Walking over a million batch headers takes seconds, looking one up in the index microseconds.
"""

from __future__ import annotations

import os
import struct

from logagent.errors import UnreadableError
from logagent.files.limits import INDEX
from logagent.files.safe_open import opened_regular

_ENTRY = struct.Struct(">ii")


def position_before(dir_fd: int, base_offset: int, offset: int) -> int:
    """A byte position of the segment at which an append with records below `offset` began; 0 where none is known.

    Mirrors `OffsetIndex.lookup`: entries of (offset of the last record of an append − base offset, position of that
    append), ascending, in a file that is filled up with zeros while the segment is active. A wrong or missing
    index gives 0 or a position at which no batch stands: the caller checks that, and begins at 0 then.
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
        # Zeros fill the file up behind the last entry; only the very first entry may have an offset of 0.
        if (entry_offset == 0 and middle > 0) or entry_offset >= relative:
            high = middle
        else:
            low, found = middle + 1, position
    return max(found, 0)
