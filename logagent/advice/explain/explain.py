"""Gives every byte of a host's log dirs a reason and, where there is one, a date: reads, and changes nothing.

What is decided about a log is in `rules`; here is what it is decided from: segments and checkpoints
on the disk, the settings in the metadata log, verdicts, the queue. What is outside the log dirs on their file systems
is searched in a thread for each, which is not waited for longer than its time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from logagent.advice.explain.rules import (
    GOING,
    Group,
    Offsets,
    Outside,
    RetentionReason,
    TopicSettings,
    explain_log,
    settings_of,
)
from logagent.advice.explain.search_outside import LeftOut, mount_points_of, search_outside
from logagent.advice.scan.rows import ledgers_of
from logagent.base.errors import LogAgentError, UnreadableError
from logagent.base.linux.mounts import mounts
from logagent.base.records import DirKey, Health, HolderState, Kind, PartitionDir, TopicPartition, Verdict
from logagent.cleanup.plan.queue import marked_at_ms
from logagent.cleanup.session.session import Session
from logagent.disk.bounded_calls import Task
from logagent.disk.log_dir import OPEN_CHILD, OpenLogDir
from logagent.disk.scan import OTHER_KINDS
from logagent.kafka.files.checkpoint_files import CLEANER, LOG_START_OFFSET, REPLICATION, Entries, read_checkpoint
from logagent.kafka.files.segment_files import EDGE, LogFiles, read_log_files
from logagent.kafka.retention import settings as names
from logagent.kafka.retention.settings import Layers, Setting
from logagent.verdict.facts import Facts, LogDirFacts, Ruling
from logagent.verdict.marks import Mark

BROKER_RUNS = "the broker runs"
SECONDS: Final = 10.0
"""For how long one file system is searched."""
# A call to its disk may take longer than the time that is left.
_GRACE_SECONDS = 2.0
_AFTER_LOADING = "the broker loads the log, at its next start"


@dataclass(frozen=True, slots=True)
class Explained:
    """One directory and its bytes."""

    dir: PartitionDir
    ruling: Ruling | None
    groups: Sequence[Group]


@dataclass(slots=True)
class Sum:
    """The bytes of many directories that stay for the same reason, by the same setting. `first`: None also where it is
    not the same for all. `largest`: the directory that has most of them, `largest_bytes` of it."""

    reason: RetentionReason
    setting: Setting | None
    first: str | None
    bytes: int = 0
    allocated: int = 0
    segments: int = 0
    dirs: int = 0
    at_ms: int | None = None
    last_at_ms: int | None = None
    largest: DirKey | None = None
    largest_bytes: int = -1

    def add(self, group: Group, key: DirKey | None) -> None:
        self.first = self.first if self.first == group.first else None
        self.bytes += group.bytes
        self.allocated += group.allocated
        self.segments += group.segments
        self.dirs += key is not None
        if group.at_ms is not None:
            self.at_ms = group.at_ms if self.at_ms is None else min(self.at_ms, group.at_ms)
            last = group.last_at_ms if group.last_at_ms is not None else group.at_ms
            self.last_at_ms = last if self.last_at_ms is None else max(self.last_at_ms, last)
        if key is not None and group.allocated > self.largest_bytes:
            self.largest, self.largest_bytes = key, group.allocated


@dataclass(slots=True)
class FileSystem:
    """One file system with log dirs: what is used is the sum of what `sums` allocate. Sizes in bytes. `outside`: what
    the search found of what is in no log dir; None if none was made."""

    device: int
    log_dirs: list[str]
    size: int
    used: int
    free: int
    sums: list[Sum]
    outside: Outside | None = None


@dataclass(slots=True)
class Explainer:
    """Explains directories of one host at one moment. What is in force for a topic is looked up once."""

    session: Session
    facts: Facts
    _topics: dict[str, TopicSettings] = field(default_factory=dict)
    _marks: Mapping[DirKey, Mark] = field(init=False)
    _due: Mapping[DirKey, int] = field(init=False)

    def __post_init__(self) -> None:
        # Before anything runs in a thread of a disk: the journal belongs to this one.
        self._marks = self.session.marks()
        self._due = {entry.dir.key: entry.due_at_ms for entry in self.session.queue()}

    @property
    def layers(self) -> Layers:
        return self.session.assignments.layers

    def waits_for(self, where: LogDirFacts) -> str | None:
        """What must happen before anything goes from this log dir, in words; None if its broker deletes now."""
        if where.health is Health.OFFLINE:
            return "the log dir is online again"
        if where.health is Health.READ_ONLY:
            return "its file system is writable again"
        return None if where.holder.state in (HolderState.HELD, HolderState.STARTING) else BROKER_RUNS

    def dirs(self, wanted: Iterable[PartitionDir]) -> list[Explained]:
        """Each of `wanted`, log dir by log dir; those of log dirs that fail meanwhile are explained as a whole."""
        by_log_dir: dict[str, list[PartitionDir]] = {}
        for d in wanted:
            by_log_dir.setdefault(d.log_dir, []).append(d)
        opened = self.session.log_dirs.opened()
        jobs = {path: partial(self._listed, opened[path], ds) for path, ds in by_log_dir.items() if path in opened}
        answers = self.session.calls.call_each(jobs)
        return [explained for path, dirs in by_log_dir.items() for explained in _or_unread(answers.get(path), dirs)]

    def file_systems(self, *, outside: bool = False) -> list[FileSystem]:
        """Every file system with a log dir that can be read, the fullest first. `outside`: with a search for what else
        is on it."""
        search = OutsideSearch(self.session, self.facts.log_dirs) if outside else None
        opened, session = self.session.log_dirs.opened(), self.session
        by_log_dir: dict[str, list[PartitionDir]] = {path: [] for path in opened}
        for d in session.dirs:
            by_log_dir.setdefault(d.log_dir, []).append(d)
        jobs = {path: partial(self._summed, opened[path], by_log_dir[path]) for path in opened}
        answers = session.calls.call_each(jobs)
        sums = {path: answer for path, answer in answers.items() if not isinstance(answer, LogAgentError)}
        ledgers = ledgers_of(self.facts.log_dirs, session.inventories)
        by_device: dict[int, FileSystem] = {}
        for path, ledger in ledgers.items():
            device, where = opened[path].identity.device if path in opened else -1, self.facts.log_dirs[path]
            if device < 0 or path not in sums:
                continue
            fs = by_device.setdefault(
                device, FileSystem(device, [], ledger["size"], ledger["used"], ledger["free"], [])
            )
            fs.log_dirs.append(path)
            fs.sums += sums[path].values()
            fs.sums += self._beside(path, by_log_dir[path], where)
        found = search.results() if search is not None else {}
        for fs in by_device.values():
            fs.outside = found.get(fs.device)
            fs.sums = _merged(fs.sums)
            rest = fs.used - sum(s.allocated for s in fs.sums)
            # Other directories, the file system's own, and what changed meanwhile: it may be negative.
            fs.sums.append(Sum(RetentionReason.UNEXPLAINED, None, None, 0, rest))
            fs.sums.sort(key=lambda s: -s.allocated)
        return sorted(by_device.values(), key=lambda fs: (-fs.used, fs.log_dirs))

    def _beside(self, path: str, dirs: Sequence[PartitionDir], where: LogDirFacts) -> Iterator[Sum]:
        """What is beside the directories in a log dir."""
        other = self.session.inventories[path].other_allocated
        files = other - sum(d.allocated for d in dirs if d.kind in OTHER_KINDS)
        yield Sum(RetentionReason.LOG_DIR_FILES, None, None, 0, files)
        if where.open_removed_bytes:
            first = "the processes that have them open close them"
            yield Sum(RetentionReason.OPEN_REMOVED, None, first, 0, where.open_removed_bytes)

    def _summed(
        self, log_dir: OpenLogDir, dirs: Sequence[PartitionDir]
    ) -> dict[tuple[RetentionReason, Setting | None], Sum]:
        found: dict[tuple[RetentionReason, Setting | None], Sum] = {}
        for explained in self._explained(log_dir, dirs, edges_only=True):
            key = explained.dir.key
            for group in explained.groups:
                kind = group.reason, group.setting
                total = found.get(kind)
                if total is None:
                    total = found[kind] = Sum(*kind, group.first)
                total.add(group, key)
        return found

    def _listed(self, log_dir: OpenLogDir, dirs: Sequence[PartitionDir]) -> list[Explained]:
        return list(self._explained(log_dir, dirs))

    def _explained(
        self, log_dir: OpenLogDir, dirs: Sequence[PartitionDir], *, edges_only: bool = False
    ) -> Iterator[Explained]:
        checkpoints = [_entries(log_dir, name) for name in (LOG_START_OFFSET, REPLICATION, CLEANER)]
        waits = self.waits_for(self.facts.log_dirs[log_dir.path])
        for d in dirs:
            ruling = self.facts.rulings.get(d.key)
            if d.kind is Kind.CURRENT and (ruling is None or ruling.verdict is not Verdict.ORPHAN):
                groups = self._log(log_dir, d, checkpoints, waits, edges_only)
            else:
                groups = [self._whole(d, ruling)]
            yield Explained(d, ruling, groups)

    def _log(
        self,
        log_dir: OpenLogDir,
        d: PartitionDir,
        checkpoints: Sequence[Mapping[TopicPartition, int]],
        waits: str | None,
        edges_only: bool,
    ) -> list[Group]:
        """A partition that a broker has, or would load."""
        topic = d.topic or ""
        key = TopicPartition(topic, d.partition or 0)
        offsets = Offsets(*(entries.get(key) for entries in checkpoints))
        try:
            with log_dir.acting("read", d.name):
                # Not `open_child`: what is only read need not be asked for its mount, if it is the one that was seen.
                fd = os.open(d.name, OPEN_CHILD, dir_fd=log_dir.fd)
                try:
                    found = os.fstat(fd)
                    if (found.st_dev, found.st_ino) != (d.device, d.inode):
                        return [_unread(d, "it was replaced meanwhile")]
                    files = read_log_files(fd, edges_only=edges_only)
                    groups = explain_log(files.segments, self._settings(topic), offsets, self.facts.now_ms)
                    if files.unopened and sum(g.segments for g in groups if g.reason in GOING) >= EDGE:
                        # So many go that it depends on those in between which is the first that stays.
                        files = read_log_files(fd)
                        groups = explain_log(files.segments, self._settings(topic), offsets, self.facts.now_ms)
                finally:
                    os.close(fd)
        except LogAgentError as error:
            if log_dir.offline() is not None:
                raise
            return [_unread(d, str(error))]
        due = (RetentionReason.DUE, RetentionReason.BELOW_LOG_START)
        groups = [g._replace(first=waits) if g.reason in due and waits is not None else g for g in groups]
        return [*groups, *self._beside_segments(topic, files, waits)]

    def _settings(self, topic: str) -> TopicSettings:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = settings_of(self.layers, topic)
        return found

    def _beside_segments(self, topic: str, files: LogFiles, waits: str | None) -> Iterator[Group]:
        if files.deleted or files.deleted_bytes:
            setting = self.layers.of(topic, names.FILE_DELETE_DELAY_MS)
            delay, at_ms = setting.number, None
            if waits is None and delay is not None and files.deleted_ms + delay > self.facts.now_ms:
                at_ms = files.deleted_ms + delay
            first = None if at_ms is not None else _AFTER_LOADING
            yield Group(
                RetentionReason.DELETED_FILES, files.deleted_bytes, files.deleted, 0, None, at_ms, at_ms, setting, first
            )
        if files.indexes or files.indexes_bytes:
            first = "the active segment is rolled, which trims them"
            yield Group(RetentionReason.ACTIVE_INDEXES, files.indexes_bytes, files.indexes, first=first)
        yield Group(RetentionReason.PARTITION_FILES, files.others_bytes, files.others, first="the partition is deleted")

    def _whole(self, d: PartitionDir, ruling: Ruling | None) -> Group:
        """A directory that goes, or stays, as a whole."""
        at_ms: int | None = None
        if d.kind is Kind.DELETE:
            reason, first, at_ms = RetentionReason.MARKED, None, self._due.get(d.key)
        elif d.kind is Kind.STRAY:
            marked = marked_at_ms(d, self._marks.get(d.key), self.session.clock_watch.corrected)
            at_ms = marked + self.session.settings.cleanup.stray_retention
            reason, first = RetentionReason.STRAY, "logagent cleanup removes it (a broker never does)"
        elif d.kind is Kind.FUTURE:
            reason, first = RetentionReason.MOVE, "its move between log dirs is finished"
        elif d.kind is Kind.METADATA:
            reason, first = RetentionReason.METADATA_LOG, "newer snapshots make older segments superfluous"
        elif d.kind is Kind.CACHE:
            reason, first = RetentionReason.INDEX_CACHE, "the broker evicts them"
        elif d.kind is Kind.INVALID:
            reason, first = RetentionReason.NOT_A_LOG, "somebody moves it away"
        else:
            reason, first = RetentionReason.ORPHAN, "logagent cleanup sets it aside"
            if ruling is not None and ruling.reason is not None:
                first = f"{first} ({ruling.reason})"
        return Group(reason, d.bytes, d.allocated, d.segments, d.first_offset, at_ms, at_ms, None, first)


def _or_unread(answer: list[Explained] | LogAgentError | None, dirs: Sequence[PartitionDir]) -> list[Explained]:
    if isinstance(answer, list):
        return answer
    why = str(answer) if answer is not None else "its log dir cannot be read"
    return [Explained(d, None, [_unread(d, why)]) for d in dirs]


def _unread(d: PartitionDir, why: str) -> Group:
    return Group(
        RetentionReason.UNREADABLE, d.bytes, d.allocated, d.segments, d.first_offset, first=f"it can be read: {why}"
    )


def _entries(log_dir: OpenLogDir, name: str) -> Entries:
    """The entries of a checkpoint; none if it is not there or is damaged."""
    try:
        with log_dir.acting("read", name):
            return read_checkpoint(log_dir.fd, name) or {}
    except UnreadableError:
        return {}
    except LogAgentError:
        if log_dir.offline() is not None:
            raise
        return {}


def _merged(sums: Iterable[Sum]) -> list[Sum]:
    """One for each reason and setting."""
    found: dict[tuple[RetentionReason, Setting | None], Sum] = {}
    for s in sums:
        known = found.get((s.reason, s.setting))
        if known is None:
            found[s.reason, s.setting] = s
            continue
        dirs, largest, size = known.dirs, known.largest, known.largest_bytes
        known.add(Group(s.reason, s.bytes, s.allocated, s.segments, None, s.at_ms, s.last_at_ms, None, s.first), None)
        known.dirs = dirs + s.dirs
        known.largest, known.largest_bytes = max((largest, size), (s.largest, s.largest_bytes), key=lambda x: x[1])
    return [s for s in found.values() if s.allocated or s.bytes]


class OutsideSearch:
    """Begins at once, on every file system with a log dir that can be read."""

    def __init__(self, session: Session, log_dirs: Iterable[str], seconds: float = SECONDS) -> None:
        self._monotonic = session.clock.monotonic
        self._ends = self._monotonic() + seconds + _GRACE_SECONDS
        opened = session.log_dirs.opened()
        try:
            table = mounts()
        except OSError:  # then mount points cannot be told from directories
            table = []
        # Log dirs that are offline are not entered either.
        paths = {os.path.normpath(path) for path in log_dirs} | {m.point for m in table}
        canonical = {path: os.readlink(f"/proc/self/fd/{log_dir.fd}") for path, log_dir in opened.items()}
        self._tasks: dict[int, Task[Outside | None]] = {}
        for path, log_dir in opened.items():
            device = log_dir.identity.device
            if device in self._tasks or path not in session.inventories or not table:
                continue
            inodes = frozenset(o.identity.inode for o in opened.values() if o.identity.device == device)
            search = partial(
                search_outside,
                mount_points_of(canonical[path], device, table),
                device,
                LeftOut(paths | set(canonical.values()), inodes),
                session.inventories[path].used,
                seconds,
                self._monotonic,
            )
            self._tasks[device] = Task(f"logagent-outside {path}", search)
            self._tasks[device].start()

    def results(self) -> Mapping[int, Outside]:
        """By device; of one that does not answer, that it does not."""
        found: dict[int, Outside] = {}
        for device, task in self._tasks.items():
            if not task.join(max(self._ends - self._monotonic(), 0)):
                found[device] = Outside("", unfinished="the file system does not answer")
                continue
            try:
                outside = task.outcome()
            except OSError as error:
                outside = Outside("", unfinished=error.strerror or str(error))
            found[device] = outside or Outside("", unfinished="its mount point cannot be opened")
        return found
