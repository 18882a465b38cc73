"""What a metadata log proves: which part of it is known to be committed, judging from the disk alone; until when it, or
another broker, knows the cluster; and whether it continues the one that was read here before. No I/O, no clock.

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

While this host's broker is down, its own metadata is old, and another broker may answer instead. But a broker that
lags, or that follows a leader without a majority, does not know what has happened since: one DescribeQuorum answer
(KIP-836) says until when its metadata is known to be complete.

Fresh records do not show that a log is ours: a quorum that was restored from last week's backup writes them too. So the
state dir remembers the newest record that was known to be committed, by its leader epoch, offset and checksum:
committed records are never taken back, so a log that ends before it is behind, and one that has another batch there is
of another history. Then it proves nothing, until it has caught up or an operator says that it is the true one. The log
forgets what it removed once it is in a snapshot, so topic ids that lived here are remembered as well.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from logagent.kafka.image import BrokerRegistration

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


class QuorumReplica(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class LogPoint:
    """A committed record of the metadata log: the offset after its batch, the leader epoch and the batch's CRC (None:
    that of a snapshot, which covers it)."""

    offset: int
    epoch: int
    crc: int | None = None


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the state dir knows of this host's metadata log: the newest committed record that was read, and topic ids
    that lived then. `unread`: why that is not known, although there is a file of it; `file`: which. `other_history`:
    how a later log contradicted that record. It counts until the record is seen again: a log forgets what a snapshot
    has, and contradicts nothing then."""

    point: LogPoint | None = None
    topic_ids: frozenset[str] = frozenset()
    unread: str | None = None
    file: str | None = None
    other_history: str | None = None


NOTHING_REMEMBERED = Remembered()


@dataclass(frozen=True, slots=True)
class LogHistory:
    """What a metadata log has: its batches after the snapshot that it was read from, and where those end. `beneath`:
    the batch of a remembered record that the snapshot covers, `last_beneath`: its last one, if the segments still have
    them."""

    batches: BatchTimes
    end: int
    snapshot_end: int = 0
    snapshot_epoch: int = 0
    beneath: LogPoint | None = None
    last_beneath: LogPoint | None = None

    def newest(self, committed: int) -> LogPoint | None:
        """The newest record known to be committed, if `committed` is the offset up to which all are."""
        last = bisect_right(self.batches.next_offsets, committed) - 1
        if last >= 0:
            return self._at(last)
        if self.last_beneath is not None and self.last_beneath.offset == self.snapshot_end:
            return self.last_beneath
        return LogPoint(self.snapshot_end, self.snapshot_epoch) if self.snapshot_end > 0 else None

    def is_behind(self, known: LogPoint) -> str | None:
        """Why it ends before the record `known`; None if it does not. It may catch up with it still."""
        if self.end >= known.offset:
            return None
        return f"{_had(known)} and ends at {self.end} now: it was rolled back, or is another cluster's"

    def is_another(self, known: LogPoint) -> str | None:
        """Why no log that has the record `known` becomes this one; None if it may."""
        if self.end < known.offset:
            # Epochs never decrease within a log.
            newest = max(self.snapshot_epoch, self.batches.last_epoch or 0)
            if newest > known.epoch:
                return f"{_had(known)}, and ends at {self.end} in epoch {newest} now: {_RESTORED}"
            return None
        here = self._batch_of(known)
        if here is not None:
            return None if _is_same(here, known) else f"{_had(known)}, and has other records there now: {_RESTORED}"
        if self.snapshot_epoch < known.epoch:
            return f"{_had(known)}, and its snapshot at {self.snapshot_end} is of epoch {self.snapshot_epoch}"
        return None

    def has(self, known: LogPoint) -> bool:
        """Whether it is seen to have the record `known`: not if only a snapshot has, or had it."""
        here = self._batch_of(known)
        return here is not None and known.crc is not None and _is_same(here, known)

    def _batch_of(self, known: LogPoint) -> LogPoint | None:
        """The batch with the record before the offset of `known`; None if it is not there, or not any more."""
        if known.offset <= self.snapshot_end:
            return self.beneath
        index = bisect_left(self.batches.next_offsets, known.offset)
        return self._at(index) if index < len(self.batches.next_offsets) else None

    def _at(self, index: int) -> LogPoint:
        return LogPoint(self.batches.next_offsets[index], self.batches.epoch_of(index), self.batches.crcs[index])


NO_HISTORY = LogHistory(BatchTimes(), 0)

_RESTORED = "it was restored from a backup, or is another cluster's"


def _is_same(here: LogPoint, known: LogPoint) -> bool:
    # Of a snapshot only its last record is known, not the batch.
    return here.epoch == known.epoch and (known.crc is None or (here.offset, here.crc) == (known.offset, known.crc))


def _had(known: LogPoint) -> str:
    return f"this host's metadata log went up to offset {known.offset} (leader epoch {known.epoch})"


def other_history(history: LogHistory, known: Remembered) -> str | None:
    """Why the cluster's history is another one than what is remembered, now or when it was last compared; None if
    nothing shows that. Then nobody's answer proves anything: the quorum may have been restored from a backup."""
    if known.point is None or history.has(known.point):
        return None
    return history.is_another(known.point) or known.other_history


def why_not_our_lineage(
    history: LogHistory,
    known: Remembered,
    registration: BrokerRegistration | None,
    directory_ids: Collection[str],
) -> str | None:
    """Why a metadata log of our cluster's id proves nothing here; None if it is the one that we know.

    `registration`: this node's in it; `directory_ids`: those of our log dirs, which it must have registered (3.7 on).
    """
    if known.unread is not None:
        return with_lineage_hint(known.unread, known)
    if (why := why_other_log_dirs(registration, directory_ids)) is not None:
        return why
    why = other_history(history, known) or (history.is_behind(known.point) if known.point is not None else None)
    return None if why is None else with_lineage_hint(why, known)


def why_other_log_dirs(registration: BrokerRegistration | None, directory_ids: Collection[str]) -> str | None:
    """Why this node's registration in some metadata is not of our log dirs; None if it is, or if either says none."""
    theirs = set(registration.directory_ids) if registration is not None else set[str]()
    if theirs and directory_ids and theirs.isdisjoint(directory_ids):
        return "this node registered other log dirs in it: none of their directory ids is here"
    return None


def with_lineage_hint(why: str, known: Remembered) -> str:
    """`why`, with what the operator does who knows better."""
    return f"{why}; if it is the true one all the same, remove {known.file}" if known.file is not None else why


def remember(known: Remembered, newest: LogPoint | None, lived: Collection[str], here: Collection[str]) -> Remembered:
    """What to remember after a reading that does not contradict: the newer record, and of the topic ids `here` (of the
    directories on this host) those that `lived` now or before."""
    newer = newest is not None and (known.point is None or newest.offset > known.point.offset)
    ids = frozenset(i for i in here if i in lived or i in known.topic_ids)
    return Remembered(newest if newer else known.point, ids, file=known.file)
