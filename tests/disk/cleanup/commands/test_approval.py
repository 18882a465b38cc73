"""The blast radius, and what an approval allows."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from tests.host import FREELY, Host, delete
from tests.host_files import write_topic_id


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def test_too_much_at_once_needs_approval_of_exactly_that(host: Host) -> None:
    host.configure()
    arguments = ("delete", "--json", "--topic", "orders|visits|clicks", *FREELY)
    before = host.partitions()
    plan = host.run(*arguments)
    assert plan.status == 4 and plan.guards() == {"": "blast-radius"}
    assert plan.json["plan_id"] in plan.json["refusals"][0]["hint"]
    assert host.run(*arguments, "--execute").status == 4
    assert host.run(*arguments, "--execute", "--approve", "0123456789abcdef").status == 4
    assert host.partitions() == before
    approved = host.run(*arguments, "--execute", "--approve", plan.json["plan_id"])
    assert approved.status == 0 and set(approved.outcomes().values()) == {"done"}
    assert len(approved.deeds) == 10
    # An approved item stays approved through its later steps.
    host.configure(**{"delete.file_delete_delay_ms": 0})
    cleanup = host.run("cleanup", "--json", "--execute")
    assert cleanup.status == 0 and len(cleanup.deeds) == 10


def test_an_approval_is_used_up_by_a_restore(host: Host) -> None:
    """From a script or a shell's history it would let the same 10 directories through again, later."""
    arguments = ("delete", "--json", "--topic", "orders|visits|clicks", *FREELY, "--execute")
    host.configure()
    approve = ("--approve", host.run(*arguments).json["plan_id"])
    assert host.run(*arguments, *approve).status == 0
    host.run("restore", "--retention-will-delete", "--plan", approve[1], "--execute", "--leader-will-truncate")
    back = host.partitions()
    again = host.run(*arguments, *approve)
    assert again.status == 4 and host.partitions() == back
    assert again.json["plan_id"] != approve[1]
    assert host.run(*arguments, "--approve", again.json["plan_id"]).status == 0


def test_approval_ends_when_a_directory_in_the_plan_is_another_one(host: Host) -> None:
    host.configure()
    arguments = ("delete", "--json", "--topic", "orders|visits|clicks", *FREELY)
    plan_id = host.run(*arguments).json["plan_id"]
    other = shutil.copytree(host.d2 / "orders-1", host.disk / "copy")
    shutil.rmtree(host.d2 / "orders-1")
    other.rename(host.d2 / "orders-1")
    before = host.partitions()
    ran = host.run(*arguments, "--execute", "--approve", plan_id)
    assert ran.status == 4 and "is gone, has changed or is refused" in ran.json["refusals"][-1]["fact"]
    assert host.partitions() == before


def test_one_directory_after_the_other_trips_it_too(host: Host) -> None:
    host.configure()
    statuses = [delete(host, "--partition", p, *FREELY).status for p in ("orders-1", "orders-2", "orders-3", "x-0")]
    assert statuses == [0, 0, 0, 0]
    assert delete(host, "--partition", "x-1", *FREELY).status == 4


def test_a_second_state_dir_does_not_begin_at_nothing(host: Host) -> None:
    """Three state dirs (or one that is lost twice) took three times what is allowed."""
    host.configure()
    for number, partition in enumerate(("orders-1", "orders-2", "orders-3", "x-0")):
        host.state = host.root / f"state-{number}"
        assert delete(host, "--partition", partition, *FREELY).status == 0
    host.state = host.root / "state-4"
    refused = delete(host, "--partition", "x-1", *FREELY)
    assert refused.status == 4 and refused.guards() == {"": "blast-radius"}
    # What was restored was not taken.
    assert (
        host.run(
            "restore",
            "--retention-will-delete",
            *host.find("orders-1", "-delete"),
            "--execute",
            "--leader-will-truncate",
        ).status
        == 0
    )
    assert delete(host, "--partition", "x-1", *FREELY).status == 0


def test_what_a_broker_marked_itself_does_not_count(host: Host) -> None:
    host.configure()
    for number in range(30):
        (host.d1 / f"gone-{number}.{uuid4().hex}-delete").mkdir()
    assert delete(host, "--partition", "x-1", *FREELY).status == 0


def test_approval_of_a_cleanup_leaves_out_what_fell_due_later(tmp_path: Path) -> None:
    host = Host.from_disk(tmp_path, "3.9.1/node3-killed")
    due = {"cleanup.stray_retention": "0s", "cleanup.leftover_grace": "365d"}
    host.with_assignments(topics_gone=True, **due)
    plan = host.run("cleanup", "--json")
    assert plan.status == 4 and len(plan.deeds) == 14
    # One more falls due before the operator has read the plan.
    late = host.d1 / "late-0.0123456789abcdef0123456789abcdef-stray"
    late.mkdir()
    write_topic_id(late, "LateLateLateLateLateLA")
    host.with_assignments(topics_gone=True, **due)
    assert len(host.run("cleanup", "--json").deeds) == 15
    done = host.run("cleanup", "--json", "--execute", "--approve", plan.json["plan_id"])
    assert done.status == 0 and done.json["plan_id"] == plan.json["plan_id"]
    assert set(done.outcomes()) == set(plan.outcomes()) and set(done.outcomes().values()) == {"done"}
    assert host.find("", "-stray") == [late.name]
