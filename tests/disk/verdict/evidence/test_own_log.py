"""What the metadata log on this host's own disk says of the other sources, although it is none itself."""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logagent.base.config.settings import AssignmentsSettings, KafkaSettings, Settings
from logagent.base.errors import ServiceUnreachable
from logagent.kafka.commitment import LogPoint, Remembered
from logagent.kafka.files.exported import read_assignments, write_assignments
from logagent.kafka.files.properties import parse_meta_properties
from logagent.kafka.image import AssignmentImage, Source
from logagent.kafka.processes.target import resolve_target
from logagent.verdict.evidence.assignment_sources import AssignmentQuery, Assignments, load_assignments
from logagent.verdict.evidence.version_seen import LINEAGE_FILE_NAME
from tests.command_line import Ran, run_here
from tests.host import Host
from tests.kafka_disks import metadata_dir


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host.from_disk(tmp_path)
    made.with_assignments()
    return made


class Cluster:
    """Other brokers answer; this host's own does, or does not."""

    def __init__(self, image: AssignmentImage, *, own_answers: bool) -> None:
        self.image_now, self.own_answers = replace(image, source=Source.ADMIN, offset=None), own_answers

    def image(self, now_ms: int, *, node_id: int | None = None) -> AssignmentImage:
        if node_id is not None and not self.own_answers:
            raise ServiceUnreachable(f"node {node_id} is down")
        return replace(self.image_now, at_ms=now_ms)

    def close(self) -> None:
        """Nothing is open."""


def load(host: Host, source: str, *, own_answers: bool = False, max_age: int = 900_000, **more: Any) -> Assignments:
    file = str(host.root / "assignments.json")
    settings = Settings(
        kafka=KafkaSettings(config=str(host.properties), bootstrap_servers="nobody:9092"),
        assignments=AssignmentsSettings(sources=(source,), file=file, max_age=max_age),
    )
    meta = parse_meta_properties((host.d1 / "meta.properties").read_bytes())
    cluster = Cluster(read_assignments(file), own_answers=own_answers)
    query = AssignmentQuery(
        target=resolve_target(settings),
        settings=settings,
        cluster_id=meta.cluster_id,
        node_id=meta.node_id,
        now_ms=time.time_ns() // 1_000_000,
        connect=lambda _: cluster,  # type: ignore[arg-type, return-value]
        **more,
    )
    return load_assignments(query)


def test_it_is_read_where_another_broker_answers_in_place_of_ours(host: Host) -> None:
    """A clone of the cluster that listens where ours did is found out by how far its log goes (`identify`)."""
    found = load(host, "admin")
    assert (
        found.own_log is not None
        and found.own_log.offset == read_assignments(str(host.root / "assignments.json")).offset
    )
    assert [image.source for image in found.usable] == [Source.ADMIN] and found.problems == []
    assert load(host, "admin", own_answers=True).own_log is not None
    assert load(host, "admin", may_read_log=False).own_log is None


def test_nobody_proves_anything_where_the_log_is_not_the_remembered_one(host: Host) -> None:
    end = read_assignments(str(host.root / "assignments.json")).offset
    assert end is not None
    later, other = LogPoint(end + 1, 99), LogPoint(end, 0)
    for point, own_answers, believed in (
        (LogPoint(end, 99, 0), True, False),
        (later, True, False),
        # It may catch up; until then the others may follow the same quorum, restored a moment ago.
        (later, False, False),
        (other, False, False),
    ):
        found = load(host, "admin", own_answers=own_answers, lineage=Remembered(point))
        assert bool(found.usable) is believed, (point, own_answers, found.problems)
    assert "restored from a backup" in found.problems[0]


