"""Which index files to remove before a directory gets its current name back, so that Kafka rebuilds them.

A broker that loads a `-stray` dir extends the last segment's indexes to their preallocated length and never trims them
again. Under the current name, next to a clean-shutdown marker, no index is checked any more (`LogSegment.sanityCheck`):
the last entry of the time index reads as 0, and the next retention check deletes the segment, also on every follower.
If an `.index` is missing, Kafka recovers that segment: it rebuilds `.index`, `.timeindex`, `.txnindex`, producer state
and leader epochs. (A missing `.timeindex` alone is not rebuilt, and without its `.txnindex` a segment exposes aborted
transactions. So only `.index` files are removed; `.kafka_cleanshutdown` stays, because other partitions rely on it.)
"""

from __future__ import annotations

from dataclasses import dataclass

from logagent.broker.files.segment_files import OFFSET_INDEX, TIME_INDEX, SegmentLook, SegmentsLook


@dataclass(frozen=True, slots=True)
class Rebuild:
    """`unlink`: the `.index` files to remove, by base offset. `bytes`: what the broker then reads from `.log` files."""

    unlink: tuple[str, ...]
    bytes: int


def indexes_to_rebuild(look: SegmentsLook, *, every_segment: bool) -> Rebuild:
    """The `.index` of the last segment and of each segment whose `.index` or `.timeindex` is missing or not sound; with
    `every_segment`, those of all segments.

    `every_segment` is for a directory that had a `-delete` name (each load of one empties its
    `leader-epoch-checkpoint`), and for one that may not have been closed cleanly before it was set aside: a later
    clean-shutdown marker would keep Kafka from recovering it.
    """
    chosen = [s for s in look.segments if every_segment or s is look.segments[-1] or not _sound(s)]
    return Rebuild(
        tuple(s.base + OFFSET_INDEX for s in chosen if s.index is not None), sum(s.log_bytes for s in chosen)
    )


def every_index(look: SegmentsLook) -> tuple[str, ...]:
    """The `.index` of every segment, and then the `.timeindex` of each: without its `.index` first, a broker would not
    rebuild it."""
    offset_indexes = [s.base + OFFSET_INDEX for s in look.segments if s.index is not None]
    return (*offset_indexes, *(s.base + TIME_INDEX for s in look.segments if s.timeindex is not None))


def _sound(segment: SegmentLook) -> bool:
    return all(index is not None and index.sound for index in (segment.index, segment.timeindex))
