"""Exit statuses: each once, and messages that say what and how; every command explains itself."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click
import pytest

from logagent.base.console.options import Call
from logagent.base.errors import Exit
from logagent.base.linux.access import Credentials, ask_as
from logagent.cleanup.session.of_command import Stopper
from logagent.cli import COMMANDS, cli
from tests.command_line import run_apart, run_here
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host
from tests.hosts import OF_PLACES
from tests.needs import need_root


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def test_a_command_that_succeeds_ends_with_0(host: Host) -> None:
    assert host.run("scan").status == Exit.OK


def test_a_state_dir_that_cannot_be_used_ends_with_1(host: Host) -> None:
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
        ("explain", "--names"),
        ("schema", "nothing"),
        ("prestart", "--budget", "soon"),
        ("prestart", "--budget", "999999d"),
        ("check", "--kafka-version", "39.1"),
        ("check", "--kafka-version", "newest"),
        ("check", "--broker-user", "nobody-of-that-name"),
    ],
    ids=" ".join,
)
def test_wrong_usage_says_what_and_how(host: Host, arguments: tuple[str, ...]) -> None:
    takes_host = arguments[0] in COMMANDS and arguments[0] not in ("schema", "explain")
    ran = host.run(*arguments) if takes_host else run_here(*arguments)
    assert ran.status == Exit.USAGE and ran.out == ""
    assert "Traceback" not in ran.err and len(ran.err.splitlines()) >= 1
    assert "hint:" in ran.err or "--help" in ran.err or "for help" in ran.err, ran.err


def test_refused_only_where_it_was_to_be_done(host: Host) -> None:
    assert host.run("delete", "--partition", "orders-1").status == Exit.OK
    assert host.run("delete", "--partition", "orders-1", "--execute").status == Exit.REFUSED


def test_a_plan_that_needs_approval_ends_with_4(host: Host) -> None:
    host.configure()
    assert host.run("delete", "--topic", ".*", *FREELY).status == Exit.APPROVAL


def test_an_offline_log_dir_ends_with_5(host: Host) -> None:
    shutil.rmtree(host.d2)
    ran = host.run("scan", "--json")
    assert ran.status == Exit.OFFLINE
    assert [d["health"] for d in ran.json["log_dirs"]] == ["online", "offline"]
    assert str(host.d2) in ran.err


def test_a_broker_that_would_not_start(host: Host) -> None:
    assert host.run("check").status == Exit.OK
    (host.d1 / "lost+found").mkdir()
    ran = host.run("check", "--json")
    assert ran.status == Exit.CHECK_FATAL
    fatal = [f for f in ran.json["findings"] if f["severity"] == "fatal"]
    assert [f["path"] for f in fatal] == [str(host.d1 / "lost+found")] and fatal[0]["hint"]
    assert host.run("prestart", "--budget", "10m").status == Exit.OK
    strict = host.run("prestart", "--budget", "10m", "--strict")
    assert strict.status == Exit.CHECK_FATAL and "lost+found" in strict.err


def test_an_unreachable_cluster_ends_with_69(host: Host) -> None:
    host.configure(**{"assignments.sources": ["admin"], "kafka.bootstrap_servers": "127.0.0.1:1"})
    ran = run_apart("assignments", "export", "-", "--config", str(host.toml), "--state-dir", str(host.state))
    assert ran.status == Exit.UNREACHABLE and ran.out == "" and "hint:" in ran.err


def test_configuration_is_wrong_and_every_error_is_named(host: Host) -> None:
    host.toml.write_text('[cleanup]\nmode = "perhaps"\nmax_dirs = 0\n[kafka]\nversoin = "3.9.1"\n[nothing]\nx = 1\n')
    ran = host.run("scan")
    assert ran.status == Exit.CONFIG
    for place in ("cleanup.mode", "cleanup.max_dirs", "kafka.versoin", "nothing"):
        assert place in ran.err, ran.err
    assert "hint:" in ran.err
    missing = run_here("scan", "--kafka-config", str(host.root / "absent.properties"), "--state-dir", str(host.state))
    assert missing.status == Exit.CONFIG and "absent.properties" in missing.err


NOBODY = Credentials(65534, 65534, ())
LOOKING = [("scan",), ("queue",), ("check",), ("assignments", "show"), ("history",), ("status",)]
ACTING = [("cleanup",), ("rescue",), ("delete", "--topic", "x"), ("restore", "x"), ("cleanup", "--execute"), ("run",)]


@pytest.mark.parametrize("command", [*LOOKING, *ACTING], ids=" ".join)
def test_the_wrong_user_is_reported_and_nothing_else(command: tuple[str, ...], tmp_path: Path) -> None:
    need_root()
    root = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own folders let nobody else in
    try:
        root.chmod(0o755)
        host = Host.from_disk(root)
        host.state.mkdir(mode=0o700)
        for path in (host.d1, host.d2):
            path.chmod(0o700)
        # Not even a wrong setting comes first. (As root once, so that the child has all modules that it needs.)
        host.toml.write_text(host.toml.read_text() + "[nothing]\nx = 1\n")
        run_here("explain", "--names", "a-0", "--config", str(host.toml))
        words = (*command, "--config", str(host.toml), "--state-dir", str(host.state))
        run_here(*words)
        said = ask_as(NOBODY, lambda: asdict(run_here(*words)), 60)
    finally:
        shutil.rmtree(root)
    assert said["status"] == Exit.PERMISSION and said["out"] == ""
    first, hint = said["err"].splitlines()
    assert any(words in first for words in ("may not read", "Permission denied", "cannot be seen as this user")), said[
        "err"
    ]
    assert "broker's user" in hint
    if "may not read" in first and "which belongs to" in first:
        assert first.startswith("logagent: you are nobody and may not read ")
        assert hint.endswith(f"sudo -u root logagent {shlex.join(words)}"), hint


def test_somebody_who_may_read_one_of_the_log_dirs_is_shown_it(tmp_path: Path) -> None:
    need_root()
    root = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        root.chmod(0o755)
        host = Host.from_disk(root)
        host.d2.chmod(0o700)
        host.run("scan", "--json")
        said = ask_as(NOBODY, lambda: asdict(host.run("scan", "--json")), 60)
    finally:
        shutil.rmtree(root)
    assert said["status"] == Exit.OFFLINE and str(host.d2) in said["err"]


def test_a_log_dir_that_is_closed_to_this_user_is_no_bad_disk(tmp_path: Path) -> None:
    """Its disk works: whoever has no right to look at it is not sent to the kernel log, or to buy another one."""
    need_root()
    root = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        root.chmod(0o755)
        host = Host.from_disk(root)
        host.d2.chmod(0o700)
        host.run("check", "--json")
        said = ask_as(NOBODY, lambda: asdict(host.run("check", "--json")), 60)
        found = {f["path"]: f for f in json.loads(said["out"])["findings"] if f["code"] not in OF_PLACES}
        assert found[str(host.d2)]["code"] == "not-verified", found
        assert "broker's user" in found[str(host.d2)]["hint"]
        assert "dmesg" not in said["out"] and "replace" not in said["out"]
        # The broker's own user is told whose fault it is: the owner's.
        os.chown(host.d1, NOBODY.uid, NOBODY.gid)
        said = ask_as(NOBODY, lambda: asdict(host.run("check", "--json")), 60)
        findings = [f for f in json.loads(said["out"])["findings"] if f["code"] not in OF_PLACES]
        denied = [f for f in findings if f["path"] == str(host.d2)]
        assert [(f["severity"], f["code"]) for f in denied] == [("fatal", "access-denied")], denied
        assert "dmesg" not in said["out"] and "chown" in denied[0]["hint"]
    finally:
        shutil.rmtree(root)


def test_work_that_ctrl_c_ends_between_two_files_ends_with_130_and_sigterm_does_not() -> None:
    for number, status in ((signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, Exit.OK)):
        call = Call(None, None, (), None, None, json=False, verbose=False, color=False)
        with Stopper(call) as stopped:
            signal.raise_signal(number)
            assert stopped() and call.status is status


def test_every_exit_status_stands_in_the_help() -> None:
    text = run_here("--help").out
    assert [status for status in Exit if not re.search(rf"^ *{int(status)} +\S", text, re.MULTILINE)] == []


def test_every_command_and_option_explains_itself() -> None:
    context = click.Context(cli)
    for name in COMMANDS:
        if name == "fleet":
            continue  # another folder's
        command = cli.get_command(context, name)
        assert command is not None
        found = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
        for one in found:
            # A table (click's \b) may come after the prose.
            assert one.help and one.help.partition("\b")[0].strip().endswith("."), one.name
            for parameter in one.params:
                if isinstance(parameter, click.Option):
                    assert parameter.help, (name, parameter.name)
        assert run_here(name, "--help").status == 0


def test_it_runs_as_a_module() -> None:
    ran = run_apart("--version")
    assert ran.status == 0 and re.fullmatch(r"logagent, version \d+\.\d+\.\d+\n", ran.out)


def test_too_few_file_descriptors_are_named_and_not_taken_for_a_dead_disk(host: Host) -> None:
    """From too few to start up to enough: whatever is refused meanwhile is refused for that reason."""
    # What lives on other nodes would stay, because nobody can be asked about it.
    host.with_assignments(topics_gone=True, **NO_LIMITS, **ALL_DUE)
    statuses = []
    for number in range(8, 20):
        command = [sys.executable, "-m", "logagent", *host.arguments("cleanup", "--execute")]
        limited = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (number, number))
        ran = subprocess.run(command, preexec_fn=limited, capture_output=True, text=True, check=False)
        statuses.append(ran.returncode)
        if ran.returncode == 0:
            break
        assert "Traceback" not in ran.stderr and "it could not be read" not in ran.stderr
        if ran.returncode == Exit.OFFLINE:
            assert "offline: " in ran.stderr and ran.stderr.count("Too many open files") > 1
    assert statuses[0] != 0 == statuses[-1]
