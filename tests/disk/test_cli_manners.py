"""How the command line behaves as a program: exit statuses, streams, hostile names, wrong input, start-up cost."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logagent.cli.main import COMMANDS, cli
from logagent.errors import Exit
from tests.cli_host import FREELY, CliHost, Ran, run_apart, run_here

HOSTILE = [
    b"caf\xe9-0",
    b"new\nline-1",
    b"esc\x1b[31m-2",
    b"tab\there-3",
    "gr\u00fc\u00dfe-4".encode(),
    b"a b-5",
    b"\xff-6",
]


@pytest.fixture
def host(tmp_path: Path) -> CliHost:
    return CliHost(tmp_path)


# Exit statuses


def test_done(host: CliHost) -> None:
    assert host.run("scan").status == Exit.OK


def test_failed(host: CliHost) -> None:
    host.state.write_text("")
    assert host.run("cleanup", "--execute").status == Exit.FAILED


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("scan", "--frobnicate"),
        ("delete",),
        ("delete", "--topic", "orders", "--partition", "orders-1"),
        ("delete", "--topic", "orders("),
        ("delete", "--partition", "orders"),
        ("delete", "--partition", "orders-1.0123456789abcdef0123456789abcdef-delete"),
        ("delete", "--partition", "../orders-1"),
        ("restore",),
        ("restore", "a", "b", "--topic-name", "t"),
        ("restore", "a", "--topic-name", "../t"),
        ("restore", "--plan", "0123456789abcdef"),
        ("history", "--since", "yesterday"),
        ("history", "--limit", "0"),
        ("explain",),
        ("schema", "nothing"),
        ("prestart", "--budget", "soon"),
        ("check", "--kafka-version", "newest"),
        ("check", "--broker-user", "nobody-of-that-name"),
    ],
    ids=" ".join,
)
def test_wrong_usage_says_what_and_how(host: CliHost, arguments: tuple[str, ...]) -> None:
    takes_host = arguments[0] in COMMANDS and arguments[0] not in ("schema", "explain")
    ran = host.run(*arguments) if takes_host else run_here(*arguments)
    assert ran.status == Exit.USAGE and ran.out == ""
    assert "Traceback" not in ran.err and len(ran.err.splitlines()) >= 1
    assert "hint:" in ran.err or "--help" in ran.err or "for help" in ran.err, ran.err


def test_refused_only_where_it_was_to_be_done(host: CliHost) -> None:
    assert host.run("delete", "--partition", "orders-1").status == Exit.OK
    assert host.run("delete", "--partition", "orders-1", "--execute").status == Exit.REFUSED


def test_needs_approval(host: CliHost) -> None:
    host.configure()
    assert host.run("delete", "--topic", ".*", *FREELY).status == Exit.APPROVAL


def test_offline(host: CliHost) -> None:
    shutil.rmtree(host.d2)
    ran = host.run("scan", "--json")
    assert ran.status == Exit.OFFLINE
    assert [d["health"] for d in ran.json["log_dirs"]] == ["online", "offline"]
    assert str(host.d2) in ran.err


def test_a_broker_that_would_not_start(host: CliHost) -> None:
    assert host.run("check").status == Exit.OK
    (host.d1 / "lost+found").mkdir()
    ran = host.run("check", "--json")
    assert ran.status == Exit.CHECK_FATAL
    fatal = [f for f in ran.json["findings"] if f["severity"] == "fatal"]
    assert [f["path"] for f in fatal] == [str(host.d1 / "lost+found")] and fatal[0]["hint"]
    assert host.run("prestart", "--budget", "1m").status == Exit.OK
    strict = host.run("prestart", "--budget", "1m", "--strict")
    assert strict.status == Exit.CHECK_FATAL and "lost+found" in strict.err


def test_unreachable(host: CliHost) -> None:
    host.configure(**{"assignments.sources": ["admin"], "kafka.bootstrap_servers": "127.0.0.1:1"})
    ran = run_apart("assignments", "export", "-", "--config", str(host.toml), "--state-dir", str(host.state))
    assert ran.status == Exit.UNREACHABLE and ran.out == "" and "hint:" in ran.err


def test_configuration_is_wrong_and_every_error_is_named(host: CliHost) -> None:
    host.toml.write_text('[cleanup]\nmode = "perhaps"\nmax_dirs = 0\n[kafka]\nversoin = "3.9.1"\n[nothing]\nx = 1\n')
    ran = host.run("scan")
    assert ran.status == Exit.CONFIG
    for place in ("cleanup.mode", "cleanup.max_dirs", "kafka.versoin", "nothing"):
        assert place in ran.err, ran.err
    assert "hint:" in ran.err
    missing = run_here("scan", "--kafka-config", str(host.root / "absent.properties"), "--state-dir", str(host.state))
    assert missing.status == Exit.CONFIG and "absent.properties" in missing.err


def test_every_exit_status_stands_in_the_help() -> None:
    text = run_here("--help").out
    assert all(re.search(rf"^ *{int(status)} +\S", text, re.MULTILINE) for status in Exit)


# Help


def test_every_command_and_option_explains_itself() -> None:
    context = click.Context(cli)
    for name in COMMANDS:
        if name == "fleet":
            continue  # another folder's
        command = cli.get_command(context, name)
        assert command is not None
        found = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
        for one in found:
            assert one.help and one.help.strip().endswith("."), one.name
            for parameter in one.params:
                if isinstance(parameter, click.Option):
                    assert parameter.help, (name, parameter.name)
        assert run_here(name, "--help").status == 0


def test_it_runs_as_a_module() -> None:
    ran = run_apart("--version")
    assert ran.status == 0 and re.fullmatch(r"logagent, version \d+\.\d+\.\d+\n", ran.out)


# Names that mean harm


@pytest.fixture
def hostile(host: CliHost) -> CliHost:
    for name in HOSTILE:
        made = host.d1 / os.fsdecode(name)
        shutil.copytree(host.d1 / "x-1", made)
        (made / "partition.metadata").unlink()  # it is the topic id of x
    host.configure(**{"cleanup.max_fraction": 1.0, "cleanup.max_dirs": 100, "delete.file_delete_delay_ms": 0})
    return host


def test_hostile_names_are_shown_and_never_obeyed(hostile: CliHost) -> None:
    rows = {d["name"]: d for d in hostile.run("scan", "--json").json["dirs"]}
    assert {os.fsdecode(name) for name in HOSTILE} <= set(rows)
    assert rows["caf\udce9-0"]["topic"] == "caf\udce9"
    for command in ("scan", "scan --jsonl", "queue", "cleanup"):
        ran = hostile.run(*command.split())
        assert ran.status == 0
        assert "\x1b" not in ran.out + ran.err and "\udce9" not in ran.out
    assert "new\\nline-1" in hostile.run("scan", "--all").out
    assert '"name":"caf\\udce9-0"' in hostile.run("scan", "--jsonl").out


def test_hostile_names_are_marked_restored_and_removed_like_others(hostile: CliHost) -> None:
    before = hostile.partitions()
    topics = [re.escape(os.fsdecode(name).rpartition("-")[0]) for name in HOSTILE]
    marked = hostile.run("delete", "--json", "--topic", "|".join(topics), *FREELY, "--execute")
    # Kafka takes a topic with a blank for a partition, but starts with no marked name that has one.
    blank = {name for name in map(os.fsdecode, HOSTILE) if set(name) & set(" \n\t")}
    assert marked.status == 3 and marked.guards() == dict.fromkeys(blank, "inside") and len(blank) == 3
    assert set(marked.outcomes()) == set(map(os.fsdecode, HOSTILE)) - blank
    assert set(marked.outcomes().values()) == {"done"}
    listed = hostile.run("queue", "--json").json["entries"]
    assert {"caf\udce9", "\udcff"} <= {e["full_topic"] for e in listed}
    name = next(e["name"] for e in listed if e["full_topic"] == "caf\udce9")
    back = hostile.run("restore", "--json", name, "--execute")
    assert back.outcomes() == {name: "done"}
    gone = hostile.run("cleanup", "--json", "--execute")
    assert len(gone.outcomes()) == len(HOSTILE) - 4 and set(gone.outcomes().values()) == {"done"}
    history = hostile.run("history")
    assert history.status == 0 and "caf\\udce9" in history.out and "\x1b" not in history.out
    removed = [f"d1/{os.fsdecode(name)}" for name in HOSTILE[1:] if os.fsdecode(name) not in blank]
    assert set(hostile.partitions()) == {path for path in before if not path.startswith(tuple(removed))}


# Wrong input of any kind


PIECES = [
    "scan", "queue", "cleanup", "delete", "restore", "history", "explain", "config", "show", "check", "schema",
    "assignments", "export", "prestart", "--json", "--jsonl", "--execute", "--topic", "--partition", "--approve",
    "--plan", "--topic-name", "--replace", "--quarantine", "--future", "--allow-assigned", "--even-last-copy",
    "--include-internal", "--limit",
    "--since", "--log-dir", "--kafka-config", "--config", "--assignments", "-v", "-0", "-", "--no-color", "--dry-run",
    "--strict", "--budget", "--all", "orders", "orders-1", "x-0", ".*", "(", "1", "-1", "99999999999999999999", "1h",
    "/dev/null", "/", "/proc/self/mem", "", " ", "..", "~", "%s", "\udcff", "\u0663", "a" * 300, "{", "TOML", "JSON",
    "DIR", "[bold]x[/bold]", "\x1b[31m", "orders-1.0123456789abcdef0123456789abcdef-delete", "plan",
]  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> CliHost:
    return CliHost(tmp_path_factory.mktemp("fuzz"))


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(set(COMMANDS) - {"demo", "fleet"})), st.lists(st.sampled_from(PIECES), max_size=6))
def test_no_command_line_ends_in_a_traceback(shared: CliHost, command: str, pieces: list[str]) -> None:
    stand_ins = {"TOML": str(shared.toml), "JSON": str(shared.properties), "DIR": str(shared.d1)}
    words = [stand_ins.get(piece, piece) for piece in pieces]
    # The state dir stands last, so that it holds whatever the words say.
    ran = run_with_stdin(command, *words, *(() if command == "schema" else ("--state-dir", str(shared.state))))
    assert ran.status in set(map(int, Exit))
    if ran.status in (Exit.USAGE, Exit.CONFIG, Exit.UNREACHABLE):
        assert ran.err


def run_with_stdin(*arguments: str) -> Ran:
    """`-` reads stdin: it is empty here."""
    with open(os.devnull) as empty:
        before, sys.stdin = sys.stdin, empty
        try:
            return run_here(*arguments)
        finally:
            sys.stdin = before


# Streams


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


def on_a_terminal(host: CliHost, *arguments: str, **environment: str) -> str:
    """What a command writes to a terminal of 110 columns, stdout and stderr together."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "110", **environment}
    with subprocess.Popen(
        [sys.executable, "-m", "logagent", *host.arguments(*arguments)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={k: v for k, v in environ.items() if v},
    ) as running:
        os.close(theirs)
        text = b"".join(_read(ours))
        running.wait(30)
    os.close(ours)
    return text.decode()


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError as e:
            assert e.errno == errno.EIO
            return
        if not piece:
            return
        yield piece


def test_colours_are_for_terminals_and_can_be_turned_off(host: CliHost) -> None:
    coloured = on_a_terminal(host, "scan", NO_COLOR="")
    assert "\x1b[1m" in coloured
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", coloured)
    lines = plain.replace("\r", "").splitlines()
    directories = lines[lines.index(next(line for line in lines if line.startswith("Directories"))) :]
    assert all(len(line) <= 110 for line in directories), "it fits the terminal"
    assert any("…" in line for line in directories)
    colour = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
    for ran in (on_a_terminal(host, "scan", NO_COLOR="1"), on_a_terminal(host, "scan", "--no-color", NO_COLOR="")):
        assert not colour.search(ran)
    assert "\x1b" not in host.spawn("scan", COLUMNS="").out


def test_into_a_pipe_names_are_whole(host: CliHost) -> None:
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
    assert all(sum(name in line for line in lines) >= 1 for name in names)


# Start-up cost

HEAVY = {"pydantic", "apscheduler", "psutil", "watchdog", "prometheus_client", "pyspark"}
# These read the metadata log, whose batches kafka-python parses.
READ_BATCHES = ("queue", "scan")


@pytest.mark.parametrize(
    "arguments", [("--version",), ("--help",), ("queue",), ("scan",), ("history",), ("explain", "x-0")]
)
def test_what_is_not_needed_is_not_imported(host: CliHost, arguments: tuple[str, ...]) -> None:
    where = ["--kafka-config", str(host.properties), "--state-dir", str(host.state)]
    told = [arguments[0], *(where if arguments[0] in ("queue", "scan", "history") else ()), *arguments[1:]]
    program = "import json, sys; from logagent.cli.main import run; status = run(sys.argv[1:])\n"
    program += "print(json.dumps([status, sorted({m.partition('.')[0] for m in sys.modules})]))"
    done = subprocess.run([sys.executable, "-c", program, *told], capture_output=True, text=True, check=True)
    status, modules = json.loads(done.stdout.splitlines()[-1])
    assert status == 0
    assert not HEAVY & set(modules)
    assert arguments[0] in READ_BATCHES or "kafka" not in modules
