"""The controller's rounds: what the store and the cluster say goes into `TopicDeletionManager`, its orders come out.

One instance is one controller of one cluster (Kafka's `KafkaController`): it takes an epoch, and ends with `EpochLost`
when another one has taken a higher one. A kill between any two writes leaves files that the next one starts from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from logagent.controller import only_copies
from logagent.controller.controller_context import ControllerContext, Reason, Replica, Topic
from logagent.controller.deletion_client import TopicOutcome
from logagent.controller.exchange import LIFETIME, Exchange
from logagent.controller.topic_deletion_manager import Pauses, TopicDeletionManager
from logagent.errors import LogAgentError, ServiceUnreachable
from logagent.store import epochs as epoch_store
from logagent.store.control import Control
from logagent.store.deletion import Closed, ControllerEpoch, Request, RequestedTopic
from logagent.store.epochs import EpochLost, Epochs
from logagent.store.heard import FleetHeard
from logagent.store.orders import Requests, instant, moment, write_closed
from logagent.store.signing import PrivateKey, PublicKey

# An answer may name any epoch; one so far ahead of the store's was not given by a controller.
MAX_EPOCHS_FORGOTTEN = 1_000_000
Outcome = Literal["done", "cancelled", "resumed"]


class ClusterAdmin(Protocol):
    """The cluster's Admin API, as far as deletions need it."""

    def delete_topics(self, topics: Mapping[str, str]) -> Mapping[str, TopicOutcome]:
        """DeleteTopics by id (topic id → name); what each one came to. What cannot be asked now is left out."""

    def reassigning(self, topics: Mapping[str, str]) -> Collection[str]:
        """Which of these topic ids have a reassignment that holds a deletion up (ZooKeeper generation only)."""


@dataclass(slots=True)
class Setting:
    """Who this controller is and what it was given."""

    control: Control
    key: PrivateKey
    keys: tuple[PublicKey, ...]
    admin: ClusterAdmin
    clock: Callable[[], datetime]
    by: str
    host: str
    silent_after: timedelta = timedelta(hours=2)
    warn: Callable[[str], None] = lambda line: None
    pauses: Pauses = field(default_factory=Pauses)


class StoreDeletionClient:
    """The manager's `DeletionClient`, on Admin API and store."""

    def __init__(self, rounds: DeletionRounds) -> None:
        self._rounds = rounds

    def delete_topic(self, topics: Mapping[Topic, str]) -> Mapping[Topic, TopicOutcome]:
        rounds = self._rounds
        rounds.check_epoch()
        # Only a signed request of kind `topics` may ever cause DeleteTopics.
        asked = {t: name for t, name in topics.items() if rounds.requests.requests[t.request_id].kind == "topics"}
        try:
            answers = rounds.setting.admin.delete_topics({topic.topic_id: name for topic, name in asked.items()})
        except ServiceUnreachable as error:
            # Asked again later; the topics that the cluster has deleted before go on meanwhile.
            rounds.setting.warn(str(error))
            return dict.fromkeys(asked, TopicOutcome("again", f"the cluster cannot be reached: {error}"))
        return {topic: answers[topic.topic_id] for topic in asked if topic.topic_id in answers}

    def delete_topic_deletions(self, topics: Collection[Topic]) -> None:
        rounds = self._rounds
        remaining = {t.request_id for t in rounds.context.topics_to_be_deleted if t not in topics}
        for request_id in sorted({topic.request_id for topic in topics} - remaining):
            rounds.close(request_id, "done")

    def mute_partition_modifications(self, topic: Topic) -> None:
        self._rounds.muted.add(topic)

    def send_metadata_update(self, topics: Collection[Topic]) -> None:
        """Nothing to send: a cluster's metadata is its own controller's. Agents read it where they stand."""


