"""What a session reads about one host and its cluster: log dirs, inventory, journal, assignments, sightings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from logagent.agent.clock import Clock
from logagent.agent.evidence.assignment_sources import Assignments, load_assignments
from logagent.agent.session import dir_history
from logagent.agent.session.clock_watch import ClockWatch
from logagent.agent.session.inventories import scan_log_dirs
from logagent.agent.session.opened_log_dirs import LogDirs
from logagent.agent.target import Target
from logagent.errors import KafkaStorageError, LogAgentError
from logagent.host.inventory.scan import LogDirInventory
from logagent.host.log_dir.calls import DiskCalls
from logagent.host.log_dir.log_dir import changed_ms
from logagent.host.state.journal import Journal
from logagent.model.assignments.sightings import Sighting, count_sightings, orphans_seen
from logagent.model.facts import Facts
from logagent.model.planning.queue import Attempts, Mark, QueueEntry, RemovalIntents, build_queue
from logagent.model.records import Kind, PartitionDir
from logagent.settings import Settings

# How long all sources of assignments together may take when there is no user to press Ctrl-C.
READ_SECONDS = 120.0
# Cluster data older than this is read again before the next act (using at most a tenth of the time).
VALID_SECONDS = 2.0
VALID_READINGS = 10


@dataclass(slots=True)
class Readings:
    """What was read so far. `acting`: it holds the executor lock and may write the journal. `whole`: the inventory
    covers all directories, so what it does not show does not exist."""

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
    state_dir: str | None = None
    assignments: Assignments = field(default_factory=Assignments)
    clock_watch: ClockWatch = field(init=False)
    # The sources of the assignments, and until when (on the monotonic clock) they are fresh enough to act on.
    _read_from: tuple[str, ...] | None = None
    _read_until: float | None = None

    def __post_init__(self) -> None:
        self.clock_watch = ClockWatch(self.journal, self.clock, self.acting, self._changed_ms)

    def take_inventory(
        self, on_progress: Callable[[int], None] | None = None, *, only: Callable[[str], bool] | None = None
    ) -> None:
        """Scan every online log dir. One that fails during the scan is offline from then on; the others go on.

        `only`: which names to look at, if the others do not matter; no later inventory continues from such a one.
        """
        self.whole, self.inventories, self.dirs = only is None, {}, []
        known = self.known if self.whole else {}
        # A copy for this session: the health loop changes `known` concurrently.
        self.inventories = scan_log_dirs(self.log_dirs.opened(), known, self.calls, on_progress, only)
        for path, found in self.inventories.items():
            self.dirs += self._ours(found) if path in self.log_dirs.quarantine else found.dirs
        dir_history.note_restores(self.journal, self.dirs)

    def _ours(self, quarantine: LogDirInventory) -> list[PartitionDir]:
        """What this journal moved into a quarantine directory: another agent may keep its own there."""
        renames = self.journal.renames()
        found = [(d, renames.get((d.name, d.inode))) for d in quarantine.dirs]
        return [d for d, e in found if e is not None and e.intent.new_dir]

    @property
    def calls(self) -> DiskCalls:
        return self.log_dirs.calls

    def of_kind(self, *kinds: Kind) -> list[PartitionDir]:
        return [d for d in self.dirs if d.kind in kinds]

    def _changed_ms(self) -> list[int]:
        """When every directory of the inventory and every file of the broker beside them was last changed (ctime)."""
        jobs = {path: partial(changed_ms, log_dir) for path, log_dir in self.log_dirs.online().items()}
        files = [
            at for found in self.calls.looks(jobs).values() if not isinstance(found, LogAgentError) for at in found
        ]
        return [*files, *(d.ctime_ns // 1_000_000 for d in self.dirs)]

    # What the journal adds

    def marks(self) -> dict[tuple[str, str], Mark]:
        return dir_history.marks(self.journal, self.dirs)

    def renamed_by(self, plan_id: str) -> list[tuple[str, str]]:
        return dir_history.renamed_by(self.journal, self.dirs, plan_id)

    def removal_intents(self) -> RemovalIntents:
        return dir_history.removal_intents(self.journal, self.of_kind(Kind.STRAY, Kind.DELETE))

    def open_exchanges(self) -> dict[str, str]:
        """Path of each directory that an interrupted `restore --replace` displaced, with its former name."""
        return dir_history.open_exchanges(self.journal, self.of_kind(Kind.STRAY))

    def attempts(self) -> dict[tuple[str, str], Attempts]:
        """Removals that failed so far, by (log dir, name)."""
        return {key: Attempts(f.attempts, f.last_at_ms, f.last_error) for key, f in self.journal.failures().items()}

    def queue(self) -> list[QueueEntry]:
        """What is marked for deletion, in the order in which it falls due."""
        return build_queue(
            self.of_kind(Kind.DELETE),
            self.marks(),
            self.attempts(),
            self.removal_intents(),
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
        hangs = self._metadata_log_hangs(online)
        chosen = tuple(s for s in settings.assignments.sources if not (hangs and s == "kraft-log"))
        load = partial(
            load_assignments,
            replace(self.target, log_dirs=online),
            replace(settings, assignments=replace(settings.assignments, sources=chosen)),
            cluster_id=cluster.cluster_id,
            node_id=cluster.node_id,
            now_ms=self.clock.now_ms(),
            may_read_log=not hangs,
        )
        began = self.clock.monotonic()
        try:
            self.assignments = self.calls.ask(
                "reading the assignments", load, of=online, limit=READ_SECONDS, undo=Assignments.close
            )
        except KafkaStorageError as e:
            self.assignments = Assignments(problems=[str(e)])
        ended = self.clock.monotonic()
        self._read_from, self._read_until = sources, ended + max(VALID_SECONDS, VALID_READINGS * (ended - began))

    def _metadata_log_hangs(self, online: tuple[str, ...]) -> bool:
        """Whether the metadata log is on a log dir that hangs: asking it would be in vain."""
        place = self.target.server.metadata_log_dir
        return self.calls.parallel and place in self.target.log_dirs and place not in online

    def read_delete_delay(self) -> None:
        """Read only what the queue needs from the sources: a dynamic `log.segment.delete.delay.ms`, unless we override
        it."""
        if self.settings.delete.file_delete_delay_ms is None:
            self.read_assignments(("kraft-log",))

    def file_delete_delay_ms(self) -> int:
        """Our own setting if any, else the broker's dynamic one, else the one in its configuration."""
        configured = self.settings.delete.file_delete_delay_ms
        if configured is not None:
            return configured
        dynamic = self.assignments.delete_delay_ms
        return dynamic if dynamic is not None else self.target.server.file_delete_delay_ms

    def count_sightings(self, facts: Facts) -> dict[tuple[str, str], Sighting]:
        """Every orphan with the number of its sightings, this inventory included, and the first one's time by the
        current clock.

        While the clock is in doubt nothing counts. Only a session that acts remembers the sightings.
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
        """The sightings of earlier cycles, with times by the current clock."""
        return self._by_todays_clock(self.journal.sightings())

    def _by_todays_clock(self, known: dict[tuple[str, str], Sighting]) -> dict[tuple[str, str], Sighting]:
        since = self.clock_watch.corrected
        if not self.clock_watch.jumped():
            return known
        return {key: replace(s, first_ms=since(s.first_ms), last_ms=since(s.last_ms)) for key, s in known.items()}
