"""Cases of Kafka's own suites, asked of Kafka's own classes in their newest releases: what they answer is what we do.

`tests/fixtures/kafka-answers` has what the classes of 3.9.1 made of many files and names; here the same files and
names, and random logs, are put before 4.3.1 and 4.4.0. Which cases each test is about is in CASES.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from logagent.base.dir_names import (
    INTERNAL_TOPICS,
    NEVER_DELETED,
    InvalidDirName,
    delete_name,
    leftovers,
    parse,
    stray_name,
)
from logagent.base.errors import UnreadableError
from logagent.base.records import Kind, PartitionDir, TopicPartition, Verdict
from logagent.kafka.extents import LogExtent, epoch_at
from logagent.kafka.files.checkpoint_files import parse_checkpoint, parse_epochs, render_checkpoint
from logagent.kafka.files.log_extent import parse_leader_epochs, read_log_extent
from logagent.kafka.files.properties import META_PROPERTIES, parse_partition_metadata, read_meta_file
from logagent.kafka.files.segment_files import read_log_files
from logagent.kafka.identity import agree
from logagent.kafka.image import RESERVED_DIRECTORY_IDS, AssignmentImage, PartitionAssignment, Source, Topic, make_image
from logagent.kafka.retention.reasons import Offsets, RetentionReason, explain_log, settings_of
from logagent.kafka.retention.settings import Layers
from logagent.verdict.copies import end_of_epoch
from logagent.verdict.rules import Host, decide
from tests.broker.rig.jars import QUICK_FLAGS, kafka_jars
from tests.host_files import future_name
from tests.kafka_answers import FOLDER, content, rows
from tests.long_form import long_form
from tests.metadata_writer import id_of
from tests.needs import need_command

SOURCE = Path(__file__).with_name("KafkaClasses.java")
VERSIONS = ("4.4.0", "4.3.1")
DAY = 86_400_000
NOW = 1_900_000_000_000
SEED = 41
# Or no record of tomorrow is appended.
LATER = {"message.timestamp.after.max.ms": str(1 << 62)}

pytestmark = [long_form, pytest.mark.parametrize("version", VERSIONS)]

CASES = {
    "test_names_are_read": (
        "LocalLogTest.testParseTopicPartitionName",
        "LocalLogTest.testParseTopicPartitionNameForEmptyName",
        "LocalLogTest.testParseTopicPartitionNameForMissingSeparator",
        "LocalLogTest.testParseTopicPartitionNameForMissingTopic",
        "LocalLogTest.testParseTopicPartitionNameForMissingPartition",
    ),
    "test_names_are_made": ("LogManagerTest.testCreateAndDeleteOverlyLongTopic",),
    "test_offset_checkpoints": (
        "OffsetCheckpointFileWithFailureHandlerTest.shouldPersistAndOverwriteAndReloadFile",
        "OffsetCheckpointFileWithFailureHandlerTest.shouldThrowIfVersionIsNotRecognised",
    ),
    "test_epochs_of_files_and_their_ends": (
        "LeaderEpochFileCacheTest.shouldReturnInvalidOffsetIfEpochIsRequestedWhichIsNotCurrentlyTracked",
        "LeaderEpochFileCacheTest.shouldGetFirstOffsetOfSubsequentEpochWhenOffsetRequestedForPreviousEpoch",
        "LeaderEpochFileCacheTest.shouldReturnNextAvailableEpochIfThereIsNoExactEpochForTheOneRequested",
    ),
    "test_topic_ids_of_files": ("ReplicaManagerTest.testPartitionMetadataFileCreatedAfterPreviousRequestWithoutIds",),
    "test_meta_properties_of_log_dirs": (
        "MetaPropertiesEnsembleTest.testNonFailedDirectoryPropsForEmpty",
        "MetaPropertiesEnsembleTest.testMetaPropertiesEnsembleLoadError",
    ),
    "test_local_retention_and_what_is_tiered": (
        "UnifiedLogTest.testRemoteLogStorageIsDisabledOnInternalAndRemoteLogMetadataTopic",
        "LogConfigTest.testLocalLogRetentionDerivedProps",
    ),
    "test_where_a_log_begins_and_ends": (
        "UnifiedLogTest.testLoadEmptyLog",
        "LogLoaderTest.testRecoverWithEmptyActiveSegment",
        "LeaderEpochFileCacheTest.shouldPersistEpochsBetweenInstances",
    ),
    "test_what_retention_deletes": (
        "UnifiedLogTest.testDeleteOldSegments",
        "UnifiedLogTest.testRetentionIdempotency",
        "UnifiedLogTest.testCannotDeleteSegmentsAtOrAboveHighWatermark",
        "UnifiedLogTest.testLogDeletionAfterDeleteRecords",
    ),
    "test_what_a_load_drops": ("LogLoaderTest.testOpenDeletesObsoleteFiles",),
    "test_what_is_stray": ("LogManagerTest.testIsStrayKraftReplicaInImage",),
}


def ask(version: str, questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the classes of that release answer, in the order of the questions."""
    need_command("javac")  # `java` runs a source file only where a compiler is
    asked = [json.dumps(question) for question in questions]
    done = subprocess.run(
        ["java", *QUICK_FLAGS, "-cp", kafka_jars(version).classpath, str(SOURCE)],
        input="".join(line + "\n" for line in asked),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    answers = [json.loads(line[1:]) for line in done.stdout.split("\n") if line.startswith("=")]
    assert len(answers) == len(asked), done.stderr[-3000:]
    return answers


def test_the_cases_are_of_the_table_and_at_least_twenty(version: str) -> None:
    named = [case for cases in CASES.values() for case in cases]
    table = (FOLDER.parent / "kafka-suites.tsv").read_text().splitlines()
    as_here = {".".join(line.split("\t")[:2]) for line in table if line.split("\t")[3].startswith("tests/")}
    assert len(named) == len(set(named)) >= 20 and set(named) <= as_here
    assert set(CASES) < set(globals())


def test_names_are_read(version: str) -> None:
    names = [row["name"] for row in rows("dir_names") if "/" not in row["name"]]
    answers = ask(version, ({"ask": "name", "dir": f"/d/{name}" if name else ""} for name in names))
    assert len(names) > 2000 and sum("error" in answer for answer in answers) > 100
    for name, answer in zip(names, answers, strict=True):
        try:
            parsed = parse(name)
        except InvalidDirName:
            assert "error" in answer, name
        else:
            assert (parsed.topic, parsed.partition) == (answer.get("topic"), answer.get("partition")), name


def test_names_are_made(version: str) -> None:
    asked = [(topic, partition) for topic in ("t", "a.b-c", "x" * 205, "x" * 249) for partition in (0, 7, 100_000)]
    answers = ask(version, ({"ask": "names", "topic": topic, "partition": partition} for topic, partition in asked))
    for (topic, partition), answer in zip(asked, answers, strict=True):
        for kind, name in (("delete", delete_name), ("stray", stray_name), ("future", future_name)):
            uuid = answer[kind].rpartition(".")[2].partition("-")[0]
            assert name(topic, partition, uuid) == answer[kind]


def test_offset_checkpoints(version: str, tmp_path: Path) -> None:
    asked = rows("offset_checkpoints")
    for row in asked:
        (tmp_path / row["id"]).write_bytes(content(row))
    entries = {TopicPartition("a", 0): 5, TopicPartition("b.c", 12): 1 << 40}
    (tmp_path / "ours").write_bytes(render_checkpoint(entries))
    files = [*(row["id"] for row in asked), "ours"]
    answers = ask(version, ({"ask": "offsets", "file": str(tmp_path / name)} for name in files))
    for name, answer in zip(files, answers, strict=True):
        try:
            read = parse_checkpoint((tmp_path / name).read_bytes())
        except UnreadableError:
            assert "error" in answer, name
        else:
            ours = sorted([p.topic, p.partition, offset] for p, offset in read.items())
            assert ours == sorted(answer["entries"]), name
    wanted = [[p.topic, p.partition, offset] for p, offset in entries.items()]
    ask(version, [{"ask": "offsets", "file": str(tmp_path / "theirs"), "entries": wanted}])
    assert parse_checkpoint((tmp_path / "theirs").read_bytes()) == entries


def test_epochs_of_files_and_their_ends(version: str, tmp_path: Path) -> None:
    draw = random.Random(SEED)
    asked: list[dict[str, Any]] = []
    for number in range(200):
        count = draw.randrange(1, 6)
        written = list(zip(sorted(draw.sample(range(9), count)), sorted(draw.sample(range(50), count)), strict=True))
        file = tmp_path / str(number)
        file.write_text(f"0\n{count}\n" + "".join(f"{epoch} {start}\n" for epoch, start in written))
        log_end = written[-1][1] + draw.randrange(1, 20)
        question: dict[str, Any] = {"ask": "epochs", "file": str(file), "log_end": log_end}
        asked.append({**question, "asked": list(range(10)), "offsets": list(range(70))})
    for asked_of, answer in zip(asked, ask(version, asked), strict=True):
        data = Path(asked_of["file"]).read_bytes()
        epochs = parse_leader_epochs(data)
        assert [list(e) for e in epochs] == answer["epochs"] == [list(e) for e in parse_epochs(data)]
        log = LogExtent(epochs[0][1], asked_of["log_end"], epochs)
        for epoch, end in enumerate(answer["ends"]):
            if epoch >= epochs[0][0]:  # below it, an end proves nothing about the records before: none is said here
                ours = end_of_epoch("here", log, epoch)
                assert [ours.epoch, ours.end_offset] == [None if n == -1 else n for n in end], (epochs, epoch)
        assert [-1 if (at := epoch_at(epochs, offset)) is None else at for offset in range(70)] == answer["at"]


def test_topic_ids_of_files(version: str, tmp_path: Path) -> None:
    asked = rows("partition_metadata")
    for row in asked:
        (tmp_path / row["id"]).write_bytes(content(row))
    answers = ask(version, ({"ask": "ids", "file": str(tmp_path / row["id"])} for row in asked))
    for row, answer in zip(asked, answers, strict=True):
        try:
            topic_id = parse_partition_metadata(content(row))
        except UnreadableError:
            assert "error" in answer, row["id"]
        else:
            assert topic_id == answer.get("id"), row["id"]


def test_meta_properties_of_log_dirs(version: str, tmp_path: Path) -> None:
    """Every file alone; then sets of them, which belong to one node of one cluster or not."""
    files = [content(row) for row in rows("meta_properties")]
    for number, data in enumerate(files):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / META_PROPERTIES).write_bytes(data)
    (tmp_path / "none").mkdir()
    draw = random.Random(SEED)
    names = [*map(str, range(len(files))), "none"]
    sets: list[tuple[list[str], int | None]] = [([name], None) for name in names]
    sets += [(draw.sample(names, draw.randrange(2, 4)), draw.choice([None, 1, 3])) for _ in range(300)]
    asked = [
        {"ask": "meta", "dirs": [str(tmp_path / name) for name in dirs], **({} if node is None else {"node": node})}
        for dirs, node in sets
    ]
    agreeing = 0
    for (dirs, node), answer in zip(sets, ask(version, asked), strict=True):
        metas = {str(tmp_path / name): _meta(tmp_path / name) for name in dirs}
        assert sorted(path for path, m in metas.items() if m.error) == sorted(answer["errors"])
        assert sorted(path for path, m in metas.items() if m.missing) == sorted(answer["empty"])
        for path, theirs in answer["read"].items():
            m = metas[path]
            assert (m.cluster_id, m.node_id, m.directory_id) == (theirs["cluster"], theirs["node"], theirs["directory"])
        # With what a broker does not start, nothing agrees here; a negative id is none here, and differs from a
        # configured one for `check`. More is asked for here than of a broker that starts.
        found = agree(metas, node)
        negative = any(m.node_id is not None and m.node_id < 0 for m in metas.values())
        doubts = (found.problems, found.copied, found.directory_ids & RESERVED_DIRECTORY_IDS, negative)
        agreeing += not any(doubts)
        assert answer["agree"] or any(doubts), dirs
    assert agreeing > 5


