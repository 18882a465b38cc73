"""One host of many lies, in what it publishes and answers: it concerns itself, and stops nobody else's deletions."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from logagent.cli.deletions.asking import bytes_by_topic
from logagent.controller.controller_context import ReplicaState
from logagent.controller.rounds import DeletionRounds
from logagent.errors import UnreadableError
from logagent.model.records import DirKey
from logagent.store.answers import answers_folder, write_answer
from logagent.store.deletion import Answer, Request
from logagent.store.deletion_progress import deletion_progress
from logagent.store.names import DATA, MANIFEST
from logagent.store.orders import decode, encode, instant
from logagent.store.publications import FleetPublications
from logagent.store.snapshots import Base, delta_of, dir_line, whole_lines
from tests.disk.controller.small_fleet import CLUSTER, TOPIC_ID, SmallFleet
from tests.needs import need_root

LIAR = 3


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    return SmallFleet(tmp_path).everywhere()


def landing(fleet: SmallFleet, node: int = LIAR) -> Path:
    """Where it has published last: some minutes later it can be another date."""
    return max((fleet.store / "landing" / CLUSTER).glob(f"*/{node}"))


def answers(fleet: SmallFleet) -> Path:
    folder = fleet.store / "control" / CLUSTER / answers_folder(LIAR)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def others_complete(fleet: SmallFleet, controller: DeletionRounds | None = None) -> DeletionRounds:
    """Whatever node 3 makes of itself, nodes 1 and 2 are seen through, and a report can be made."""
    fleet.request(topics=(fleet.topic(),))
    controller = controller or fleet.controller()
    controller.start()
    fleet.rounds(controller)
    states = {r.node_id: p.state for r, p in controller.context.replicas.items() if r.partition == 0}
    assert not fleet.hosts[1].disk and not fleet.hosts[2].disk, (states, fleet.warnings)
    assert controller.setting.admin.asked == [TOPIC_ID]  # type: ignore[attr-defined]
    rows = deletion_progress(str(fleet.store), CLUSTER, fleet.keys, fleet.now)
    assert [row["topic"] for row in rows] == ["clicks"]
    return controller


def snapshot_of(fleet: SmallFleet, content: bytes, **manifest: Any) -> None:
    """What node 3 has published last, with this content and this manifest."""
    fleet.publish(LIAR)
    stem = max(path.name for path in landing(fleet).iterdir()).removesuffix(MANIFEST).removesuffix(DATA)
    (landing(fleet) / f"{stem}{DATA}").write_bytes(content)
    told = landing(fleet) / f"{stem}{MANIFEST}"
    published = told.stat()
    told.write_text(json.dumps(json.loads(told.read_text()) | manifest))
    os.utime(told, ns=(published.st_atime_ns, published.st_mtime_ns))


def row(**more: Any) -> bytes:
    told = {"row": "dir", "kind": "current", "log_dir": "/d1", "name": "clicks-0", "topic_id": TOPIC_ID,
            "partition": 0, "bytes": 1, **more}  # fmt: skip
    return json.dumps(told).encode() + b"\n"


BROKEN = gzip.compress(row() * 1000)


@pytest.mark.parametrize("content", [
    b"", b"no gzip", BROKEN[:200], BROKEN[:40] + b"\xff" * 60 + BROKEN[100:], gzip.compress(b"{" * 100_000),
    gzip.compress(b"[" * 100_000 + b'"dir"'), gzip.compress(b'"dir"\n\xff\xfe"dir"\n'),
    gzip.compress(b'{"row":"dir",' * 3),
    gzip.compress(row(partition=True) + row(partition=-1) + row(partition=1 << 70) + row(partition=1.5)),
    gzip.compress(row(topic_id=[TOPIC_ID]) + row(topic_id={"a": 1}) + row(topic_id=None)),
    gzip.compress(row(bytes="many") + row(bytes=None) + row(bytes=-5) + row(bytes=1e300)),
    gzip.compress(row(name=["x"]) + row(log_dir={}) + row(kind=["current"]) + row(kind=7)),
    gzip.compress(b'{"row": "log_dir", "path": ["/d1"], "health": "online"}\n{"row": "log_dir", "path": {}}\n'),
    gzip.compress(b'{"row": "log_dir", "path": "/d1", "health": ["online"]}\n{"row": ["log_dir"], "dir": "dir"}\n'),
    gzip.compress(b'{"row": "log_dir", "path": "/d1", "health": "online", "x": [' + b"[]," * 500_000 + b"[]]}\n", 1),
    gzip.compress(row(name="c" * (1 << 21)), 1),
    gzip.compress(row(verdict={"a": ["b"] * 50}, obstacle=[[[]]], window="\ud800")),
])  # fmt: skip
def test_a_snapshot_that_is_none_concerns_its_host_only(fleet: SmallFleet, content: bytes) -> None:
    fleet.now += timedelta(seconds=1)
    snapshot_of(fleet, content)
    fleet.hosts[LIAR].refuses = True
    controller = others_complete(fleet)
    fleet.now += timedelta(minutes=20)
    snapshot_of(fleet, content)
    fleet.rounds(controller, 2)


def test_a_million_rows_fill_nobodys_memory(fleet: SmallFleet) -> None:
    fleet.hosts[LIAR].dumb = True
    fleet.now += timedelta(seconds=1)
    snapshot_of(fleet, gzip.compress(b"".join(row(partition=n) for n in range(300_000)), 1))
    controller = others_complete(fleet)
    assert len(controller.context.replicas) == 3
    assert any("more than 200000 directories" in line for line in fleet.warnings)
    fleet.now += timedelta(minutes=1)
    snapshot_of(fleet, gzip.compress(b"".join(row(partition=n) for n in range(50_000)), 1))
    fleet.rounds(controller, 1)
    assert len(controller.context.replicas) < 20_010
    assert {r.node_id for r in controller.context.replicas if r.partition > 0} == {LIAR}


def test_whatever_sizes_a_host_names_its_topics_can_be_deleted(fleet: SmallFleet) -> None:
    fleet.now += timedelta(seconds=1)
    most = 1 << 53
    rows = [row(partition=n, bytes=most) for n in range(1100)] + [row(partition=0, bytes=most + 1)]
    snapshot_of(fleet, gzip.compress(b"".join(rows)))
    heard = FleetPublications(str(fleet.store), CLUSTER, timedelta(hours=2))
    heard.look(fleet.now)
    read = list(heard.directories(LIAR, {TOPIC_ID}))
    assert len(read) == 1100
    size = bytes_by_topic({LIAR: read})[TOPIC_ID]
    request = fleet.request(topics=(replace(fleet.topic(), bytes=size),))
    assert decode(Request, encode(request)).topics[0].bytes == size


def test_changes_without_their_base_are_no_host_without_directories(fleet: SmallFleet) -> None:
    """With it, they are read as the whole snapshot would be."""
    fleet.now += timedelta(seconds=1)
    dirs = [json.loads(row(name=f"clicks-{n}", partition=n, log_dir="/d1")) for n in range(3)]
    keyed = [
        (DirKey("/d1", each["name"]), dir_line({k: v for k, v in each.items() if k != "row"}, {})) for each in dirs
    ]
    base = gzip.compress(b"\n".join(whole_lines({}, [], (line for _, line in keyed))) + b"\n")
    named = Base("base", hashlib.sha256(base).hexdigest())
    delta = delta_of(named, base, keyed[1:])
    assert delta is not None
    content = gzip.compress(b"\n".join(delta.lines({}, [])) + b"\n")
    snapshot_of(fleet, content, kind="delta", base={"snapshot_id": "base", "sha256": named.sha256})
    heard = FleetPublications(str(fleet.store), CLUSTER, timedelta(hours=2))
    heard.look(fleet.now)
    with pytest.raises(UnreadableError, match="the base of the snapshot, base, is missing"):
        list(heard.directories(LIAR, {TOPIC_ID}))
    (landing(fleet) / f"base{DATA}").write_bytes(base)
    assert [each["partition"] for each in heard.directories(LIAR, {TOPIC_ID})] == [1, 2]


def test_of_a_row_only_what_is_looked_at_is_kept(fleet: SmallFleet) -> None:
    """A row of 1 MiB of empty lists takes 20 MiB, and a snapshot may have 250 of them."""
    fleet.now += timedelta(seconds=1)
    lists: list[list[int]] = [[] for _ in range(200_000)]
    log_dir = {"row": "log_dir", "path": "/d1", "health": "online", "holder": lists}
    rows = [row(reason=lists, obstacle="x", host="h"), json.dumps(log_dir).encode() + b"\n"]
    snapshot_of(fleet, gzip.compress(b"".join(rows), 1))
    heard = FleetPublications(str(fleet.store), CLUSTER, timedelta(hours=2))
    heard.look(fleet.now)
    assert list(heard.directories(LIAR, {TOPIC_ID})) == [
        json.loads(row(obstacle="x")), {"row": "log_dir", "path": "/d1", "health": "online"}
    ]  # fmt: skip


def test_a_line_of_hundreds_of_mib_is_not_parsed(fleet: SmallFleet) -> None:
    fleet.now += timedelta(seconds=1)
    line = b'{"row": "log_dir", "path": "/d1", "health": "online", "x": [' + b"[]," * (20 << 20) + b"[]]}\n"
    snapshot_of(fleet, gzip.compress(line, 1))
    heard = FleetPublications(str(fleet.store), CLUSTER, timedelta(hours=2))
    heard.look(fleet.now)
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableError, match="line of more than 1 MiB"):
            list(heard.directories(LIAR, {TOPIC_ID}))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("manifest", [{"node_id": 1}, {"node_id": "3"}, {"cluster_id": "another"}, {"kind": "x"}])
def test_a_manifest_of_another_node_is_nobodys(fleet: SmallFleet, manifest: dict[str, Any]) -> None:
    shutil.rmtree(landing(fleet))
    snapshot_of(fleet, gzip.compress(row()), **manifest)
    controller = others_complete(fleet)
    assert controller.context.silent_nodes == {LIAR: "never heard"}


@pytest.mark.parametrize("at", [10**11, -(10**11)])
def test_a_host_is_heard_neither_in_the_future_nor_before_1970(fleet: SmallFleet, at: int) -> None:
    """Else it would be waited for after it died, or nothing could be read."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as store:  # where any time can be set
        fleet = SmallFleet(Path(store)).everywhere()
        for path in landing(fleet).iterdir():
            os.utime(path, (at, at))
        controller = others_complete(fleet)
        assert controller.context.silent_nodes == {LIAR: "never heard"}
        said = [line for line in fleet.warnings if f"/{LIAR} are ignored" in line]
        assert said and "1 manifests" in said[0]


