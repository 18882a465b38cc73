"""One command on one host: broker, state dir, journal, log dirs, inventory and facts, opened and closed together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from logagent.agent.evidence.assignment_sources import Assignments
from logagent.agent.evidence.brokers_to_ask import BrokersToAsk, brokers_to_ask
from logagent.agent.evidence.copy_reads import CopyReads
from logagent.agent.evidence.identify import absent_ids, identify
from logagent.agent.evidence.judge import judge
from logagent.agent.evidence.serving_questions import ServingQuestions
from logagent.agent.evidence.stray_questions import StrayQuestions, rule_on_doubles
from logagent.agent.evidence.version_looks import look_at_versions
from logagent.agent.session import dir_history
from logagent.agent.session.readings import Readings
from logagent.errors import ConfigError, LogAgentError
from logagent.host.log_dir.calls import Stop, never
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.removal.work_control import ByteBudget, WorkControl
from logagent.host.state.journal import CheckpointEntry
from logagent.host.state.version_seen import (
    read_brokers_seen,
    read_version_seen,
    write_brokers_seen,
    write_version_seen,
)
from logagent.model.assignments.identity import BrokerPlace, directory_ids
from logagent.model.assignments.strays import needs_cover
from logagent.model.assignments.verdict import Host
from logagent.model.facts import Facts, Keys, LogDirFacts, RecentAction, Ruling, StrayRuling
from logagent.model.health.kafka_version import KafkaVersion, LastRun, VersionLook, which_version
from logagent.model.naming.dir_names import RANDOM_BYTES, rename_uuid
from logagent.model.planning.assemble import BlastRadius, RecentDirs, assemble, dirs_of_a_day, on_disk
from logagent.model.planning.guards import GUARDS
from logagent.model.planning.plan import Plan, Proposal, Refusal, Waiting
from logagent.model.planning.proposals import needs_ruling
from logagent.model.records import ActionKind, HolderState, Kind, PartitionDir, Verdict
from logagent.settings import DAY_MS

if TYPE_CHECKING:
    from logagent.agent.execute.log_manager import LogManager
    from logagent.broker.admin.reader import AdminReader


@dataclass(slots=True)
class Session(Readings):
    """Everything that a command sees, and what is derived from it: facts, plans, and the LogManager that carries them
    out.

    `ask_leaders`: whether leaders elsewhere are asked about what is about to be removed; `brokers`: who can be asked,
    as of the last `facts`. `doubles`: the other copy of each directory, by (log dir, name), that is about to be removed
    because another log dir here contains all of it; `marked`: what a plan marks for deletion. `reads`: reads the copies
    here that a removal rests on."""

    ask_leaders: bool = True
    brokers: BrokersToAsk | None = None
    reads: CopyReads = field(default_factory=CopyReads)
    doubles: dict[tuple[str, str], PartitionDir] = field(default_factory=dict)
    marked: set[tuple[str, str]] = field(default_factory=set)

    def facts(self, dirs: Sequence[PartitionDir] | None = None, *, to_plan: bool = True) -> Facts:
        """Everything that guards look at, gathered now; verdicts for `dirs`, which are about to be acted on (default:
        all, to plan or to show).

        `to_plan`: also gather what the blast radius of a plan needs.
        """
        now = self.clock.now_ms()
        looked = self.log_dirs.log_dir_facts()
        host = self._host()
        identify(self.assignments, host, self.dirs, looked, self._brokers_seen(), now)
        self._remember_brokers()
        log_dirs = self._mark_serving(looked, now)
        version = self.kafka_version(log_dirs)
        proven = dir_history.proven_absent(self.sightings().values(), self.settings.cleanup)
        rulings = judge(
            self.dirs if dirs is None else dirs, self.assignments, host, log_dirs, now, proven_absent=proven
        )
        images = (*self.assignments.usable, *self.assignments.unusable)
        recent = self._taken_since(self.clock_watch.reaching_back(now - DAY_MS))
        had_dirs, had_bytes = dirs_of_a_day(self.dirs, RecentDirs(recent))
        return replace(
            self.log_dirs.facts(log_dirs),
            rulings=rulings,
            kafka_version=version.version,
            known_version=version,
            quarantine_dirs=self.log_dirs.quarantine_by_log_dir(),
            directory_ids=cache(partial(directory_ids, images, host.cluster_id, host.node_id)),
            journal_problem=self.journal_problem,
            recent=recent,
            partition_dirs=had_dirs,
            partition_bytes=had_bytes,
            assigned_dirs=self._assigned(rulings) if dirs is None and to_plan else frozenset(),
            strays=self.rule_on_strays(self._going(dirs or (), rulings), now, to_act=True),
            doubles=self._rule_on_doubles(dirs or self.dirs, to_act=dirs is not None),
        )

    def _going(self, dirs: Sequence[PartitionDir], rulings: Mapping[tuple[str, str], Ruling]) -> list[PartitionDir]:
        """Those of `dirs`, which are about to be acted on, that have to be covered by another copy."""
        return [
            d
            for d in dirs
            if d.kind is Kind.STRAY
            or ((key := (d.log_dir, d.name)) in self.marked and key in rulings and needs_cover(rulings[key]))
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
        by_journal = dir_history.recent(self.journal, at_ms) if self.journal_problem is None else ()
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

    def rule_on_strays(
        self, strays: Sequence[PartitionDir], now_ms: int, *, to_act: bool = False
    ) -> dict[tuple[str, str], StrayRuling]:
        """Whether the strays that are about to be removed may be; `to_act`: right now."""
        if not strays:
            return {}
        host = self._host()
        proven = dir_history.proven_absent(self.sightings().values(), self.settings.cleanup)
        questions = StrayQuestions(
            self.assignments,
            host,
            # With the current directories, for canaries.
            absent_ids([*strays, *self.of_kind(Kind.CURRENT)], self.assignments, host, now_ms, proven),
            self.log_dirs.opened(),
            self.ours(),
            self.calls,
            self.dirs,
            self.marks(),
            now_ms,
            self.ask_leaders,
            self.reads,
            to_act,
            self.brokers,
        )
        return questions.rule_on(strays)

    def _rule_on_doubles(
        self, dirs: Sequence[PartitionDir], *, to_act: bool = False
    ) -> dict[tuple[str, str], StrayRuling]:
        asked = [(d, other) for d in dirs if (other := self.doubles.get((d.log_dir, d.name))) is not None]
        return rule_on_doubles(asked, self.ours(), self.calls, self.reads, to_act=to_act) if asked else {}

    def ours(self) -> dict[str, OpenLogDir]:
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
        seen = look_at_versions(self.target, holders, self.assignments, cluster.cluster_id, last_run)
        self._remember_version(seen, {f.holder.pid for f in log_dirs.values() if f.holder.state is HolderState.HELD})
        return which_version(seen)

    def _remember_version(self, seen: VersionLook, serving: Collection[int | None]) -> None:
        """A newer version only once it serves: a start that fails says nothing about the next one."""
        cluster, running, before = self.log_dirs.cluster, seen.running, seen.last_run
        if not self.acting or self.state_dir is None or running is None or running == before.version:
            return
        if cluster.cluster_id is None or cluster.node_id is None:
            return
        older = before.version is not None and running < before.version
        if older or before == LastRun(file=before.file) or seen.pid in serving:
            write_version_seen(self.state_dir, cluster.cluster_id, cluster.node_id, running)

    def _assigned(self, rulings: Mapping[tuple[str, str], Ruling]) -> Keys:
        """What counts as assigned for the blast radius: by verdict, or every current dir if nothing is known."""
        if self.assignments.usable:
            return Keys(lambda: (key for key, ruling in rulings.items() if ruling.verdict is not Verdict.ORPHAN))
        dirs = self.dirs
        return Keys(lambda: ((d.log_dir, d.name) for d in dirs if d.kind is Kind.CURRENT))

    def _mark_serving(self, log_dirs: dict[str, LogDirFacts], now_ms: int) -> dict[str, LogDirFacts]:
        brokers = brokers_to_ask(
            self.assignments, self.target, self.settings, self._host(), self.dirs, log_dirs, now_ms
        )
        if self.brokers is None or not self.brokers.same_as(brokers):
            self.close_questions()
            self.brokers = brokers
        own_log, host = self.assignments.own_log, self._host()
        registration = None
        if own_log is not None and host.node_id is not None and own_log.cluster_id == host.cluster_id:
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
        spared = self.spared
        proposals = [p for p in proposals if p.dir.log_dir not in spared]
        waiting = [w for w in waiting if w.log_dir not in spared]
        going = [p.dir for p in proposals if needs_ruling(p, facts)]
        self.marked |= {p.key for p in proposals if p.action is ActionKind.MARK and p.dir.kind is not Kind.STRAY}
        doubles = self._rule_on_doubles([p.dir for p in proposals if p.double])
        facts = replace(facts, strays=self.rule_on_strays(going, facts.now_ms), doubles=doubles)
        return assemble(proposals, waiting, facts, GUARDS, self.limits, approve=approve, refusals=refusals)

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
        from logagent.agent.execute.checkpoint_entries import entries_to_drop

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
        # Not at the top: commands that only look do not need it.
        from logagent.agent.execute.log_manager import LogManager

        delete = self.settings.delete
        budget = ByteBudget(delete.bytes_per_second) if delete.bytes_per_second else None
        return LogManager(
            log_dirs=self.log_dirs.by_path | self.log_dirs.quarantine,
            journal=self.journal,
            clock=self.clock,
            look=partial(self.facts_to_act, stop=stop),
            actor=self.actor,
            control=WorkControl(stop=stop, budget=budget, workers=delete.workers, on_progress=on_progress),
            calls=self.calls,
            # The next cycle is due by then: what is due in one log dir should not wait any longer for a slow one.
            longest_seconds=self.settings.cleanup.interval / 1000 if len(self.target.log_dirs) > 1 else None,
        )


def new_uuid() -> str:
    """For a name that we give now: 32 hex digits as in Kafka's names, recognisable as ours."""
    return rename_uuid(time.time_ns() // 1_000_000, os.urandom(RANDOM_BYTES))
