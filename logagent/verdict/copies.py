"""Whether what a removal takes is elsewhere: another copy has every record, a stray may be removed, one of two
duplicates on this host may go. Decides without I/O.

Covered (`covers`): "at least as long" is not enough. A log that was recreated and refilled is long, too, and an ISR
can consist of such logs. A record is identified by its leader epoch and offset (KIP-101), so the other copy is asked
where the directory's last leader epoch ends in its own log; a copy on this host must have no gap between its segments,
either. Used before a stray is removed or marked for deletion, and before a copy is restored that its leader would
truncate. Only what the leader has committed counts (its high watermark): of the records after that, a failover may
leave none.

A stray was an orphan when we or a broker set it aside. Since then, its topic id may have turned out to exist after all,
a reassignment may have been reverted, and the copy that was thought to be elsewhere may be gone. Checked before it is
removed or marked for deletion.

Duplicates: one partition in two log dirs. A broker does not start with them, unless it knows the directory id that the
partition is assigned to. A directory id proves nothing about records, and the longer copy can be the one that diverged:
so a copy may be deleted only if the other one covers it, begins no later and is no smaller (what is lost inside a
segment leaves no gap).

A move that is under way has two sides. A `-future` directory is the copy: while the broker runs,
`ReplicaAlterLogDirsThread` fills it from the current one in another log dir. Once it has all of that, it takes the
partition's name, and the other is marked for deletion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

from logagent.base.claims import Claim, Held, Witness
from logagent.base.dir_names import current_name
from logagent.base.records import DirKey, Kind, PartitionDir, Reason, Verdict, id_unread
from logagent.kafka.extents import EpochEnd, InCommon, LogExtent
from logagent.kafka.image import AssignmentImage
from logagent.verdict.facts import Facts, Ruling, StrayRuling
from logagent.verdict.rules import GONE_FOR_GOOD, VerdictReason


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


SILENT = frozenset({VerdictReason.NO_ASSIGNMENTS, VerdictReason.STALE_ASSIGNMENTS})
"""Reasons that mean that nothing is known now. Any other unknown means that the topic may live, or that the assignments
are of another cluster."""


def before_stray(stray: PartitionDir, full_topic: str | None, image: AssignmentImage | None) -> PartitionDir:
    """The stray as the current directory that it was, for `verdict.decide`.

    If the end of the topic may have been cut off, take the full name from the journal, else from the living topic with
    its id if that name begins alike.
    """
    topic = full_topic or stray.topic
    if full_topic is None and stray.truncated and image is not None and stray.topic_id is not None:
        living = image.by_id.get(stray.topic_id)
        if living is not None and stray.topic is not None and living.name.startswith(stray.topic):
            topic = living.name
    return replace(stray, kind=Kind.CURRENT, topic=topic)


def is_assigned_here(ruling: Ruling) -> bool:
    """Whether this node is a replica of the stray's topic id and partition: then it is removed only if covered."""
    return ruling.verdict is Verdict.ASSIGNED or ruling.reason == VerdictReason.WRONG_DIRECTORY


def needs_cover(ruling: Ruling) -> bool:
    """Whether a directory with this verdict goes only if another copy has all of it: its topic id lives.

    Where this node is no replica, a living ISR is not enough: after an unclean election followed by a reassignment, all
    of its members can have none of these records.
    """
    return is_assigned_here(ruling) or (ruling.verdict is Verdict.ORPHAN and ruling.reason not in GONE_FOR_GOOD)


def rests_on(proof: str | None, ruling: Ruling) -> bool:
    """Whether the journal's proof decides, because nothing is known now."""
    return proof in GONE_FOR_GOOD and ruling.verdict is Verdict.UNKNOWN and ruling.reason in SILENT


def stray_verdict(ruling: Ruling, proof: str | None) -> Ruling:
    """The verdict on a stray, as `scan` and plans show it: `ruling` and `proof` as for `decide_stray`."""
    if not rests_on(proof, ruling):
        return ruling
    detail = f"when it was set aside (journal); now {ruling.reason}: {ruling.detail}"
    return Ruling(Verdict.ORPHAN, proof, detail, ruling.last_copy)


