"""What the metadata log on this host's own disk says of the other sources, although it is none itself."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logagent.agent.evidence.assignment_sources import Assignments, load_assignments
from logagent.agent.target import resolve_target
from logagent.broker.exported.file import read_assignments, write_assignments
from logagent.broker.files.meta_properties import parse_meta_properties
from logagent.errors import ServiceUnreachable
from logagent.model.assignments.image import AssignmentImage, Source
from logagent.settings import AssignmentsSettings, KafkaSettings, Settings
from tests.cli_host import CliHost
from tests.kafka_disks import metadata_dir


@pytest.fixture
def host(tmp_path: Path) -> CliHost:
    made = CliHost(tmp_path)
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


def load(host: CliHost, source: str, *, own_answers: bool = False, max_age: int = 900_000, **more: Any) -> Assignments:
    file = str(host.root / "assignments.json")
    settings = Settings(
        kafka=KafkaSettings(config=str(host.properties), bootstrap_servers="nobody:9092"),
        assignments=AssignmentsSettings(sources=(source,), file=file, max_age=max_age),
    )
    meta = parse_meta_properties((host.d1 / "meta.properties").read_bytes())
    cluster = Cluster(read_assignments(file), own_answers=own_answers)
    return load_assignments(
        resolve_target(settings),
        settings,
        cluster_id=meta.cluster_id,
        node_id=meta.node_id,
        now_ms=time.time_ns() // 1_000_000,
        connect=lambda _: cluster,  # type: ignore[arg-type, return-value]
        **more,
    )


def test_it_is_read_where_another_broker_answers_in_place_of_ours(host: CliHost) -> None:
    """A clone of the cluster that listens where ours did is found out by how far its log goes (`identify`)."""
    found = load(host, "admin")
    assert (
        found.own_log is not None
        and found.own_log.offset == read_assignments(str(host.root / "assignments.json")).offset
    )
    assert [image.source for image in found.usable] == [Source.ADMIN] and found.problems == []
    assert load(host, "admin", own_answers=True).own_log is None
    assert load(host, "admin", may_read_log=False).own_log is None


def test_a_file_that_ends_before_it_is_of_a_clone_or_of_the_past(host: CliHost) -> None:
    file = host.root / "assignments.json"
    image = read_assignments(str(file))
    assert [i.source for i in load(host, "file").usable] == [Source.FILE]
    write_assignments(str(file), replace(image, offset=(image.offset or 0) - 1))
    found = load(host, "file")
    assert found.usable == [] and "to this one's past" in found.problems[0]
    # Its disk hangs: nothing contradicts the file.
    assert load(host, "file", may_read_log=False).usable != []


def test_where_it_is_newer_than_a_file_it_has_to_agree(host: CliHost) -> None:
    any_age = 1 << 50
    assert [image.source for image in load(host, "file", max_age=any_age).usable] == [Source.FILE]
    file = host.root / "assignments.json"
    own = load(host, "file").own_log
    assert own is not None
    write_assignments(str(file), replace(read_assignments(str(file)), at_ms=own.at_ms))
    found = load(host, "file", max_age=any_age)
    assert [image.source for image in found.usable] == [Source.FILE, Source.KRAFT_LOG]


def test_one_that_cannot_be_read_is_no_problem_of_the_sources(host: CliHost) -> None:
    for each in metadata_dir(host.disk).iterdir():
        each.unlink()
    found = load(host, "file")
    assert found.own_log is None and found.problems == [] and len(found.usable) == 1
