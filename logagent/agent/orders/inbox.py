"""Reads a node's orders from the store and judges each file: obey it, refuse it with a reason, or ignore it.

What is not validly signed is ignored: it is neither answered nor remembered; each round logs one line with a count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from logagent.errors import LogAgentError, UnreadableError
from logagent.store.control import UNREADABLE, Control
from logagent.store.deletion import Order
from logagent.store.epochs import Epochs
from logagent.store.orders import (
    CLOSED_NAME,
    ORDER_NAME,
    Ignored,
    UnknownSchema,
    believed_closed,
    closings_folder,
    moment,
    orders_folder,
    read_order,
)
from logagent.store.signing import NotSigned, PublicKey

MAX_FILES = 100
LONGEST = timedelta(days=7)
AHEAD = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class StoredOrder:
    """An order in the store; `refused`: why it is not obeyed, whatever it asks for."""

    order: Order
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A validly signed order whose schema this version does not know; only its id is known."""

    order_id: str
    why: str


@dataclass(slots=True)
class Inbox:
    """The orders of one node. Invalid files are read once; at most 100 new files per poll, newest epoch first."""

    control: Control
    node_id: int
    keys: tuple[PublicKey, ...]
    accept: bool
    ignored: Ignored = field(default_factory=Ignored)
    epochs: Epochs = field(init=False)
    highest_epoch: int = 0
    _orders: dict[str, Order | Unreadable | None] = field(default_factory=dict)
    _unknown: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.epochs = Epochs(self.control, self.keys)

    def poll(self, known_epoch: int, now: datetime) -> tuple[list[StoredOrder], list[Unreadable]]:
        """The orders that stand now, newest first; `known_epoch`: the highest epoch that this agent remembers.

        Raises ServiceUnreachable. As long as it is not certain which epoch is the highest, none is returned.
        """
        highest = self.epochs.highest()
        self.highest_epoch = max(known_epoch, highest.epoch if highest is not None else 0)
        there = set()
        unread = MAX_FILES
        names = [n for n in self.control.names(orders_folder(self.node_id)) if ORDER_NAME.fullmatch(n)]
        # Names are anybody's to choose: first those that can be obeyed.
        for name in sorted(names, key=lambda n: (int(n[:10]) == self.highest_epoch, n), reverse=True):
            there.add(name)
            if name not in self._orders and unread > 0:
                unread -= 1
                self._orders[name] = self._read(name)
        for gone in self._orders.keys() - there:
            del self._orders[gone]
        if not self.epochs.certain:
            return [], []
        orders = [self._orders[name] for name in sorted(there & self._orders.keys(), reverse=True)]
        standing = [StoredOrder(o, self.refusal(o, now)) for o in orders if isinstance(o, Order)]
        return standing, [o for o in orders if isinstance(o, Unreadable)]

    def _read(self, name: str) -> Order | Unreadable | None:
        try:
            content = self.control.read(orders_folder(self.node_id), name)
        except UNREADABLE as error:
            self.ignored.add(name, str(error))
            return None
        return None if content is None else self.judged(name.removesuffix(".json"), content)

    def judged(self, order_id: str, content: bytes) -> Order | Unreadable | None:
        """The order in a file; None (and counted as ignored) if it is not validly signed."""
        try:
            order = read_order(content, f"{order_id}.json", self.node_id, self.keys, self.control.cluster_id)
        except UnknownSchema as error:
            return Unreadable(order_id, str(error))
        except (LogAgentError, ValueError) as error:
            self.ignored.add(order_id, str(error))
            return None
        return order

    def signed(self, order: Order) -> bytes | None:
        """The order's file as it is in the store; None if it no longer exists. Raises ServiceUnreachable."""
        return self.control.read(orders_folder(self.node_id), f"{order.order_id}.json")

    def refusal(self, order: Order, now: datetime) -> str | None:
        """Why an order is refused as a whole; None if it may be obeyed."""
        issued, expires = moment(order.issued_at), moment(order.expires_at)
        if not self.accept:
            return "orders are not accepted here (orders.accept)"
        if order.cluster_id != self.control.cluster_id:
            return f"it is for cluster {order.cluster_id}, this is {self.control.cluster_id}"
        if order.node_id != self.node_id:
            return f"it is for node {order.node_id}, this is node {self.node_id}"
        if order.epoch < self.highest_epoch:
            return f"its epoch {order.epoch} is over: epoch {self.highest_epoch} was taken"
        if issued > now + AHEAD:
            return f"it was issued at {order.issued_at}, which is in the future here"
        if expires - issued > LONGEST:
            return "it is valid for longer than 7 days"
        if now >= expires:
            return f"it expired at {order.expires_at}"
        return None

    def still_stands(self, order: Order) -> bool:
        """Whether the order file exists and none of its requests was cancelled. Asked right before acting."""
        if not self.control.exists(orders_folder(self.node_id), f"{order.order_id}.json"):
            return False
        highest = self.epochs.highest()
        if highest is not None and highest.epoch > order.epoch:
            return False
        return not self.cancelled(p.request_id for p in order.partitions)

    def cancelled(self, request_ids: Iterable[str]) -> set[str]:
        """Those of these requests that a validly signed entry cancels, or of which that cannot be known: somebody put
        something else in the place of their entries."""
        return {request_id for request_id in dict.fromkeys(request_ids) if self._is_cancelled(request_id)}

    def _is_cancelled(self, request_id: str) -> bool:
        folder = closings_folder(request_id)
        try:
            for name in self.control.names(folder):
                match = CLOSED_NAME.fullmatch(name)
                if match is not None and match[2] == "cancelled" and self._cancels(request_id, name):
                    return True
        except UNREADABLE as error:
            if request_id not in self._unknown:
                self._unknown.add(request_id)
                self.ignored.add(folder, f"whether the request was cancelled cannot be read: {error}")
            return True
        return False

    def _cancels(self, request_id: str, name: str) -> bool:
        try:
            content = self.control.read(closings_folder(request_id), name)
            if content is None:
                return False
            return believed_closed(content, request_id, self.keys, self.control.cluster_id).outcome == "cancelled"
        except (NotSigned, UnreadableError):  # no file of ours, such as a FIFO
            return False
