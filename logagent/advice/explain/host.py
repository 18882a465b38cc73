"""`logagent explain` of a host: every byte of its log dirs has a reason and, where there is one, a date. Reads, and
changes nothing.

What is decided about a log is in `kafka/retention/reasons.py`; here what it is decided from (segments and checkpoints
on the disk, the settings in the metadata log, verdicts, the queue), and what is printed. What is outside the log dirs
on their file systems is in `outside`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from logagent.advice.explain.outside import OutsideSearch, outside_document, show_outside
from logagent.advice.explain.rules import Outside
from logagent.advice.scan.rows import ledgers_of
from logagent.base.claims import of_ruling, since_when
from logagent.base.clock import SystemClock
from logagent.base.console.options import Call
from logagent.base.console.render import did_you_mean, dump, human_bytes, human_time, table
from logagent.base.dir_names import CLEANER, LOG_START_OFFSET, REPLICATION
from logagent.base.errors import ConfigError, LogAgentError
from logagent.base.records import DirKey, Health, Kind, PartitionDir, TopicPartition, Verdict
from logagent.base.times import rfc3339, rfc3339_or_none
from logagent.cleanup.plan.plan import Proposal, Refusal, Waiting, next_steps
from logagent.cleanup.plan.queue import full_topic
from logagent.cleanup.rescue.plan_rescue import plain_files
from logagent.cleanup.session.of_command import (
    NETWORK_SECONDS,
    note_health,
    read_assignments,
    say_where_they_end,
    session_of,
    take_inventory,
)
from logagent.cleanup.session.plan_cleanup import plan_cleanup
from logagent.cleanup.session.session import Session
from logagent.disk.log_dir import OPEN_CHILD, OpenLogDir
from logagent.disk.scan import OTHER_KINDS
from logagent.disk.wrong_user import refuse_wrong_user
from logagent.kafka.files.segment_files import EDGE, LogFiles, read_log_files
from logagent.kafka.processes.target import resolve_target
from logagent.kafka.retention.reasons import (
    GOING,
    Group,
    Offsets,
    RetentionReason,
    TopicSettings,
    explain_log,
    settings_of,
)
from logagent.kafka.retention.settings import (
    CLEANER_BACKOFF_MS,
    FILE_DELETE_DELAY_MS,
    METADATA_MAX_BYTES,
    METADATA_MAX_MS,
    RETENTION_CHECK_MS,
    ConfigEntry,
    Layers,
    NotConsidered,
)
from logagent.verdict.facts import Facts, LogDirFacts, Ruling

if TYPE_CHECKING:
    from logagent.advice.explain.documents import (
        ExplainDoc,
        ExplainedDirDoc,
        ExplainedLogDirDoc,
        FileSystemDoc,
        GroupDoc,
        NameDoc,
        ReasonSumDoc,
        SettingDoc,
        WhatIfDoc,
    )

Role = Literal["leader", "follower"]

IN_WORDS: Final = {
    RetentionReason.DUE: "past its retention",
    RetentionReason.RETENTION: "retention not reached",
    RetentionReason.ACTIVE: "active segment",
    RetentionReason.OLDER_SEGMENT: "behind an older segment",
    RetentionReason.FUTURE_TIMESTAMPS: "timestamps in the future",
    RetentionReason.SIZE: "retention.bytes not reached",
    RetentionReason.UNLIMITED: "kept for ever",
    RetentionReason.COMPACTED: "compacted",
    RetentionReason.NOT_YET_COMPACTED: "not yet compacted",
    RetentionReason.CLEANABLE: "compaction is due",
    RetentionReason.CLEANER_OFF: "the log cleaner is off",
    RetentionReason.OPEN_TRANSACTION: "open transaction",
    RetentionReason.BELOW_LOG_START: "below the log start offset",
    RetentionReason.ABOVE_HIGH_WATERMARK: "above the high watermark",
    RetentionReason.NOT_YET_TIERED: "local retention",
    RetentionReason.COPY_DELAYED: "copy to remote storage delayed",
    RetentionReason.SETTINGS_UNKNOWN: "settings unknown",
    RetentionReason.UNREADABLE: "unreadable",
    RetentionReason.DELETED_FILES: "deleted segments' files",
    RetentionReason.ACTIVE_INDEXES: "active segment's indexes",
    RetentionReason.PRODUCER_SNAPSHOTS: "old producer snapshots",
    RetentionReason.PARTITION_FILES: "other files of partitions",
    RetentionReason.ORPHAN: "orphan",
    RetentionReason.STRAY: "stray",
    RetentionReason.MARKED: "marked for deletion",
    RetentionReason.MOVE: "move between log dirs",
    RetentionReason.METADATA_LOG: "KRaft metadata log",
    RetentionReason.INDEX_CACHE: "remote index cache",
    RetentionReason.NOT_A_LOG: "not a partition",
    RetentionReason.LOG_DIR_FILES: "files beside partitions",
    RetentionReason.OPEN_REMOVED: "removed but open files",
    RetentionReason.UNEXPLAINED: "outside the log dirs",
}

BROKER_RUNS = "the broker runs"
_AFTER_LOADING = "the broker loads the log, at its next start"
_NAME_OF_SNAPSHOT = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")


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
    setting: ConfigEntry | None
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
    layers: Layers
    _topics: dict[str, TopicSettings] = field(default_factory=dict)
    _futures: Mapping[tuple[str | None, int | None], PartitionDir] = field(init=False)
    _sources: Mapping[tuple[str | None, int | None], PartitionDir] = field(init=False)
    _steps: Mapping[DirKey, Proposal | Refusal | Waiting] = field(init=False)
    _by_broker: Mapping[DirKey, int] = field(init=False)

    def __post_init__(self) -> None:
        # A future replica is of the current one in another log dir, which a broker looks up by its name, too.
        self._futures = {(d.topic, d.partition): d for d in self.session.dirs if d.kind is Kind.FUTURE}
        currents = (d for d in self.session.dirs if d.kind is Kind.CURRENT)
        self._sources = {where: d for d in currents if (where := (d.topic, d.partition)) in self._futures}
        # Before anything runs in a thread of a disk: the journal belongs to this one.
        self._steps = next_steps(plan_cleanup(self.session, self.facts))
        there, queue = self.facts.log_dirs, self.session.planner(self.facts).queue()
        self._by_broker = {e.dir.key: e.goes_at_ms(there.get(e.dir.log_dir)) for e in queue}

    def waits_for(self, where: LogDirFacts) -> str | None:
        """What must happen before anything goes from this log dir, in words; None if its broker deletes now."""
        if where.health is Health.OFFLINE:
            return "the log dir is online again"
        if where.health is Health.READ_ONLY:
            return "its file system is writable again"
        return None if where.holder.state.is_broker else BROKER_RUNS

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
        found = search.results() if search is not None else {}
        for fs in by_device.values():
            fs.outside = found.get(fs.device)
            fs.sums = merged(fs.sums)
            rest = fs.used - sum(s.allocated for s in fs.sums)
            # Other directories, the file system's own, and what changed meanwhile: it may be negative.
            fs.sums.append(Sum(RetentionReason.UNEXPLAINED, None, None, 0, rest))
            fs.sums.sort(key=lambda s: -s.allocated)
        return sorted(by_device.values(), key=lambda fs: (-fs.used, fs.log_dirs))

    def _beside(
        self, path: str, dirs: Sequence[PartitionDir], where: LogDirFacts, strange: Sequence[tuple[DirKey, int]]
    ) -> Iterator[Sum]:
        """What is beside the directories in a log dir. `strange`: files that Kafka did not write."""
        other = self.session.inventory.by_log_dir[path].other_allocated
        files = other - sum(d.allocated for d in dirs if d.kind in OTHER_KINDS)
        largest, size = max(strange, key=lambda file: file[1], default=(None, -1))
        yield Sum(RetentionReason.LOG_DIR_FILES, None, None, 0, files, largest=largest, largest_bytes=size)
        if where.open_removed_bytes:
            first = "the processes that have them open close them"
            yield Sum(RetentionReason.OPEN_REMOVED, None, first, 0, where.open_removed_bytes)

    def _summed(
        self, log_dir: OpenLogDir, dirs: Sequence[PartitionDir]
    ) -> dict[tuple[RetentionReason, ConfigEntry | None], Sum]:
        found: dict[tuple[RetentionReason, ConfigEntry | None], Sum] = {}
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
        checkpoints = [log_dir.checkpoint(name) for name in (LOG_START_OFFSET, REPLICATION, CLEANER)]
        waits = self.waits_for(self.facts.log_dirs[log_dir.path])
        for d in dirs:
            ruling = self.facts.verdict_on(d)
            if d.kind is Kind.CURRENT and (ruling is None or ruling.verdict is not Verdict.ORPHAN):
                groups = self._log(log_dir, d, checkpoints, waits, edges_only)
            else:
                groups = [self._metadata(log_dir, d) if d.kind is Kind.METADATA else self._whole(d, ruling)]
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
        offsets, settings = Offsets(*(entries.get(key) for entries in checkpoints)), self.settings(topic)
        first_batches = settings.reads_first_batches
        edges_only = edges_only and not first_batches
        try:
            with log_dir.acting("read", d.name):
                # Not `open_child`: what is only read need not be asked for its mount, if it is the one that was seen.
                fd = os.open(d.name, OPEN_CHILD, dir_fd=log_dir.fd)
                try:
                    found = os.fstat(fd)
                    if (found.st_dev, found.st_ino) != (d.device, d.inode):
                        return [_unread(d, "it was replaced meanwhile")]
                    files = read_log_files(
                        fd,
                        edges_only=edges_only,
                        first_batches=first_batches,
                        transactions=settings.reads_transactions,
                    )
                    offsets = offsets._replace(unstable=files.unstable)
                    groups = explain_log(files.segments, settings, offsets, self.facts.now_ms)
                    if files.unopened and sum(g.segments for g in groups if g.reason in GOING) >= EDGE:
                        # So many go that it depends on those in between which is the first that stays.
                        files = read_log_files(fd)
                        groups = explain_log(files.segments, settings, offsets, self.facts.now_ms)
                finally:
                    os.close(fd)
        except LogAgentError as error:
            if log_dir.offline() is not None:
                raise
            return [_unread(d, str(error))]
        future = self._futures.get((d.topic, d.partition))
        if future is not None and settings.cleaner.text == "true":
            groups = [self._moved(d, future, groups, waits)] if groups else []
        due = (RetentionReason.DUE, RetentionReason.BELOW_LOG_START, RetentionReason.CLEANABLE)
        groups = [g._replace(first=waits) if g.reason in due and waits is not None else g for g in groups]
        return [*groups, *self._beside_segments(topic, files, waits)]

    def _moved(self, d: PartitionDir, future: PartitionDir, groups: Sequence[Group], waits: str | None) -> Group:
        """The segments of the source of a move between log dirs: neither retention nor compaction goes on there
        (`LogCleanerManager.abortAndPauseCleaning`), until the future replica takes its name
        (`LogManager.replaceCurrentWithFutureLog`), and then it goes as a whole."""
        delay = self.layers.default(FILE_DELETE_DELAY_MS)
        there, here = human_bytes(future.segment_bytes), human_bytes(d.segment_bytes)
        first = f"its move to {future.log_dir} ends ({there} of {here} are there), and {delay.key} later"
        size, allocated = sum(g.bytes for g in groups), sum(g.allocated for g in groups)
        segments = sum(g.segments for g in groups)
        first = first if waits is None else f"{waits}, and {first}"
        return Group(RetentionReason.MOVE, size, allocated, segments, groups[0].base, setting=delay, first=first)

    def _metadata(self, log_dir: OpenLogDir, d: PartitionDir) -> Group:
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
        whole = Group(RetentionReason.METADATA_LOG, d.bytes, d.allocated, d.segments, d.first_offset, setting=size)
        if len(snapshots) < 2:
            first = "there are two snapshots: the newest one, and the log after it, always stay"
            return whole._replace(first=first)
        if size.number is not None and 0 <= size.number < d.bytes:
            return whole._replace(at_ms=self.facts.now_ms, first="its oldest snapshots may go, but never the newest")
        limit = size.number or -1
        grows = f"{human_bytes(limit - d.bytes)} more are written" if limit >= 0 else None
        if age.number is None or age.number < 0:
            return whole._replace(first=grows)
        return whole._replace(at_ms=oldest_ms + age.number, setting=age, first=grows and f"or once {grows}")

    def settings(self, topic: str) -> TopicSettings:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = settings_of(self.layers, topic)
        return found

    def _beside_segments(self, topic: str, files: LogFiles, waits: str | None) -> Iterator[Group]:
        if files.deleted or files.deleted_bytes:
            setting = self.layers.of(topic, FILE_DELETE_DELAY_MS)
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
        if files.snapshots_bytes:
            first = _AFTER_LOADING
            yield Group(RetentionReason.PRODUCER_SNAPSHOTS, files.snapshots_bytes, files.snapshots, first=first)
        yield Group(RetentionReason.PARTITION_FILES, files.others_bytes, files.others, first="the partition is deleted")

    def _whole(self, d: PartitionDir, ruling: Ruling | None) -> Group:
        """A directory that goes, or stays, as a whole."""
        at_ms: int | None = None
        if d.kind is Kind.DELETE:
            reason, (at_ms, first) = RetentionReason.MARKED, self._goes(d, None)
        elif d.kind is Kind.STRAY:
            reason = RetentionReason.STRAY
            at_ms, first = self._goes(d, "logagent cleanup removes it (a broker never does)")
        elif d.kind is Kind.FUTURE:
            reason, source = RetentionReason.MOVE, self._sources.get((d.topic, d.partition))
            there = human_bytes(d.segment_bytes)
            if source is None and ruling is not None and ruling.verdict is Verdict.ORPHAN:
                at_ms, first = self._goes(d, f"logagent cleanup sets it aside ({ruling.reason})")
                reason = RetentionReason.ORPHAN
            elif source is None:
                first = f"the log dir with {d.topic}-{d.partition} is back: it may be the only copy here ({there})"
            else:
                here = human_bytes(source.segment_bytes)
                first = f"never by itself: it becomes {source.name} with {there} of the {here} in {source.log_dir}"
        elif d.kind is Kind.CACHE:
            reason, first = RetentionReason.INDEX_CACHE, "the broker evicts them"
        elif d.kind is Kind.INVALID:
            reason, first = RetentionReason.NOT_A_LOG, "somebody moves it away"
        else:
            why = f" ({ruling.reason})" if ruling is not None and ruling.reason is not None else ""
            reason = RetentionReason.ORPHAN
            at_ms, first = self._goes(d, f"logagent cleanup sets it aside{why}")
        return Group(reason, d.bytes, d.allocated, d.segments, d.first_offset, at_ms, at_ms, None, first)

    def _goes(self, d: PartitionDir, first: str | None) -> tuple[int | None, str | None]:
        """When the plan of `cleanup` lets it go, and what must happen before (`first`, if nothing else)."""
        match self._steps.get(d.key):
            case Proposal() as p:
                return p.due_at_ms, first
            case Waiting() as w:
                return w.until_ms, first if w.until_ms is not None else f"cleanup no longer waits: {w.reason}"
            case Refusal(guard="window") if d.key in self._by_broker:
                return self._by_broker[d.key], first
            case Refusal() as r:
                return None, f"cleanup no longer refuses it: {r.fact} ({r.guard})"
        return None, first


def _or_unread(answer: list[Explained] | LogAgentError | None, dirs: Sequence[PartitionDir]) -> list[Explained]:
    if isinstance(answer, list):
        return answer
    why = str(answer) if answer is not None else "its log dir cannot be read"
    return [Explained(d, None, [_unread(d, why)]) for d in dirs]


def _unread(d: PartitionDir, why: str) -> Group:
    return Group(
        RetentionReason.UNREADABLE, d.bytes, d.allocated, d.segments, d.first_offset, first=f"it can be read: {why}"
    )


def merged(sums: Iterable[Sum]) -> list[Sum]:
    """One for each reason and setting, without those of no bytes."""
    found: dict[tuple[RetentionReason, ConfigEntry | None], Sum] = {}
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


_NAMED_TOPICS: Final = 3


def explain_host(
    call: Call,
    names: Sequence[str],
    parsed: Sequence[NameDoc],
    show_names: Callable[[Iterable[NameDoc]], None],
    *,
    outside: bool,
    offline: bool,
    asks: Callable[[Explainer, Sequence[Explained]], tuple[list[WhatIfDoc], Callable[[], None]]] | None = None,
) -> None:
    """Print it for `names`, or for all file systems, with what is `outside` the log dirs on them. Where there is no
    broker, only how names are `parsed`, each. `asks`: what is asked instead of the directories, without names of all,
    and how the answer is shown."""
    refuse_wrong_user(call)
    try:
        resolve_target(call.settings(), call.log_dirs)
    except ConfigError as e:
        if (
            not names
            or asks is not None
            or call.kafka_config is not None
            or call.settings().kafka.config is not None
            or call.log_dirs
        ):
            raise
        call.say(f"only the names are explained: {e}")
        if call.json:
            dump(_head(call, None, parsed))
        else:
            show_names(parsed)
        return
    with session_of(call) as session:
        session.ask_leaders = not offline
        if offline:
            sources = tuple(s for s in session.settings.assignments.sources if s != "admin")
            session.settings = replace(
                session.settings, assignments=replace(session.settings.assignments, sources=sources)
            )
        read_assignments(session, call, quiet=True, seconds=NETWORK_SECONDS)
        take_inventory(session, call)
        facts = session.facts(ask_broker=not offline)
        note_health(call, facts)
        _say_what_is_not_known(call, session)
        layers, not_in_force = session.layers_in_force(facts, ask=not offline)
        if not_in_force is not None:
            call.say(not_in_force, folded=True)
        explainer = Explainer(session, facts, layers)
        wanted, unmatched = _named(session, names, parsed)
        places = [path for path, f in facts.log_dirs.items() if f.health is not Health.OFFLINE and not f.quarantine]
        for name, _ in unmatched:
            near = did_you_mean(name, _known_names(session.dirs))
            call.say(f"{name}: there is no such directory, partition or topic in {', '.join(places)}{near}")
        dirs = explainer.dirs(wanted if names or asks is None else session.dirs)
        systems = explainer.file_systems(outside=outside) if not names and asks is None else []
        explained = {d.topic for d in (wanted if names else session.dirs) if d.kind is Kind.CURRENT and d.topic}
        answers, show_answers = asks(explainer, dirs) if asks is not None else ([], None)
        if call.json:
            document = _document(call, session, explainer, parsed, dirs if names else [], systems, explained)
            document["settings_unknown"] = not_in_force
            dump({**document, "what_if": answers} if asks is not None else document)
            return
        if unmatched:
            show_names(as_parsed for _, as_parsed in unmatched)
        if show_answers is not None:
            show_answers()
        else:
            _show_dirs(call, dirs, facts.now_ms)
        _show_file_systems(call, session, systems, facts.now_ms)
        _say_what_belongs_to_it(call, explainer, dirs, systems, explained)
        for log_dir in _log_dirs(session, explainer):
            if log_dir["waits_for"] is not None:
                call.say(f"{log_dir['path']}: nothing is deleted there until {log_dir['waits_for']}")
            if log_dir["cordoned"]:
                call.say(f"{log_dir['path']}: it is cordoned: it gets no new partitions, and retention goes on")


def _known_names(dirs: Iterable[PartitionDir]) -> Iterator[str]:
    for d in dirs:
        yield d.name
        if d.topic is not None:
            yield from (d.topic, f"{d.topic}-{d.partition}")


def _say_what_is_not_known(call: Call, session: Session) -> None:
    layers = session.assignments.layers
    if not layers.complete:
        call.say(
            "the settings of topics are not known here (no metadata log that is ours was read): the broker's defaults "
            "are taken for them, and a topic may have others"
        )
    say_where_they_end(session, call)
    if session.assignments.ends_at_stop is None and layers.as_of_ms is not None:
        call.detail(f"the settings of topics are those of {rfc3339(layers.as_of_ms)}, when the metadata log here ends")


def _say_what_belongs_to_it(
    call: Call,
    explainer: Explainer,
    dirs: Iterable[Explained],
    systems: Iterable[FileSystem],
    topics: Collection[str],
) -> None:
    """Settings that may keep or take segments, too (reasons and dates hold as far as they change nothing of it), what
    "at the next check" means, and which topics are not tiered although they ask for it."""
    by_key: dict[tuple[str, str], list[NotConsidered]] = {}
    for one in explainer.layers.not_considered(topics) if topics else ():
        by_key.setdefault((one.setting.key, one.setting.source), []).append(one)
    if by_key:
        words = "; ".join(map(_not_considered_in_words, by_key.values()))
        call.say(f"not considered, and may change reasons and dates: {words}", folded=True)
    found = {g.reason for e in dirs for g in e.groups} | {s.reason for fs in systems for s in fs.sums}
    if found & {RetentionReason.DUE, RetentionReason.BELOW_LOG_START}:
        check, round_ = (explainer.layers.default(name) for name in (RETENTION_CHECK_MS, CLEANER_BACKOFF_MS))
        call.say(f"a check comes every {check}, of compacted topics every {round_}", folded=True)
    untiered: dict[str, list[str]] = {}
    for topic in sorted(topics):
        if (why := explainer.settings(topic).not_tiered) is not None:
            untiered.setdefault(why, []).append(topic)
    for why, named in untiered.items():
        more = f" and {len(named) - _NAMED_TOPICS} more" if len(named) > _NAMED_TOPICS else ""
        call.say(f"{', '.join(named[:_NAMED_TOPICS])}{more}: not tiered, in spite of remote.storage.enable: {why}")


def _not_considered_in_words(found: Sequence[NotConsidered]) -> str:
    """One setting, and the topics that have it with any of its values."""
    setting, topics = found[0].setting, [topic for one in found for topic in one.topics]
    if not topics:
        return str(setting)
    of = ", ".join(topics[:_NAMED_TOPICS])
    more = f" and {len(topics) - _NAMED_TOPICS} more" if len(topics) > _NAMED_TOPICS else ""
    value = f"={setting.text}" if len(found) == 1 else ""
    return f"{setting.key}{value} ({'topic' if len(topics) == 1 else 'topics'} {of}{more})"


def _named(
    session: Session, names: Sequence[str], parsed: Sequence[NameDoc]
) -> tuple[list[PartitionDir], list[tuple[str, NameDoc]]]:
    """The directories that `names` mean, each once, and the names that mean none."""
    marks = session.recalled.marks
    found: dict[DirKey, PartitionDir] = {}
    unmatched: list[tuple[str, NameDoc]] = []
    for name, as_parsed in zip(names, parsed, strict=True):
        matching = [d for d in session.dirs if _means(name, as_parsed, d, full_topic(d, marks.get(d.key)))]
        found |= {d.key: d for d in matching}
        unmatched += [] if matching else [(name, as_parsed)]
    return list(found.values()), unmatched


def _means(name: str, parsed: NameDoc, d: PartitionDir, topic: str | None) -> bool:
    stem = name.rstrip("/") or name
    if stem.startswith("/"):
        return os.path.normpath(stem) in (f"{d.log_dir}/{d.name}", d.log_dir)
    if parsed["name"] in (d.name, topic):
        return True
    same = (parsed["topic"], parsed["partition"]) == (topic, d.partition)
    return same and parsed["uuid"] is None and parsed["topic"] is not None


def _head(call: Call, session: Session | None, parsed: Sequence[NameDoc]) -> ExplainDoc:
    cluster = session.log_dirs.cluster if session is not None else None
    now_ms = (session.clock if session is not None else SystemClock()).now_ms()
    return {
        "schema": "logagent.explain/2",
        "at": rfc3339(now_ms),
        "host": call.host,
        "cluster_id": cluster.cluster_id if cluster is not None else None,
        "node_id": cluster.node_id if cluster is not None else None,
        "settings_as_of": rfc3339_or_none(session.assignments.layers.as_of_ms) if session is not None else None,
        "as_of": {},
        "names": list(parsed),
        "log_dirs": [],
        "dirs": [],
        "file_systems": [],
        "not_considered": [],
    }


def _document(
    call: Call,
    session: Session,
    explainer: Explainer,
    parsed: Sequence[NameDoc],
    dirs: Sequence[Explained],
    systems: Sequence[FileSystem],
    topics: Collection[str],
) -> ExplainDoc:
    proofs = (e.ruling.proof for e in dirs if e.ruling is not None)
    return {
        **_head(call, session, parsed),
        "as_of": {witness: rfc3339(ms) for witness, ms in since_when(proofs).items()},
        "log_dirs": _log_dirs(session, explainer),
        "checks": [_setting(explainer.layers.default(name)) for name in (RETENTION_CHECK_MS, CLEANER_BACKOFF_MS)],
        "dirs": [_dir(e, _role(session, e.dir)) for e in dirs],
        "file_systems": [_file_system(session, fs) for fs in systems],
        "not_considered": [
            {"setting": _setting(found.setting), "topics": list(found.topics)}
            for found in (explainer.layers.not_considered(topics) if topics else ())
        ],
    }


def _log_dirs(session: Session, explainer: Explainer) -> list[ExplainedLogDirDoc]:
    cordoned = explainer.layers.cordoned
    return [
        {
            "path": path,
            "health": where.health,
            "waits_for": explainer.waits_for(where),
            "cordoned": path in cordoned or "*" in cordoned,
        }
        for path, where in explainer.facts.log_dirs.items()
        if not where.quarantine
    ]


def _role(session: Session, d: PartitionDir) -> Role | None:
    image, node_id = session.assignments.shown, session.log_dirs.cluster.node_id
    if image is None or node_id is None or d.kind is not Kind.CURRENT or d.topic is None or d.partition is None:
        return None
    topic = image.by_id.get(d.topic_id) if d.topic_id is not None else image.by_name.get(d.topic)
    partition = topic.partitions.get(d.partition) if topic is not None else None
    if partition is None or node_id not in partition.replicas:
        return None
    return "leader" if partition.leader == node_id else "follower"


def _dir(explained: Explained, role: Role | None) -> ExplainedDirDoc:
    d, ruling = explained.dir, explained.ruling
    says = of_ruling(ruling.proof) if ruling is not None else None
    return {
        "log_dir": d.log_dir,
        "name": d.name,
        "kind": d.kind,
        "topic": d.topic,
        "partition": d.partition,
        "topic_id": d.topic_id,
        "role": role,
        "allocated": sum(g.allocated for g in explained.groups),
        "verdict": ruling.verdict if ruling is not None else None,
        "reason": ruling.reason if ruling is not None else None,  # type: ignore[typeddict-item]
        "claim": says.claim if says is not None else None,
        "witness": says.witness if says is not None else None,
        "groups": [_group(g) for g in explained.groups],
    }


def _group(group: Group) -> GroupDoc:
    return {
        "reason": group.reason,
        "bytes": group.bytes,
        "allocated": group.allocated,
        "segments": group.segments,
        "first_offset": group.base,
        "at": rfc3339_or_none(group.at_ms),
        "last_at": rfc3339_or_none(group.last_at_ms),
        "setting": _setting(group.setting) if group.setting is not None else None,
        "first": group.first,
    }


def _setting(setting: ConfigEntry) -> SettingDoc:
    return {"key": setting.key, "value": setting.text, "source": setting.source}


def _file_system(session: Session, fs: FileSystem) -> FileSystemDoc:
    document: FileSystemDoc = {
        "log_dirs": fs.log_dirs,
        "size": fs.size,
        "used": fs.used,
        "free": fs.free,
        "reasons": [sum_document(s) for s in fs.sums],
    }
    if fs.outside is not None:
        document["outside"] = outside_document(session, fs.outside)
    return document


def sum_document(s: Sum) -> ReasonSumDoc:
    return {
        "reason": s.reason,
        "bytes": s.bytes,
        "allocated": s.allocated,
        "segments": s.segments,
        "directories": s.dirs,
        "at": rfc3339_or_none(s.at_ms),
        "last_at": rfc3339_or_none(s.last_at_ms),
        "setting": _setting(s.setting) if s.setting is not None else None,
        "first": s.first,
        "largest": f"{s.largest.log_dir}/{s.largest.name}" if s.largest is not None else None,
    }


def _show_file_systems(call: Call, session: Session, systems: Iterable[FileSystem], now_ms: int) -> None:
    columns = [("why", "text"), ("allocated", "right"), ("dirs", "right?"), ("goes", "text"), ("largest", "path?")]
    for fs in systems:
        share = f", {100 * fs.used // fs.size}%" if fs.size else ""
        title = f"{' '.join(fs.log_dirs)}: {human_bytes(fs.used)} used of {human_bytes(fs.size)}{share}"
        rows = [
            [
                why_in_words(s.reason, s.setting),
                human_bytes(s.allocated),
                str(s.dirs) if s.dirs else "",
                goes_in_words(s.at_ms, s.last_at_ms, s.first, now_ms),
                s.largest.name if s.largest is not None else "",
            ]
            for s in fs.sums
        ]
        table(title, columns, rows, color=call.color)
        if fs.outside is not None:
            show_outside(call, session, fs.outside)


def _show_dirs(call: Call, dirs: Iterable[Explained], now_ms: int) -> None:
    columns = [("why", "text"), ("allocated", "right"), ("segments", "right?"), ("goes", "text")]
    for explained in dirs:
        d, ruling = explained.dir, explained.ruling
        rows = [
            [
                why_in_words(g.reason, g.setting),
                human_bytes(g.allocated),
                f"{g.segments} from {g.base}" if g.segments else "",
                goes_in_words(g.at_ms, g.last_at_ms, g.first, now_ms),
            ]
            for g in explained.groups
        ]
        verdict = [ruling.verdict.value, *filter(None, (ruling.reason, ruling.detail))] if ruling is not None else []
        title = f"{d.log_dir}/{d.name} ({', '.join(verdict) or d.kind.value})"
        table(title, columns, rows, color=call.color)


def why_in_words(reason: RetentionReason, setting: ConfigEntry | None) -> str:
    return IN_WORDS[reason] if setting is None else f"{IN_WORDS[reason]}: {setting}"


def goes_in_words(at_ms: int | None, last_at_ms: int | None, first: str | None, now_ms: int) -> str:
    """The date, and what must happen before."""
    once = "" if first is None else first if first.startswith("or ") else f"once {first}"
    if at_ms is None:
        return once
    date = "at the next check" if at_ms <= now_ms else human_time(at_ms)
    if last_at_ms is not None and last_at_ms > max(at_ms, now_ms):
        date += f" to {human_time(last_at_ms)}"
    return f"{date}, {once}" if once else date
