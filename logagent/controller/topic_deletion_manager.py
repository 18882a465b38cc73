"""Kafka's `TopicDeletionManager`: sees each topic that is queued for deletion through, replica by replica.

What differs from Kafka is said where it differs. Living topics are deleted by the cluster (`DeletionClient`), and only
what it acknowledged is followed onto the disks. A host answers `stop` (OfflineReplica) with what it holds before it is
told to delete (ReplicaDeletionStarted). One replica that cannot go holds up only itself. Every method takes the time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from logagent.controller.controller_context import (
    ControllerContext,
    PartitionState,
    Reason,
    Replica,
    ReplicaState,
    Topic,
    TopicProgress,
)
from logagent.controller.deletion_client import DeletionClient, TopicOutcome
from logagent.controller.partition_state_machine import PartitionStateMachine
from logagent.controller.replica_state_machine import ReplicaStateMachine
from logagent.store.deletion import SUCCESSES, Action, Identity, Request, Result

Gate = Callable[[Collection[Replica]], Mapping[Replica, Reason]]
"""Asked right before orders `delete` are written: which of these replicas must not go now, and why."""

IDENTITY_GUARD = "identity"
RESTORED_GUARD = "restored"
NO_ANSWER_GUARD = "answer"
_S = ReplicaState


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long an answer may take, and how the pauses between two tries grow."""

    answer_within: timedelta = timedelta(minutes=15)
    first: timedelta = timedelta(minutes=5)
    longest: timedelta = timedelta(hours=6)

    def after(self, attempts: int) -> timedelta:
        return min(self.longest, self.first * (1 << min(max(attempts - 1, 0), 16)))


