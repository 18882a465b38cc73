"""Orders out and answers in: between the manager's replicas and the files of the store.

Answers are read once; of several to one order of one agent the highest `seq` counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from logagent.controller.controller_context import ControllerContext, Reason, Replica, ReplicaState, Topic
from logagent.controller.topic_deletion_manager import TopicDeletionManager
from logagent.errors import UnreadableError
from logagent.store.control import Control
from logagent.store.deletion import Action, Answer, Order, OrderedPartition, Request, Result
from logagent.store.orders import (
    ORDER_NAME,
    PARTITIONS_PER_ORDER,
    answer_names,
    answers_folder,
    instant,
    moment,
    order_id,
    orders_folder,
    read_answer,
    read_order,
    write_order,
)
from logagent.store.signing import NotSigned, PrivateKey, PublicKey

ORDERS_PER_CHECK = 50
LIFETIME = timedelta(days=7)
"""How long a request, and an order, can last."""


@dataclass(slots=True)
class Exchange:
    """The orders and answers of one cluster, for one controller (or for one who only looks)."""

    control: Control
    context: ControllerContext
    manager: TopicDeletionManager
    warn: Callable[[str], None]
    answered_epochs: set[int] = field(default_factory=set)
    agents: dict[int, dict[str, datetime]] = field(default_factory=dict)
    """When each agent of a node answered last."""
    bytes_by_request: dict[str, dict[str, int]] = field(default_factory=dict)
    """Bytes of what answers call renamed or removed, by request and result."""
    _read: dict[tuple[int, str, str], int] = field(default_factory=dict)
    _counted: set[tuple[int, str, str, str]] = field(default_factory=set)
    _seq: int = 0

    def forget_answers(self) -> None:
        """Deliver all answers anew the next time: there are replicas now that did not exist before."""
        self._read.clear()

    def note_epochs(self, nodes: Collection[int]) -> None:
        """Which epochs the answers of these nodes mention, by their names alone."""
        for node in nodes:
            self.answered_epochs |= {_epoch_of(order) for order, _ in answer_names(self.control, node)}

    def read_answers(self, nodes: Collection[int], now: datetime) -> None:
        """Deliver what is new, oldest order first. Raises ServiceUnreachable."""
        for node in nodes:
            for (order, agent), (seq, name) in sorted(answer_names(self.control, node).items()):
                self.answered_epochs.add(_epoch_of(order))
                if self._read.get((node, order, agent), -1) < seq:
                    self._read[node, order, agent] = seq
                    self._read_answer(node, name, now)

    def _read_answer(self, node: int, name: str, now: datetime) -> None:
        try:
            content = self.control.read(answers_folder(node), name)
            if content is None:
                return
            answer = read_answer(content, name, node, self.control.cluster_id)
            at = min(now, moment(answer.at))
        except (NotSigned, UnreadableError, ValueError) as error:
            self.warn(f"the answer {name} of node {node} is not believed: {error}")
            return
        self.answered_epochs.add(answer.highest_epoch)
        agents = self.agents.setdefault(node, {})
        agents[answer.agent] = max(at, agents.get(answer.agent, at))
        self._deliver(answer, at)

    def _deliver(self, answer: Answer, at: datetime) -> None:
        grouped: dict[Replica, list[Result]] = {}
        for result in answer.results:
            topic = Topic(result.request_id, result.topic_id)
            replica = Replica(topic, result.partition, answer.node_id, result.asked_log_dir, result.asked_name)
            grouped.setdefault(replica, []).append(result)
            self._count(answer, result)
        for replica, results in grouped.items():
            self.manager.receive_answer(replica, answer.action, results, at)
        if answer.refused is not None:
            asked = (ReplicaState.OFFLINE, ReplicaState.STARTED)
            replicas = self.context.replicas_on_node(answer.node_id)
            failed = [r for r in replicas if self.context.replicas[r].state in asked]
            self.manager.fail_replica_deletion(dict.fromkeys(failed, Reason(answer.refused, "order")), at)

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
        """Write what the manager collected: an order a node and action. The name of an order that is there already
        (another controller has our epoch), or None."""
        check_epoch()
        batch = self.manager.replica_state_machine.take_batch()
        told: tuple[tuple[Action, dict[int, list[Replica]]], ...] = (("delete", batch.delete), ("stop", batch.stop))
        for action, nodes in told:
            for node, replicas in nodes.items():
                for start in range(0, len(replicas), PARTITIONS_PER_ORDER):
                    part = replicas[start : start + PARTITIONS_PER_ORDER]
                    until = min(valid_until(requests[r.topic.request_id]) for r in part)
                    self._seq += 1
                    order = Order(
                        order_id(epoch, self._seq),
                        epoch,
                        self.control.cluster_id,
                        node,
                        action,
                        instant(now),
                        instant(min(until, now + LIFETIME - timedelta(minutes=1))),
                        tuple(p for replica in part for p in self._ordered(replica, action, requests)),
                    )
                    # Politeness: an order of an epoch that is over is obeyed by nobody, and nothing is ever replaced.
                    if self._seq % ORDERS_PER_CHECK == 1:
                        check_epoch()
                    if not write_order(self.control, order, key):
                        return order.order_id
        return None

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

    def collect_garbage(self, nodes: Collection[int], epoch: int) -> None:
        """Remove the orders of lower epochs: no agent obeys them. Only the newest epoch's controller may ask this."""
        for node in nodes:
            for name in self.control.names(orders_folder(node)):
                match = ORDER_NAME.fullmatch(name)
                if match is not None and int(match[2]) < epoch:
                    self.control.remove(orders_folder(node), name)

    def replay(self, nodes: Collection[int], keys: tuple[PublicKey, ...]) -> None:
        """Bring the replicas where the standing orders have brought them, without telling anybody: for a look."""
        machine = self.manager.replica_state_machine
        for node in nodes:
            for name in sorted(self.control.names(orders_folder(node))):
                try:
                    content = self.control.read(orders_folder(node), name) if ORDER_NAME.fullmatch(name) else None
                    if content is None:
                        continue
                    order = read_order(content, name, node, keys, self.control.cluster_id)
                except UnreadableError:
                    continue
                except NotSigned:
                    continue
                for partition in order.partitions:
                    topic = Topic(partition.request_id, partition.topic_id)
                    replica = Replica(topic, partition.partition, node, partition.asked_log_dir, partition.asked_name)
                    known = self.context.replicas.get(replica)
                    if known is None:
                        continue
                    self.context.topics_to_be_deleted[topic].started = True
                    at = moment(order.issued_at)
                    if known.state is not ReplicaState.STARTED:
                        machine.handle_state_changes([replica], ReplicaState.OFFLINE, at, tell=False)
                        if order.action == "delete":
                            machine.handle_state_changes([replica], ReplicaState.STARTED, at, tell=False)


def _epoch_of(order: str) -> int:
    return int(order.partition("-")[0])
