"""Which records are known to be committed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.kafka.commitment import (
    GRACE_MS,
    SETTLED_MS,
    STILL_LEADS_MS,
    BatchTimes,
    QuorumRead,
    QuorumReplica,
    committed_offset,
    known_until_ms,
    settled_ms,
    why_may_be_deposed,
)


def times(*batches: tuple[int, int] | tuple[int, int, int]) -> BatchTimes:
    """Batches as (next offset, time) of epoch 1, or with their epoch."""
    made = BatchTimes()
    for next_offset, time_ms, *epoch in batches:
        made.append(next_offset, time_ms, epoch[0] if epoch else 1)
    return made


def committed(batches: BatchTimes, snapshot_end: int, log_end: int, **more: Any) -> int:
    known: dict[str, Any] = {"voters": 3, "may_lead": False, "resigns_since": 0, **more}
    return committed_offset(batches, snapshot_end=snapshot_end, log_end=log_end, **known)


@pytest.mark.parametrize(
    ("voters", "may_lead", "expected"),
    [(1, True, 40), (1, False, 40), (3, False, 20), (3, True, 5), (None, False, 20), (None, True, 5), (0, True, 5)],
)
def test_the_three_conditions(voters: int | None, may_lead: bool, expected: int) -> None:
    batches = times((10, 0), (20, 1_000), (30, 1_001), (40, 1_000 + SETTLED_MS))
    assert committed(batches, 5, 40, voters=voters, may_lead=may_lead) == expected


def test_a_snapshot_covers_what_no_time_does() -> None:
    batches = times((10, 0), (20, SETTLED_MS))
    assert committed(batches, 15, 20) == 15
    assert committed(BatchTimes(), 15, 15) == 15


def test_time_proves_nothing_where_leaders_do_not_resign() -> None:
    """Before metadata.version 3.7-IV0 an isolated leader appends for ever."""
    batches = times((10, 0), (20, SETTLED_MS), (30, 2 * SETTLED_MS), (40, 3 * SETTLED_MS))
    assert committed(batches, 5, 40, resigns_since=None) == 5
    assert committed(batches, 5, 40, resigns_since=0) == 30
    # Only batches from the upgrade on count, the record before them with them.
    assert committed(batches, 5, 40, resigns_since=25) == 30
    assert committed(batches, 5, 40, resigns_since=35) == 5


def test_a_leader_isolated_twice_carries_its_old_records_along() -> None:
    isolated_twice = times((10, 0, 4), (20, 1_000, 4), (30, 2 * SETTLED_MS, 6), (40, 3 * SETTLED_MS - 1, 6))
    assert committed(isolated_twice, 5, 40) == 5
    isolated_twice.append(50, 3 * SETTLED_MS, 6)
    assert committed(isolated_twice, 5, 50) == 30


def test_ten_fetch_timeouts_where_that_is_longer() -> None:
    assert settled_ms(2_000) == SETTLED_MS
    assert settled_ms(30_000) == 300_000
    batches = times((10, 0), (20, SETTLED_MS))
    assert committed(batches, 5, 20, settled=settled_ms(30_000)) == 5


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1)), min_size=1, max_size=12), st.integers(0, 60))
def test_settled_is_what_a_later_batch_of_its_epoch_is_younger_than(clock: list[tuple[int, int]], since: int) -> None:
    """Clocks may run backwards; the reference looks at every pair of one epoch."""
    epoch, history = 0, []
    for n, (time_ms, step) in enumerate(clock):
        epoch += step
        history.append((10 * (n + 1), time_ms, epoch))
    settled = [
        end
        for n, (end, time_ms, epoch) in enumerate(history)
        if end > since and any(later - time_ms >= 3 and same == epoch for _, later, same in history[n + 1 :])
    ]
    assert times(*history).settled_offset(3, since_offset=since) == max(settled, default=None)


# -- until when the log knows ------------------------------------------------------------------------

T = 1_000_000_000


def known_until(batches: BatchTimes, committed: int, **more: Any) -> int:
    given: dict[str, Any] = {"snapshot_ms": None, "written_ms": None, "now_ms": 2 * T, "torn": False, **more}
    return known_until_ms(batches, committed=committed, **given)


def test_a_log_knows_until_its_newest_committed_record_and_never_until_now() -> None:
    """Rolled back by a snapshot of its volume, it ends as cleanly as one to which nothing was ever added."""
    batches = times((10, T), (20, T + 1_000), (30, T + 70_000))
    assert known_until(batches, 30) == T + 70_000 + GRACE_MS
    assert known_until(batches, 20) == known_until(batches, 25) == T + 1_000 + GRACE_MS
    assert known_until(batches, 30, torn=True) == T + 70_000
    # Of a running broker the newest record is half a second old.
    assert known_until(batches, 30, now_ms=T + 70_500) == T + 70_500


def test_what_a_snapshot_covers_is_known_until_its_newest_record() -> None:
    assert known_until(times((30, T)), 20, snapshot_ms=T - 9_000) == T - 9_000 + GRACE_MS
    assert known_until(BatchTimes(), 20, snapshot_ms=T) == T + GRACE_MS


def test_where_nothing_is_committed_nothing_is_known() -> None:
    """Three voters before 3.7, and no snapshot yet: what an isolated leader appends looks like this."""
    batches = times((10, T), (20, T + SETTLED_MS), (30, T + 9 * SETTLED_MS))
    end = committed(batches, 0, 30, resigns_since=None)
    assert known_until(batches, end) == 0


def test_the_clock_of_a_controller_vouches_for_no_time_that_has_not_passed() -> None:
    # Its clock is 30 s ahead of the one that the file's time is by.
    assert known_until(times((10, T + 30_000)), 10, written_ms=T) == T + GRACE_MS
    # Behind: we know less. (A copy of the log has the time of copying.)
    assert known_until(times((10, T)), 10, written_ms=T + 3_600_000) == T + GRACE_MS
    # The one before was ahead, as the next one's records show.
    assert known_until(times((10, T + 600_000, 1), (20, T + 1_000, 2)), 10) == T + 1_000 + GRACE_MS


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 3)), max_size=12),
    st.integers(0, 60),
    st.none() | st.integers(0, 10**6),
    st.none() | st.integers(0, 10**6),
    st.booleans(),
)
def test_nothing_is_known_later_than_any_clock_says(
    drawn: list[tuple[int, int]], end: int, snapshot_ms: int | None, written_ms: int | None, torn: bool
) -> None:
    batches = times(*((5 * n + 5, time, epoch) for n, (time, epoch) in enumerate(drawn)))
    until = known_until(batches, end, snapshot_ms=snapshot_ms, written_ms=written_ms, torn=torn, now_ms=10**6)
    after = [time for n, (time, _) in enumerate(drawn) if 5 * n + 5 >= min(end, 5 * len(drawn))]
    assert until <= min([10**6, *(time + GRACE_MS for time in after)])
    if drawn and written_ms is not None:
        assert until <= max(written_ms, 0) + GRACE_MS


@pytest.mark.parametrize(
    ("node", "caught_up", "says"),
    [
        (1, None, None),  # the quorum's leader itself
        (2, T, None),
        (2, T - STILL_LEADS_MS, None),
        (2, T - STILL_LEADS_MS - 1, "others may lead by now"),
        (2, -1, "does not know how far node 2"),
        (3, None, "does not know how far node 3"),
    ],
)
def test_a_leader_that_its_controller_has_not_heard_of_may_be_deposed(
    node: int, caught_up: int | None, says: str | None
) -> None:
    """It was cut off, and answers for its log all the same; others lead after `broker.session.timeout.ms`."""
    others = () if caught_up is None else (QuorumReplica(2, T, caught_up),)
    why = why_may_be_deposed(QuorumRead(1, (QuorumReplica(1, T, T),), others), node)
    assert (why is None) if says is None else (why is not None and says in why)
    assert why_may_be_deposed(QuorumRead(9, (QuorumReplica(1, T, T),), others), node) is not None