class TopicDeletionManager:
    """Decides what happens next to everything that is queued for deletion. Not thread-safe.

    `warn` is told, in one line each, what was refused or dropped.
    """

    def __init__(
        self,
        context: ControllerContext,
        client: DeletionClient,
        *,
        gate: Gate = lambda replicas: {},
        warn: Callable[[str], None] = lambda line: None,
        pauses: Pauses | None = None,
    ) -> None:
        self.context = context
        self.replica_state_machine = ReplicaStateMachine(context, warn)
        self.partition_state_machine = PartitionStateMachine(context, warn)
        self._client = client
        self._gate = gate
        self._warn = warn
        self._pauses = pauses or Pauses()

    def enqueue_topics_for_deletion(self, request: Request, now: datetime) -> None:
        """Queue a request's topics, as at a start or a takeover: replicas on hosts that are heard begin as
        `OnlineReplica`, others as `ReplicaDeletionIneligible`, directories of a report as `OfflineReplica`."""
        for asked in request.topics:
            topic = Topic(request.request_id, asked.topic_id)
            partitions = [p.partition for p in asked.partitions]
            self.context.add_topic(topic, asked.topic, "topics", partitions, now)
            for partition in asked.partitions:
                for node in partition.replicas:
                    self._add(Replica(topic, partition.partition, node), now)
            self._wake(topic, now)
        for found in request.directories:
            topic = Topic(request.request_id, found.topic_id)
            self.context.add_topic(topic, found.topic, "directories", (), now).started = True
            replica = Replica(topic, found.partition, found.node_id, found.log_dir, found.name)
            self.context.add_replica(replica, _S.OFFLINE, now)
            self._wake(topic, now)

    def add_replica(self, topic: Topic, partition: int, node_id: int, now: datetime) -> bool:
        """A snapshot or an answer shows a copy that the request does not list; False if it is known."""
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

    def dequeue(self, request_id: str) -> None:
        """Forget a cancelled (or dropped) request; what was done stays done."""
        for topic in [t for t in self.context.topics_to_be_deleted if t.request_id == request_id]:
            self.context.remove_topic(topic)

    def on_broker_startup(self, node_id: int, now: datetime) -> None:
        """A node is heard (again): what waited for it is resumed."""
        if node_id in self.context.live_nodes:
            return
        self.context.live_nodes.add(node_id)
        self.context.silent_nodes.pop(node_id, None)
        self.resume_deletion_for_node(node_id, now)

    def resume_deletion_for_node(self, node_id: int, now: datetime) -> None:
        """Something changed on a node (log dir back, broker stopped, other facts): its refusals are asked again."""
        for replica in self.context.replicas_on_node(node_id):
            known = self.context.replicas[replica]
            if known.state is _S.INELIGIBLE and not (known.reason is not None and known.reason.final):
                known.retry_at = now
                self._wake(replica.topic, now)

    def on_broker_failure(self, node_id: int, why: str, now: datetime) -> None:
        """A node fell silent (or two hosts claim its id). What succeeded there stays so."""
        self.context.live_nodes.discard(node_id)
        self.context.silent_nodes[node_id] = why
        waiting = (_S.OFFLINE, _S.STARTED)
        lost = [r for r in self.context.replicas_on_node(node_id) if self.context.replicas[r].state in waiting]
        self.fail_replica_deletion(dict.fromkeys(lost, self._silence(node_id)), now)
        for replica in self.context.replicas_on_node(node_id):
            known = self.context.replicas[replica]
            if known.state is _S.INELIGIBLE and not (known.reason is not None and known.reason.final):
                known.reason = self._silence(node_id)

    def mark_topics_ineligible_for_deletion(self, topics: Iterable[Topic], what: str, why: str) -> None:
        """Hold topics up as a whole (`what` = "reassignment", …) until `resume_deletion_for_topics` names it."""
        for topic in topics:
            if topic in self.context.topics_to_be_deleted:
                self.context.topics_to_be_deleted[topic].ineligible[what] = why

    def resume_deletion_for_topics(self, topics: Iterable[Topic], what: str, now: datetime) -> None:
        """What held these topics up is over."""
        for topic in topics:
            known = self.context.topics_to_be_deleted.get(topic)
            if known is not None and known.ineligible.pop(what, None) is not None:
                self._wake(topic, now)

    def fail_replica_deletion(self, replicas: Mapping[Replica, Reason], now: datetime) -> None:
        """These cannot go now; each is tried again when something changes, else after a pause that grows."""
        for replica in self.replica_state_machine.handle_state_changes(replicas, _S.INELIGIBLE, now):
            known, reason = self.context.replicas[replica], replicas[replica]
            known.reason, known.held = reason, None
            known.attempts += 1
            # What changed between look and act needs a fresh look at once, but not for ever.
            fresh = reason.guard == IDENTITY_GUARD and known.attempts <= 3
            known.retry_at = None if reason.final else now if fresh else now + self._pauses.after(known.attempts)
            self._wake(replica.topic, now)

    def complete_replica_deletion(self, replica: Replica, result: str, now: datetime) -> None:
        """A replica is gone: renamed, removed or absent. It counts in whatever state the answer finds it, by the legal
        way: an order that stood may be obeyed long after we stopped waiting for it."""
        machine, state = self.replica_state_machine, self.context.replicas[replica].state
        if state is _S.SUCCESSFUL:
            return
        steps = {_S.STARTED: (), _S.OFFLINE: (_S.STARTED,)}.get(state, (_S.OFFLINE, _S.STARTED))
        for step in (*steps, _S.SUCCESSFUL):
            machine.handle_state_changes([replica], step, now, tell=False)
        self.context.replicas[replica].result = result
        self._wake(replica.topic, now)

    def receive_answer(self, replica: Replica, action: Action, results: Sequence[Result], now: datetime) -> None:
        """What a host says about one replica, to one order: a result for each directory that it concerns.

        Unknown replicas, and answers that say nothing new, change nothing.
        """
        known = self.context.replicas.get(replica)
        if known is None or not results or known.state is _S.SUCCESSFUL:
            return
        if all(r.result in SUCCESSES for r in results):
            names = {r.result for r in results}
            self.complete_replica_deletion(replica, names.pop() if len(names) == 1 else "removed", now)
        elif action == "stop" and all(r.result == "waiting" and r.directory is not None for r in results):
            self._note_what_is_held(replica, tuple(r.directory for r in results if r.directory is not None), now)
        elif known.state is (_S.OFFLINE if action == "stop" else _S.STARTED):
            self.fail_replica_deletion({replica: _reason(results)}, now)
        elif known.state is _S.INELIGIBLE and self._live(replica):
            # A later word on an order that still stands, or one that came after we stopped waiting for it.
            known.reason = _reason(results)
            known.retry_at = None if known.reason.final else known.retry_at

    def _note_what_is_held(self, replica: Replica, held: tuple[Identity, ...], now: datetime) -> None:
        """An answer to `stop` counts while it is waited for, and also when it comes late: a slow agent must not be
        asked for ever."""
        known = self.context.replicas[replica]
        late = known.state is _S.INELIGIBLE and known.reason is not None and known.reason.guard == NO_ANSWER_GUARD
        if late and self._live(replica):
            self.replica_state_machine.handle_state_changes([replica], _S.OFFLINE, now, tell=False)
        if known.state is _S.OFFLINE and known.asked_at is not None:
            known.held = held
            self._wake(replica.topic, now)

    def resume_deletions(self, now: datetime) -> None:
        """One round over everything that is due (Kafka's `resumeDeletions`). Afterwards
        `replica_state_machine.take_batch()` has what the nodes are to be told. Whatever the client raises is raised
        when nothing is half changed: the next round asks again."""
        queued = self.context.topics_to_be_deleted
        due = {topic: known for topic, known in queued.items() if known.retry_at is not None and known.retry_at <= now}
        self._delete_topics({t: k for t, k in due.items() if not k.started and not k.ineligible}, now)
        due = {topic: known for topic, known in due.items() if topic in queued}
        started = [topic for topic, known in due.items() if known.started and not known.ineligible]
        self.retry_deletion_for_ineligible_replicas(started, now)
        self._on_topic_deletion(started, now)
        self._complete_delete_topics(started)
        for topic, known in due.items():
            if topic in queued and (known.started or known.ineligible):
                known.retry_at = self._next_look(known)

    def _delete_topics(self, topics: Mapping[Topic, TopicProgress], now: datetime) -> None:
        """Have the cluster delete the living topics among these, and note what it acknowledged."""
        if not topics:
            return
        answers = self._client.delete_topic({topic: known.name for topic, known in topics.items()})
        gone = []
        for topic, known in topics.items():
            answer = answers.get(topic, TopicOutcome("again", "no answer"))
            if answer.outcome == "deleted":
                self._begin_topic_deletion(topic, known)
                gone.append(topic)
            elif answer.outcome == "disabled":
                self._warn(f"topic {known.name} is dropped: {answer.why or 'topic deletion is disabled'}")
                self._client.delete_topic_deletions([topic])
                self.context.remove_topic(topic)
            else:
                # A refusal of the cluster is asked again too, later: rights and versions change.
                known.waits_for_cluster = answer.why or "the cluster was asked"
                known.retry_at = now + (self._pauses.longest if answer.outcome == "refused" else self._pauses.first)
        if gone:
            self._client.send_metadata_update(gone)

    def _begin_topic_deletion(self, topic: Topic, known: TopicProgress) -> None:
        for target in (PartitionState.OFFLINE, PartitionState.NON_EXISTENT):
            self.partition_state_machine.handle_state_changes(topic, list(known.partitions), target)
        known.started, known.waits_for_cluster = True, None
        self._client.mute_partition_modifications(topic)

    def retry_deletion_for_ineligible_replicas(self, topics: Iterable[Topic], now: datetime) -> None:
        """Ask again where the pause is over and the host is heard; only what has not succeeded is told."""
        for topic in topics:
            again = []
            for replica in self.context.replicas_in_state(topic, _S.INELIGIBLE):
                known = self.context.replicas[replica]
                if known.retry_at is not None and known.retry_at <= now and self._live(replica):
                    again.append(replica)
            self.replica_state_machine.handle_state_changes(again, _S.OFFLINE, now)

    def _on_topic_deletion(self, topics: Iterable[Topic], now: datetime) -> None:
        """Kafka's `onTopicDeletion`/`onPartitionDeletion`: everything on its way goes one step further."""
        ready: list[Replica] = []
        for topic in topics:
            online = self.context.replicas_in_state(topic, _S.ONLINE)
            unasked = [
                replica
                for replica in self.context.replicas_in_state(topic, _S.OFFLINE)
                if self.context.replicas[replica].asked_at is None
            ]
            self.replica_state_machine.handle_state_changes([*online, *unasked], _S.OFFLINE, now)
            waiting = self.context.replicas_in_state(topic, _S.OFFLINE, _S.STARTED)
            silent = [replica for replica in waiting if not self._live(replica)]
            self.fail_replica_deletion({r: self._silence(r.node_id) for r in silent}, now)
            late = [replica for replica in waiting if self._live(replica) and self._is_late(replica, now)]
            self.fail_replica_deletion({r: Reason("its agent does not answer", NO_ANSWER_GUARD) for r in late}, now)
            offline = self.context.replicas_in_state(topic, _S.OFFLINE)
            ready += [replica for replica in offline if self.context.replicas[replica].held]
        refused = self._gate(ready) if ready else {}
        self.fail_replica_deletion(refused, now)
        self.replica_state_machine.handle_state_changes([r for r in ready if r not in refused], _S.STARTED, now)

    def _complete_delete_topics(self, topics: Iterable[Topic]) -> None:
        """Kafka's `completeDeleteTopic`, when every replica has succeeded: the request's marker goes first, so that a
        kill between the two steps leaves a topic that is complete once more, not one that is forgotten."""
        done = [topic for topic in topics if self.context.are_all_replicas_in_state(topic, _S.SUCCESSFUL)]
        if not done:
            return
        self._client.delete_topic_deletions(done)
        for topic in done:
            self.context.remove_topic(topic)

    def _next_look(self, known: TopicProgress) -> datetime | None:
        """When this topic must be looked at again if nothing happens; None: only when something does."""
        times = []
        for replica in known.replicas:
            progress = self.context.replicas[replica]
            if progress.state is _S.INELIGIBLE and progress.retry_at is not None and self._live(replica):
                times.append(progress.retry_at)
            elif progress.state in (_S.OFFLINE, _S.STARTED) and progress.asked_at is not None:
                times.append(progress.asked_at + self._pauses.answer_within)
        return min(times, default=None)

    def _is_late(self, replica: Replica, now: datetime) -> bool:
        known = self.context.replicas[replica]
        answered = known.state is _S.OFFLINE and known.held is not None
        return not answered and known.asked_at is not None and known.asked_at + self._pauses.answer_within <= now

    def _live(self, replica: Replica) -> bool:
        return self.context.is_replica_online(replica.node_id)

    def _silence(self, node_id: int) -> Reason:
        return Reason(self.context.silent_nodes.get(node_id, "its host has not been heard yet"))

    def _wake(self, topic: Topic, now: datetime) -> None:
        known = self.context.topics_to_be_deleted[topic]
        if known.retry_at is None or known.retry_at > now:
            known.retry_at = now


def _reason(results: Sequence[Result]) -> Reason:
    """The first refusal among a replica's results, in words."""
    bad = next(r for r in results if r.result not in SUCCESSES)
    why = bad.fact or {
        "waiting": "waits for the broker's next stop",
        "offline": "its log dir is offline",
        "failed": "the host failed",
    }.get(bad.result, bad.result)
    return Reason(why, bad.guard, bad.hint, final=bad.guard == RESTORED_GUARD)
