"""What one command or cycle does with one host: everything it rests on is a value, read in one order.

1. The assignments (`read_assignments`): a directory that is younger than they are proves nothing.
2. The inventory (`take_inventory`).
3. What the journal says of it, read once (`Recalled`), and
4. the evidence (`Facts`): who holds the log dirs, the version, one verdict per directory, what is not known. Both are
   gathered by `facts`, and once more before each batch of acts by `again`; only `remember` writes any of it down.
5. A `Planner`, which is pure, chooses from these.

`open_session` opens it (broker, state dir, journal, log dirs) in a safe order, and closes it as a whole; it forgets
what the journal need not remember any more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from logagent.base.clock import Clock
from logagent.base.config.settings import Settings
from logagent.base.dir_names import RANDOM_BYTES, rename_uuid
from logagent.base.errors import JournalError, LogAgentError
from logagent.base.linux.state_dir import LogDirSeen, default_state_dir, prepare_state_dir, stat_directory
from logagent.base.records import Kind, PartitionDir, Reason
from logagent.base.units import DAY_MS
from logagent.cleanup.plan.queue import forgettable
from logagent.cleanup.session.open_host import LogDirs, OpenHost
from logagent.cleanup.state.executor_lock import ExecutorLock, hold_log_dirs
from logagent.cleanup.state.journal import Journal
from logagent.cleanup.state.reserve import keep_reserve
from logagent.disk.calls import DirectCalls, DiskCalls, Stop, never
from logagent.disk.log_dir import LogDirFailures
from logagent.disk.scan import LogDirInventory
from logagent.kafka.identity import JournalHost, MetaRead, foreign_journal
from logagent.kafka.processes.target import Target
from logagent.kafka.retention.settings import Layers
from logagent.verdict.clock_doubt import reaching_back
from logagent.verdict.facts import Facts

if TYPE_CHECKING:
    from logagent.cleanup.execute.log_manager import LogManager
    from logagent.cleanup.plan.plan import Plan, Proposal, Refusal, Waiting
    from logagent.cleanup.plan.planner import Planner
    from logagent.cleanup.state.journal import CheckpointEntry
    from logagent.kafka.admin.responses import BrokerSays
    from logagent.kafka.files.log_extent import SegmentReadings
    from logagent.verdict.evidence.brokers_to_ask import HeldUp


class Session(OpenHost):
    """An open host with its evidence and its plans. Their modules are loaded once they are needed: `queue` is not."""

    __slots__ = ()

    # 4. Evidence

    def facts(
        self, dirs: Sequence[PartitionDir] | None = None, *, to_plan: bool = True, ask_broker: bool = True
    ) -> Facts:
        """The evidence, gathered now (`gather.gather`), with the journal read anew."""
        from logagent.cleanup.session.gather import gather

        return gather(self, dirs, to_plan=to_plan, ask_broker=ask_broker)

    def again(self, dirs: Sequence[PartitionDir], stop: Stop = never) -> Facts:
        """The evidence on `dirs` right before they are acted on (`gather.again`)."""
        from logagent.cleanup.session.gather import again

        return again(self, dirs, stop)

    def layers_in_force(
        self, facts: Facts, held_up: HeldUp | None = None, *, ask: bool
    ) -> tuple[Layers, str | None, BrokerSays]:
        """What is set, as it is in force now (`gather.layers_in_force`)."""
        from logagent.cleanup.session.gather import layers_in_force

        return layers_in_force(self, facts, held_up, ask=ask)

    def remember(self, facts: Facts) -> None:
        """Write down, for later sessions, what `facts` show (`gather.remember`)."""
        from logagent.cleanup.session.gather import remember

        remember(self, facts)

    # 5. Plans

    def planner(self, facts: Facts) -> Planner:
        from logagent.cleanup.plan.planner import Planner

        cleanup = self.settings.cleanup
        return Planner(
            dirs=self.dirs,
            recalled=self.recalled,
            evidence=facts,
            delay_ms=self.file_delete_delay_ms(),
            broker_delay_ms=self.broker_delete_delay_ms(),
            leftover_grace_ms=cleanup.leftover_grace,
            retention_ms=cleanup.stray_retention,
            sightings=cleanup.sightings,
            min_age_ms=cleanup.min_age,
            max_dirs=cleanup.max_dirs,
            max_fraction=cleanup.max_fraction,
            new_uuid=new_uuid,
            spared=self.spared,
        )

    def plan(
        self,
        proposals: Sequence[Proposal],
        waiting: Sequence[Waiting] = (),
        refusals: Sequence[Refusal] = (),
        *,
        facts: Facts,
        approve: str | None = None,
    ) -> Plan:
        """The planner's plan of `proposals`, with what has to be asked and tried for exactly these: whether each that
        goes is covered, and whether the kernel would permit it."""
        from logagent.cleanup.execute.changeable import look_whether_changeable
        from logagent.cleanup.session.gather import ask_about

        planner = self.planner(facts)
        proposals = [p for p in proposals if p.dir.log_dir not in planner.spared]
        planner = replace(planner, evidence=ask_about(self, proposals, facts))
        plan = planner.plan(proposals, waiting, refusals, approve=approve)
        # Only what nothing else keeps from being done is looked at: a removal file by file.
        unchangeable = look_whether_changeable(self.log_dirs.opened(), self.calls, plan.actions)
        if not unchangeable:
            return plan
        planner = replace(planner, evidence=replace(planner.evidence, unchangeable=unchangeable))
        return planner.plan(proposals, waiting, refusals, approve=approve)

    @property
    def spared(self) -> frozenset[str]:
        """What `--log-dir` leaves out: log dirs, and quarantine directories on file systems that only these are on."""
        spared = frozenset(self.target.spared)
        if not spared:
            return spared
        quarantines = self.log_dirs.quarantine_by_log_dir()
        used = {quarantine for path, quarantine in quarantines.items() if path not in spared}
        return spared | (self.log_dirs.quarantine.keys() - used)

    def checkpoint_drops(self, plan: Plan) -> dict[str, tuple[CheckpointEntry, ...]]:
        """By action id, the checkpoint entries that the plan's renames will remove, as far as they can be read now."""
        from logagent.cleanup.execute.renames import entries_to_drop

        jobs = {
            path: partial(entries_to_drop, log_dir, [p for p in plan.actions if p.dir.log_dir == path])
            for path, log_dir in self.log_dirs.online().items()
        }
        read = self.calls.call_each(jobs).values()
        return {id_: e for drops in read if not isinstance(drops, LogAgentError) for id_, e in drops.items()}

    def log_manager(
        self, *, stop: Callable[[], bool] = never, on_progress: Callable[[int, int], None] | None = None
    ) -> LogManager:
        from logagent.cleanup.execute.log_manager import LogManager
        from logagent.disk.unlink import ByteBudget, WorkControl

        delete = self.settings.delete
        budget = ByteBudget(delete.bytes_per_second) if delete.bytes_per_second else None
        return LogManager(
            log_dirs=self.log_dirs.by_path | self.log_dirs.quarantine,
            journal=self.journal,
            clock=self.clock,
            read_facts=partial(self.again, stop=stop),
            actor=self.actor,
            control=WorkControl(stop=stop, budget=budget, workers=delete.workers, on_progress=on_progress),
            calls=self.calls,
            # The next cycle is due by then: what is due in one log dir should not wait any longer for a slow one.
            longest_seconds=self.settings.cleanup.interval / 1000 if len(self.target.log_dirs) > 1 else None,
        )


