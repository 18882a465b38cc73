"""Removal of marked and stray directories, one after the other: `LogManager.deleteLogs`.

Per directory: facts and guards again, the intent made durable ("removal started": from here on restore refuses), the
files, the outcome. Deviation: Kafka forgets a failed removal until its next start; here it stays queued, with backoff.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from logagent.agent.execute.plan_journal import PlanJournal
from logagent.broker.files.partition_metadata import same_topic_id
from logagent.broker.process.lock import Watch
from logagent.errors import BrokerHoldsLogDir, LogAgentError, RemovalStopped
from logagent.host.log_dir.calls import StoppableHolderWatch, StoppableInterlock
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.removal.remove import Removed, remove_dir
from logagent.host.removal.work_control import WorkControl
from logagent.model.facts import Facts
from logagent.model.planning.plan import ActionResult, Proposal
from logagent.model.records import HolderState, Kind, Outcome

# Tested from this release on: a live broker tolerates that the `.log` files of its strays are truncated.
TRUNCATES_HELD_SINCE = (3, 9, 0)


@dataclass(frozen=True, slots=True)
class Remover:
    """Removes what it is given. Raises only JournalError; any other failure is the result for that directory."""

    log_dirs: Mapping[str, OpenLogDir]
    journal: PlanJournal
    control: WorkControl
    unsettled: list[tuple[int, Proposal, ActionResult]] = field(default_factory=list)

    def run(self, p: Proposal, facts: Facts) -> ActionResult:
        """Remove one directory that every guard has just passed on `facts`.

        Its outcome is written with the next intent, or by `settle`: one fsync per directory. A crash in between leaves
        its intent open, and `recovery` finds that the directory no longer exists.
        """
        with self.journal.journal.together():
            self._record()
            (action,) = self.journal.begin([p])
        self.unsettled.clear()
        result = self._attempt(p, facts)
        self.unsettled.append((action, p, result))
        return result

    def settle(self) -> None:
        """Record the outcomes of the removals so far, in one transaction."""
        if self.unsettled:
            with self.journal.journal.together():
                self._record()
            self.unsettled.clear()

    def _record(self) -> None:
        failures = self.journal.journal
        self.journal.finish([(action, result.outcome, result.error) for action, _, result in self.unsettled])
        for _, p, result in self.unsettled:
            if result.outcome is Outcome.FAILED:
                failures.record_failure(p.dir.log_dir, p.dir.name, result.error or "", self.journal.now_ms())
            elif result.outcome is Outcome.DONE:
                failures.clear_failures([(p.dir.log_dir, p.dir.name)])

    def _attempt(self, p: Proposal, facts: Facts) -> ActionResult:
        try:
            removed = self._remove(p, facts)
        except (BrokerHoldsLogDir, RemovalStopped) as e:
            return ActionResult(Outcome.YIELDED, str(e))
        except LogAgentError as e:
            return ActionResult(Outcome.FAILED, str(e))
        return ActionResult(Outcome.DONE, freed_bytes=removed.freed_bytes)

    def _remove(self, p: Proposal, facts: Facts) -> Removed:
        log_dir = self.log_dirs[p.dir.log_dir]
        holder = facts.log_dirs[p.dir.log_dir].holder
        held = holder.state is HolderState.HELD
        # The ruling on a stray used the topic id that the inventory saw. A half-removed directory may have none.
        asked = p.dir.kind is Kind.STRAY and not p.removal_started

        def watch() -> Watch:
            if held:
                return StoppableHolderWatch(log_dir.fd, log_dir.path, holder.pid, self.control.given_up)
            return StoppableInterlock(log_dir.fd, log_dir.path, self.control.given_up)

        return remove_dir(
            log_dir,
            p.dir.name,
            p.dir.identity,
            watch(),
            more_interlocks=tuple(watch() for _ in range(self.control.workers - 1)),
            control=self.control,
            held_by_holder=held,
            truncate_held=facts.kafka_version is not None and facts.kafka_version >= TRUNCATES_HELD_SINCE,
            check=partial(same_topic_id, p.dir) if asked else None,
            seen=p.dir,
        )
