"""What one command or cycle knows of one host and its cluster, and what it derives from that: log dirs, inventory,
journal, assignments, sightings; facts, what is due, plans."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from logagent.base.clock import Clock
from logagent.base.config.settings import Settings
from logagent.base.dir_names import RANDOM_BYTES, rename_uuid
from logagent.base.errors import ConfigError, KafkaStorageError, LogAgentError
from logagent.base.kafka_version import KafkaVersion, LastRun, VersionsSeen, which_version
from logagent.base.reason import Reason
from logagent.base.records import DirKey, HolderState, Kind, PartitionDir, Verdict
from logagent.base.times import DAY_MS
from logagent.cleanup.plan.assemble import BlastRadius, RecentDirs, assemble, dirs_of_a_day, on_disk
from logagent.cleanup.plan.due import Ages, Candidates, Due, what_is_due
from logagent.cleanup.plan.guards import GUARDS
from logagent.cleanup.plan.plan import NO_FLAGS, Flags, Plan, Proposal, Refusal, Waiting
from logagent.cleanup.plan.proposals import needs_ruling
from logagent.cleanup.plan.queue import QueueEntry, RemovalIntents, build_queue, for_removal
from logagent.cleanup.session import dir_history
from logagent.cleanup.session.clock_watch import ClockWatch
from logagent.cleanup.session.left_log_dirs import MissingQuestion, inspect_missing
from logagent.cleanup.session.opened_log_dirs import LogDirs, forgotten_log_dir, remember_log_dirs
from logagent.cleanup.session.serving_questions import ServingQuestions
from logagent.cleanup.state.journal import CheckpointEntry, Journal
from logagent.disk.calls import DiskCalls, Stop, never, refuse_if
from logagent.disk.log_dir import OpenLogDir, changed_ms
from logagent.disk.scan import LogDirInventory, ScanTurn, ScanTurns, scan_log_dir
from logagent.disk.work_control import ByteBudget, WorkControl
from logagent.kafka.identity import BrokerPlace, directory_ids
from logagent.kafka.image import AssignmentImage, Source
from logagent.kafka.lineage import remember
from logagent.kafka.processes.target import Target
from logagent.verdict.clock_doubt import TRUST_CLOCK
from logagent.verdict.evidence.assignment_sources import AssignmentQuery, Assignments, load_assignments
from logagent.verdict.evidence.brokers_to_ask import BrokersToAsk, brokers_to_ask
from logagent.verdict.evidence.copy_reads import CopyReads
from logagent.verdict.evidence.judge import absent_ids, gather_versions, identify, judge
from logagent.verdict.evidence.stray_questions import StrayQuestions, rule_on_duplicates
from logagent.verdict.evidence.version_seen import (
    read_brokers_seen,
    read_lineage,
    read_version_seen,
    write_brokers_seen,
    write_lineage,
    write_version_seen,
)
from logagent.verdict.facts import Facts, Keys, LogDirFacts, RecentAction, Ruling, StrayRuling
from logagent.verdict.marks import Mark
from logagent.verdict.rules import Host
from logagent.verdict.sightings import Sighting, count_sightings, orphans_seen
from logagent.verdict.strays import needs_cover
from logagent.verdict.without_directory import Missing

if TYPE_CHECKING:
    from logagent.cleanup.execute.log_manager import LogManager
    from logagent.kafka.admin.reader import AdminReader


def scan_log_dirs(
    opened: Mapping[str, OpenLogDir],
    known: dict[str, LogDirInventory],
    calls: DiskCalls,
    on_progress: Callable[[int], None] | None,
    only: Callable[[str], bool] | None,
) -> dict[str, LogDirInventory]:
    """The inventories of those that could be scanned, by path.

    known: the last inventories, from which these continue; replaced in place for log dirs that did not fail during the
    scan. A scan uses up the known inventory: if it is given up, none is left.
    """
    done: dict[str, int] = dict.fromkeys(opened, 0)
    turns = ScanTurns()

    def scan(path: str, log_dir: OpenLogDir, previous: LogDirInventory | None, stop: Stop) -> LogDirInventory:
        turn = ScanTurn(turns)

        def tell(count: int) -> None:
            refuse_if(stop, path)
            done[path] = count
            if on_progress is not None:
                on_progress(sum(done.values()))
            turn.tick()

        with turn:
            inventory = scan_log_dir(log_dir, previous, on_progress=tell, only=only)
        done[path] = len(inventory.dirs)
        return inventory

    scanned: dict[str, LogDirInventory] = {}
    jobs = {path: partial(scan, path, log_dir, known.pop(path, None)) for path, log_dir in opened.items()}
    for path, found in calls.work(jobs).items():
        if isinstance(found, LogDirInventory):
            scanned[path] = found
            if opened[path].offline() is None:
                known[path] = found
        elif not isinstance(found, KafkaStorageError):
            raise found
    return scanned


NOT_ALL_LISTED = "not all directories were listed"
# How long all sources of assignments together may take when there is no user to press Ctrl-C.
READ_SECONDS = 120.0
# Cluster data older than this is read again before the next act (using at most a tenth of the time).
VALID_SECONDS = 2.0
VALID_READINGS = 10


@dataclass(slots=True)
class Session:
    """`ask_leaders`: whether leaders elsewhere are asked about what is about to be removed; `network_seconds`: how long
    one reading of the cluster may take in all, None = as long as its requests do; `brokers`: who can be asked, as of
    the last `facts`. `duplicates`: the other copy of each directory, by (log dir, name), that is about to be removed
    because another log dir here contains all of it; `marked`: what a plan marks for deletion. `reads`: reads the copies
    here that a removal rests on. `acting`: it holds the executor lock and may write the journal. `whole`: the inventory
    covers all directories, so what it does not show does not exist.
    """

    target: Target
    settings: Settings
    clock: Clock
    log_dirs: LogDirs
    journal: Journal
    acting: bool
    actor: str
    journal_problem: Reason | None = None
    inventories: dict[str, LogDirInventory] = field(default_factory=dict)
    known: dict[str, LogDirInventory] = field(default_factory=dict)
    dirs: list[PartitionDir] = field(default_factory=list)
    whole: bool = False
    state_dir: str | None = None
    assignments: Assignments = field(default_factory=Assignments)
    # The image that the inventory began with, and when that was.
    image_before: AssignmentImage | None = None
    began_ms: int | None = None
    clock_watch: ClockWatch = field(init=False)
    # The sources of the assignments, and until when (on the monotonic clock) they are fresh enough to act on.
    _read_from: tuple[str, ...] | None = None
    _read_until: float | None = None
    ask_leaders: bool = True
    network_seconds: float | None = None
    brokers: BrokersToAsk | None = None
    reads: CopyReads = field(default_factory=CopyReads)
    duplicates: dict[DirKey, PartitionDir] = field(default_factory=dict)
    marked: set[DirKey] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.clock_watch = ClockWatch(self.journal, self.clock, self.acting, self._changed_ms)

    def take_inventory(
        self, on_progress: Callable[[int], None] | None = None, *, only: Callable[[str], bool] | None = None
    ) -> None:
        """Scan every online log dir. One that fails during the scan is offline from then on; the others go on.

        `only`: which names to look at, if the others do not matter; no later inventory continues from such a one.
        """
        self.whole, self.inventories, self.dirs = only is None, {}, []
        self.image_before, self.began_ms = self.assignments.first, self.clock.now_ms()
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
            at for found in self.calls.call_each(jobs).values() if not isinstance(found, LogAgentError) for at in found
        ]
        return [*files, *(d.ctime_ns // 1_000_000 for d in self.dirs)]

    # What the journal adds

    def marks(self) -> dict[DirKey, Mark]:
        return dir_history.marks(self.journal, self.dirs)

    def end_permissions(self, facts: Facts, cancelled: Callable[[str], bool]) -> None:
        """End for good what requests may remove, where they were cancelled or this inventory shows it no more. Raises
        JournalError."""
        is_all = self.whole and facts.not_seen() is None
        dir_history.end_permissions(self.journal, self.dirs if is_all else None, cancelled)

    def renamed_by(self, plan_id: str) -> list[DirKey]:
        return dir_history.renamed_by(self.journal, self.dirs, plan_id)

    def restored_topics(self) -> list[tuple[str | None, int]]:
        """The topic id of every directory that was restored on this host, and when (ms)."""
        return [(e.intent.topic_id, e.at_ms) for e in self.journal.restores().values()]

    def removal_intents(self) -> RemovalIntents:
        return dir_history.removal_intents(self.journal, self.of_kind(Kind.STRAY, Kind.DELETE))

    def open_exchanges(self) -> dict[str, str]:
        """Path of each directory that an interrupted `restore --replace` displaced, with its former name."""
        return dir_history.open_exchanges(self.journal, self.of_kind(Kind.STRAY))

    def queue(self) -> list[QueueEntry]:
        """What is marked for deletion, in the order in which it falls due."""
        return build_queue(
            self.of_kind(Kind.DELETE),
            for_removal(self.marks()),
            self.journal.failures(),
            self.removal_intents(),
            delay_ms=self.file_delete_delay_ms(),
            leftover_grace_ms=self.settings.cleanup.leftover_grace,
            corrected=self.clock_watch.corrected,
        )

    def due(self, facts: Facts, *, sightings: Mapping[DirKey, Sighting] | None = None, flags: Flags = NO_FLAGS) -> Due:
        """What is due on this host, and what waits (`what_is_due`). `sightings`: those that count (default: those of
        earlier cycles)."""
        return what_is_due(self.candidates(sightings=sightings, flags=flags), facts, new_uuid)

    def candidates(self, *, sightings: Mapping[DirKey, Sighting] | None = None, flags: Flags = NO_FLAGS) -> Candidates:
        """What may fall due, from one reading of the journal: for those who also ask what would be due later."""
        cleanup, doubt = self.settings.cleanup, self.clock_watch.doubt()
        return Candidates(
            queue=self.queue(),
            dirs=self.dirs,
            marks=for_removal(self.marks()),
            removal_intents=self.removal_intents(),
            failures=self.journal.failures(),
            sightings=self.sightings() if sightings is None else sightings,
            retention_ms=cleanup.stray_retention,
            ages=Ages(cleanup.sightings, cleanup.min_age),
            corrected=self.clock_watch.corrected,
            doubt=f"{doubt.why} ({TRUST_CLOCK})" if doubt is not None else None,
            flags=flags,
            never_shown=self._never_shown(),
            stray_verdicts=self.stray_verdicts(self.clock.now_ms()),
        )

    def _never_shown(self) -> frozenset[str]:
        """Topic ids of strays that the metadata log of this host never had, where that log decides."""
        image = self.assignments.first
        strays = (d.topic_id for d in self.of_kind(Kind.STRAY) if d.topic_id is not None)
        return frozenset(i for i in strays if image.never_showed(i)) if image is not None else frozenset()

    # Assignments and verdicts

    def read_assignments(self, sources: tuple[str, ...] | None = None) -> None:
        """Read the sources of assignments. Before the inventory: a directory younger than they are proves nothing."""
        began = self.clock.monotonic()
        self.assignments = self._load(sources)
        ended = self.clock.monotonic()
        self._read_from, self._read_until = sources, ended + max(VALID_SECONDS, VALID_READINGS * (ended - began))

    def image_now(self) -> AssignmentImage | None:
        """The image of the source that decided when the inventory began, read once more; None if there is none now. It
        decides nothing."""
        before = self.image_before
        if before is None or before.source is Source.FILE:
            return None
        found = self._load((before.source.value,))
        found.close()
        return found.first

    def _load(self, sources: tuple[str, ...] | None) -> Assignments:
        settings = self.settings
        if sources is not None:
            settings = replace(settings, assignments=replace(settings.assignments, sources=sources))
        self.log_dirs.read_cluster()
        cluster = self.log_dirs.cluster
        online = tuple(self.log_dirs.online())
        hangs = self._metadata_log_hangs(online)
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

    def count_sightings(self, facts: Facts) -> dict[DirKey, Sighting]:
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

    def sightings(self) -> dict[DirKey, Sighting]:
        """The sightings of earlier cycles, with times by the current clock."""
        return self._by_todays_clock(self.journal.sightings())

    def _by_todays_clock(self, known: dict[DirKey, Sighting]) -> dict[DirKey, Sighting]:
        since = self.clock_watch.corrected
        if not self.clock_watch.jumped():
            return known
        return {key: replace(s, first_ms=since(s.first_ms), last_ms=since(s.last_ms)) for key, s in known.items()}

    def facts(
        self, dirs: Sequence[PartitionDir] | None = None, *, to_plan: bool = True, ask_broker: bool = True
    ) -> Facts:
        """Everything that guards look at, gathered now; verdicts for `dirs`, which are about to be acted on (default:
        all, to plan or to show).

        `to_plan`: also gather what the blast radius of a plan needs, which `dirs` no longer need. `ask_broker`: whether
        our own broker may be asked if it serves; to show what is on the disk, it need not.
        """
        now = self.clock.now_ms()
        looked = self.log_dirs.log_dir_facts("now" if dirs is None else "held")
        host = self._identified(looked, now)
        log_dirs = self._mark_serving(looked, now) if ask_broker else looked
        forgotten = self._forgotten(looked)
        version = self.kafka_version(log_dirs)
        proven = dir_history.proven_absent(self.sightings().values(), self.settings.cleanup)
        judged = self.dirs if dirs is None else dirs
        rulings = judge(judged, self.assignments, host, log_dirs, now, inventory=self.dirs, proven_absent=proven)
        images = (*self.assignments.usable, *self.assignments.unusable)
        to_plan = to_plan and dirs is None
        recent = self._taken_since(self.clock_watch.reaching_back(now - DAY_MS)) if to_plan else ()
        had_dirs, had_bytes = dirs_of_a_day(self.dirs, RecentDirs(recent)) if to_plan else (0, 0)
        return replace(
            self.log_dirs.facts(log_dirs),
            cluster_problems=self._cluster_problems(version),
            rulings=rulings,
            kafka_version=version.version,
            known_version=version,
            quarantine_dirs=self.log_dirs.quarantine_by_log_dir(),
            forgotten=forgotten,
            directory_ids=cache(partial(directory_ids, images, host.cluster_id, host.node_id)),
            journal_problem=self.journal_problem,
            recent=recent,
            partition_dirs=had_dirs,
            partition_bytes=had_bytes,
            assigned_dirs=self._assigned(rulings) if to_plan else frozenset(),
            strays=self.rule_on_strays(self._going(dirs or (), rulings), now, to_act=True),
            duplicates=self._rule_on_duplicates(dirs or self.dirs, now, to_act=dirs is not None),
            max_age_ms=host.max_age_ms,
        )

    def _cluster_problems(self, version: KafkaVersion) -> Mapping[str, str]:
        return self.log_dirs.cluster.problems_for(version, zookeeper=not self.target.server.process_roles)

    def _identified(self, looked: Mapping[str, LogDirFacts], now: int) -> Host:
        """This host; from here on all sources of assignments are of its own cluster. Remembers who they were."""
        host = self._host()
        identify(self.assignments, host, self.dirs, looked, self._brokers_seen(), now)
        self._remember_brokers()
        self._remember_lineage()
        return host

    def _forgotten(self, looked: Mapping[str, LogDirFacts]) -> Reason | None:
        """Log dirs that `server.properties` has lost, while which nothing is restored; else those of now are noted."""
        forgotten = forgotten_log_dir(self.target, self.log_dirs, self.state_dir, looked)
        if self.acting and forgotten is None:
            remember_log_dirs(self.log_dirs, self.state_dir, looked)
        return forgotten

    def _going(self, dirs: Sequence[PartitionDir], rulings: Mapping[DirKey, Ruling]) -> list[PartitionDir]:
        """Those of `dirs`, which are about to be acted on, that have to be covered by another copy."""
        return [
            d
            for d in dirs
            if d.kind is Kind.STRAY or ((key := d.key) in self.marked and key in rulings and needs_cover(rulings[key]))
        ]

    def facts_to_act(self, dirs: Sequence[PartitionDir], stop: Stop = never) -> Facts:
        """The facts right before an act. The cluster is read again if the last reading is too old: a partition may have
        been assigned to this node again since the plan was made. `stop` ends the reading of copies.

        Copies may take hours to read. Then everything is gathered once more, and what was not read, or has changed
        since, does not count."""
        with self.reads.allowed(stop) as has_read:
            self._read_assignments_again()
            facts = self.facts(dirs)
        if has_read():
            self._read_assignments_again()
            facts = self.facts(dirs)
        return facts

    def _read_assignments_again(self) -> None:
        if self._read_until is not None and self.clock.monotonic() > self._read_until:
            self.assignments.close()
            try:
                self.read_assignments(self._read_from)
            except ConfigError as e:  # the client's file, which was valid when the plan was made
                self.assignments = Assignments(problems=[str(e)])

    def _taken_since(self, at_ms: int) -> tuple[RecentAction, ...]:
        """According to the journal and to what is in the log dirs (and in quarantine directories, whoever put it
        there)."""
        by_journal = self.journal.taken_since(at_ms) if self.journal_problem is None else ()
        seen = (d for inventory in self.inventories.values() for d in inventory.dirs)
        return (*by_journal, *on_disk(seen, RecentDirs(by_journal), at_ms))

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

    def _remember_lineage(self) -> None:
        """How far the metadata log reaches, and which topic ids of this host it had, for later readings; or that it is
        of another history than that."""
        found, own, cluster = self.assignments, self.assignments.own_log, self.log_dirs.cluster
        if not self.acting or self.state_dir is None or own is None or not found.mode_known:
            return
        if cluster.cluster_id is None or cluster.node_id is None or own.cluster_id != cluster.cluster_id:
            return
        if found.other_history is not None:
            # However little of the host was seen: soon a snapshot hides it.
            known = replace(found.lineage, other_history=found.other_history)
        elif found.lineage_problem is not None or not self.whole:
            return
        else:
            here = {d.topic_id for d in self.dirs if d.topic_id is not None}
            known = remember(found.lineage, found.newest_committed, own.by_id, here)
        if known != found.lineage:
            write_lineage(self.state_dir, cluster.cluster_id, cluster.node_id, known)
            found.lineage = known

    def rule_on_strays(
        self, strays: Sequence[PartitionDir], now_ms: int, *, to_act: bool = False
    ) -> dict[DirKey, StrayRuling]:
        """Whether the strays that are about to be removed may be; `to_act`: right now."""
        return self._questions(strays, now_ms, to_act).rule_on(strays) if strays else {}

    def stray_verdicts(self, now_ms: int) -> dict[DirKey, Ruling]:
        """The verdict on every stray of the inventory."""
        strays = self.of_kind(Kind.STRAY)
        return self._questions(strays, now_ms, False).verdicts(strays) if strays else {}

    def missing(self, facts: Facts) -> Missing:
        """What a start would make anew, and where it is or may be. Assignments too old for verdicts count too: nothing
        is done because of it."""
        found = self.assignments
        journal = self.journal.log_dirs() if self.journal_problem is None else ()
        image, unread = (found.shown, "; ".join(found.problems) or None) if self.whole else (None, NOT_ALL_LISTED)
        described = partial(self.brokers.described) if self.brokers is not None else dict
        asked = MissingQuestion(
            image, found.shown_is_sure, self.dirs, journal, self.state_dir, unread=unread, described=described
        )
        return inspect_missing(self.log_dirs, facts.log_dirs, asked)

    def _questions(self, strays: Sequence[PartitionDir], now_ms: int, to_act: bool) -> StrayQuestions:
        host = self._host()
        proven = dir_history.proven_absent(self.sightings().values(), self.settings.cleanup)
        return StrayQuestions(
            self.assignments,
            host,
            absent_ids(strays, self.assignments, host, now_ms, proven, self.dirs),
            self.log_dirs.opened(),
            self.own_log_dirs(),
            self.calls,
            self.dirs,
            self.marks(),
            now_ms,
            self.ask_leaders,
            self.reads,
            to_act,
            self.brokers,
        )

    def _rule_on_duplicates(
        self, dirs: Sequence[PartitionDir], now_ms: int, *, to_act: bool = False
    ) -> dict[DirKey, StrayRuling]:
        asked = [(d, other) for d in dirs if (other := self.duplicates.get(d.key)) is not None]
        if not asked:
            return {}
        return rule_on_duplicates(asked, self.own_log_dirs(), self.calls, self.reads, to_act=to_act, now_ms=now_ms)

    def own_log_dirs(self) -> dict[str, OpenLogDir]:
        """The readable log dirs that have this broker's ids, and that it uses as far as we know: nothing may rest on a
        copy in another one."""
        others = {*self.log_dirs.cluster.problems, *self.log_dirs.cluster.copied, *self.target.unconfigured}
        return {path: d for path, d in self.log_dirs.online().items() if path not in others}

    def kafka_version(self, log_dirs: Mapping[str, LogDirFacts]) -> KafkaVersion:
        """The version of Kafka that counts, and its source. `log_dirs`: their holders are looked at. A session that
        acts (or only reports, in the daemon) remembers what runs."""
        holders = [f.holder.pid for f in log_dirs.values() if f.holder.pid is not None]
        cluster = self.log_dirs.cluster
        last_run = read_version_seen(self.state_dir, cluster.cluster_id, cluster.node_id)
        seen = gather_versions(self.target, holders, self.assignments, cluster.cluster_id, last_run)
        self._remember_version(seen, {f.holder.pid for f in log_dirs.values() if f.holder.state is HolderState.HELD})
        return which_version(seen)

    def _remember_version(self, seen: VersionsSeen, serving: Collection[int | None]) -> None:
        """A newer version only once it serves: a start that fails says nothing about the next one."""
        cluster, running, before = self.log_dirs.cluster, seen.running, seen.last_run
        if not self.acting or self.state_dir is None or running is None or running == before.version:
            return
        if cluster.memory_id is None or cluster.node_id is None:
            return
        older = before.version is not None and running < before.version
        if older or before == LastRun(file=before.file) or seen.pid in serving:
            write_version_seen(self.state_dir, cluster.memory_id, cluster.node_id, running)

    def _assigned(self, rulings: Mapping[DirKey, Ruling]) -> Keys:
        """What counts as assigned for the blast radius: by verdict, or every current dir if nothing is known."""
        if self.assignments.usable:
            return Keys(lambda: (key for key, ruling in rulings.items() if ruling.verdict is not Verdict.ORPHAN))
        dirs = self.dirs
        return Keys(lambda: (d.key for d in dirs if d.kind is Kind.CURRENT))

    def _mark_serving(self, log_dirs: dict[str, LogDirFacts], now_ms: int) -> dict[str, LogDirFacts]:
        brokers = brokers_to_ask(
            self.assignments, self.target, self.settings, self._host(), self.dirs, log_dirs, now_ms
        )
        if self.brokers is None or not self.brokers.same_as(brokers):
            self.close_questions()
            self.brokers = brokers
        own_log, host = self.assignments.own_log, self._host()
        registration = None
        ours = own_log is not None and own_log.cluster_id == host.cluster_id and not self.assignments.lineage_problem
        # What a registration means is known of tested levels only (`levels`).
        if ours and own_log is not None and own_log.untested_because is None and host.node_id is not None:
            registration = own_log.brokers.get(host.node_id)
        settle_ms, journal = self.settings.guard.settle, self.journal
        questions = ServingQuestions(journal, self.brokers, registration, settle_ms, self.acting, now_ms)
        return questions.tell(log_dirs)

    def leaders(self) -> AdminReader | None:
        """A reader that may ask the leaders of this host's cluster; None if nobody may be asked."""
        return self.brokers.leaders() if self.brokers is not None else None

    def close_questions(self) -> None:
        """Close the connections to brokers that were found to be asked."""
        if self.brokers is not None:
            self.brokers.close()
            self.brokers = None

    def plan(
        self,
        proposals: Sequence[Proposal],
        waiting: Sequence[Waiting] = (),
        refusals: Sequence[Refusal] = (),
        *,
        facts: Facts,
        approve: str | None = None,
    ) -> Plan:
        # Not at the top: commands that only look do not need it.
        from logagent.cleanup.session.unchangeable import look_whether_changeable

        spared = self.spared
        proposals = [p for p in proposals if p.dir.log_dir not in spared]
        waiting = [w for w in waiting if w.log_dir not in spared]
        going = [p.dir for p in proposals if needs_ruling(p, facts)]
        self.marked |= {p.key for p in proposals if p.dir.kind is not Kind.STRAY and needs_ruling(p, facts)}
        duplicates = self._rule_on_duplicates([p.dir for p in proposals if p.duplicate], facts.now_ms)
        facts = replace(facts, strays=self.rule_on_strays(going, facts.now_ms), duplicates=duplicates)
        judge_all = partial(assemble, proposals, waiting, guards=GUARDS, limits=self.limits, refusals=refusals)
        plan = judge_all(facts=facts, approve=approve)
        # Only what nothing else keeps from being done is looked at: a removal file by file.
        unchangeable = look_whether_changeable(self.log_dirs, plan.actions)
        return judge_all(facts=replace(facts, unchangeable=unchangeable), approve=approve) if unchangeable else plan

    @property
    def spared(self) -> frozenset[str]:
        """What `--log-dir` leaves out: log dirs, and quarantine directories on file systems that only these are on."""
        spared = frozenset(self.target.spared)
        if not spared:
            return spared
        quarantines = self.log_dirs.quarantine_by_log_dir()
        used = {quarantine for path, quarantine in quarantines.items() if path not in spared}
        return spared | (self.log_dirs.quarantine.keys() - used)

    @property
    def limits(self) -> BlastRadius:
        return BlastRadius(self.settings.cleanup.max_dirs, self.settings.cleanup.max_fraction)

    def checkpoint_drops(self, plan: Plan) -> dict[str, tuple[CheckpointEntry, ...]]:
        """By action id, the checkpoint entries that the plan's renames will remove, as far as they can be read now."""
        from logagent.cleanup.execute.checkpoint_entries import entries_to_drop

        jobs = {
            path: partial(entries_to_drop, log_dir, [p for p in plan.actions if p.dir.log_dir == path])
            for path, log_dir in self.log_dirs.online().items()
        }
        drops: dict[str, tuple[CheckpointEntry, ...]] = {}
        for found in self.calls.call_each(jobs).values():
            if not isinstance(found, LogAgentError):
                drops |= found
        return drops

    def log_manager(
        self, *, stop: Callable[[], bool] = never, on_progress: Callable[[int, int], None] | None = None
    ) -> LogManager:
        # Not at the top: commands that only look do not need it.
        from logagent.cleanup.execute.log_manager import LogManager

        delete = self.settings.delete
        budget = ByteBudget(delete.bytes_per_second) if delete.bytes_per_second else None
        return LogManager(
            log_dirs=self.log_dirs.by_path | self.log_dirs.quarantine,
            journal=self.journal,
            clock=self.clock,
            read_facts=partial(self.facts_to_act, stop=stop),
            actor=self.actor,
            control=WorkControl(stop=stop, budget=budget, workers=delete.workers, on_progress=on_progress),
            calls=self.calls,
            # The next cycle is due by then: what is due in one log dir should not wait any longer for a slow one.
            longest_seconds=self.settings.cleanup.interval / 1000 if len(self.target.log_dirs) > 1 else None,
        )


def new_uuid() -> str:
    """For a name that we give now: 32 hex digits as in Kafka's names, recognisable as ours."""
    return rename_uuid(time.time_ns() // 1_000_000, os.urandom(RANDOM_BYTES))