def _many(folder: Path) -> None:
    folder.mkdir()
    for number in range(50):
        (folder / f"junk-{number}").touch()


def _fifo(folder: Path) -> None:
    os.mkfifo(folder)


@pytest.mark.parametrize("make", [lambda p: p.symlink_to("/etc"), lambda p: p.write_text("x"), _fifo,
                                  lambda p: p.symlink_to(p.name), _many])  # fmt: skip
@pytest.mark.parametrize("which", [landing, answers])
def test_a_folder_that_is_none_concerns_its_host_only(
    fleet: SmallFleet, which: Callable[[SmallFleet], Path], make: Callable[[Path], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("logagent.store.publications.MAX_ENTRIES", 40)
    monkeypatch.setattr("logagent.store.control.MAX_NAMES", 40)
    folder = which(fleet)
    shutil.rmtree(folder)
    make(folder)
    fleet.hosts[LIAR].silent = True
    controller = others_complete(fleet)
    fleet.now += timedelta(hours=3)
    for node in (1, 2):
        fleet.publish(node)
    fleet.rounds(controller, 2)
    assert {r.node_id for r, p in controller.context.replicas.items() if p.state is not ReplicaState.SUCCESSFUL} == {3}


def test_a_folder_that_may_not_be_read_concerns_its_host_only() -> None:
    """To root every folder may be read but on NFS: somebody else looks here."""
    need_root()
    with tempfile.TemporaryDirectory() as folder:
        fleet = SmallFleet(Path(folder)).everywhere()
        for path in (fleet.store, *fleet.store.rglob("*")):
            path.chmod(0o755)
        landing(fleet).chmod(0)
        heard = FleetPublications(str(fleet.store), CLUSTER, timedelta(hours=1))
        os.seteuid(65534)
        try:
            heard.look(fleet.now)
        finally:
            os.seteuid(0)
        assert heard.nodes.keys() == {1, 2}


def test_answers_that_are_none_concern_their_host_only(fleet: SmallFleet) -> None:
    fleet.controller().start()
    folder, name = answers(fleet), f"0000000001-0000000001.{'a' * 32}"
    for number, content in enumerate([b"", b"{}", b"[" * 100_000, b'{"schema": 7}', b"\xff" * 1000]):
        (folder / f"{name}.{number}.json").write_bytes(content)
    (folder / f"{name}.9.json").symlink_to("/etc/passwd")
    os.mkfifo(folder / f"{name}.10.json")
    (folder / f"{name}.11.json").mkdir()
    others_complete(fleet)


@pytest.mark.parametrize("make", [lambda p: p.symlink_to("/etc/passwd"), _fifo, lambda p: p.mkdir(),
                                  lambda p: os.truncate(_written(p), 1 << 30)])  # fmt: skip
def test_an_answer_that_is_none_stops_no_collection(fleet: SmallFleet, make: Callable[[Path], object]) -> None:
    """A month after a request was closed the answers to it are read once more, to be removed."""
    others_complete(fleet).close("request-1", "cancelled")
    make(answers(fleet) / f"0000000001-0000000001.{'a' * 32}.9.json")
    fleet.now += timedelta(days=31)
    later = fleet.controller()
    later.start()
    assert later.requests.requests == {} and fleet.control.names("answers/1") == []


def _written(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def say(fleet: SmallFleet, epoch: int) -> None:
    name = f"{epoch:010d}-0000000001"
    write_answer(
        fleet.control, Answer(name, epoch, epoch, CLUSTER, LIAR, f"{LIAR:032x}", 0, "stop", instant(fleet.now), "1")
    )


def test_who_makes_up_an_epoch_is_named(fleet: SmallFleet) -> None:
    """Agents may know of an epoch that the store has lost, so that nothing goes on: the operator is told whose word it
    is, and a made-up one does not use the epochs up."""
    fleet.request(topics=(fleet.topic(),))
    say(fleet, 9_999_999_998)
    say(fleet, 50_000)
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller, 2)
    assert controller.epoch == 50_001
    assert "epoch 50000 (node 3 does)" in controller.states.on_hold["request-1"] and fleet.admin.asked == []
    controller.close("request-1", "resumed")
    fleet.rounds(controller)
    assert all(not host.disk for host in fleet.hosts.values())


def test_ever_higher_epochs_are_believed_once(fleet: SmallFleet) -> None:
    for number in range(1, 50):
        say(fleet, 100_000 * number)
    fleet.request(topics=(fleet.topic(),))
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller, 20)
    assert controller.epoch == 100_001


def test_names_of_answers_alone_mention_no_epoch(fleet: SmallFleet) -> None:
    for epoch in range(2, 3000):
        (answers(fleet) / f"{epoch:010d}-0000000001.{'a' * 32}.0.json").touch()
    controller = others_complete(fleet)
    assert controller.epoch == 1 and not controller.states.on_hold
    rejected = [line for line in fleet.warnings if "rejected" in line]
    assert len(rejected) == 3 and rejected[0].startswith("answers of node 3 that are rejected: 1000, such as")


def test_one_hosts_answers_are_not_all_read_at_once(fleet: SmallFleet) -> None:
    for number in range(40):
        os.truncate(_written(answers(fleet) / f"0000000001-{number:010d}.{'a' * 32}.0.json"), 16 << 20)
    began = time.process_time()
    fleet.request(topics=(fleet.topic(),))
    fleet.controller().look()
    assert "answers of node 3 that are rejected: 17," in fleet.warnings[-1], fleet.warnings
    deletion_progress(str(fleet.store), CLUSTER, fleet.keys, fleet.now)
    assert time.process_time() - began < 10
