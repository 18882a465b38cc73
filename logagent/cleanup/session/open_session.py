"""Opens a session (broker, state dir, journal, log dirs) in a safe order, and closes it as a whole; forgets what the
journal need not remember any more."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from logagent.base.clock import Clock
from logagent.base.config.settings import Settings
from logagent.base.errors import JournalError
from logagent.base.linux.state_dir import LogDirSeen, default_state_dir, prepare_state_dir, stat_directory
from logagent.base.reason import Reason
from logagent.base.records import Kind
from logagent.base.times import DAY_MS
from logagent.cleanup.plan.queue import forgettable
from logagent.cleanup.session.opened_log_dirs import LogDirs
from logagent.cleanup.session.session import Session
from logagent.cleanup.state.executor_lock import ExecutorLock, hold_log_dirs
from logagent.cleanup.state.journal import Journal
from logagent.cleanup.state.reserve import keep_reserve
from logagent.disk.calls import DirectCalls, DiskCalls
from logagent.disk.log_dir import LogDirFailures
from logagent.disk.scan import LogDirInventory
from logagent.kafka.identity import JournalHost, MetaRead, foreign_journal
from logagent.kafka.processes.target import Target
from logagent.verdict.clock_doubt import reaching_back

if TYPE_CHECKING:
    from logagent.kafka.files.log_extent import SegmentReadings


def forget_failures_of_removed(session: Session) -> None:
    """After a full inventory: forget failed removals of directories that somebody else has removed.

    Failures in log dirs that could not be scanned stay. Raises JournalError.
    """
    gone = session.journal.failures().keys() - {d.key for d in session.dirs}
    scanned = _scanned(session)
    session.journal.clear_failures([key for key in gone if key.log_dir in scanned])


def forget_old_actions(session: Session) -> int:
    """After a full inventory: forget old settled actions that nothing needs; returns how many. Raises JournalError."""
    there = session.journal.inodes_of(session.of_kind(Kind.STRAY, Kind.DELETE))
    # A record of the last day counts as such even if it was written by the clock before a jump.
    a_day_ago = reaching_back(session.clock.now_ms() - DAY_MS, session.clock_watch.jumps())
    ids = forgettable(session.journal.settled(), there, _scanned(session), a_day_ago + DAY_MS)
    session.journal.forget(ids)
    return len(ids)


def _scanned(session: Session) -> frozenset[str]:
    """The directories that this inventory covers completely.

    An empty mount point does not count: without `meta.properties` it is unknown whose it is. A quarantine directory,
    which has none, counts only while no log dir is missing.
    """
    opened, cluster = session.log_dirs.opened().keys() & session.inventory.by_log_dir.keys(), session.log_dirs.cluster
    strange = cluster.problems.keys() - cluster.by_node
    whole = not strange and all(path in opened for path in session.target.log_dirs)
    return frozenset(path for path in opened if (whole if path in session.log_dirs.quarantine else path not in strange))


# How long a command waits for another one (or the daemon's cycle) to finish acting.
EXECUTOR_WAIT_SECONDS = 10.0


@dataclass(slots=True)
class Shared:
    """What a session shares with whatever outlives it; a command shares nothing, the daemon all of it.

    `failures`: the offline log dirs. `calls`: gives up calls that hang (None: nothing does). `known`: the inventories
    by log dir from which the next ones continue (they are replaced in place; a log dir without one is scanned in full).
    `segments_read`: of the copies that removals rest on. Without `settle` what a crash left open stays open: settling
    can rewrite a checkpoint, which a run that only reports must not do. `wait_seconds`: for another logagent to finish
    acting. `refused`: of a dry run, why a command that acts would get no journal.
    """

    failures: LogDirFailures = field(default_factory=LogDirFailures)
    calls: DiskCalls | None = None
    known: dict[str, LogDirInventory] = field(default_factory=dict)
    segments_read: SegmentReadings | None = None
    settle: bool = True
    wait_seconds: float = EXECUTOR_WAIT_SECONDS
    refused: JournalError | None = None


_REPAIR = "nothing is done without the journal: repair the state dir first"


@contextmanager
def open_session(
    target: Target,
    settings: Settings,
    clock: Clock,
    *,
    state_dir: str | None,
    act: bool,
    actor: str,
    shared: Shared | None = None,
) -> Iterator[Session]:
    """Open everything in a safe order.

    To act: first the state dir and its owner's identity, then the executor lock, then the journal; what a crash left
    open is settled before anything is looked at. To look: the journal is read if it exists; if it cannot be read, or is
    another host's, that is a fact, not an error, and nothing of it is believed.
    """
    shared = shared if shared is not None else Shared()
    directory = state_dir if state_dir is not None else default_state_dir(os.environ)
    with ExitStack() as stack:
        calls, problem = shared.calls, shared.refused
        if act:
            journal, calls = _journal_to_act(stack, directory, target, clock, actor, shared)
        else:
            try:
                journal = stack.enter_context(Journal.open_read_only(directory))
            except JournalError as e:
                problem = problem or e
                journal = stack.enter_context(Journal.empty())
        quarantine = settings.cleanup.quarantine_dirs
        log_dirs = stack.enter_context(LogDirs(target, clock, shared.failures, quarantine, calls))
        if act:
            # Keep other logagents from acting on the log dirs, and settle what a crash left open there.
            opened, wait = log_dirs.opened().values(), shared.wait_seconds
            monotonic, sleep = clock.monotonic, clock.sleep
            hold_log_dirs(opened, wait_seconds=wait, monotonic=monotonic, sleep=sleep, calls=log_dirs.calls)
            if check_host(journal, log_dirs) and shared.settle:
                from logagent.cleanup.execute.recovery import recover

                recover(journal, log_dirs.opened(), clock.now_ms(), log_dirs.calls, quarantine=log_dirs.quarantine)
        else:
            # What `check_host` would raise; but nothing is written.
            metas, cluster = log_dirs.read_cluster(), log_dirs.cluster
            known = cluster.memory_id is not None and cluster.node_id is not None
            foreign = _foreign(journal, journal.host(), _host_here(metas, log_dirs)[0]) if known else None
            if foreign is not None:
                problem = problem or foreign
                journal = stack.enter_context(Journal.empty())
        no_journal = Reason(str(problem), problem.hint or _REPAIR) if problem is not None else None
        session = Session(target, settings, clock, log_dirs, journal, act, actor, no_journal, state_dir=directory)
        session.known, session.segments_read = shared.known, shared.segments_read
        stack.callback(lambda: session.assignments.close())
        stack.callback(session.close_questions)
        yield session


def _journal_to_act(
    stack: ExitStack, directory: str, target: Target, clock: Clock, actor: str, shared: Shared
) -> tuple[Journal, DiskCalls]:
    """Under the executor lock. The calls of a command say which log dir it is working on, in case it hangs there:
    processes that are refused the lock learn it."""
    calls = shared.calls if shared.calls is not None else DirectCalls()
    # Those that are offline are not asked.
    online = [path for path in target.log_dirs if shared.failures.reason(path) is None]
    looked = calls.call_each({path: partial(stat_directory, path) for path in online})
    seen = ((path, looked.get(path)) for path in target.log_dirs)
    prepare_state_dir(directory, {path: found if isinstance(found, LogDirSeen) else None for path, found in seen})
    wait = shared.wait_seconds
    lock = stack.enter_context(
        ExecutorLock(directory, actor, wait_seconds=wait, monotonic=clock.monotonic, sleep=clock.sleep)
    )
    # Before the journal takes space of its own; and once it is closed: what was removed may have made room.
    keep_reserve(directory)
    stack.callback(keep_reserve, directory)
    journal = stack.enter_context(Journal.open(directory))
    return journal, shared.calls if shared.calls is not None else DirectCalls(lock.note)


def check_host(journal: Journal, log_dirs: LogDirs) -> bool:
    """Raise JournalError if the journal is another host's: its intents would be settled on these disks. A journal that
    does not name its host yet becomes this host's. False if it names this host but the disks do not confirm it: then
    nothing is settled."""
    metas = log_dirs.read_cluster()
    cluster, known = log_dirs.cluster, journal.host()
    if cluster.memory_id is None or cluster.node_id is None:
        return known is None
    here, doubt = _host_here(metas, log_dirs)
    if (foreign := _foreign(journal, known, here)) is not None:
        raise foreign
    now = here if known is None else here.with_dirs_of(known)
    if now != known and not doubt:
        journal.note_host(now)
    # What a crash left open belongs to a disk that was known then.
    found = _directory_ids(metas)
    strangers = bool(found) and known is not None and bool(known.directory_ids) and not found & known.directory_ids
    return not strangers


def _directory_ids(metas: Mapping[str, MetaRead]) -> frozenset[str]:
    return frozenset(meta.directory_id for meta in metas.values() if meta.directory_id is not None)


def _host_here(metas: Mapping[str, MetaRead], log_dirs: LogDirs) -> tuple[JournalHost, bool]:
    """Which host this is by its log dirs, and whether some of them do not say."""
    cluster = log_dirs.cluster
    assert cluster.memory_id is not None and cluster.node_id is not None
    # If something is wrong with the log dirs, the one whose directory id is known may be the missing one: with one dead
    # disk and a new one this is still the same host.
    doubt = bool(cluster.problems.keys() - cluster.by_node) or len(metas) < len(log_dirs.target.log_dirs)
    found = frozenset() if doubt else _directory_ids(metas)
    return JournalHost(cluster.memory_id, cluster.node_id, found), doubt


def _foreign(journal: Journal, known: JournalHost | None, here: JournalHost) -> JournalError | None:
    why = foreign_journal(known, here)
    if why is None:
        return None
    return JournalError(
        f"the journal {journal.path} is of another host: {why}",
        hint=(
            "name this host's state dir with --state-dir; if the broker was set up from scratch, move the journal away"
        ),
    )
