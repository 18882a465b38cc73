"""`logagent history -f`: what is added to the journal, as it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logagent.base.errors import Exit
from tests.host import FREELY, Host, delete


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


@contextmanager
def following(host: Host, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The command, which has shown what there was before; Ctrl-C ends it with 130."""
    command = [sys.executable, "-m", "logagent", *host.arguments("history", "-f", *options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            yield running
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=300)
            assert running.returncode == Exit.INTERRUPTED, err
        finally:
            if running.poll() is None:
                os.kill(running.pid, signal.SIGKILL)


def test_each_entry_is_printed_once_when_it_has_its_outcome(host: Host) -> None:
    delete(host, "--partition", "orders-1", *FREELY)
    with following(host, "--jsonl") as running:
        assert running.stdout is not None
        first = json.loads(running.stdout.readline())
        assert (first["name"], first["outcome"]) == ("orders-1", "done")
        done = delete(host, "--partition", "orders-2", "--partition", "orders-3", *FREELY)
        found: set[tuple[str, str]] = set()
        while len(found) < 2:
            row = json.loads(running.stdout.readline())
            if row["outcome"] is not None:
                assert (row["name"], row["plan_id"]) not in found
                found.add((row["name"], row["plan_id"]))
        assert found == {(name, done.json["plan_id"]) for name in ("orders-2", "orders-3")}


def test_a_person_gets_a_line_and_only_of_the_log_dirs_that_were_named(host: Host) -> None:
    delete(host, "--partition", "orders-1", *FREELY)
    with following(host, "--log-dir", str(host.d2)) as running:
        assert running.stdout is not None
        while "orders-1" not in running.stdout.readline():
            pass
        running.stdout.readline()
        delete(host, "--partition", "orders-3", *FREELY)  # in the other one
        delete(host, "--partition", "orders-2", *FREELY)
        line = running.stdout.readline()
        while line.endswith("started\n"):
            line = running.stdout.readline()
        assert f" mark {host.d2}/orders-2 (" in line and line.endswith(": done\n"), line


def test_one_document_never_ends(host: Host) -> None:
    ran = host.run("history", "--json", "-f")
    assert ran.status == Exit.USAGE and ran.out == "" and "--jsonl" in ran.err