class DeletionRounds:
    """One controller: `start()` once, then `round()` as often as wanted. Or a mere `look()`, which has no effect."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.context = ControllerContext()
        self.requests = Requests(setting.control, setting.keys)
        self.muted: set[Topic] = set()
        self.on_hold: dict[str, str] = {}
        self.heard = FleetHeard(setting.control.store, setting.control.cluster_id, setting.silent_after)
        self.manager = TopicDeletionManager(
            self.context, StoreDeletionClient(self), gate=self._gate, warn=setting.warn, pauses=setting.pauses
        )
        self.exchange = Exchange(setting.control, self.context, self.manager, setting.warn)
        self._epochs = Epochs(setting.control, setting.keys)
        self._ours: ControllerEpoch | None = None
        self._enqueued: set[str] = set()
        self._looked_at: dict[int, str] = {}
        self._reopened: set[str] = set()

    def start(self) -> ControllerEpoch:
        """Take an epoch above every one that the store or an answer knows. Raises ConfigError, EpochLost,
        ServiceUnreachable."""
        control, setting = self.setting.control, self.setting
        highest = self.highest_epoch()
        if highest is None:
            epoch_store.probe(control)
        self.requests.refresh()
        self.exchange.note_epochs(self._asked_nodes())
        known = highest.epoch if highest is not None else 0
        answered = max((e for e in self.exchange.answered_epochs if e <= known + MAX_EPOCHS_FORGOTTEN), default=0)
        self._ours = epoch_store.take(
            control, self._epochs, setting.key, above=answered, by=setting.by, host=setting.host, now=setting.clock
        )
        self.exchange.collect_garbage(self._asked_nodes(), self._ours.epoch)
        return self._ours

    def highest_epoch(self) -> ControllerEpoch | None:
        """The epoch that counts now, whoever has it."""
        highest = self._epochs.highest()
        while not self._epochs.certain:
            highest = self._epochs.highest()
        return highest

    @property
    def epoch(self) -> int:
        if self._ours is None:
            raise EpochLost("no epoch was taken")
        return self._ours.epoch

    def check_epoch(self) -> None:
        """Raises EpochLost unless this controller is still the one. Asked before everything that has an effect."""
        if self._ours is None:
            raise EpochLost("no epoch was taken")
        epoch_store.check(self.setting.control, self._epochs, self._ours)

    def round(self) -> None:
        """Everything once. Raises EpochLost; ServiceUnreachable leaves the rest to the next round."""
        now = self.setting.clock()
        self.check_epoch()
        self._take_in(now)
        if any(self.epoch < e <= self.epoch + MAX_EPOCHS_FORGOTTEN for e in self.exchange.answered_epochs):
            self.start()  # agents obeyed an epoch that the store has forgotten: only a higher one is obeyed
        self._notice_copies(now)
        self._notice_reassignments(now)
        self.manager.resume_deletions(now)
        taken = self.exchange.write_orders(
            self.epoch, self.requests.requests, self.valid_until, self.setting.key, now, self.check_epoch
        )
        if taken is not None:
            raise EpochLost(f"order {taken} is there already: another controller has this epoch")

    def look(self) -> None:
        """Take in what there is, as far as it can be told without an epoch: for `topics status`."""
        now = self.setting.clock()
        self.requests.refresh()
        self._notice_hosts(now)
        self._notice_requests(now)
        self.exchange.replay(self.context.nodes(), self.setting.keys)
        self._take_in(now)
        for node, why in list(self.context.silent_nodes.items()):
            self.manager.on_broker_failure(node, why, now)  # an order stands for it all the same

    def _take_in(self, now: datetime) -> None:
        self.requests.refresh()
        self._notice_hosts(now)
        self._notice_requests(now)
        self.exchange.read_answers(self.context.nodes(), now)
        self._notice_hosts(now)

    def _notice_requests(self, now: datetime) -> None:
        for request_id, request in self.requests.requests.items():
            closed = self.requests.closed.get(request_id, {})
            over = ("done" in closed and request_id not in self._reopened) or "cancelled" in closed
            hold = None if over else self._hold(request, now)
            self.on_hold.pop(request_id, None)
            if hold is not None:
                self.on_hold[request_id] = hold
            if over or hold is not None:
                if request_id in self._enqueued:
                    self._enqueued.discard(request_id)
                    self.manager.dequeue(request_id)
            elif request_id not in self._enqueued:
                self._enqueued.add(request_id)
                self.manager.enqueue_topics_for_deletion(request, now)
                self.exchange.forget_answers()

    def _hold(self, request: Request, now: datetime) -> str | None:
        """Why a request goes on only after `topics resume`; None if it goes on."""
        if now > self.valid_until(request):
            return f"it expired at {instant(self.valid_until(request))}"
        resumed = self.requests.closed.get(request.request_id, {}).get("resumed")
        known = max(request.epoch, resumed.epoch if resumed is not None else 0)
        below = self._ours.epoch if self._ours is not None else MAX_EPOCHS_FORGOTTEN << 16
        lost = [e for e in self.exchange.answered_epochs if known < e < below and not self._epochs.knows(e)]
        if lost:
            return f"answers mention epoch {max(lost)}, which the store has lost: it was put back to an older state"
        return None

    def state_of(self, request_id: str) -> Literal["open", "on-hold", "done", "cancelled"]:
        """`open`, `on-hold`, `done` or `cancelled`."""
        closed = self.requests.closed.get(request_id, {})
        if "cancelled" in closed:
            return "cancelled"
        if "done" in closed and request_id not in self._reopened:
            return "done"
        return "on-hold" if request_id in self.on_hold else "open"

    def valid_until(self, request: Request) -> datetime:
        """When a request ends: 7 days after it was made or resumed, at the latest."""
        until = min(moment(request.expires_at), moment(request.at) + LIFETIME)
        resumed = self.requests.closed.get(request.request_id, {}).get("resumed")
        return until if resumed is None else max(until, moment(resumed.at) + LIFETIME)

    def _notice_hosts(self, now: datetime) -> None:
        self.heard.look(now)
        since = now - self.setting.silent_after
        for node in set(self.heard.nodes) | set(self.exchange.agents) | set(self.context.nodes()):
            snapshot = self.heard.nodes.get(node)
            hosts = [h for h, at in snapshot.hosts.items() if at >= since] if snapshot is not None else []
            answered = self.exchange.agents.get(node, {})
            agents = [agent for agent, at in answered.items() if at >= since]
            if len(hosts) > 1:
                self._fails(node, f"two hosts claim node id {node}: {' and '.join(sorted(hosts)[:2])}", now)
            elif len(agents) > 1:
                self._fails(node, f"two agents answer as node {node}", now)
            elif hosts or agents:
                self.manager.on_broker_startup(node, now)
            else:
                heard = [*answered.values(), *([snapshot.at] if snapshot is not None else [])]
                self._fails(node, f"nothing heard since {instant(max(heard))}" if heard else "never heard", now)

    def _fails(self, node: int, why: str, now: datetime) -> None:
        if self.context.silent_nodes.get(node) != why:
            self.manager.on_broker_failure(node, why, now)

    def _asked_nodes(self) -> set[int]:
        nodes = {d.node_id for r in self.requests.requests.values() for d in r.directories}
        for request in self.requests.requests.values():
            nodes |= {n for t in request.topics for p in t.partitions for n in p.replicas}
        return nodes

    def _notice_reassignments(self, now: datetime) -> None:
        waiting = {t: k.name for t, k in self.context.topics_to_be_deleted.items() if not k.started}
        if not waiting:
            return
        try:
            moving = self.setting.admin.reassigning({topic.topic_id: name for topic, name in waiting.items()})
        except ServiceUnreachable as error:
            self.setting.warn(str(error))
            return
        for topic in waiting:
            if topic.topic_id in moving:
                why = "a partition of it is being reassigned"
                self.manager.mark_topics_ineligible_for_deletion([topic], "reassignment", why)
            else:
                self.manager.resume_deletion_for_topics([topic], "reassignment", now)

    def _gate(self, replicas: Collection[Replica]) -> Mapping[Replica, Reason]:
        """Right before orders `delete`: whose partition would be left without any copy."""
        open_requests = {i: self.requests.requests[i] for i in self._enqueued}
        if all(open_requests[r.topic.request_id].kind == "topics" for r in replicas):
            return {}
        keys = {(r.topic.topic_id, r.partition) for r in replicas}
        rows = self.rows({topic_id for topic_id, _ in keys})
        alone = only_copies.without_other_copy(keys, only_copies.copies_in(rows), list(open_requests.values()))
        return only_copies.refused(replicas, alone, open_requests)

    def rows(self, topic_ids: Collection[str]) -> dict[int, list[dict[str, Any]]]:
        """The snapshot rows of these topics, of every host that is heard. An unreadable one counts as having none."""
        rows = {}
        for node in self.context.live_nodes & set(self.heard.nodes):
            try:
                rows[node] = list(self.heard.directories(node, topic_ids))
            except LogAgentError as error:
                self.setting.warn(f"the newest snapshot of node {node} cannot be read: {error}")
        return rows

    def _notice_copies(self, now: datetime) -> None:
        """A later snapshot shows a copy of a topic that went: it joins the request, also when that was done."""
        asked = {t.topic_id: (i, t) for i in self._followed() for t in self.requests.requests[i].topics}
        for node, snapshot in self.heard.nodes.items():
            if not asked or self._looked_at.get(node) == snapshot.stem or node not in self.context.live_nodes:
                continue
            self._looked_at[node] = snapshot.stem
            try:
                rows = list(self.heard.directories(node, asked))
            except LogAgentError:
                continue
            for row in rows:
                if row.get("row") == "dir" and row.get("kind") in ("current", "future"):
                    request_id, topic = asked[row["topic_id"]]
                    self._copy_found(request_id, topic, int(row["partition"]), node, snapshot.at, now)

    def _followed(self) -> list[str]:
        """Requests whose topics' copies are looked for: open ones, and done ones that are not too old."""
        followed = set(self._enqueued)
        for request_id, closed in self.requests.closed.items():
            request = self.requests.requests[request_id]
            if "done" in closed and "cancelled" not in closed and self.setting.clock() < self.valid_until(request):
                followed.add(request_id)
        return [i for i in sorted(followed) if self.requests.requests[i].kind == "topics"]

    def _copy_found(
        self, request_id: str, asked: RequestedTopic, partition: int, node: int, at: datetime, now: datetime
    ) -> None:
        topic = Topic(request_id, asked.topic_id)
        if topic not in self.context.topics_to_be_deleted:
            done = self.requests.closed.get(request_id, {}).get("done")
            if done is None or at <= moment(done.at):
                return  # that snapshot is older than the end
            self.context.add_topic(topic, asked.topic, "topics", [partition], now)
            self._reopened.add(request_id)
            self._enqueued.add(request_id)
        self.manager.add_replica(topic, partition, node, now)

    def close(self, request_id: str, outcome: Outcome) -> None:
        """Write a request's closing entry in our epoch."""
        self.check_epoch()
        at = instant(self.setting.clock())
        closed = Closed(request_id, self.setting.control.cluster_id, self.epoch, outcome, self.setting.by, at)
        write_closed(self.setting.control, closed, self.setting.key)
        if outcome == "done":
            self._reopened.discard(request_id)
