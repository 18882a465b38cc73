"""Whether a metadata log continues the one that was read here before. Decides without I/O.

Fresh records do not show it: a quorum that was restored from last week's backup writes them too, and a metadata volume
that was rolled back ends as cleanly as any. So the state dir remembers the newest record that was known to be
committed, by its leader epoch, offset and checksum: committed records are never taken back, so a log that ends before
it is behind, and one that has another batch there is of another history. Then it proves nothing, until it has caught up
or an operator says that it is the true one.

A snapshot hides the record: within an hour a restored quorum has one of a late enough epoch. So the record is looked up
in the log below its snapshot, which keeps it for days, and a contradiction that was seen once is remembered too, until
the log has that very record again.

The log forgets what it removed once it is in a snapshot, so topic ids that lived here are remembered as well.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from dataclasses import dataclass

from logagent.model.assignments.commitment import BatchTimes
from logagent.model.assignments.image import BrokerRegistration


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
    that lived then; `contradicted`: how a later reading did. `unread`: why that is not known, although there is a file
    of it; `file`: which."""

    point: LogPoint | None = None
    topic_ids: frozenset[str] = frozenset()
    contradicted: str | None = None
    unread: str | None = None
    file: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether a log can contradict it."""
        return self.point is not None or self.unread is not None


NOTHING_REMEMBERED = Remembered()


@dataclass(frozen=True, slots=True)
class LogHistory:
    """What a metadata log has: its batches after the snapshot that it was read from, and where those end. `below`: the
    one with the record that is remembered, if the snapshot covers it and the log still has it."""

    batches: BatchTimes
    end: int
    snapshot_end: int = 0
    snapshot_epoch: int = 0
    below: LogPoint | None = None

    def newest(self, committed: int) -> LogPoint | None:
        """The newest record known to be committed, if `committed` is the offset up to which all are."""
        last = bisect_right(self.batches.next_offsets, committed) - 1
        if last >= 0:
            return self._at(last)
        return LogPoint(self.snapshot_end, self.snapshot_epoch) if self.snapshot_end > 0 else None

    def contradicts(self, known: LogPoint) -> str | None:
        """Why this is not the log that had the record `known`, or ends before it; None if it may be."""
        had = f"this host's metadata log went up to offset {known.offset} (leader epoch {known.epoch})"
        if self.end < known.offset:
            return f"{had} and ends at {self.end} now: it was rolled back, or is another cluster's"
        here = self._with(known)
        if here is None:
            if self.snapshot_epoch < known.epoch:
                return f"{had}, and its snapshot at {self.snapshot_end} is of epoch {self.snapshot_epoch}"
            return None
        if not _is_same(here, known):
            return f"{had}, and has other records there now: it was restored from a backup, or is another cluster's"
        return None

    def has(self, known: LogPoint) -> bool:
        """Whether it shows that very record, so that it is not only not known to contradict."""
        here = self._with(known) if known.offset <= self.end else None
        return here is not None and _is_same(here, known)

    def _with(self, known: LogPoint) -> LogPoint | None:
        """The batch with the record before that offset; None if only a snapshot has it."""
        if known.offset <= self.snapshot_end:
            return self.below
        return self._at(bisect_left(self.batches.next_offsets, known.offset))

    def _at(self, index: int) -> LogPoint:
        return LogPoint(self.batches.next_offsets[index], self.batches.epoch_of(index), self.batches.crcs[index])


def _is_same(here: LogPoint, known: LogPoint) -> bool:
    # Of a snapshot only the record is known, not its batch.
    same = known.crc is None or (here.offset, here.crc) == (known.offset, known.crc)
    return here.epoch == known.epoch and same


NO_HISTORY = LogHistory(BatchTimes(), 0)


def why_not_our_lineage(
    history: LogHistory,
    known: Remembered,
    registration: BrokerRegistration | None,
    directory_ids: Collection[str],
) -> str | None:
    """Why a metadata log of our cluster's id proves nothing here; None if it is the one that we know.

    `registration`: this node's in it; `directory_ids`: those of our log dirs, which it must have registered (3.7 on).
    """
    hint = f"; if it is the true one all the same, remove {known.file}" if known.file is not None else ""
    if known.unread is not None:
        return f"{known.unread}{hint}"
    if (other := why_other_log_dirs(registration, directory_ids)) is not None:
        return other
    why = contradiction(history, known)
    return None if why is None else f"{why}{hint}"


def contradiction(history: LogHistory, known: Remembered) -> str | None:
    """How a metadata log contradicts what is remembered, or did when that was noted."""
    if known.point is None or (why := history.contradicts(known.point)) is not None:
        return None if known.point is None else why
    return None if history.has(known.point) else known.contradicted


def why_other_log_dirs(registration: BrokerRegistration | None, directory_ids: Collection[str]) -> str | None:
    """Why this node's registration in some metadata is not of our log dirs; None if it is, or if either says none."""
    theirs = set(registration.directory_ids) if registration is not None else set[str]()
    if theirs and directory_ids and theirs.isdisjoint(directory_ids):
        return "this node registered other log dirs in it: none of their directory ids is here"
    return None


def remember(known: Remembered, newest: LogPoint | None, lived: Collection[str], here: Collection[str]) -> Remembered:
    """What to remember after a reading that does not contradict: the newer record, and of the topic ids `here` (of the
    directories on this host) those that `lived` now or before."""
    newer = newest is not None and (known.point is None or newest.offset > known.point.offset)
    ids = frozenset(i for i in here if i in lived or i in known.topic_ids)
    return Remembered(newest if newer else known.point, ids, file=known.file)
