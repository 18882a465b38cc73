"""Removal of marked and stray directories, one after the other: `LogManager.deleteLogs`.

Per directory: facts and guards anew, the intent made durable ("removal begun": from here on restore refuses), the
files, the outcome. Deviation: Kafka forgets a failed removal until its next start; here it stays queued, with backoff.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from logagent.broker.process.lock import Watch
from logagent.errors import BrokerHoldsLogDir, LogAgentError, RemovalStopped
from logagent.host.log_dir.calls import Stop, StoppableHolderWatch, StoppableInterlock, never
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.removal.budget import ByteBudget
from logagent.host.removal.remove import Removed, remove_dir
from logagent.host.state.journal import Intent, Journal
from logagent.model.facts import Facts
from logagent.model.planning.plan import ActionResult, Proposal
from logagent.model.records import HolderState, Outcome

# Releases of which it was tried that a live broker does not mind when the `.log` files of its strays are truncated.
TRUNCATES_HELD_SINCE = (3, 9, 0)


@dataclass(slots=True)
class Remover:
    """Removes what it is given. Raises JournalError only; everything else is the result of that one directory.

    `given_up`: nobody waits for this any more; nothing is changed from then on, not even in the middle of a file.
    """

    log_dirs: Mapping[str, OpenLogDir]
    journal: Journal
    now_ms: Callable[[], int]
    plan_id: str
    actor: str
    stop: Stop
    given_up: Stop = never
    budget: ByteBudget | None = None
    workers: int = 1
    on_progress: Callable[[int, int], None] | None = None

    def run(self, p: Proposal, facts: Facts) -> ActionResult:
        """Remove one directory, which every guard has just let pass on `facts`."""
        if self.stop():
            return ActionResult(Outcome.SKIPPED, "stopped before it was this one's turn")
        (action,) = self.journal.begin([self._intent(p)], self.now_ms())
        result = self._attempt(p, facts)
        self.journal.finish([(action, result.outcome, result.error)], self.now_ms())
        if result.outcome is Outcome.FAILED:
            self.journal.record_failure(p.dir.log_dir, p.dir.name, result.error or "", self.now_ms())
        elif result.outcome is Outcome.DONE:
            self.journal.clear_failures([(p.dir.log_dir, p.dir.name)])
        return result

    def _intent(self, p: Proposal) -> Intent:
        return Intent(
            action=p.action,
            log_dir=p.dir.log_dir,
            name=p.dir.name,
            new_name=None,
            topic=p.full_topic or p.dir.topic,
            partition=p.dir.partition,
            topic_id=p.dir.topic_id,
            identity=p.dir.identity,
            bytes=p.dir.bytes,
            plan_id=self.plan_id,
            actor=self.actor,
            approved=p.approved,
        )

    def _attempt(self, p: Proposal, facts: Facts) -> ActionResult:
        try:
            removed = self._remove(p, facts)
        except BrokerHoldsLogDir as e:
            return ActionResult(Outcome.YIELDED, str(e))
        except RemovalStopped as e:
            return ActionResult(Outcome.YIELDED, str(e))
        except LogAgentError as e:
            return ActionResult(Outcome.FAILED, str(e))
        return ActionResult(Outcome.DONE, freed_bytes=removed.freed_bytes)

    def _remove(self, p: Proposal, facts: Facts) -> Removed:
        log_dir = self.log_dirs[p.dir.log_dir]
        holder = facts.log_dirs[p.dir.log_dir].holder
        held = holder.state is HolderState.HELD

        def watch() -> Watch:
            if held:
                return StoppableHolderWatch(log_dir.fd, log_dir.path, holder.pid, self.given_up)
            return StoppableInterlock(log_dir.fd, log_dir.path, self.given_up)

        return remove_dir(
            log_dir,
            p.dir.name,
            p.dir.identity,
            watch(),
            more_interlocks=tuple(watch() for _ in range(self.workers - 1)),
            budget=self.budget,
            on_progress=self.on_progress,
            held_by_holder=held,
            truncate_held=facts.kafka_version is not None and facts.kafka_version >= TRUNCATES_HELD_SINCE,
            stop=self.stop,
        )
