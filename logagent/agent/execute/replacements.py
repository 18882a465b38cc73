"""`restore --replace` of one partition: the current directory and the restored one are exchanged.

One exchange, so that the partition is current at every moment, whatever is killed and whichever broker starts; then one
rename from stray name to stray name, so that the restored directory's old name no longer leads to the displaced one. If
that rename does not happen, its intent stays open in the journal, and `recovery` finishes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from logagent.agent.execute.indexes import drop_indexes
from logagent.agent.execute.renames import RenameBatch
from logagent.broker.files.meta_properties import same_topic_id
from logagent.errors import BrokerHoldsLogDir, KafkaStorageError, LogAgentError
from logagent.host.log_dir.log_dir import Place, exchange
from logagent.model.planning.plan import ActionResult, Proposal, action_id
from logagent.model.records import Outcome


class Replacement(RenameBatch):
    """A batch of exactly two: what is displaced, and what comes back.

    `log_dir` is where the partition is current, `source` where the one to restore is, `target` where the displaced one
    goes.
    """

    def _rename_all(self, proposals: Sequence[Proposal]) -> None:
        displaced, back = proposals
        if self.stop():
            self._both(proposals, ActionResult(Outcome.SKIPPED, "stopped before it was reached"))
            return
        try:
            drop_indexes(self.source, back, self.interlock)
            exchange(
                Place(self.log_dir, displaced.dir.name, displaced.dir.identity, partial(same_topic_id, displaced.dir)),
                Place(self.source, back.dir.name, back.dir.identity, partial(same_topic_id, back.dir)),
                self.interlock,
            )
        except BrokerHoldsLogDir as e:
            self._both(proposals, ActionResult(Outcome.YIELDED, str(e)))
        except KafkaStorageError as e:
            self.uncertain.update(map(action_id, proposals))
            self._both(proposals, ActionResult(Outcome.FAILED, str(e)))
        except LogAgentError as e:
            self._both(proposals, ActionResult(Outcome.FAILED, str(e)))
        else:
            self._both(proposals, ActionResult(Outcome.DONE))
            self._name_displaced(displaced, back)
            self._fsync(proposals)

    def _both(self, proposals: Sequence[Proposal], result: ActionResult) -> None:
        self.results.update({action_id(p): result for p in proposals})

    def _name_displaced(self, displaced: Proposal, back: Proposal) -> None:
        assert displaced.new_name is not None
        try:
            self.interlock.expire()
            self.source.rename(back.dir.name, displaced.new_name, displaced.dir.identity, self.interlock, self.target)
        except LogAgentError as e:
            where = f"it is set aside as {self.source.path}/{back.dir.name} now and gets its own name later"
            outcome = Outcome.YIELDED if isinstance(e, BrokerHoldsLogDir) else Outcome.FAILED
            self.results[action_id(displaced)] = ActionResult(outcome, f"{where}: {e}")
            self.uncertain.add(action_id(displaced))