def test_a_file_that_ends_before_it_is_of_a_clone_or_of_the_past(host: Host) -> None:
    file = host.root / "assignments.json"
    image = read_assignments(str(file))
    assert [i.source for i in load(host, "file").usable] == [Source.FILE]
    write_assignments(str(file), replace(image, offset=(image.offset or 0) - 1))
    found = load(host, "file")
    assert found.usable == [] and "to this one's past" in found.problems[0]
    # Its disk hangs: nothing contradicts the file.
    assert load(host, "file", may_read_log=False).usable != []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"fenced": False}, "it calls node 3 live"),
        ({"directory_ids": ("OtherOtherOtherOther_A",)}, "this node registered other log dirs in it"),
    ],
)
def test_a_file_in_which_our_stopped_broker_runs_on_or_has_other_disks_is_of_another_cluster(
    host: Host, changes: dict[str, Any], says: str
) -> None:
    """The original of which these disks are a copy, or a cluster that was made anew with the same id, is ahead."""
    file = host.root / "assignments.json"
    image = read_assignments(str(file))
    assert image.brokers[3].fenced and image.brokers[3].directory_ids
    brokers = {**image.brokers, 3: image.brokers[3]._replace(**changes)}
    write_assignments(str(file), replace(image, brokers=brokers, offset=(image.offset or 0) + 100_000))
    known: dict[str, Any] = {"stopped": True, "directory_ids": image.brokers[3].directory_ids}
    found = load(host, "file", **known)
    assert found.usable == [] and says in found.problems[0], found.problems
    # Made before it stopped, it may call it live.
    own = found.own_log
    assert own is not None
    write_assignments(str(file), replace(image, brokers=brokers, at_ms=own.at_ms, known_until_ms=own.at_ms))
    before = load(host, "file", max_age=1 << 50, **known)
    assert before.usable != [] or "fenced" not in changes


def test_what_is_remembered_of_a_log_that_is_lost_counts_against_a_file(host: Host) -> None:
    image = read_assignments(str(host.root / "assignments.json"))
    shutil.rmtree(metadata_dir(host.disk))
    for ahead, problems in ((0, 0), (1, 1)):
        known = Remembered(LogPoint((image.offset or 0) + ahead, 9))
        found = load(host, "file", lineage=known)
        assert len(found.usable) == 1 - problems and len(found.problems) == problems, found.problems


def test_where_it_is_not_the_one_that_is_remembered_nobody_proves_anything(host: Host) -> None:
    """Who answers or exported may follow the same quorum, which somebody restored from a backup."""
    known = Remembered(LogPoint(1, 9))
    for source in ("file", "admin"):
        assert [i.source for i in load(host, source, own_answers=True).usable] == [Source(source)]
        found = load(host, source, own_answers=True, lineage=known)
        assert found.usable == [] and "went up to offset 1 (leader epoch 9)" in found.problems[-1], found.problems


def test_where_it_is_newer_than_a_file_it_has_to_agree(host: Host) -> None:
    any_age = 1 << 50
    assert [image.source for image in load(host, "file", max_age=any_age).usable] == [Source.FILE]
    file = host.root / "assignments.json"
    own = load(host, "file").own_log
    assert own is not None
    write_assignments(str(file), replace(read_assignments(str(file)), at_ms=own.at_ms))
    found = load(host, "file", max_age=any_age)
    assert [image.source for image in found.usable] == [Source.FILE, Source.KRAFT_LOG]


def test_one_that_cannot_be_read_is_no_problem_of_the_sources(host: Host) -> None:
    for each in metadata_dir(host.disk).iterdir():
        each.unlink()
    found = load(host, "file")
    assert found.own_log is None and found.problems == [] and len(found.usable) == 1


def in_zookeeper_mode(host: Host) -> None:
    text = host.properties.read_text(encoding="latin-1")
    host.properties.write_text(re.sub(r"(?m)^process\.roles.*\n", "", text), encoding="latin-1")


def assignments(host: Host, command: str, *more: str) -> Ran:
    return run_here("assignments", command, *host.arguments("", *more)[1:])


ANY_AGE = {"assignments.max_age": "36500d"}


def verdicts(document: Any) -> set[tuple[str, str | None]]:
    return {(d["verdict"], d["reason"]) for d in document["dirs"] if d["verdict"] is not None}


