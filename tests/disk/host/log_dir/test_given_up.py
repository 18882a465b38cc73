"""Attacks on a log dir that its living broker has given up: nobody locks it, and yet the broker is not stopped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host

# Kafka: LogManager.handleLogDirFailure closes the logs of the dir, and its lock goes; the other log dir stays.
BROKER = """
import fcntl, sys
file = open(f"{sys.argv[1]}/.lock", "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder_of(log_dir: Path) -> Iterator[int]:
    command = [sys.executable, "-c", BROKER, str(log_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        try:
            yield running.pid
        finally:
            running.stdin.close()
            running.wait(20)


@pytest.mark.parametrize(
    "arguments",
    [
        ("delete", "--partition", "orders-1", *FREELY),
        ("delete", "--partition", "orders-1", "--quarantine", *FREELY),
        ("cleanup",),
    ],
    ids=" ".join,
)
def test_a_log_dir_that_the_living_broker_gave_up_is_offline(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    host = Host.from_disk(tmp_path)
    host.run("delete", "--partition", "orders-2", *FREELY, "--execute")
    host.with_assignments(topics_gone=True, **NO_LIMITS, **ALL_DUE)
    with holder_of(host.d1) as pid:
        before = host.partitions()
        ran = host.run(arguments[0], "--json", *arguments[1:], "--execute")
        assert host.partitions() == before
        assert ran.status == 5
        facts = [r["fact"] for r in ran.json["refusals"] if r["log_dir"] == str(host.d2)]
        assert facts
        assert [fact for fact in facts if not (f"process {pid}" in fact and "gave it up" in fact)] == []
    assert host.run(arguments[0], "--json", *arguments[1:], "--execute").status == 0
