"""The files that a KRaft node reads from its metadata log dir when it starts: which of them it cannot read.

What real nodes make of each is in tests/damages/metadata.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.kafka.files.metadata_dir import metadata_faults
from logagent.kafka.image import MetadataFault, MetadataFile
from tests.metadata_writer import feature_level, snapshot, write_quorum_state, write_segment, write_snapshot

LOG = "__cluster_metadata-0"
ANY_FEATURE = feature_level("metadata.version", 20)


@pytest.fixture
def meta(tmp_path: Path) -> Path:
    """A metadata log dir as a node leaves it: two snapshots, and the log from its beginning."""
    log = tmp_path / LOG
    log.mkdir()
    write_quorum_state(log, 1, [1])
    (log / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    (log / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    write_segment(log, 0, b"")
    for end in (10, 20):
        write_snapshot(log, end, snapshot([ANY_FEATURE], 1000))
    (tmp_path / "bootstrap.checkpoint").write_bytes(snapshot([ANY_FEATURE], 1000))
    return tmp_path


def faults(meta: Path, voters: tuple[int, ...] = (1,)) -> tuple[MetadataFault, ...]:
    fd = os.open(meta, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return metadata_faults(fd, voters)
    finally:
        os.close(fd)


def test_a_healthy_dir_and_one_that_was_never_started_have_none(meta: Path, tmp_path: Path) -> None:
    assert faults(meta) == ()
    (tmp_path / "new").mkdir()
    assert faults(tmp_path / "new") == ()


NEWEST = f"{LOG}/{20:020}-0000000001.checkpoint"
FILES = {
    f"{LOG}/quorum-state": MetadataFile.QUORUM_STATE,
    f"{LOG}/leader-epoch-checkpoint": MetadataFile.EPOCHS,
    f"{LOG}/partition.metadata": MetadataFile.TOPIC_ID,
    NEWEST: MetadataFile.SNAPSHOT,
    "bootstrap.checkpoint": MetadataFile.BOOTSTRAP,
}


@pytest.mark.parametrize(("name", "file"), FILES.items())
@pytest.mark.parametrize("torn", [lambda data: b"", lambda data: bytes(len(data))], ids=["empty", "zeroed"])
def test_what_a_lost_power_leaves_is_found(
    meta: Path, name: str, file: MetadataFile, torn: Callable[[bytes], bytes]
) -> None:
    (meta / name).write_bytes(torn((meta / name).read_bytes()))
    found = [(f.file, f.name, f.spare) for f in faults(meta)]
    # Kafka reads no epochs from an empty file, and starts.
    empty_epochs = file is MetadataFile.EPOCHS and not (meta / name).read_bytes()
    assert found == ([] if empty_epochs else [(file, name, True)])


@pytest.mark.parametrize("name", FILES)
def test_without_the_file_there_is_no_fault(meta: Path, name: str) -> None:
    (meta / name).unlink()
    assert faults(meta) == ()


QUORUM_STATES = [
    ('{"leaderId":1,"leaderEpoch":2,"votedId":-1,"currentVoters":[],"data_version":0}', None),
    ('{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":0}\0\0\0', None),
    ('{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":9}', True),
    ('{"data_version":0}', True),
    ('{"leaderId":1', False),
    ("[]", False),
    ("[" * 100_000, False),
]


@pytest.mark.parametrize(("text", "refused"), QUORUM_STATES)
def test_a_quorum_state_that_older_releases_start_anew_differs_from_one_they_refuse(
    meta: Path, text: str, refused: bool | None
) -> None:
    (meta / LOG / "quorum-state").write_text(text)
    assert [f.refused for f in faults(meta)] == ([] if refused is None else [refused])


def test_at_a_fifo_every_release_waits_for_ever(meta: Path) -> None:
    """Nothing is thrown that older ones would start anew after; seen with 3.7.0."""
    (meta / LOG / "quorum-state").unlink()
    os.mkfifo(meta / LOG / "quorum-state")
    assert [(f.file, f.refused) for f in faults(meta)] == [(MetadataFile.QUORUM_STATE, True)]


def test_voters_that_the_configuration_does_not_name(meta: Path) -> None:
    assert [f.file for f in faults(meta, (1, 2))] == [MetadataFile.VOTERS]
    assert faults(meta, ()) == ()  # a dynamic quorum
    odd = '{"leaderId":1,"leaderEpoch":2,"votedId":-1,"currentVoters":[{"voterId":[]},7,{}],"data_version":0}'
    (meta / LOG / "quorum-state").write_text(odd)
    assert faults(meta, (1,)) == ()


def test_a_dynamic_quorum_is_reported_for_the_releases_that_know_none(meta: Path) -> None:
    text = '{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"x","data_version":1}'
    (meta / LOG / "quorum-state").write_text(text)
    assert [f.file for f in faults(meta)] == [MetadataFile.DYNAMIC]


def test_only_the_newest_snapshot_is_loaded(meta: Path) -> None:
    (meta / LOG / f"{10:020}-0000000001.checkpoint").write_bytes(b"")
    assert faults(meta) == ()


def test_a_snapshot_that_the_log_begins_at_cannot_be_spared(meta: Path) -> None:
    log = meta / LOG
    (log / f"{0:020}.log").rename(log / f"{15:020}.log")
    whole = (meta / NEWEST).read_bytes()
    (meta / NEWEST).write_bytes(whole[:-10])
    (fault,) = faults(meta)
    assert (fault.name, fault.spare) == (NEWEST, False)
    (meta / NEWEST).unlink()
    (fault,) = faults(meta)
    assert (fault.name, fault.spare) == (LOG, False)
    assert "begins at offset 15" in fault.error


def test_a_snapshot_that_is_a_link_to_nowhere_is_told_apart_where_the_log_has_all_of_it(meta: Path) -> None:
    log = meta / LOG
    (meta / NEWEST).unlink()
    (meta / NEWEST).symlink_to("/nonexistent/x")
    assert [(f.name, f.file) for f in faults(meta)] == [(NEWEST, MetadataFile.LOST_SNAPSHOT)]
    (log / f"{0:020}.log").rename(log / f"{15:020}.log")
    (fault,) = faults(meta)
    assert (fault.name, fault.file, fault.spare) == (NEWEST, MetadataFile.SNAPSHOT, False)


def test_a_snapshot_may_end_without_a_footer_but_not_within_a_batch(meta: Path) -> None:
    """Nodes start with the former; how much it lacks cannot be seen."""
    (meta / NEWEST).write_bytes(snapshot([ANY_FEATURE], 1000, footer=False))
    assert [f.file for f in faults(meta)] == [MetadataFile.SNAPSHOT_END]
    (meta / NEWEST).write_bytes(snapshot([ANY_FEATURE], 1000)[:-1])
    assert [f.file for f in faults(meta)] == [MetadataFile.SNAPSHOT_END]
    (meta / NEWEST).write_bytes(snapshot([ANY_FEATURE], 1000, footer=False)[:-1])
    assert [f.file for f in faults(meta)] == [MetadataFile.SNAPSHOT]


def test_a_bootstrap_checkpoint_needs_no_right_checksum_but_a_version(meta: Path) -> None:
    path = meta / "bootstrap.checkpoint"
    data = bytearray(snapshot([ANY_FEATURE, feature_level("\xe9", 1)], 1000))
    data[data.index(b"\xc3\xa9")] = 0xFF  # a name that is no text
    data[data.index(b"metadata.version") + 17] ^= 0x10
    path.write_bytes(data)
    assert faults(meta) == ()
    path.write_bytes(data[:-3])
    assert faults(meta) == ()
    path.write_bytes(data + bytes(100))
    assert [f.file for f in faults(meta)] == [MetadataFile.BOOTSTRAP]
    path.write_bytes(snapshot([feature_level("kraft.version", 1)], 1000))
    assert [f.file for f in faults(meta)] == [MetadataFile.BOOTSTRAP]


def test_the_snapshot_that_the_cluster_began_with_is_in_no_log(meta: Path) -> None:
    for found in (meta / LOG).glob("*.checkpoint"):
        found.unlink()
    write_snapshot(meta / LOG, 0, b"", epoch=0)
    assert [f.spare for f in faults(meta)] == [False]
    write_snapshot(meta / LOG, 10, b"")
    assert [f.spare for f in faults(meta)] == [True]


def test_names_that_are_not_a_snapshots_and_those_kafka_removes(meta: Path) -> None:
    for name in (
        "00000000000000000099-0000000001.checkpoint.part",
        "00000000000000000001-0000000001.checkpoint.deleted",
    ):
        (meta / LOG / name).write_bytes(b"x")
    assert faults(meta) == ()
    (meta / LOG / "backup.checkpoint").write_bytes(b"x")
    assert [f.file for f in faults(meta)] == [MetadataFile.ODD_NAME]


def test_the_topic_id_of_another_topic(meta: Path) -> None:
    (meta / LOG / "partition.metadata").write_text("version: 0\ntopic_id: Xs6gS0pIR5yNqcAe2bBqwQ")
    assert [f.file for f in faults(meta)] == [MetadataFile.TOPIC_ID]


@pytest.mark.parametrize(("keeps", "file"), [(0, MetadataFile.FIRST_SNAPSHOT), (0.5, MetadataFile.FIRST_SNAPSHOT)])
def test_of_the_first_snapshot_what_is_cut_off_is_told_apart(meta: Path, keeps: float, file: MetadataFile) -> None:
    """Formatting wrote it, and from 4.3 on a start does without what is missing; not with zeros in its place."""
    for later in (meta / LOG).glob("*.checkpoint"):
        later.unlink()
    write_snapshot(meta / LOG, 0, snapshot([ANY_FEATURE], 1000))
    (first,) = (meta / LOG).glob("*.checkpoint")
    assert faults(meta) == ()
    whole = first.read_bytes()
    first.write_bytes(whole[: int(len(whole) * keeps)])
    assert [fault.file for fault in faults(meta)] == [file]
    first.write_bytes(bytes(len(whole)))
    assert [fault.file for fault in faults(meta)] == [MetadataFile.SNAPSHOT]
