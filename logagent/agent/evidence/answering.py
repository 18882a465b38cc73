"""Which broker answers through the Admin API, up to when it knows the cluster, and which topic ids it does not know."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from logagent.model.assignments.identity import BrokerPlace
from logagent.model.records import PartitionDir


@dataclass(frozen=True, slots=True)
class Answering:
    """The broker that answers for this cluster. `own`: it is this host's, proven by what is on its disk (`on_disk`).
    For another broker, `known_until_ms` is the time up to which it knows the cluster's decisions, None if unknown.
    `places`: where the brokers of the cluster listen (set only by our own broker)."""

    node_id: int
    own: bool
    on_disk: Mapping[str, frozenset[tuple[str, int]]]
    known_until_ms: int | None = None
    places: frozenset[BrokerPlace] = frozenset()


@dataclass(frozen=True, slots=True)
class Absent:
    """Topic ids that no longer exist. `asked`: whether there was a broker to ask. If `until_ms` is set, this counts
    only for directories that contain nothing younger; `proven` counts for all (a topic id is random and never
    reused)."""

    ids: frozenset[str] = frozenset()
    proven: frozenset[str] = frozenset()
    asked: bool = False
    until_ms: int | None = None

    def of(self, d: PartitionDir) -> AbstractSet[str] | None:
        """The absent ids that count for `d`; None if no broker was asked."""
        if not self.asked:
            return None
        newest_ms = max(d.ctime_ns, d.mtime_ns, d.newest_mtime_ns) // 1_000_000
        late = self.until_ms is not None and newest_ms > self.until_ms
        return self.proven if late else self.ids | self.proven
