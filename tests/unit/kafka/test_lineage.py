"""Whether a metadata log is the one that was read here before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.kafka.commitment import (
    BatchTimes,
    LogHistory,
    LogPoint,
    Remembered,
    other_history,
    remember,
    why_not_our_lineage,
)
from logagent.kafka.image import BrokerRegistration

Batch = tuple[int, int, int]  # next offset, leader epoch, CRC
LOG: list[Batch] = [(10, 1, 11), (20, 1, 22), (30, 2, 33), (40, 4, 44)]


def history(batches: list[Batch], snapshot_end: int = 0, snapshot_epoch: int = 0) -> LogHistory:
    times = BatchTimes()
    for end, epoch, crc in batches:
        times.append(end, 0, epoch, crc)
    return LogHistory(times, max([snapshot_end, *(end for end, _, _ in batches)]), snapshot_end, snapshot_epoch)


def contradicts(found: LogHistory, known: LogPoint) -> str | None:
    return found.is_another(known) or found.is_behind(known)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (history(LOG), None),
        (history([*LOG, (50, 9, 55)]), None),
        # A snapshot covers it, and the log before that is gone.
        (history([(70, 5, 77)], 60, 5), None),
        (history([], 30, 2), None),
        # A volume of last week; a quorum that was restored from it and has gone on since.
        (history(LOG[:2]), "ends at 20 now: it was rolled back"),
        (history([*LOG[:2], (30, 2, 99), (40, 4, 98)]), "has other records there now"),
        (history([*LOG[:2], (30, 3, 33)]), "has other records there now"),
        (history([*LOG[:2], (35, 2, 33)]), "has other records there now"),
        (history([(70, 1, 77)], 60, 1), "its snapshot at 60 is of epoch 1"),
        # The restored quorum has not come that far, but no log has an epoch 3 before a record of epoch 2.
        (history([*LOG[:2], (25, 3, 99)]), "ends at 25 in epoch 3 now: it was restored from a backup"),
        # The segments still have what its snapshot covers.
        (replace(history([(70, 5, 77)], 60, 5), beneath=LogPoint(30, 2, 33)), None),
        (replace(history([(70, 5, 77)], 60, 5), beneath=LogPoint(30, 2, 99)), "has other records there now"),
    ],
)
def test_a_log_continues_the_one_that_was_known_or_contradicts_it(found: LogHistory, says: str | None) -> None:
    known = LogPoint(30, 2, 33)
    why = contradicts(found, known)
    assert (why is None) if says is None else (why is not None and says in why and "offset 30 (leader epoch 2)" in why)


def test_of_a_snapshot_only_the_epoch_of_its_last_record_is_compared() -> None:
    """It may end within a batch of the log that has it, too."""
    assert contradicts(history(LOG), LogPoint(25, 2)) is None
    assert contradicts(history(LOG), LogPoint(25, 1)) is not None


def test_another_history_stays_one_once_a_snapshot_covers_it_until_the_record_is_seen_again() -> None:
    known = Remembered(LogPoint(30, 2, 33), file="f")
    restored = history([*LOG[:2], (30, 2, 99), (40, 4, 98)])
    why = other_history(restored, known)
    assert why is not None and "restored from a backup" in why
    assert other_history(history(LOG[:2]), known) is None, "it may catch up"
    known = replace(known, other_history=why)
    for later in (history([(70, 5, 77)], 60, 5), history([*LOG[:2]])):
        assert other_history(later, known) == why
        assert why in (why_not_our_lineage(later, known, None, ()) or "")
    assert other_history(history(LOG), known) is None is why_not_our_lineage(history(LOG), known, None, ())
    assert remember(known, LogPoint(40, 4, 44), set(), set()).other_history is None


def test_of_a_snapshot_its_last_batch_is_remembered_where_the_segments_have_it() -> None:
    """A restored quorum can be in the same epoch there."""
    at_its_end = replace(history([], 30, 2), last_beneath=LogPoint(30, 2, 33))
    assert at_its_end.newest(30) == LogPoint(30, 2, 33)
    # It may end within a batch, of which only a part is committed then.
    assert replace(at_its_end, last_beneath=LogPoint(35, 2, 33)).newest(30) == LogPoint(30, 2)
    known = Remembered(LogPoint(30, 2), other_history="it has other records there")
    assert other_history(history(LOG), known) == "it has other records there", "an epoch alone takes nothing back"


BATCHES = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1), st.integers(0, 99)), min_size=1, max_size=8)


@given(BATCHES, st.data())
def test_what_is_remembered_of_a_log_never_contradicts_what_it_becomes(
    steps: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    offset = epoch = 0
    batches: list[Batch] = []
    for length, step, crc in steps:
        offset, epoch = offset + length, epoch + step
        batches.append((offset, epoch, crc))
    committed = data.draw(st.integers(0, offset))
    read = data.draw(st.integers(1, len(batches)))
    point = history(batches[:read]).newest(committed)
    if point is not None:
        assert point.offset <= committed and contradicts(history(batches), point) is None
        assert contradicts(history(batches[: read - 1]), point) is None or point.offset > (
            batches[read - 2][0] if read > 1 else 0
        )


def test_what_cannot_be_compared_proves_nothing_until_an_operator_says_so() -> None:
    found, file = history(LOG), "/var/lib/logagent/metadata-seen.json"
    damaged = Remembered(unread="it is damaged", file=file)
    assert (
        why_not_our_lineage(found, damaged, None, ())
        == f"it is damaged; if it is the true one all the same, remove {file}"
    )
    other = why_not_our_lineage(found, Remembered(LogPoint(41, 4, 1), file=file), None, ())
    assert other is not None and other.endswith(f"remove {file}")
    assert why_not_our_lineage(found, Remembered(file=file), None, ()) is None


@pytest.mark.parametrize(
    ("registered", "here", "ours"),
    [((), {"a"}, True), (("a", "b"), {"a"}, True), (("c",), {"a", "b"}, False), (("c",), (), True)],
)
def test_a_node_that_registered_other_log_dirs_is_another_one(
    registered: tuple[str, ...], here: set[str], ours: bool
) -> None:
    registration = BrokerRegistration(1, registered)
    assert (why_not_our_lineage(history(LOG), Remembered(), registration, here) is None) is ours


def test_the_newest_record_and_the_topic_ids_of_this_host_are_remembered() -> None:
    first = remember(Remembered(file="f"), LogPoint(30, 2, 33), {"lives", "elsewhere"}, {"lives", "stranger"})
    assert first == Remembered(LogPoint(30, 2, 33), frozenset({"lives"}), file="f")
    # It lives no more, and its directory is still here; an older reading takes nothing back.
    assert remember(first, LogPoint(20, 1, 22), set(), {"lives", "stranger"}) == first
    assert remember(first, LogPoint(40, 4, 44), {"new"}, {"new"}) == Remembered(
        LogPoint(40, 4, 44), frozenset({"new"}), file="f"
    )


def test_the_newest_committed_record_is_that_of_the_first_batch_or_of_the_snapshot_before_it() -> None:
    assert [history(LOG).newest(committed) for committed in (9, 10, 19)] == [
        None,
        LogPoint(10, 1, 11),
        LogPoint(10, 1, 11),
    ]
    assert [history(LOG[1:], 1, 1).newest(committed) for committed in (19, 20)] == [LogPoint(1, 1), LogPoint(20, 1, 22)]


def test_the_last_record_that_a_snapshot_covers_is_looked_up_beneath_it() -> None:
    found = replace(history([(30, 2, 99), (40, 4, 44)], 30, 2), beneath=LogPoint(30, 2, 33))
    assert found.has(LogPoint(30, 2, 33)) and not found.has(LogPoint(30, 2, 99))
