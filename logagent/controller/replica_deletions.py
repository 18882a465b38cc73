"""The part of `TopicDeletionManager` that handles single replicas: live and silent hosts, answers, failures, pauses.

A replica that cannot be deleted holds up only itself. Methods take the current time as an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from logagent.controller.controller_context import (
    ControllerContext,
    PartitionState,
    Reason,
    Replica,
    ReplicaState,
    Topic,
)
from logagent.controller.replica_state_machine import ReplicaStateMachine
from logagent.model.planning.plan import GuardName
from logagent.store.deletion import SUCCESSES, Action, Identity, Result

IDENTITY_GUARD: GuardName = "identity"
RESTORED_GUARD: GuardName = "restored"
NO_ANSWER_GUARD: GuardName = "answer"
_S = ReplicaState


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long an answer may take, and how the pauses between attempts grow."""

    answer_within: timedelta = timedelta(minutes=15)
    first: timedelta = timedelta(minutes=5)
    longest: timedelta = timedelta(hours=6)
    soonest: timedelta = timedelta(seconds=10)

    def after_failing(self, so_long: timedelta, longest: timedelta) -> timedelta:
        """The pause if nothing but the store remembers attempts: as long again as it has been failing."""
        return min(longest, max(self.soonest, so_long))

    def after(self, attempts: int) -> timedelta:
        return min(self.longest, self.first * (1 << min(max(attempts - 1, 0), 16)))


