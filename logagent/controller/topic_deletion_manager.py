"""Kafka's `TopicDeletionManager`: carries out the deletion of each queued topic, replica by replica.

Differences from Kafka: Living topics are deleted by the cluster (`DeletionClient`), and files on disk are deleted only
after it acknowledged that. A host answers `stop` (OfflineReplica) with what it holds before it is told to delete
(ReplicaDeletionStarted). A replica that cannot be deleted holds up only itself. Methods take the current time as an
argument.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

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
from logagent.controller.replica_deletions import NO_ANSWER_GUARD, Pauses, ReplicaDeletions
from logagent.store.deletion import Request

Gate = Callable[[Collection[Replica]], Mapping[Replica, Reason]]
"""Called right before `delete` orders are collected: which of these replicas must not be deleted now, and why."""

_S = ReplicaState


class TopicDeletionManager(ReplicaDeletions):
    """Decides what happens next to everything that is queued for deletion. Not thread-safe.

    `warn` is called with one line for everything that was refused or dropped.
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
        super().__init__(context, warn, pauses)
        self.partition_state_machine = PartitionStateMachine(context, warn)
        self._client = client
        self._gate = gate
        self._warn = warn

    def enqueue_topics_for_deletion(self, request: Request, now: datetime) -> None:
        """Queue a request's topics, also at a start or takeover: replicas on live hosts begin as `OnlineReplica`,
        others as `ReplicaDeletionIneligible`, directories of a report as `OfflineReplica`."""
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

    def dequeue(self, request_id: str) -> None:
        """Forget a request that is done, cancelled or on hold; nothing is undone."""
        for topic in [t for t in self.context.topics_to_be_deleted if t.request_id == request_id]:
            self.context.remove_topic(topic)

    def mark_topics_ineligible_for_deletion(self, topics: Iterable[Topic], what: str, why: str) -> None:
        """Hold up whole topics because of `what` ("reassignment", …) until `resume_deletion_for_topics` names it."""
        for topic in topics:
            if topic in self.context.topics_to_be_deleted:
                self.context.topics_to_be_deleted[topic].ineligible[what] = why

    def resume_deletion_for_topics(self, topics: Iterable[Topic], what: str, now: datetime) -> None:
        """`what` no longer holds up these topics."""
        for topic in topics:
            known = self.context.topics_to_be_deleted.get(topic)
            if known is not None and known.ineligible.pop(what, None) is not None:
                self._wake(topic, now)

    def resume_deletions(self, now: datetime) -> None:
        """Process everything that is due (Kafka's `resumeDeletions`). Afterwards `replica_state_machine.take_batch()`
        returns the orders. An error of the client propagates with nothing half changed: the next round asks again."""
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
        """Have the cluster delete these topics, and start the deletion of those that it acknowledged."""
        if not topics:
            return
        answers = self._client.delete_topic({topic: known.name for topic, known in topics.items()})
        gone = []
        for topic, known in topics.items():
            answer = answers.get(topic, TopicOutcome("again", "no answer"))
            if answer.outcome == "deleted":
                self._begin_topic_deletion(topic, known)
                gone.append(topic)
            elif answer.outcome in ("disabled", "lives"):
                why = answer.why or "topic deletion is disabled"
                self._warn(f"topic {known.name} is dropped: {why}")
                self._client.drop({topic: why})
                self._client.delete_topic_deletions([topic])
                self.context.remove_topic(topic)
            else:
                # A refusal is asked again too, later: permissions and versions change.
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
        """Ask again about ineligible replicas whose pause is over and whose host is live."""
        for topic in topics:
            again = []
            for replica in self.context.replicas_in_state(topic, _S.INELIGIBLE):
                known = self.context.replicas[replica]
                if known.retry_at is not None and known.retry_at <= now and self._live(replica):
                    again.append(replica)
            self.replica_state_machine.handle_state_changes(again, _S.OFFLINE, now)

    def _on_topic_deletion(self, topics: Iterable[Topic], now: datetime) -> None:
        """Kafka's `onTopicDeletion`/`onPartitionDeletion`: advance every replica that can move by one step."""
        ready: list[Replica] = []
        for topic in topics:
            online = self.context.replicas_in_state(topic, _S.ONLINE)
            unasked = [
                replica
                for replica in self.context.replicas_in_state(topic, _S.OFFLINE)
                if self.context.replicas[replica].asked_at is None
            ]
            self._stop([*online, *unasked], now)
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

    def _stop(self, replicas: Iterable[Replica], now: datetime) -> None:
        """Ask the hosts what they have. One that has told a controller before this one is not asked again: if it is
        another directory by now, the order `delete` is refused. A timer's `topics run --once` would never get on."""
        told = {r: held for r in replicas if (held := self.context.replicas[r].told) is not None}
        machine = self.replica_state_machine
        machine.handle_state_changes([r for r in replicas if r not in told], _S.OFFLINE, now)
        for replica in machine.handle_state_changes(told, _S.OFFLINE, now, tell=False):
            known = self.context.replicas[replica]
            known.held, known.told = told[replica], None

    def _complete_delete_topics(self, topics: Iterable[Topic]) -> None:
        """Kafka's `completeDeleteTopic`, once every replica has succeeded. The request is closed first: after a kill
        between the two steps, the topic is completed again rather than forgotten."""
        done = [topic for topic in topics if self.context.are_all_replicas_in_state(topic, _S.SUCCESSFUL)]
        if not done:
            return
        self._client.delete_topic_deletions(done)
        for topic in done:
            self.context.remove_topic(topic)

    def _next_look(self, known: TopicProgress) -> datetime | None:
        """When this topic is due again if nothing happens; None: only when something happens."""
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
