"""What the journal forgets: never what is young, unsettled, on a directory that is there, or in a log dir not seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logagent.base.units import DAY_MS
from logagent.cleanup.plan.queue import KEEP_MS, SettledAction, forgettable

NOW = 2_000 * DAY_MS
DIRS = ("/d1", "/d2", "/q")

rows = st.builds(
    SettledAction,
    id=st.integers(1, 10**6),
    at_ms=st.integers(NOW - 2 * KEEP_MS, NOW + 2 * DAY_MS),
    places=st.lists(st.sampled_from(DIRS), min_size=1, max_size=2).map(tuple),
    inode=st.integers(1, 40),
)


@given(
    rows=st.lists(rows, max_size=60, unique_by=lambda r: r.id),
    there=st.frozensets(st.integers(1, 40), max_size=20),
    scanned=st.frozensets(st.sampled_from(DIRS)),
    most=st.integers(0, 60),
)
def test_only_what_nothing_needs_goes_and_the_rest_is_bounded(
    rows: list[SettledAction], there: frozenset[int], scanned: frozenset[str], most: int
) -> None:
    gone = set(forgettable(rows, there, scanned, NOW, most_rows=most))
    free = [r for r in rows if r.inode not in there and set(r.places) <= scanned and r.at_ms < NOW - DAY_MS]
    assert gone <= {r.id for r in free}
    kept = [r for r in free if r.id not in gone]
    assert len(kept) <= most
    assert [r for r in kept if r.at_ms < NOW - KEEP_MS] == []
    # Nothing goes for want of room that is younger than what stays.
    assert [(g, k) for g in free if g.id in gone for k in kept if g.at_ms > k.at_ms] == []
    # And nothing goes without a reason.
    if len(free) <= most:
        assert [r for r in free if r.id in gone if r.at_ms >= NOW - KEEP_MS] == []


def test_a_directory_that_is_there_keeps_its_whole_story() -> None:
    story = [SettledAction(n, NOW - 3 * KEEP_MS + n, ("/d1",), 7) for n in range(3)]
    other = SettledAction(9, NOW - 3 * KEEP_MS, ("/d1",), 8)
    assert forgettable([*story, other], {7}, {"/d1"}, NOW) == [9]
    assert forgettable([*story, other], set(), {"/d1"}, NOW) == [0, 9, 1, 2]
    assert forgettable([*story, other], set(), {"/d2"}, NOW) == []


def test_a_day_and_the_time_that_rows_are_kept_end_to_the_millisecond() -> None:
    def goes(at_ms: int, most: int) -> bool:
        return forgettable([SettledAction(1, at_ms, ("/d1",), 7)], set(), {"/d1"}, NOW, most_rows=most) == [1]

    assert [goes(NOW - DAY_MS - more, 0) for more in (0, 1)] == [False, True]
    assert [goes(NOW - KEEP_MS - more, 1) for more in (0, 1)] == [False, True]
