"""What may be carried out of a request: never one that anything known has closed, however it is arranged."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.records import Kind, PartitionDir
from logagent.base.units import instant
from logagent.deletion.agent.memory import KEPT_MS, RequestMemory, difference, is_final, is_settled, why_refused
from logagent.deletion.store.answers import DirectoryAnswer
from logagent.deletion.store.requests import (
    Decision,
    Filed,
    Request,
    RequestedDirectory,
    RequestedTopic,
    RequestOutcome,
    TopicOutcome,
)

NUMBER, CLUSTER = "a" * 64, "c"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
TOPIC = RequestedTopic("t", "T" * 22, ())
ASKED = Request(CLUSTER, "topics", "0" * 16, "ops", instant(NOON), instant(NOON + DAY), "0" * 32, topics=(TOPIC,))
ROW = RequestedDirectory(1, "/d", "t-0", "t", "T" * 22, 0, "orphan", 7, "D" * 22, 100)
KINDS = ("delete", "cancelled", "dropped", "expired")


def decision(what: str = "delete") -> Decision:
    return Decision(NUMBER, CLUSTER, what, "ops", instant(NOON), topics=(TOPIC,))  # type: ignore[arg-type]


def outcome(result: str = "deleted") -> RequestOutcome:
    return RequestOutcome(NUMBER, CLUSTER, "ops", instant(NOON), (TopicOutcome(TOPIC.topic_id, result),))  # type: ignore[arg-type]


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def memory(born: datetime = NOON - DAY, stood: tuple[str, ...] = ()) -> RequestMemory:
    return RequestMemory("0" * 32, ms(born), stood)


def why(filed: Filed, known: RequestMemory | None = None, now: datetime = NOON + MINUTE, accept: bool = True) -> object:
    return why_refused(NUMBER, filed, known or memory(), now, accept=accept)


def test_an_open_request_that_is_newer_than_the_memory_is_carried_out() -> None:
    assert why(Filed(NUMBER, ASKED)) is None


@pytest.mark.parametrize(
    ("filed", "known", "now", "accept"),
    [
        (Filed(NUMBER, ASKED), None, NOON + MINUTE, False),
        (Filed(NUMBER, None, hold="junk"), None, NOON + MINUTE, True),
        (Filed(NUMBER, ASKED, hold="junk"), None, NOON + MINUTE, True),
        (Filed(NUMBER, ASKED, outcome=outcome()), None, NOON + MINUTE, True),
        (Filed(NUMBER, ASKED), memory(stood=(NUMBER,)), NOON + MINUTE, True),
        (Filed(NUMBER, ASKED), memory(born=NOON + MINUTE), NOON + MINUTE, True),
        (Filed(NUMBER, ASKED), RequestMemory("0" * 32, 0), NOON + MINUTE, True),
        (Filed(NUMBER, ASKED), None, NOON + DAY, True),
        (Filed(NUMBER, ASKED), None, NOON - 6 * MINUTE, True),
        (Filed(NUMBER, replace(ASKED, expires_at=instant(NOON + 8 * DAY))), None, NOON + DAY, True),
    ],
)
def test_what_is_refused(filed: Filed, known: RequestMemory | None, now: datetime, accept: bool) -> None:
    assert why(filed, known, now, accept) is not None


FILES = st.builds(
    lambda what, ended, hold: Filed(
        NUMBER, ASKED, decision(what) if what else None, outcome() if ended else None, "junk" if hold else None,
    ),
    st.sampled_from((None, *KINDS)), st.booleans(), st.booleans(),
)  # fmt: skip


@given(st.lists(st.one_of(FILES, st.none()), min_size=1, max_size=6), st.integers(0, 3))
def test_what_was_ever_closed_stays_closed_whatever_the_store_shows_afterwards(
    call_each: list[Filed | None], minutes: int
) -> None:
    """None: the request is not in the store. Decisions that the memory has kept are told again, as the box does."""
    known = memory()
    closed = cancelled = False
    for filed in call_each:
        known.meet({NUMBER: filed} if filed else {}, ms(NOON + minutes * MINUTE), is_sure=True)
        if filed is not None:
            ends = filed.decision is not None and filed.decision.decision != "delete"
            closed = closed or ends or filed.outcome is not None
            cancelled = cancelled or ends
    if closed:
        assert why(Filed(NUMBER, ASKED), known) is not None
    if cancelled:
        assert known.may_go() == {}
    known.meet({}, ms(NOON + minutes * MINUTE), is_sure=True)
    assert not cancelled or known.may_go() == {}


@given(FILES, st.sampled_from(("deleted", "disabled", "refused", "unknown")))
def test_a_word_needs_a_decision_to_delete_that_nothing_contradicts(filed: Filed, result: str) -> None:
    if filed.outcome is not None:
        filed = replace(filed, outcome=outcome(result))
    known = memory()
    known.meet({NUMBER: filed}, ms(NOON + MINUTE), is_sure=True)
    counts = filed.decision is not None and filed.decision.decision == "delete" and filed.hold is None
    if filed.outcome is not None and result in ("disabled", "refused"):
        counts = False
    assert bool(known.may_go()) is counts
    known.meet({NUMBER: filed}, ms(NOON + 2 * MINUTE), is_sure=True)
    assert len(known.words) <= 1, "the same look twice says nothing twice"


def test_a_word_outlives_expiry_the_store_and_a_month_and_ends_with_a_restore() -> None:
    known = memory()
    known.meet({NUMBER: Filed(NUMBER, ASKED, decision(), outcome())}, ms(NOON), is_sure=True)
    known.meet({}, ms(NOON + 100 * DAY), is_sure=True)
    assert not known.requests and TOPIC.topic_id in known.may_go()
    known.end_restored([("U" * 22, ms(NOON + DAY)), (TOPIC.topic_id, ms(NOON - DAY))])
    assert known.may_go(), "another topic's, and one from before"
    known.end_restored([(TOPIC.topic_id, ms(NOON + DAY))])
    assert known.may_go() == {}
    known.meet({NUMBER: Filed(NUMBER, ASKED, decision())}, ms(NOON + 100 * DAY), is_sure=True)
    assert known.may_go() == {}, "the decision that is still in the store revives nothing"


def test_a_cancellation_that_is_first_seen_long_after_its_request_ends_the_word() -> None:
    known = memory()
    known.meet({NUMBER: Filed(NUMBER, ASKED, decision())}, ms(NOON), is_sure=True)
    late = ms(NOON + DAY) + 2 * KEPT_MS
    known.meet({NUMBER: Filed(NUMBER, ASKED, decision("cancelled"))}, late, is_sure=True)
    assert known.may_go() == {}


def test_a_word_is_dropped_once_nothing_is_left_and_the_store_has_no_such_request() -> None:
    known = memory()
    known.meet({NUMBER: Filed(NUMBER, ASKED, decision())}, ms(NOON), is_sure=True)
    known.forget_words([TOPIC.topic_id], [])
    known.forget_words([], [NUMBER])
    assert known.words
    known.forget_words([], [])
    assert not known.words


def test_a_request_is_forgotten_a_month_after_its_expiry_unless_the_clock_is_in_doubt() -> None:
    known = memory()
    known.meet({NUMBER: Filed(NUMBER, ASKED, decision("cancelled"))}, ms(NOON), is_sure=True)
    late = ms(NOON + DAY) + KEPT_MS + 1
    known.meet({}, late, is_sure=False)
    assert NUMBER in known.requests
    known.meet({}, late, is_sure=True)
    assert not known.requests


def test_a_clock_that_was_ahead_at_the_first_start_is_corrected_only_by_one_that_nothing_contradicts() -> None:
    known = memory(born=NOON + 300 * DAY)
    known.meet({}, ms(NOON - MINUTE), is_sure=False)
    assert why(Filed(NUMBER, ASKED), known) is not None
    known.meet({}, ms(NOON - MINUTE), is_sure=True)
    assert why(Filed(NUMBER, ASKED), known) is None


# Identity

DIR = PartitionDir("/d", "t-0", Kind.CURRENT, "t", 0, None, False, 1, 7, 0, 0, topic_id="T" * 22)


@given(
    st.sampled_from(("T" * 22, "U" * 22, None)), st.sampled_from((0, 1)), st.sampled_from((7, 8)),
    st.sampled_from(("D" * 22, "E" * 22, None)), st.sampled_from((100, 101, None)),
)  # fmt: skip
def test_a_directory_is_the_one_asked_for_only_if_everything_about_it_is_the_same(
    topic_id: str | None, partition: int, inode: int, directory_id: str | None, end: int | None
) -> None:
    d = replace(DIR, topic_id=topic_id, partition=partition, inode=inode)
    same = (topic_id, partition, inode, directory_id, end) == ("T" * 22, 0, 7, "D" * 22, 100)
    assert (difference(ROW, d, directory_id=directory_id, end_offset=end) is None) is same
    less = replace(ROW, directory_id=None, end_offset=None)
    assert (difference(less, d, directory_id=directory_id, end_offset=end) is None) is (
        (topic_id, partition, inode) == ("T" * 22, 0, 7)
    )


# What is tried again

CLAIMS = st.sampled_from((None, "identity", "restored", "request", "accept", "assigned", "window", "blast-radius"))


@given(st.sampled_from(("done", "refused", "waits")), CLAIMS, st.booleans(), st.booleans())
def test_what_is_final_is_never_tried_again(state: str, claim: str | None, accept: bool, later: bool) -> None:
    at = instant(NOON + DAY) if later else None
    answer = DirectoryAnswer("/d", "t-0", state, claim=claim, next_try_at=at)  # type: ignore[arg-type]
    if is_final(answer):
        assert is_settled(answer, None, accept=accept)
    elif claim != "accept" or accept:
        assert not is_settled(answer, None, accept=accept), "after a restart everything else is tried"
        assert is_settled(answer, NOON, accept=accept) is later
