"""Replay of metadata records against a plain model, and the histories that no controller wrote."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logagent.base.errors import UnreadableError
from logagent.base.records import id_to_text
from logagent.kafka.metadata_log.replay import Replay
from tests import metadata_writer as writer
from tests.metadata_model import Model
from tests.metadata_writer import id_of


def state(replay: Replay) -> dict[str, Any]:
    fields = ("replicas", "isr", "adding", "removing", "directories", "leader", "elr")
    return {
        "topics": {
            topic_id: {
                "name": topic.name,
                "partitions": {
                    number: {f: list(v) if isinstance(v := getattr(one, f), tuple) else v for f in fields}
                    for number, one in topic.partitions.items()
                },
            }
            for topic_id, topic in replay.topics.items()
        },
        "brokers": {
            node: {"directory_ids": list(b.directory_ids), "fenced": b.fenced} for node, b in replay.brokers.items()
        },
        "delays": replay.delete_delays,
        "version": replay.metadata_version,
    }


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_any_sequence_of_records_replays_to_the_same_state(seed: int, steps: int) -> None:
    model, replay, offset = Model(random.Random(seed)), Replay(), 0
    removals: dict[str | tuple[str, int], int] = {}
    for _ in range(steps):
        records = model.step()
        for value in records:
            replay.add(offset, value)
            offset += 1
        for what in model.removed:
            # A removal and the creation that may follow come in one step; the removal is its first record.
            removals[what] = offset - len(records)
        assert state(replay) == model.state()
    assert replay.removals == removals
    assert replay.ids == {topic["name"]: topic_id for topic_id, topic in model.topics.items()}


@given(st.integers(0, 2**32), st.lists(st.sampled_from(["commit", "abort", "plain"]), max_size=12))
def test_an_aborted_transaction_leaves_no_trace(seed: int, kinds: list[str]) -> None:
    model, replay, offset = Model(random.Random(seed)), Replay(), 0
    for kind in kinds:
        before = model.copy()
        records = [value for _ in range(3) for value in model.step()]
        if kind == "abort":
            made = model.made
            model = before
            model.made = made
        wrapped = {"plain": records, "commit": [writer.BEGIN, *records, writer.END]}.get(
            kind, [writer.BEGIN, *records, writer.ABORT]
        )
        for value in wrapped:
            replay.add(offset, value)
            offset += 1
        assert not replay.open_transaction
        assert state(replay) == model.state()


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_an_open_transaction_has_not_happened(seed: int) -> None:
    model, replay = Model(random.Random(seed)), Replay()
    values = [value for _ in range(10) for value in model.step()]
    for offset, value in enumerate(values):
        replay.add(offset, value)
    before = model.state()
    replay.add(len(values), writer.BEGIN)
    for topic_id in list(model.topics):
        replay.add(len(values) + 1, writer.remove_topic(topic_id))
    assert replay.open_transaction
    assert state(replay) == before


def test_a_removal_in_a_transaction_happens_at_its_end() -> None:
    replay = Replay()
    values = [writer.topic("a", id_of(1)), writer.BEGIN, writer.remove_topic(id_of(1)), writer.NO_OP, writer.END]
    for offset, value in enumerate(values, 10):
        replay.add(offset, value)
    assert replay.removals == {id_of(1): 14}


def _reserved(number: int) -> str:
    return id_to_text(number.to_bytes(16, "big"))


A = writer.topic("a", id_of(1))
A0 = writer.partition(id_of(1), 0, [1, 2])


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([A, writer.topic("b", id_of(1))], "creates topic b .* which exists"),
        ([A, writer.topic("a", id_of(2))], "creates topic a .* which exists"),
        ([writer.remove_topic(id_of(1))], "removes the unknown topic"),
        ([A, writer.remove_topic(id_of(1)), writer.remove_topic(id_of(1))], "removes the unknown topic"),
        ([A0], "adds a partition to the unknown topic"),
        ([A, writer.partition(id_of(1), -1, [1])], "adds partition -1"),
        ([A, A0, writer.partition_change(id_of(1), 1, leader=1)], "changes the unknown partition 1"),
        ([writer.partition_change(id_of(1), 0, leader=1)], "changes the unknown partition 0"),
        ([writer.BEGIN, writer.BEGIN], "within another"),
        ([writer.END], "not started"),
        ([writer.ABORT], "not started"),
        ([writer.config(4, "", "log.segment.delete.delay.ms", "soon")], "is not a number"),
        ([writer.fence(1)], "changes broker 1, which is not registered"),
        ([writer.register_broker(1), writer.fence(1, epoch=8)], "changes broker 1, whose epoch is 7, not 8"),
        ([writer.unregister_broker(1)], "changes broker 1, which is not registered"),
        ([writer.registration_change(1, {})], "changes broker 1, which is not registered"),
        ([A, A0, writer.partition_change(id_of(1), 0, directories=[id_of(5)])], "2 replicas and 1 directories"),
        ([writer.clear_elr("a")], "of the unknown topic a"),
        ([A, writer.partition(id_of(1), 0, [1], directories=[_reserved(3)])], "reserved id has no known meaning"),
        ([A, A0, writer.partition_change(id_of(1), 0, directories=[_reserved(0), _reserved(99)])], "no known meaning"),
    ],
)
def test_histories_that_no_controller_wrote_are_refused(values: list[bytes], says: str) -> None:
    replay = Replay()
    with pytest.raises(UnreadableError, match=says):
        for offset, value in enumerate(values):
            replay.add(offset, value)


def test_a_migration_from_zookeeper_is_seen_until_it_is_done() -> None:
    replay, seen = Replay(), []
    for offset, migration in enumerate((0, 2, 1, 3)):
        replay.add(offset, writer.zk_migration(migration))
        seen.append(replay.zk_migration)
    assert seen == [False, True, True, False]


def test_replicas_change_without_directories_before_3_7() -> None:
    """Version 0 has no directories: none are kept that would not match."""
    replay = Replay()
    change = writer.partition_change(id_of(1), 0, replicas=[3], version=0)
    for offset, value in enumerate([A, writer.partition(id_of(1), 0, [1, 2], version=0), change]):
        replay.add(offset, value)
    partition = replay.topics[id_of(1)].partitions[0]
    assert (partition.replicas, partition.directories) == ((3,), ())


def test_directories_of_other_replicas_are_not_kept() -> None:
    replay = Replay()
    made = writer.partition(id_of(1), 0, [1, 2], directories=[id_of(5), id_of(6)])
    for offset, value in enumerate([A, made, writer.partition_change(id_of(1), 0, replicas=[2, 3])]):
        replay.add(offset, value)
    assert replay.topics[id_of(1)].partitions[0].directories == ()


def test_equal_assignments_share_their_parts() -> None:
    replay = Replay()
    replay.add(0, A)
    for number in range(3):
        replay.add(1, writer.partition(id_of(1), number, [700, 800], directories=[id_of(5), id_of(6)]))
    first, *others = replay.topics[id_of(1)].partitions.values()
    for other in others:
        assert other.replicas is first.replicas and other.directories is first.directories
