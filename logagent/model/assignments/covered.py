"""Whether another copy of a partition has every record that a directory has. Decides without I/O.

"At least as long" is not enough: a log that was recreated and refilled is long, too, and an ISR can consist of such
logs. A record is identified by its leader epoch and offset (KIP-101), so the other copy is asked where the directory's
last leader epoch ends in its own log; a copy on this host must have no gap between its segments, either. Used before a
stray is removed or marked for deletion, and before a copy is restored that its leader would truncate.

Only what the leader has committed counts (its high watermark): of the records after that, a failover may leave none.
"""

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


def end_of_epoch(where: str, copy: LogExtent, epoch: int) -> EpochEnd:
    """The answer for a copy on this host's disks (`LeaderEpochFileCache.endOffsetFor`).

    Deviation: an epoch below all those the copy knows has no end there. Kafka returns the start of the first known
    epoch, which proves nothing about earlier records if the copy has lost its older epochs.
    """
    if copy.log_end is None or copy.last_epoch is None:
        log_start = copy.log_start if copy.log_end is not None else None
        return EpochEnd(where, None, None, log_start, problem=copy.problem)
    end = copy.log_end
    if epoch == copy.last_epoch:
        return EpochEnd(where, epoch, end, copy.log_start, copy.gaps, high_watermark=end, here=True)
    later = [start for known, start in copy.epochs if known > epoch]
    floor = [known for known, _ in copy.epochs if known <= epoch]
    if not later or not floor:
        return EpochEnd(where, None, None, copy.log_start)
    return EpochEnd(where, max(floor), min(later), copy.log_start, copy.gaps, high_watermark=end, here=True)


class EpochRun(NamedTuple):
    """Batches of one leader epoch that follow each other in a segment: the offsets from the first's base offset to
    before the last's next one."""

    epoch: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class InCommon:
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


def in_common(own: LogExtent, copy: LogExtent) -> InCommon:
    return InCommon(max(own.log_start or 0, copy.log_start or 0), own.log_end or 0, own.epochs, copy.epochs)


def covers(other: EpochEnd, own: LogExtent) -> bool:
    """Whether the copy that answered `other` (for `own.last_epoch`) has every record of `own`, for good.

    True if that very epoch ends there at or above the directory's end, so does what is committed, and no segment may be
    missing. False if the directory's end or last epoch is unknown: such a directory is never covered. What the copy has
    deleted itself (`past_retention`), it does not have; below its log start a broker deletes the records of every
    replica, so those do not count (`what_it_has` says so).
    """
    if own.log_end is None or own.last_epoch is None or other.problem is not None:
        return False
    if other.epoch != own.last_epoch or other.end_offset is None or other.end_offset < own.log_end:
        return False
    if other.high_watermark is None or other.high_watermark < own.log_end or past_retention(other, own):
        return False
    return other.lacks(own) is None


def what_it_has(other: EpochEnd, own: LogExtent) -> str:
    """In words, what the copy that covers `own` has of it."""
    if other.log_start is None or other.log_start <= (own.log_start or 0):
        return "another copy has all of it"
    return f"another copy has all of it from offset {other.log_start} on, and has deleted what was before that"


def past_retention(other: EpochEnd, own: LogExtent) -> bool:
    """Whether the copy's log begins at or above the end of `own`: retention, or an operator, deleted all of that there.
    It may have been a mistake, and then these are the last records."""
    return own.log_end is not None and other.log_start is not None and other.log_start >= own.log_end > 0


def why_not_covered(own: LogExtent, answers: tuple[EpochEnd, ...]) -> str:
    """The reason in words, with all figures, for a refusal."""
    if own.log_end is None or own.last_epoch is None:
        return f"cannot tell where its own log ends ({own.problem or 'it has no leader epochs'})"
    reasons = [_why_not(own, answer) for answer in answers]
    why = "; ".join(reasons) or "nobody was asked"
    return f"it ends at offset {own.log_end} in leader epoch {own.last_epoch}; {why}"


def _why_not(own: LogExtent, answer: EpochEnd) -> str:
    if answer.problem is not None:
        return f"{answer.where} does not count ({answer.problem})"
    if past_retention(answer, own):
        return f"past retention: the log of {answer.where} begins at {answer.log_start}, so it has deleted all of that"
    if answer.led_here:
        return f"{answer.where} leads its partition, and no copy here has all of it"
    if answer.epoch != own.last_epoch:
        return f"{answer.where} does not know that epoch"
    end = f"{answer.where} ends it at {answer.end_offset}"
    if answer.end_offset is not None and answer.end_offset >= (own.log_end or 0):
        committed = answer.high_watermark
        if committed is None or committed < (own.log_end or 0):
            return f"{end}, but only {'nothing' if committed is None else f'what is below {committed}'} is committed"
    gap = answer.lacks(own)
    if gap is None:
        return end
    return f"{end}, but has no records from offset {gap[0]} to {gap[1]}: a segment may be missing"
