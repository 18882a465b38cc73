"""Requests carried out where the store is an object store: a real S3 server, and obstore's own backend for local
directories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from logagent.base.errors import ConfigError, Exit
from logagent.cli import run
from logagent.deletion.store.answers import Answers, clusters, deletion_progress
from logagent.deletion.store.requests import ControlFolder
from logagent.store import shared
from logagent.store.shared import init_store
from tests import object_servers
from tests.disk.deletion.controller.small_fleet import CLUSTER, NODES, TOPIC_ID, SmallFleet
from tests.object_servers import BUCKET
from tests.waiting import pause


class StoredFleet(SmallFleet):
    """The store's clock cannot be moved: time passes."""

    def __init__(self, folder: Path, uri: str) -> None:
        super().__init__(folder)
        self.control, self.answers = ControlFolder(uri, CLUSTER), Answers(uri, CLUSTER)

    def _stamp(self, node: int, name: str) -> None:
        pass

    def minute(self, *nodes: int) -> None:
        pause(1.1, "the times of objects are whole seconds")
        self.now = datetime.now(UTC)
        for node in nodes or NODES:
            self.agent(node)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    root = tmp_path_factory.mktemp("s3") / "root"
    with object_servers.s3(root) as environment:
        yield root / BUCKET, environment


@pytest.fixture(params=["file", "s3"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredFleet:
    if request.param == "file":
        # Operators are refused it: a mounted path has a store of its own kind.
        monkeypatch.setattr(shared, "problem_of", lambda store: None)
        return StoredFleet(tmp_path, f"file://{tmp_path}")
    served, environment = request.getfixturevalue("s3")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (served / tmp_path.name).mkdir()
    return StoredFleet(served / tmp_path.name, f"s3://{BUCKET}/{tmp_path.name}")


def test_a_topic_goes_from_every_host_and_is_reported(fleet: StoredFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process()
    process.round()
    fleet.minute()
    process.round()
    assert fleet.admin.sent == [TOPIC_ID]
    fleet.brokers_delete()
    fleet.minute(1, 2)
    (row,) = deletion_progress(fleet.control.store, CLUSTER, fleet.keys, fleet.now)
    assert (row["marked"], row["removed"]) == (3, 2) and clusters(fleet.control.store) == [CLUSTER]
    fleet.minute(3)
    process.round()
    assert fleet.state(number).state == "done"


def test_a_cancelled_request_is_decided_by_nobody_whatever_is_removed(fleet: StoredFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    asking, other = fleet.process(), fleet.process("other")
    other.cancel(other.reader.read().filed[number])
    asking.round()
    fleet.control.remove(f"requests/{number}", "decision.json")
    fleet.minute()
    for process in (asking, other, fleet.process("third")):
        process.round()
    assert fleet.admin.sent == [] and fleet.control.read(f"requests/{number}", "decision.json") is None


def test_the_commands_take_an_object_store(
    s3: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in s3[1].items():
        monkeypatch.setenv(name, value)
    place = ["--store", f"s3://{BUCKET}/{tmp_path.name}", "--cluster", CLUSTER, "--key", str(tmp_path / "key")]
    assert run(["topics", "keygen", str(tmp_path / "key"), "--key-id", "ops"]) == 0
    assert run(["topics", "status", *place]) == int(Exit.UNREACHABLE)
    assert "is not a fleet store" in capsys.readouterr().err
    init_store(place[1])
    assert run(["topics", "status", *place, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == []


def test_a_server_that_ignores_conditions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes would both own the decision."""
    with object_servers.unconditional(tmp_path / "s3") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        control = ControlFolder(f"s3://{BUCKET}/store", CLUSTER)
        with pytest.raises(ConfigError, match="two could decide on one request"):
            control.prepare()
