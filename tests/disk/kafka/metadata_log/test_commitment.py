"""What a metadata log says of its quorum, and which of its removals are known to be committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logagent.kafka.metadata_log.log import MetadataImage, read_metadata_log
from tests import metadata_writer as writer
from tests.metadata_writer import id_of

START_MS = 1_790_000_000_000
NOW_MS = 1_800_000_000_000


def read(folder: Path, node_id: int | None = 2, **more: Any) -> MetadataImage:
    return read_metadata_log(str(folder), node_id=node_id, cluster_id="c", now_ms=NOW_MS, **more)


def quorum_log(
    folder: Path, times: list[int], *, leader: int, voters: list[int], level: int = 15, epochs: list[int] | None = None
) -> Path:
    """`metadata.version`, then a topic that is removed in the third batch; then NoOps at the given seconds."""
    create = [
        writer.feature_level("metadata.version", level),
        writer.topic("t", id_of(1)),
        writer.partition(id_of(1), 0, [2, 3]),
        writer.topic("u", id_of(2)),
    ]
    create.append(writer.partition(id_of(2), 0, [2, 3]))
    batches = [
        writer.batch(0, [writer.leader_change(voters)], START_MS, control=True),
        writer.batch(1, create, START_MS),
        writer.batch(6, [writer.remove_topic(id_of(1)), writer.partition_change(id_of(2), 0, replicas=[3])], START_MS),
    ]
    for number, seconds in enumerate(times):
        epoch = epochs[number] if epochs is not None else 1
        batches.append(writer.batch(8 + number, [writer.NO_OP], START_MS + 1000 * seconds, epoch=epoch))
    writer.write_segment(folder, 0, b"".join(batches))
    writer.write_quorum_state(folder, leader, voters)
    return folder


BOTH = {id_of(1), (id_of(2), 0)}


@pytest.mark.parametrize(
    ("times", "leader", "voters", "uncommitted"),
    [
        ([], 1, [1], set()),
        ([], 1, [1, 2, 3], BOTH),
        ([1, 59], 1, [1, 2, 3], BOTH),
        ([1, 60], 1, [1, 2, 3], set()),
        ([1, 60], 2, [1, 2, 3], BOTH),
        ([60, 1], 1, [1, 2, 3], set()),
    ],
)
def test_removals_that_may_not_be_committed(
    tmp_path: Path, times: list[int], leader: int, voters: list[int], uncommitted: set[Any]
) -> None:
    image = read(quorum_log(tmp_path, times, leader=leader, voters=voters))
    assert image.assignments.uncommitted == uncommitted
    assert image.voters == len(voters)
    # Either way the image is the whole log: only what it takes away is in doubt.
    assert set(image.assignments.by_name) == {"u"}


def test_time_commits_nothing_before_leaders_resign(tmp_path: Path) -> None:
    """Kafka before 3.7: an isolated leader goes on appending, and observers fetch it."""
    log = quorum_log(tmp_path, [1, 60, 3600], leader=1, voters=[1, 2, 3], level=14)
    assert read(log).assignments.uncommitted == BOTH


def test_time_over_two_epochs_commits_nothing(tmp_path: Path) -> None:
    log = quorum_log(tmp_path, [1, 60, 119], leader=1, voters=[1, 2, 3], epochs=[1, 3, 3])
    assert read(log).assignments.uncommitted == BOTH


def test_the_wait_is_ten_fetch_timeouts(tmp_path: Path) -> None:
    log = quorum_log(tmp_path, [1, 300], leader=1, voters=[1, 2, 3])
    assert read(log, fetch_timeout_ms=30_001).assignments.uncommitted == BOTH
    assert read(log, fetch_timeout_ms=30_000).assignments.uncommitted == set()


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"data_version":7,"leaderId":1,"currentVoters":[{}]}'])
def test_a_quorum_state_that_says_nothing_holds_removals_back(tmp_path: Path, text: str | None) -> None:
    quorum_log(tmp_path, [1, 600], leader=1, voters=[1, 2, 3])
    (tmp_path / "quorum-state").unlink()
    if text is not None:
        (tmp_path / "quorum-state").write_text(text)
    image = read(tmp_path)
    assert image.voters == 3
    assert image.assignments.uncommitted == BOTH


def test_an_unknown_node_may_be_the_leader(tmp_path: Path) -> None:
    quorum_log(tmp_path, [1, 600], leader=1, voters=[1, 2, 3])
    assert read(tmp_path, node_id=None).assignments.uncommitted == BOTH


def test_a_snapshot_commits(tmp_path: Path) -> None:
    quorum_log(tmp_path, [1], leader=2, voters=[1, 2, 3])
    records = [writer.topic("u", id_of(2)), writer.partition(id_of(2), 0, [3])]
    writer.write_snapshot(tmp_path, 9, writer.snapshot(records, START_MS))
    image = read(tmp_path)
    assert (image.assignments.uncommitted, image.committed_offset) == (frozenset(), 9)


def test_the_end_of_a_transaction_is_what_must_be_committed(tmp_path: Path) -> None:
    level = writer.feature_level("metadata.version", 15)
    create = [level, writer.topic("t", id_of(1)), writer.partition(id_of(1), 0, [2])]
    batches = [
        writer.batch(0, [*create, writer.BEGIN, writer.remove_topic(id_of(1))], START_MS),
        writer.batch(5, [writer.NO_OP], START_MS + 60_000),
        writer.batch(6, [writer.END], START_MS + 60_001),
    ]
    writer.write_segment(tmp_path, 0, b"".join(batches))
    writer.write_quorum_state(tmp_path, 1, [1, 2, 3])
    image = read(tmp_path)
    assert image.committed_offset == 5
    assert image.assignments.uncommitted == {id_of(1)}


def test_an_open_transaction_at_the_tail_is_left_out(tmp_path: Path) -> None:
    create = [writer.topic("t", id_of(1)), writer.partition(id_of(1), 0, [2])]
    writer.write_segment(tmp_path, 0, writer.batch(0, [*create, writer.BEGIN, writer.remove_topic(id_of(1))], START_MS))
    image = read(tmp_path).assignments
    assert set(image.by_name) == {"t"}
    assert image.open_transaction


# -- voters ------------------------------------------------------------------------------------------


def only_topics(folder: Path, *, control: list[tuple[int, bytes]]) -> Path:
    batches, offset = b"", 0
    if control:
        batches, offset = writer.batch(0, control, START_MS, control=True), len(control)
    batches += writer.batch(offset, [writer.topic("t", id_of(1))], START_MS)
    writer.write_segment(folder, 0, batches)
    return folder


@pytest.mark.parametrize(
    ("control", "quorum_state", "configured", "voters"),
    [
        ([writer.leader_change([1]), writer.kraft_voters([1, 2])], [1, 2, 3], 4, 2),
        ([writer.kraft_voters([1, 2, 3]), writer.kraft_voters([1])], None, None, 1),
        ([writer.leader_change([1, 2])], [1, 2, 3], 4, 3),
        ([writer.leader_change([1, 2])], [], 4, 2),
        ([writer.leader_change([1, 2])], None, 4, 2),
        ([], None, 4, 4),
        ([], None, None, None),
    ],
)
def test_the_number_of_voters_is_read_from_the_best_source(
    tmp_path: Path,
    control: list[tuple[int, bytes]],
    quorum_state: list[int] | None,
    configured: int | None,
    voters: int | None,
) -> None:
    only_topics(tmp_path, control=control)
    if quorum_state is not None:
        writer.write_quorum_state(tmp_path, 1, quorum_state)
    assert read(tmp_path, configured_voters=configured).voters == voters


def test_a_dynamic_quorum_begins_with_a_snapshot_of_control_records(tmp_path: Path) -> None:
    """`kafka-storage format --standalone` (4.x): `0…0-0000000000.checkpoint` before anything else."""
    only_topics(tmp_path, control=[writer.leader_change([1, 2, 3])])
    writer.write_snapshot(tmp_path, 0, writer.snapshot([], START_MS, voters=[1], epoch=0), epoch=0)
    (tmp_path / "bootstrap.checkpoint").write_bytes(b"no part of it")
    image = read(tmp_path)
    assert (image.snapshot, image.voters) == (f"{0:020}-{0:010}.checkpoint", 1)
    assert set(image.assignments.by_name) == {"t"}
    assert image.assignments.at_ms == START_MS
