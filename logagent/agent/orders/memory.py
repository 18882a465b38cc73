"""What an agent must remember about orders: its id, the highest epoch it has seen, and what it did.

One small file in the state dir, replaced as a whole and only under the executor lock. If it is lost, the agent gets a
new id and obeys no order older than that.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from logagent import __version__
from logagent.agent.orders.results import FINAL_GUARDS, as_words, key_of
from logagent.errors import JournalError, LogAgentError
from logagent.files.safe_open import MIB, FileLimit, parse_json, read_regular
from logagent.files.whole_file import whole_file
from logagent.store.deletion import SUCCESSES, Answer, Order, Result
from logagent.store.orders import encode, instant, moment

NAME = "orders.json"
LIMIT = FileLimit("the order memory", 256 * MIB)
# What is kept of answers, the newest first; of the orders before them only the ids, so that none is obeyed twice.
MAX_BYTES = 64 * MIB
MAX_ORDERS = 2_000
# Far more than controllers write within the lifetime of an order (days).
MAX_IDS = 100_000
NodeKey = tuple[str, int]
"""Cluster id and node id of the host that answers, whomever an order was for."""


@dataclass(slots=True)
class OrderMemory:
    """`agent`: the agent's id, created at `born_ms`. `answers`: the last answer as written, by order id. `done`: the
    results of what was done, by order id and the key of the ordered directory. `born_above`: the highest order that
    stood at its first look (its clock and the controller's may differ); None before that look. `settled`: the ids of
    answered orders of which nothing else is kept; none of them is obeyed or answered again."""

    agent: str
    born_ms: int
    highest_epoch: int = 0
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    born_above: str | None = None
    settled: set[str] = field(default_factory=set)

    @classmethod
    def load(cls, state_dir: str, now_ms: int) -> OrderMemory:
        """The memory of this state dir, or a new one. Raises JournalError for a file that cannot be read: an agent that
        does not know what it did must do nothing."""
        path = Path(state_dir, NAME)
        try:
            read = parse_json(read_regular(path, LIMIT))
            known = {name: read[name] for name in ("agent", "born_ms", "highest_epoch", "answers", "done")}
            return cls(**known, born_above=read.get("born_above", ""), settled=set(read.get("settled", ())))
        except FileNotFoundError:
            return cls(secrets.token_hex(16), now_ms)
        except (OSError, LogAgentError, ValueError, KeyError, TypeError) as error:
            hint = "move it away: this agent then obeys newer orders only"
            raise JournalError(f"{path} cannot be read: {error}", hint=hint) from error

    def save(self, state_dir: str) -> None:
        """Write it durably. Raises JournalError."""
        for order_id in sorted(self.answers)[:-MAX_ORDERS]:
            self._settle(order_id)
        content = self._content()
        if len(content) > MAX_BYTES:
            room = MAX_BYTES // 2
            for order_id in sorted(self.answers, reverse=True):
                room -= len(json.dumps([self.answers[order_id], self.done.get(order_id)]))
                if room < 0:
                    self._settle(order_id)
            content = self._content()
        replace_file(Path(state_dir), NAME, content)

    def settle_sent(self, sent: Collection[tuple[str, int]]) -> None:
        """Keep only the ids of the orders whose epoch is over and whose answers are in the store (`sent`: order id and
        `seq`)."""
        for order_id, answer in list(self.answers.items()):
            if _epoch_of(order_id) < self.highest_epoch and (order_id, answer["seq"]) in sent:
                self._settle(order_id)

    def _settle(self, order_id: str) -> None:
        del self.answers[order_id]
        self.done.pop(order_id, None)
        self.settled.add(order_id)
        if len(self.settled) > MAX_IDS:
            oldest = min(self.settled)
            self.settled.remove(oldest)
            self.born_above = max(self.born_above or "", oldest)

    def _content(self) -> bytes:
        content = {
            "agent": self.agent,
            "born_ms": self.born_ms,
            "highest_epoch": self.highest_epoch,
            "answers": self.answers,
            "done": self.done,
            "born_above": self.born_above,
            "settled": sorted(self.settled),
        }
        return json.dumps(content).encode()

    def is_younger_than(self, order: Order) -> bool:
        """Whether the order may have been issued, and obeyed, before this memory was created. Ids grow with time."""
        if self.born_above is None or order.order_id <= self.born_above:
            return True
        return moment(order.issued_at).timestamp() * 1000 < self.born_ms - 1

    def has_answered(self, order_id: str) -> bool:
        return order_id in self.answers or order_id in self.settled

    def is_settled(self, order: Order, *, refused: bool) -> bool:
        """Whether an order is finished: it was answered, and what was not done never will be."""
        raw = self.answers.get(order.order_id)
        if raw is None:
            return order.order_id in self.settled
        if order.action == "stop" or refused:
            return True
        return all(r["result"] in SUCCESSES or r.get("guard") in FINAL_GUARDS for r in raw.get("results", ()))

    def remember(self, order: Order, node: NodeKey, results: Sequence[Result], now: datetime) -> None:
        """Keep an answer, with the next number if it differs from the last one."""
        said = [json.loads(encode(result)) for result in results]
        before = self.answers.get(order.order_id)
        if before is not None and before.get("results", []) == said:
            return
        answer = Answer(
            order.order_id, order.epoch, self.highest_epoch, *node, self.agent,
            0 if before is None else before["seq"] + 1, order.action, instant(now), __version__, tuple(results),
        )  # fmt: skip
        self._keep(answer)
        done = self.done.setdefault(order.order_id, {})
        if order.action == "delete" and len(results) == len(order.partitions):
            for p, result, raw in zip(order.partitions, results, said, strict=True):
                if result.result in SUCCESSES:
                    done[key_of(p)] = raw

    def remember_unreadable(self, order_id: str, node: NodeKey, why: str, now: datetime) -> None:
        """Keep the answer to an order that this version cannot read."""
        self._keep(
            Answer(order_id, _epoch_of(order_id), self.highest_epoch, *node, self.agent, 0, "stop", instant(now),
                   __version__, (), as_words(why))
        )  # fmt: skip

    def _keep(self, answer: Answer) -> None:
        self.answers[answer.order_id] = {**json.loads(encode(answer)), "seq": answer.seq}


def _epoch_of(order_id: str) -> int:
    return int(order_id.partition("-")[0])


def replace_file(folder: Path, name: str, content: bytes) -> None:
    """Replace a file of the state dir as a whole, durably (0600). Raises JournalError."""
    try:
        with whole_file(folder / name, mode=0o600) as file:
            file.write(content)
    except OSError as error:
        raise JournalError(f"{folder / name} cannot be written: {error.strerror or error}") from error