def _meta(directory: Path) -> Any:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_meta_file(fd)
    finally:
        os.close(fd)


def test_local_retention_and_what_is_tiered(version: str) -> None:
    topics = ["t", *sorted(INTERNAL_TOPICS | NEVER_DELETED)]
    draw = random.Random(SEED)
    asked: list[dict[str, Any]] = []
    for _ in range(300):
        own = {"remote.storage.enable": draw.choice(["true", "true", "false"])}
        own |= {"remote.log.copy.disable": "true"} if draw.random() < 0.3 else {}
        own |= {"cleanup.policy": draw.choice(["delete", "compact", "compact,delete"])} if draw.random() < 0.4 else {}
        own |= {"retention.ms": "9", "retention.bytes": "90"} if draw.random() < 0.7 else {}
        own |= {"local.retention.ms": draw.choice(["-2", "5"])} if draw.random() < 0.7 else {}
        own |= {"local.retention.bytes": draw.choice(["-2", "50"])} if draw.random() < 0.7 else {}
        asked.append({"ask": "tiered", "system": draw.random() < 0.8, "topic": draw.choice(topics), "config": own})
    for question, answer in zip(asked, ask(version, asked), strict=True):
        own, topic = question["config"], question["topic"]
        file = {"remote.log.storage.system.enable": str(question["system"]).lower()}
        layers = Layers(topics={name: {topic: text} for name, text in own.items()}, file=file, complete=True)
        ours = settings_of(layers, topic)
        assert ours.tiered == (answer["tiered"] and own.get("remote.log.copy.disable") != "true"), question
        assert (ours.retention_ms.number, ours.retention_bytes.number) == (answer["ms"], answer["bytes"]), question


