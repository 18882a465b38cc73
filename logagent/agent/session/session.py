"""One command on one host: broker, state dir, journal, log dirs, inventory and facts, opened and closed together."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from logagent.agent.clock import Clock
from logagent.agent.execute.checkpoints import entries_to_drop
from logagent.agent.execute.log_manager import LogManager
from logagent.agent.session import history
from logagent.agent.session.assignments import Assignments, load_assignments
from logagent.agent.session.clock_watch import ClockWatch
from logagent.agent.session.identify import absent_ids, identify
from logagent.agent.session.inventories import scan_log_dirs
from logagent.agent.session.kafka_version import look_at_versions
from logagent.agent.session.log_dirs import LogDirs
from logagent.agent.session.serving import ServingQuestions
from logagent.agent.session.strays import StrayQuestions
from logagent.agent.session.target import Target
from logagent.agent.session.verdicts import judge
from logagent.errors import KafkaStorageError, LogAgentError
from logagent.host.inventory.scan import LogDirInventory
from logagent.host.log_dir.calls import DiskCalls, never
from logagent.host.removal.budget import ByteBudget
from logagent.host.removal.control import WorkControl
from logagent.host.state.brokers_seen import read_brokers_seen, write_brokers_seen
from logagent.host.state.journal import CheckpointEntry, Journal
from logagent.model.assignments.identity import BrokerPlace
from logagent.model.assignments.sightings import Sighting, count_sightings, orphans_seen
from logagent.model.assignments.verdict import Host
from logagent.model.facts import Facts, Keys, LogDirFacts, Ruling, StrayRuling
from logagent.model.health.kafka_version import KafkaVersion, which_version
from logagent.model.planning.assemble import assemble
from logagent.model.planning.blast_radius import BlastRadius, Taken, had
from logagent.model.planning.guards import GUARDS
from logagent.model.planning.plan import Plan, Proposal, Refusal, Waiting
from logagent.model.planning.queue import Attempts, Mark, QueueEntry, build_queue
from logagent.model.records import ActionKind, Kind, PartitionDir, Verdict
from logagent.settings import DAY_MS, Settings

# How long all sources of assignments together may take, where nobody waits who could press Ctrl-C.
READ_SECONDS = 120.0


@dataclass(slots=True)
class Session:
    """Everything that a command sees. `acting`: it holds the executor lock and may write the journal. `whole`: the
    inventory is of all directories, so that what it does not show is not there. `ask_leaders`: whether leaders
    elsewhere are asked about strays that are about to go."""

    target: Target
    settings: Settings
    clock: Clock
    log_dirs: LogDirs
    journal: Journal
    acting: bool
    actor: str
    journal_problem: str | None = None
    inventories: dict[str, LogDirInventory] = field(default_factory=dict)
    known: dict[str, LogDirInventory] = field(default_factory=dict)
    dirs: list[PartitionDir] = field(default_factory=list)
    whole: bool = False
    assignments: Assignments = field(default_factory=Assignments)
    ask_leaders: bool = True
    clock_watch: ClockWatch = field(init=False)

    def __post_init__(self) -> None:
        self.clock_watch = ClockWatch(self.journal, self.clock, self.acting)

    def take_inventory(
        self, on_progress: Callable[[int], None] | None = None, *, only: Callable[[str], bool] | None = None
    ) -> None:
        """Scan every online log dir. One that fails meanwhile is offline from then on; the others go on.

        `only`: which names to look at, where the others do not matter; no later inventory follows on such a one.
        """
        self.whole, self.inventories, self.dirs = only is None, {}, []
        known = self.known if self.whole else {}
        # Those of this session, which the health loop does not change under it, as it does what is known.
        self.inventories = scan_log_dirs(self.log_dirs.opened(), known, self.calls, on_progress, only)
        for path, found in self.inventories.items():
            self.dirs += self._ours(found) if path in self.log_dirs.quarantine else found.dirs

    def _ours(self, quarantine: LogDirInventory) -> list[PartitionDir]:
        """What this journal put into a quarantine directory: another agent may keep its own there."""
        renames = self.journal.renames()
        found = [(d, renames.get((quarantine.path, d.name))) for d in quarantine.dirs]
        return [d for d, e in found if e is not None and e.intent.new_dir and e.intent.identity.inode == d.inode]

    @property
    def calls(self) -> DiskCalls:
        return self.log_dirs.calls

    def of_kind(self, *kinds: Kind) -> list[PartitionDir]:
        return [d for d in self.dirs if d.kind in kinds]

    # What the journal adds

    def marks(self) -> dict[tuple[str, str], Mark]:
        return history.marks(self.journal, self.dirs)

    def renamed_by(self, plan_id: str) -> list[tuple[str, str]]:
        return history.renamed_by(self.journal, self.dirs, plan_id)

    def begun(self) -> frozenset[tuple[str, str]]:
        return history.begun(self.journal, self.of_kind(Kind.STRAY, Kind.DELETE))

    def attempts(self) -> dict[tuple[str, str], Attempts]:
        """Removals that failed so far, by (log dir, name)."""
        return {key: Attempts(f.attempts, f.last_at_ms, f.last_error) for key, f in self.journal.failures().items()}

    def queue(self) -> list[QueueEntry]:
        """What is marked for deletion, in the order in which it falls due."""
        return build_queue(
            self.of_kind(Kind.DELETE),
            self.marks(),
            self.attempts(),
            self.begun(),
            delay_ms=self.file_delete_delay_ms(),
            leftover_grace_ms=self.settings.cleanup.leftover_grace,
            corrected=self.clock_watch.corrected,
        )

    # Assignments and verdicts

    def read_assignments(self, sources: tuple[str, ...] | None = None) -> None:
        """Read the sources of assignments. Before the inventory: a directory younger than they are proves nothing."""
        settings = self.settings
        if sources is not None:
            settings = replace(settings, assignments=replace(settings.assignments, sources=sources))
        self.log_dirs.read_cluster()
        cluster = self.log_dirs.cluster
        online = tuple(self.log_dirs.online())
        load = partial(
            load_assignments,
            replace(self.target, log_dirs=online),
            replace(settings, assignments=replace(settings.assignments, sources=self._sources(settings, online))),
            cluster_id=cluster.cluster_id,
            node_id=cluster.node_id,
            now_ms=self.clock.now_ms(),
        )
        try:
            self.assignments = self.calls.ask(
                "reading the assignments", load, of=online, limit=READ_SECONDS, undo=Assignments.close
            )
        except KafkaStorageError as e:
            self.assignments = Assignments(problems=[str(e)])

    def _sources(self, settings: Settings, online: tuple[str, ...]) -> tuple[str, ...]:
        """The configured ones but for the metadata log on a log dir that hangs, where nobody asks in vain."""
        sources, place = settings.assignments.sources, self.target.server.metadata_log_dir
        hung = self.calls.parallel and place in self.target.log_dirs and place not in online
        return tuple(s for s in sources if s != "kraft-log") if hung else sources

    def read_delete_delay(self) -> None:
        """Only what the queue needs of the sources: a dynamic `log.segment.delete.delay.ms`, unless we override it."""
        if self.settings.delete.file_delete_delay_ms is None:
            self.read_assignments(("kraft-log",))

    def file_delete_delay_ms(self) -> int:
        """Ours where it is set, else the broker's dynamic one, else the one in its configuration."""
        configured = self.settings.delete.file_delete_delay_ms
        if configured is not None:
            return configured
        dynamic = self.assignments.delete_delay_ms
        return dynamic if dynamic is not None else self.target.server.file_delete_delay_ms

    def count_sightings(self, facts: Facts) -> dict[tuple[str, str], Sighting]:
        """Every orphan with how often it was seen, this inventory included, and since when by the clock of today.

        While the clock is in doubt nothing counts. Only a session that acts remembers it.
        """
        in_doubt = self.clock_watch.doubt() is not None
        complete = (
            frozenset(self.log_dirs.online()) & self.inventories.keys()
            if self.assignments.usable and not in_doubt
            else frozenset()
        )
        known = self.journal.sightings()
        counted = count_sightings(known, orphans_seen(self.dirs, facts), complete, facts.now_ms)
        if self.acting:
            self.clock_watch.note()
            if counted != known:
                self.journal.replace_sightings(counted.values())
        return self._by_todays_clock(counted)

    def sightings(self) -> dict[tuple[str, str], Sighting]:
        """What the last cycles saw, by the clock of today."""
        return self._by_todays_clock(self.journal.sightings())

    def _by_todays_clock(self, known: dict[tuple[str, str], Sighting]) -> dict[tuple[str, str], Sighting]:
        since = self.clock_watch.corrected
        if not self.clock_watch.jumped():
            return known
        return {key: replace(s, first_ms=since(s.first_ms), last_ms=since(s.last_ms)) for key, s in known.items()}

    # Facts and plans

    def facts(self, dirs: Sequence[PartitionDir] | None = None, *, to_plan: bool = True) -> Facts:
        """Everything that guards look at, gathered now; verdicts for `dirs` (default: all).

        `to_plan`: with what the blast radius of a plan needs besides.
        """
        now = self.clock.now_ms()
        looked = self.log_dirs.log_dir_facts()
        host = self._host()
        identify(self.assignments, host, self.dirs, looked, self._brokers_seen(), now)
        self._remember_brokers()
        log_dirs = self._tell_serving(looked, now)
        proven = history.proven_absent(self.sightings().values(), self.settings.cleanup)
        rulings = judge(
            self.dirs if dirs is None else dirs, self.assignments, host, log_dirs, now, proven_absent=proven
        )
        recent = (
            history.recent(self.journal, self.clock_watch.reaching_back(now - DAY_MS))
            if self.journal_problem is None
            else ()
        )
        had_dirs, had_bytes = had(self.dirs, Taken(recent))
        return replace(
            self.log_dirs.facts(log_dirs),
            rulings=rulings,
            kafka_version=self.kafka_version(log_dirs).version,
            quarantine_dirs=self.log_dirs.quarantine_by_log_dir(),
            journal_problem=self.journal_problem,
            recent=recent,
            partition_dirs=had_dirs,
            partition_bytes=had_bytes,
            assigned_dirs=self._assigned(rulings) if dirs is None and to_plan else frozenset(),
            strays={} if dirs is None else self._rule_on_strays([d for d in dirs if d.kind is Kind.STRAY], now),
        )

    def _host(self) -> Host:
        cluster = self.log_dirs.cluster
        return Host(cluster.node_id, cluster.cluster_id, self.settings.assignments.max_age)

    def _brokers_seen(self) -> frozenset[BrokerPlace]:
        state_dir = os.path.dirname(self.journal.path)
        return read_brokers_seen(state_dir, self.log_dirs.cluster.cluster_id) if state_dir else frozenset()

    def _remember_brokers(self) -> None:
        answering, cluster_id = self.assignments.answering, self.log_dirs.cluster.cluster_id
        if not self.acting or answering is None or not answering.own or cluster_id is None:
            return
        if answering.places != self._brokers_seen():
            write_brokers_seen(os.path.dirname(self.journal.path), cluster_id, answering.places)

    def _rule_on_strays(self, strays: Sequence[PartitionDir], now_ms: int) -> dict[tuple[str, str], StrayRuling]:
        """Whether the strays that are about to go may go."""
        if not strays:
            return {}
        host = self._host()
        proven = history.proven_absent(self.sightings().values(), self.settings.cleanup)
        questions = StrayQuestions(
            self.assignments,
            host,
            # With the current directories, for canaries.
            absent_ids([*strays, *self.of_kind(Kind.CURRENT)], self.assignments, host, now_ms, proven),
            self.log_dirs.opened(),
            self.calls,
            self.dirs,
            self.marks(),
            now_ms,
            self.ask_leaders,
        )
        return questions.rule_on(strays)

    def kafka_version(self, log_dirs: Mapping[str, LogDirFacts]) -> KafkaVersion:
        """Which version of Kafka holds, and what says so. `log_dirs`: their holders are looked at."""
        holders = [f.holder.pid for f in log_dirs.values() if f.holder.pid is not None]
        return which_version(look_at_versions(self.target, holders, self.assignments, self.log_dirs.cluster.cluster_id))

    def _assigned(self, rulings: Mapping[tuple[str, str], Ruling]) -> Keys:
        """What counts as assigned for the blast radius: by verdict, or every current dir where nothing is known."""
        if self.assignments.usable:
            return Keys(lambda: (key for key, ruling in rulings.items() if ruling.verdict is not Verdict.ORPHAN))
        dirs = self.dirs
        return Keys(lambda: ((d.log_dir, d.name) for d in dirs if d.kind is Kind.CURRENT))

    def _tell_serving(self, log_dirs: dict[str, LogDirFacts], now_ms: int) -> dict[str, LogDirFacts]:
        questions = ServingQuestions(
            self.journal,
            self.log_dirs.opened(),
            self.calls,
            self.inventories if self.whole else {},
            self.assignments,
            self.log_dirs.cluster.node_id,
            self.settings.guard.settle,
            self.acting,
            now_ms,
        )
        return questions.tell(log_dirs)

    def plan(
        self,
        proposals: Sequence[Proposal],
        waiting: Sequence[Waiting] = (),
        refusals: Sequence[Refusal] = (),
        *,
        facts: Facts,
        approve: str | None = None,
    ) -> Plan:
        spared = frozenset(self.target.spared)
        proposals = [p for p in proposals if p.dir.log_dir not in spared]
        waiting = [w for w in waiting if w.log_dir not in spared]
        going = [
            p.dir
            for p in proposals
            if p.dir.kind is Kind.STRAY and p.action in (ActionKind.REMOVE, ActionKind.MARK) and not p.begun
        ]
        facts = replace(facts, strays=self._rule_on_strays(going, facts.now_ms))
        cleanup = self.settings.cleanup
        limits = BlastRadius(cleanup.max_dirs, cleanup.max_fraction)
        return assemble(proposals, waiting, facts, GUARDS, limits, approve=approve, refusals=refusals)

    def checkpoint_drops(self, plan: Plan) -> dict[str, tuple[CheckpointEntry, ...]]:
        """By action id the checkpoint entries that the plan's renames take out, as far as they can be read now."""
        jobs = {
            path: partial(entries_to_drop, log_dir, [p for p in plan.actions if p.dir.log_dir == path])
            for path, log_dir in self.log_dirs.online().items()
        }
        drops: dict[str, tuple[CheckpointEntry, ...]] = {}
        for found in self.calls.looks(jobs).values():
            if not isinstance(found, LogAgentError):
                drops |= found
        return drops

    def log_manager(
        self, *, stop: Callable[[], bool] = never, on_progress: Callable[[int, int], None] | None = None
    ) -> LogManager:
        delete = self.settings.delete
        budget = ByteBudget(delete.bytes_per_second) if delete.bytes_per_second is not None else None
        return LogManager(
            log_dirs=self.log_dirs.by_path | self.log_dirs.quarantine,
            journal=self.journal,
            clock=self.clock,
            look=self.facts,
            actor=self.actor,
            control=WorkControl(stop=stop, budget=budget, workers=delete.workers, on_progress=on_progress),
            calls=self.calls,
            # By then the next cycle waits: what is due in a log dir waits no longer for another one that is slow.
            longest_seconds=self.settings.cleanup.interval / 1000 if len(self.target.log_dirs) > 1 else None,
        )


def new_uuid() -> str:
    """A random UUID as Kafka prints it in directory names: 32 hex digits."""
    return uuid.uuid4().hex
