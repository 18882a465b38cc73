"""Exported assignments: what goes out comes back, what was touched on the way is refused."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logagent.base.errors import UnreadableError
from logagent.base.records import Kind, Verdict
from logagent.kafka.files.exported import (
    document_pieces,
    landing_lines,
    landing_stem,
    parse_assignments,
    read_assignments,
    write_assignments,
)
from logagent.kafka.image import AssignmentImage, BrokerRegistration, PartitionAssignment, Source, Topic, make_image
from logagent.kafka.metadata_log.log import read_metadata_log
from logagent.verdict.rules import Host, decide
from tests.documents import assert_promised
from tests.hosts import directory
from tests.kafka_disks import expected, extract, metadata_dir, partition_dirs
from tests.metadata_writer import id_of

AT_MS = 1_790_000_000_123


def sample(**changes: Any) -> AssignmentImage:
    topics = [
        Topic(
            "a-topic",
            id_of(1),
            {
                0: PartitionAssignment((1, 2), (1,), (2,), (3,), (id_of(11), id_of(12))),
                10: PartitionAssignment((3,), ()),
            },
        ),
        Topic("empty", id_of(2), {}),
        Topic("no-id", None, {0: PartitionAssignment((1,))}),
    ]
    of: dict[str, Any] = {
        "source": Source.KRAFT_LOG,
        "cluster_id": "C-luster_id",
        "at_ms": AT_MS,
        "known_until_ms": AT_MS + 5000,
        "complete": True,
        "offset": 602,
        "metadata_version": 21,
        "brokers": {2: BrokerRegistration(2, (id_of(12),), True), 1: BrokerRegistration(1)},
        "uncommitted": frozenset({id_of(9), (id_of(1), 10), (id_of(1), 2)}),
        **changes,
    }
    return make_image(of.pop("topics", topics), AssignmentImage(**of))


def exported(image: AssignmentImage) -> bytes:
    return b"".join(document_pieces(image))


@pytest.mark.parametrize(("level", "earlier", "written"), [(21, None, 21), (21, 99, 99), (None, None, None)])
def test_what_a_log_does_not_prove_its_export_does_not_either(
    tmp_path: Path, level: int | None, earlier: int | None, written: int | None
) -> None:
    image, path = sample(metadata_version=level, earlier_metadata_version=earlier), str(tmp_path / "assignments.json")
    write_assignments(path, image)
    back = read_assignments(path)
    assert back.metadata_version == written
    assert (back.untested_because is None) == (image.untested_because is None) == (written == 21)


def test_what_goes_out_comes_back(tmp_path: Path) -> None:
    image, path = sample(), str(tmp_path / "assignments.json")
    write_assignments(path, image)
    back = read_assignments(path)
    assert back.by_name.keys() == image.by_name.keys()
    assert back.by_id == image.by_id
    assert back.uncommitted == image.uncommitted
    assert (back.cluster_id, back.at_ms, back.offset, back.metadata_version) == ("C-luster_id", AT_MS, 602, 21)
    assert back.brokers == image.brokers
    assert {n: b.fenced for n, b in back.brokers.items()} == {1: None, 2: True}
    assert (back.source, back.exported_from, back.complete) == (Source.FILE, Source.KRAFT_LOG, True)
    # A file knows nothing of what came after it was written.
    assert back.known_until_ms == AT_MS
    assert back.origin == path
    assert os.listdir(tmp_path) == ["assignments.json"]


def test_exported_again_it_is_the_same_file() -> None:
    first = exported(sample())
    assert exported(parse_assignments(first, "f")) == first


def test_a_list_from_the_admin_api_stays_incomplete() -> None:
    back = parse_assignments(exported(sample(source=Source.ADMIN, complete=False, offset=None)), "f")
    assert (back.complete, back.exported_from, back.offset) == (False, Source.ADMIN, None)


def test_the_document_is_the_documented_one() -> None:
    data = exported(sample())
    assert_promised(data, "assignments")
    document = json.loads(data)
    assert document["at"] == "2026-09-21T14:13:20.123Z"
    body, _, told = data.rpartition(b',"sha256":"')
    assert hashlib.sha256(body).hexdigest().encode() + b'"}\n' == told


def test_writing_replaces_the_file_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "assignments.json"
    write_assignments(str(path), sample())
    before = path.read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_assignments(str(path), sample(offset=700))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["assignments.json"]


# -- verdicts of a stale disk ---------------------------------------------------------------------


def test_a_stopped_node_is_judged_by_another_nodes_export(tmp_path: Path) -> None:
    """node3's own log ends before topics were deleted, created again and reassigned; node1's knows."""
    told = expected("3.9.1/node3-down")
    (tmp_path / "1").mkdir()
    (tmp_path / "3").mkdir()
    node1 = extract("3.9.1/node1-clean", tmp_path / "1")
    node3 = extract("3.9.1/node3-down", tmp_path / "3")
    own = read_metadata_log(
        str(metadata_dir(node1)), node_id=1, cluster_id=told["cluster_id"], now_ms=2_000_000_000_000
    )
    path = str(tmp_path / "assignments.json")
    write_assignments(path, own.assignments)
    image = read_assignments(path)

    causes = {o["dir"]: o["cause"] for o in told["orphans"]}
    ids = {d["path"].rpartition("/")[2]: d["directory_id"] for d in told["directories"]}
    host = Host(3, told["cluster_id"], 900_000)
    seen: dict[str, int] = {}
    for one in partition_dirs(node3):
        log_dir = one.log_dir.rpartition("/")[2]
        ruling = decide(one, image, host, now_ms=image.at_ms, directory_id=ids[log_dir])
        if one.kind not in (Kind.CURRENT, Kind.FUTURE):
            assert ruling is None
            continue
        cause = causes.get(f"{log_dir}/{one.name}", "assigned")
        wanted = ("assigned", None) if cause in ("assigned", "move-unfinished") else ("orphan", cause)
        assert ruling is not None
        assert (str(ruling.verdict), ruling.reason) == wanted
        seen[cause] = seen.get(cause, 0) + 1
    # Of the scenario: 14 orphans by their three causes, one of them a -future of a deleted topic.
    assert (seen["topic-absent"], seen["topic-recreated"], seen["not-a-replica"]) == (6, 5, 3)


def test_stale_and_foreign_files_are_refused_with_the_figure() -> None:
    image = parse_assignments(exported(sample()), "assignments.json")
    host = Host(1, "C-luster_id", 900_000)
    gone = directory("gone-0", topic_id="g" * 22)

    def ruled(host: Host, now_ms: int) -> tuple[str | None, str]:
        ruling = decide(gone, image, host, now_ms=now_ms)
        assert ruling is not None and ruling.verdict is Verdict.UNKNOWN
        return ruling.reason, ruling.detail or ""

    assert "are allowed" not in ruled(host, AT_MS + 900_000)[1]
    reason, detail = ruled(host, AT_MS + 5_400_000)
    assert reason == "stale-assignments" and "90 min old, more than assignments.max_age (15 min)" in detail
    reason, detail = ruled(replace(host, cluster_id="theirs"), AT_MS)
    assert reason == "foreign-cluster" and "is of cluster C-luster_id, not theirs" in detail


# -- damage ---------------------------------------------------------------------------------------


def test_a_truncated_export_is_refused() -> None:
    data = exported(sample())
    for length in range(len(data)):
        with pytest.raises(UnreadableError, match="f: "):
            parse_assignments(data[:length], "f")


def test_a_changed_export_is_refused() -> None:
    data, rng = exported(sample()), random.Random(4)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        with pytest.raises(UnreadableError, match="f: "):
            parse_assignments(bytes(changed), "f")


@pytest.mark.parametrize("data", [b"", b"\0" * 4096, b"{}\n", b'{"schema":1}\n', "é".encode("latin-1")])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableError, match="does not end with its checksum") as raised:
        parse_assignments(data, "f")
    assert "export" in (raised.value.hint or "")


def test_appended_bytes_are_refused() -> None:
    for more in (b"\n", b" ", exported(sample())[-80:]):
        with pytest.raises(UnreadableError):
            parse_assignments(exported(sample()) + more, "f")


def signed(document: Any) -> bytes:
    """A document with a right checksum, whatever is in it."""
    body = json.dumps(document).encode()[:-1]
    return body + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def _set(*path: Any) -> Callable[[Any], None]:
    """A change of one member: path, then the value."""

    def change(document: Any) -> None:
        *way, last, value = path
        for step in way:
            document = document[step]
        document[last] = value

    return change


FIRST = ("topics", 0, "partitions", 0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_set("schema", "logagent.assignments/2"), "its schema is 'logagent.assignments/2'"),
        (_set("schema", None), "its schema is None"),
        (_set("source", "file"), "source: 'file'"),
        (_set("source", 3), "source: 3"),
        (_set("cluster_id", None), "cluster_id: None"),
        (_set("at", "2026-09-21 15:06:40"), "at: "),
        (_set("at", "2026-13-21T15:06:40.123Z"), "at: "),
        (_set("at", 5), "at: 5"),
        (_set("offset", True), "offset: True"),
        (_set("offset", "602"), "offset: '602'"),
        (_set("metadata_version", 1.5), "metadata_version: 1.5"),
        (_set("topics", {}), "topics: "),
        (_set("topics", 0, []), r"topics\[0\]: it is not a topic"),
        (_set("topics", 0, "topic", None), "topic: None"),
        (_set("topics", 0, "topic", "empty"), "topic empty is listed twice"),
        (_set("topics", 0, "topic_id", "short"), "topic a-topic: topic_id: "),
        (_set("topics", 0, "topic_id", id_of(2)), f"topic id {id_of(2)} is listed twice"),
        (_set(*FIRST, "partition", -1), r"topic a-topic: partitions\[0\]: partition: -1"),
        (_set(*FIRST, "partition", 10), "a partition is listed twice"),
        (_set(*FIRST, "partition", "0"), "partition: '0'"),
        (_set(*FIRST, "replicas", [1, 1]), "replicas: a node is listed twice"),
        (_set(*FIRST, "replicas", [1, True]), "replicas: True is not a node id"),
        (_set(*FIRST, "replicas", [-1, 2]), "replicas: -1"),
        (_set(*FIRST, "replicas", None), "replicas: None"),
        (_set(*FIRST, "isr", [2**31]), "isr: 2147483648"),
        (_set(*FIRST, "directories", [id_of(11)]), "directories: 1 for 2 replicas"),
        (_set(*FIRST, "directories", [1, 2]), "directories: 1 is not an id"),
        (_set(*FIRST, "directories", ["x", "y"]), "directories: "),
        (_set("brokers", None), "brokers: None"),
        (_set("brokers", 0, "node_id", "1"), r"brokers\[0\]: node_id"),
        (_set("brokers", 0, "fenced", "no"), r"brokers\[0\]: fenced"),
        (_set("uncommitted", None), "uncommitted: None"),
        (_set("uncommitted", [{"topic_id": "?", "partition": None}]), r"uncommitted\[0\]: topic_id"),
    ],
)
def test_a_member_that_is_wrong_is_named(change: Callable[[Any], None], says: str) -> None:
    document = json.loads(exported(sample()))
    del document["sha256"]
    parse_assignments(signed(document), "f")
    change(document)
    with pytest.raises(UnreadableError, match=says):
        parse_assignments(signed(document), "f")


@pytest.mark.parametrize("body", [b'{"a":1e', b'{"a":' + b"[" * 100_000, b'{"a":\xff', b'{"a":' + b"9" * 5000, b"[1"])
def test_no_json_behind_a_right_checksum(body: bytes) -> None:
    with pytest.raises(UnreadableError, match="f: it is not a JSON"):
        parse_assignments(body + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n', "f")


# -- the landing form -------------------------------------------------------------------------------


def test_landing_lines_are_one_row_each() -> None:
    image = sample()
    rows = [json.loads(line) for line in landing_lines(image)]
    kinds = ["assignments", *["broker"] * 2, *["uncommitted"] * 3, *["partition"] * 3]
    assert [row["row"] for row in rows] == kinds
    assert rows[0] == {
        "row": "assignments",
        "schema": "logagent.assignments/1",
        "cluster_id": "C-luster_id",
        "at": "2026-09-21T14:13:20.123Z",
        "known_until": "2026-09-21T14:13:20.123Z",
        "source": "kraft-log",
        "offset": 602,
        "metadata_version": 21,
    }
    assert rows[2] == {"row": "broker", "node_id": 2, "directory_ids": [id_of(12)], "fenced": True}
    assert rows[3:6] == [
        {"row": "uncommitted", "topic_id": id_of(1), "partition": 2},
        {"row": "uncommitted", "topic_id": id_of(1), "partition": 10},
        {"row": "uncommitted", "topic_id": id_of(9), "partition": None},
    ]
    assert rows[6] == {
        "row": "partition",
        "topic": "a-topic",
        "topic_id": id_of(1),
        "partition": 0,
        "replicas": [1, 2],
        "adding": [2],
        "removing": [3],
        "isr": [1],
        "directories": [id_of(11), id_of(12)],
    }
    assert [line for line in landing_lines(image) if not (line.endswith(b"\n") and line.count(b"\n") == 1)] == []
    assert gzip.decompress(gzip.compress(b"".join(landing_lines(image)))).count(b"\n") == 9


def test_an_image_that_ends_within_a_transaction_goes_nowhere() -> None:
    """Whoever reads it elsewhere takes what it does not list for gone."""
    with pytest.raises(UnreadableError, match="a metadata transaction is open"):
        exported(sample(open_transaction=True))
    with pytest.raises(UnreadableError, match="a metadata transaction is open"):
        list(landing_lines(sample(open_transaction=True)))


def test_landing_names() -> None:
    assert landing_stem(sample()) == "kraft-log-602"
    assert landing_stem(sample(source=Source.ADMIN, offset=None)) == f"admin-{AT_MS}"
    assert landing_stem(parse_assignments(exported(sample()), "f")) == "kraft-log-602"