def _segments(draw: random.Random) -> list[list[tuple[int, int, int]]]:
    """Of random batches (leader epoch, records, timestamp); the active one may be empty."""
    epoch, made = draw.randrange(3), []
    for _ in range(draw.randrange(1, 6)):
        batches = []
        for _ in range(draw.randrange(1, 4)):
            epoch += draw.random() < 0.3
            batches.append((epoch, draw.randrange(1, 6), NOW - draw.randrange(-1, 9) * DAY - draw.randrange(1000)))
        made.append(batches)
    if draw.random() < 0.3:
        made.append([])
    return made


def _written(version: str, root: Path, count: int) -> list[tuple[Path, dict[str, Any]]]:
    draw = random.Random(SEED)
    dirs = [root / f"t-{number}" for number in range(count)]
    asked: list[dict[str, Any]] = [
        {"ask": "write", "dir": str(path), "now": NOW, "config": LATER, "segments": _segments(draw) if number else [[]]}
        for number, path in enumerate(dirs)
    ]
    return list(zip(dirs, ask(version, asked), strict=True))


def test_where_a_log_begins_and_ends(version: str, tmp_path: Path) -> None:
    for path, theirs in _written(version, tmp_path, 60):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            ours = read_log_extent(fd, whole=True)
        finally:
            os.close(fd)
        assert ours.problem is None and ours.gaps == ()
        assert (ours.log_start, ours.log_end) == (theirs["start"], theirs["end"])
        assert [list(e) for e in ours.epochs] == theirs["epochs"]


