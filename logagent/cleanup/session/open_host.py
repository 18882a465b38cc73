"""A host whose log dirs and journal are open, and what is read of it first: assignments, inventory, journal.

In this order: a directory that is younger than the assignments proves nothing. `gather` makes the evidence of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from logagent.base.clock import Clock
from logagent.base.config.settings import Settings
from logagent.base.errors import KafkaStorageError, LogAgentError
from logagent.base.reason import Reason
from logagent.base.records import DirKey, Kind, PartitionDir
from logagent.cleanup.plan.queue import QueueEntry, Recalled, queue_of
from logagent.cleanup.session.opened_log_dirs import LogDirs
from logagent.cleanup.session.recall import ClockWatch, note_restores, recall
from logagent.cleanup.state.journal import Journal
from logagent.disk.calls import DiskCalls
from logagent.disk.log_dir import changed_ms
from logagent.disk.scan import Inventory, LogDirInventory, scan_log_dirs
from logagent.kafka.image import AssignmentImage, Source
from logagent.kafka.processes.target import Target
from logagent.verdict.evidence.assignment_sources import AssignmentQuery, Assignments, load_assignments
from logagent.verdict.evidence.version_seen import read_lineage

if TYPE_CHECKING:
    from logagent.kafka.files.log_extent import SegmentReadings
    from logagent.verdict.evidence.brokers_to_ask import BrokersToAsk
    from logagent.verdict.evidence.copy_reads import CopyReads

# How long all sources of assignments together may take when there is no user to press Ctrl-C.
READ_SECONDS = 120.0
# Cluster data older than this is read again before the next act (using at most a tenth of the time).
VALID_SECONDS = 2.0
VALID_READINGS = 10


@dataclass(slots=True)
class OpenHost:
    """`ask_leaders`: whether leaders elsewhere are asked about what is about to be removed; `network_seconds`: how long
    one reading of the cluster may take in all, None = as long as its requests do; `brokers`: who can be asked, as of
    the last evidence. `duplicates`: the other copy of each directory, by (log dir, name), that is about to be removed
    because another log dir here contains all of it; `marked`: what a plan marks for deletion. `reads`: reads the copies
    here that a removal rests on, and knows what was read of them (`segments_read`). `acting`: it holds the executor
    lock and may write the journal.
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
        note_restores(self.journal, dirs)

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
