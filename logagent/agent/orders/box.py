"""Orders between store and host: held by the daemon for its lifetime, and briefly by `prestart`.

`receive` and `send` access the store and run in the loop that may hang with it; `obey` acts on a session, under the
executor lock, and asks the store only whether an order still stands, for a few seconds at most.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from logagent.agent.clock import Clock
from logagent.agent.orders.halting import Halted, bounded
from logagent.agent.orders.inbox import Inbox, StoredOrder, Unreadable
from logagent.agent.orders.memory import NAME, NodeKey, OrderMemory
from logagent.agent.orders.order_execution import OrderExecution
from logagent.agent.orders.results import key_of, refuse_all
from logagent.agent.orders.seen import SeenOrders
from logagent.agent.session.session import Session
from logagent.errors import LogAgentError, UnreadableError
from logagent.model.daemon_summary import OrdersSummary
from logagent.model.facts import Facts
from logagent.settings import Settings
from logagent.store.answers import write_answer
from logagent.store.control import Control, TooLarge
from logagent.store.deletion import Answer, Order, Result
from logagent.store.orders import decode
from logagent.store.shared import check_store
from logagent.store.signing import NotSigned, public_key

STANDS_SECONDS = 5.0
STANDS_IN_PRESTART_SECONDS = 0.2


@dataclass(slots=True)
class OrderBox:
    """The orders of one node. `settings` must name a store and keys."""

    settings: Settings
    state_dir: str
    clock: Clock
    cluster_id: str
    node_id: int
    standing: list[StoredOrder] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    inbox: Inbox = field(init=False)
    _sent: set[tuple[str, int]] = field(default_factory=set)
    _known_epoch: int = 0
    _seen: SeenOrders = field(init=False)
    _stood_first: str | None = None
    _recalled: bool = False
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        assert self.settings.publish.store is not None
        keys = tuple(public_key(text) for text in self.settings.orders.keys)
        control = Control(self.settings.publish.store, self.cluster_id)
        self.inbox = Inbox(control, self.node_id, keys, self.settings.orders.accept)
        self._seen = SeenOrders(self.state_dir, self.inbox)

    def receive(self) -> bool:
        """Read the orders in the store; whether there is anything to obey or answer. Raises ServiceUnreachable."""
        assert self.settings.publish.store is not None
        check_store(self.settings.publish.store)
        standing, unreadable = self.inbox.poll(self._known_epoch, self._now())
        with self._mutex:
            self.standing, self.unreadable = standing, unreadable
            if self._stood_first is None:
                self._stood_first = max((s.order.order_id for s in standing), default="")
        self._seen.note([s.order for s in standing if s.refused is None])
        return self.has_work()

    def standing_ids(self) -> frozenset[str]:
        """The ids of the order files in the store, whether obeyed or refused."""
        with self._mutex:
            return frozenset([s.order.order_id for s in self.standing] + [u.order_id for u in self.unreadable])

    def summary(self) -> OrdersSummary:
        """The orders that stand, and their progress. Raises JournalError."""
        memory, ids = OrderMemory.load(self.state_dir, self.clock.now_ms()), self.standing_ids()
        said = (r["result"] for i in ids if i in memory.answers for r in memory.answers[i].get("results", ()))
        return OrdersSummary(self.clock.now_ms(), len(ids), Counter(said), self.inbox.ignored.count)

    def has_work(self) -> bool:
        """Whether an order stands that is not settled according to the memory, or a new memory has yet to record what
        stood before it."""
        memory = OrderMemory.load(self.state_dir, self.clock.now_ms())
        if memory.born_above is None:
            return True
        with self._mutex:
            unknown = any(not memory.has_answered(u.order_id) for u in self.unreadable)
            return unknown or any(not memory.is_settled(s.order, refused=s.refused is not None) for s in self.standing)

    def recall(self) -> bool:
        """Take the orders that a daemon saw standing at most 10 minutes ago; whether there are any."""
        now = self._now()
        orders = self._seen.recall(now.timestamp())
        self.standing = [StoredOrder(order, self.inbox.refusal(order, now)) for order in orders]
        self._recalled = True
        return bool(self.standing)

    def send(self) -> None:
        """Publish the answers that are not in the store yet. Raises ServiceUnreachable; once the others are sent,
        UnreadableError for one that nobody could read."""
        try:
            memory = OrderMemory.load(self.state_dir, self.clock.now_ms())
        except LogAgentError:
            return  # `obey` reports it
        self._known_epoch = max(self._known_epoch, memory.highest_epoch)
        bad: UnreadableError | None = None
        for order_id, raw in sorted(memory.answers.items()):
            if (order_id, raw["seq"]) in self._sent:
                continue
            try:
                write_answer(self.inbox.control, decode(Answer, json.dumps(raw).encode()))
            except (NotSigned, TooLarge) as error:
                bad = bad or UnreadableError(f"the answer to order {order_id} cannot be sent: {error}")
                continue
            self._sent.add((order_id, raw["seq"]))
        if bad is not None:
            raise bad

    def obey(
        self, session: Session, facts: Facts, stop: Callable[[], bool], *, renames_only: bool = False
    ) -> list[OrderExecution]:
        """Obey the orders that stand, newest first, and remember the answers; returns what was done, by order.

        Raises JournalError if that cannot be remembered: then nothing (more) is done.
        """
        with self._mutex:
            standing, unreadable = list(self.standing), list(self.unreadable)
        memory = OrderMemory.load(self.state_dir, self.clock.now_ms())
        memory.highest_epoch = max(memory.highest_epoch, self.inbox.highest_epoch, self._known_epoch)
        if memory.born_above is None:
            memory.born_above = self._stood_first
        memory.settle_sent(self._sent)
        memory.save(self.state_dir)
        for unknown in unreadable:
            if not memory.has_answered(unknown.order_id):
                memory.remember_unreadable(unknown.order_id, self._node, unknown.why, self._now())
                memory.save(self.state_dir)
        obeyed: list[OrderExecution] = []
        handled: set[tuple[str, str]] = set()
        for s in standing:
            keys = {(s.order.action, key_of(replace(p, directory=None))) for p in s.order.partitions}
            if memory.is_settled(s.order, refused=s.refused is not None) or keys <= handled:
                handled |= keys
                continue
            handled |= keys
            done = self._obey_one(memory, s, session, facts, stop, renames_only)
            memory.save(self.state_dir)
            if any(o.execution is not None for o in done):
                # What this order removed counts against the limits of the next one.
                facts = session.facts()
            obeyed += done
        return obeyed

    def _obey_one(
        self, memory: OrderMemory, s: StoredOrder, session: Session, facts: Facts, stop: Callable[[], bool],
        renames_only: bool,
    ) -> list[OrderExecution]:  # fmt: skip
        order = s.order
        why = s.refused
        if why is None and memory.is_younger_than(order):
            why = "this agent's order memory is newer than the order"
        if why is None and order.epoch < memory.highest_epoch:
            why = f"its epoch {order.epoch} is over: epoch {memory.highest_epoch} was taken"
        if why is not None:
            memory.remember(order, self._node, refuse_all(order, why), self._now())
            return []
        halted = Halted(partial(self.stands, order), self.clock, stop)
        obedience = OrderExecution(session, facts, order, halted, renames_only)
        if order.action == "stop":
            results = obedience.answer_stop()
        else:
            known = memory.done.get(order.order_id, {})
            done = {key: decode(Result, json.dumps(raw).encode()) for key, raw in known.items()}
            results = obedience.delete(done)
        memory.remember(order, self._node, results, self._now())
        return [obedience]

    @property
    def _node(self) -> NodeKey:
        return self.cluster_id, self.node_id

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)

    def stands(self, order: Order) -> bool:
        """Whether the order is in the store now. A store that does not answer in time counts as no, except for orders
        that the daemon saw minutes ago (`recall`): there only an explicit no counts."""
        said = bounded(
            lambda: self.inbox.still_stands(order), STANDS_SECONDS if not self._recalled else STANDS_IN_PRESTART_SECONDS
        )
        return said is True or (said is None and self._recalled)


def box_of(settings: Settings, state_dir: str, clock: Clock, session: Session) -> OrderBox | None:
    """The box for the host of this session; None if orders cannot arrive (no store, no keys, no cluster known).

    Creates this agent's memory of orders if the session holds the executor lock. Raises JournalError.
    """
    cluster = session.log_dirs.cluster
    if settings.publish.store is None or not settings.orders.keys:
        return None
    if cluster.cluster_id is None or cluster.node_id is None:
        return None
    if session.acting and not Path(state_dir, NAME).exists():
        OrderMemory.load(state_dir, clock.now_ms()).save(state_dir)
    return OrderBox(settings, state_dir, clock, cluster.cluster_id, cluster.node_id)


def has_orders(settings: Settings) -> bool:
    """Whether orders can arrive at all."""
    return settings.publish.store is not None and bool(settings.orders.keys)


__all__ = ["NAME", "OrderBox", "bounded", "box_of", "has_orders"]
