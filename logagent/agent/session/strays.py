"""Gathers what the decision on strays that are about to go needs, and asks it (`model.assignments.strays`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from logagent.agent.session.answering import Absent
from logagent.agent.session.assignments import Assignments
from logagent.agent.session.verdicts import rule
from logagent.broker.files.log_look import look_at_log
from logagent.errors import LogAgentError
from logagent.host.log_dir.calls import DiskCalls
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.model.assignments.covered import EpochEnd, LogLook, covers, end_of_epoch
from logagent.model.assignments.strays import as_it_was, contradicted, decide_stray, has_live_isr, lives_here
from logagent.model.assignments.verdict import Host
from logagent.model.facts import Ruling, StrayRuling
from logagent.model.planning.queue import Mark
from logagent.model.records import Kind, PartitionDir, TopicPartition, Verdict

Key = tuple[str, str]
_UNKNOWN = Ruling(Verdict.UNKNOWN, "no-assignments", "no assignments were read")


@dataclass(frozen=True, slots=True)
class StrayQuestions:
    """Rules on the strays that are about to go. `dirs`: all directories of the host; `marks`: what the journal knows of
    their renames; `ask_leaders`: whether leaders elsewhere may be asked (before a broker's start there is no time)."""

    assignments: Assignments
    host: Host
    absent: Absent
    opened: Mapping[str, OpenLogDir]
    calls: DiskCalls
    dirs: Sequence[PartitionDir]
    marks: Mapping[Key, Mark]
    now_ms: int
    ask_leaders: bool = True

    def rule_on(self, strays: Sequence[PartitionDir]) -> dict[Key, StrayRuling]:
        """Whether each of `strays` may go."""
        was = {_key(d): self._as_it_was(d) for d in strays}
        rulings = {
            key: rule(d, self.assignments, self.host, self.absent, self.now_ms, None, internal=True) or _UNKNOWN
            for key, d in was.items()
        }
        living = [d for d in strays if lives_here(rulings[_key(d)])]
        beside = {_key(d): self._beside(d) for d in living}
        logs = self._logs([*living, *(d for found in beside.values() for d in found)])
        answers = {_key(d): self._local_answers(d, beside[_key(d)], logs) for d in living}
        if self.ask_leaders:
            self._ask_leaders([was[_key(d)] for d in living], logs, answers)
        image = self.assignments.first
        return {
            _key(d): decide_stray(
                rulings[_key(d)],
                proof=self._proof(d),
                own=logs.get(_key(d)),
                answers=answers.get(_key(d), ()),
                live_isr=image is not None and has_live_isr(d, image, self.host.node_id),
            )
            for d in strays
        }

    def _as_it_was(self, d: PartitionDir) -> PartitionDir:
        mark = self.marks.get(_key(d))
        return as_it_was(d, mark.full_topic if mark is not None else None, self.assignments.first)

    def _proof(self, d: PartitionDir) -> str | None:
        mark = self.marks.get(_key(d))
        if mark is None or contradicted(d, mark.at_ms, self.assignments.usable, self.assignments.unusable):
            return None
        return mark.reason

    def _beside(self, stray: PartitionDir) -> list[PartitionDir]:
        """The current directories of its topic id and partition on this host."""
        return [
            d
            for d in self.dirs
            if d.kind is Kind.CURRENT
            and d.topic_id is not None
            and (d.topic_id, d.partition) == (stray.topic_id, stray.partition)
        ]

    def _logs(self, dirs: Sequence[PartitionDir]) -> dict[Key, LogLook]:
        by_log_dir: dict[str, list[PartitionDir]] = {}
        for d in dirs:
            by_log_dir.setdefault(d.log_dir, []).append(d)
        jobs = {
            path: partial(_read_logs, self.opened[path], d) for path, d in by_log_dir.items() if path in self.opened
        }
        found: dict[Key, LogLook] = {}
        for looked in self.calls.looks(jobs).values():
            if not isinstance(looked, LogAgentError):
                found |= looked
        return found

    def _local_answers(
        self, d: PartitionDir, beside: Sequence[PartitionDir], logs: Mapping[Key, LogLook]
    ) -> list[EpochEnd]:
        own = logs.get(_key(d))
        if own is None or own.last_epoch is None:
            return []
        return [
            end_of_epoch(f"{other.log_dir}/{other.name}", logs[_key(other)], own.last_epoch)
            for other in beside
            if _key(other) in logs
        ]

    def _ask_leaders(
        self, living: Sequence[PartitionDir], logs: Mapping[Key, LogLook], answers: dict[Key, list[EpochEnd]]
    ) -> None:
        """Add the leaders' answers for those that nothing here covers."""
        reader = self.assignments.reader if self.assignments.answering is not None else None
        asked = {
            _key(d): (TopicPartition(d.topic, d.partition), own.last_epoch)
            for d in living
            if (own := logs.get(_key(d))) is not None
            and own.last_epoch is not None
            and d.topic is not None
            and d.partition is not None
            and not any(covers(answer, own) for answer in answers[_key(d)])
        }
        if reader is None or not asked:
            return
        topic_ids = {d.topic: d.topic_id for d in living if d.topic is not None and d.topic_id is not None}
        # Two strays of one partition can end in different epochs: each round asks one epoch a partition.
        while asked:
            wanted = dict(reversed(asked.values()))
            ends = reader.epoch_ends(wanted, topic_ids)
            for key in [k for k, (p, epoch) in asked.items() if wanted[p] == epoch]:
                partition, _ = asked.pop(key)
                if partition in ends:
                    answers[key].append(ends[partition])


def _read_logs(log_dir: OpenLogDir, dirs: Sequence[PartitionDir]) -> dict[Key, LogLook]:
    found: dict[Key, LogLook] = {}
    for d in dirs:
        with log_dir.acting("read", d.name):
            try:
                fd = log_dir.open_child(d.name, d.identity)
            except LogAgentError:
                continue
            try:
                found[_key(d)] = look_at_log(fd)
            finally:
                os.close(fd)
    return found


def _key(d: PartitionDir) -> Key:
    return d.log_dir, d.name
