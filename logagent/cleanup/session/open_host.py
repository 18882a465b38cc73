"""A host whose log dirs and journal are open, and what is read of it first: assignments, inventory, journal. In this
order: a directory that is younger than the assignments proves nothing. `gather` makes the evidence of them.

Whoever opens the log dirs also sees whether the broker's configuration still names every one that the state dir
remembers. A `server.properties` that is being written may be empty (then Kafka's default is in effect) or end in the
middle of `log.dirs`, and is valid all the same. What is in a log dir that is forgotten is then neither a copy nor a
partition that is current: so what rests on having seen all of them waits (`Facts.not_seen`), until the file names it
again, or the daemon is restarted (`verdict.evidence.version_seen.forget_other_log_dirs`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from shlex import quote
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from logagent.base.clock import Clock, Patience
from logagent.base.config.settings import Settings
from logagent.base.errors import KafkaStorageError, LogAgentError
from logagent.base.records import DirKey, Health, Holder, HolderState, Identity, Kind, PartitionDir, Reason
from logagent.cleanup.plan.queue import QueueEntry, Recalled, queue_of
from logagent.cleanup.session.recall import ClockWatch, note_what_came_back, recall
from logagent.cleanup.state.journal import Journal
from logagent.disk.calls import DirectCalls, DiskCalls
from logagent.disk.holders import (
    OpenFiles,
    Watched,
    holder_of,
    open_lock_files,
    process_start_ticks,
    scan_open_files,
    shares_our_mounts,
)
from logagent.disk.log_dir import LogDirFailures, OpenLogDir, changed_ms
from logagent.disk.scan import Inventory, LogDirInventory, scan_log_dirs
from logagent.kafka.files.properties import META_PROPERTIES, read_meta_file
from logagent.kafka.identity import ClusterFacts, MetaRead, agree
from logagent.kafka.image import AssignmentImage, Source
from logagent.kafka.processes.lock import LOCK_FILE, LockState, query_lock
from logagent.kafka.processes.target import Target
from logagent.verdict.evidence.assignment_sources import AssignmentQuery, Assignments, load_assignments
from logagent.verdict.evidence.version_seen import read_lineage, read_log_dirs_seen, write_log_dirs_seen
from logagent.verdict.facts import Facts, LogDirFacts

if TYPE_CHECKING:
    from logagent.kafka.files.log_extent import SegmentReadings
    from logagent.verdict.evidence.brokers_to_ask import BrokersToAsk
    from logagent.verdict.evidence.stray_questions import CopyReads


def forgotten_log_dir(
    target: Target, log_dirs: LogDirs, state_dir: str | None, looked: Mapping[str, LogDirFacts]
) -> Reason | None:
    """The log dir that the configuration of `target` has lost since the state dir saw it; None if it names all."""
    cluster = log_dirs.cluster
    seen = read_log_dirs_seen(state_dir, cluster.cluster_id, cluster.node_id)
    if seen.unread is not None:
        fact = f"{seen.file}, which says which log dirs this broker has, {seen.unread}"
        return Reason(fact, f"if {target.config or 'what is named'} has all of them, remove it")
    here = {f.directory_id for f in looked.values() if f.directory_id is not None}
    named = {*target.log_dirs, *target.left_out, *target.spared}
    lost = next((path for path in seen.left_out(named, here) if not is_here(log_dirs, path)), None)
    if lost is None and not seen.dirs and target.config is not None:
        # Nothing is remembered yet: what the running broker uses is the fact.
        lost = next(iter(sorted(locked_by_broker(log_dirs, looked) or ())), None)
    if lost is None:
        return None
    if target.config is None:
        hint = "name all log dirs of the broker with --log-dir, or its configuration with --kafka-config"
        return Reason(f"log dir {lost} was not named", hint)
    hint = "put it back into log.dirs; if the broker really lost it, restart logagent (systemctl restart logagent)"
    hint += f", or without a daemon remove {quote(seen.file or '')}"
    return Reason(f"{target.config} does not name log dir {lost} any more", hint)


def locked_by_broker(log_dirs: LogDirs, looked: Mapping[str, LogDirFacts]) -> dict[str, str] | None:
    """The log dirs that the running broker has locked and its configuration does not name, with who says so; None if
    that cannot be followed from here (it runs in a container, or its open files may not be read)."""
    target = log_dirs.target
    holders = {f.holder.pid for f in looked.values() if f.holder.state.is_broker}
    metadata = target.server.metadata_log_dir if target.server.process_roles else None
    named = {os.path.normpath(path) for path in (*target.log_dirs, *target.left_out, *target.spared)}
    found: dict[str, str] = {}
    for pid in holders:
        files = open_lock_files(pid) if pid is not None and shares_our_mounts(pid) else None
        if files is None:
            return None
        found |= {os.path.dirname(file): f"process {pid}, which has it locked" for file in sorted(files)}
    return {p: who for p, who in found.items() if p not in named and not is_here(log_dirs, p, or_at=metadata)}


def is_here(log_dirs: LogDirs, path: str, *, or_at: str | None = None) -> bool:
    """Whether it is one of the open log dirs (or the directory `or_at`), by another path."""
    opened = log_dirs.online()
    identities = {d.identity for d in opened.values()}

    def same() -> bool:
        status = os.stat(path)
        is_open = Identity(status.st_dev, status.st_ino) in identities
        return is_open or (or_at is not None and os.path.samestat(status, os.stat(or_at)))

    try:
        return log_dirs.calls.ask(f"inspecting {path}", same, of=tuple(opened), limit=STAT_SECONDS)
    except (OSError, ValueError, KafkaStorageError):
        return False


def remember_log_dirs(log_dirs: LogDirs, state_dir: str | None, looked: Mapping[str, LogDirFacts]) -> None:
    """Of a configuration that has lost none of them."""
    cluster, target = log_dirs.cluster, log_dirs.target
    if state_dir is None or target.config is None or cluster.memory_id is None or cluster.node_id is None:
        return
    before = read_log_dirs_seen(state_dir, cluster.cluster_id, cluster.node_id).dirs
    paths = [path for path in (*target.log_dirs, *target.left_out) if path not in target.unconfigured]
    ids = {path: f.directory_id for path, f in looked.items()}
    now = {path: ids.get(path) or before.get(path) for path in paths}
    if now != before:
        write_log_dirs_seen(state_dir, cluster.memory_id, cluster.node_id, now)


# How long a look at a directory outside the log dirs may take, and a look at all processes.
STAT_SECONDS = 10.0
PROC_SECONDS = 60.0
# How long it holds, between two acts, what processes have open: beside a broker with 16,000 descriptors finding out
# takes 70 to 150 ms, and would take a tenth of a core if done every second.
HOLDS_LEAST_SECONDS, HOLDS_MOST_SECONDS, HOLDS_COSTS = 1.0, 5.0, 50


class LogDirs:
    """The log dirs of one broker, held open for one session; a context manager.

    A log dir that cannot be opened is offline, with its reason, and never stops the others. One that goes offline in a
    session of the daemon is closed at once, so that it can be unmounted.

    Two paths that lead to one directory (a symlink, a bind mount) are one log dir: the second is offline, and is in
    `second_paths` with the first. No broker starts with such `log.dirs` (it cannot lock `.lock` a second time).

    All disk access goes through `calls`, and only their threads use a descriptor of a log dir.
    """

    def __init__(
        self,
        target: Target,
        clock: Clock,
        failures: LogDirFailures | None = None,
        quarantine_dirs: Sequence[str] = (),
        calls: DiskCalls | None = None,
    ) -> None:
        self.target = target
        self.clock = clock
        self.failures = failures if failures is not None else LogDirFailures()
        self.calls = calls if calls is not None else DirectCalls()
        self.by_path: dict[str, OpenLogDir] = {}
        self._quarantine_dirs = quarantine_dirs
        self.quarantine: dict[str, OpenLogDir] = {}
        self.cluster = ClusterFacts(None, None)
        self.second_paths: dict[str, str] = {}
        self._unopened: dict[str, str] = {}
        self._unread: dict[str, str] = {}
        # What was open, or why that could not be read; who had the locks then; until when (monotonic) that holds.
        self._last_scan: tuple[tuple[OpenFiles, str | None], Mapping[str, object], float] | None = None
        self._stop_listening: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        try:
            self.by_path = self._open(self.target.log_dirs)
            usable = [path for path in self._quarantine_dirs if self._is_usable_quarantine(path)]
            self.quarantine = self._open(usable)
            if self.calls.parallel:
                self._stop_listening = self.failures.listen(lambda path, _: self._close(path))
                for path in self.failures.offline():
                    self._close(path)
        except BaseException:
            self._close_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_all()

    def _close_all(self) -> None:
        """Whatever happens to one of them, the others are closed."""
        with ExitStack() as closing:
            for path in (*self.by_path, *self.quarantine):
                closing.callback(self._close, path)
            closing.callback(self._stop_listening)

    def _open(self, paths: Sequence[str]) -> dict[str, OpenLogDir]:
        """Those of `paths` that can be opened; for the others the reason is noted."""
        jobs = {path: OpenLogDir(path, self.failures).__enter__ for path in paths}
        opened: dict[str, OpenLogDir] = {}
        for path, found in self.calls.call_each(jobs, undo=OpenLogDir.close).items():
            # The disk's own failures are already marked; our shortages (descriptors, threads) are not its fault.
            if isinstance(found, OpenLogDir):
                same = next((p for p, d in opened.items() if d.identity == found.identity), None)
                if same is None:
                    opened[path] = found
                else:
                    self.calls.close([path], found.close)
                    self.second_paths[path] = same
                    self._unopened[path] = f"it is the same directory as {same}: no broker starts with both"
            elif isinstance(found, LogAgentError):
                self._unopened[path] = str(found)
        return opened

    def _close(self, path: str) -> None:
        """Close it as soon as nothing uses it; a rename between a log dir and a quarantine directory uses both."""
        opened = self.by_path.get(path) or self.quarantine.get(path)
        if opened is not None:
            users = (path, *self.target.log_dirs) if path in self.quarantine else (path,)
            self.calls.close(users, opened.close)

    def _is_usable_quarantine(self, path: str) -> bool:
        online = tuple(self.online())
        try:
            return self.calls.ask(
                f"inspecting {path}", lambda: is_usable_quarantine(path, online), of=online, limit=STAT_SECONDS
            )
        except KafkaStorageError:
            return False

    def online(self) -> dict[str, OpenLogDir]:
        """The open log dirs that have not failed since they were opened."""
        return {path: d for path, d in self.by_path.items() if d.offline() is None}

    def opened(self) -> dict[str, OpenLogDir]:
        """Log dirs and quarantine directories that are open and have not failed since."""
        quarantine = {path: d for path, d in self.quarantine.items() if d.offline() is None}
        return self.online() | quarantine

    def quarantine_by_log_dir(self) -> dict[str, str]:
        """For each log dir the quarantine directory on its file system, if there is one."""
        return {
            path: directory
            for directory, opened in reversed(self.quarantine.items())
            for path, log_dir in self.online().items()
            if log_dir.identity.device == opened.identity.device
        }

    def read_cluster(self) -> dict[str, MetaRead]:
        """`meta.properties` of every online log dir; `cluster` is what they agree on. Looks at no processes."""
        jobs = {path: partial(read_meta, log_dir) for path, log_dir in self.online().items()}
        looked = self.calls.call_each(jobs)
        metas = {path: meta for path, meta in looked.items() if isinstance(meta, MetaRead)}
        self._unread = {path: str(error) for path, error in looked.items() if isinstance(error, LogAgentError)}
        self.cluster = agree(metas, self.target.server.node_id)
        return metas

    def unlocked(self) -> bool:
        """Whether nobody has the lock of a log dir: by the locks alone, without a look at any process."""
        looked = self.calls.call_each(
            {path: partial(query_lock, log_dir.fd) for path, log_dir in self.online().items()}
        )
        found = [seen for seen in looked.values() if isinstance(seen, LockState)]
        return bool(found) and len(found) == len(looked) and all(seen.readable and not seen.held for seen in found)

    def log_dir_facts(self, open_files: Literal["now", "held", "no"] = "now") -> dict[str, LogDirFacts]:
        """Health, holder, ids and open files of every log dir, looked at now.

        `open_files`: "held", between acts, is content with a look at the processes of a few seconds ago, as long as the
        same process (or nobody) has each lock. "no" is for what acts on nothing and shows no open file; the processes
        are asked all the same where some locks are held and others free: the broker may have given those log dirs up.
        """
        metas = self.read_cluster()
        online = self.online()
        seen, unreadable = self._seen_open(open_files)
        jobs = {
            path: partial(self._one, path, online[path], metas[path], seen, unreadable)
            for path in self.target.log_dirs
            if path in online and path in metas
        }
        looked = self.calls.call_each(jobs)
        found = {path: self._found(path, looked.get(path)) for path in self.target.log_dirs}
        found = without_given_up(found)
        for path, directory in self.quarantine.items():
            children = seen.dir_pids.get(path, {})
            offline = directory.offline()
            found[path] = LogDirFacts(
                path,
                directory.identity,
                Health.ONLINE if offline is None else Health.OFFLINE,
                offline,
                Holder(HolderState.FREE),
                open_by={name: tuple(sorted(pids)) for name, pids in children.items()},
                open_files_unreadable=unreadable,
                quarantine=True,
            )
        return found

    def _found(self, path: str, looked: LogDirFacts | LogAgentError | None) -> LogDirFacts:
        if isinstance(looked, LogDirFacts):
            return looked
        opened = self.by_path.get(path)
        why = self.failures.reason(path) or (opened.offline() if opened is not None else None)
        why = why or self._unopened.get(path) or (str(looked) if looked is not None else self._unread.get(path))
        why = why or "it could not be read"
        return LogDirFacts(path, None, Health.OFFLINE, why, Holder(HolderState.UNREADABLE))

    def _one(
        self, path: str, log_dir: OpenLogDir, meta: MetaRead, open_files: OpenFiles, unreadable: str | None
    ) -> LogDirFacts:
        health, reason = _health(log_dir, meta)
        holder = holder_of(log_dir.fd, path, open_files)
        children = open_files.dir_pids.get(path, {})
        return LogDirFacts(
            path=path,
            identity=log_dir.identity,
            health=health,
            health_reason=reason,
            holder=holder,
            cluster_id=meta.cluster_id,
            node_id=meta.node_id,
            directory_id=meta.directory_id,
            open_by={name: tuple(sorted(pids)) for name, pids in children.items()},
            open_files_unreadable=unreadable or _doubt(holder, open_files, path),
            open_removed_bytes=open_files.removed_bytes.get(path, 0),
            open_removed=open_files.removed_files.get(path, ()),
            unread_processes=len(open_files.unreadable) if unreadable is None else None,
        )

    def _seen_open(self, how: Literal["now", "held", "no"]) -> tuple[OpenFiles, str | None]:
        if how == "now":
            return self._open_files(self.opened())
        # Who has each lock, told apart from a later process with the same PID; None: nobody. What is not known is told
        # apart, too, by never being the same twice.
        locks = self.calls.call_each({path: partial(_lock_of, log_dir) for path, log_dir in self.online().items()})
        last, began = self._last_scan, self.clock.monotonic()
        if how == "no" and len({lock is None for lock in locks.values()}) <= 1:
            return OpenFiles(), "the open files of processes were not read"
        if how == "held" and last is not None and began < last[2] and locks == last[1]:
            return last[0]
        scanned = self._open_files(self.opened())
        ended = self.clock.monotonic()
        holds = min(max(HOLDS_LEAST_SECONDS, HOLDS_COSTS * (ended - began)), HOLDS_MOST_SECONDS)
        self._last_scan = scanned, locks, ended + holds
        return scanned

    def _open_files(self, log_dirs: Mapping[str, OpenLogDir]) -> tuple[OpenFiles, str | None]:
        """What processes have open below `log_dirs`; anything on a disk that may hang is not touched."""
        try:
            watched = self.calls.call_each({path: partial(Watched, d) for path, d in log_dirs.items()})
            good = [w for w in watched.values() if isinstance(w, Watched)]
            avoid = {self.failures.real_path(path) for path in self.failures.offline()}
            scan = partial(scan_open_files, good, avoid=avoid)
            what = "reading the open files of all processes"
            return self.calls.ask(what, scan, of=log_dirs, limit=PROC_SECONDS), None
        except (OSError, LogAgentError) as e:
            return OpenFiles(), f"the open files of processes cannot be read: {e}"

    def facts(self, log_dirs: Mapping[str, LogDirFacts] | None = None) -> Facts:
        """The current facts, without what only an inventory, the journal or assignments can add."""
        seen = log_dirs if log_dirs is not None else self.log_dir_facts()
        return Facts(
            now_ms=self.clock.now_ms(),
            log_dirs=seen,
            cluster_problems=self.cluster.problems,
            delete_topic_enable=self.target.server.delete_topic_enable,
            kafka_version=self.target.kafka_version,
            left_out=self.target.left_out,
        )


def without_given_up(log_dirs: Mapping[str, LogDirFacts]) -> dict[str, LogDirFacts]:
    """Count a log dir that the running broker seems to have given up as offline; its broker is not stopped."""
    if not any(f.holder.state.is_broker for f in log_dirs.values()):
        return dict(log_dirs)
    from logagent.disk.health import given_up, lock_facts

    lost = given_up({path: lock_facts(f.holder) for path, f in log_dirs.items()})
    return {
        path: replace(f, health=Health.OFFLINE, health_reason=lost[path].reason)
        if path in lost and f.health is not Health.OFFLINE
        else f
        for path, f in log_dirs.items()
    }


def is_usable_quarantine(path: str, log_dirs: Sequence[str]) -> bool:
    """Whether it is an existing directory of ours that is neither in a log dir nor contains one, and is not a log dir
    of any broker (whether it is on the same file system is checked later)."""
    try:
        real, found = os.path.realpath(path), os.stat(path)
    except OSError:
        return False
    here = real.rstrip("/") + "/"
    others = [os.path.realpath(d).rstrip("/") + "/" for d in log_dirs]
    apart = not any(here.startswith(d) or d.startswith(here) for d in others)
    formatted = os.path.lexists(os.path.join(real, META_PROPERTIES)) or os.path.lexists(os.path.join(real, LOCK_FILE))
    return apart and not formatted and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _doubt(holder: Holder, open_files: OpenFiles, path: str) -> str | None:
    holds = holder.state.is_broker
    if holds and holder.pid is not None and not open_files.could_read(holder.pid):
        return f"the open files of process {holder.pid}, which holds the log dir, cannot be read"
    doubt = open_files.doubt(path)
    return doubt[1] if doubt is not None else None


def _lock_of(log_dir: OpenLogDir) -> object:
    with log_dir.acting("read", LOCK_FILE):
        seen = query_lock(log_dir.fd)
    if not seen.readable:
        return object()
    if not (seen.held or seen.shared):
        return None
    try:
        return (seen.held, seen.pid, process_start_ticks(seen.pid) if seen.pid is not None else None)
    except OSError:
        return object()  # it has just ended


def _health(log_dir: OpenLogDir, meta: MetaRead) -> tuple[Health, str | None]:
    """State of an open log dir as far as one look shows; only the daemon and `check` make probes that write.

    Raises KafkaStorageError if the disk fails.
    """
    with log_dir.acting("statvfs"):
        room = os.statvfs(log_dir.fd)
    if room.f_flag & os.ST_RDONLY:
        return Health.READ_ONLY, "its file system is mounted read-only"
    if meta.missing:
        return Health.UNFORMATTED, f"there is no {META_PROPERTIES}"
    if room.f_bavail == 0:
        return Health.FULL, "its file system has no free block"
    return Health.ONLINE, None


def read_meta(log_dir: OpenLogDir) -> MetaRead:
    """`meta.properties` of an open log dir. Raises KafkaStorageError if the disk fails."""
    with log_dir.acting("read", META_PROPERTIES):
        return read_meta_file(log_dir.fd)


# How long all sources of assignments together may take when there is no user to press Ctrl-C.
READ_SECONDS = 120.0
# Cluster data older than this is read again before the next act (using at most a tenth of the time).
VALID_SECONDS = 2.0
VALID_READINGS = 10


@dataclass(slots=True)
class OpenHost:
    """`ask_leaders`: whether leaders elsewhere are asked about what is about to be removed; `network_seconds`: how long
    one reading of the cluster may take in all, None = as long as its requests do; `patience`: for the answers of
    brokers after that; `brokers`: who can be asked, as of the last evidence. `duplicates`: the other copy of each
    directory, by (log dir, name), that is about to be removed because another log dir here contains all of it;
    `marked`: what a plan marks for deletion. `reads`: reads the copies here that a removal rests on, and knows what was
    read of them (`segments_read`). `acting`: it holds the executor lock and may write the journal.
    """

    target: Target
    settings: Settings
    clock: Clock
    log_dirs: LogDirs
    journal: Journal
    acting: bool
    actor: str
    journal_problem: Reason | None = None
    state_dir: str | None = None
    known: dict[str, LogDirInventory] = field(default_factory=dict)
    segments_read: SegmentReadings | None = None
    ask_leaders: bool = True
    network_seconds: float | None = None
    patience: Patience = field(default_factory=Patience)

    assignments: Assignments = field(default_factory=Assignments)
    inventory: Inventory = field(default_factory=Inventory)
    recalled: Recalled = field(default_factory=Recalled)

    clock_watch: ClockWatch = field(init=False)
    # The sources of the assignments, and until when (on the monotonic clock) they are fresh enough to act on.
    _read_from: tuple[str, ...] | None = None
    _read_until: float | None = None
    brokers: BrokersToAsk | None = None
    reads: CopyReads | None = None
    duplicates: dict[DirKey, PartitionDir] = field(default_factory=dict)
    marked: set[DirKey] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.clock_watch = ClockWatch(self.journal, self.clock, self.acting, self._changed_ms)

    @property
    def calls(self) -> DiskCalls:
        return self.log_dirs.calls

    @property
    def dirs(self) -> Sequence[PartitionDir]:
        return self.inventory.dirs

    def of_kind(self, *kinds: Kind) -> list[PartitionDir]:
        return self.inventory.of_kind(*kinds)

    def close_questions(self) -> None:
        """Close the connections to brokers that were found to be asked."""
        if self.brokers is not None:
            self.brokers.close()
            self.brokers = None

    # 1. Assignments

    def read_assignments(self, sources: tuple[str, ...] | None = None) -> None:
        """Read the sources of assignments. Before the inventory: a directory younger than they are proves nothing."""
        began = self.clock.monotonic()
        self.assignments = self._load(sources)
        ended = self.clock.monotonic()
        self._read_from, self._read_until = sources, ended + max(VALID_SECONDS, VALID_READINGS * (ended - began))

    def read_assignments_again(self) -> None:
        """Before an act, if the last reading is too old: a partition may have been assigned to this node again since
        the plan was made. Raises ConfigError for a client's file that was valid then."""
        if self._read_until is not None and self.clock.monotonic() > self._read_until:
            self.assignments.close()
            self.read_assignments(self._read_from)

    def image_now(self) -> AssignmentImage | None:
        """The image of the source that decided when the inventory began, read once more; None if there is none now. It
        decides nothing."""
        before = self.inventory.image_before
        if before is None or before.source is Source.FILE:
            return None
        now = self._load((before.source.value,))
        now.close()
        return now.first

    def _load(self, sources: tuple[str, ...] | None) -> Assignments:
        settings = self.settings
        if sources is not None:
            settings = replace(settings, assignments=replace(settings.assignments, sources=sources))
        self.log_dirs.read_cluster()
        cluster, online = self.log_dirs.cluster, tuple(self.log_dirs.online())
        # A metadata log on a log dir that hangs would be asked in vain.
        place = self.target.server.metadata_log_dir
        hangs = self.calls.parallel and place in self.target.log_dirs and place not in online
        chosen = tuple(s for s in settings.assignments.sources if not (hangs and s == "kraft-log"))
        query = AssignmentQuery(
            target=replace(self.target, log_dirs=online),
            settings=replace(settings, assignments=replace(settings.assignments, sources=chosen)),
            cluster_id=cluster.cluster_id,
            node_id=cluster.node_id,
            now_ms=self.clock.now_ms(),
            stopped=self.log_dirs.unlocked(),
            may_read_log=not hangs,
            lineage=read_lineage(self.state_dir, cluster.cluster_id, cluster.node_id),
            directory_ids=cluster.directory_ids,
            network_seconds=self.network_seconds,
        )
        load = partial(load_assignments, query)
        try:
            return self.calls.ask(
                "reading the assignments", load, of=online, limit=READ_SECONDS, undo=Assignments.close
            )
        except KafkaStorageError as e:
            return Assignments(problems=[str(e)])

    def read_delete_delay(self) -> None:
        """Read only what the queue needs from the sources: a dynamic `log.segment.delete.delay.ms`, unless we override
        it."""
        if self.settings.delete.file_delete_delay_ms is None:
            self.read_assignments(("kraft-log",))

    def file_delete_delay_ms(self) -> int:
        """Our own setting if any, else the broker's dynamic one, else the one in its configuration."""
        configured = self.settings.delete.file_delete_delay_ms
        return configured if configured is not None else self.broker_delete_delay_ms()

    def broker_delete_delay_ms(self) -> int:
        dynamic = self.assignments.delete_delay_ms
        return dynamic if dynamic is not None else self.target.server.file_delete_delay_ms

    # 2. Inventory

    def take_inventory(
        self, on_progress: Callable[[int], None] | None = None, *, only: Callable[[str], bool] | None = None
    ) -> None:
        """Scan every online log dir. One that fails during the scan is offline from then on; the others go on.

        `only`: which names to look at, if the others do not matter; no later inventory continues from such a one.
        """
        whole, image, began_ms = only is None, self.assignments.first, self.clock.now_ms()
        self.inventory = Inventory(whole=whole, began_ms=began_ms, image_before=image)
        by_log_dir = scan_log_dirs(self.log_dirs.opened(), self.known if whole else {}, self.calls, on_progress, only)
        dirs: list[PartitionDir] = []
        for path, scanned in by_log_dir.items():
            if path in self.log_dirs.quarantine:
                # Only what this journal moved there: another agent may keep its own in it.
                renames = self.journal.renames()
                entries = ((d, renames.get((d.name, d.inode))) for d in scanned.dirs)
                dirs += [d for d, e in entries if e is not None and e.intent.new_dir]
            else:
                dirs += scanned.dirs
        self.inventory = replace(self.inventory, dirs=dirs, by_log_dir=by_log_dir)
        note_what_came_back(self.journal, dirs)

    def _changed_ms(self) -> list[int]:
        """When every directory of the inventory and every file of the broker beside them was last changed (ctime)."""
        jobs = {path: partial(changed_ms, log_dir) for path, log_dir in self.log_dirs.online().items()}
        files = [
            at for each in self.calls.call_each(jobs).values() if not isinstance(each, LogAgentError) for at in each
        ]
        return [*files, *(d.ctime_ns // 1_000_000 for d in self.dirs)]

    # 3. What the journal says of it

    def recall(self) -> Recalled:
        """Read the journal anew, for the whole inventory. Raises JournalError."""
        self.recalled = recall(self.journal, self.clock_watch, self.dirs)
        return self.recalled

    def queue(self) -> list[QueueEntry]:
        """What is marked for deletion, in the order in which it falls due, by the journal as it is now."""
        return queue_of(
            self.dirs,
            self.recall(),
            delay_ms=self.file_delete_delay_ms(),
            leftover_grace_ms=self.settings.cleanup.leftover_grace,
            broker_delay_ms=self.broker_delete_delay_ms(),
        )
