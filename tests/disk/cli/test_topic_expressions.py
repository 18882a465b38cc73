"""Expressions that match for years, or cannot be compiled: nobody else waits for them, and nothing is done."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from logagent.base.errors import Exit
from logagent.cleanup.state.executor_lock import ExecutorLock
from tests.host import Host
from tests.waiting import wait_until

# 2 to the power of 60 ways to fail.
SLOW = "(a+)+b"
TOPIC = "a" * 60


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host.from_disk(tmp_path)
    (host.d1 / f"{TOPIC}-0").mkdir()
    return host


def test_an_expression_that_backtracks_holds_no_lock_and_ends(host: Host) -> None:
    host.state.mkdir()
    command = [sys.executable, "-m", "logagent", *host.arguments("delete", "--topic", SLOW, "--execute")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        lock = ExecutorLock(str(host.state), "a test", wait_seconds=0, monotonic=time.monotonic, sleep=time.sleep)

        def takes_the_lock() -> bool:
            with lock:
                return running.poll() is not None

        wait_until(takes_the_lock, "it gives up", interval=0.05)
        assert running.stderr is not None
        said = running.stderr.read()
        assert running.returncode == Exit.USAGE, said
        assert "was not matched" in said
    assert (host.d1 / f"{TOPIC}-0").is_dir()


@pytest.mark.parametrize("expression", ["(" * 20_000 + ")" * 20_000, "a{99999999999}", "(", "a{4294967296}", ",", "''"])
def test_an_expression_that_cannot_be_compiled_is_a_usage_error(host: Host, expression: str) -> None:
    ran = host.run("delete", "--topic", expression)
    assert ran.status == Exit.USAGE
    assert "not a regular expression" in ran.err
