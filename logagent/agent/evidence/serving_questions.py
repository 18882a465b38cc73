"""Which brokers serve and which may still be starting: asks them, and remembers the answers."""

from __future__ import annotations

from dataclasses import dataclass

from logagent.agent.evidence.brokers_to_ask import BrokersToAsk
from logagent.host.state.journal import Journal
from logagent.model.facts import LogDirFacts
from logagent.model.health.serving import mark_serving
from logagent.model.records import HolderState


@dataclass(frozen=True, slots=True)
class ServingQuestions:
    """`acting`: answers are noted in the journal."""

    journal: Journal
    brokers: BrokersToAsk
    settle_ms: int
    acting: bool
    now_ms: int

    def tell(self, log_dirs: dict[str, LogDirFacts]) -> dict[str, LogDirFacts]:
        """`log_dirs`, with serving brokers distinguished from those that may still be starting.

        The holders were looked at before the question: an answer that comes after it is of that process, or of one that
        has started and loaded everything since (a broker that stops answers nobody once it has unlocked its log dirs).
        """
        if all(f.holder.state is not HolderState.STARTING for f in log_dirs.values()):
            return log_dirs
        known = self.journal.serving()
        told, noted = mark_serving(log_dirs, known, self._why_not_serving, self.settle_ms, self.now_ms)
        if self.acting and noted != known:
            self.journal.note_serving(noted)
        return told

    def _why_not_serving(self, path: str) -> str | None:
        if self.brokers.serves(path):
            return None
        why = self.brokers.broker_problem
        return "it does not say yet that it serves this log dir" + (f": {why}" if why is not None else "")
