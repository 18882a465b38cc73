"""Orders between store and host: what the daemon holds for its lifetime, and `prestart` for a moment.

`receive` and `send` touch the store and belong to the loop that may hang with it; `obey` acts on a session, under the
executor lock, and asks the store only whether an order still stands, never for longer than a few seconds.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from logagent import __version__
from logagent.agent.clock import Clock
from logagent.agent.orders.inbox import Inbox, Standing, Unreadable
from logagent.agent.orders.memory import LIMIT, NAME, SEEN_NAME, OrderMemory, replace_file
from logagent.agent.orders.obey import IDENTITY, RESTORED, Obedience, key_of, refuse_all
from logagent.agent.session.session import Session
from logagent.errors import LogAgentError, ServiceUnreachable
from logagent.files.safe_open import read_regular
from logagent.model.facts import Facts
from logagent.settings import Settings
from logagent.store.control import Control
from logagent.store.deletion import SUCCESSES, Answer, Order, Result
from logagent.store.orders import decode, encode, instant, moment, write_answer
from logagent.store.signing import NotSigned, public_key
from logagent.store.tree import check_store

T = TypeVar("T")
STANDS_SECONDS = 5.0
STANDS_ANEW_SECONDS = 1.0
SEEN_LASTS_SECONDS = 600.0
_FINAL_GUARDS = (IDENTITY, RESTORED)


@dataclass(slots=True)
class OrderBox:
    """The orders of one node. `settings` must name a store and keys."""

    settings: Settings
    state_dir: str
    clock: Clock
    cluster_id: str
    node_id: int
    standing: list[Standing] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    inbox: Inbox = field(init=False)
    _sent: set[tuple[str, int]] = field(default_factory=set)
    _known_epoch: int = 0
    _seen: tuple[str, ...] | None = None
    _recalled: bool = False
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        assert self.settings.publish.store is not None
        keys = tuple(public_key(text) for text in self.settings.orders.keys)
        control = Control(Path(self.settings.publish.store), self.cluster_id)
        self.inbox = Inbox(control, self.node_id, keys, self.settings.orders.accept)

    def receive(self) -> bool:
        """Read what stands in the store; whether there is anything to obey or answer. Raises ServiceUnreachable."""
        assert self.settings.publish.store is not None
        check_store(self.settings.publish.store)
        standing, unreadable = self.inbox.poll(self._known_epoch, self._now())
        with self._mutex:
            self.standing, self.unreadable = standing, unreadable
        self._note_seen([s.order for s in standing if s.refused is None])
        return self.has_work()

    def standing_ids(self) -> frozenset[str]:
        """The order files that stand, whether they are obeyed or refused."""
        with self._mutex:
            return frozenset([s.order.order_id for s in self.standing] + [u.order_id for u in self.unreadable])

    def has_work(self) -> bool:
        """Whether something stands that was not settled yet, as far as the memory says."""
        memory = OrderMemory.load(self.state_dir, self.clock.now_ms())
        with self._mutex:
            unknown = any(u.order_id not in memory.answers for u in self.unreadable)
            return unknown or any(not self._is_settled(memory, s) for s in self.standing)

    def _note_seen(self, orders: list[Order]) -> None:
        """For `prestart`, which may not have the time to read the store."""
        ids = tuple(order.order_id for order in orders)
        path = Path(self.state_dir, SEEN_NAME)
        if ids == self._seen and path.exists():
            os.utime(path)
        elif ids or self._seen or path.exists():
            content = [base64.b64encode(encode(order)).decode() for order in orders]
            replace_file(Path(self.state_dir), SEEN_NAME, json.dumps(content).encode())
        self._seen = ids

    def recall(self) -> bool:
        """Take the orders that a daemon saw standing at most 10 minutes ago; whether there are such."""
        path = Path(self.state_dir, SEEN_NAME)
        try:
            if not -5 <= self.clock.now_ms() / 1000 - path.stat().st_mtime <= SEEN_LASTS_SECONDS:
                return False
            orders = [decode(Order, base64.b64decode(text)) for text in json.loads(read_regular(path, LIMIT))]
        except (OSError, ValueError, TypeError, LogAgentError):
            return False
        now = self._now()
        self.standing = [Standing(order, self.inbox.refusal(order, now)) for order in orders]
        self._recalled = True
        return bool(self.standing)

    def send(self) -> None:
        """Publish the answers that are not there yet. Raises ServiceUnreachable."""
        try:
            memory = OrderMemory.load(self.state_dir, self.clock.now_ms())
        except LogAgentError:
            return  # `obey` says it
        self._known_epoch = max(self._known_epoch, memory.highest_epoch)
        for order_id, raw in sorted(memory.answers.items()):
            if (order_id, raw["seq"]) not in self._sent:
                write_answer(self.inbox.control, decode(Answer, json.dumps(raw).encode()))
                self._sent.add((order_id, raw["seq"]))

    def obey(
        self, session: Session, facts: Facts, stop: Callable[[], bool], *, renames_only: bool = False
    ) -> list[Obedience]:
        """Obey what stands, newest order first, and remember the answers; what was done, by order.

        Raises JournalError where it cannot be remembered: then nothing (more) is done.
        """
        with self._mutex:
            standing, unreadable = list(self.standing), list(self.unreadable)
        memory = OrderMemory.load(self.state_dir, self.clock.now_ms())
        memory.highest_epoch = max(memory.highest_epoch, self.inbox.highest_epoch, self._known_epoch)
        memory.save(self.state_dir)
        for unknown in unreadable:
            if unknown.order_id not in memory.answers:
                self._answer_unreadable(memory, unknown)
                memory.save(self.state_dir)
        obeyed: list[Obedience] = []
        handled: set[tuple[str, str]] = set()
        for s in standing:
            keys = {(s.order.action, key_of(replace(p, directory=None))) for p in s.order.partitions}
            if self._is_settled(memory, s) or keys <= handled:
                handled |= keys
                continue
            handled |= keys
            done = self._obey_one(memory, s, session, facts, stop, renames_only)
            memory.save(self.state_dir)
            if any(o.execution is not None for o in done):
                # What this order took counts against the limits of the next one.
                facts = session.facts()
            obeyed += done
        return obeyed

    def _obey_one(
        self, memory: OrderMemory, s: Standing, session: Session, facts: Facts, stop: Callable[[], bool],
        renames_only: bool,
    ) -> list[Obedience]:  # fmt: skip
        order = s.order
        why = s.refused
        if why is None and moment(order.issued_at).timestamp() * 1000 < memory.born_ms - 1:
            why = "this agent's memory of orders is younger than the order"
        if why is None and order.epoch < memory.highest_epoch:
            why = f"its epoch {order.epoch} is over: epoch {memory.highest_epoch} was taken"
        if why is not None:
            self._remember(memory, order, refuse_all(order, why))
            return []
        halted = _Halted(self, order, stop)
        obedience = Obedience(session, facts, order, halted, renames_only)
        if order.action == "stop":
            results = obedience.answer_stop()
        else:
            known = memory.done.get(order.order_id, {})
            done = {key: decode(Result, json.dumps(raw).encode()) for key, raw in known.items()}
            results = obedience.delete(done)
        self._remember(memory, order, results)
        return [obedience]

    @staticmethod
    def _is_settled(memory: OrderMemory, s: Standing) -> bool:
        """Whether nothing more can come of an order: it was answered, and what was not done will not be."""
        raw = memory.answers.get(s.order.order_id)
        if raw is None:
            return False
        if s.order.action == "stop" or s.refused is not None:
            return True
        results = raw.get("results", ())
        return all(r["result"] in SUCCESSES or r.get("guard") in _FINAL_GUARDS for r in results)

    def _remember(self, memory: OrderMemory, order: Order, results: list[Result]) -> None:
        """Keep an answer, with the next number if it says something new."""
        said = [json.loads(encode(result)) for result in results]
        before = memory.answers.get(order.order_id)
        if before is not None and before.get("results", []) == said:
            return
        answer = Answer(
            order.order_id, order.epoch, memory.highest_epoch, self.cluster_id, self.node_id, memory.agent,
            0 if before is None else before["seq"] + 1, order.action, instant(self._now()), __version__,
            tuple(results),
        )  # fmt: skip
        memory.answers[order.order_id] = {**json.loads(encode(answer)), "seq": answer.seq}
        done = memory.done.setdefault(order.order_id, {})
        if order.action == "delete" and len(results) == len(order.partitions):
            for p, result, raw in zip(order.partitions, results, said, strict=True):
                if result.result in SUCCESSES:
                    done[key_of(p)] = raw

    def _answer_unreadable(self, memory: OrderMemory, unknown: Unreadable) -> None:
        epoch = int(unknown.order_id.partition("-")[0])
        answer = Answer(
            unknown.order_id, epoch, memory.highest_epoch, self.cluster_id, self.node_id, memory.agent, 0, "stop",
            instant(self._now()), __version__, (), unknown.why,
        )  # fmt: skip
        memory.answers[unknown.order_id] = {**json.loads(encode(answer)), "seq": 0}

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)

    def stands(self, order: Order) -> bool:
        """Whether the order stands in the store now. A store that does not answer in time is no yes, but for what the
        daemon saw minutes ago (`recall`): there only a no counts."""
        said = bounded(lambda: self.inbox.still_stands(order), STANDS_SECONDS if not self._recalled else 0.2)
        return said is True or (said is None and self._recalled)


class _Halted:
    """The `stop` of one order's execution: told to stop, or the order is gone, cancelled or outdated."""

    def __init__(self, box: OrderBox, order: Order, stop: Callable[[], bool]) -> None:
        self._box, self._order, self._stop = box, order, stop
        self._asked_at = float("-inf")
        self._stands = False

    def __call__(self) -> bool:
        if self._stop():
            return True
        now = self._box.clock.monotonic()
        if now - self._asked_at >= STANDS_ANEW_SECONDS:
            self._stands = self._box.stands(self._order)
            self._asked_at = self._box.clock.monotonic()
        return not self._stands


def bounded(ask: Callable[[], T], seconds: float) -> T | None:
    """What `ask` gives within so many seconds; None if it takes longer or fails. It is left behind then: a store that
    hangs holds up nothing else."""
    answers: list[T] = []

    def run() -> None:
        try:
            answers.append(ask())
        except (ServiceUnreachable, NotSigned, OSError, LogAgentError):
            pass

    thread = threading.Thread(target=run, name="logagent-store", daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else None


def box_of(settings: Settings, state_dir: str, clock: Clock, session: Session) -> OrderBox | None:
    """The box for the host of this session; None where orders cannot come (no store, no keys, no cluster known).

    From now on this agent has a memory of orders, if the session holds the executor lock. Raises JournalError.
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
    """Whether orders can come at all."""
    return settings.publish.store is not None and bool(settings.orders.keys)


__all__ = ["NAME", "OrderBox", "bounded", "box_of", "has_orders"]
