"""The metadata logs of real brokers: the image must be what Kafka itself said."""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from logagent.base.errors import UnreadableError
from logagent.kafka.image import Source
from logagent.kafka.metadata_log.batches import BatchFile
from logagent.kafka.metadata_log.log import MetadataImage, read_metadata_log
from logagent.kafka.metadata_log.metadata_records import DECODERS, decode_record
from tests import metadata_writer as writer
from tests.kafka_disks import DISKS, KRAFT, expected, extract, metadata_dir

NOW_MS = 2_000_000_000_000
# Killed at once, or asked at the very end: only there the answer of the admin API is that of the log's last record.
EXACT = {"3.9.1/node1-killed", "3.9.1/node2-killed", "3.9.1/node3-killed"}
# The node had stopped before the cluster was asked: its own log tells an earlier state.
STALE = {"3.9.1/node3-down"}


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: metadata_dir(extract(name, tmp_path_factory.mktemp("disk"))) for name in KRAFT}


def read(directory: Path, node_id: int = 1) -> MetadataImage:
    return read_metadata_log(str(directory), node_id=node_id, cluster_id="c", now_ms=NOW_MS)


def topics_of(image: MetadataImage) -> dict[str, tuple[str | None, dict[int, tuple[int, ...]]]]:
    topics = image.assignments.by_name
    return {n: (t.topic_id, {p: a.replicas for p, a in t.partitions.items()}) for n, t in topics.items()}


def topics_told(told: dict[str, Any]) -> dict[str, tuple[str | None, dict[int, tuple[int, ...]]]]:
    return {
        name: (t["topic_id"], {int(p): tuple(q["replicas"]) for p, q in t["partitions"].items()})
        for name, t in told.items()
    }


@pytest.mark.parametrize("name", KRAFT)
def test_topics_are_those_of_kafka(disks: dict[str, Path], name: str) -> None:
    image = read(disks[name])
    told = expected(name)
    assert topics_of(image) == topics_told((told["before_downtime"] if name in STALE else told)["topics"])
    assert image.assignments.source is Source.KRAFT_LOG
    assert image.assignments.complete and not image.assignments.uncommitted
    assert (image.voters, image.torn_bytes) == (1, 0)
    assert image.committed_offset == image.assignments.offset


@pytest.mark.parametrize("name", sorted(EXACT))
def test_leaders_and_isr_too(disks: dict[str, Path], name: str) -> None:
    image = read(disks[name]).assignments
    for topic, told in expected(name)["topics"].items():
        for number, partition in told["partitions"].items():
            mine = image.by_name[topic].partitions[int(number)]
            assert (mine.leader, sorted(mine.isr)) == (partition["leader"], sorted(partition["isr"]))


@pytest.mark.parametrize("name", KRAFT)
def test_brokers_have_their_directories(disks: dict[str, Path], name: str) -> None:
    told = expected(name)
    ids = {d["directory_id"] for d in told["directories"] if not d["path"].endswith("/meta")}
    registered = set(read(disks[name]).assignments.brokers[told["node_id"]].directory_ids)
    # While d2 was offline its broker told the controller of d1 only.
    assert registered == ids or (name == "3.9.1/node3-dir-returned" and registered < ids)


def test_directories_of_replicas_are_where_the_logs_lie(disks: dict[str, Path]) -> None:
    name = "3.9.1/node1-killed"
    told = expected(name)
    image = read(disks[name]).assignments
    paths = {d["path"]: d["directory_id"] for d in told["directories"]}
    compared = 0
    for path, listed in told["log_dirs"]["1"].items():
        for replica in listed["replicas"]:
            partition = image.by_name[replica["topic"]].partitions[replica["partition"]]
            if not replica["is_future"] and (assigned := partition.directory_of(1)) is not None:
                assert assigned == paths[path]
                compared += 1
    assert compared >= 10


