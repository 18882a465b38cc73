"""Which copies in snapshots still count once requests were closed, by values alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from logagent.controller.only_copies import copies_in, in_sync_only, not_deleted_since, taken_by, without_other_copy
from logagent.store.deletion import Request, RequestedDirectory, RequestedPartition, RequestedTopic
from logagent.store.publications import When

CLOSED = datetime(2026, 11, 24, 23, 50, tzinfo=UTC)
TOPIC_ID = "A" * 22
SECOND = timedelta(seconds=1)
NAMES = {TOPIC_ID: "clicks", "B" * 22: "clicks"}


def row(name: str = "clicks-0", topic_id: str = TOPIC_ID) -> dict[str, object]:
    return {"row": "dir", "kind": "current", "log_dir": "/d1", "name": name, "topic_id": topic_id, "partition": 0}


def directory(name: str = "clicks-0", topic_id: str = TOPIC_ID, node: int = 1) -> RequestedDirectory:
    return RequestedDirectory(node, "/d1", name, "clicks", topic_id, 0, "orphan")


def request(*directories: RequestedDirectory, topics: tuple[RequestedTopic, ...] = ()) -> Request:
    kind = "topics" if topics else "directories"
    return Request("request-1", "c", kind, "a" * 16, "ops", "", "", 0, topics=topics, directories=directories)  # type: ignore[arg-type]


def sent(at: datetime) -> When:
    """At once."""
    return When(at, at)


BY_PLACE = request(directory())
BY_TOPIC = request(topics=(RequestedTopic("clicks", TOPIC_ID, (RequestedPartition(0, (2,)),)),))


@pytest.mark.parametrize("closed", [BY_PLACE, BY_TOPIC])
def test_an_agent_may_delete_for_ten_minutes_after_the_closing_and_two_clocks_may_be_wrong(closed: Request) -> None:
    """The controller's is 5 minutes behind and the host's 5 ahead; at its broker's start the host carries out an order
    that its daemon saw standing 10 minutes before."""
    copies = copies_in({1: [row()]}, NAMES)
    bound = CLOSED + 2 * timedelta(minutes=5) + timedelta(minutes=10)
    assert not any(not_deleted_since(copies, [(closed, CLOSED)], {1: sent(bound)}).values())
    assert not_deleted_since(copies, [(closed, CLOSED)], {1: sent(bound + SECOND)}) == copies


def test_what_was_sent_late_shows_no_copy_that_may_have_been_deleted() -> None:
    """A clock that is hours ahead does not show where a snapshot is sent hours later."""
    copies, taken_at = copies_in({1: [row()]}, NAMES), CLOSED + timedelta(hours=1)
    late = {1: When(taken_at, taken_at + timedelta(minutes=5))}
    assert not any(not_deleted_since(copies, [(BY_PLACE, CLOSED)], late).values())
    assert not_deleted_since(copies, [], late) == copies
    assert not_deleted_since(copies, [(BY_PLACE, CLOSED)], {1: When(taken_at, late[1].arrived_at - SECOND)}) == copies


def test_the_latest_closing_counts() -> None:
    copies, bound = copies_in({1: [row()]}, NAMES), CLOSED + timedelta(minutes=20)
    both = [(BY_PLACE, CLOSED), (BY_TOPIC, CLOSED + SECOND)]
    for closed in (both, both[::-1]):
        assert not any(not_deleted_since(copies, closed, {1: sent(bound + SECOND)}).values())
        assert not_deleted_since(copies, closed, {1: sent(bound + 2 * SECOND)}) == copies


def test_a_copy_of_another_topic_in_the_same_place_counts() -> None:
    """The topic was created again: agents go by the topic id, so nobody deleted this one."""
    copies = copies_in({1: [row(topic_id="B" * 22)]}, NAMES)
    assert not_deleted_since(copies, [(BY_PLACE, CLOSED)], {1: sent(CLOSED)}) == copies
    assert without_other_copy(copies.keys(), copies, [BY_PLACE]) == set()
    assert without_other_copy(copies.keys(), copies, [request(directory(topic_id="B" * 22))]) == copies.keys()


@pytest.mark.parametrize(("in_sync", "nodes"), [
    ({(TOPIC_ID, 0): {1, 2}}, {1, 2}), ({(TOPIC_ID, 0): {2, 3}}, {2}), ({(TOPIC_ID, 0): set()}, set()),
    ({(TOPIC_ID, 1): {1, 2}}, set()), ({("B" * 22, 0): {1, 2}}, set()), ({}, set()),
])  # fmt: skip
def test_only_live_brokers_in_sync_have_a_copy(in_sync: dict[tuple[str, int], set[int]], nodes: set[int]) -> None:
    copies = copies_in({1: [row()], 2: [row()]}, NAMES)
    found = in_sync_only(copies, {key: frozenset(value) for key, value in in_sync.items()})
    assert {place[0] for place in found[TOPIC_ID, 0]} == nodes


def test_nothing_is_taken_of_topics_that_were_not_asked_about() -> None:
    """There can be 60 closed requests of 20,000 directories each."""
    assert taken_by([BY_PLACE], {"B" * 22}) == (frozenset(), frozenset())
    assert not_deleted_since({}, [(BY_PLACE, CLOSED)], {}) == {}


@pytest.mark.parametrize("name", ["clicks-backup-0", "clicks-00", "views-0"])
def test_a_backup_by_another_name_is_no_copy(name: str) -> None:
    assert copies_in({1: [row(name)]}, NAMES) == {} != copies_in({1: [row()]}, NAMES)
