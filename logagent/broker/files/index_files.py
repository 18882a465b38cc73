"""Which index files go before a directory gets its current name back, so that Kafka rebuilds them.

A broker that loads a `-stray` dir stretches the last segment's indexes to their preallocated length and never cuts
them again. Under its own name, beside a clean-shutdown marker, no index is checked any more (`LogSegment.sanityCheck`):
the last entry of the time index reads 0, and the next retention check deletes the segment, on every replica that
follows. A missing `.index` makes Kafka recover that segment: `.index`, `.timeindex`, `.txnindex`, producer state and
leader epochs come anew. (A missing `.timeindex` alone is not rebuilt, and without its `.txnindex` a segment shows
aborted transactions. So only `.index` files go; and `.kafka_cleanshutdown` stays, other partitions live by it.)
"""

from __future__ import annotations

from dataclasses import dataclass

from logagent.broker.files.segment_files import OFFSET_INDEX, SegmentLook, SegmentsLook


@dataclass(frozen=True, slots=True)
class Rebuild:
    """`unlink`: the `.index` files that go, by base offset. `bytes`: what the broker then reads of `.log` files."""

    unlink: tuple[str, ...]
    bytes: int


def indexes_to_rebuild(look: SegmentsLook, *, every_segment: bool) -> Rebuild:
    """The `.index` of the last segment, of each one whose `.index` or `.timeindex` is missing or not sound, and with
    `every_segment` of all.

    `every_segment` is for a directory that bore a `-delete` name (each load of one empties its
    `leader-epoch-checkpoint`), and for one that was not surely closed cleanly before it was set aside: a clean-shutdown
    marker that is newer than that would keep Kafka from recovering it.
    """
    chosen = [s for s in look.segments if every_segment or s is look.segments[-1] or not _sound(s)]
    return Rebuild(
        tuple(s.base + OFFSET_INDEX for s in chosen if s.index is not None), sum(s.log_bytes for s in chosen)
    )


def _sound(segment: SegmentLook) -> bool:
    return all(index is not None and index.sound for index in (segment.index, segment.timeindex))
