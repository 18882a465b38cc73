"""What a plan lists, what it leaves out, and what it wants an approval for."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from logagent.base.units import instant
from logagent.deletion.controller.deletion_plan import (
    DeletionPlan,
    ExistingTopic,
    asked_lately,
    plan_directories,
    plan_topics,
)
from logagent.deletion.store.requests import Request, RequestedDirectory, RequestedPartition, RequestedTopic

NOW = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)
CLUSTER = "c"


def living(*names: str, size: int = 1) -> list[ExistingTopic]:
    partitions = (RequestedPartition(0, (1, 2, 3)),)
    return [ExistingTopic(RequestedTopic(name, f"{n:022d}", partitions), size) for n, name in enumerate(names)]


def topics(pattern: str, *names: str, include_internal: bool = False) -> DeletionPlan:
    return plan_topics(re.compile(pattern), living(*names), CLUSTER, include_internal=include_internal, named=pattern)


def directory(node: int, partition: int = 0, topic: str = "clicks", size: int = 10) -> RequestedDirectory:
    return RequestedDirectory(node, "/d1", f"{topic}-{partition}", topic, "A" * 22, partition, "orphan", 7, bytes=size)


def copies(*nodes: int, partition: int = 0) -> dict[tuple[str, int], frozenset[int]]:
    return {("A" * 22, partition): frozenset(nodes)}


def request(*directories: RequestedDirectory) -> Request:
    return Request(CLUSTER, "directories", "", "", "", "", "", directories=directories)


def needed(plan: DeletionPlan) -> list[tuple[str, str]]:
    return [(n.word, n.why) for n in plan.approval]


MANY = {1: 1000, 2: 1000, 3: 1000}


def test_whole_names_match() -> None:
    plan = topics("click.*", "clicks", "my-clicks", "other", *[f"t{n}" for n in range(20)])
    assert [t.topic for t in plan.topics] == ["clicks"] and plan.approval == () and plan.dropped == ()


@pytest.mark.parametrize("name", ["__remote_log_metadata", "__cluster_metadata"])
def test_the_logs_of_metadata_never_go(name: str) -> None:
    plan = topics(".*", name, include_internal=True)
    assert plan.topics == () and [(what, why.hint) for what, why in plan.dropped] == [(name, "")]


@pytest.mark.parametrize("name", ["_schemas", "__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_internal_topics_and_names_with_an_underscore_go_only_by_their_option(name: str) -> None:
    spared = topics(name, name)
    assert spared.topics == () and "--include-internal" in spared.dropped[0][1].hint
    assert [t.topic for t in topics(name, name, include_internal=True).topics] == [name]


def test_an_unknown_name_is_dropped_with_a_warning() -> None:
    plan = topics("nobody", "clicks")
    assert plan.topics == () and plan.dropped[0][0] == "nobody" and "no topic" in plan.dropped[0][1].fact


def test_a_topic_without_an_id_is_dropped_and_not_called_unknown() -> None:
    """As clusters list them whose inter.broker.protocol.version is below 2.8."""
    nameless = ExistingTopic(replace(living("clicks")[0].requested, topic_id=""), None)
    plan = plan_topics(re.compile("clicks"), [nameless, *living("views")], CLUSTER, named="clicks")
    assert plan.topics == () and [what for what, _ in plan.dropped] == ["clicks"]
    assert "no topic id" in plan.dropped[0][1].fact and plan.approval == ()


def test_all_topics_want_an_approval() -> None:
    plan = topics(".*", *[f"t{n}" for n in range(30)])
    assert len(plan.topics) == 30
    assert any("exceed 20" in why for _, why in plan.approval), plan.approval
    assert any("10%" in why for _, why in plan.approval), plan.approval


def test_a_tenth_of_the_bytes_wants_an_approval() -> None:
    known = [*living(*[f"t{n}" for n in range(40)]), ExistingTopic(replace(living("big")[0].requested), 100)]
    plan = plan_topics(re.compile("big"), known, CLUSTER)
    assert len(plan.topics) == 1
    assert any("bytes" in why for _, why in plan.approval), plan.approval


def test_a_topic_of_unknown_size_wants_an_approval() -> None:
    known = [*living(*[f"t{n}" for n in range(40)]), ExistingTopic(replace(living("big")[0].requested), None)]
    plan = plan_topics(re.compile("big"), known, CLUSTER)
    assert len(plan.topics) == 1
    assert any("size of 1" in why for _, why in plan.approval), plan.approval


def test_a_topic_that_is_queued_is_not_asked_for_again() -> None:
    open_request = replace(request(), topics=(living("clicks")[0].requested,))
    plan = plan_topics(re.compile("clicks"), living("clicks"), CLUSTER, open_requests=[open_request])
    assert plan.topics == () and "queued" in plan.dropped[0][1].fact


def test_all_copies_of_a_partition_in_one_plan_are_only_copies() -> None:
    chosen = [directory(node) for node in (1, 2, 3)]
    plan = plan_directories(chosen, CLUSTER, copies(1, 2, 3), dirs_on_host=MANY)
    assert [d for d in plan.directories if not d.only_copy] == []
    assert plan.words() == ("only-copy",)
    plan = plan_directories(chosen[:2], CLUSTER, copies(1, 2, 3), dirs_on_host=MANY)
    assert [d for d in plan.directories if d.only_copy] == []
    assert plan.approval == ()


def test_a_copy_that_another_open_request_takes_does_not_count() -> None:
    plan = plan_directories(
        [directory(1)], CLUSTER, copies(1, 2), dirs_on_host=MANY, open_requests=[request(directory(2))]
    )
    assert plan.directories[0].only_copy


def test_a_copy_on_a_host_that_is_not_heard_does_not_count() -> None:
    assert plan_directories([directory(1)], CLUSTER, copies(1), dirs_on_host=MANY).directories[0].only_copy
    assert plan_directories([directory(1)], CLUSTER, {}, dirs_on_host=MANY).directories[0].only_copy


def test_a_hosts_blast_radius_wants_an_approval() -> None:
    chosen = [directory(1, n) for n in range(25)]
    known = {k: v for n in range(25) for k, v in copies(1, 2, partition=n).items()}
    plan = plan_directories(chosen, CLUSTER, known, dirs_on_host=MANY)
    assert needed(plan) == [("limit", "25 directories of node 1 exceed 20")]
    plan = plan_directories(chosen[:5], CLUSTER, known, dirs_on_host={1: 20})
    assert needed(plan) == [("limit", "5 of node 1's 20 directories exceed 10%")]


def test_small_requests_of_one_day_add_up() -> None:
    names = [f"t{n}" for n in range(1000)]
    asked = plan_topics(re.compile("t[0-9]"), living(*names), CLUSTER)
    assert len(asked.topics) == 10 and asked.approval == ()
    made = replace(request(), kind="topics", at=instant(NOW - timedelta(hours=23)), topics=asked.topics)
    old = replace(made, at=instant(NOW - timedelta(hours=25)))
    approved = replace(made, approvals=("limit",))
    gone = [t for t in living(*names) if t.requested.topic_id not in {a.topic_id for a in asked.topics}]
    another = replace(made, approvals=("only-copy",))
    for before, wants in (((made,), True), ((another,), True), ((old,), False), ((approved,), False)):
        plan = plan_topics(re.compile("t1[0-9]|t20"), gone, CLUSTER, lately=asked_lately(before, NOW))
        assert bool(plan.approval) == wants, plan.approval
    plan = plan_topics(re.compile("t1[0-9]|t20"), gone, CLUSTER, lately=[made])
    assert needed(plan) == [("limit", "21 topics exceed 20 (including 10 requested in the last 24 h)")]
    again = plan_topics(re.compile("t[0-9]"), living(*names), CLUSTER, lately=[made])
    assert again.approval == (), "the same topics are not counted twice"


def test_small_purges_of_one_host_add_up() -> None:
    known = {k: v for n in range(25) for k, v in copies(1, 2, partition=n).items()}
    before = replace(request(*[directory(1, n) for n in range(15)]), at=instant(NOW))
    chosen = [directory(1, n) for n in range(15, 25)]
    assert plan_directories(chosen, CLUSTER, known, dirs_on_host=MANY).approval == ()
    plan = plan_directories(chosen, CLUSTER, known, dirs_on_host=MANY, lately=[before])
    assert needed(plan) == [("limit", "25 directories of node 1 exceed 20 (including 15 requested in the last 24 h)")]


def test_only_copies_never_go_without_retention() -> None:
    plan = plan_directories([directory(1)], CLUSTER, copies(1), dirs_on_host=MANY, no_retention=True)
    assert plan.directories == () and "only with retention" in plan.dropped[0][1].fact


def test_an_approval_is_for_exactly_that_list_and_for_a_day() -> None:
    plan = plan_directories([directory(1)], CLUSTER, copies(1), dirs_on_host=MANY)
    approval = f"{plan.plan_id(NOW)}:only-copy"
    assert plan.approved([approval], NOW) == (("only-copy",), None)
    assert plan.approved([approval], NOW + timedelta(hours=23, minutes=59))[1] is None
    assert "24 h" in (plan.approved([approval], NOW + timedelta(hours=24, minutes=1))[1] or "")
    assert "24 h" in (plan.approved([f"{plan.plan_id(NOW + timedelta(hours=1))}:only-copy"], NOW)[1] or "")
    later = f"{approval[:16]}{int((NOW + timedelta(hours=20)).timestamp() // 60):08x}:only-copy"
    assert "another plan" in (plan.approved([later], NOW + timedelta(hours=30))[1] or "")
    other = plan_directories([directory(1), directory(2)], CLUSTER, copies(1, 2), dirs_on_host=MANY)
    assert "another plan" in (other.approved([approval], NOW)[1] or "")
    for wrong in ("", "yes", "z" * 24, "0" * 24, "f" * 24, "1:only-copy", plan.plan_id(NOW)):
        words, why = plan.approved([wrong], NOW)
        assert "only-copy" not in words and why is not None
    assert plan.approved([], NOW)[1] is not None


def test_no_word_stands_for_another() -> None:
    """Who approves a large plan has not approved its only copies, and the other way round."""
    chosen = [directory(1, n) for n in range(25)]
    plan = plan_directories(chosen, CLUSTER, {}, dirs_on_host=MANY)
    assert plan.words() == ("only-copy", "limit")
    for words in ("only-copy", "limit", "no-retention"):
        assert plan.approved([f"{plan.plan_id(NOW)}:{words}"], NOW)[1] is not None, words
    assert plan.approved([f"{plan.plan_id(NOW)}:limit,only-copy"], NOW) == (("only-copy", "limit"), None)


def test_a_stray_beside_its_nodes_own_copy_is_no_only_copy() -> None:
    stray = replace(directory(1), kind="stray")
    assert not plan_directories([stray], CLUSTER, copies(1), dirs_on_host=MANY).directories[0].only_copy


def test_what_is_removed_at_once_is_counted() -> None:
    stray = replace(directory(1), kind="stray")
    plan = plan_directories([stray, directory(2)], CLUSTER, copies(3), dirs_on_host=MANY, no_retention=True)
    assert needed(plan) == [("no-retention", "1 stray will be removed at once and cannot be restored")]
