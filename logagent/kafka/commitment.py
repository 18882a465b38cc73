"""Which part of a metadata log is known to be committed, judging from the disk alone.

The high watermark of KRaft's log is not stored on disk, and a follower's tail may contain records that the quorum
never agreed on and will truncate. Kafka itself applies only committed records; we cannot ask, so records count
as committed under any one of three conditions, and all records after them are "not known":

1. the quorum has exactly one voter: what is in its log is committed;
2. a complete snapshot covers the record: snapshots are only made of committed state;
3. the log holds, at or after the record, two batches of one leader epoch at least `settled_ms` apart, this node does
   not lead the quorum, and the finalized `metadata.version` was 3.7-IV0 or later when both were written.

Condition 3 relies on KAFKA-15489: from 3.7.0 on, a leader that has lost its quorum resigns after 1.5 fetch timeouts, so
a majority was fetching from one that went on for longer. Before that, an isolated leader appends forever, and observers
fetch from it. Two batches of different epochs prove nothing: a leader that is isolated twice keeps its old records.

What is committed also says until when the log knows the cluster's decisions (`known_until_ms`). An end that is not torn
says nothing of that: a metadata volume that was rolled back ends as cleanly, and so does what an isolated leader wrote.

Until when another broker's metadata is known to be complete, from one DescribeQuorum answer (KIP-836).

While this host's broker is down, its own metadata is old, and another broker may answer instead. But a broker that
lags, or that follows a leader without a majority, does not know what has happened since. No I/O, no clock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

SETTLED_MS = 60_000
FETCH_TIMEOUTS = 10
LEADERS_RESIGN_SINCE = 15
"""The feature level of 3.7-IV0."""
GRACE_MS = 5_000
"""How long after its newest committed record a log counts as knowing everything: brokers write a NoOp twice a second
(KIP-835, where `metadata.max.idle.interval.ms` is not 0), but not at once, and directories have other clocks."""


def settled_ms(fetch_timeout_ms: int) -> int:
    """How far apart in time the two batches must be, for a given `controller.quorum.fetch.timeout.ms`."""
    return max(SETTLED_MS, FETCH_TIMEOUTS * fetch_timeout_ms)


@dataclass(slots=True)
class BatchTimes:
    """Next offset, time (ms) and CRC of every batch in log order (20 bytes per batch), and where epochs begin.

    `epochs` are the indexes of the batches that begin a leader epoch, `numbers` those epochs: within a log, epochs
    never decrease.
    """

    next_offsets: array[int] = field(default_factory=lambda: array("q"))
    times: array[int] = field(default_factory=lambda: array("q"))
    crcs: array[int] = field(default_factory=lambda: array("I"))
    epochs: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def append(self, next_offset: int, time_ms: int, epoch: int, crc: int = 0) -> None:
        if not self.numbers or epoch != self.numbers[-1]:
            self.epochs.append(len(self.times))
            self.numbers.append(epoch)
        self.next_offsets.append(next_offset)
        self.times.append(time_ms)
        self.crcs.append(crc)

    @property
    def last_epoch(self) -> int | None:
        return self.numbers[-1] if self.numbers else None

    def epoch_of(self, index: int) -> int:
        """The leader epoch of the batch at `index`."""
        return self.numbers[bisect_right(self.epochs, index) - 1]

    def settled_offset(self, settled: int = SETTLED_MS, *, since_offset: int = 0) -> int | None:
        """The offset after the last batch that is followed, in the same epoch, by one at least `settled` ms younger;
        None if there is none.

        Only batches that end after `since_offset` count. Everything before the first batch of such a pair is older than
        both, whatever its epoch.
        """
        end = len(self.times)
        for start in reversed(self.epochs):
            youngest: int | None = None
            for index in range(end - 1, start - 1, -1):
                if self.next_offsets[index] <= since_offset:
                    return None
                if youngest is not None and youngest - self.times[index] >= settled:
                    return self.next_offsets[index]
                if youngest is None or self.times[index] > youngest:
                    youngest = self.times[index]
            end = start
        return None


def committed_offset(
    batches: BatchTimes,
    *,
    snapshot_end: int,
    log_end: int,
    voters: int | None,
    may_lead: bool,
    resigns_since: int | None,
    settled: int = SETTLED_MS,
) -> int:
    """The offset (exclusive) up to which every record is known to be committed.

    `voters` is the number of voters, None if unknown; `may_lead` is true unless it is known that this node does not
    lead the quorum; `resigns_since` is the offset from which `metadata.version` is at least `LEADERS_RESIGN_SINCE`,
    None if it is not.
    """
    if voters == 1:
        return log_end
    if may_lead or resigns_since is None:
        return snapshot_end
    offset = batches.settled_offset(settled, since_offset=resigns_since)
    return snapshot_end if offset is None else max(snapshot_end, offset)


def known_until_ms(
    batches: BatchTimes,
    *,
    committed: int,
    snapshot_ms: int | None,
    written_ms: int | None,
    now_ms: int,
    torn: bool,
) -> int:
    """Until when (ms, by this host's clock) the log is known to have everything that the cluster decided; 0 if nothing
    in it is known to be committed.

    That is `GRACE_MS` after the newest committed record, without it where the end is `torn`, and never after `now_ms`.
    `committed`: see `committed_offset`. `snapshot_ms`: the time of the newest record in the snapshot that the log was
    read from. `written_ms`: when the end of the log was written, by this host's clock.

    Records have their leader's clock. One that is ahead must not vouch for time that has not passed: by how much the
    newest record is younger than the file that it is in is taken off, and no record counts as younger than one after
    it. A clock that is behind only makes us know less.
    """
    last = bisect_right(batches.next_offsets, committed) - 1
    times = [*batches.times[max(last, 0) :]]
    if last < 0:
        if snapshot_ms is None:
            return 0
        times.append(snapshot_ms)
    return min(now_ms, min(times) - clock_ahead_ms(batches, written_ms) + (0 if torn else GRACE_MS))


def clock_ahead_ms(batches: BatchTimes, written_ms: int | None) -> int:
    """By how much the newest record is younger than the file that it is in, which has this host's clock; at least 0."""
    return 0 if written_ms is None or not batches.times else max(0, batches.times[-1] - written_ms)


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
class QuorumRead:
    """The leader's description of its quorum. `high_watermark`: the offset up to which it has committed."""

    leader_id: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...] = ()
    high_watermark: int = -1
    leader_epoch: int = -1


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


