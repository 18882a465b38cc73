"""Which of a node's snapshots is the newest, where its host's clock may be wrong. Decides; no I/O."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

CLOCKS_APART = timedelta(minutes=5)
"""How far apart the clocks of hosts, stores and operators may be. What differs more proves nothing."""
LONG_AGO = datetime.min.replace(tzinfo=UTC)


class When(NamedTuple):
    """The times of a snapshot. `order`: by which of them a node's snapshots follow each other."""

    taken_at: datetime
    arrived_at: datetime

    def order(self) -> tuple[datetime, datetime]:
        return (self.arrived_at if self.taken_at == LONG_AGO else self.taken_at, self.arrived_at)


def taken_at_of(said: object, arrived: datetime) -> datetime:
    """When a snapshot was taken: by its host's clock, as it may be sent hours later, but before it arrived. Without a
    valid time, or with one that shows that the clock is wrong, `LONG_AGO`: then it proves nothing."""
    try:
        at = datetime.fromisoformat(said) if isinstance(said, str) else LONG_AGO
        return min(at, arrived) if at <= arrived + CLOCKS_APART else LONG_AGO
    except (ValueError, TypeError, OverflowError):
        return LONG_AGO


def is_newer(snapshot: When, other: When, window: timedelta) -> bool:
    """Whether a snapshot is newer than another one of its node: whether it was taken later, for a spool arrives newest
    first. Without a valid time, it counts as taken when it arrived. What arrived more than `window` later is newer in
    any case: the host's clock was set back."""
    if abs(snapshot.arrived_at - other.arrived_at) > window:
        return snapshot.arrived_at > other.arrived_at
    return snapshot.order() > other.order()
