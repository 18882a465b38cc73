"""Whether whoever answers while this host's broker is stopped is of its cluster. No I/O, no clock.

The cluster id, and all addresses, are those of a clone, too: of the disks that were copied, or of the original that
they were copied from, whose brokers a stopped clone finds in its own metadata log. What tells them apart is the time
since: a quorum that is behind our own log is not the one that wrote it, and one in which a broker with our node id is
alive, while ours is stopped, is that broker's.

(Not detected: a clone that ran longer than ours, or an original whose broker of our id has been down for minutes, too.)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from logagent.base.times import rfc3339
from logagent.kafka.commitment import QuorumRead, why_not_our_log

SESSION_MS = 9_000
"""Kafka's default of `broker.session.timeout.ms`: how long a broker that was killed is still called live."""
GRACE_MS = 5_000
"""For the time that the controller and its brokers need to learn that a session has ended."""


@dataclass(frozen=True, slots=True)
class StoppedBroker:
    """This host's broker, which holds no log dir, by its own disk. `end`, `epoch`: those of its metadata log.
    `stopped_ms`: the newest sign that it ran, so the earliest time at which it can have stopped."""

    node_id: int
    cluster_id: str | None
    end: int | None
    epoch: int | None
    stopped_ms: int
    session_ms: int = SESSION_MS

    @property
    def forgotten_ms(self) -> int:
        """When its cluster calls it dead at the latest."""
        return self.stopped_ms + self.session_ms + GRACE_MS


def why_live(live: Collection[int], ours: StoppedBroker, now_ms: int) -> str | None:
    """Why brokers that call these nodes live are not known to be of our cluster; None if our node is not among
    them."""
    if ours.node_id not in live:
        return None
    if now_ms <= ours.forgotten_ms:
        return f"it still calls node {ours.node_id} live, which has just stopped: try again in a few seconds"
    return f"it calls node {ours.node_id} live, but the broker of these disks is stopped: it may be another cluster's"


def why_not_our_quorum(quorum: QuorumRead, ours: StoppedBroker) -> str | None:
    """Why this is not the quorum that our broker followed until it stopped; None if nothing contradicts that."""
    if (why := why_not_our_log(quorum.high_watermark, ours.end, "its quorum")) is not None:
        return why
    if ours.epoch is not None and 0 <= quorum.leader_epoch < ours.epoch:
        return (
            f"its quorum is in epoch {quorum.leader_epoch}, and the metadata log on this host in {ours.epoch}: it"
            " belongs to another cluster, or to this one's past"
        )
    if quorum.leader_id == ours.node_id:
        return f"its quorum is led by node {ours.node_id}, but the broker of these disks is stopped"
    fetched = [r.last_fetch_ms for r in (*quorum.voters, *quorum.observers) if r.node_id == ours.node_id]
    if max(fetched, default=-1) > ours.forgotten_ms:
        late = (max(fetched) - ours.stopped_ms) // 1000
        return (
            f"a node {ours.node_id} followed its quorum {late} s after the broker of these disks stopped: they may be a"
            " copy of that node's (a node that was killed with its host is forgotten after five minutes)"
        )
    return None


WHAT_HELPS = (
    "a living broker says what was deleted or reassigned since: set kafka.bootstrap_servers (and kafka.client for TLS"
    " or a password), or run `logagent assignments export FILE` where one runs and add --assignments FILE here"
)


def as_of_stop(at_ms: int, *, usable: bool, nobody: str | None) -> str:
    """Assignments that end when this host's broker stopped, said as what they are. `usable`: they are not too old to
    decide what is assigned. `nobody`: why no other broker could be asked."""
    known = "assigned, as of" if usable else "every verdict is unknown: the assignments end at"
    why = f"no living broker could be asked: {nobody}" if nobody else "no other broker was asked"
    return f"{known} {rfc3339(at_ms)}, when the broker stopped; {why}"
