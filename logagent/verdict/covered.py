"""Whether another copy of a partition has every record that a directory has. Decides without I/O.

"At least as long" is not enough: a log that was recreated and refilled is long, too, and an ISR can consist of such
logs. A record is identified by its leader epoch and offset (KIP-101), so the other copy is asked where the directory's
last leader epoch ends in its own log; a copy on this host must have no gap between its segments, either. Used before a
stray is removed or marked for deletion, and before a copy is restored that its leader would truncate.

Only what the leader has committed counts (its high watermark): of the records after that, a failover may leave none.
"""

from __future__ import annotations

from logagent.kafka.extents import EpochEnd, InCommon, LogExtent


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