@cache
def _dump(name: str) -> dict[str, list[tuple[int, str, int, dict[str, Any]]]]:
    """What DumpLogSegments printed, by file: (offset, type, version, data)."""
    files: dict[str, list[tuple[int, str, int, dict[str, Any]]]] = {}
    version, short = name.split("/")
    current: list[tuple[int, str, int, dict[str, Any]]] = []
    text = lzma.decompress((DISKS / version / f"metadata-dump-{short}.txt.xz").read_bytes()).decode()
    for line in text.splitlines():
        if line.startswith("Dumping"):
            current = files.setdefault(line.strip().rpartition("/")[2], [])
        elif match := re.match(r"\| offset: (\d+) .* payload: (\{.*)", line):
            payload = json.loads(match[2])
            current.append((int(match[1]), payload["type"], payload["version"], payload["data"]))
    return files


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        first = 0 if path.suffix == ".checkpoint" else int(path.name[:20])
        for batch in BatchFile(file.fileno(), path.name).batches(first, 0):
            for offset, _, value in batch.records():
                if not batch.control:
                    assert value is not None
                    yield offset, value


_FIELDS = {
    "broker_id": "brokerId",
    "partition": "partitionId",
    "topic_id": "topicId",
    "removing": "removingReplicas",
    "adding": "addingReplicas",
    "log_dirs": "logDirs",
    "epoch": "brokerEpoch",
    "level": "featureLevel",
    "resource_type": "resourceType",
    "resource_name": "resourceName",
    "state": "zkMigrationState",
    "incarnation_id": "incarnationId",
    "endpoints": "endPoints",
    "elr": "eligibleLeaderReplicas",
}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_DEFAULTS = {"leader": -2, "log_dirs": (), "fenced": None}
_ELR = {"PARTITION_RECORD": ()}


@pytest.mark.parametrize("name", KRAFT)
def test_every_record_reads_as_kafka_dumps_it(disks: dict[str, Path], name: str) -> None:
    names = {f"{re.sub('(?<!^)(?=[A-Z])', '_', n).upper()}": n for n, _, _ in DECODERS.values()}
    compared = 0
    for file, dumped in _dump(name).items():
        for (offset, value), (told_offset, kind, version, data) in zip(
            _records(disks[name] / file), dumped, strict=True
        ):
            assert offset == told_offset
            record = decode_record(value)
            assert kind in names and version == value[2]
            if record is None:  # it does not concern partitions
                continue
            for field, mine in record._asdict().items():
                told = data.get(_FIELDS.get(field, field), _DEFAULTS.get(field))
                if field == "elr":
                    told = told or _ELR.get(kind)
                if kind == "BROKER_REGISTRATION_CHANGE_RECORD" and field == "fenced":
                    told = {-1: False, 1: True}.get(told)
                if field == "endpoints":
                    told = [(e["name"], e["host"], e["port"], _PROTOCOLS[e["securityProtocol"]]) for e in told]
                assert mine == (tuple(told) if isinstance(told, list) else told), (kind, field)
            compared += 1
    assert compared > 30


# -- what the folder may look like ---------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path, disks: dict[str, Path]) -> Path:
    """A copy of a log with four snapshots that still begins at 0."""
    return Path(shutil.copytree(disks["3.9.1/node1-clean"], tmp_path / "__cluster_metadata-0"))


def test_without_snapshots_the_log_alone_gives_the_same(log: Path) -> None:
    with_snapshots = read(log)
    for path in log.glob("*.checkpoint"):
        path.unlink()
    alone = read(log)
    assert alone.snapshot is None and with_snapshots.snapshot is not None
    assert alone.assignments.by_id == with_snapshots.assignments.by_id
    # A snapshot does not say when a broker registered.
    assert {b.node_id: b._replace(registered_ms=None) for b in alone.assignments.brokers.values()} == {
        b.node_id: b._replace(registered_ms=None) for b in with_snapshots.assignments.brokers.values()
    }


def test_every_older_snapshot_gives_the_same(log: Path) -> None:
    newest = read(log)
    for path in sorted(log.glob("*.checkpoint"), reverse=True):
        path.unlink()
        older = read(log)
        assert older.snapshot != path.name
        assert older.assignments.by_id == newest.assignments.by_id


