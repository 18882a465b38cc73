"""The orders that the daemon saw standing, kept for `prestart`, which may not have the time to read the store.

It keeps the signed files of orders that had no cancelled request when the daemon looked; they count for
`SEEN_ORDERS_LAST` from that look, and every signature is verified again.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from logagent.agent.orders.inbox import Inbox
from logagent.agent.orders.memory import LIMIT, replace_file
from logagent.errors import LogAgentError
from logagent.files.safe_open import parse_json, read_regular
from logagent.store.deletion import SEEN_ORDERS_LAST, Order

NAME = "orders-seen.json"
# A file's time may be slightly in the future because file systems round.
AHEAD_SECONDS = 5.0


@dataclass(slots=True)
class SeenOrders:
    """The file in the state dir; its modification time is that of the last good look at the store."""

    state_dir: str
    inbox: Inbox
    _ids: tuple[str, ...] | None = None

    def note(self, orders: Sequence[Order]) -> None:
        """Note that these orders stand now. Raises ServiceUnreachable, JournalError."""
        path = Path(self.state_dir, NAME)
        cancelled = self.inbox.cancelled(p.request_id for order in orders for p in order.partitions)
        orders = [o for o in orders if not cancelled & {p.request_id for p in o.partitions}]
        ids = tuple(order.order_id for order in orders)
        if ids == self._ids and path.exists():
            os.utime(path)
        elif ids or self._ids or path.exists():
            files = {order.order_id: self.inbox.signed(order) for order in orders}
            content = {name: base64.b64encode(file).decode() for name, file in files.items() if file is not None}
            replace_file(Path(self.state_dir), NAME, json.dumps(content).encode())
        self._ids = ids

    def recall(self, now_seconds: float) -> list[Order]:
        """The validly signed orders seen standing at most ten minutes ago, newest first."""
        path = Path(self.state_dir, NAME)
        try:
            if not -AHEAD_SECONDS <= now_seconds - path.stat().st_mtime <= SEEN_ORDERS_LAST.total_seconds():
                return []
            files = parse_json(read_regular(path, LIMIT))
            found = [self.inbox.judged(name, base64.b64decode(files[name])) for name in sorted(files, reverse=True)]
        except (OSError, ValueError, TypeError, LogAgentError):
            return []
        return [order for order in found if isinstance(order, Order)]