def test_what_retention_deletes(version: str, tmp_path: Path) -> None:
    """After an unclean stop, as nothing of an index is believed then."""
    draw = random.Random(SEED)
    logs = _written(version, tmp_path, 120)
    asked: list[dict[str, Any]] = []
    ours = []
    for path, written in logs:
        config = {"retention.ms": draw.choice(["-1", str(3 * DAY), str(5 * DAY)])}
        config |= {"retention.bytes": draw.choice(["-1", "100", "400"])}
        config |= {"cleanup.policy": draw.choice(["delete", "delete", "delete", "compact", "compact,delete"])}
        start = draw.choice([0, 0, draw.randrange(written["end"] + 1)])
        high_watermark = draw.choice([written["end"], draw.randrange(start, written["end"] + 1)])
        asked.append(
            {
                "ask": "load",
                "dir": str(path),
                "now": NOW,
                "config": config,
                "clean": False,
                "log_start": start,
                "high_watermark": high_watermark,
            }
        )
        ours.append(_left(path, config, Offsets(start, high_watermark)))
    deleting = 0
    for question, left, answer in zip(asked, ours, ask(version, asked), strict=True):
        deleting += answer.get("first", 0) > 0
        there = {segment[0] for segment in answer["segments"]}
        assert left == [base for base in answer["left"] if base in there], question
        assert answer["more"] == 0
    assert 20 < deleting < 110


