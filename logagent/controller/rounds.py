"""The controller's rounds: read the store and the cluster, let `TopicDeletionManager` decide, write its orders.

One instance is one controller of one cluster (Kafka's `KafkaController`): it takes an epoch, and ends with `EpochLost`
once another controller has taken a higher one. After a kill between any two writes, the next controller continues from
the files in the store.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from logagent.controller import only_copies, standing_orders
from logagent.controller.broker_changes import BrokerChanges
from logagent.controller.cluster_waits import recall_cluster_waits, write_cluster_waits
from logagent.controller.controller_context import ControllerContext, Reason, Replica, ReplicaState, Topic
from logagent.controller.exchange import Exchange
from logagent.controller.request_states import MAX_EPOCHS_FORGOTTEN, RequestStates
from logagent.controller.setting import Setting
from logagent.controller.store_client import Outcome, StoreDeletionClient
from logagent.controller.topic_deletion_manager import TopicDeletionManager
from logagent.errors import ConfigError, ServiceUnreachable, UnreadableError
from logagent.store import epochs as epoch_store
from logagent.store.contract import CLOCKS_APART
from logagent.store.deletion import LONGEST_WORDS, Closed, ControllerEpoch, RequestedTopic
from logagent.store.epochs import EpochLost, Epochs
from logagent.store.orders import Requests, instant, moment, write_closed
from logagent.store.publications import When

COLLECTED_EVERY = timedelta(days=1)


class DeletionRounds:
    """One controller: call `start()` once, then `round()` repeatedly; or only `look()`, which has no effect."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.context = ControllerContext()
        self.requests = Requests(setting.control, setting.keys)
        self.muted: set[Topic] = set()
        self.manager = TopicDeletionManager(
            self.context, StoreDeletionClient(self), gate=self._gate, warn=setting.warn, pauses=setting.pauses
        )
        self.exchange = Exchange(setting.control, self.context, self.manager, setting.keys, setting.warn)
        self.brokers = BrokerChanges(setting, self.context, self.manager, self.exchange)
        self._epochs = Epochs(setting.control, setting.keys)
        self.states = RequestStates(setting, self.requests, self.exchange, self._epochs)
        self._ours: ControllerEpoch | None = None
        self._enqueued: set[str] = set()
        self._believed: set[int] = set()
        self.dropped: dict[str, dict[str, str]] = {}
        """What this controller dropped: topic ids by request, and why."""

    def start(self) -> ControllerEpoch:
        """Take an epoch above all in the store and in answers. Raises ConfigError, EpochLost, ServiceUnreachable."""
        control, setting = self.setting.control, self.setting
        highest = self.highest_epoch()
        if highest is None:
            epoch_store.probe(control)
        self.requests.refresh()
        self.exchange.note_epochs(self.states.nodes(), self._epochs.knows)
        above = self._answered_above(highest.epoch if highest is not None else 0)
        self._believed |= set(above.values())
        self._ours = epoch_store.take(
            control,
            self._epochs,
            setting.key,
            above=max(above, default=0),
            by=setting.by,
            host=setting.host,
            now=setting.clock,
        )
        self._collect_garbage(self._ours.epoch)
        return self._ours

    def _answered_above(self, epoch: int) -> dict[int, int]:
        """The epochs above this one that answers mention, each with the node. A node is believed once, or it could use
        all of them up."""
        most = epoch + MAX_EPOCHS_FORGOTTEN
        answered = self.exchange.answered_epochs.items()
        return {e: node for e, node in answered if epoch < e <= most and node not in self._believed}

    def _collect_garbage(self, epoch: int) -> None:
        """Remove requests that were closed a month ago, when no snapshot can reopen them. Answers are removed only if
        they concern no remaining request: without its answers, an open request would be executed again. Nothing is
        if our clock is wrong: what was closed a minute ago would seem to be a month old."""
        nodes, finished = self.states.nodes(), self.states.closed_long_ago() if self._clock_is_right(epoch) else []
        for request_id in finished:
            try:
                self.requests.collect(request_id)
            except (UnreadableError, ServiceUnreachable) as error:
                self.setting.warn(f"not everything of request {request_id} can be removed: {error}")
        self.exchange.collect_garbage(nodes, epoch, self.requests.requests if finished else None)

    def _clock_is_right(self, epoch: int) -> bool:
        """Whether our clock is the store's, which has just given our epoch's file its time."""
        written = self.setting.control.modified(epoch_store.FOLDER, f"{epoch}.json")
        return written is not None and abs(self.setting.clock() - written) <= CLOCKS_APART

    def highest_epoch(self) -> ControllerEpoch | None:
        """The epoch that is valid now, whichever controller holds it."""
        highest = self._epochs.highest()
        while not self._epochs.certain:
            highest = self._epochs.highest()
        return highest

    @property
    def epoch(self) -> int:
        if self._ours is None:
            raise EpochLost("this controller holds no epoch")
        return self._ours.epoch

    def check_epoch(self) -> None:
        """Raises EpochLost unless this controller still holds the highest epoch. Called before every effect."""
        if self._ours is None:
            raise EpochLost("this controller holds no epoch")
        epoch_store.check(self.setting.control, self._epochs, self._ours)

    def round(self) -> None:
        """Run one round. Raises EpochLost; ServiceUnreachable leaves the rest to the next round."""
        now = self.setting.clock()
        self.check_epoch()
        self._refresh(now)
        above = self._answered_above(self.epoch)
        if above:
            # Agents obeyed an epoch that the store has lost: they obey only a higher one now.
            self.setting.warn(f"{self.exchange.mention(max(above))}, above ours; taking a higher one")
            self.start()
        self._notice_snapshots(now)
        self._notice_reassignments(now)
        self.manager.resume_deletions(now)
        taken = self.exchange.write_orders(
            self.epoch, self.requests.requests, self.states.valid_until, self.setting.key, now, self.check_epoch
        )
        if taken is not None:
            raise EpochLost(f"order {taken} exists already: another controller has this epoch")
        write_cluster_waits(self.setting, self.context, self.requests, self.epoch, now)

    def look(self) -> None:
        """Read the current state, as far as that is possible without an epoch: for `topics status`."""
        now = self.setting.clock()
        self.requests.refresh()
        self.brokers.notice_hosts(now)
        self._notice_requests(now)
        standing_orders.replay_orders(self.exchange, self.context.nodes())
        self._refresh(now)
        self.exchange.read_answers(self.states.nodes() - self.context.nodes(), now)  # what done requests came to
        for node, why in list(self.context.silent_nodes.items()):
            self.manager.on_broker_failure(node, why, now)  # although `replay` found an order for it
        self._notice_snapshots(now)
        self._drop_finished()
        recall_cluster_waits(self.context, self.requests.waits)

    def is_due(self) -> bool:
        """Whether a single round has anything to do: a `look`, which must be the only use of this instance."""
        self.look()
        now, highest = self.setting.clock(), self.highest_epoch()
        # Who took an epoch has collected what it could.
        tried = highest is not None and now - moment(highest.at) < COLLECTED_EVERY
        return bool(not tried and self.states.closed_long_ago()) or standing_orders.is_due(
            self.context, self.requests, highest, self.setting.pauses, now
        )

    def is_idle(self) -> bool:
        """Whether something could be done and no agent is at an order of the controller that has the epoch, so that
        another may take over: as `is_due`."""
        return self.is_due() and not standing_orders.are_with_agents(
            self.context, self.setting.pauses, self.setting.clock()
        )

    def _drop_finished(self) -> None:
        """For `look`: a request that a snapshot reopened is done if all of those copies were deleted since."""
        reopened = set(self.exchange.reopened)
        for topic in [t for t in self.context.topics_to_be_deleted if t.request_id in reopened]:
            if self.context.are_all_replicas_in_state(topic, ReplicaState.SUCCESSFUL):
                self.context.remove_topic(topic)
        for request_id in reopened - {topic.request_id for topic in self.context.topics_to_be_deleted}:
            del self.exchange.reopened[request_id]

    def _refresh(self, now: datetime) -> None:
        self.requests.refresh()
        self.brokers.notice_hosts(now)
        self._notice_requests(now)
        self.exchange.read_answers(self.context.nodes(), now)
        self.brokers.notice_hosts(now)

    def _notice_requests(self, now: datetime) -> None:
        for request_id, request in self.requests.requests.items():
            if self.states.judge(request, now, self._ours) != "open":
                if request_id in self._enqueued:
                    self._enqueued.discard(request_id)
                    self.manager.dequeue(request_id)
            elif request_id not in self._enqueued:
                self._enqueued.add(request_id)
                left = replace(request, topics=self.requests.topics_of(request_id))
                self.manager.enqueue_topics_for_deletion(left, now)
                self.exchange.forget_answers()

    def note_replicas(self, topic: Topic, living: RequestedTopic | None) -> None:
        """Add the replicas that the cluster has right before DeleteTopics. A later controller learns them from
        snapshots."""
        for partition in living.partitions if living is not None else ():
            for node in partition.replicas:
                self.manager.add_replica(topic, partition.partition, node, self.setting.clock())

    def _notice_reassignments(self, now: datetime) -> None:
        waiting = {t: k.name for t, k in self.context.topics_to_be_deleted.items() if not k.started}
        if not waiting:
            return
        try:
            moving = self.setting.admin.reassigning({topic.topic_id: name for topic, name in waiting.items()})
        except (ServiceUnreachable, UnreadableError) as error:
            self.setting.warn(str(error))
            return
        for topic in waiting:
            if topic.topic_id in moving:
                why = "a partition of it is being reassigned"
                self.manager.mark_topics_ineligible_for_deletion([topic], "reassignment", why)
            else:
                self.manager.resume_deletion_for_topics([topic], "reassignment", now)

    def _gate(self, replicas: Collection[Replica]) -> Mapping[Replica, Reason]:
        """Called right before `delete` orders: which replicas would leave their partition without a copy, and why."""
        requests = self.requests.requests
        asked = [r for r in replicas if requests[r.topic.request_id].kind != "topics"]
        if not asked:
            return {}
        keys = {(r.topic.topic_id, r.partition) for r in asked}
        copies = self.copies({r.topic.topic_id: self.context.topics_to_be_deleted[r.topic].name for r in asked})
        alone = only_copies.without_other_copy(keys, copies, self.states.not_closed())
        return only_copies.refused(replicas, alone, requests)

    def copies(self, names: Mapping[str, str]) -> only_copies.Copies:
        """The copies of these topics (names by topic id) on live hosts, by a snapshot that is surely the newest and not
        older than a silent host's, as far as no closed request may have deleted them since, and whose brokers are live
        and in the ISR, as the cluster says now: if it cannot be asked, none is."""
        rows, heard = self.brokers.rows(names.keys()), self.brokers.heard
        since = self.setting.clock() - self.setting.silent_after
        newest = {n: When(heard.nodes[n].taken_at, heard.nodes[n].arrived_at) for n in rows if n not in heard.unsure}
        rows = {n: rows[n] for n, when in newest.items() if when.taken_at >= since}
        found = only_copies.not_deleted_since(only_copies.copies_in(rows, names), self.states.closed(), newest)
        return only_copies.in_sync_only(found, self._in_sync(names)) if any(found.values()) else found

    def _in_sync(self, names: Mapping[str, str]) -> Mapping[tuple[str, int], frozenset[int]]:
        try:
            return self.setting.admin.in_sync(names)
        except (ConfigError, ServiceUnreachable, UnreadableError) as error:
            hint = f" ({error.hint})" if error.hint else ""
            unknown = "which copies are live and in sync is not known, so each counts as the only one"
            self.setting.warn(f"{unknown}: {error}{hint}")
            return {}

    def _notice_snapshots(self, now: datetime) -> None:
        """If a later snapshot shows a copy of a deleted topic, add it to the request, even if that was done: agents may
        be asked about it, once the cluster has said that the topic is still deleted. Never for a dropped topic."""
        asked = {t.topic_id: (i, t) for i in self.states.to_search(self._enqueued) for t in self.requests.topics_of(i)}

        def found(topic_id: str, partition: int, node: int, at: datetime) -> None:
            self._copy_found(*asked[topic_id], partition, node, at, now)

        before = set(self.exchange.reopened)
        self.brokers.notice_snapshots(asked, found, now)
        reopened = self.exchange.reopened.keys() - before
        if reopened:
            if self._ours is None:
                standing_orders.replay_orders(self.exchange, self.context.nodes(), reopened)
            self.exchange.read_answers(self.context.nodes(), now)  # what hosts told the controller before this one

    def _copy_found(
        self, request_id: str, asked: RequestedTopic, partition: int, node: int, at: datetime, now: datetime
    ) -> None:
        topic = Topic(request_id, asked.topic_id)
        if Replica(topic, partition, node) in self.context.replicas:
            return
        done = self.requests.closed.get(request_id, {}).get("done")
        if topic not in self.context.topics_to_be_deleted:
            if done is None or at <= self.requests.closed_at[request_id]:
                return  # the snapshot arrived before the request was done; the store's clock says both
            self.context.add_topic(topic, asked.topic, "topics", [partition], now)
            self.exchange.reopen(request_id, done, self._ours.epoch if self._ours is not None else None)
            self._enqueued.add(request_id)
        if done is not None and self._ours is None:
            self.exchange.shown[Replica(topic, partition, node)] = at
        self.manager.add_replica(topic, partition, node, now)

    def drop(self, request_id: str, topics: Mapping[str, str]) -> None:
        """Write for good which topics (by id, with the reason) a request does not delete, in our epoch."""
        self.check_epoch()
        at, cluster_id = instant(self.setting.clock()), self.setting.control.cluster_id
        said = {topic_id: why[:LONGEST_WORDS] for topic_id, why in topics.items()}
        closed = Closed(request_id, cluster_id, self.epoch, "dropped", self.setting.by, at, said)
        if not write_closed(self.setting.control, closed, self.setting.key, secrets.token_hex(8)):
            raise ServiceUnreachable(f"that topics of request {request_id} are dropped cannot be written")
        self.requests.refresh()
        self.dropped.setdefault(request_id, {}).update(said)

    def close(self, request_id: str, outcome: Outcome) -> None:
        """Write a closing entry for a request, in our epoch."""
        self.check_epoch()
        at = instant(self.setting.clock())
        closed = Closed(request_id, self.setting.control.cluster_id, self.epoch, outcome, self.setting.by, at)
        if not write_closed(self.setting.control, closed, self.setting.key):
            self.requests.refresh()
            # Somebody without a key has the name; or the request was done before, and a copy came back since.
            unsaid = self.requests.closed.get(request_id, {}).get(outcome) is None
            if unsaid or (outcome == "done" and request_id in self.exchange.reopened):
                write_closed(self.setting.control, closed, self.setting.key, secrets.token_hex(8))
        if outcome == "done":
            self.exchange.reopened.pop(request_id, None)
