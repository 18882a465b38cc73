"""Which brokers serve their log dirs and which may still be starting: asks them, and remembers the answers."""

from __future__ import annotations

from dataclasses import dataclass

from logagent.base.claims import Witness
from logagent.base.records import HolderState
from logagent.cleanup.state.journal import Journal
from logagent.kafka.image import BrokerRegistration
from logagent.verdict.evidence.brokers_to_ask import BrokersToAsk
from logagent.verdict.facts import LogDirFacts
from logagent.verdict.serving import NotServing, mark_serving, registered_by


@dataclass(frozen=True, slots=True)
class ServingQuestions:
    """`registration`: this broker's, by the metadata log on this host. `acting`: what is found out is noted in the
    journal."""

    journal: Journal
    brokers: BrokersToAsk
    registration: BrokerRegistration | None
    settle_ms: int
    acting: bool
    now_ms: int

    def tell(self, log_dirs: dict[str, LogDirFacts]) -> dict[str, LogDirFacts]:
        """`log_dirs`, with serving brokers distinguished from those that may still be starting.

        The holders were looked at before the question: an answer that comes after it is of that process, or of one that
        has started and loaded everything since (a broker that stops answers nobody once it has unlocked its log dirs).
        """
        incarnation = self.registration.incarnation if self.registration is not None else None
        if self.acting and incarnation is not None and incarnation not in self.journal.incarnations():
            self.journal.note_incarnation(incarnation, self.now_ms)
        if all(f.holder.state is not HolderState.STARTING for f in log_dirs.values()):
            return log_dirs
        known = self.journal.serving()
        marked, noted = mark_serving(
            log_dirs, known, self._who_says_serving, self.settle_ms, self.now_ms, self.registration
        )
        if self.acting and noted != known:
            self.journal.note_serving(noted)
        return marked

    def _who_says_serving(self, where: LogDirFacts) -> Witness | NotServing:
        if registered_by(where.holder, self.registration, self.journal.incarnations(), where.directory_id):
            return Witness.REGISTRATION
        if self.brokers.serves(where.path):
            return Witness.DESCRIBE_LOG_DIRS
        why = self.brokers.broker_problem
        return NotServing("it does not say yet that it serves this log dir" + (f": {why}" if why is not None else ""))
