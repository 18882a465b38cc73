"""The log of a partition directory in offsets and leader epochs, and what two logs may have in common. Without I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

# (leader epoch, start offset) in ascending order, as in `leader-epoch-checkpoint`.
Epochs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The log of one partition dir, read from its own files.

    `log_end` is the offset after the last complete record, None if unknown (torn tail, no segment); `epochs` are the
    (leader epoch, start offset) pairs of `leader-epoch-checkpoint` in file order, empty if the file is missing, empty
    or invalid; `log_start` and `last_segment` are the base offsets of the first and the last segment; `log_bytes` is
    the size of all segments; `gaps` are the offsets between a segment's last record and the next segment, if every
    segment was looked at. `problem` says what could not be determined.
    """

    log_start: int | None
    log_end: int | None
    epochs: Epochs = ()
    problem: str | None = None
    last_segment: int | None = None
    log_bytes: int = 0
    gaps: tuple[tuple[int, int], ...] = ()

    @property
    def has_no_records(self) -> bool:
        """Whether it is known to have none: one segment, and that is empty."""
        return self.problem is None and self.log_end is not None and self.log_end == self.log_start

    def reaches(self, offset: int) -> bool | None:
        """Whether the log ends at or above `offset`; None if unknown. If the log start offset is above the end, a
        broker deletes every segment of the log (`LogLoader.load`)."""
        if self.log_end is not None:
            return offset <= self.log_end
        return True if offset <= (self.last_segment or 0) else None

    def emptied_by(self, log_start: int) -> bool:
        """Whether a broker that loads it with this log start offset would delete records; True also if unknown."""
        empty = self.log_end is not None and self.log_end == self.log_start
        return log_start > 0 and not empty and not self.reaches(log_start)

    def unsound(self, problem: str | None) -> LogExtent:
        """The same log with its end unknown because of `problem`, if there is one: it covers nothing then."""
        return self if problem is None else replace(self, log_end=None, problem=problem)

    @property
    def last_epoch(self) -> int | None:
        """The leader epoch of the last record; None if there are no records or epochs, or an epoch begins after the
        end.

        A leader records an epoch when it is elected, so the last epochs may have no records yet: followers learn of an
        epoch only from its records.
        """
        if self.log_end is None or any(start > self.log_end for _, start in self.epochs):
            return None
        return next((epoch for epoch, start in reversed(self.epochs) if start < self.log_end), None)


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Where a leader epoch ends in another copy: Kafka's answer to OffsetForLeaderEpoch.

    `epoch` is the largest epoch known to that copy that is not above the requested one, `end_offset` is where it ends
    there; both are None if the copy knows no such epoch. `log_start` is the copy's log start offset, None if unknown.
    `high_watermark`: up to where its records are known to stay; of a copy on this host, which counts only where this
    node leads, all of them. `where` names the copy ("the leader, node 2"). `led_here`: this host's own broker is the
    leader, so that its files answer; `here`: they do. `gaps`, `problem`: as in `LogExtent`; no leader tells about its
    own gaps.
    """

    where: str
    epoch: int | None
    end_offset: int | None
    log_start: int | None = None
    gaps: tuple[tuple[int, int], ...] = ()
    problem: str | None = None
    high_watermark: int | None = None
    led_here: bool = False
    here: bool = False

    def lacks(self, own: LogExtent) -> tuple[int, int] | None:
        """The first gap in the copy at offsets that `own` may have records for. Only compaction leaves such gaps, and
        from the offsets it cannot be told from a segment that was lost: neither by the broker that serves the copy."""
        first, end = max(own.log_start or 0, self.log_start or 0), own.log_end or 0
        return next(((a, b) for a, b in self.gaps if max(a, first) < min(b, end)), None)


class EpochRun(NamedTuple):
    """Batches of one leader epoch that follow each other in a segment: the offsets from the first's base offset to
    before the last's next one."""

    epoch: int
    first: int
    end: int


class InCommon(NamedTuple):
    """The offsets, from `first` to before `end`, that both logs may have records for, if the copy covers the other
    log; and the leader epochs of the two checkpoints."""

    first: int
    end: int
    own: Epochs = ()
    copy: Epochs = ()

    def contradiction(self, runs: Iterable[EpochRun]) -> str | None:
        """The first batches of the copy that are of another leader epoch than a checkpoint says. A copy covers another
        log because their checkpoints agree, so they must be true of its records: appending a batch of a new epoch
        writes the checkpoint (`UnifiedLog.maybeAssignEpochStartOffset`), and compaction keeps the epoch of a batch.

        Below the first entry of its own checkpoint, the other log may have no records (a replica that was copied after
        compaction); the copy's must have one for every batch.
        """
        for run in runs:
            first, end = max(run.first, self.first), min(run.end, self.end)
            for offset in (first, end - 1) if first < end else ():
                there, own = epoch_at(self.copy, offset), epoch_at(self.own, offset)
                if there != run.epoch:
                    says = "none" if there is None else f"epoch {there}"
                    return f"is of leader epoch {run.epoch} at offset {offset}, its leader-epoch-checkpoint says {says}"
                if own is not None and own != run.epoch:
                    return f"is of leader epoch {run.epoch} at offset {offset}, the other log of epoch {own}"
        return None


def epoch_at(epochs: Epochs, offset: int) -> int | None:
    """The epoch of the record at `offset` (`LeaderEpochFileCache.epochForOffset`); None below the first entry."""
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), None)
