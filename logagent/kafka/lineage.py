"""Whether a metadata log continues the one that was read here before. Decides without I/O.

Fresh records do not show it: a quorum that was restored from last week's backup writes them too, and a metadata volume
that was rolled back ends as cleanly as any. So the state dir remembers the newest record that was known to be
committed, by its leader epoch, offset and checksum: committed records are never taken back, so a log that ends before
it is behind, and one that has another batch there is of another history. Then it proves nothing, until it has caught up
or an operator says that it is the true one.

The log forgets what it removed once it is in a snapshot, so topic ids that lived here are remembered as well.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from dataclasses import dataclass

from logagent.kafka.commitment import BatchTimes
from logagent.kafka.image import BrokerRegistration


@dataclass(frozen=True, slots=True)
class LogPoint:
    """A committed record of the metadata log: the offset after its batch, the leader epoch and the batch's CRC (None:
    that of a snapshot, which covers it)."""

    offset: int
    epoch: int
    crc: int | None = None


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the state dir knows of this host's metadata log: the newest committed record that was read, and topic ids
    that lived then. `unread`: why that is not known, although there is a file of it; `file`: which. `other_history`:
    how a later log contradicted that record. It counts until the record is seen again: a log forgets what a snapshot
    has, and contradicts nothing then."""

    point: LogPoint | None = None
    topic_ids: frozenset[str] = frozenset()
    unread: str | None = None
    file: str | None = None
    other_history: str | None = None


NOTHING_REMEMBERED = Remembered()


@dataclass(frozen=True, slots=True)
class LogHistory:
    """What a metadata log has: its batches after the snapshot that it was read from, and where those end. `beneath`:
    the batch of a remembered record that the snapshot covers, `last_beneath`: its last one, if the segments still have
    them."""

    batches: BatchTimes
    end: int
    snapshot_end: int = 0
    snapshot_epoch: int = 0
    beneath: LogPoint | None = None
    last_beneath: LogPoint | None = None

    def newest(self, committed: int) -> LogPoint | None:
        """The newest record known to be committed, if `committed` is the offset up to which all are."""
        last = bisect_right(self.batches.next_offsets, committed) - 1
        if last >= 0:
            return self._at(last)
        if self.last_beneath is not None and self.last_beneath.offset == self.snapshot_end:
            return self.last_beneath
        return LogPoint(self.snapshot_end, self.snapshot_epoch) if self.snapshot_end > 0 else None

    def is_behind(self, known: LogPoint) -> str | None:
        """Why it ends before the record `known`; None if it does not. It may catch up with it still."""
        if self.end >= known.offset:
            return None
        return f"{_had(known)} and ends at {self.end} now: it was rolled back, or is another cluster's"

    def is_another(self, known: LogPoint) -> str | None:
        """Why no log that has the record `known` becomes this one; None if it may."""
        if self.end < known.offset:
            # Epochs never decrease within a log.
            newest = max(self.snapshot_epoch, self.batches.last_epoch or 0)
            if newest > known.epoch:
                return f"{_had(known)}, and ends at {self.end} in epoch {newest} now: {_RESTORED}"
            return None
        here = self._batch_of(known)
        if here is not None:
            return None if _is_same(here, known) else f"{_had(known)}, and has other records there now: {_RESTORED}"
        if self.snapshot_epoch < known.epoch:
            return f"{_had(known)}, and its snapshot at {self.snapshot_end} is of epoch {self.snapshot_epoch}"
        return None

    def has(self, known: LogPoint) -> bool:
        """Whether it is seen to have the record `known`: not if only a snapshot has, or had it."""
        here = self._batch_of(known)
        return here is not None and known.crc is not None and _is_same(here, known)

    def _batch_of(self, known: LogPoint) -> LogPoint | None:
        """The batch with the record before the offset of `known`; None if it is not there, or not any more."""
        if known.offset <= self.snapshot_end:
            return self.beneath
        index = bisect_left(self.batches.next_offsets, known.offset)
        return self._at(index) if index < len(self.batches.next_offsets) else None

    def _at(self, index: int) -> LogPoint:
        return LogPoint(self.batches.next_offsets[index], self.batches.epoch_of(index), self.batches.crcs[index])


NO_HISTORY = LogHistory(BatchTimes(), 0)

_RESTORED = "it was restored from a backup, or is another cluster's"


def _is_same(here: LogPoint, known: LogPoint) -> bool:
    # Of a snapshot only its last record is known, not the batch.
    return here.epoch == known.epoch and (known.crc is None or (here.offset, here.crc) == (known.offset, known.crc))


def _had(known: LogPoint) -> str:
    return f"this host's metadata log went up to offset {known.offset} (leader epoch {known.epoch})"


def other_history(history: LogHistory, known: Remembered) -> str | None:
    """Why the cluster's history is another one than what is remembered, now or when it was last compared; None if
    nothing shows that. Then nobody's answer proves anything: the quorum may have been restored from a backup."""
    if known.point is None or history.has(known.point):
        return None
    return history.is_another(known.point) or known.other_history


def why_not_our_lineage(
    history: LogHistory,
    known: Remembered,
    registration: BrokerRegistration | None,
    directory_ids: Collection[str],
) -> str | None:
    """Why a metadata log of our cluster's id proves nothing here; None if it is the one that we know.

    `registration`: this node's in it; `directory_ids`: those of our log dirs, which it must have registered (3.7 on).
    """
    if known.unread is not None:
        return with_lineage_hint(known.unread, known)
    if (why := why_other_log_dirs(registration, directory_ids)) is not None:
        return why
    why = other_history(history, known) or (history.is_behind(known.point) if known.point is not None else None)
    return None if why is None else with_lineage_hint(why, known)


def why_other_log_dirs(registration: BrokerRegistration | None, directory_ids: Collection[str]) -> str | None:
    """Why this node's registration in some metadata is not of our log dirs; None if it is, or if either says none."""
    theirs = set(registration.directory_ids) if registration is not None else set[str]()
    if theirs and directory_ids and theirs.isdisjoint(directory_ids):
        return "this node registered other log dirs in it: none of their directory ids is here"
    return None


def with_lineage_hint(why: str, known: Remembered) -> str:
    """`why`, with what the operator does who knows better."""
    return f"{why}; if it is the true one all the same, remove {known.file}" if known.file is not None else why


def remember(known: Remembered, newest: LogPoint | None, lived: Collection[str], here: Collection[str]) -> Remembered:
    """What to remember after a reading that does not contradict: the newer record, and of the topic ids `here` (of the
    directories on this host) those that `lived` now or before."""
    newer = newest is not None and (known.point is None or newest.offset > known.point.offset)
    ids = frozenset(i for i in here if i in lived or i in known.topic_ids)
    return Remembered(newest if newer else known.point, ids, file=known.file)
