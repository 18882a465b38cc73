"""What `explain` reads: segments and checkpoints on the disk for what `kafka/retention/reasons.py` decides, and what
else is on the file systems of the log dirs. Changes nothing.

The search outside counts as `du -x`, and finds log dirs. Nothing is followed or opened but directories, and in what may
be a log dir `meta.properties` and `.lock`. It never leaves the file system: mount points are left out by the mount
table before anything asks them (which alone may hang, or mount what is behind an automount point), and a directory on
another device is not entered. Each file system is searched in a thread of its own, which is not waited for longer than
its time.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Self

from logagent.advice.explain.rules import (
    SET_ASIDE,
    DiskUsage,
    Explained,
    FileSystem,
    KindOfSum,
    OtherLogDirDoc,
    OutsideDoc,
    Sum,
    ThisNode,
    goes_when,
    lacks_cover,
    merged,
    or_unread,
    summed_up,
    unreadable,
    whole,
)
from logagent.advice.scan.command import ledgers_of
from logagent.base.console.render import human_bytes, human_ms
from logagent.base.dir_names import CLEANER, LOG_START_OFFSET, REPLICATION, classify
from logagent.base.errors import LogAgentError
from logagent.base.files.safe_open import open_directory
from logagent.base.linux.kernel import Mount, mount_of, mounts
from logagent.base.records import DirKey, Health, Kind, PartitionDir, Reason, TopicPartition, Verdict
from logagent.base.units import counted
from logagent.cleanup.commands.cleanup import plan_cleanup
from logagent.cleanup.plan.planner import COVERED_FIRST, Planner, Told
from logagent.cleanup.plan_documents import copied_by
from logagent.cleanup.rescue.plan_rescue import plain_files
from logagent.cleanup.session.session import Session
from logagent.disk.bounded_calls import Task
from logagent.disk.log_dir import OPEN_CHILD, OpenLogDir
from logagent.disk.scan import OTHER_KINDS
from logagent.kafka.admin.responses import BrokerSays, HeldLog, HeldLogDir
from logagent.kafka.files.properties import META_PROPERTIES, read_meta_file
from logagent.kafka.files.segment_files import EDGE, LogFiles, read_log_files
from logagent.kafka.processes.lock import query_lock
from logagent.kafka.retention.reasons import (
    GOING,
    Group,
    Offsets,
    RetentionReason,
    TopicSettings,
    because,
    explain_log,
    offsets_of,
    settings_of,
)
from logagent.kafka.retention.settings import (
    FILE_DELETE_DELAY_MS,
    METADATA_MAX_BYTES,
    METADATA_MAX_MS,
    Layers,
)
from logagent.verdict.copies import Move, moves_of
from logagent.verdict.facts import Facts, LogDirFacts

BROKER_RUNS = "the broker runs"
_SETTLED_MS = 60_000
CHECKPOINTS: Final = {
    LOG_START_OFFSET: "what was deleted by kafka-delete-records",
    REPLICATION: "high watermarks",
    CLEANER: "what was compacted",
}
_AFTER_LOADING = "the broker loads the log, at its next start"
_NAME_OF_SNAPSHOT = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")


@dataclass(slots=True)
class Explainer:
    """Explains directories of one host at one moment. What is in force for a topic is looked up once. `unread`: by log
    dir, the checkpoint files that are damaged, which is found while directories are explained."""

    session: Session
    facts: Facts
    layers: Layers
    planner: Planner
    moves: Mapping[DirKey, Move]
    says: BrokerSays
    unread: dict[str, list[str]] = field(default_factory=dict)
    _topics: dict[str, TopicSettings] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, session: Session, facts: Facts, layers: Layers, says: BrokerSays) -> Self:
        """Plans a cleanup, once: before anything runs in a thread of a disk, as the journal belongs to this one."""
        planner = session.planner(facts).after(plan_cleanup(session, facts))
        moves = {d.key: move for move in moves_of(session.dirs) for d in (move.future, move.source) if d is not None}
        return cls(session, facts, layers, planner, moves, says)

    def waits_for(self, where: LogDirFacts) -> str | None:
        """What must happen before anything goes from this log dir, in words; None if its broker deletes now."""
        held = self._held(where.path)
        if held is not None and held.error_code:
            return f"the broker starts again: it took this log dir offline (error {held.error_code})"
        if where.health is Health.OFFLINE:
            return "the log dir is online again"
        if where.health is Health.READ_ONLY:
            return "its file system is writable again"
        return None if where.holder.state.is_broker else BROKER_RUNS

    def _held(self, log_dir: str) -> HeldLogDir | None:
        return (self.says.log_dirs or {}).get(os.path.normpath(log_dir))

    def dirs(self, wanted: Iterable[PartitionDir]) -> list[Explained]:
        """Each of `wanted`, log dir by log dir; those of log dirs that fail meanwhile are explained as a whole."""
        by_log_dir: dict[str, list[PartitionDir]] = {}
        for d in wanted:
            by_log_dir.setdefault(d.log_dir, []).append(d)
        opened = self.session.log_dirs.opened()
        jobs = {path: partial(self._listed, opened[path], ds) for path, ds in by_log_dir.items() if path in opened}
        answers = self.session.calls.call_each(jobs)
        return [explained for path, dirs in by_log_dir.items() for explained in or_unread(answers.get(path), dirs)]

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
        ledgers = ledgers_of(self.facts.log_dirs, session.inventory.by_log_dir)
        by_device: dict[int, FileSystem] = {}
        files = plain_files(session)
        for path, ledger in ledgers.items():
            device, where = opened[path].identity.device if path in opened else -1, self.facts.log_dirs[path]
            if device < 0 or path not in sums:
                continue
            fs = by_device.setdefault(
                device, FileSystem(device, [], ledger["size"], ledger["used"], ledger["free"], [])
            )
            fs.log_dirs.append(path)
            fs.sums += sums[path].values()
            fs.sums += self._beside(path, by_log_dir[path], where, [f for f in files if f[0].log_dir == path])
        searched = search.results() if search is not None else {}
        for fs in by_device.values():
            fs.outside = searched.get(fs.device)
            fs.sums = merged(fs.sums)
            rest = fs.used - sum(s.allocated for s in fs.sums)
            # Other directories, the file system's own, and what changed meanwhile: it may be negative.
            fs.sums.append(Sum(because(RetentionReason.UNEXPLAINED), 0, rest))
            fs.sums.sort(key=lambda s: -s.allocated)
        return sorted(by_device.values(), key=lambda fs: (-fs.used, fs.log_dirs))

    def _beside(
        self, path: str, dirs: Sequence[PartitionDir], where: LogDirFacts, strange: Sequence[tuple[DirKey, int]]
    ) -> Iterator[Sum]:
        """What is beside the directories in a log dir. `strange`: files that Kafka did not write."""
        other = self.session.inventory.by_log_dir[path].other_allocated
        files = other - sum(d.allocated for d in dirs if d.kind in OTHER_KINDS)
        largest, size = max(strange, key=lambda file: file[1], default=(None, -1))
        yield Sum(because(RetentionReason.LOG_DIR_FILES), 0, files, largest=largest, largest_bytes=size)
        if where.open_removed_bytes:
            why = because(RetentionReason.OPEN_REMOVED, until="the processes that have them open close them")
            yield Sum(why, 0, where.open_removed_bytes)

    def _summed(self, log_dir: OpenLogDir, dirs: Sequence[PartitionDir]) -> dict[KindOfSum, Sum]:
        sums: dict[KindOfSum, Sum] = {}
        for explained in self._explained(log_dir, dirs, edges_only=True):
            key = explained.dir.key
            for group in explained.groups:
                kind = group.why.code, group.why.setting
                total = sums.get(kind)
                if total is None:
                    total = sums[kind] = Sum(group.why)
                total.add(group, key)
        return sums

    def _listed(self, log_dir: OpenLogDir, dirs: Sequence[PartitionDir]) -> list[Explained]:
        return list(self._explained(log_dir, dirs))

    def _explained(
        self, log_dir: OpenLogDir, dirs: Sequence[PartitionDir], *, edges_only: bool = False
    ) -> Iterator[Explained]:
        # Before it is read: what was written to a log after this may be in it, and never the other way round.
        as_of_ms = log_dir.written_ms(REPLICATION)
        read = {name: log_dir.checkpoint(name) for name in CHECKPOINTS}
        self.unread[log_dir.path] = [name for name, entries in read.items() if entries is None]
        waits = self.waits_for(self.facts.log_dirs[log_dir.path])
        found = [entries or {} for entries in read.values()]
        offsets = partial(offsets_of, checkpoints=found, as_of_ms=as_of_ms if waits is None else None)
        for d in dirs:
            told = self.planner.says(d)
            if d.kind is Kind.CURRENT and told.verdict is not Verdict.ORPHAN:
                groups = self._log(log_dir, d, offsets, waits, edges_only)
            else:
                why = self._metadata(log_dir, d) if d.kind is Kind.METADATA else self._of_whole(told)
                groups = [whole(d, why, None if d.kind is Kind.METADATA else why.until_ms)]
            yield Explained(d, told.ruling, groups)

    def _log(
        self,
        log_dir: OpenLogDir,
        d: PartitionDir,
        offsets_of_log: Callable[[TopicPartition], Offsets],
        waits: str | None,
        edges_only: bool,
    ) -> list[Group]:
        """A partition that a broker has, or would load."""
        topic = d.topic or ""
        key = TopicPartition(topic, d.partition or 0)
        offsets, settings = offsets_of_log(key), self.settings(topic)
        first_batches = settings.reads_first_batches
        edges_only = edges_only and not first_batches
        try:
            with log_dir.acting("read", d.name):
                # Not `open_child`: what is only read need not be asked for its mount, if it is the one that was seen.
                fd = os.open(d.name, OPEN_CHILD, dir_fd=log_dir.fd)
                try:
                    status = os.fstat(fd)
                    if (status.st_dev, status.st_ino) != (d.device, d.inode):
                        return [unreadable(d, "it was replaced meanwhile")]
                    files = read_log_files(
                        fd,
                        edges_only=edges_only,
                        first_batches=first_batches,
                        transactions=settings.reads_transactions,
                    )
                    unstable, transaction = files.unstable, self.says.transactions.get(key)
                    if key in self.says.transactions:
                        unstable = transaction.first if transaction is not None else None
                    offsets = offsets._replace(unstable=unstable, transaction=transaction)
                    since = self.facts.log_dirs[d.log_dir].holder.start_time_ms if waits is None else None
                    groups = explain_log(files.segments, settings, offsets, self.facts.now_ms, since)
                    if files.unopened and sum(g.segments for g in groups if g.why.code in GOING) >= EDGE:
                        # So many go that it depends on those in between which is the first that stays.
                        files = read_log_files(fd)
                        groups = explain_log(files.segments, settings, offsets, self.facts.now_ms, since)
                finally:
                    os.close(fd)
        except LogAgentError as error:
            if log_dir.offline() is not None:
                raise
            return [unreadable(d, str(error))]
        held = self._held(log_dir.path)
        # A directory that is made, or deleted, at this moment is in one of the two lists only.
        is_settled = max(d.ctime_ns, d.mtime_ns) // 1_000_000 < self.facts.now_ms - _SETTLED_MS
        if held is not None and not held.error_code and key not in held.current and is_settled:
            first = "the broker starts again: it runs without this log, which was put there by somebody else"
            return [whole(d, because(RetentionReason.NOT_LOADED, until=first))]
        if (move := self.moves.get(d.key)) is not None and settings.cleaner.text == "true":
            groups = [self._moving(move, groups, waits)] if groups else []
        due = (RetentionReason.DUE, RetentionReason.BELOW_LOG_START, RetentionReason.CLEANABLE)
        if waits is not None:
            groups = [g._replace(why=replace(g.why, until=waits)) if g.why.code in due else g for g in groups]
        return [*groups, *self._beside_segments(topic, files, waits)]

    def _moving(self, move: Move, groups: Sequence[Group], waits: str | None) -> Group:
        """The segments of the source of a move between log dirs: neither retention nor compaction goes on there
        (`LogCleanerManager.abortAndPauseCleaning`), until the future replica takes its name
        (`LogManager.replaceCurrentWithFutureLog`), and then it goes as a whole."""
        delay = self.layers.default(FILE_DELETE_DELAY_MS)
        there = f"{copied_by(move)} are there{self._behind(move.future)}"
        first = f"its move to {move.future.log_dir} ends ({there}), and {delay.key} later"
        size, allocated = sum(g.bytes for g in groups), sum(g.allocated for g in groups)
        segments = sum(g.segments for g in groups)
        first = first if waits is None else f"{waits}, and {first}"
        return Group(because(RetentionReason.MOVE, delay, None, first), size, allocated, segments, groups[0].base)

    def _behind(self, future: PartitionDir) -> str:
        log = self.held_log(future)
        return f", {counted(log.lag, 'record')} behind" if log is not None else ""

    def held_log(self, d: PartitionDir) -> HeldLog | None:
        """What the running broker says of it: None if it has no such log, or did not say."""
        held, key = self._held(d.log_dir), TopicPartition(d.topic or "", d.partition or 0)
        logs = {Kind.CURRENT: held.current, Kind.FUTURE: held.future}.get(d.kind) if held is not None else None
        return logs.get(key) if logs is not None else None

    def _metadata(self, log_dir: OpenLogDir, d: PartitionDir) -> Reason:
        """`KafkaMetadataLog.maybeClean`: the oldest snapshot goes, with the log up to the next one, while log and
        snapshots exceed a size, or once it is too old; the newest one, and the log after it, never."""
        size, age = self.layers.default(METADATA_MAX_BYTES), self.layers.default(METADATA_MAX_MS)
        with log_dir.acting("read", d.name):
            fd = os.open(d.name, OPEN_CHILD, dir_fd=log_dir.fd)
            try:
                snapshots = sorted(filter(_NAME_OF_SNAPSHOT.fullmatch, os.listdir(fd)))
                oldest_ms = os.lstat(snapshots[0], dir_fd=fd).st_mtime_ns // 1_000_000 if snapshots else 0
            finally:
                os.close(fd)
        why = partial(because, RetentionReason.METADATA_LOG)
        if len(snapshots) < 2:
            first = "there are two snapshots: the newest one, and the log after it, always stay"
            return why(size, None, first)
        if size.number is not None and 0 <= size.number < d.bytes:
            return why(size, self.facts.now_ms, "its oldest snapshots may go, but never the newest")
        limit = size.number or -1
        grows = f"{human_bytes(limit - d.bytes)} more are written" if limit >= 0 else None
        if age.number is None or age.number < 0:
            return why(size, None, grows)
        return why(age, oldest_ms + age.number, grows and f"or once {grows}")

    def settings(self, topic: str) -> TopicSettings:
        settings = self._topics.get(topic)
        if settings is None:
            settings = self._topics[topic] = settings_of(self.layers, topic)
        return settings

    def _beside_segments(self, topic: str, files: LogFiles, waits: str | None) -> Iterator[Group]:
        if files.deleted or files.deleted_bytes:
            setting = self.layers.of(topic, FILE_DELETE_DELAY_MS)
            delay, at_ms = setting.number, None
            if waits is None and delay is not None and files.deleted_ms + delay > self.facts.now_ms:
                at_ms = files.deleted_ms + delay
            why = because(RetentionReason.DELETED_FILES, setting, at_ms, None if at_ms is not None else _AFTER_LOADING)
            yield Group(why, files.deleted_bytes, files.deleted, last_at_ms=at_ms)
        if files.indexes or files.indexes_bytes:
            why = because(RetentionReason.ACTIVE_INDEXES, until="the active segment is rolled, which trims them")
            yield Group(why, files.indexes_bytes, files.indexes)
        if files.snapshots_bytes:
            why = because(RetentionReason.PRODUCER_SNAPSHOTS, until=_AFTER_LOADING)
            yield Group(why, files.snapshots_bytes, files.snapshots)
        why = because(RetentionReason.PARTITION_FILES, until="the partition is deleted")
        yield Group(why, files.others_bytes, files.others)

    def _of_whole(self, told: Told) -> Reason:
        """Why a directory is there that goes, or stays, as a whole."""
        d = told.dir
        if d.kind is Kind.DELETE:
            return goes_when(RetentionReason.MARKED, told, None)
        if d.kind is Kind.STRAY:
            first = "logagent cleanup removes it (a broker never does)"
            return goes_when(
                RetentionReason.STRAY, told, f"{COVERED_FIRST}, and {first}" if lacks_cover(told) else first
            )
        if d.kind is Kind.CACHE:
            return because(RetentionReason.INDEX_CACHE, until="the broker evicts them")
        if d.kind is Kind.INVALID:
            return because(RetentionReason.NOT_A_LOG, until="somebody moves it away")
        move = self.moves[d.key] if d.kind is Kind.FUTURE else None
        if move is not None and move.source is not None:
            copied = f"{copied_by(move)} in {move.source.log_dir}{self._behind(d)}"
            first = f"never by itself: it becomes {move.partition} with {copied}"
            return because(RetentionReason.MOVE, until=first)
        if move is not None and told.verdict is not Verdict.ORPHAN:
            first = f"the log dir with {move.partition} is back: it may be the only copy here ({copied_by(move)})"
            return because(RetentionReason.MOVE, until=first)
        # Its date is that of a rename: its bytes go only after the retention of strays.
        stop = ", not before the broker stops" if self.facts.log_dirs[d.log_dir].holder.state.is_broker else ""
        kept = human_ms(self.session.settings.cleanup.stray_retention)
        covered = f" once {COVERED_FIRST}" if lacks_cover(told) else ""
        first = f"{SET_ASIDE}{stop}, removed {kept} after that{covered}"
        return goes_when(RetentionReason.ORPHAN, told, first)


SECONDS: Final = 10.0
"""For how long one file system is searched."""
# A call to its disk may take longer than the time that is left.
_GRACE_SECONDS = 2.0
# Directories are held open on the way down. What is nested deeper was made by a mistake, or to do harm.
MOST_LEVELS: Final = 200
# Of what has several names, so many are remembered to be counted once.
MOST_LINKED: Final = 500_000
# What has less than this share of the used bytes has no line of its own in the end, and is not remembered.
_SHARE: Final = 1000
_LEAST: Final = 1 << 20
_MOST_PARTS: Final = 2 * _SHARE
_MOST_LOG_DIRS: Final = 1000
# How many entries are counted between two looks at the clock.
_TICK: Final = 256


def mount_points_of(path: str, device: int, table: Collection[Mount]) -> list[str]:
    """Where the file system `device` can be entered, on which the directory `path` (canonical) is: the mount that shows
    most of it comes first."""
    whole = sorted((m for m in table if m.device == device), key=lambda m: (len(m.root), len(m.point)))
    own = mount_of(path, table)
    return list(dict.fromkeys([m.point for m in whole] + ([own.point] if own is not None else [])))


@dataclass(frozen=True, slots=True)
class NotEntered:
    """What is not entered. `paths`: canonical, of log dirs and mount points. `inodes`: of the log dirs on the file
    system that is searched, wherever another mount shows them; all of `node`."""

    paths: Collection[str]
    inodes: Collection[int]
    node: ThisNode


def search_outside(
    points: Iterable[str],
    device: int,
    left_out: NotEntered,
    used: int,
    seconds: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> OutsideDoc | None:
    """Count what is below the first of `points` that is on `device`, for at most `seconds`; None if none can be opened.
    `used`: bytes used on the file system. A call to a disk that hangs takes as long as it takes."""
    for point in points:
        try:
            fd = open_directory(point)
        except OSError:
            continue
        status = os.fstat(fd)
        if status.st_dev == device and status.st_ino not in left_out.inodes:
            return _Search(device, left_out, used, monotonic() + seconds, monotonic).run(point, fd)
        os.close(fd)
        if status.st_dev == device:  # it is a log dir: nothing is outside
            return _nothing(point)
    return None


def _nothing(root: str, unfinished: str | None = None) -> OutsideDoc:
    return OutsideDoc(root, [], [], 0, 0, 0, unfinished)


class _OverError(Exception):
    """The search ends: `args[0]` says why."""


@dataclass(slots=True)
class _OpenDirectory:
    """An open directory on the way down. `partitions`: directories in it that are partitions by name and have
    segments; `is_partition`: it is one."""

    fd: int
    tree: DiskUsage
    name: str
    subdirs: list[str] = field(default_factory=list)
    has_meta: bool = False
    partitions: int = 0
    is_partition: bool = False


class _Search:
    def __init__(
        self,
        device: int,
        left_out: NotEntered,
        used: int,
        ends: float,
        monotonic: Callable[[], float],
    ) -> None:
        self.inodes, self.node = left_out.inodes, left_out.node
        self.device, self.ends, self.monotonic = device, ends, monotonic
        self.least = max(used // _SHARE, _LEAST)
        self.left_out: dict[str, set[str]] = {}
        for path in left_out.paths:
            parent, _, name = path.rpartition("/")
            self.left_out.setdefault(parent or "/", set()).add(name)
        self.linked: set[int] = set()
        self.log_dirs: list[OtherLogDirDoc] = []
        self.unread = 0
        self.ticks = 0

    def run(self, root: str, fd: int) -> OutsideDoc:
        """Takes `fd` over."""
        tree = DiskUsage(root)
        levels = [_OpenDirectory(fd, tree, "")]
        unfinished: str | None = None
        try:
            try:
                self._list(levels[0])
                while levels[0].subdirs or len(levels) > 1:
                    self._step(levels)
            except _OverError as over:
                unfinished = str(over)
            while len(levels) > 1:
                self._leave(levels)
        finally:
            for level in levels:
                os.close(level.fd)
        return summed_up(root, tree, self.log_dirs, unread=self.unread, unfinished=unfinished)

    def _step(self, levels: list[_OpenDirectory]) -> None:
        level = levels[-1]
        if not level.subdirs:
            self._leave(levels)
            return
        name = level.subdirs.pop()
        if len(levels) >= MOST_LEVELS:
            self.unread += 1
            return
        try:
            fd = os.open(name, OPEN_CHILD, dir_fd=level.fd)
        except OSError as error:
            # It was removed or replaced meanwhile; else it may not be read, or its disk fails.
            self.unread += error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
            return
        status = os.fstat(fd)
        if status.st_dev != self.device or status.st_ino in self.inodes:
            os.close(fd)
            return
        below = _OpenDirectory(fd, DiskUsage(f"{level.tree.path.rstrip('/')}/{name}"), name)
        levels.append(below)
        self._list(below)

    def _list(self, level: _OpenDirectory) -> None:
        """Count what is in it, and note its subdirectories."""
        tree, left_out = level.tree, self.left_out.get(level.tree.path, ())
        has_segments = False
        try:
            tree.allocated += os.fstat(level.fd).st_blocks * 512
            for entry in self._entries(level.fd):
                name = entry.name
                if name in left_out:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    level.subdirs.append(name)
                    continue
                self._count(tree, entry)
                if name == META_PROPERTIES:
                    level.has_meta = True
                elif len(name) == 24 and name.endswith(".log") and name[:20].isdigit():
                    has_segments = True
        except OSError:
            self.unread += 1
        level.is_partition = has_segments and classify(level.name).kind not in (Kind.INVALID, Kind.CACHE)

    def _entries(self, fd: int) -> Iterator[os.DirEntry[str]]:
        with os.scandir(fd) as entries:
            for entry in entries:
                self.ticks += 1
                if self.ticks % _TICK == 0 and self.monotonic() > self.ends:
                    raise _OverError("stopped at the time limit")
                yield entry

    def _count(self, tree: DiskUsage, entry: os.DirEntry[str]) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        if status.st_nlink > 1:
            if status.st_ino in self.linked:
                return
            if len(self.linked) >= MOST_LINKED:
                raise _OverError(f"more than {MOST_LINKED} files have several names")
            self.linked.add(status.st_ino)
        size = status.st_blocks * 512
        tree.files += 1
        tree.allocated += size
        if size >= self.least:
            _add(tree, DiskUsage(f"{tree.path.rstrip('/')}/{entry.name}", True, size, 1))

    def _leave(self, levels: list[_OpenDirectory]) -> None:
        """Add the last level to the one above it, unless it is a log dir."""
        level, above = levels.pop(), levels[-1]
        try:
            above.partitions += level.is_partition
            if (level.has_meta or level.partitions) and self._is_log_dir(level):
                return
        finally:
            os.close(level.fd)
        above.tree.allocated += level.tree.allocated
        above.tree.files += level.tree.files
        if level.tree.allocated >= self.least:
            _add(above.tree, level.tree)

    def _is_log_dir(self, level: _OpenDirectory) -> bool:
        try:
            meta = read_meta_file(level.fd) if level.has_meta else None
        except OSError:
            meta = None
        cluster_id, node_id = (meta.cluster_id, meta.node_id) if meta is not None else (None, None)
        identified = cluster_id is not None or node_id is not None
        if not (identified or level.partitions) or len(self.log_dirs) >= _MOST_LOG_DIRS:
            return False
        held = query_lock(level.fd).held
        path, allocated = level.tree.path, level.tree.allocated
        whose = self.node.whose(path, cluster_id, node_id)
        self.log_dirs.append(OtherLogDirDoc(path, whose, cluster_id, node_id, level.partitions, allocated, held))
        return True


def _add(tree: DiskUsage, part: DiskUsage) -> None:
    tree.parts.append(part)
    if len(tree.parts) > _MOST_PARTS:  # what shares its blocks counts more than the file system uses
        tree.parts = sorted(tree.parts, key=lambda p: -p.allocated)[:_SHARE]


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
        cluster, target = session.log_dirs.cluster, session.target
        metadata_log_dir = target.server.metadata_log_dir if target.config is not None else None
        node = ThisNode(cluster.cluster_id, cluster.node_id, metadata_log_dir)
        self._tasks: dict[int, Task[OutsideDoc | None]] = {}
        for path, log_dir in opened.items():
            device = log_dir.identity.device
            if device in self._tasks or path not in session.inventory.by_log_dir or not table:
                continue
            inodes = frozenset(o.identity.inode for o in opened.values() if o.identity.device == device)
            search = partial(
                search_outside,
                mount_points_of(canonical[path], device, table),
                device,
                NotEntered(paths | set(canonical.values()), inodes, node),
                session.inventory.by_log_dir[path].used,
                seconds,
                self._monotonic,
            )
            self._tasks[device] = Task(f"logagent-outside {path}", search)
            self._tasks[device].start()

    def results(self) -> Mapping[int, OutsideDoc]:
        """By device; of one that does not answer, that it does not."""
        by_device: dict[int, OutsideDoc] = {}
        for device, task in self._tasks.items():
            if not task.join(max(self._ends - self._monotonic(), 0)):
                by_device[device] = _nothing("", "the file system does not answer")
                continue
            try:
                outside = task.outcome()
            except OSError as error:
                outside = _nothing("", error.strerror or str(error))
            by_device[device] = outside or _nothing("", "its mount point cannot be opened")
        return by_device