@pytest.mark.parametrize("damage", ["half", "no footer", "empty", "flipped"])
def test_a_damaged_snapshot_is_passed_over(log: Path, damage: str) -> None:
    before = read(log)
    newest = max(log.glob("*.checkpoint"))
    data = bytearray(newest.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 4
    newest.write_bytes(data[: {"half": len(data) // 2, "no footer": -83, "empty": 0}.get(damage, len(data))])
    after = read(log)
    assert after.snapshot is not None and after.snapshot < newest.name
    assert after.assignments.by_id == before.assignments.by_id


def test_a_log_that_begins_above_its_snapshots_is_refused(tmp_path: Path, disks: dict[str, Path]) -> None:
    log = Path(shutil.copytree(disks["3.9.1/node2-killed"], tmp_path / "m"))
    newest = max(log.glob("*.checkpoint"))
    newest.rename(newest.with_suffix(".checkpoint.deleted"))
    with pytest.raises(UnreadableError, match="begins at offset 563 and no complete snapshot"):
        read(log)


def test_a_missing_segment_is_refused(tmp_path: Path, disks: dict[str, Path]) -> None:
    log = Path(shutil.copytree(disks["3.9.1/node2-clean"], tmp_path / "m"))
    for path in log.glob("*.checkpoint"):
        path.unlink()
    (log / "00000000000000000185.log").unlink()
    with pytest.raises(UnreadableError, match="ends at offset 185"):
        read(log)


def test_an_empty_folder_and_an_empty_log_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="neither a log nor a snapshot"):
        read(tmp_path)
    writer.write_segment(tmp_path, 0, b"")
    with pytest.raises(UnreadableError, match="is empty"):
        read(tmp_path)


def test_a_snapshot_ahead_of_the_log_counts_alone(log: Path) -> None:
    """A follower that fetched a snapshot has no older log; its log then begins at the snapshot's end."""
    newest = max(log.glob("*.checkpoint"))
    for path in log.glob("*.log"):
        path.unlink()
    writer.write_segment(log, int(newest.name[:20]), b"")
    image = read(log)
    assert image.assignments.offset == int(newest.name[:20])
    assert image.assignments.topic_count > 10


def test_a_directory_descriptor_will_do_and_stays_open(log: Path) -> None:
    fd = os.open(log, os.O_RDONLY | os.O_DIRECTORY)
    try:
        by_fd = read_metadata_log(fd, node_id=1, cluster_id="c", now_ms=NOW_MS)
        os.fstat(fd)
    finally:
        os.close(fd)
    assert by_fd.assignments.by_id == read(log).assignments.by_id
    assert by_fd.assignments.origin == str(log)


def test_a_lost_end_that_a_producer_snapshot_betrays_counts_as_torn(log: Path) -> None:
    segment = max(log.glob("*.log"))
    last = 0
    with segment.open("rb") as file:
        for batch in BatchFile(file.fileno(), segment.name).batches(0, 0):
            last = batch.position
    os.truncate(segment, last)
    image = read(log)
    assert image.torn_bytes > 0
    assert image.assignments.known_until_ms == image.assignments.at_ms


def test_files_that_vanish_meanwhile_start_the_reading_over(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker renames old segments to `.deleted` between our listing and our opening them."""
    whole = read(log)
    real_open = os.open
    renamed: list[str] = []

    def open_late(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if not renamed and str(path).endswith(".checkpoint"):
            renamed.append(str(path))
            (log / path).rename(log / f"{path}.deleted")
        return real_open(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", open_late)
    again = read(log)
    assert renamed and again.snapshot != renamed[0]
    assert again.assignments.by_id == whole.assignments.by_id


def test_a_listing_that_missed_a_new_snapshot_is_made_again(
    tmp_path: Path, disks: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that changes while it is listed may be listed without what was just renamed into it."""
    log = Path(shutil.copytree(disks["3.9.1/node2-killed"], tmp_path / "m"))
    real_listdir = os.listdir
    listings: list[list[str]] = []

    def listdir(path: Any) -> list[str]:
        names = real_listdir(path)
        listings.append(names if listings else [name for name in names if not name.endswith(".checkpoint")])
        return listings[-1]

    monkeypatch.setattr(os, "listdir", listdir)
    assert read(log).snapshot == "00000000000000000597-0000000002.checkpoint"
    assert len(listings) == 3


def test_a_log_that_never_holds_still_is_refused(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = log / "leader-epoch-checkpoint"
    real_listdir = os.listdir
    count = iter(range(1000))

    def listdir(path: Any) -> list[str]:
        epochs.write_text(f"0\n1\n{next(count)} 0\n")
        return real_listdir(path)

    monkeypatch.setattr(os, "listdir", listdir)
    with pytest.raises(UnreadableError, match="kept changing"):
        read(log)
