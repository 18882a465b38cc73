"""Until when another broker's metadata is known to be complete, from one DescribeQuorum answer (KIP-836).

While this host's broker is down, its own metadata is old, and another broker may answer instead. But a broker that
lags, or that follows a leader without a majority, does not know what has happened since. No I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_SKEW_MS = 30_000
"""How much the leader's clock, which all these times refer to, may differ from ours."""

APPLY_MS = 60_000
"""How long it may take until fetched records are applied."""


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """One voter or observer of `__cluster_metadata`; times in ms by the leader's clock, -1 if it does not know."""

    node_id: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumLook:
    """The leader's description of its quorum. `high_watermark`: the offset up to which it has committed."""

    leader_id: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...] = ()
    high_watermark: int = -1


def why_not_our_log(end: int | None, own_end: int | None, whose: str) -> str | None:
    """Why metadata up to offset `end` (that of `whose`: "its quorum", "the file") does not continue the metadata log on
    this host's disk, which ends at offset `own_end`; None if it may, or if either offset is unknown.

    A cluster that was cloned, or restored from a backup, can listen where ours listened and have all its ids; but its
    log continues from where it was copied. (A clone that has run for longer than ours cannot be detected this way.)
    """
    if end is None or own_end is None or end >= own_end:
        return None
    return (
        f"{whose} goes up to offset {end}, and the metadata log on this host up to {own_end}: it belongs to another"
        " cluster, or to this one's past"
    )


def known_until_ms(quorum: QuorumLook, node_id: int, now_ms: int) -> int | str:
    """The moment (ms) up to which node `node_id` knows what the cluster decided, or in words why that is unknown.

    It is the earlier of the node's `LastCaughtUpTimestamp` and the time by which a majority of the voters had fetched
    (counting the leader as now), less `APPLY_MS`. The majority matters because an isolated leader reports itself and
    its followers as caught up.
    """
    leader = next((v for v in quorum.voters if v.node_id == quorum.leader_id), None)
    if leader is None or leader.last_caught_up_ms <= 0:
        return "the quorum's leader does not report its own time"
    clock = leader.last_caught_up_ms
    if abs(clock - now_ms) > MOST_SKEW_MS:
        return f"the clock of the quorum's leader differs from ours by {abs(clock - now_ms) // 1000} s"
    if node_id == quorum.leader_id:
        caught_up = clock
    else:
        own = [r.last_caught_up_ms for r in (*quorum.voters, *quorum.observers) if r.node_id == node_id]
        caught_up = min(own, default=-1)
    if caught_up <= 0:
        return f"the quorum's leader does not know how far node {node_id} has caught up"
    fetched = sorted((clock if v is leader else v.last_fetch_ms for v in quorum.voters), reverse=True)
    by_majority = fetched[len(fetched) // 2]
    if by_majority <= 0:
        return "the quorum's leader has not heard of a majority of its voters"
    return min(caught_up, by_majority) - APPLY_MS
