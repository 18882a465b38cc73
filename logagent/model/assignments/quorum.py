"""Up to which moment the metadata of another broker is known to be complete, from one DescribeQuorum answer (KIP-836).

While this host's broker is down its own metadata is old, and another broker may answer for it. But one that lags, or
follows a leader without a majority, knows nothing of what happened since. No I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_SKEW_MS = 30_000
"""How far the leader's clock, in which all these times are told, may be from ours."""

APPLY_MS = 60_000
"""What was fetched is not applied yet: how long that may take."""


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """One voter or observer of `__cluster_metadata`, times in ms of the leader's clock, -1 where it does not know."""

    node_id: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumLook:
    """What the answering leader says of its quorum."""

    leader_id: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...] = ()


def known_until_ms(quorum: QuorumLook, node_id: int, now_ms: int) -> int | str:
    """The moment (ms) up to which node `node_id` knows what the cluster decided; in words why that cannot be told.

    It is the least of the node's own `LastCaughtUpTimestamp` and the time by which a majority of the voters had fetched
    (the leader counted as now: one that is isolated calls itself and its followers caught up), less `APPLY_MS`.
    """
    leader = next((v for v in quorum.voters if v.node_id == quorum.leader_id), None)
    if leader is None or leader.last_caught_up_ms <= 0:
        return "the quorum's leader does not say its own time"
    clock = leader.last_caught_up_ms
    if abs(clock - now_ms) > MOST_SKEW_MS:
        return f"the clock of the quorum's leader differs from ours by {abs(clock - now_ms) // 1000} s"
    if node_id == quorum.leader_id:
        caught_up = clock
    else:
        own = [r.last_caught_up_ms for r in (*quorum.voters, *quorum.observers) if r.node_id == node_id]
        caught_up = min(own, default=-1)
    if caught_up <= 0:
        return f"the quorum's leader does not know how far node {node_id} is"
    fetched = sorted((clock if v is leader else v.last_fetch_ms for v in quorum.voters), reverse=True)
    by_majority = fetched[len(fetched) // 2]
    if by_majority <= 0:
        return "the quorum's leader has not heard of a majority of its voters"
    return min(caught_up, by_majority) - APPLY_MS