def quorum_known_until_ms(quorum: QuorumRead, node_id: int, now_ms: int) -> int | str:
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


STILL_LEADS_MS = 5_000
"""Less than the shortest time in which a controller takes a broker that is silent for dead (the default of
`broker.session.timeout.ms` is 9 s): until then nobody else leads."""


def why_may_be_deposed(quorum: QuorumRead, node_id: int) -> str | None:
    """Why node `node_id` may no longer lead what it led; None if the quorum's leader has just heard that it knows
    everything.

    A broker that was cut off from its controller goes on answering for its log, and so do the brokers cut off with it,
    while others lead.
    """
    leader = next((v for v in quorum.voters if v.node_id == quorum.leader_id), None)
    if leader is None or leader.last_caught_up_ms <= 0:
        return "the quorum's leader does not report its own time"
    if node_id == quorum.leader_id:
        return None
    own = [r.last_caught_up_ms for r in (*quorum.voters, *quorum.observers) if r.node_id == node_id]
    last = max(own, default=-1)
    if last <= 0:
        return f"the quorum's leader does not know how far node {node_id} has caught up"
    silent_ms = leader.last_caught_up_ms - last
    if silent_ms > STILL_LEADS_MS:
        return f"node {node_id} last caught up with its controller {silent_ms // 1000} s ago: others may lead by now"
    return None
