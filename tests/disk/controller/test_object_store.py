"""A controller's rounds where the store is an object store: a real S3 server, and obstore's own backend for local
directories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from logagent.cli.main import run
from logagent.errors import ConfigError, Exit
from logagent.store import shared
from logagent.store.control import Control
from logagent.store.deletion_progress import clusters, deletion_progress
from logagent.store.epochs import EpochLost
from logagent.store.orders import orders_folder
from logagent.store.shared import init_store
from tests import object_servers
from tests.disk.controller.small_fleet import CLUSTER, TOPIC_ID, SmallFleet
from tests.object_servers import BUCKET


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    root = tmp_path_factory.mktemp("s3") / "root"
    with object_servers.s3(root) as environment:
        yield root / BUCKET, environment


@pytest.fixture(params=["file", "s3"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallFleet:
    if request.param == "file":
        # Operators are refused it: a mounted path has a store of its own kind.
        monkeypatch.setattr(shared, "problem_of", lambda store: None)
        folder, uri = tmp_path, f"file://{tmp_path}"
    else:
        served, environment = request.getfixturevalue("s3")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        # What hosts publish is written where the server keeps its objects.
        folder, uri = served / tmp_path.name, f"s3://{BUCKET}/{tmp_path.name}"
        folder.mkdir()
    fleet = SmallFleet(folder)
    fleet.control = Control(uri, CLUSTER)
    fleet.everywhere()
    return fleet


def test_a_topic_goes_from_every_host_and_is_reported(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic(),))
    fleet.hosts[3].silent = True
    fleet.now += timedelta(hours=3)
    for node in (1, 2):
        fleet.publish(node)
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert fleet.admin.asked == [TOPIC_ID] and not fleet.hosts[1].disk and not fleet.hosts[2].disk
    assert "nothing heard since" in controller.context.silent_nodes[3], "it was heard, and long ago"
    (row,) = deletion_progress(fleet.control.store, CLUSTER, fleet.keys, fleet.now)
    assert (row["marked"], row["removed"]) == (3, 2) and clusters(fleet.control.store) == [CLUSTER]
    fleet.hosts[3].silent = False
    fleet.publish(3)
    fleet.rounds(controller)
    assert not fleet.hosts[3].disk and controller.states.of("request-1") == "done"
    later = fleet.controller()
    later.look()
    assert later.states.of("request-1") == "done", "closings are found there"


def test_a_cancellation_is_seen_and_one_controller_acts(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic(),))
    first, second = fleet.controller(), fleet.controller()
    first.start()
    second.start()
    with pytest.raises(EpochLost, match="epoch 2 was taken"):
        first.round()
    second.close("request-1", "cancelled")
    fleet.rounds(second)
    assert second.states.of("request-1") == "cancelled" and fleet.admin.asked == []
    assert [fleet.control.names(orders_folder(node)) for node in (1, 2, 3)] == [[], [], []]


def test_an_unchanged_store_is_not_read_again(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = fleet.controller()
    controller.start()
    fleet.now += timedelta(seconds=30)
    controller.round()
    read: list[str] = []
    monkeypatch.setattr("logagent.store.objects.ObjectTree.read", lambda self, names, limit: read.append(names[-1]))
    controller.brokers.notice_hosts(fleet.now)
    assert read == []


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
    """Two controllers would both have an epoch."""
    with object_servers.unconditional(tmp_path / "s3") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        folder = tmp_path / "s3" / BUCKET / "store"
        folder.mkdir()
        fleet = SmallFleet(folder)
        fleet.control = Control(f"s3://{BUCKET}/store", CLUSTER)
        assert fleet.control.create("epoch", "1.json", b"1") and fleet.control.create("epoch", "1.json", b"2")
        with pytest.raises(ConfigError, match="cannot keep two controllers apart"):
            fleet.controller().start()
        assert fleet.control.names("epoch") == ["1.json"] and fleet.control.read("epoch", "1.json") == b"2"
