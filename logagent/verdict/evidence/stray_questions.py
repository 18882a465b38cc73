"""Gathers the facts on strays that are about to be removed, and gets the decision (`verdict.strays`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from logagent.base.dir_names import LOG_START_OFFSET
from logagent.base.errors import LogAgentError, NotAsPlanned, UnreadableError
from logagent.base.records import DirKey, PartitionDir, TopicPartition, Verdict
from logagent.disk.calls import DiskCalls
from logagent.disk.log_dir import OpenLogDir
from logagent.kafka.extents import EpochEnd, LogExtent
from logagent.kafka.files.checkpoint_files import read_checkpoint
from logagent.kafka.files.log_extent import checksum_of_batch, read_log_extent
from logagent.kafka.files.meta_properties import same_topic_id
from logagent.verdict.covered import covers, end_of_epoch, in_common
from logagent.verdict.duplicates import as_loaded, decide_duplicate, is_loaded_as
from logagent.verdict.evidence.assignment_sources import Absent, Assignments
from logagent.verdict.evidence.brokers_to_ask import BrokersToAsk
from logagent.verdict.evidence.copy_reads import CopyReads, Overlap
from logagent.verdict.evidence.judge import rule
from logagent.verdict.facts import Ruling, StrayRuling
from logagent.verdict.marks import Mark
from logagent.verdict.rules import Host, VerdictReason
from logagent.verdict.strays import (
    before_stray,
    contradicted,
    decide_stray,
    is_assigned_here,
    needs_cover,
    stray_verdict,
)

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
        """What the leaders answer. Not the broker that serves this host's copies: it knows less of their segments than
        the files show."""
        asked = {
            d.key: (TopicPartition(d.topic, d.partition), own.last_epoch)
            for d in living
            if (own := logs.get(d.key)) is not None
            and own.last_epoch is not None
            and d.topic is not None
            and d.partition is not None
        }
        reader = self.brokers.leaders() if self.brokers is not None and asked else None
        if reader is None:
            return {}
        topic_ids = {d.topic: d.topic_id for d in living if d.topic is not None and d.topic_id is not None}
        found = reader.epoch_ends(asked, topic_ids, but_not=self.host.node_id)
        return {key: [answer] for key, answer in found.items()}


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
