"""Whether another copy holds every record of a directory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.kafka.extents import EpochEnd, InCommon, LogExtent
from logagent.verdict.copies import covers, end_of_epoch, in_common, past_retention, what_it_has, why_not_covered

OWN = LogExtent(0, 100, ((0, 0), (3, 40)))


def leader(epoch: int | None, end: int | None, start: int | None, committed: int = 10**9) -> EpochEnd:
    return EpochEnd("leader", epoch, end, start, high_watermark=committed)


@pytest.mark.parametrize(
    ("answer", "covered"),
    [
        (leader(3, 100, 0), True),
        (leader(3, 250, 0), True),
        (leader(3, 99, 0), False),
        (leader(2, 250, 0), False),  # its records of epoch 3 are not there, however long the log
        (leader(None, None, 0), False),
        (leader(None, None, None), False),
        (leader(3, 250, 100), False),  # retention deleted all of it there
        (leader(None, None, 100), False),
        (leader(3, 250, 0, committed=99), False),
        (leader(3, 250, 0, committed=100), True),
        (replace(leader(3, 250, 0), high_watermark=None), False),
        (replace(leader(3, 250, 0), problem="it was deposed"), False),
        (leader(None, None, 99), False),
        (leader(5, 300, 0), False),
    ],
)
def test_the_same_epoch_must_reach_as_far(answer: EpochEnd, covered: bool) -> None:
    assert covers(answer, OWN) is covered


@pytest.mark.parametrize(
    "own",
    [
        LogExtent(0, None, ((0, 0),), "torn tail"),
        LogExtent(0, 100, (), "no leader epochs"),
        LogExtent(0, 100, ((0, 0), (3, 101))),
        LogExtent(None, None),
    ],
)
def test_what_cannot_tell_its_own_end_is_never_covered(own: LogExtent) -> None:
    assert not covers(leader(3, 10**9, 0), own)
    assert "cannot tell" in why_not_covered(own, ())


def test_a_log_created_anew_and_refilled_does_not_cover() -> None:
    refilled = LogExtent(0, 5_000, ((7, 0),))
    answer = end_of_epoch("here", refilled, 3)
    assert (answer.epoch, answer.end_offset) == (None, None)
    assert not covers(answer, OWN)
    assert "ends at offset 100 in leader epoch 3; here does not know that epoch" in why_not_covered(OWN, (answer,))


def test_an_epoch_without_a_record_is_not_the_last_one() -> None:
    """Elected, and nothing was written since: no follower ever heard of that epoch."""
    own = LogExtent(0, 100, ((0, 0), (3, 40), (5, 100)))
    assert own.last_epoch == 3
    assert covers(leader(3, 100, 0), own)
    assert LogExtent(0, 0, ((0, 0),)).last_epoch is None


def test_a_log_that_lost_its_older_epochs_does_not_cover() -> None:
    """Kafka would answer that epoch 3 ends at 500, where the first epoch begins that is still known."""
    assert not covers(end_of_epoch("here", LogExtent(0, 900, ((9, 500),)), 3), OWN)


@pytest.mark.parametrize("epochs", [((3, 120), (4, 150)), ((4, 120),)])
def test_a_log_that_retention_cut_above_our_end_does_not_cover(epochs: tuple[tuple[int, int], ...]) -> None:
    """After a mistaken retention, ours are the last of these records: that is for an operator to say."""
    answer = end_of_epoch("here", LogExtent(120, 200, epochs), 3)
    assert past_retention(answer, OWN) and not covers(answer, OWN)
    assert "past retention: the log of here begins at 120" in why_not_covered(OWN, (answer,))


@pytest.mark.parametrize(
    ("begins", "says"),
    [
        (None, "another copy has all of it"),
        (0, "another copy has all of it"),
        (10, "another copy has all of it"),
        (11, "another copy has all of it from offset 11 on, and has deleted what was before that"),
    ],
)
def test_what_the_leader_has_deleted_is_not_called_covered(begins: int | None, says: str) -> None:
    answer = EpochEnd("the leader", 1, 20, begins, high_watermark=20)
    own = LogExtent(10, 20, ((1, 10),))
    assert covers(answer, own) and what_it_has(answer, own) == says


@pytest.mark.parametrize(
    ("gap", "start", "covered"),
    [
        ((20, 60), 0, False),
        ((0, 1), 0, False),
        ((99, 150), 0, False),
        ((100, 150), 0, True),  # above our end: it was set aside before
        ((20, 60), 60, True),  # below its log start offset
        ((20, 60), 59, False),
    ],
)
def test_a_copy_that_may_lack_a_segment_of_ours_does_not_cover(gap: tuple[int, int], start: int, covered: bool) -> None:
    other = LogExtent(start, 400, ((0, 0), (3, 40)), gaps=(gap,))
    for own in (OWN, LogExtent(0, 100, ((0, 0), (3, 40), (4, 100)))):
        answer = end_of_epoch("here", other, 3)
        assert covers(answer, own) is covered
        assert ("a segment may be missing" in why_not_covered(own, (answer,))) is not covered
    # Known for an epoch before its last one, too.
    later = LogExtent(start, 400, ((0, 0), (3, 40), (5, 200)), gaps=(gap,))
    assert covers(end_of_epoch("here", later, 3), OWN) is covered


HISTORY = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 20)), min_size=1, max_size=6)


def log_of(history: list[tuple[int, int]]) -> tuple[LogExtent, list[int]]:
    """A log whose epochs and lengths are `history` (steps up, records): and the epoch of each record."""
    records: list[int] = []
    epochs: list[tuple[int, int]] = []
    epoch = 0
    for step, count in history:
        epoch += step
        epochs.append((epoch, len(records)))
        records += [epoch] * count
    return LogExtent(0, len(records), tuple(epochs)), records


@given(HISTORY, HISTORY)
def test_covered_means_every_record_is_there(mine: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    """Epochs are given once, so two logs that agree on a record (epoch, offset) agree on all before it: the reference
    compares the last one. (Logs of unlike histories may not agree before: Kafka never makes such.)"""
    own, own_records = log_of(mine)
    other, other_records = log_of(others)
    assert own.last_epoch is not None
    answer = end_of_epoch("other", other, own.last_epoch)
    if covers(answer, own):
        assert len(other_records) >= len(own_records)
        assert other_records[len(own_records) - 1] <= own_records[-1]
    if own_records == other_records[: len(own_records)]:
        assert covers(answer, own)


def test_a_copy_whose_epochs_begin_after_its_end_tells_no_end() -> None:
    """It lost its tail: epoch 0 does not end where epoch 1 began, as that is gone."""
    assert end_of_epoch("copy", LogExtent(0, 50, ((0, 0), (1, 80))), 0).end_offset is None
    assert not covers(end_of_epoch("copy", LogExtent(0, 50, ((0, 0), (1, 80))), 0), LogExtent(0, 70, ((0, 0),)))


def test_the_start_of_a_copy_whose_end_is_unknown_says_nothing() -> None:
    assert end_of_epoch("copy", LogExtent(100, None, ((0, 0),), "torn tail"), 0).log_start is None


def test_a_copy_that_is_unsound_covers_nothing_and_says_why() -> None:
    copy = LogExtent(0, 200, ((0, 0), (3, 40)))
    assert copy.unsound(None) == copy and covers(end_of_epoch("copy", copy, 3), OWN)
    # Nor does what it would have deleted count.
    for unsound in (copy, replace(copy, log_start=150)):
        answer = end_of_epoch("copy", unsound.unsound("zeros at byte 7"), 3)
        assert not covers(answer, OWN)
        assert "copy does not count (zeros at byte 7)" in why_not_covered(OWN, (answer,))


def test_what_two_logs_have_in_common() -> None:
    assert in_common(LogExtent(10, 50), LogExtent(20, 90)) == InCommon(20, 50)
    assert in_common(LogExtent(30, 50), LogExtent(20, 90)) == InCommon(30, 50)


def test_a_log_whose_end_is_unknown_reaches_no_further_than_its_last_segment() -> None:
    torn = LogExtent(0, None, last_segment=10)
    assert (torn.emptied_by(10), torn.emptied_by(11)) == (False, True)
    assert not LogExtent(5, 5).emptied_by(9)  # nothing is there to be lost


@pytest.mark.parametrize(
    ("own", "answer", "says"),
    [
        (OWN, leader(3, 99, 0, committed=10), "leader ends it at 99"),
        (OWN, leader(3, 250, 0, committed=99), "leader ends it at 250, but only what is below 99 is committed"),
        (OWN, replace(leader(3, 250, 0), high_watermark=None), "leader ends it at 250, but only nothing is committed"),
        (LogExtent(0, 100), leader(3, 250, 0), "cannot tell where its own log ends (it has no leader epochs)"),
        (LogExtent(0, None, (), "torn tail"), leader(3, 250, 0), "cannot tell where its own log ends (torn tail)"),
    ],
)
def test_why_it_is_not_covered_ends_with_the_figure_that_matters(own: LogExtent, answer: EpochEnd, says: str) -> None:
    assert why_not_covered(own, (answer,)).rpartition("; ")[2] == says


def test_how_far_a_log_reaches() -> None:
    assert [OWN.reaches(offset) for offset in (100, 101)] == [True, False]
    unknown = LogExtent(0, None, last_segment=50)
    assert [unknown.reaches(offset) for offset in (50, 51)] == [True, None]
    assert [LogExtent(0, None).reaches(offset) for offset in (0, 1)] == [True, None]


def test_a_gap_below_the_start_of_what_goes_is_none() -> None:
    gap = replace(leader(3, 250, 0), gaps=((5, 10),))
    assert gap.lacks(OWN) == (5, 10) and gap.lacks(replace(OWN, log_start=10)) is None


def test_the_answer_of_a_copy_on_this_host_is_known_to_be_from_here() -> None:
    assert end_of_epoch("another log dir", OWN, 3).here
