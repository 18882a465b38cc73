"""Which records are known to be committed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.model.assignments.commitment import SETTLED_MS, BatchTimes, committed_offset, settled_ms


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
