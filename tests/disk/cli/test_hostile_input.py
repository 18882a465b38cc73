"""Names that mean harm and words that make no sense: shown, never obeyed, and never a traceback."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logagent.base.errors import Exit
from logagent.cli import COMMANDS
from tests.command_line import Ran, run_here
from tests.host import FREELY, NO_LIMITS, Host

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
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


@pytest.fixture
def hostile(host: Host) -> Host:
    for name in HOSTILE:
        made = host.d1 / os.fsdecode(name)
        shutil.copytree(host.d1 / "x-1", made)
        (made / "partition.metadata").unlink()  # it is the topic id of x
    host.configure(**{"cleanup.max_fraction": 1.0, "cleanup.max_dirs": 100, "delete.file_delete_delay_ms": 0})
    return host


def test_hostile_names_are_shown_and_never_interpreted(hostile: Host) -> None:
    rows = {d["name"]: d for d in hostile.run("scan", "--json").json["dirs"]}
    assert {os.fsdecode(name) for name in HOSTILE} <= set(rows)
    assert rows["caf\udce9-0"]["topic"] == "caf\udce9"
    for command in ("scan", "scan --jsonl", "queue", "cleanup"):
        ran = hostile.run(*command.split())
        assert ran.status == 0
        assert "\x1b" not in ran.out + ran.err and "\udce9" not in ran.out
    assert "new\\nline-1" in hostile.run("scan", "--all").out
    assert '"name":"caf\\udce9-0"' in hostile.run("scan", "--jsonl").out


def test_hostile_names_are_marked_restored_and_removed_like_others(hostile: Host) -> None:
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
    back = hostile.run("restore", "--retention-will-delete", "--json", name, "--execute")
    assert back.outcomes() == {name: "done"}
    gone = hostile.run("cleanup", "--json", "--execute")
    assert len(gone.outcomes()) == len(HOSTILE) - 4 and set(gone.outcomes().values()) == {"done"}
    history = hostile.run("history")
    assert history.status == 0 and "caf\\udce9" in history.out and "\x1b" not in history.out
    removed = [f"d1/{os.fsdecode(name)}" for name in HOSTILE[1:] if os.fsdecode(name) not in blank]
    left = {path for path in before if not path.startswith(tuple(removed))}
    # The broker makes the index of what was restored anew.
    missing = left - set(hostile.partitions())
    assert set(hostile.partitions()) <= left
    assert [path for path in missing if not path.endswith(".index")] == []


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
def shared(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host.from_disk(tmp_path_factory.mktemp("fuzz"))


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(set(COMMANDS) - {"demo", "fleet"})), st.lists(st.sampled_from(PIECES), max_size=6))
def test_no_command_line_ends_in_a_traceback(shared: Host, command: str, pieces: list[str]) -> None:
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


def test_a_fleet_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """It may be a file system that is not mounted: whatever went there would be hidden by it later."""
    ran = run_here("fleet", "init", "--store", str(tmp_path / "absent"))
    assert ran.status == Exit.FAILED and "hint: mount or create the directory first" in ran.err
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("seconds", [10_000_000_000, 1 << 62, -(1 << 62)])
def test_a_file_from_the_far_future_or_past_stops_no_cleanup(tmp_path: Path, seconds: int) -> None:
    """Beyond the year 2262 its nanoseconds are no number of SQLite's. (A file system may store its latest time.)"""
    host = Host.from_disk(tmp_path)
    host.with_assignments(**NO_LIMITS)
    for segment in host.d2.glob("returns-2/*.log"):
        os.utime(segment, (0, seconds))
    for _ in range(2):
        ran = host.run("cleanup", "--execute", "--json")
        assert ran.status == 0 and ran.err == "", ran.err
