"""Does another copy of a partition hold every record that a directory holds? The decision, without I/O.

"At least as long" is not enough: a log that was created anew and refilled is long, too, and an ISR can be full of
such logs. What identifies a record is its leader epoch and its offset (KIP-101), so the other copy is asked where, in
its own log, the directory's last leader epoch ends. Used before a stray is removed or marked for deletion, and by
restore before a copy comes back that its leader would truncate.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogLook:
    """The log of one partition dir, as its own files show it.

    `log_end` is the offset after the last whole record, None where it cannot be told (torn tail, no segment); `epochs`
    are (leader epoch, start offset) of `leader-epoch-checkpoint` in its order, empty where the file is missing, empty
    or wrong; `log_start` is the base offset of the first segment. `problem` says what could not be told.
    """

    log_start: int | None
    log_end: int | None
    epochs: tuple[tuple[int, int], ...] = ()
    problem: str | None = None

    @property
    def last_epoch(self) -> int | None:
        """The leader epoch of the last record; None for no record or epochs, or where one begins behind the end.

        A leader notes an epoch when it is elected, so the last ones may have no record: only its followers' logs tell
        others of an epoch, by its records.
        """
        if self.log_end is None or any(start > self.log_end for _, start in self.epochs):
            return None
        return next((epoch for epoch, start in reversed(self.epochs) if start < self.log_end), None)


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Where another copy ends a leader epoch: Kafka's answer to OffsetForLeaderEpoch.

    `epoch` is the largest epoch that copy knows which is not above the one asked for, `end_offset` where it ends there;
    both None where the copy knows no such epoch. `log_start` is the copy's log start offset, None if not known. `where`
    names the copy ("the leader, node 2").
    """

    where: str
    epoch: int | None
    end_offset: int | None
    log_start: int | None = None


def end_of_epoch(where: str, copy: LogLook, epoch: int) -> EpochEnd:
    """The answer of a copy on this disk (`LeaderEpochFileCache.endOffsetFor`).

    Deviation: an epoch below all that the copy knows has no end there. Kafka names the start of the first one it knows,
    which proves nothing about the records before it where a copy has lost its older epochs.
    """
    if copy.log_end is None or copy.last_epoch is None:
        return EpochEnd(where, None, None, copy.log_start if copy.log_end is not None else None)
    if epoch == copy.last_epoch:
        return EpochEnd(where, epoch, copy.log_end, copy.log_start)
    later = [start for known, start in copy.epochs if known > epoch]
    floor = [known for known, _ in copy.epochs if known <= epoch]
    if not later or not floor:
        return EpochEnd(where, None, None, copy.log_start)
    return EpochEnd(where, max(floor), min(later), copy.log_start)


def covers(other: EpochEnd, own: LogLook) -> bool:
    """Whether the copy behind `other` (asked for `own.last_epoch`) has every record of `own`, or had and let go of it.

    True if its end of that very epoch is at or above the directory's end, or if its log begins at or above that. False
    wherever the directory's end or last epoch cannot be told: such a directory is never covered.
    """
    if own.log_end is None or own.last_epoch is None:
        return False
    if other.log_start is not None and other.log_start >= own.log_end:
        return True
    return other.epoch == own.last_epoch and other.end_offset is not None and other.end_offset >= own.log_end


def why_not_covered(own: LogLook, answers: tuple[EpochEnd, ...]) -> str:
    """In words, with every figure: for a refusal."""
    if own.log_end is None or own.last_epoch is None:
        return f"where its own log ends cannot be told ({own.problem or 'it has no leader epochs'})"
    said = [
        f"{a.where} ends it at {a.end_offset}" if a.epoch == own.last_epoch else f"{a.where} does not know that epoch"
        for a in answers
    ]
    return f"it ends at offset {own.log_end} in leader epoch {own.last_epoch}; {'; '.join(said) or 'nobody was asked'}"
