"""The state of each request: open, on hold, done, cancelled or dropped, and until when it counts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from logagent.controller.exchange import LIFETIME, Exchange
from logagent.controller.setting import Setting
from logagent.store.contract import CLOCKS_APART
from logagent.store.deletion import ControllerEpoch, Request
from logagent.store.epochs import Epochs
from logagent.store.orders import Requests, instant, moment

# An answer may name any epoch; no controller took one this far above the store's.
MAX_EPOCHS_FORGOTTEN = 100_000
KEPT_CLOSED = timedelta(days=30)
State = Literal["open", "on-hold", "done", "cancelled", "dropped"]


class RequestStates:
    """What the requests of the store have come to. `on_hold`: why, by request id, as of the last `judge`."""

    def __init__(self, setting: Setting, requests: Requests, exchange: Exchange, epochs: Epochs) -> None:
        self.on_hold: dict[str, str] = {}
        self._setting = setting
        self._requests = requests
        self._exchange = exchange
        self._epochs = epochs

    def judge(self, request: Request, now: datetime, ours: ControllerEpoch | None) -> State:
        """The state of a request now. `ours`: the epoch of this controller, if it has one."""
        self.on_hold.pop(request.request_id, None)
        if self.of(request.request_id) in ("open", "on-hold"):
            hold = self._hold(request, now, ours)
            if hold is not None:
                self.on_hold[request.request_id] = hold
        return self.of(request.request_id)

    def of(self, request_id: str) -> State:
        """The state of a request as of the last `judge`."""
        closed = self._requests.closed.get(request_id, {})
        if "cancelled" in closed:
            return "cancelled"
        dropped = request_id in self._requests.dropped
        if dropped and not self._requests.topics_of(request_id):
            return "dropped"
        if "done" in closed and request_id not in self._exchange.reopened:
            return "dropped" if dropped else "done"
        return "on-hold" if request_id in self.on_hold or request_id in self._requests.unreadable else "open"

    def not_closed(self) -> list[Request]:
        """The requests that are open, on hold or not, without the topics of them that are dropped."""
        found = [r for r in self._requests.requests.values() if self.of(r.request_id) in ("open", "on-hold")]
        dropped = self._requests.dropped
        return [replace(r, topics=self._requests.topics_of(i)) if (i := r.request_id) in dropped else r for r in found]

    def closed(self) -> list[tuple[Request, datetime]]:
        """The requests that are done, cancelled or dropped, each with the last time that this was recorded
        (`Requests.closed_at`)."""
        return [(self._requests.requests[request_id], at) for request_id, at in self._requests.closed_at.items()]

    def _hold(self, request: Request, now: datetime, ours: ControllerEpoch | None) -> str | None:
        """Why a request is on hold, mostly until `topics resume`; None if it is not."""
        if request.request_id in self._requests.unreadable:
            return self._requests.unreadable[request.request_id]
        if now > self.valid_until(request):
            return f"it expired at {instant(self.valid_until(request))}"
        resumed = self._requests.closed.get(request.request_id, {}).get("resumed")
        known = max(request.epoch, resumed.epoch if resumed is not None else 0)
        below = ours.epoch if ours is not None else MAX_EPOCHS_FORGOTTEN << 16
        answered = sorted((e for e in self._exchange.answered_epochs if known < e < below), reverse=True)
        lost = next((e for e in answered if not self._epochs.knows(e)), None)
        if lost is not None:
            return f"{self._exchange.mention(lost)}, which the store has lost: it was restored to an older state"
        return None

    def valid_until(self, request: Request) -> datetime:
        """When a request expires: at the latest 7 days after it was made or resumed."""
        until = min(moment(request.expires_at), moment(request.at) + LIFETIME)
        resumed = self._requests.closed.get(request.request_id, {}).get("resumed")
        return until if resumed is None else max(until, moment(resumed.at) + LIFETIME)

    def may_delete(self, request_id: str) -> bool:
        """Whether this request may cause DeleteTopics, as of the last look at the store. One that was closed never may
        again, whatever was found since: what lives now was not deleted when the operator asked for it."""
        is_open = self.of(request_id) == "open" and not self.is_reopened(request_id)
        return is_open and self._requests.requests[request_id].kind == "topics"

    def is_reopened(self, request_id: str) -> bool:
        """Whether a request was done before, and is open only because a copy of a topic of it was found."""
        return "done" in self._requests.closed.get(request_id, {}) and self.of(request_id) == "open"

    def nodes(self) -> set[int]:
        """Every node that a request names."""
        nodes = {d.node_id for r in self._requests.requests.values() for d in r.directories}
        for request in self._requests.requests.values():
            nodes |= {n for t in request.topics for p in t.partitions for n in p.replicas}
        return nodes

    def to_search(self, open_requests: Collection[str]) -> list[str]:
        """The requests whose topics are searched for further copies: `open_requests`, and done ones that have not
        expired."""
        request_ids = set(open_requests)
        for request_id, closed in self._requests.closed.items():
            request = self._requests.requests[request_id]
            if "done" in closed and "cancelled" not in closed and self._setting.clock() < self.valid_until(request):
                request_ids.add(request_id)
        return [i for i in sorted(request_ids) if self._requests.requests[i].kind == "topics"]

    def closed_long_ago(self) -> list[str]:
        """The requests that are closed, and were last said to be a month ago: by the clock of whoever said it, which
        may be behind, and by the store's. A time to come is none that a store gave: it would keep a request forever."""
        now = self._setting.clock()
        until, latest = now - KEPT_CLOSED, now + CLOCKS_APART
        return [
            request_id
            for request_id, closed in self._requests.closed.items()
            if self.of(request_id) in ("done", "cancelled", "dropped")
            and max(c.at for c in closed.values()) < instant(until)
            and not until <= self._requests.closed_at[request_id] <= latest
        ]
