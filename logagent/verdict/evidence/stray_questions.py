"""Gathers the facts on strays that are about to be removed, and gets the decision (`verdict.copies`).

It reads the copies that a removal rests on (what is gone cannot be compared with them any more), and the log end
offsets of directories that no broker serves: part of what tells one from any other.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from logagent.base.dir_names import LOG_START_OFFSET
from logagent.base.errors import LogAgentError, NotAsPlanned, UnreadableError
from logagent.base.files.safe_open import GIB, MIB
from logagent.base.records import DirKey, PartitionDir, TopicPartition, Verdict
from logagent.base.units import LARGEST_COUNT
from logagent.disk.calls import DiskCalls, Stop
from logagent.disk.log_dir import OpenLogDir
from logagent.kafka.extents import EpochEnd, InCommon, LogExtent
from logagent.kafka.files.checkpoint_files import read_checkpoint
from logagent.kafka.files.log_extent import (
    LogReading,
    SegmentReadings,
    checksum_of_batch,
    read_log_between,
    read_log_extent,
)
from logagent.kafka.files.properties import same_topic_id
from logagent.verdict.copies import (
    as_loaded,
    before_stray,
    contradicted,
    covers,
    decide_duplicate,
    decide_stray,
    end_of_epoch,
    in_common,
    is_assigned_here,
    is_loaded_as,
    needs_cover,
    stray_verdict,
)
from logagent.verdict.evidence.assignment_sources import Absent, Assignments
from logagent.verdict.evidence.brokers_to_ask import BrokersToAsk
from logagent.verdict.evidence.judge import rule
from logagent.verdict.facts import Ruling, StrayRuling
from logagent.verdict.marks import Mark
from logagent.verdict.rules import Host, VerdictReason

K = TypeVar("K")

# Bytes that a cycle of the daemon may read (the disk is the broker's), and a prestart (the broker waits).
CYCLE_BYTES = 4 * GIB
PRESTART_BYTES = 64 * MIB
# Segments of 1 GiB on more disks than a host has; beyond that all are read again.
_MOST_SEGMENTS = 200_000


@dataclass(frozen=True, slots=True)
class Overlap:
    """The copy `dir`, and what it has in common with another directory."""

    dir: PartitionDir
    common: InCommon


def _always() -> bool:
    return True


@dataclass(slots=True)
class CopyReads:
    """Reads what two copies have in common, once per segment.

    A plan only shows what would be done, and is made in every cycle: it reads nothing, but knows the defects that were
    found before. Right before an act (`to_act`) a copy counts only if it was read. That takes longer than a look may,
    so it is work: it ends when the log dir goes offline, when a command waits or the daemon ends (`allowed`), and after
    `left` bytes of each log dir. What is unread then is refused, and a later cycle goes on where this one ended: what
    was read of a segment, in `known`, counts until the file changes. A command has no such limit: its user can press
    Ctrl-C.
    """

    known: SegmentReadings = field(default_factory=dict)
    left: float = float("inf")
    _stop: Stop = _always
    _bytes_read: int = 0

    def __post_init__(self) -> None:
        # The newest segment of a log grows, so only its inode says that it is the same file. That is enough within one
        # session, but not in a later cycle: another file may have that inode by then.
        for key in [key for key, segment in self.known.items() if segment.is_last]:
            del self.known[key]

    @contextmanager
    def allowed(self, stop: Stop) -> Iterator[Callable[[], bool]]:
        """Reading is allowed in the body, until `stop()`. Yields what tells afterwards whether anything was read."""
        before, self._stop = self._bytes_read, stop
        try:
            yield lambda: self._bytes_read > before
        finally:
            self._stop = _always

    def problems(self, asked: Mapping[K, Overlap], opened: Mapping[str, OpenLogDir], calls: DiskCalls) -> dict[K, str]:
        """Why copies do not count, as far as is known without reading."""
        if not self.known:
            return {}
        jobs = {path: partial(job, 0, _always) for path, job in self._jobs(asked, opened).items()}
        return _kept_problems({key: r.defect for key, r in _by_key(asked, calls.call_each(jobs)).items()})

    def read(self, asked: Mapping[K, Overlap], opened: Mapping[str, OpenLogDir], calls: DiskCalls) -> dict[K, str]:
        """The same, to act, after reading what has not been read: what was not read does not count."""
        most = self.left

        def work(job: _Job[K], given_up: Stop) -> dict[K, LogReading]:
            return job(most, lambda: given_up() or self._stop())

        found = _by_key(asked, calls.work({p: partial(work, job) for p, job in self._jobs(asked, opened).items()}))
        read = sum(r.read for r in found.values())
        self.left -= read
        self._bytes_read += read
        return _kept_problems({key: r.problem for key, r in found.items()})

    def _jobs(self, asked: Mapping[K, Overlap], opened: Mapping[str, OpenLogDir]) -> dict[str, _Job[K]]:
        if len(self.known) > _MOST_SEGMENTS:
            self.known.clear()
        paths = {o.dir.log_dir for o in asked.values()}
        return {
            path: partial(
                _read_copies, opened[path], {k: o for k, o in asked.items() if o.dir.log_dir == path}, self.known
            )
            for path in paths & opened.keys()
        }


_Job = Callable[[float, Stop], dict[K, LogReading]]


def _read_copies(
    log_dir: OpenLogDir, asked: Mapping[K, Overlap], known: SegmentReadings, most: float, stop: Stop
) -> dict[K, LogReading]:
    found: dict[K, LogReading] = {}
    for key, o in asked.items():
        with log_dir.acting("read", o.dir.name):
            fd = log_dir.open_child(o.dir.name, o.dir.identity)
            try:
                found[key] = read_log_between(fd, o.common, known, most, stop)
            finally:
                os.close(fd)
        most -= found[key].read
    return found


def _by_key(
    asked: Mapping[K, Overlap], looked: Mapping[str, dict[K, LogReading] | LogAgentError]
) -> dict[K, LogReading]:
    """Nothing that was asked for is missing: where a log dir gave no answer, that is what is wrong."""
    found: dict[K, LogReading] = {}
    for key, o in asked.items():
        there = looked.get(o.dir.log_dir)
        found[key] = there[key] if isinstance(there, dict) else LogReading(str(there or "its log dir is not open"))
    return found


def _kept_problems(problems: Mapping[K, str | None]) -> dict[K, str]:
    return {key: problem for key, problem in problems.items() if problem is not None}


DIRS_A_CALL = 64
"""A call must end before its log dir counts as hung: on a cold disk each of these takes some seeks."""


def log_ends(
    dirs: Sequence[PartitionDir], opened: Mapping[str, OpenLogDir], calls: DiskCalls
) -> dict[DirKey, int | None]:
    """Of each of `dirs` that can be opened now; None where its files do not say it for certain."""
    waiting: dict[str, list[PartitionDir]] = {}
    for d in dirs:
        if d.log_dir in opened:
            waiting.setdefault(d.log_dir, []).append(d)
    found: dict[DirKey, int | None] = {}
    while waiting:
        jobs = {path: partial(_read_ends, opened[path], there[:DIRS_A_CALL]) for path, there in waiting.items()}
        ended = calls.call_each(jobs)
        for path, ends in ended.items():
            if isinstance(ends, LogAgentError):
                del waiting[path]
                continue
            found |= ends
            del waiting[path][:DIRS_A_CALL]
        waiting = {path: there for path, there in waiting.items() if there}
    return found


def read_end(log_dir: OpenLogDir, d: PartitionDir) -> int | None:
    """The log end offset of `d` now. Raises LogAgentError if it is no longer there, or its disk fails."""
    with log_dir.acting("read", d.name):
        fd = log_dir.open_child(d.name, d.identity)
        try:
            end = read_log_extent(fd).log_end
            return None if end is None or end > LARGEST_COUNT else end
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return None  # a bad sector of what nobody reads takes no log dir offline
        finally:
            os.close(fd)


def _read_ends(log_dir: OpenLogDir, dirs: Sequence[PartitionDir]) -> dict[DirKey, int | None]:
    found: dict[DirKey, int | None] = {}
    for d in dirs:
        try:
            found[d.key] = read_end(log_dir, d)
        except LogAgentError:
            log_dir.check()  # that of a log dir that is offline ends the call
    return found


_UNKNOWN = Ruling(Verdict.UNKNOWN, "no-assignments", "no assignments were read")


@dataclass(frozen=True, slots=True)
class StrayQuestions:
    """Rules on strays that are about to be removed, and on orphans that are about to be marked.

    `opened`: every log dir that can be read, `own`: those that have this broker's ids; `dirs`: all directories of the
    host; `marks`: what the journal knows about their renames; `ask_leaders`: whether leaders elsewhere may be asked
    (before a broker's start there is no time); `reads`: reads the copies here that a removal rests on, if it is about
    to come (`to_act`); `brokers`: who can be asked."""

    assignments: Assignments
    host: Host
    absent: Absent
    opened: Mapping[str, OpenLogDir]
    own: Mapping[str, OpenLogDir]
    calls: DiskCalls
    dirs: Sequence[PartitionDir]
    marks: Mapping[DirKey, Mark]
    now_ms: int
    ask_leaders: bool
    reads: CopyReads
    to_act: bool
    brokers: BrokersToAsk | None

    def rule_on(self, strays: Sequence[PartitionDir]) -> dict[DirKey, StrayRuling]:
        """Whether each of `strays` may be removed."""
        was = {d.key: self._before_stray(d) for d in strays}
        rulings = {key: self._rule(d) for key, d in was.items()}
        living = [d for d in strays if needs_cover(rulings[d.key])]
        logs = _logs_as_loaded(living, self.opened, self.calls)
        # What covers a copy is what has its topic id under the topic's own name.
        named = {d.key: self._under_its_name(was[d.key]) for d in living}
        # What else lies here of a partition that this node is no replica of is an orphan, too, and covers nothing.
        here = frozenset(key for key, d in named.items() if is_assigned_here(self._rule(d)))
        answers = self._answers([*named.values()], logs, here) | self._which_copies(
            [named[d.key] for d in living if rulings[d.key].reason == VerdictReason.COPY_OF], logs
        )
        nobody = self._nobody_to_ask()
        decided = {
            d.key: decide_stray(
                rulings[d.key],
                proof=self._proof(d),
                own=logs.get(d.key),
                answers=answers.get(d.key, ()),
                nobody=nobody,
                at_ms=self.now_ms,
                proof_ms=mark.at_ms if (mark := self.marks.get(d.key)) is not None else 0,
            )
            for d in strays
        }
        return {d.key: replace(decided[d.key], ruling=stray_verdict(rulings[d.key], self._proof(d))) for d in strays}

    def verdicts(self, strays: Sequence[PartitionDir]) -> dict[DirKey, Ruling]:
        """The verdict on each of `strays`: no log is read and no leader asked, so not whether another copy has it."""
        return {d.key: stray_verdict(self._rule(self._before_stray(d)), self._proof(d)) for d in strays}

    def _rule(self, d: PartitionDir) -> Ruling:
        return rule(d, self.assignments, self.host, self.absent, self.now_ms, None, internal=True) or _UNKNOWN

    def _under_its_name(self, d: PartitionDir) -> PartitionDir:
        image = self.assignments.first
        topic = image.by_id.get(d.topic_id) if image is not None and d.topic_id is not None else None
        return d if topic is None else replace(d, topic=topic.name)

    def _nobody_to_ask(self) -> str | None:
        if not self.ask_leaders:
            return "logagent cleanup asks the leader once the broker is up"
        return None if self.brokers is None else self.brokers.leader_problem

    def _before_stray(self, d: PartitionDir) -> PartitionDir:
        mark = self.marks.get(d.key)
        return before_stray(d, mark.full_topic if mark is not None else None, self.assignments.first)

    def _proof(self, d: PartitionDir) -> str | None:
        mark = self.marks.get(d.key)
        if mark is None or contradicted(d, mark.at_ms, self.assignments.usable, self.assignments.doubted):
            return None
        return mark.reason

    def _beside(self, stray: PartitionDir) -> list[PartitionDir]:
        """The directories on this host that a broker loads as its partition, of its topic id."""
        return [
            d
            for d in self.dirs
            if d.key != stray.key
            and is_loaded_as(stray, d)
            and d.topic_id is not None
            and d.error is None
            and not d.removal_started
            and (d.topic_id, d.partition) == (stray.topic_id, stray.partition)
        ]

    def _which_copies(
        self, copies: Sequence[PartitionDir], logs: Mapping[DirKey, LogExtent]
    ) -> dict[DirKey, list[EpochEnd]]:
        """What counts instead of any answer for those of `copies`, made by hand, of which nothing shows the partition.
        Its number is only in the name, which somebody chose (`cp -a orders-0 orders-0-1`), and another partition of
        the topic may be as long, in the same epoch. The last batch tells, where the partition itself lies here."""
        image = self.assignments.first
        several = [
            (d, end)
            for d in copies
            if (own := logs.get(d.key)) is not None and (end := own.log_end) is not None and not own.has_no_records
            if image is None or d.topic_id is None or len(image.by_id[d.topic_id].partitions) > 1
        ]
        pairs = [(d, other, end) for d, end in several for other in self._beside(d)]
        asked = {(x.key, end): x for d, other, end in pairs for x in (d, other)}
        found = _checksums(asked, self.opened, self.calls)
        shown = {
            d.key
            for d, other, end in pairs
            if other.log_dir in self.own
            and (last := found.get((d.key, end))) is not None
            and last == found.get((other.key, end))
        }
        why = (
            "only its name says that this is a copy of it, and its topic has other partitions; the last batch shows it"
        )
        return {
            d.key: [EpochEnd(f"{d.topic}-{d.partition}", None, None, problem=why)]
            for d, _ in several
            if d.key not in shown
        }

    def _answers(
        self, living: Sequence[PartitionDir], logs: Mapping[DirKey, LogExtent], here: frozenset[DirKey]
    ) -> dict[DirKey, list[EpochEnd]]:
        """Where other copies end the last leader epoch of each. Copies on this host count for those in `here`, and only
        where this node leads: another leader would truncate them to what it has."""
        answers = self._ask_leaders(living, logs) if self.ask_leaders else {}
        asked = {
            (d.key, other.key): (own, own.last_epoch, other)
            for d in living
            if d.key in here and any(answer.led_here for answer in answers.get(d.key, ()))
            if (own := logs.get(d.key)) is not None and own.last_epoch is not None
            for other in self._beside(d)
        }
        copies = read_as_loaded([other for _, _, other in asked.values()], self.own, self.calls)

        def answer(pair: tuple[DirKey, DirKey], problem: str | None = None) -> EpochEnd:
            _, epoch, _ = asked[pair]
            return end_of_epoch("/".join(pair[1]), copies[pair[1]].unsound(problem), epoch)

        resting = {
            pair: Overlap(other, in_common(own, copies[pair[1]]))
            for pair, (own, _, other) in asked.items()
            if pair[1] in copies and covers(answer(pair), own)
        }
        read = self.reads.read if self.to_act else self.reads.problems
        problems = read(resting, self.own, self.calls)
        for pair in asked:
            if pair[1] in copies:
                answers[pair[0]].append(answer(pair, problems.get(pair)))
        return answers

    def _ask_leaders(
        self, living: Sequence[PartitionDir], logs: Mapping[DirKey, LogExtent]
    ) -> dict[DirKey, list[EpochEnd]]:
        """What the leaders answer."""
        asked = {
            d.key: (TopicPartition(d.topic, d.partition), own.last_epoch)
            for d in living
            if (own := logs.get(d.key)) is not None
            and own.last_epoch is not None
            and d.topic is not None
            and d.partition is not None
        }
        if self.brokers is None or not asked:
            return {}
        topic_ids = {d.topic: d.topic_id for d in living if d.topic is not None and d.topic_id is not None}
        return {key: [answer] for key, answer in self.brokers.epoch_ends(asked, topic_ids).items()}


def rule_on_duplicates(
    asked: Sequence[tuple[PartitionDir, PartitionDir]],
    opened: Mapping[str, OpenLogDir],
    calls: DiskCalls,
    reads: CopyReads,
    *,
    to_act: bool,
    now_ms: int,
) -> dict[DirKey, StrayRuling]:
    """Whether the first directory of each pair may be removed: the other one, looked at now, contains all of it.
    `reads`, `to_act`: as in `StrayQuestions`."""
    logs = read_as_loaded([d for pair in asked for d in pair], opened, calls)
    rulings = {d.key: decide_duplicate(logs.get(d.key), logs.get(other.key), other, now_ms) for d, other in asked}
    resting = {
        d.key: Overlap(other, in_common(logs[d.key], logs[other.key])) for d, other in asked if rulings[d.key].may_go
    }
    problems = reads.read(resting, opened, calls) if to_act else reads.problems(resting, opened, calls)
    for key, problem in problems.items():
        other = resting[key].dir
        rulings[key] = decide_duplicate(logs[key], logs[other.key].unsound(problem), other, now_ms)
    return rulings


def read_as_loaded(
    dirs: Sequence[PartitionDir], opened: Mapping[str, OpenLogDir], calls: DiskCalls
) -> dict[DirKey, LogExtent]:
    """The logs of those of the current `dirs` that can be read now and have the topic id that they were judged with, as
    a broker would load them, with their gaps. None on a file system that is read-only: that is how one looks that is
    about to fail."""
    logs = _logs_as_loaded(dirs, opened, calls, whole=True)
    jobs = {path: partial(_log_starts, opened[path]) for path in {path for path, _ in logs}}
    found: dict[DirKey, LogExtent] = {}
    for path, starts in calls.call_each(jobs).items():
        if isinstance(starts, LogAgentError) or starts is None:
            continue
        for d in dirs:
            if d.log_dir == path and d.key in logs:
                partition = TopicPartition(d.topic or "", d.partition if d.partition is not None else -1)
                found[d.key] = as_loaded(logs[d.key], starts.get(partition, 0))
    return found


def _checksums(
    asked: Mapping[tuple[DirKey, int], PartitionDir], opened: Mapping[str, OpenLogDir], calls: DiskCalls
) -> dict[tuple[DirKey, int], int | None]:
    """Of each directory, and offset at which one of its batches ends, the checksum of that batch."""

    def read(path: str) -> dict[tuple[DirKey, int], int | None]:
        there: dict[tuple[DirKey, int], int | None] = {}
        for (key, end), d in asked.items():
            if d.log_dir == path:
                with opened[path].acting("read", d.name), suppress(NotAsPlanned):
                    fd = opened[path].open_child(d.name, d.identity)
                    try:
                        there[key, end] = checksum_of_batch(fd, end)
                    finally:
                        os.close(fd)
        return there

    paths = {d.log_dir for d in asked.values()} & opened.keys()
    found: dict[tuple[DirKey, int], int | None] = {}
    for looked in calls.call_each({path: partial(read, path) for path in paths}).values():
        if not isinstance(looked, LogAgentError):
            found |= looked
    return found


def _log_starts(log_dir: OpenLogDir) -> Mapping[TopicPartition, int] | None:
    """None where a broker would not start with this log dir as it is."""
    with log_dir.acting("read", LOG_START_OFFSET):
        if os.fstatvfs(log_dir.fd).f_flag & os.ST_RDONLY:
            return None
        try:
            return read_checkpoint(log_dir.fd, LOG_START_OFFSET) or {}
        except UnreadableError:
            return None


def _logs_as_loaded(
    dirs: Sequence[PartitionDir], opened: Mapping[str, OpenLogDir], calls: DiskCalls, *, whole: bool = False
) -> dict[DirKey, LogExtent]:
    """The logs of those of `dirs` that can be read now and have the topic id that they were judged with."""
    by_log_dir: dict[str, list[PartitionDir]] = {}
    for d in dirs:
        by_log_dir.setdefault(d.log_dir, []).append(d)
    jobs = {path: partial(_read_logs, opened[path], d, whole) for path, d in by_log_dir.items() if path in opened}
    found: dict[DirKey, LogExtent] = {}
    for looked in calls.call_each(jobs).values():
        if not isinstance(looked, LogAgentError):
            found |= looked
    return found


def _read_logs(log_dir: OpenLogDir, dirs: Sequence[PartitionDir], whole: bool) -> dict[DirKey, LogExtent]:
    found = {d.key: read_log(log_dir, d, whole=whole, check=partial(same_topic_id, d)) for d in dirs}
    return {key: log for key, log in found.items() if log is not None}


def read_log(
    log_dir: OpenLogDir, d: PartitionDir, *, whole: bool = False, check: Callable[[int], None] | None = None
) -> LogExtent | None:
    """The log of `d` (`whole`: with its gaps); None if that directory no longer exists or cannot be opened, or if
    `check` (of its descriptor) raises NotAsPlanned."""
    with log_dir.acting("read", d.name):
        try:
            fd = log_dir.open_child(d.name, d.identity)
        except LogAgentError:
            return None
        try:
            if check is not None:
                check(fd)
            return read_log_extent(fd, whole=whole)
        except NotAsPlanned:
            return None
        finally:
            os.close(fd)
