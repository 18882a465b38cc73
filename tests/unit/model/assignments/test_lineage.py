"""Whether a metadata log is the one that was read here before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.model.assignments.commitment import BatchTimes
from logagent.model.assignments.image import BrokerRegistration
from logagent.model.assignments.lineage import LogHistory, LogPoint, Remembered, remember, why_not_our_lineage

Batch = tuple[int, int, int]  # next offset, leader epoch, CRC
LOG: list[Batch] = [(10, 1, 11), (20, 1, 22), (30, 2, 33), (40, 4, 44)]


def history(batches: list[Batch], snapshot_end: int = 0, snapshot_epoch: int = 0) -> LogHistory:
    times = BatchTimes()
    for end, epoch, crc in batches:
        times.append(end, 0, epoch, crc)
    return LogHistory(times, max([snapshot_end, *(end for end, _, _ in batches)]), snapshot_end, snapshot_epoch)


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
    ],
)
def test_a_log_continues_the_one_that_was_known_or_contradicts_it(found: LogHistory, says: str | None) -> None:
    known = LogPoint(30, 2, 33)
    why = found.contradicts(known)
    assert (why is None) if says is None else (why is not None and says in why and "offset 30 (leader epoch 2)" in why)


def test_of_a_snapshot_only_the_epoch_of_its_last_record_is_compared() -> None:
    """It may end within a batch of the log that has it, too."""
    assert history(LOG).contradicts(LogPoint(25, 2)) is None
    assert history(LOG).contradicts(LogPoint(25, 1)) is not None


@pytest.mark.parametrize(
    ("below", "contradicts"),
    [
        (None, False),  # the log no longer has it
        (LogPoint(30, 2, 33), False),
        (LogPoint(30, 2, 99), True),
        (LogPoint(30, 3, 33), True),
        (LogPoint(35, 2, 33), True),
    ],
)
def test_a_snapshot_hides_no_other_records(below: LogPoint | None, contradicts: bool) -> None:
    found = replace(history([(70, 5, 77)], 60, 5), below=below)
    assert (found.contradicts(LogPoint(30, 2, 33)) is not None) is contradicts


@pytest.mark.parametrize(
    ("found", "counts"),
    [
        # Caught up: it has that very record again, in the log or still below its snapshot.
        (history(LOG), False),
        (replace(history([(70, 5, 77)], 60, 5), below=LogPoint(30, 2, 33)), False),
        # The log of before the snapshot is gone with what contradicted.
        (history([(70, 5, 77)], 60, 5), True),
    ],
)
def test_a_contradiction_counts_until_that_very_record_is_there_again(found: LogHistory, counts: bool) -> None:
    known = Remembered(LogPoint(30, 2, 33), contradicted="it had other records there", file="f")
    why = why_not_our_lineage(found, known, None, ())
    assert why == ("it had other records there; if it is the true one all the same, remove f" if counts else None)
    assert counts or remember(known, LogPoint(70, 5, 77), (), ()).contradicted is None


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
        assert point.offset <= committed and history(batches).contradicts(point) is None
        assert history(batches[: read - 1]).contradicts(point) is None or point.offset > (
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