def new_uuid() -> str:
    """For a name that we give now: 32 hex digits as in Kafka's names, recognisable as ours."""
    return rename_uuid(time.time_ns() // 1_000_000, os.urandom(RANDOM_BYTES))


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
            if (foreign := of_another_host(journal.path, journal.host(), log_dirs)) is not None:
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
    if (foreign := _foreign(journal.path, known, here)) is not None:
        raise foreign
    now = here if known is None else here.with_dirs_of(known)
    if now != known and not doubt:
        journal.note_host(now)
    # What a crash left open belongs to a disk that was known then.
    found = _directory_ids(metas)
    strangers = bool(found) and known is not None and bool(known.directory_ids) and not found & known.directory_ids
    return not strangers


def of_another_host(path: str, known: JournalHost | None, log_dirs: LogDirs) -> JournalError | None:
    """What `check_host` would raise of the journal `path`, which says that it is of the host `known`."""
    metas, cluster = log_dirs.read_cluster(), log_dirs.cluster
    if cluster.memory_id is None or cluster.node_id is None:
        return None
    return _foreign(path, known, _host_here(metas, log_dirs)[0])


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


def _foreign(path: str, known: JournalHost | None, here: JournalHost) -> JournalError | None:
    why = foreign_journal(known, here)
    if why is None:
        return None
    return JournalError(
        f"the journal {path} is of another host: {why}",
        hint=(
            "name this host's state dir with --state-dir; if the broker was set up from scratch, move the journal away"
        ),
    )