class ReplicaDeletions:
    """The replicas of everything that is queued. Not thread-safe."""

    def __init__(self, context: ControllerContext, warn: Callable[[str], None], pauses: Pauses | None) -> None:
        self.context = context
        self.replica_state_machine = ReplicaStateMachine(context, warn)
        self._pauses = pauses or Pauses()

    def add_replica(self, topic: Topic, partition: int, node_id: int, now: datetime) -> bool:
        """Add a copy that the cluster or a snapshot shows and the request does not list; False if it is known."""
        if Replica(topic, partition, node_id) in self.context.replicas:
            return False
        known = self.context.topics_to_be_deleted[topic]
        if known.kind == "topics" and not known.started:
            known.partitions.setdefault(partition, PartitionState.ONLINE)
        if self._add(Replica(topic, partition, node_id), now):
            self._wake(topic, now)
            return True
        return False

    def _add(self, replica: Replica, now: datetime) -> bool:
        online = self.context.is_replica_online(replica.node_id)
        added = self.context.add_replica(replica, _S.ONLINE if online else _S.INELIGIBLE, now)
        if added and not online:
            self.context.replicas[replica].reason = self._silence(replica.node_id)
        return added

    def on_broker_startup(self, node_id: int, now: datetime) -> None:
        """A node reports (again): resume what waited for it."""
        if node_id in self.context.live_nodes:
            return
        self.context.live_nodes.add(node_id)
        self.context.silent_nodes.pop(node_id, None)
        self.resume_deletion_for_node(node_id, now)

    def resume_deletion_for_node(self, node_id: int, now: datetime, topic_ids: Collection[str] | None = None) -> None:
        """Something changed on a node (log dir back, broker stopped, …): ask again about what it refused, or only about
        the given topics."""
        for replica in self.context.replicas_on_node(node_id):
            if topic_ids is not None and replica.topic.topic_id not in topic_ids:
                continue
            known = self.context.replicas[replica]
            if known.state is _S.INELIGIBLE and not (known.reason is not None and known.reason.final):
                known.retry_at = now
                self._wake(replica.topic, now)

    def on_broker_failure(self, node_id: int, why: str, now: datetime) -> None:
        """A node fell silent, or two hosts claim its id. Replicas that succeeded there keep their state."""
        self.context.live_nodes.discard(node_id)
        self.context.silent_nodes[node_id] = why
        waiting = (_S.OFFLINE, _S.STARTED)
        lost = [r for r in self.context.replicas_on_node(node_id) if self.context.replicas[r].state in waiting]
        self.fail_replica_deletion(dict.fromkeys(lost, self._silence(node_id)), now)
        for replica in self.context.replicas_on_node(node_id):
            known = self.context.replicas[replica]
            if known.state is _S.INELIGIBLE and not (known.reason is not None and known.reason.final):
                known.reason = self._silence(node_id)

    def fail_replica_deletion(self, replicas: Mapping[Replica, Reason], now: datetime) -> None:
        """These cannot be deleted now; each is retried when something changes, otherwise after a growing pause."""
        for replica in self.replica_state_machine.handle_state_changes(replicas, _S.INELIGIBLE, now):
            known, reason = self.context.replicas[replica], replicas[replica]
            known.reason, known.held = reason, None
            known.attempts += 1
            # A directory that changed between `stop` and `delete` is looked at again at once, but not forever.
            fresh = reason.guard == IDENTITY_GUARD and known.attempts <= 3
            known.retry_at = None if reason.final else now if fresh else now + self._pauses.after(known.attempts)
            self._wake(replica.topic, now)

    def pause_for(self, replica: Replica, failing: timedelta, now: datetime) -> None:
        """A replica has been failing for so long, as a look at the store shows: that decides when to ask again."""
        known = self.context.replicas[replica]
        if known.state is _S.INELIGIBLE and known.retry_at is not None:
            known.retry_at = now + self._pauses.after_failing(failing, self._pauses.longest)

    def complete_replica_deletion(self, replica: Replica, result: str, now: datetime) -> None:
        """A replica is deleted: renamed, removed or absent. This counts in any state, through legal moves: an agent may
        obey an order long after we stopped waiting for the answer."""
        machine, state = self.replica_state_machine, self.context.replicas[replica].state
        if state is _S.SUCCESSFUL:
            return
        steps = {_S.STARTED: (), _S.OFFLINE: (_S.STARTED,)}.get(state, (_S.OFFLINE, _S.STARTED))
        for step in (*steps, _S.SUCCESSFUL):
            machine.handle_state_changes([replica], step, now, tell=False)
        self.context.replicas[replica].result = result
        self._wake(replica.topic, now)

    def receive_answer(self, replica: Replica, action: Action, results: Sequence[Result], now: datetime) -> None:
        """Take a host's answer to one order about one replica, with a result for each directory.

        Unknown replicas, and answers that say nothing new, change nothing.
        """
        known = self.context.replicas.get(replica)
        if known is None or not results or known.state is _S.SUCCESSFUL:
            return
        if all(r.result in SUCCESSES for r in results):
            names = {r.result for r in results}
            self.complete_replica_deletion(replica, names.pop() if len(names) == 1 else "removed", now)
        elif not is_failure(action, results):
            self._note_what_is_held(replica, tuple(r.directory for r in results if r.directory is not None), now)
        elif known.state is (_S.OFFLINE if action == "stop" else _S.STARTED) and known.asked_at is not None:
            self.fail_replica_deletion({replica: _reason(results)}, now)
        elif known.state is _S.INELIGIBLE and self._live(replica):
            # A later answer to an order that is still valid, or one that came after we stopped waiting for it.
            known.reason = _reason(results)
            known.retry_at = None if known.reason.final else known.retry_at

    def _note_what_is_held(self, replica: Replica, held: tuple[Identity, ...], now: datetime) -> None:
        """Record the answer to `stop`. A late answer counts too: otherwise a slow agent would be asked forever."""
        known = self.context.replicas[replica]
        late = known.state is _S.INELIGIBLE and known.reason is not None and known.reason.guard == NO_ANSWER_GUARD
        if late and self._live(replica):
            self.replica_state_machine.handle_state_changes([replica], _S.OFFLINE, now, tell=False)
        if known.state is _S.OFFLINE and known.asked_at is not None:
            known.held = held
            self._wake(replica.topic, now)
        elif known.asked_at is None and known.state in (_S.OFFLINE, _S.ONLINE):
            known.told = held

    def _live(self, replica: Replica) -> bool:
        return self.context.is_replica_online(replica.node_id)

    def _silence(self, node_id: int) -> Reason:
        return Reason(self.context.silent_nodes.get(node_id, "its host has not reported yet"))

    def _wake(self, topic: Topic, now: datetime) -> None:
        known = self.context.topics_to_be_deleted[topic]
        if known.retry_at is None or known.retry_at > now:
            known.retry_at = now


def is_failure(action: Action, results: Sequence[Result]) -> bool:
    """Whether an answer says neither that a replica is gone nor, asked to `stop`, what its host has of it."""
    if action == "stop" and all(r.result == "waiting" and r.directory is not None for r in results):
        return False
    return not all(r.result in SUCCESSES for r in results)


def _reason(results: Sequence[Result]) -> Reason:
    """The first refusal among a replica's results, in words."""
    bad = next(r for r in results if r.result not in SUCCESSES)
    why = bad.fact or {
        "waiting": "waiting for the broker's next stop",
        "offline": "its log dir is offline",
        "failed": "the host failed",
    }.get(bad.result, bad.result)
    return Reason(why, bad.guard, bad.hint, final=bad.guard == RESTORED_GUARD)
