"""One command on one host: broker, state dir, journal, log dirs, inventory and facts, opened and closed together."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from logagent.agent.clock import Clock
from logagent.agent.guard import GUARDS
from logagent.agent.log_manager import LogManager
from logagent.agent.recovery import recover
from logagent.agent.sight import HostSight
from logagent.agent.target import Target
from logagent.errors import JournalError, KafkaStorageError
from logagent.host.budget import ByteBudget
from logagent.host.journal import Journal
from logagent.host.scan import LogDirInventory, scan_log_dir
from logagent.host.state_dir import ExecutorLock, default_state_dir, prepare_state_dir
from logagent.model.facts import Facts, RecentAction
from logagent.model.plan import BlastRadius, Plan, Proposal, Refusal, Waiting, assemble
from logagent.model.queue import Attempts, Mark, QueueEntry, build_queue
from logagent.model.records import ActionKind, Kind, Outcome, PartitionDir
from logagent.settings import DAY_MS, Settings

# How long a command waits for another one (or the daemon's cycle) to finish acting.
EXECUTOR_WAIT_SECONDS = 10.0
_TAKES_AWAY = (ActionKind.QUARANTINE, ActionKind.MARK, ActionKind.REMOVE)


@dataclass(slots=True)
class Session:
    """Everything that a command sees. `acting`: it holds the executor lock and may write the journal."""

    target: Target
    settings: Settings
    clock: Clock
    sight: HostSight
    journal: Journal
    acting: bool
    actor: str
    journal_problem: str | None = None
    inventories: dict[str, LogDirInventory] = field(default_factory=dict)
    dirs: list[PartitionDir] = field(default_factory=list)

    def take_inventory(self, on_progress: Callable[[int], None] | None = None) -> None:
        """Scan every online log dir. One that fails meanwhile is offline from then on; the others go on."""
        self.dirs = []
        done = 0
        for path, log_dir in self.sight.online().items():
            base = done

            def tell(count: int, base: int = base) -> None:
                if on_progress is not None:
                    on_progress(base + count)

            try:
                inventory = scan_log_dir(log_dir, self.inventories.get(path), on_progress=tell)
            except KafkaStorageError:
                self.inventories.pop(path, None)
                continue
            self.inventories[path] = inventory
            self.dirs += inventory.dirs
            done += len(inventory.dirs)

    def of_kind(self, *kinds: Kind) -> list[PartitionDir]:
        return [d for d in self.dirs if d.kind in kinds]

    # What the journal adds

    def marks(self) -> dict[tuple[str, str], Mark]:
        """Per (log dir, present name) what we know of its rename, where it is still the same directory."""
        found: dict[tuple[str, str], Mark] = {}
        renames = self.journal.renames()
        for d in self.dirs:
            entry = renames.get((d.log_dir, d.name))
            if entry is not None and entry.intent.identity == d.identity:
                i = entry.intent
                found[d.log_dir, d.name] = Mark(entry.at_ms, i.topic, i.name, i.approved, entry.id)
        return found

    def renamed_by(self, plan_id: str) -> list[tuple[str, str]]:
        """(log dir, present name) of what the plan renamed away and what still stands there."""
        marks = self.marks()
        mine = {(e.intent.log_dir, e.intent.new_name) for e in self.journal.of_plan(plan_id)}
        return [key for key in marks if key in mine]

    def begun(self) -> frozenset[tuple[str, str]]:
        return frozenset(self.journal.removals_begun())

    def queue(self) -> list[QueueEntry]:
        """What is marked for deletion, in the order in which it falls due."""
        failures = {key: Attempts(f.attempts, f.last_at_ms, f.last_error) for key, f in self.journal.failures().items()}
        return build_queue(
            self.of_kind(Kind.DELETE),
            self.marks(),
            failures,
            self.begun(),
            delay_ms=self.target.file_delete_delay_ms(self.settings),
            leftover_grace_ms=self.settings.cleanup.leftover_grace,
        )

    def recent(self) -> tuple[RecentAction, ...]:
        """What was renamed away or removed in the last 24 hours (a clock set back does not hide it)."""
        now = self.clock.now_ms()
        return tuple(
            RecentAction(e.intent.log_dir, e.intent.identity, e.intent.bytes, e.intent.approved)
            for e in self.journal.since(now - DAY_MS)
            if e.intent.action in _TAKES_AWAY and e.outcome is not Outcome.SKIPPED
        )

    # Facts and plans

    def facts(self) -> Facts:
        """Everything that guards and blast radius look at, gathered now."""
        partition_dirs = self.of_kind(Kind.CURRENT, Kind.FUTURE, Kind.STRAY, Kind.DELETE)
        return replace(
            self.sight.facts(),
            journal_problem=self.journal_problem,
            recent=self.recent() if self.journal_problem is None else (),
            partition_dirs=len(partition_dirs),
            partition_bytes=sum(d.bytes for d in partition_dirs),
            assigned_dirs=frozenset((d.log_dir, d.name) for d in self.of_kind(Kind.CURRENT)),
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
        cleanup = self.settings.cleanup
        limits = BlastRadius(cleanup.max_dirs, cleanup.max_fraction)
        return assemble(proposals, waiting, facts, GUARDS, limits, approve=approve, refusals=refusals)

    def log_manager(
        self, *, stop: Callable[[], bool], on_progress: Callable[[int, int], None] | None = None
    ) -> LogManager:
        rate = self.settings.delete.bytes_per_second
        return LogManager(
            log_dirs=self.sight.log_dirs,
            journal=self.journal,
            clock=self.clock,
            look=self.facts,
            actor=self.actor,
            budget=ByteBudget(rate) if rate is not None else None,
            on_progress=on_progress,
            stop=stop,
        )


def new_uuid() -> str:
    """A random UUID as Kafka prints it in directory names: 32 hex digits."""
    return uuid.uuid4().hex


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
) -> Iterator[Session]:
    """Open everything, in the order that keeps it safe.

    To act: first the state dir and its owner's identity, then the executor lock, then the journal, and what a crash
    left open is settled before anything is looked at. To look: the journal is read if it is there, and where it
    cannot be read that is a fact of its own, not an error.
    """
    directory = state_dir if state_dir is not None else default_state_dir(environ)
    with ExitStack() as stack:
        problem: str | None = None
        if act:
            prepare_state_dir(directory, next((d for d in target.log_dirs if os.path.isdir(d)), None))
            stack.enter_context(
                ExecutorLock(directory, actor, wait_seconds=wait_seconds, monotonic=clock.monotonic, sleep=clock.sleep)
            )
            journal = stack.enter_context(Journal.open(directory))
        else:
            try:
                journal = stack.enter_context(Journal.open_read_only(directory))
            except JournalError as e:
                problem = str(e)
                journal = stack.enter_context(Journal.empty())
        sight = stack.enter_context(HostSight(target, clock))
        if act:
            recover(journal, sight.online(), clock.now_ms())
        yield Session(target, settings, clock, sight, journal, act, actor, problem)
