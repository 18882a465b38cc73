"""Attacks through the journal: a removal that had begun is hidden behind another name or path; two act at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logagent.base.records import ActionKind, Identity, Outcome
from logagent.cleanup.state.journal import Intent, Journal
from logagent.disk.scan import mark_started
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host

FLOCK = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def half_removed(host: Host, kind: str) -> str:
    """The name of a directory of which a removal was stopped in the middle, as the journal tells it then."""
    host.configure(**NO_LIMITS, **ALL_DUE)
    quarantine = ("--quarantine",) if kind == "-stray" else ()
    host.run("delete", "--partition", "shipments-0", *FREELY, *quarantine, "--execute")
    (name,) = host.find("shipments-0.", kind)
    (where,) = (d for d in (host.d1, host.d2) if (d / name).exists())
    found = (where / name).stat()
    fd = os.open(where / name, os.O_RDONLY | os.O_DIRECTORY)
    mark_started(fd, lambda: None)
    os.close(fd)
    min((where / name).glob("*.log")).unlink()
    identity = Identity(found.st_dev, found.st_ino)
    intent = Intent(
        ActionKind.REMOVE, str(where), name, None, "shipments", 0, None, identity, bytes=1, plan_id="", actor="cli:me"
    )
    with Journal.open(str(host.state)) as journal:
        (number,) = journal.begin([intent], time.time_ns() // 1_000_000)
        journal.finish([(number, Outcome.YIELDED, "asked to stop")], time.time_ns() // 1_000_000)
    return name


def test_a_half_removed_stray_that_was_marked_since_is_not_restored(host: Host) -> None:
    """`prestart` gives the rest of a stray a new name, under which no removal had begun."""
    half_removed(host, "-stray")
    host.with_assignments(topics_gone=True, **NO_LIMITS, **ALL_DUE)
    host.run("prestart", "--budget", "60s")
    (name,) = host.find("shipments-0.", "-delete")
    refused = host.run("restore", "--json", name, "--execute")
    assert refused.guards() == {name: "journal"}
    assert host.find("shipments-0.", "-delete") == [name]


def test_a_half_removed_directory_is_not_restored_over_another_path(host: Host) -> None:
    name = half_removed(host, "-delete")
    other = host.root / "other"
    other.symlink_to(host.disk)
    ran = host.run("restore", "--json", "--log-dir", str(other / "d1"), "--log-dir", str(other / "d2"), name)
    assert ran.guards() == {name: "journal"}


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    command = [sys.executable, "-c", FLOCK, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            running.stdin.close()
            running.wait(20)


def test_two_with_state_dirs_of_their_own_never_act_at_once(host: Host) -> None:
    """Two executor locks: one's temp file of a checkpoint could be renamed by the other while it is half written."""
    with locked(host.d2):
        ran = host.run("prestart", "--budget", "60s", "--json")
        assert "another logagent is acting" in ran.json["skipped"] and str(host.d2) in ran.json["skipped"]
    assert host.run("prestart", "--budget", "60s", "--json").json["skipped"] is None


def test_an_acting_logagent_holds_its_log_dirs(host: Host) -> None:
    with host.session():
        host.state = host.root / "another"
        ran = host.run("prestart", "--budget", "60s", "--json")
        assert "another logagent is acting" in ran.json["skipped"] and str(host.d1) in ran.json["skipped"]


def test_one_log_dir_by_two_paths_is_no_second_logagent(host: Host) -> None:
    other = host.root / "other"
    other.symlink_to(host.disk)
    ran = host.run("cleanup", "--log-dir", str(host.d1), "--log-dir", str(other / "d1"), "--execute")
    assert "another logagent" not in ran.err