def test_it_is_a_source_where_the_brokers_configuration_says_that_it_uses_it(host: Host) -> None:
    host.configure(**ANY_AGE)
    assert ("orphan", "topic-absent") in verdicts(host.run("scan", "--json").json)
    assert assignments(host, "export", str(host.root / "out")).status == 0
    (host.root / "out").unlink()

    in_zookeeper_mode(host)
    ran = host.run("scan", "--json")
    assert verdicts(ran.json) == {("unknown", "no-assignments")}
    assert "no process.roles, so this broker is in ZooKeeper mode" in ran.err
    for command in (["show"], ["export", str(host.root / "out")]):
        refused = assignments(host, *command)
        assert refused.status == 1 and "no process.roles" in refused.err and "hint: " in refused.err, refused.err
    assert not (host.root / "out").exists()


def test_what_is_of_another_history_is_not_exported(host: Host) -> None:
    """Another host, whose own log ends earlier, would find topics absent that were made since a backup. It is shown,
    with what is wrong with it: not that it ends where the broker stopped."""
    host.configure(**ANY_AGE)
    host.run("cleanup", "--execute")
    (seen,) = host.root.rglob(LINEAGE_FILE_NAME)
    known = json.loads(seen.read_bytes())
    seen.write_text(json.dumps(known | {"crc": known["crc"] ^ 1}))
    refused = assignments(host, "export", str(host.root / "out"))
    assert refused.status == 1 and "has other records there now" in refused.err, refused.err
    assert f"remove {seen}" in refused.err and not (host.root / "out").exists()
    assert "has other records there now" in host.run("scan").err
    said = " ".join(host.run("doctor", "--json").out.split())
    assert "has other records there now" in said and "bring the true metadata back" in said, said
    shown = assignments(host, "show")
    assert shown.status == 1 and "has other records there now" in shown.err and "topics" in shown.out
    seen.unlink()
    assert assignments(host, "export", str(host.root / "out")).status == 0


def test_it_is_no_evidence_in_zookeeper_mode_either(host: Host) -> None:
    """Left over, it says nothing of the file, of retention or of delays: nobody has written to it for months."""
    in_zookeeper_mode(host)
    file = host.root / "assignments.json"
    image = read_assignments(str(file))
    write_assignments(str(file), replace(image, offset=(image.offset or 0) - 1))
    found = load(host, "file")
    assert [i.source for i in found.usable] == [Source.FILE] and found.own_log is None
    found = load(host, "kraft-log")
    assert (found.usable, found.unusable, found.delete_delay_ms) == ([], [], None)
    assert not found.topic_configs.complete


def test_where_the_configuration_was_not_read_it_proves_nothing(host: Host) -> None:
    """With `--log-dir` alone nobody knows whether the broker is in KRaft mode."""
    named = ["--log-dir", str(host.d1), "--log-dir", str(host.d2)]
    # Here the metadata log lies in the first log dir.
    metadata_dir(host.disk).rename(host.d1 / "__cluster_metadata-0")
    host.toml.write_text('[assignments]\nsources = ["kraft-log"]\nmax_age = "36500d"\n')
    ran = host.run("scan", "--json", *named)
    assert verdicts(ran.json) == {("unknown", "no-assignments")}
    assert "name server.properties with --kafka-config" in ran.err
    for command in (["show"], ["export", str(host.root / "out")]):
        refused = assignments(host, *command, *named)
        assert refused.status == 1 and "is no source of assignments" in refused.err and "hint: " in refused.err
    assert not (host.root / "out").exists()
    # What it has may contradict a file that is older, and nothing more.
    settings = Settings(assignments=AssignmentsSettings(sources=("kraft-log",), max_age=1 << 50))
    meta = parse_meta_properties((host.d1 / "meta.properties").read_bytes())
    query = AssignmentQuery(
        target=resolve_target(settings, [str(host.d1), str(host.d2)]),
        settings=settings,
        cluster_id=meta.cluster_id,
        node_id=meta.node_id,
        now_ms=time.time_ns() // 1_000_000,
    )
    found = load_assignments(query)
    assert (found.usable, found.first, len(found.doubted)) == ([], None, 1)


def test_a_file_carries_until_when_its_source_is_known_to_be_complete(host: Host) -> None:
    """Exported beside an isolated leader, it is no newer than what the cluster committed."""
    file = host.root / "assignments.json"
    image = read_assignments(str(file))
    write_assignments(str(file), replace(image, known_until_ms=image.at_ms - 3_600_000))
    assert read_assignments(str(file)).known_until_ms == image.at_ms - 3_600_000