def contradicted(
    stray: PartitionDir, set_aside_ms: int, usable: Sequence[AssignmentImage], unusable: Sequence[AssignmentImage]
) -> bool:
    """Whether its topic id exists in a usable image, or in one at least as recent as the stray's name: then the earlier
    proof that the id was gone is void."""
    images = (*usable, *(image for image in unusable if image.at_ms >= set_aside_ms))
    return any(stray.topic_id in image.by_id for image in images)


def decide_stray(
    ruling: Ruling,
    *,
    proof: str | None,
    own: LogExtent | None,
    answers: Sequence[EpochEnd],
    nobody: str | None = None,
    at_ms: int = 0,
    proof_ms: int = 0,
) -> StrayRuling:
    """Whether a stray may be removed, or a directory marked for deletion.

    `ruling`: the verdict on the directory as it was (`before_stray`). `proof`: according to the journal, why it was an
    orphan when we set it aside, unless `contradicted`. `own`: its log. `answers`: where its last leader epoch ends in
    other copies, as of `at_ms`. `nobody`: why no leader could be asked, with what to do about it. `proof_ms`: when
    `proof` was noted.
    """
    reason = ruling.reason or ruling.verdict.value
    if ruling.detail:
        reason += f": {ruling.detail}"
    if needs_cover(ruling):
        return _decide_by_cover(ruling, reason, own, answers, nobody, at_ms)
    if ruling.verdict is Verdict.ORPHAN:
        return StrayRuling(True, Reason(reason), proof=ruling.proof)
    if proof is not None and rests_on(proof, ruling):
        noted = tuple(
            Held(claim, Witness.JOURNAL, proof_ms) for claim in (Claim(proof), Claim.OUR_LINEAGE, Claim.IN_THIS_MODE)
        )
        agreed = Held(Claim.NOT_CONTRADICTED, Witness.EVERY_SOURCE, at_ms)
        fact = f"{proof} when it was set aside (journal); now {reason}"
        return StrayRuling(True, Reason(fact), proof=(*noted, agreed))
    return StrayRuling(False, Reason(f"its owner is unknown now ({reason})"))


def _decide_by_cover(
    ruling: Ruling,
    reason: str,
    own: LogExtent | None,
    answers: Sequence[EpochEnd],
    nobody: str | None,
    at_ms: int,
) -> StrayRuling:
    """It may go only if another copy has all its records, or if it has none."""
    here = is_assigned_here(ruling)
    if not here and own is not None and own.has_no_records:
        covered_by = Held(Claim.COVERED, Witness.NO_RECORDS, at_ms)
        return StrayRuling(True, Reason(f"{reason}; it has no records"), "yes", proof=(*ruling.proof, covered_by))
    covering = next((answer for answer in answers if own is not None and covers(answer, own)), None)
    if own is not None and covering is not None:
        covered_by = Held(Claim.COVERED, Witness.LED_HERE if covering.here else Witness.LEADER, at_ms)
        fact = f"{reason}; {what_it_has(covering, own)}"
        return StrayRuling(True, Reason(fact), "yes", proof=(*ruling.proof, covered_by))
    why = why_not_covered(own, tuple(answers)) if own is not None else "its own log was not read"
    whose = "its partition is assigned to this node" if here else reason
    covered: Literal["no", "unknown"] = "no" if own is not None and answers else "unknown"
    fact = f"{whose}, and no copy is known to cover it: {why}"
    return StrayRuling(False, Reason(fact, nobody or ""), covered, proof=ruling.proof)


class Duplicate(NamedTuple):
    """A directory that may be deleted, and the current one of the same topic id and partition in another log dir."""

    dir: PartitionDir
    other: PartitionDir


@dataclass(frozen=True, slots=True)
class Duplicates:
    """`found`: which may be deleted, at most one of each pair. `kept`: where that is none, why, by directory.
    `covering`: the other one of each pair of which one may be deleted, and which that is, in words."""

    found: list[Duplicate]
    kept: dict[DirKey, str]
    covering: dict[DirKey, str] = field(default_factory=dict)


