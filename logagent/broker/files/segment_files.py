"""The segment files of one partition dir, as `LogSegment` names them: sizes, and whether their indexes are sound."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Final

from logagent.errors import UnreadableError
from logagent.files.safe_open import INDEX, opened_regular

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
# Bytes of one entry: `OffsetIndex.ENTRY_SIZE`, `TimeIndex.ENTRY_SIZE`.
ENTRY_BYTES: Final = {OFFSET_INDEX: 8, TIME_INDEX: 12}
# If one of these has no `.log`, a removal left it behind (Kafka and we remove the `.log` first).
_BELONGS_TO_A_LOG: Final = (OFFSET_INDEX, TIME_INDEX, ".txnindex")
# Kafka renames the files of a segment before it unlinks them, and a whole log from its first segment on.
_DELETED: Final = tuple(f"{suffix}.deleted" for suffix in (LOG, *_BELONGS_TO_A_LOG))
_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class IndexLook:
    """One index file. `sound`: its length is a multiple of its entry size, and its last entry is not all zeros.

    Kafka preallocates an index (10 MiB) and trims it when closing it properly, so zeros at the end show that it was not
    closed.
    """

    bytes: int
    sound: bool


@dataclass(frozen=True, slots=True)
class SegmentLook:
    """A segment, by its base offset (20 digits). A missing index is None."""

    base: str
    log_bytes: int
    index: IndexLook | None
    timeindex: IndexLook | None


@dataclass(frozen=True, slots=True)
class SegmentsLook:
    """The segments of a directory in order, the index files whose `.log` is missing, and the files below the first
    segment that a broker was about to unlink (`.deleted`)."""

    segments: tuple[SegmentLook, ...]
    without_log: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


def is_segment_file(name: str, suffix: str) -> bool:
    """Whether `name` is 20 ASCII digits followed by `suffix`."""
    return name[_DIGITS:] == suffix and name[:_DIGITS].isdigit() and name.isascii()


def look_at_segments(dir_fd: int) -> SegmentsLook:
    """Inspect the segments in the open partition dir `dir_fd`.

    An index that is not a regular file is not sound. Raises OSError from the disk.
    """
    names = set(os.listdir(dir_fd))
    bases = sorted(name[:_DIGITS] for name in names if is_segment_file(name, LOG))
    segments = tuple(
        SegmentLook(
            base,
            os.stat(base + LOG, dir_fd=dir_fd, follow_symlinks=False).st_size,
            _index(dir_fd, base, OFFSET_INDEX, names),
            _index(dir_fd, base, TIME_INDEX, names),
        )
        for base in bases
    )
    alone = sorted(
        n for n in names for s in _BELONGS_TO_A_LOG if is_segment_file(n, s) and n[:_DIGITS] + LOG not in names
    )
    first = bases[0] if bases else ""
    deleted = sorted(n for n in names for s in _DELETED if is_segment_file(n, s) and n[:_DIGITS] < first)
    return SegmentsLook(segments, tuple(alone), tuple(deleted))


def _index(dir_fd: int, base: str, suffix: str, names: set[str]) -> IndexLook | None:
    name, entry = base + suffix, ENTRY_BYTES[suffix]
    if name not in names:
        return None
    try:
        with opened_regular(name, INDEX, dir_fd=dir_fd) as fd:
            size = os.fstat(fd).st_size
            last = os.pread(fd, entry, max(size - entry, 0))
    except FileNotFoundError:
        return None
    except UnreadableError:
        found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        return IndexLook(found.st_size if stat.S_ISREG(found.st_mode) else 0, sound=False)
    return IndexLook(size, sound=size % entry == 0 and (size == 0 or any(last)))
