"""Terminals, pipes and readers that go away; and what a command imports to start."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.command_line import Ran
from tests.forked import run_forked
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host
from tests.terminal import on_a_terminal, plain
from tests.waiting import wait_until


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def nobody_reads(*streams: int) -> None:
    """In a fork: these streams are a pipe whose reader has gone away."""
    reader, writer = os.pipe()
    for fd in streams:
        os.dup2(writer, fd)
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
    "command", ["scan --json", "scan --jsonl", "scan --all", "history", "explain --jsonl -", "--help"]
)
def test_a_reader_that_goes_away_is_no_error(host: Host, command: str) -> None:
    host.run("delete", "--topic", "orders", *FREELY, "--execute")
    name, *rest = command.split()
    arguments = [name, *rest] if name in ("--help", "explain") else host.arguments(name, *rest)
    ran = run_forked(*arguments, stdin=b"orders-1\n" * 10_000, prepare=lambda: nobody_reads(1))
    assert ran.status == 0, ran.err
    assert "Traceback" not in ran.err and "BrokenPipe" not in ran.err


def test_of_a_process_of_its_own_too(host: Host) -> None:
    """Python's own end, which a fork only imitates, finds nothing left to write."""
    with subprocess.Popen(
        [sys.executable, "-m", "logagent", *host.arguments("scan", "--json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        running.stdout.close()
        running.stdout = None
        _, err = running.communicate(timeout=600)
    assert running.returncode == 0 and b"Traceback" not in err and b"BrokenPipe" not in err, err


def test_what_is_done_is_done_whoever_listens(host: Host) -> None:
    """Nobody reads stdout or stderr any more: the work is done all the same, and the exit status still tells."""
    host.configure(**NO_LIMITS)
    command = host.arguments("delete", "--topic", "orders|__consumer_offsets", *FREELY, "--execute")
    assert run_forked(*command, prepare=lambda: nobody_reads(1, 2)).status == 3
    assert len(host.find("orders-", "-delete")) == 3 + 3  # orders-2019 had three


DUE_NOW = {**ALL_DUE, **NO_LIMITS, "cleanup.min_age": "0s", "cleanup.sightings": 1}
MARKED = ("delete", "--topic", "orders|__consumer_offsets", *FREELY, "--execute")
ACTS: dict[str, tuple[str, ...]] = {
    "delete": MARKED,
    "cleanup": ("cleanup", "--execute"),
    "rescue": ("rescue", "--execute"),
    "restore": ("restore", "orders-1", "--retention-will-delete", "--execute"),
    "prestart": ("prestart", "--budget", "10m"),
}
# How stdout and stderr are lost, and what that makes of the exit status of what was done.
LOST: dict[str, Callable[[int], int]] = {
    ">/dev/full": lambda _: 1,
    "2>&1 | head -c 0": lambda status: status,
    "<&- >&- 2>&-": lambda status: status,
}
# What a shell does for it.
REDIRECTED: dict[str, Callable[[], object]] = {
    "": lambda: None,
    ">/dev/full": lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1),
    "2>/dev/full": lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 2),
    ">&-": lambda: os.close(1),
    "| head -c 0": lambda: nobody_reads(1),
    "2>&1 | head -c 0": lambda: nobody_reads(1, 2),
    "<&- >&- 2>&-": lambda: os.closerange(0, 3),
}


def redirect(arguments: Sequence[str], redirected: str, *, apart: bool = False) -> Ran:
    """`apart`: started by a shell, and with Python's own end."""
    if not apart:
        return run_forked(*arguments, prepare=REDIRECTED[redirected])
    words = f"{shlex.join([sys.executable, '-m', 'logagent', *arguments])} {redirected}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=600, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def ready(tmp_path: Path, command: str) -> Host:
    host = Host.from_disk(tmp_path)
    if command == "restore":
        host.run(*MARKED)
    elif command != "delete":
        host.with_assignments(**DUE_NOW)
    return host


@pytest.mark.parametrize("command", ACTS)
def test_what_is_done_does_not_depend_on_any_stream(tmp_path: Path, command: str) -> None:
    """Nor does its exit status, and Python's own 120 is never seen: not even where nobody listens at all."""
    host, apart = ready(tmp_path / "whole", command), command == "delete"
    whole = redirect(host.arguments(*ACTS[command]), "", apart=apart)
    assert "done" in whole.err, whole.err
    left = len(host.find(""))
    lost = {**LOST, "2>/dev/full": LOST["<&- >&- 2>&-"]} if command == "delete" else LOST
    for number, (redirected, status) in enumerate(lost.items()):
        host = ready(tmp_path / str(number), command)
        words = host.arguments(*ACTS[command], *(["--json"] if number % 2 else []))
        ran = redirect(words, redirected, apart=apart)
        # A broker waits for prestart, and never for a disk behind its stdout.
        expected = whole.status if command == "prestart" else status(whole.status)
        assert ran.status == expected, (redirected, ran.err)
        assert "Traceback" not in ran.err
        if redirected == ">/dev/full":
            assert re.search(r"\d+ of \d+ done", ran.err) and "No space left on device" in ran.err, ran.err
        assert len(host.find("")) == left, redirected


def test_a_full_stderr_that_does_not_block_loses_no_refusal() -> None:
    """Whoever shares a terminal or pipe with it may have set O_NONBLOCK: it ended with 120, midway, silent."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"." * 4096)
    program = "import sys; from logagent.base.console.render import secure_streams; secure_streams()\n"
    program += "print('ready', flush=True); print('refused', file=sys.stderr); sys.exit(3)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=writer) as running:
        os.close(writer)
        assert running.stdout is not None and running.stdout.readline() == b"ready\n"
        # It sleeps until stderr has room again, or has ended without a word.
        stat = Path(f"/proc/{running.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] in "SZ", "it waits for its reader")
        with open(reader, "rb") as stream:
            assert stream.read().lstrip(b".") == b"refused\n"
        assert running.wait(300) == 3


def test_a_closed_stream_is_no_file_of_a_log_dir(host: Host) -> None:
    """Descriptors 0 to 2 would be the next files that are opened."""
    program = "import os, sys; from logagent.base.console.render import secure_streams; secure_streams()\n"
    program += "fd = os.open(sys.argv[1], os.O_RDONLY); print('written to stdout', file=sys.stdout, flush=True)\n"
    program += "sys.exit(0 if fd > 2 else 1)"
    words = shlex.join([sys.executable, "-c", program, str(host.properties)])
    for closed in (">&-", "<&-", "2>&-", "<&- >&- 2>&-"):
        assert subprocess.run(["bash", "-c", f"{words} {closed}"], capture_output=True, check=False).returncode == 0


def test_strict_stops_the_start_whoever_reads_why(host: Host) -> None:
    """A log dir that a broker does not start with."""
    (host.d1 / "lost and found").mkdir()
    command = host.arguments("prestart", "--strict", "--budget", "10m")
    for redirected in ("", ">&-", ">/dev/full", "2>&1 | head -c 0", "<&- >&- 2>&-"):
        assert redirect(command, redirected).status == 6, redirected


def test_a_file_is_written_before_anybody_has_to_read(host: Host, tmp_path: Path) -> None:
    host.with_assignments()
    out, key = tmp_path / "exported.json", tmp_path / "key"
    command = ["assignments", *host.arguments("export", str(out), "--json")]
    for redirected in (">&-", ">/dev/full", "| head -c 0"):
        ran = redirect(command, redirected)
        assert out.exists() and str(out) in ran.err and ran.status == (redirected == ">/dev/full"), ran.err
        out.unlink()
        ran = redirect(["topics", "keygen", str(key), "--key-id", "ops"], redirected)
        assert ran.status == (redirected == ">/dev/full") and key.exists(), ran.err
        assert redirected == ">&-" or f"{key} has the private key; its public line: ops:" in ran.err, ran.err
        key.unlink()


def test_output_that_cannot_be_written_is_an_error(host: Host) -> None:
    for arguments in (
        host.arguments("scan", "--json"),
        host.arguments("scan"),
        ["--help"],
        ["explain", "--names", "x-0"],
    ):
        ran = redirect(arguments, ">/dev/full", apart=arguments == ["--help"])
        assert ran.status == 1 and "No space left on device" in ran.err and "Traceback" not in ran.err


def test_colours_are_for_terminals_and_can_be_turned_off(host: Host) -> None:
    coloured = on_a_terminal(host.arguments("scan"), columns=110, apart=True, NO_COLOR="")
    assert "\x1b[1m" in coloured
    lines = plain(coloured)
    directories = lines[lines.index(next(line for line in lines if line.startswith("Not assigned"))) :]
    assert all(len(line) <= 110 or re.search(r"-[0-9]+(\.\S+)?$", line) for line in directories), "it fits the terminal"
    assert any("…" in line for line in directories), directories
    colour = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
    for option, variable in (((), "1"), (("--no-color",), "")):
        assert not colour.search(on_a_terminal(host.arguments("scan", *option), columns=110, NO_COLOR=variable))
    assert "\x1b" not in run_forked(*host.arguments("scan")).out


def test_into_a_pipe_a_table_keeps_within_200_columns(host: Host) -> None:
    ran = run_forked(*host.arguments("scan", "--all"), environment={"COLUMNS": ""})
    assert ran.status == 0, ran.err
    names = [entry.name for d in (host.d1, host.d2) for entry in d.iterdir() if entry.is_dir()]
    lines = ran.out.splitlines()
    wide = [line for line in lines if len(line) > 200]
    assert wide and all(max(map(len, line.split())) > 100 for line in wide), "a name that is longer moves its own row"
    short = [name for name in names if len(name) < 50]
    assert len(short) > 30
    assert [name for name in short if not any(f"{name} " in line for line in lines)] == []


HEAVY = {"pydantic", "apscheduler", "psutil", "watchdog", "prometheus_client", "pyspark", "kafka"}


@pytest.mark.parametrize(
    "arguments", [("--version",), ("--help",), ("queue",), ("scan",), ("history",), ("explain", "--names", "x-0")]
)
def test_what_is_not_needed_is_not_imported(host: Host, arguments: tuple[str, ...]) -> None:
    where = ["--kafka-config", str(host.properties), "--state-dir", str(host.state)]
    told = [arguments[0], *(where if arguments[0] in ("queue", "scan", "history") else ()), *arguments[1:]]
    program = "import json, sys; from logagent.cli import run; status = run(sys.argv[1:])\n"
    program += "print(json.dumps([status, sorted(sys.modules)]))"
    # Wide enough for the path of any temporary directory: nothing has to be folded.
    environ = {**os.environ, "COLUMNS": "400"}
    done = subprocess.run(
        [sys.executable, "-c", program, *told], capture_output=True, text=True, check=True, env=environ
    )
    status, modules = json.loads(done.stdout.splitlines()[-1])
    assert status == 0
    assert not HEAVY & set(modules)
