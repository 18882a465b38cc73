"""The journal as one plan writes it: an intent per action before the act, an outcome after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from logagent.host.state.journal import CheckpointEntry, Intent, Journal
from logagent.model.facts import Facts
from logagent.model.planning.acts import proof_of
from logagent.model.planning.plan import Proposal, action_id
from logagent.model.planning.proposals import orphan_because
from logagent.model.records import Outcome

NO_ENTRIES: Mapping[str, tuple[CheckpointEntry, ...]] = {}


@dataclass(frozen=True, slots=True)
class PlanJournal:
    """`actor`: who carries out the plan. Every method raises JournalError; then nothing more may be done."""

    journal: Journal
    now_ms: Callable[[], int]
    plan_id: str
    actor: str

    def begin(
        self,
        proposals: Sequence[Proposal],
        entries: Mapping[str, tuple[CheckpointEntry, ...]] = NO_ENTRIES,
        *,
        closed_cleanly: bool | None = None,
        facts: Facts | None = None,
    ) -> list[int]:
        """Make the intents durable; returns their ids, in order. `entries`: by action id, the entries removed from the
        checkpoints; `facts`: those on which the guards have just passed."""
        intents = [
            self._intent(p, entries.get(action_id(p), ()) if entries else (), closed_cleanly, facts) for p in proposals
        ]
        return self.journal.begin(intents, self.now_ms())

    def finish(self, outcomes: Iterable[tuple[int, Outcome, str | None]]) -> None:
        self.journal.finish(outcomes, self.now_ms())

    def _intent(
        self, p: Proposal, entries: tuple[CheckpointEntry, ...], closed_cleanly: bool | None, facts: Facts | None
    ) -> Intent:
        whole_name = None if p.dir.truncated else p.dir.topic
        return Intent(
            action=p.action,
            log_dir=p.dir.log_dir,
            name=p.dir.name,
            new_name=p.new_name,
            topic=p.full_topic or whole_name,
            partition=p.dir.partition,
            topic_id=p.dir.topic_id,
            identity=p.dir.identity,
            bytes=p.dir.bytes,
            plan_id=self.plan_id,
            actor=self.actor,
            approved=p.approved,
            checkpoint_entries=entries,
            new_dir=p.new_dir,
            through=p.through,
            files=p.dir.files,
            segments=p.dir.segments,
            removal_started=p.dir.removal_started,
            allocated=p.dir.allocated,
            closed_cleanly=closed_cleanly,
            reason=orphan_because(p, facts) if facts is not None else None,
            claims=_claims(p, facts) if facts is not None else (),
        )


def _claims(p: Proposal, facts: Facts) -> tuple[tuple[str, str, int], ...]:
    return tuple((held.claim.value, held.witness.value, held.as_of_ms) for held in proof_of(p, facts))
