"""`check --leave`: on a real broker's disk, what is left, what moves it, and when it may go."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.command_line import LOCKER, process
from tests.documents import assert_promised
from tests.host import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host.from_disk(tmp_path / "h")
    host.with_assignments()
    return host


def empty(log_dir: Path) -> None:
    """Only what a broker makes for itself is left."""
    for each in log_dir.iterdir():
        if each.is_dir():
            shutil.rmtree(each)


def test_what_is_left_and_where_it_goes(host: Host) -> None:
    before = host.snapshot()
    ran = host.run("check", "--leave", str(host.d2), "--json")
    assert ran.status == 3 and host.snapshot() == before
    document = ran.json
    assert_promised(document, "leave")
    assert not document["may_leave"] and document["log_dir"] == str(host.d2)
    assert {o["code"] for o in document["obstacles"]} == {"assigned", "orphan", "moving-in", "moving-out", "marked"}
    assert {d["name"] for d in document["dirs"]} == {p.name for p in host.d2.iterdir() if p.is_dir()}
    moved = {(p["topic"], p["partition"]): p for p in document["reassignment"]["partitions"]}
    assert moved.keys() == {(d["topic"], d["partition"]) for d in document["dirs"] if d["to"] is not None}
    for partition in moved.values():
        # This broker's replica (node 3) goes to the other log dir; the others stay wherever they are.
        assert partition["log_dirs"] == [str(host.d1) if node == 3 else "any" for node in partition["replicas"]]
    assert ("shipments", 1) not in moved, "it is being moved already"
    assert document["line"] == f"log.dirs={host.d1}" and document["assignments_as_of"] is not None


def test_the_reassignment_goes_to_a_file(host: Host) -> None:
    file = host.root / "moves.json"
    ran = host.run("check", "--leave", f"{host.d2}/", "--reassignment", str(file))
    assert ran.status == 3
    document = host.run("check", "--leave", str(host.d2), "--json").json
    assert json.loads(file.read_text()) == document["reassignment"]
    command = f"kafka-reassign-partitions.sh --bootstrap-server HOST:PORT --reassignment-json-file {file} --execute"
    assert command in ran.err.replace("\n", " ")
    assert host.run("check", "--leave", str(host.d2), "--reassignment", str(host.root / "no" / "file")).status == 1


def test_an_empty_one_may_leave_while_the_broker_is_stopped(host: Host) -> None:
    empty(host.d2)
    ran = host.run("check", "--leave", str(host.d2))
    assert ran.status == 0 and f"log.dirs={host.d1}" in ran.err
    # A running broker may place a new partition in it at any moment.
    with process(LOCKER, host.d1, host.d2):
        assert [o["code"] for o in host.run("check", "--leave", str(host.d2), "--json").json["obstacles"]] == [
            "broker-runs"
        ]


def test_nothing_is_moved_by_assignments_that_prove_nothing(host: Host) -> None:
    host.configure(**{"assignments.sources": ["file"], "assignments.file": str(host.root / "none.json")})
    document = host.run("check", "--leave", str(host.d2), "--json").json
    assert document["reassignment"] is None and not document["may_leave"]
    assert "unknown" in {o["code"] for o in document["obstacles"]}


def test_one_that_cannot_be_read_may_not_leave(host: Host) -> None:
    empty(host.d2)
    (host.d2 / "orders-0").symlink_to(host.d1)
    assert "unseen" in {o["code"] for o in host.run("check", "--leave", str(host.d2), "--json").json["obstacles"]}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--leave", "/nowhere"),
        ("--leave", "D2", "--quick"),
        ("--leave", "D2", "--kafka-version", "4.3.1"),
        ("--leave", "D2", "--log-dir", "D1"),
        ("--reassignment", "moves.json"),
    ],
)
def test_what_does_not_go_together_is_refused(host: Host, arguments: tuple[str, ...]) -> None:
    places = {"D1": str(host.d1), "D2": str(host.d2)}
    ran = host.run("check", *(places.get(a, a) for a in arguments))
    assert ran.status == 2 and "logagent: " in ran.err
