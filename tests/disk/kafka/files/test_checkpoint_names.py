"""Attacks on the checkpoints and on what a broker finds at its start, through names that mean one partition."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.base.dir_names import LOG_START_OFFSET
from logagent.base.records import ActionKind, Outcome, TopicPartition
from logagent.cleanup.execute.renames import entries_to_drop
from logagent.cleanup.plan.plan import action_id
from logagent.cleanup.plan.proposals import rename_away
from logagent.cleanup.restore.command import plan_restore
from logagent.cleanup.restore.rules import RestoreOptions
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.scan import scan_log_dir
from logagent.kafka.files.checkpoint_files import parse_checkpoint, render_checkpoint
from tests.host import FREELY, Host

ORDERS_1 = TopicPartition("orders", 1)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def log_start(host: Host) -> int | None:
    return parse_checkpoint((host.d2 / LOG_START_OFFSET).read_bytes()).get(ORDERS_1)


def set_log_start(host: Host, offset: int) -> None:
    file = host.d2 / LOG_START_OFFSET
    file.write_bytes(render_checkpoint({**parse_checkpoint(file.read_bytes()), ORDERS_1: offset}))


def test_a_future_log_leaves_the_entries_to_the_current_one(host: Host) -> None:
    """Without its log start offset the living partition shows records again that deleteRecords removed."""
    name = "orders-1.0123456789abcdef0123456789abcdef-future"
    shutil.copytree(host.d2 / "orders-1", host.d2 / name)
    before = host.checkpoints()
    ran = host.run("delete", "--json", "--partition", "orders-1", "--future", *FREELY, "--execute")
    assert ran.outcomes() == {name: "done"}
    assert log_start(host) == 25
    assert host.checkpoints() == before


def test_another_spelling_leaves_the_entries_to_the_usual_one(host: Host) -> None:
    with OpenLogDir(str(host.d2), LogDirFailures()) as log_dir:
        found = {d.name: d for d in scan_log_dir(log_dir).dirs}
        usual = found["orders-1"]
        other = replace(usual, name="orders-01")
        proposals = [rename_away(d, is_stray=True, reason="", new_uuid=lambda: "0" * 32) for d in (usual, other)]
        assert entries_to_drop(log_dir, proposals[1:]) == {}
        (entries,) = entries_to_drop(log_dir, proposals[:1]).values()
        assert (LOG_START_OFFSET, 25) in {(e.file, e.offset) for e in entries}


def test_what_comes_back_gets_its_own_entries_back(host: Host) -> None:
    """An entry of a later incarnation, above its end, would make the broker drop all its segments."""
    host.run("delete", "--partition", "orders-1", *FREELY, "--execute")
    (name,) = host.find("orders-1.", "-delete")
    assert log_start(host) is None
    set_log_start(host, 1_000_000)
    assert host.run("restore", "--retention-will-delete", "--json", name, "--execute").outcomes() == {name: "done"}
    assert log_start(host) == 25


def test_what_had_no_entry_comes_back_without_one(host: Host) -> None:
    file = host.d2 / LOG_START_OFFSET
    file.write_bytes(render_checkpoint({}))
    host.run("delete", "--partition", "orders-1", *FREELY, "--execute")
    (name,) = host.find("orders-1.", "-delete")
    set_log_start(host, 1_000_000)
    assert host.run("restore", "--retention-will-delete", "--json", name, "--execute").outcomes() == {name: "done"}
    assert log_start(host) is None


def test_a_partition_is_not_restored_while_a_log_dir_is_left_out(host: Host) -> None:
    """It stands in d1, the marked one lies in d2: no broker starts with both."""
    host.run("delete", "--partition", "orders-1", *FREELY, "--execute")
    (name,) = host.find("orders-1.", "-delete")
    shutil.copytree(host.d2 / name, host.d1 / "orders-1")
    before = host.partitions()
    ran = host.run("restore", "--retention-will-delete", "--json", "--log-dir", str(host.d2), name, "--execute")
    assert ran.status == 3 and list(ran.guards()) == [name]
    assert str(host.d1) in ran.json["refusals"][0]["fact"]
    assert host.partitions() == before


def test_what_stood_in_the_way_is_not_set_aside_for_nothing(host: Host) -> None:
    """A SIGTERM right before the exchange: the partition stays in its place."""
    host.run("delete", "--partition", "orders-1", *FREELY, "--execute")
    (name,) = host.find("orders-1.", "-delete")
    standing = host.d2 / "orders-1"
    shutil.copytree(host.d2 / name, standing)
    inode = standing.stat().st_ino
    with host.session(inventory=True) as session:
        chosen = [d for d in session.dirs if d.name == name]
        plan = plan_restore(
            session,
            session.facts(),
            chosen,
            RestoreOptions(replace=True, even_last_copy=True, retention_will_delete=True),
        )
        assert [p.action for p in plan.actions] == [ActionKind.QUARANTINE, ActionKind.QUARANTINE, ActionKind.RESTORE]
        execution = session.log_manager(stop=lambda: bool(host.find("orders-1.", "-stray"))).execute(plan)
    outcomes = [execution.results[action_id(p)].outcome for p in plan.actions]
    assert outcomes == [Outcome.DONE, Outcome.SKIPPED, Outcome.SKIPPED]
    assert standing.stat().st_ino == inode
    # Under the name that was asked for it is found again.
    again = host.run("restore", "--retention-will-delete", "--json", name, "--replace", "--even-last-copy", "--execute")
    assert again.status == 0 and set(again.outcomes().values()) == {"done"}
    assert standing.stat().st_ino != inode
