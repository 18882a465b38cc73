"""Who answers through the Admin API, how far it knows, and which topic ids it does not know: what was found out."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from logagent.model.assignments.identity import BrokerPlace
from logagent.model.records import PartitionDir


@dataclass(frozen=True, slots=True)
class Answering:
    """The broker that answers for this cluster. `own`: it is this host's, seen by what lies on the disk; `on_disk` is
    that. Else `known_until_ms` is up to when it knows what the cluster decided, None where that cannot be told.
    `places`: where the brokers of the cluster listen (only told by our own)."""

    node_id: int
    own: bool
    on_disk: Mapping[str, frozenset[tuple[str, int]]]
    known_until_ms: int | None = None
    places: frozenset[BrokerPlace] = frozenset()


@dataclass(frozen=True, slots=True)
class Absent:
    """Topic ids that do not live. `asked`: somebody could be asked at all. Where `until_ms` is set it counts only for
    directories in which nothing is younger; `proven` counts for all (a topic id is random and never given again)."""

    ids: frozenset[str] = frozenset()
    proven: frozenset[str] = frozenset()
    asked: bool = False
    until_ms: int | None = None

    def of(self, d: PartitionDir) -> AbstractSet[str] | None:
        """What counts for `d`; None where nobody was asked."""
        if not self.asked:
            return None
        newest_ms = max(d.ctime_ns, d.mtime_ns, d.newest_mtime_ns) // 1_000_000
        late = self.until_ms is not None and newest_ms > self.until_ms
        return self.proven if late else self.ids | self.proven