def pairs(dirs: Iterable[PartitionDir]) -> list[tuple[PartitionDir, PartitionDir]]:
    """Pairs of current directories with the same topic id and partition in two log dirs. (Three are left to people.)

    A directory that is seen twice (one log dir is a bind mount of the other) is not a pair; directories whose removal
    has started do not count either.
    """
    return [
        (ds[0], ds[1])
        for ds in _copies(dirs)
        if len(ds) == 2
        and ds[0].log_dir != ds[1].log_dir
        and ds[0].identity != ds[1].identity
        and not any(d.removal_started for d in ds)
    ]


def _copies(dirs: Iterable[PartitionDir]) -> Iterable[list[PartitionDir]]:
    found: dict[tuple[str, int], list[PartitionDir]] = {}
    for d in dirs:
        if d.kind is Kind.CURRENT and d.topic_id is not None and d.partition is not None and d.error is None:
            found.setdefault((d.topic_id, d.partition), []).append(d)
    return found.values()


def duplicates(
    dirs: Sequence[PartitionDir],
    facts: Facts,
    logs: Mapping[DirKey, LogExtent],
    spared: Collection[str] = (),
    free: Mapping[str, int] = MappingProxyType({}),
) -> Duplicates:
    """If each of a pair covers the other, the one in the wrong log dir may be deleted, else the one on the fuller file
    system, else the shorter one. Nothing in a `spared` log dir is. `free`: the free bytes of its file system, by log
    dir."""
    chosen: list[Duplicate] = []
    kept: dict[DirKey, str] = {}
    covering: dict[DirKey, str] = {}
    unread = {current_name(d.topic or "", d.partition or 0) for d in dirs if d.kind is Kind.CURRENT and id_unread(d)}
    for one, two in pairs(dirs):
        if not unread.isdisjoint((one.name, two.name)):
            fact = "another directory of its name has a topic id that was not read: which may go is for you to decide"
            kept |= {one.key: fact, two.key: fact}
            continue
        rated: list[Duplicate] = []
        why: dict[DirKey, str] = {}
        for d, other in ((one, two), (two, one)):
            if not _is_known(d, facts):
                continue
            if not is_loaded_as(d, other) or not _is_known(other, facts):
                there = f"{other.log_dir}/{other.name}"
                why[d.key] = f"{there} has the same topic id, but is no copy that the broker loads"
                continue
            ruling = decide_duplicate(logs.get(d.key), logs.get(other.key), other)
            if ruling.may_go:
                rated.append(Duplicate(d, other))
            why[d.key] = f"a duplicate, not known to be covered: {ruling.why.fact}"
        rated.sort(key=lambda duplicate: _rank(duplicate.dir, facts, logs[duplicate.dir.key], free))
        going = [duplicate for duplicate in rated if duplicate.dir.log_dir not in spared][:1]
        chosen += going
        for duplicate in going or rated[:1]:
            left_out = "" if going else ", in a log dir that is left out"
            fact = f"a duplicate: {duplicate.dir.log_dir}/{duplicate.dir.name} is the one that may go{left_out}"
            covering[duplicate.other.key] = fact
        if not rated:
            kept |= why
    for ds in _copies(dirs):
        if len(ds) > 2:
            kept |= {d.key: f"one of {len(ds)} copies on this host: which may go is for you to decide" for d in ds}
    return Duplicates(chosen, kept, covering)


def is_loaded_as(d: PartitionDir, other: PartitionDir) -> bool:
    """Whether a broker takes `other` for the partition of `d`: it goes by the name, and a backup that was renamed by
    hand keeps the topic id."""
    if d.topic is None or d.partition is None:
        return False
    return other.kind is Kind.CURRENT and other.name == current_name(d.topic, d.partition)


