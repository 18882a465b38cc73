"""Attacks on the only copy that is left, and on what is believed of a running broker."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host import ALL_DUE, NO_LIMITS, Host

MARKED = "orders-1.0123456789abcdef0123456789abcdef-delete"
BROKER = """
import fcntl, sys
files = [open(path, "a") for path in sys.argv[1:]]
for file in files[:2]:
    fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host.from_disk(tmp_path)
    host.configure(**NO_LIMITS, **ALL_DUE)
    return host


def test_the_source_of_a_move_is_kept_while_a_log_dir_is_offline(host: Host) -> None:
    """A finished move leaves a -delete dir: the only readable copy of the node where the target fails."""
    shutil.copytree(host.d2 / "orders-1", host.d1 / MARKED)
    host.d2.rename(host.disk / "gone")
    ran = host.run("cleanup", "--json", "--execute")
    assert (host.d1 / MARKED / "00000000000000000000.log").exists()
    (waits,) = [w for w in ran.json["waiting"] if w["name"] == MARKED]
    assert "offline" in waits["reason"]
    (host.disk / "gone").rename(host.d2)
    assert host.run("cleanup", "--json", "--execute").outcomes()[MARKED] == "done"


def test_the_running_broker_is_the_release_that_it_runs(host: Host) -> None:
    """Truncating what a live broker has open was tried with some releases only: an old note must not permit it."""
    jar = host.root / "kafka_2.13-3.7.0.jar"
    command = [sys.executable, "-c", BROKER, str(host.d1 / ".lock"), str(host.d2 / ".lock"), str(jar)]
    assert host.configured()[0].kafka_version == (3, 9, 1)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        with host.session(act=False) as session:
            assert session.facts().kafka_version == (3, 7, 0)
        running.stdin.close()
        running.wait(20)
