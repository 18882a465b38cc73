"""Which records are known to be committed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.model.assignments.commitment import SETTLED_MS, BatchTimes, committed_offset


def times(*batches: tuple[int, int]) -> BatchTimes:
    made = BatchTimes()
    for next_offset, time_ms in batches:
        made.append(next_offset, time_ms)
    return made


@pytest.mark.parametrize(
    ("voters", "may_lead", "committed"),
    [(1, True, 40), (1, False, 40), (3, False, 20), (3, True, 5), (None, False, 20), (None, True, 5), (0, True, 5)],
)
def test_the_three_conditions(voters: int | None, may_lead: bool, committed: int) -> None:
    batches = times((10, 0), (20, 1_000), (30, 1_001), (40, 1_000 + SETTLED_MS))
    assert committed_offset(batches, snapshot_end=5, log_end=40, voters=voters, may_lead=may_lead) == committed


def test_a_snapshot_covers_what_no_time_does() -> None:
    batches = times((10, 0), (20, SETTLED_MS))
    assert committed_offset(batches, snapshot_end=15, log_end=20, voters=3, may_lead=False) == 15
    assert committed_offset(BatchTimes(), snapshot_end=15, log_end=15, voters=3, may_lead=False) == 15


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_settled_is_what_a_later_batch_is_younger_than(clock: list[int]) -> None:
    """Clocks of different leaders may run backwards; the reference looks at every pair."""
    batches = times(*((10 * (n + 1), t) for n, t in enumerate(clock)))
    settled = [10 * (n + 1) for n, t in enumerate(clock) if any(later - t >= 3 for later in clock[n + 1 :])]
    assert batches.settled_offset(settled_ms=3) == max(settled, default=None)