def decide_duplicate(
    own: LogExtent | None, other: LogExtent | None, where: PartitionDir, at_ms: int = 0
) -> StrayRuling:
    """Whether the copy with log `own` may be deleted because of the copy at `where` with log `other`, both read at
    `at_ms`. None: a log could not be read."""
    there = f"{where.log_dir}/{where.name}"
    if own is None or other is None:
        return StrayRuling(
            False, Reason(f"its log, or that of {there}, cannot be read, or lies in no log dir of its broker")
        )
    if own.log_start is None or other.log_start is None:
        log, what = (other, there) if other.log_start is None else (own, "this one")
        return StrayRuling(False, Reason(f"{what} does not count: {log.problem or 'it has no segment'}"))
    if other.log_start > own.log_start:
        return StrayRuling(False, Reason(f"{there} begins at offset {other.log_start}, this one at {own.log_start}"))
    if other.log_start < own.log_start:
        fact = f"{there} begins at offset {other.log_start}, this one at {own.log_start}: deleted records would return"
        return StrayRuling(False, Reason(fact))
    if own.last_epoch is None:
        return StrayRuling(False, Reason(why_not_covered(own, ())))
    answer = end_of_epoch(there, other, own.last_epoch)
    if not covers(answer, own):
        return StrayRuling(False, Reason(why_not_covered(own, (answer,))))
    if other.log_bytes < own.log_bytes:
        fact = f"{there} has {other.log_bytes} bytes of segments, this one {own.log_bytes}: it may lack some of them"
        return StrayRuling(False, Reason(fact))
    covered_by = Held(Claim.COVERED, Witness.OTHER_LOG_DIR, at_ms)
    return StrayRuling(True, Reason(f"{there} has all of it"), proof=(covered_by,))


def as_loaded(log: LogExtent, log_start: int) -> LogExtent:
    """The log of a current directory as a broker loads it with the log start offset in the checkpoint
    (`LogManager.loadLog`): it begins there, and if it ends before that offset, all its segments are deleted."""
    if log.emptied_by(log_start):
        fact = f"a broker empties it: its log start offset is {log_start}"
        return LogExtent(None, None, problem=fact)
    return replace(log, log_start=max(log.log_start, log_start)) if log.log_start is not None else log


def _is_known(d: PartitionDir, facts: Facts) -> bool:
    ruling = facts.ruling(d)
    return ruling.verdict is Verdict.ASSIGNED or ruling.reason == VerdictReason.WRONG_DIRECTORY


def _rank(d: PartitionDir, facts: Facts, log: LogExtent, free: Mapping[str, int]) -> tuple[bool, int, int, DirKey]:
    rightly_here = facts.ruling(d).reason != VerdictReason.WRONG_DIRECTORY
    return rightly_here, free.get(d.log_dir, 0), log.log_end or 0, d.key


class Move(NamedTuple):
    """future: the copy. source: the current directory that it is made from; None where none was seen. How far it is:
    `segment_bytes` of the one of those of the other, which go on growing."""

    future: PartitionDir
    source: PartitionDir | None

    @property
    def partition(self) -> str:
        """The name that the copy takes."""
        return f"{self.future.topic}-{self.future.partition}"

    def concerns(self, log_dir: str) -> bool:
        return log_dir == self.future.log_dir or (self.source is not None and log_dir == self.source.log_dir)


def moves_of(dirs: Iterable[PartitionDir]) -> list[Move]:
    """Every move, in the order of the copies. A current directory in the copy's own log dir is not its source, nor is
    one that is known to be of another topic: an id that was not read may be the same."""
    futures: list[PartitionDir] = []
    currents: dict[tuple[str | None, int | None], list[PartitionDir]] = {}
    for d in dirs:
        if d.kind is Kind.FUTURE:
            futures.append(d)
        elif d.kind is Kind.CURRENT:
            currents.setdefault((d.topic, d.partition), []).append(d)
    return [Move(f, _source(f, currents.get((f.topic, f.partition), []))) for f in sorted(futures, key=lambda f: f.key)]


def _source(future: PartitionDir, currents: Iterable[PartitionDir]) -> PartitionDir | None:
    others = [d for d in currents if d.log_dir != future.log_dir]
    same = [d for d in others if d.topic_id == future.topic_id or id_unread(d) or id_unread(future)]
    return same[0] if len(same) == 1 else None
