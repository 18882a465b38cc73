"""Which part of a metadata log is committed, as far as that can be told from disk.

The high watermark of KRaft's log is nowhere on disk, and a follower's tail may hold records that the quorum
never agreed on and will truncate. Kafka itself applies only committed records; we cannot ask, so records count
as committed under one of three conditions (any is enough), and everything behind is "not known":

1. the quorum has exactly one voter: what is in its log is committed;
2. a complete snapshot covers the record: snapshots are only made of committed state;
3. the log holds a batch at least `SETTLED_MS` younger than the record's, and this node does not lead the quorum
   (a leader that lost its quorum goes on appending alone; a follower that still receives does not).

Deviation from Kafka's `RaftClient`: condition 3 is a heuristic, used only to hold a verdict back, never alone.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

SETTLED_MS = 60_000


@dataclass(slots=True)
class BatchTimes:
    """Next offset and time (ms) of every batch in the order of the log; 16 bytes a batch."""

    next_offsets: array[int] = field(default_factory=lambda: array("q"))
    times: array[int] = field(default_factory=lambda: array("q"))

    def append(self, next_offset: int, time_ms: int) -> None:
        self.next_offsets.append(next_offset)
        self.times.append(time_ms)

    def settled_offset(self, settled_ms: int = SETTLED_MS) -> int | None:
        """Offset after the last batch that a later batch is at least `settled_ms` younger than; None for none.

        Times of different leaders may run backwards; the youngest of all later batches is what counts.
        """
        youngest_after: int | None = None
        for index in range(len(self.times) - 1, -1, -1):
            if youngest_after is not None and youngest_after - self.times[index] >= settled_ms:
                return self.next_offsets[index]
            if youngest_after is None or self.times[index] > youngest_after:
                youngest_after = self.times[index]
        return None


def committed_offset(
    batches: BatchTimes, *, snapshot_end: int, log_end: int, voters: int | None, may_lead: bool
) -> int:
    """The offset (exclusive) up to which every record is known to be committed.

    `voters` is the number of voters, None where it is not known; `may_lead` is true unless it is known that this
    node does not lead the quorum.
    """
    if voters == 1:
        return log_end
    settled = None if may_lead else batches.settled_offset()
    return snapshot_end if settled is None else max(snapshot_end, settled)
