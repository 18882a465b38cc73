"""Opens a session: broker, state dir, journal, log dirs, in the order that keeps it safe, and closes them together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from logagent.agent.clock import Clock
from logagent.agent.execute.recovery import recover
from logagent.agent.session.log_dirs import LogDirs
from logagent.agent.session.session import Session
from logagent.agent.session.target import Target
from logagent.errors import JournalError
from logagent.host.inventory.scan import LogDirInventory
from logagent.host.log_dir.calls import DirectCalls, DiskCalls, NotedCalls
from logagent.host.log_dir.log_dir import LogDirFailures
from logagent.host.state.journal import Journal
from logagent.host.state.state_dir import ExecutorLock, default_state_dir, hold_log_dirs, prepare_state_dir
from logagent.model.health.journal_host import JournalHost, foreign_journal
from logagent.settings import Settings

# How long a command waits for another one (or the daemon's cycle) to finish acting.
EXECUTOR_WAIT_SECONDS = 10.0


@contextmanager
def open_session(
    target: Target,
    settings: Settings,
    clock: Clock,
    *,
    state_dir: str | None,
    act: bool,
    actor: str,
    environ: Mapping[str, str] = os.environ,
    wait_seconds: float = EXECUTOR_WAIT_SECONDS,
    failures: LogDirFailures | None = None,
    calls: DiskCalls | None = None,
    known: dict[str, LogDirInventory] | None = None,
    settle: bool = True,
) -> Iterator[Session]:
    """Open everything, in the order that keeps it safe.

    To act: first the state dir and its owner's identity, then the executor lock, then the journal, and what a crash
    left open is settled before anything is looked at. To look: the journal is read if it is there, and where it
    cannot be read that is a fact of its own, not an error.

    What outlives a session, for the daemon: `failures`, the log dirs that are offline; `calls`, which gives up what
    hangs; `known`, the inventories by log dir, that the next ones follow on (they are replaced in place; without one
    for a log dir it is scanned in full). Without `settle` what a crash left open stays so: settling it can rewrite a
    checkpoint, and that is not for whoever only reports.
    """
    failures = failures if failures is not None else LogDirFailures()
    direct = calls is None
    calls = calls if calls is not None else DirectCalls()
    directory = state_dir if state_dir is not None else default_state_dir(environ)
    with ExitStack() as stack:
        problem: str | None = None
        if act:
            there = log_dirs_there(target.log_dirs, failures, calls)
            prepare_state_dir(directory, there[0] if there else None, there)
            lock = stack.enter_context(
                ExecutorLock(directory, actor, wait_seconds=wait_seconds, monotonic=clock.monotonic, sleep=clock.sleep)
            )
            if direct:
                # Whoever is refused meanwhile learns which log dir this command is at, should it hang there.
                calls = NotedCalls(lock.note)
            journal = stack.enter_context(Journal.open(directory))
        else:
            try:
                journal = stack.enter_context(Journal.open_read_only(directory))
            except JournalError as e:
                problem = str(e)
                journal = stack.enter_context(Journal.empty())
        log_dirs = stack.enter_context(LogDirs(target, clock, failures, settings.cleanup.quarantine_dirs, calls))
        if act:
            hold_log_dirs(
                log_dirs.opened().values(),
                wait_seconds=wait_seconds,
                monotonic=clock.monotonic,
                sleep=clock.sleep,
                calls=calls,
            )
            ours = check_host(journal, log_dirs)
            if settle and ours:
                recover(journal, log_dirs.opened(), clock.now_ms(), calls, quarantine=log_dirs.quarantine)
        session = Session(target, settings, clock, log_dirs, journal, act, actor, problem)
        if known is not None:
            session.known = known
        stack.callback(lambda: session.assignments.close())
        yield session


def log_dirs_there(log_dirs: Sequence[str], failures: LogDirFailures, calls: DiskCalls) -> list[str]:
    """The log dirs that are directories; of one that is offline or hangs nobody asks that."""
    jobs = {path: partial(os.path.isdir, path) for path in log_dirs if failures.reason(path) is None}
    return [path for path, found in calls.looks(jobs).items() if found is True]


def check_host(journal: Journal, log_dirs: LogDirs) -> bool:
    """Raise JournalError for the journal of another host: its intents would be settled on these disks. One that does
    not say yet whose it is becomes this host's. False where it says so, but these disks do not: nothing is settled."""
    metas = log_dirs.read_cluster()
    cluster, known = log_dirs.cluster, journal.host()
    if cluster.cluster_id is None or cluster.node_id is None:
        return known is None
    found = frozenset(meta.directory_id for meta in metas.values() if meta.directory_id is not None)
    # Where something is wrong with the log dirs, the one whose directory id is known may be the one that is missing.
    here = JournalHost(cluster.cluster_id, cluster.node_id, frozenset() if cluster.problems else found)
    why = foreign_journal(known, here)
    if why is not None:
        raise JournalError(
            f"the journal {journal.path} is of another host: {why}",
            hint="name this host's state dir with --state-dir; if the broker was set up anew, move the journal away",
        )
    now = here if known is None else here.with_dirs_of(known)
    if now != known and not cluster.problems:
        journal.note_host(now)
    return True
