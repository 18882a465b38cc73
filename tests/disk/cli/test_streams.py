"""Terminals, pipes and readers that go away; and what a command imports to start."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli_host import FREELY, NO_LIMITS, CliHost
from tests.terminal import on_a_terminal, plain


@pytest.fixture
def host(tmp_path: Path) -> CliHost:
    return CliHost(tmp_path)


@pytest.mark.parametrize(
    "command", ["scan --json", "scan --jsonl", "scan --all", "history", "explain --jsonl -", "--help"]
)
def test_a_reader_that_goes_away_is_no_error(host: CliHost, command: str) -> None:
    host.run("delete", "--topic", "orders", *FREELY, "--execute")
    name, *rest = command.split()
    arguments = [name, *rest] if name in ("--help", "explain") else host.arguments(name, *rest)
    with subprocess.Popen(
        [sys.executable, "-m", "logagent", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        running.stdout.close()
        running.stdout = None
        _, err = running.communicate(b"orders-1\n" * 10_000, timeout=30)
    assert running.returncode == 0, err
    assert b"Traceback" not in err and b"BrokenPipe" not in err


def test_what_is_done_is_done_whoever_listens(host: CliHost) -> None:
    """Nobody reads stdout or stderr any more: the work is done all the same, and the exit status still tells."""
    host.configure(**NO_LIMITS)
    command = host.arguments("delete", "--topic", "orders|__consumer_offsets", *FREELY, "--execute")
    with subprocess.Popen(
        [sys.executable, "-m", "logagent", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as running:
        assert running.stdout is not None
        running.stdout.close()
        running.stdout = None
        assert running.wait(30) == 3
    assert len(host.find("orders-", "-delete")) == 3 + 3  # orders-2019 had three


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize(("stdout", "status"), [("/dev/full", 1), ("&-", 3)])
def test_what_was_done_is_said_where_stdout_cannot_be_written(
    host: CliHost, stdout: str, status: int, form: tuple[str, ...]
) -> None:
    command = host.arguments("delete", "--topic", "orders|__consumer_offsets", *FREELY, "--execute", *form)
    words = shlex.join([sys.executable, "-m", "logagent", *command])
    done = subprocess.run(["sh", "-c", f"{words} >{stdout}"], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == status and "Traceback" not in done.stderr, done.stderr
    assert "3 of 3 done" in done.stderr or (form and status == 3), done.stderr
    assert len(host.find("orders-", "-delete")) == 3 + 3


def test_output_that_cannot_be_written_is_an_error(host: CliHost) -> None:
    for arguments in (
        host.arguments("scan", "--json"),
        host.arguments("scan"),
        ["--help"],
        ["explain", "--names", "x-0"],
    ):
        with open("/dev/full", "wb") as full:
            command = [sys.executable, "-m", "logagent", *arguments]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 1 and "No space left on device" in done.stderr and "Traceback" not in done.stderr


def test_colours_are_for_terminals_and_can_be_turned_off(host: CliHost) -> None:
    coloured = on_a_terminal(host.arguments("scan"), columns=110, NO_COLOR="")
    assert "\x1b[1m" in coloured
    lines = plain(coloured)
    directories = lines[lines.index(next(line for line in lines if line.startswith("Not assigned"))) :]
    assert all(len(line) <= 110 or re.search(r"-[0-9]+(\.\S+)?$", line) for line in directories), "it fits the terminal"
    assert any("…" in line for line in directories)
    colour = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
    for option, variable in (((), "1"), (("--no-color",), "")):
        assert not colour.search(on_a_terminal(host.arguments("scan", *option), columns=110, NO_COLOR=variable))
    assert "\x1b" not in host.spawn("scan", COLUMNS="").out


def test_into_a_pipe_a_table_keeps_within_200_columns(host: CliHost) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-m", "logagent", *host.arguments("scan", "--all")],
        capture_output=True,
        text=True,
        env=environ,
        check=True,
    )
    names = [entry.name for d in (host.d1, host.d2) for entry in d.iterdir() if entry.is_dir()]
    lines = done.stdout.splitlines()
    wide = [line for line in lines if len(line) > 200]
    assert wide and all(max(map(len, line.split())) > 100 for line in wide), "a name that is longer moves its own row"
    short = [name for name in names if len(name) < 50]
    assert len(short) > 30 and all(any(f"{name} " in line for line in lines) for name in short)


HEAVY = {"pydantic", "apscheduler", "psutil", "watchdog", "prometheus_client", "pyspark", "kafka"}


@pytest.mark.parametrize(
    "arguments", [("--version",), ("--help",), ("queue",), ("scan",), ("history",), ("explain", "--names", "x-0")]
)
def test_what_is_not_needed_is_not_imported(host: CliHost, arguments: tuple[str, ...]) -> None:
    where = ["--kafka-config", str(host.properties), "--state-dir", str(host.state)]
    told = [arguments[0], *(where if arguments[0] in ("queue", "scan", "history") else ()), *arguments[1:]]
    program = "import json, sys; from logagent.cli.main import run; status = run(sys.argv[1:])\n"
    program += "print(json.dumps([status, sorted(sys.modules)]))"
    # Wide enough for the path of any temporary directory: nothing has to be folded.
    environ = {**os.environ, "COLUMNS": "400"}
    done = subprocess.run(
        [sys.executable, "-c", program, *told], capture_output=True, text=True, check=True, env=environ
    )
    status, modules = json.loads(done.stdout.splitlines()[-1])
    assert status == 0
    assert not HEAVY & set(modules)
