"""Doubles: one partition in two log dirs of this host, and which of the two may be deleted. Decides without I/O.

A broker does not start with them, unless it knows the directory id that the partition is assigned to. A directory id
proves nothing about records, and the longer copy can be the one that diverged: so a copy may be deleted only if the
other one covers it (`covered`), begins no later and is no smaller (what is lost inside a segment leaves no gap).

A move that is under way has two sides. A `-future` directory is the copy: while the broker runs,
`ReplicaAlterLogDirsThread` fills it from the current one in another log dir. Once it has all of that, it takes the
partition's name, and the other is marked for deletion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from logagent.base.claims import Claim, Held, Witness
from logagent.base.dir_names import current_name
from logagent.base.records import DirKey, Kind, PartitionDir, Verdict, id_unread
from logagent.kafka.extents import LogExtent
from logagent.verdict.covered import covers, end_of_epoch, why_not_covered
from logagent.verdict.facts import Facts, StrayRuling
from logagent.verdict.rules import VerdictReason


@dataclass(frozen=True, slots=True)
class Duplicate:
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
            why[d.key] = f"a duplicate, not known to be covered: {ruling.detail}"
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
        return StrayRuling(False, f"its log, or that of {there}, cannot be read, or lies in no log dir of its broker")
    if own.log_start is None or other.log_start is None:
        log, what = (other, there) if other.log_start is None else (own, "this one")
        return StrayRuling(False, f"{what} does not count: {log.problem or 'it has no segment'}")
    if other.log_start > own.log_start:
        return StrayRuling(False, f"{there} begins at offset {other.log_start}, this one at {own.log_start}")
    if other.log_start < own.log_start:
        fact = f"{there} begins at offset {other.log_start}, this one at {own.log_start}: deleted records would return"
        return StrayRuling(False, fact)
    if own.last_epoch is None:
        return StrayRuling(False, why_not_covered(own, ()))
    answer = end_of_epoch(there, other, own.last_epoch)
    if not covers(answer, own):
        return StrayRuling(False, why_not_covered(own, (answer,)))
    if other.log_bytes < own.log_bytes:
        fact = f"{there} has {other.log_bytes} bytes of segments, this one {own.log_bytes}: it may lack some of them"
        return StrayRuling(False, fact)
    covered_by = Held(Claim.COVERED, Witness.OTHER_LOG_DIR, at_ms)
    return StrayRuling(True, f"{there} has all of it", proof=(covered_by,))


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
