"""What the orders that stand in the store imply, for whoever only looks: the states of replicas, and whether a single
round (`topics run --once`, a timer's) has anything to do.

A round begins with a new epoch, which ends every order that stands. If every call took one, an agent that needs longer
for an order than the timer's period would never finish one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from logagent.controller.controller_context import ControllerContext, Replica, ReplicaState, Topic
from logagent.controller.exchange import Exchange
from logagent.controller.replica_deletions import Pauses
from logagent.store.control import UNREADABLE
from logagent.store.deletion import ControllerEpoch, Order
from logagent.store.orders import ORDER_NAME, Requests, UnknownSchema, moment, orders_folder, read_order
from logagent.store.signing import NotSigned

_S = ReplicaState


def replay_orders(exchange: Exchange, nodes: Collection[int], request_ids: Collection[str] | None = None) -> None:
    """Move the replicas (of these requests) to the states that the orders in the store imply, without issuing any."""
    context, machine = exchange.context, exchange.manager.replica_state_machine
    for order in _orders(exchange, nodes):
        at = moment(order.issued_at)
        for partition in order.partitions:
            topic = Topic(partition.request_id, partition.topic_id)
            replica = Replica(topic, partition.partition, order.node_id, partition.asked_log_dir, partition.asked_name)
            known = context.replicas.get(replica)
            if known is None or (request_ids is not None and partition.request_id not in request_ids):
                continue
            shown = exchange.shown.get(replica)
            if shown is not None and at <= shown:
                continue
            exchange.stands_for[replica] = order.order_id
            context.topics_to_be_deleted[topic].started = True
            if known.state is not _S.STARTED:
                machine.handle_state_changes([replica], _S.OFFLINE, at, tell=False)
                if order.action == "delete":
                    machine.handle_state_changes([replica], _S.STARTED, at, tell=False)


def _orders(exchange: Exchange, nodes: Collection[int]) -> Iterator[Order]:
    """The signed orders to these nodes, each node's in order."""
    control = exchange.control
    for node in nodes:
        try:
            names = sorted(control.names(orders_folder(node)))
        except UNREADABLE as error:
            exchange.warn(f"the orders of node {node} cannot be read: {error}")
            continue
        for name in names:
            try:
                content = control.read(orders_folder(node), name) if ORDER_NAME.fullmatch(name) else None
                if content is None:
                    continue
                order = read_order(content, name, node, exchange.keys, control.cluster_id)
            except (*UNREADABLE, NotSigned, UnknownSchema):
                continue
            if order.node_id == node:
                yield order


def is_due(
    context: ControllerContext, requests: Requests, highest: ControllerEpoch | None, pauses: Pauses, now: datetime
) -> bool:
    """Whether anything can be asked, ordered or closed that the controller of the `highest` epoch has not. While its
    orders are with the agents, which may take `pauses.answer_within`, nothing can."""
    if highest is not None and moment(highest.at) > now:
        # A clock was wrong, then or now: by its times nothing might be due for years.
        return bool(context.topics_to_be_deleted)
    for topic, known in context.topics_to_be_deleted.items():
        if context.are_all_replicas_in_state(topic, _S.SUCCESSFUL):
            return True
        if known.started and any(_can_move(context, replica, pauses, now) for replica in known.replicas):
            return True
        if not known.started and _can_begin(context, topic, requests, highest, pauses, now):
            return True
    return False


def are_with_agents(context: ControllerContext, pauses: Pauses, now: datetime) -> bool:
    """Whether any agent has an order that it may still answer: a new epoch would end it."""
    for replica, known in context.replicas.items():
        if known.state not in (_S.OFFLINE, _S.STARTED) or known.asked_at is None or known.held:
            continue
        if known.asked_at + pauses.answer_within > now and context.is_replica_online(replica.node_id):
            return True
    return False


def _can_begin(
    context: ControllerContext,
    topic: Topic,
    requests: Requests,
    highest: ControllerEpoch | None,
    pauses: Pauses,
    now: datetime,
) -> bool:
    """Whether to ask the cluster about a topic of which no order stands."""
    requested_at = moment(requests.requests[topic.request_id].at)
    if highest is None or moment(highest.at) < requested_at:
        return True
    asked_at, waits = moment(highest.at), requests.waits.get(topic.request_id)
    if waits is not None and topic.topic_id in waits.topics:
        return asked_at + pauses.after_failing(asked_at - requested_at, pauses.first) <= now
    # The cluster has deleted it, and every host that is left was silent.
    back = [r for r in context.topics_to_be_deleted[topic].replicas if context.is_replica_online(r.node_id)]
    if any(context.replicas[r].state is not _S.SUCCESSFUL for r in back):
        return True
    return asked_at + pauses.after_failing(asked_at - requested_at, pauses.longest) <= now


def _can_move(context: ControllerContext, replica: Replica, pauses: Pauses, now: datetime) -> bool:
    known = context.replicas[replica]
    if known.state is _S.SUCCESSFUL or not context.is_replica_online(replica.node_id):
        return False
    if known.state is _S.INELIGIBLE:
        return known.retry_at is not None and known.retry_at <= now
    if known.asked_at is None or known.held:
        return True
    return known.asked_at + pauses.answer_within <= now