def _left(path: Path, config: dict[str, str], offsets: Offsets) -> list[int]:
    """The segments that stay, by us."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        segments = read_log_files(fd).segments
    finally:
        os.close(fd)
    layers = Layers(topics={name: {"t": text} for name, text in config.items()}, file={}, complete=True)
    groups = explain_log(segments, settings_of(layers, "t"), offsets, NOW)
    going = sum(g.segments for g in groups if g.why.code in (RetentionReason.DUE, RetentionReason.BELOW_LOG_START))
    return [s.base for s in segments[going:]]


def test_what_a_load_drops(version: str, tmp_path: Path) -> None:
    """Files that end as those of a compaction or a deletion that was cut short. One of a `.swap` becomes a segment."""
    draw = random.Random(SEED)
    odd = [f"{base:020d}.{kind}" for base in (0, 7) for kind in ("log.deleted", "index.deleted", "log.cleaned")]
    odd += ["00000000000000000003-0000000001.checkpoint.deleted", "note.deleted", "note"]
    asked: list[dict[str, Any]] = []
    expected = []
    for path, _ in _written(version, tmp_path, 40):
        for name in draw.sample(odd, draw.randrange(1, len(odd))):
            (path / name).write_bytes(b"")
        before = os.listdir(path)
        expected.append({name for name in before if name in odd} - set(leftovers(before)))
        asked.append({"ask": "load", "dir": str(path), "now": NOW, "config": {}, "clean": True})
    for question, kept, answer in zip(asked, expected, ask(version, asked), strict=True):
        assert {name for name in answer["files"] if name in odd} == kept, question


def test_answers_are_written_like_that(version: str) -> None:
    asked = rows("responses")
    answers = ask(version, ({"ask": "message", **{k: row[k] for k in ("name", "version", "data")}} for row in asked))
    assert [answer.get("b64") for answer in answers] == [row["b64"] for row in asked]


def test_what_is_stray(version: str, tmp_path: Path) -> None:
    """By the replicas of its partition in the image."""
    asked: list[dict[str, Any]] = []
    ours = []
    for replicas in ([1, 2], [2, 3], [3, 1], [2]):
        question = {"ask": "load", "dir": str(tmp_path / "t-0"), "now": NOW, "config": {}, "clean": True}
        asked.append({**question, "replicas": replicas, "node": 1})
        lives = Topic("t", id_of(1), {0: PartitionAssignment(tuple(replicas), tuple(replicas))})
        other = Topic("other", id_of(2), {0: PartitionAssignment((1,), (1,))})
        ours.append(_is_orphan([lives, other]))
    (tmp_path / "t-0").mkdir()
    assert ours == [answer["stray"] for answer in ask(version, asked)] == [False, True, False, True]


def _is_orphan(topics: list[Topic]) -> bool:
    of = {"cluster_id": "ours", "at_ms": NOW, "known_until_ms": NOW, "complete": True, "metadata_version": 21}
    image = make_image(topics, AssignmentImage(Source.KRAFT_LOG, **of))  # type: ignore[arg-type]
    written = (NOW - DAY) * 1_000_000
    one = PartitionDir(
        log_dir="/d",
        name="t-0",
        kind=Kind.CURRENT,
        topic="t",
        partition=0,
        uuid=None,
        truncated=False,
        device=1,
        inode=2,
        ctime_ns=written,
        mtime_ns=written,
        topic_id=id_of(1),
    )
    ruling = decide(one, image, Host(1, "ours", DAY), now_ms=NOW)
    assert ruling is not None
    return ruling.verdict is Verdict.ORPHAN
