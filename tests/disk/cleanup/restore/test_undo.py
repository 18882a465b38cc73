"""Undo: names, bytes, times and checkpoints come back, or a refusal says why not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.host import FREELY, NO_LIMITS, Host, delete
from tests.waiting import wait_until


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def test_what_delete_takes_restore_brings_back(host: Host) -> None:
    before, checkpoints = host.partitions(), host.checkpoints()
    marked = delete(host, "--topic", "orders|clicks|customer.state|plant.*", *FREELY)
    assert marked.status == 0 and set(marked.outcomes().values()) == {"done"}
    gone = host.checkpoints()
    for file in ("d1/log-start-offset-checkpoint", "d2/log-start-offset-checkpoint", "d1/cleaner-offset-checkpoint"):
        assert checkpoints[file] and not gone[file], file
    names = [p.name for d in (host.d1, host.d2) for p in d.iterdir()]
    assert max(len(name.encode()) for name in names) == 255
    back = host.run("restore", "--retention-will-delete", "--json", "--plan", marked.json["plan_id"], "--execute")
    assert back.status == 0 and set(back.outcomes().values()) == {"done"}
    host.check_back(before)
    assert host.checkpoints() == checkpoints


@pytest.mark.parametrize("copy", [("cp", "-a"), ("cp", "-r")])
@pytest.mark.parametrize("killed", [False, True])
def test_what_delete_took_comes_back_from_a_copy_of_the_disk(host: Host, copy: tuple[str, str], killed: bool) -> None:
    """By its plan, with its log start offsets: the unique names are the same, and no inode is. Also where it was
    killed right before it noted what it had done."""
    before, checkpoints = host.partitions(), host.checkpoints()
    plan_id = delete(host, "--topic", "orders|clicks|customer.state|plant.*", *FREELY, "--quarantine").json["plan_id"]
    if killed:
        with closing(sqlite3.connect(host.state / "journal.db")) as journal, journal:
            journal.execute("UPDATE actions SET outcome=NULL, finished_at_ms=NULL")
    for log_dir in (host.d1, host.d2):
        log_dir.rename(log_dir.with_name(f"{log_dir.name}.old"))
        subprocess.run([*copy, log_dir.with_name(f"{log_dir.name}.old"), log_dir], check=True)
    back = host.run("restore", "--retention-will-delete", "--json", "--plan", plan_id, "--execute")
    assert back.status == 0 and set(back.outcomes().values()) == {"done"}, back.out + back.err
    logs = {name for name in before if name.endswith(".log")}
    assert {name for name in host.partitions() if name.endswith(".log")} == logs
    assert host.checkpoints() == checkpoints


def test_of_what_was_removed_it_says_when_and_by_which_plan(host: Host) -> None:
    """It called the living partition "a current dir", and did not know the other at all."""
    host.configure(**NO_LIMITS, **{"delete.file_delete_delay_ms": 0})
    delete(host, "--partition", "shipments-0", *FREELY)
    (name,) = host.find("shipments-0.", "-delete")
    removed = host.run("cleanup", "--json", "--execute").json
    assert host.find("shipments-0.", "-delete") == []
    host.partition("shipments-0")
    refused = host.run("restore", "--json", "shipments-0").json["refusals"]
    assert [r["fact"].partition("was")[0] for r in refused] == ["its -delete directory "]
    assert refused[0]["fact"].endswith(f", plan {removed['plan_id']}")
    gone = host.run("restore", name)
    assert gone.status == 2 and "was removed at" in gone.err and removed["plan_id"] in gone.err, gone.err


def test_a_removal_that_has_started_cannot_be_undone(host: Host) -> None:
    host.configure(**NO_LIMITS, **{"delete.file_delete_delay_ms": 0, "delete.bytes_per_second": "1KiB"})
    # A directory that is smaller than one step of the budget goes in one.
    (host.d1 / "shipments-0" / f"{999:020d}.log").write_bytes(bytes(2 << 20))
    delete(host, "--partition", "shipments-0", *FREELY)
    (name,) = host.find("shipments-0.", "-delete")
    files = len(list((host.d1 / name).iterdir()))
    command = [sys.executable, "-m", "logagent", *host.arguments("cleanup", "--json", "--execute")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        wait_until(lambda: len(list((host.d1 / name).iterdir())) < files, "its removal has started")
        os.kill(running.pid, signal.SIGTERM)
        out, err = running.communicate(timeout=300)
    assert running.returncode == 3, err
    assert [a["outcome"] for a in json.loads(out)["actions"] if a["name"] == name] == ["yielded"]
    left = len(list((host.d1 / name).iterdir()))
    assert 0 < left < files
    refused = host.run("restore", "--json", name, "--execute")
    assert refused.status == 3 and refused.guards() == {name: "journal"}
    assert "removal has started" in refused.json["refusals"][0]["fact"]
    # A copy without the mark (`cp -r`, another disk) has another inode, and the same unique name.
    subprocess.run(["cp", "-r", host.d1 / name, host.root / "copy"], check=True)
    subprocess.run(["chmod", "u-s", host.root / "copy"], check=True)
    (host.d1 / name).rename(host.root / "original")
    (host.root / "copy").rename(host.d1 / name)
    copied = host.run("restore", "--json", name, "--execute")
    assert copied.status == 3 and copied.guards() == {name: "journal"}, copied.out
    (host.d1 / name).rename(host.root / "copy")
    (host.root / "original").rename(host.d1 / name)
    # Nor by a journal that does not know: one that is new, of another state dir, lost or older than the removal.
    known, host.state = host.state, host.root / "another-state"
    refused = host.run("restore", "--json", name, "--execute")
    assert refused.status == 3 and "removal has started" in refused.json["refusals"][0]["fact"]
    host.state = known
    host.configure(**NO_LIMITS, **{"delete.file_delete_delay_ms": 0})
    assert host.run("cleanup", "--json", "--execute").outcomes()[name] == "done"
    assert not (host.d1 / name).exists()
    gone = host.run("restore", name, "--execute")
    assert gone.status == 2 and "its -delete directory was removed at" in gone.err


@pytest.mark.parametrize("broker_came", [False, True])
@pytest.mark.parametrize("segments", [1, 2])
def test_nor_one_whose_removal_neither_mark_nor_journal_knows(host: Host, segments: int, broker_came: bool) -> None:
    """The journal was put back from before the removal, and a copy (`cp -r`) has no mark: what it had when it was set
    aside is known all the same."""
    path = host.d1 / "shipments-0"
    for later in sorted(path.glob("*.log"))[segments:]:
        for file in path.glob(f"{later.stem}.*"):
            file.unlink()
    delete(host, "--partition", "shipments-0", *FREELY, "--quarantine")
    (name,) = host.find("shipments-0.", "-stray")
    for file in (host.d1 / name).glob(f"{0:020d}.*"):
        file.unlink()
    if broker_came and segments == 1:  # it makes an empty one
        (host.d1 / name / f"{0:020d}.log").touch()
    refused = host.run("restore", "--json", name, "--retention-will-delete", "--execute")
    assert refused.status == 3 and set(refused.guards()) == {name}, refused.out
    (refusal,) = refused.json["refusals"]
    assert "chmod" not in refusal["hint"] and host.find("shipments-0.", "-stray") == [name]
    if segments > 1 or broker_came:
        assert refusal["guard"] == "journal" and "when it was set aside" in refusal["fact"]


def test_nor_one_that_the_broker_had_started(host: Host) -> None:
    """It renames every segment to `.deleted` before it unlinks the first, and was killed in between: what came back
    began with the second segment."""
    delete(host, "--partition", "orders-1", *FREELY)
    (name,) = host.find("orders-1.", "-delete")
    first = f"{0:020d}.log"
    shutil.copy(host.d2 / name / first, host.d2 / name / f"{1000:020d}.log")
    for file in (host.d2 / name).glob(f"{0:020d}.*"):
        file.rename(f"{file}.deleted")
    refused = host.run("restore", "--json", name, "--execute")
    assert refused.status == 3 and refused.guards() == {name: "journal"}
    assert f"about to unlink {0:020d}." in refused.json["refusals"][0]["fact"]
    assert host.find("orders-1.", "-delete") == [name]


def test_what_stands_in_the_way_is_set_aside_only_on_request(host: Host) -> None:
    delete(host, "--partition", "orders-1", *FREELY)
    (name,) = host.find("orders-1.", "-delete")
    # What a broker does with an assigned partition that it does not find: it makes it again, empty.
    again = host.d2 / "orders-1"
    again.mkdir()
    shutil.copy(host.d2 / name / "partition.metadata", again)
    (again / "00000000000000000000.log").touch()
    before = host.partitions()
    refused = host.run("restore", "--json", name, "--execute")
    assert refused.status == 3 and refused.guards() == {name: "policy"}
    assert "--replace" in refused.json["refusals"][0]["hint"]
    assert host.partitions() == before
    assert host.run("restore", name, "--even-last-copy").status == 2, "consent to what is not asked for"
    refused = host.run("restore", "--retention-will-delete", "--json", name, "--replace", "--execute")
    assert refused.status == 3 and refused.guards()["orders-1"] == "assigned" and refused.deeds == []
    assert host.partitions() == before
    done = host.run("restore", "--retention-will-delete", "--json", name, "--replace", "--even-last-copy", "--execute")
    aside = name.replace("-delete", "-stray")
    assert done.status == 0 and done.outcomes() == {"orders-1": "done", name: "done", aside: "done"}
    assert (host.d2 / "orders-1" / "00000000000000000000.log").stat().st_size > 0
    (aside,) = host.find("orders-1.", "-stray")
    assert (host.d2 / aside / "00000000000000000000.log").stat().st_size == 0


def test_a_name_that_the_broker_cut_needs_the_topic(host: Host) -> None:
    cut = next(n for n in host.find("plant.", "-delete"))
    refused = host.run("restore", "--json", cut)
    assert refused.guards() == {cut: "policy"} and "--topic-name" in refused.json["refusals"][0]["hint"]
    shown = cut.rpartition("-0.")[0] or cut.rpartition("-1.")[0]
    wrong = host.run("restore", "--json", cut, "--topic-name", "other")
    assert wrong.guards() == {cut: "policy"}
    full = f"{shown}.taken-down"
    done = host.run("restore", "--retention-will-delete", "--json", cut, "--topic-name", full, "--execute")
    assert done.outcomes() == {cut: "done"} and host.find(full)


@pytest.mark.parametrize("kind", ["current", "missing"])
def test_only_marked_directories_that_exist_are_restored(host: Host, kind: str) -> None:
    name = "orders-1" if kind == "current" else "orders-1.0123456789abcdef0123456789abcdef-delete"
    ran = host.run("restore", "--retention-will-delete", "--json", name, "--execute")
    if kind == "current":
        assert ran.status == 3 and ran.guards() == {name: "policy"}
    else:
        assert ran.status == 2 and "hint:" in ran.err


def test_a_future_log_goes_and_comes_back_as_one(host: Host) -> None:
    (future,) = host.find("shipments-1.", "-future")
    before = host.partitions()
    current = delete(host, "--partition", "shipments-1", *FREELY, execute=False)
    assert [a["name"] for a in current.deeds] == ["shipments-1"]
    gone = delete(host, "--partition", "shipments-1", "--future", *FREELY)
    assert gone.outcomes() == {future: "done"}
    (name,) = host.find("shipments-1.", "-delete")
    assert host.run("restore", "--retention-will-delete", "--json", name, "--execute").outcomes() == {name: "done"}
    host.check_back(before)


def test_nothing_is_restored_while_the_partition_may_be_current_elsewhere(host: Host) -> None:
    delete(host, "--partition", "orders-1", *FREELY)
    (name,) = host.find("orders-1.", "-delete")
    shutil.move(host.d1, host.disk / "elsewhere")
    refused = host.run("restore", "--json", name, "--execute")
    assert refused.status == 5 and refused.guards() == {name: "online"}
    shutil.move(host.disk / "elsewhere", host.d1)
    # Or is: the broker has made this incarnation again in the other log dir.
    again = host.d1 / "orders-1"
    shutil.copytree(host.d2 / name, again)
    refused = host.run("restore", "--retention-will-delete", "--json", name, "--replace", "--execute")
    assert refused.status == 3 and refused.guards() == {name: "policy"}
    assert str(host.d1) in refused.json["refusals"][0]["fact"]
