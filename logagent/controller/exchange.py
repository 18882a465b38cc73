"""Writes the manager's orders to the store and delivers the agents' answers to it.

Each answer is read once; if an agent answers an order several times, the highest `seq` counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from logagent.controller.controller_context import ControllerContext, Reason, Replica, ReplicaState, Topic
from logagent.controller.replica_deletions import is_failure
from logagent.controller.topic_deletion_manager import TopicDeletionManager
from logagent.errors import ServiceUnreachable, UnreadableError
from logagent.store.answers import ANSWERS_AT_ONCE, answer_names, answers_folder, read_answers
from logagent.store.control import UNREADABLE, Control, FolderUnreadable, TooLarge
from logagent.store.deletion import Action, Answer, Closed, Order, OrderedPartition, Request, Result
from logagent.store.orders import (
    ORDER_NAME,
    Ignored,
    UnknownSchema,
    instant,
    moment,
    order_id,
    orders_folder,
    portions,
    read_order,
    write_order,
)
from logagent.store.signing import NotSigned, PrivateKey, PublicKey

ORDERS_PER_CHECK = 50
MAX_PASSED_OVER = 100
MAX_SEQ = 9_999_999_999
LIFETIME = timedelta(days=7)
"""How long a request, and an order, can last."""


@dataclass(slots=True)
class Exchange:
    """The orders and answers of one cluster, for a controller or for a read-only look."""

    control: Control
    context: ControllerContext
    manager: TopicDeletionManager
    keys: tuple[PublicKey, ...]
    warn: Callable[[str], None]
    answered_epochs: dict[int, int] = field(default_factory=dict)
    """The epochs that answers mention, each with a node that mentions it. Anyone who can write answers can make one
    up; the names of files that are no answers do not count."""
    agents: dict[int, dict[str, datetime]] = field(default_factory=dict)
    """When each agent of a node last answered."""
    bytes_by_request: dict[str, dict[str, int]] = field(default_factory=dict)
    """Bytes of the directories that answers report as renamed or removed, by request and result."""
    reopened: dict[str, str] = field(default_factory=dict)
    """Requests that were done until a snapshot showed another copy, each with the last order before that: what hosts
    answered up to there is about directories that are gone."""
    shown: dict[Replica, datetime] = field(default_factory=dict)
    """For a read-only look, which does not know that order: when a snapshot showed the copy."""
    stands_for: dict[Replica, str] = field(default_factory=dict)
    """For a read-only look: the last order in the store for each replica. It was asked again: what was refused before
    is not what it is waiting for."""
    _failing_since: dict[Replica, datetime] = field(default_factory=dict)
    _read: dict[tuple[int, str, str], int] = field(default_factory=dict)
    _counted: set[tuple[int, str, str, str]] = field(default_factory=set)
    _seq: int = 0

    def mention(self, epoch: int) -> str:
        """A clause for messages: which node's answers mention this epoch."""
        return f"answers mention epoch {epoch} (node {self.answered_epochs[epoch]} does)"

    def reopen(self, request_id: str, done: Closed, epoch: int | None) -> None:
        """A request is not `done` after all. The controller with `epoch` calls this; None: a read-only look."""
        if request_id not in self.reopened:
            last = order_id(done.epoch, self._seq if done.epoch == epoch else MAX_SEQ)
            self.reopened[request_id] = last if epoch is not None else ""
            self.forget_answers()

    def forget_answers(self) -> None:
        """Deliver all answers again next time, because replicas were added that some of them concern."""
        self._read.clear()

    def note_epochs(self, nodes: Collection[int], is_known: Callable[[int], bool]) -> None:
        """Note the epochs of these nodes' orders as answered, where they are not known."""
        known: dict[int, bool] = {}
        for node in nodes:
            unknown = []
            for (order, _), (_, name) in sorted(self._answer_names(node).items(), reverse=True)[:ANSWERS_AT_ONCE]:
                epoch = _epoch_of(order)
                if epoch not in known:
                    known[epoch] = is_known(epoch)
                if not known[epoch]:
                    unknown.append(name)
            for _, answer in read_answers(self.control, node, unknown):
                if not isinstance(answer, str):
                    self.answered_epochs.setdefault(answer.epoch, node)

    def read_answers(self, nodes: Collection[int], now: datetime) -> None:
        """Deliver new answers, oldest order first; of very many of one node the newest. Raises ServiceUnreachable."""
        for node in nodes:
            names = {name: (order, agent, seq) for (order, agent), (seq, name) in self._answer_names(node).items()}
            unread = sorted(
                n for n, (order, agent, seq) in names.items() if self._read.get((node, order, agent), -1) < seq
            )
            rejected = Ignored()
            for name, answer in read_answers(self.control, node, unread[-ANSWERS_AT_ONCE:]):
                order, agent, seq = names[name]
                self._read[node, order, agent] = seq
                if isinstance(answer, str):
                    rejected.add(name, answer)
                else:
                    self._take(answer, now)
            if rejected.count:
                self.warn(f"answers of node {node} that are rejected: {rejected.count}, such as {rejected.example}")

    def _answer_names(self, node: int) -> dict[tuple[str, str], tuple[int, str]]:
        """`answer_names`; empty if the node's folder is not a readable directory, so that one host cannot stop the
        others."""
        try:
            return answer_names(self.control, node)
        except UNREADABLE as error:
            self.warn(f"the answers of node {node} cannot be read: {error}")
            return {}

    def _take(self, answer: Answer, now: datetime) -> None:
        node, at = answer.node_id, min(now, moment(answer.at))
        self.answered_epochs.setdefault(answer.epoch, node)
        self.answered_epochs.setdefault(answer.highest_epoch, node)
        agents = self.agents.setdefault(node, {})
        agents[answer.agent] = max(at, agents.get(answer.agent, at))
        self._deliver(answer, at, now)

    def _deliver(self, answer: Answer, at: datetime, now: datetime) -> None:
        grouped: dict[Replica, list[Result]] = {}
        for result in answer.results:
            topic = Topic(result.request_id, result.topic_id)
            replica = Replica(topic, result.partition, answer.node_id, result.asked_log_dir, result.asked_name)
            if not self.reopened or self._is_about_this_copy(answer, replica, at):
                grouped.setdefault(replica, []).append(result)
            self._count(answer, result)
        for replica, results in grouped.items():
            last = self.stands_for.get(replica)
            failure = last is not None and is_failure(answer.action, results)
            if failure and answer.order_id < (last or ""):
                self._failing_since.setdefault(replica, at)
                continue
            since = self._pauses_since(replica, at, now)
            self.manager.receive_answer(replica, answer.action, results, since)
            if failure:
                self.manager.pause_for(replica, at - self._failing_since.get(replica, at), since)
        if answer.refused is not None:
            asked = (ReplicaState.OFFLINE, ReplicaState.STARTED)
            known = {r: self.context.replicas[r] for r in self.context.replicas_on_node(answer.node_id)}
            # What this controller has not asked about was refused to one before it: the agent may be a newer one now.
            failed = [r for r, k in known.items() if k.state in asked and k.asked_at is not None]
            failed = [r for r in failed if self.stands_for.get(r, "") <= answer.order_id]
            for r in failed:
                since = self._pauses_since(r, at, now)
                self.manager.fail_replica_deletion({r: Reason(answer.refused, "order")}, since)

    def _pauses_since(self, replica: Replica, at: datetime, now: datetime) -> datetime:
        """When the pause after an answer of `at` begins: now, as a host's clock may be behind; for a read-only look, at
        the earliest when the order was issued."""
        if replica not in self.stands_for:
            return now
        asked_at = self.context.replicas[replica].asked_at
        return at if asked_at is None else max(at, asked_at)

    def _is_about_this_copy(self, answer: Answer, replica: Replica, at: datetime) -> bool:
        """Whether an answer about a reopened request is not about a directory that is gone."""
        shown = self.shown.get(replica)
        last = self.reopened.get(replica.topic.request_id, "")
        return answer.order_id > last and (shown is None or at > shown)

    def _count(self, answer: Answer, result: Result) -> None:
        if answer.action != "delete" or result.directory is None or result.result not in ("renamed", "removed"):
            return
        key = (answer.node_id, result.request_id, result.directory.log_dir, result.directory.name)
        if key not in self._counted:
            self._counted.add(key)
            by_result = self.bytes_by_request.setdefault(result.request_id, {})
            by_result[result.result] = by_result.get(result.result, 0) + result.directory.bytes

    def write_orders(
        self,
        epoch: int,
        requests: Mapping[str, Request],
        valid_until: Callable[[Request], datetime],
        key: PrivateKey,
        now: datetime,
        check_epoch: Callable[[], None],
    ) -> str | None:
        """Write what the manager collected, one order (or more if it is long) per node and action. Returns the id of an
        order that exists already, which means that another controller has our epoch; otherwise None."""
        check_epoch()
        batch = self.manager.replica_state_machine.take_batch()
        batches: tuple[tuple[Action, dict[int, list[Replica]]], ...] = (("delete", batch.delete), ("stop", batch.stop))
        for action, nodes in batches:
            for node, replicas in nodes.items():
                for part in portions(self._ordered(replica, action, requests) for replica in replicas):
                    until = min(valid_until(requests[i]) for i in {p.request_id for p in part})
                    self._seq += 1
                    order = Order(
                        order_id(epoch, self._seq),
                        epoch,
                        self.control.cluster_id,
                        node,
                        action,
                        instant(now),
                        instant(min(until, now + LIFETIME - timedelta(minutes=1))),
                        tuple(part),
                    )
                    # Only spares useless writes: no agent obeys an order of an old epoch, and nothing is ever replaced.
                    if self._seq % ORDERS_PER_CHECK == 1:
                        check_epoch()
                    taken = self._write(order, key)
                    if taken is not None:
                        return taken
        return None

    def _write(self, order: Order, key: PrivateKey) -> str | None:
        """Write an order; returns None, or the id that another controller's order has already. Names that other files
        have taken are skipped. What a node cannot be told it does not answer (`Pauses.answer_within`)."""
        for _ in range(MAX_PASSED_OVER):
            try:
                if write_order(self.control, order, key):
                    return None
            except (FolderUnreadable, TooLarge) as error:
                self.warn(f"no order can be written for node {order.node_id}: {error}")
                return None
            if self._is_taken(order):
                return order.order_id
            self._seq += 1
            order = replace(order, order_id=order_id(order.epoch, self._seq))
        self.warn(f"no order can be written for node {order.node_id}: other files have taken the names of orders")
        return None

    def _is_taken(self, order: Order) -> bool:
        """Whether the file of this name is this node's order of that name, not another signed file, copied there."""
        node, name, cluster_id = order.node_id, f"{order.order_id}.json", self.control.cluster_id
        try:
            content = self.control.read(orders_folder(node), name)
            found = read_order(content, name, node, self.keys, cluster_id) if content is not None else None
        except UnknownSchema:
            return True  # a newer controller's
        except (NotSigned, *UNREADABLE):
            return False
        return found is not None and (found.node_id, found.cluster_id) == (node, cluster_id)

    def _ordered(self, replica: Replica, action: Action, requests: Mapping[str, Request]) -> list[OrderedPartition]:
        request = requests[replica.topic.request_id]
        known = self.context.topics_to_be_deleted[replica.topic]
        held = self.context.replicas[replica].held or () if action == "delete" else (None,)
        return [
            OrderedPartition(
                request.request_id,
                known.name,
                replica.topic.topic_id,
                replica.partition,
                request.plan_id if request.approved else None,
                request.no_retention,
                request.kind,
                replica.log_dir,
                replica.name,
                directory,
                request.at,
            )
            for directory in held
        ]

    def collect_garbage(self, nodes: Collection[int], epoch: int, requests: Collection[str] | None) -> None:
        """Remove the orders of lower epochs, which no agent obeys, and the answers to them that concern none of
        `requests` (None: keep all answers). Only the controller with the highest epoch may call this."""
        for node in nodes:
            try:
                self._collect_garbage(node, epoch, requests)
            except (UnreadableError, ServiceUnreachable) as error:
                self.warn(f"not all old orders and answers of node {node} can be removed: {error}")

    def _collect_garbage(self, node: int, epoch: int, requests: Collection[str] | None) -> None:
        for name in self.control.names(orders_folder(node)):
            match = ORDER_NAME.fullmatch(name)
            if match is not None and int(match[2]) < epoch:
                self.control.remove(orders_folder(node), name)
        if requests is None:
            return
        old = sorted(
            n for (order, _), (_, n) in self._answer_names(node).items() if int(order.partition("-")[0]) < epoch
        )
        for name, answer in read_answers(self.control, node, old):
            if not isinstance(answer, str) and not any(result.request_id in requests for result in answer.results):
                self.control.remove(answers_folder(node), name)


def _epoch_of(order: str) -> int:
    return int(order.partition("-")[0])
