"""Who can tell of a decision that the store has lost: another machine's agent that has written since and knows it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from logagent.store import witnesses
from logagent.store.answers import Seen
from logagent.store.records import instant
from logagent.store.requests import Request
from logagent.store.witnesses import Asker

NUMBER, CLUSTER = "a" * 64, "c"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
NOW = NOON + 2 * MINUTE
ASKED = Request(CLUSTER, "topics", "0" * 16, "ops", instant(NOON), instant(NOON + DAY), "0" * 32)
ALONE = replace(ASKED, approvals=("no-witness",))
SEEN = Seen(CLUSTER, 2, "kafka2", "2" * 32, instant(NOON - DAY), instant(NOW), {}, (NUMBER,))
ASKER = Asker("kafka1", timedelta(hours=2), "1" * 32)


def goes_on(seen: dict[int, Seen], request: Request = ASKED, asker: Asker = ASKER) -> bool:
    baseline = {2: instant(NOON + MINUTE), 3: instant(NOON + MINUTE)}
    return witnesses.testimony(NUMBER, request, seen, baseline, asker, NOW).waits is None


def test_a_witness_has_written_since_and_lists_the_request() -> None:
    assert goes_on({2: SEEN})
    assert goes_on({2: replace(SEEN, open=(), decisions={NUMBER: ("",)})}), "decided, and still not done"
    silent = replace(SEEN, node_id=3, at=instant(NOON - DAY))
    said = witnesses.testimony(NUMBER, ASKED, {2: SEEN, 3: silent}, {}, ASKER, NOW)
    assert said.waits is None and said.silent == ("node 3 (kafka2)",), "a silent one is only named"


@pytest.mark.parametrize(
    "nobody",
    [
        {},
        {2: replace(SEEN, host="kafka1")},
        {2: replace(SEEN, agent="1" * 32)},
        {2: replace(SEEN, at=instant(NOON + 10 * MINUTE))},
        {2: replace(SEEN, at=instant(NOON - timedelta(hours=3)))},
        {2: replace(SEEN, born_at=instant(NOON + MINUTE))},
    ],
    ids=["nobody", "same machine", "same agent", "from the future", "silent", "newer memory"],
)
def test_where_there_is_none_only_the_approval_for_it_counts(nobody: dict[int, Seen]) -> None:
    assert not goes_on(nobody) and goes_on(nobody, ALONE)
    assert not goes_on(nobody, asker=ASKER._replace(wrote_it=True))


@pytest.mark.parametrize(
    "not_yet",
    [{2: replace(SEEN, at=instant(NOON + MINUTE))}, {4: replace(SEEN, node_id=4, at=instant(NOON - 10 * MINUTE))}],
    ids=["as it was when the look began", "too long ago"],
)
def test_while_one_can_tell_nothing_goes_on_without_its_word(not_yet: dict[int, Seen]) -> None:
    for request in (ASKED, ALONE):
        assert not goes_on(not_yet, request) and not goes_on(not_yet, request, ASKER._replace(wrote_it=True))


def test_what_no_witness_lists_is_only_for_whoever_wrote_it() -> None:
    assert not goes_on({2: replace(SEEN, open=())}) and not goes_on({2: replace(SEEN, open=())}, ALONE)
    assert goes_on({2: replace(SEEN, open=())}, asker=ASKER._replace(wrote_it=True))
