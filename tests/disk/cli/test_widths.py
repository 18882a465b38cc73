"""What an operator sees on a terminal of 80 and of 200 columns: every directory, told from the others, on its line."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from logagent.base.console.options import Call
from logagent.cleanup.session.of_command import Progress
from tests.forked import run_forked
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host
from tests.terminal import on_a_terminal, plain

WIDTHS = (80, 120, 200)
LONG = "plant.north-line.sensors.temperature.raw.readings.by-minute.of-the-{}-hall.kept-for-a-year"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host.from_disk(tmp_path)
    made.with_assignments(**{**ALL_DUE, **NO_LIMITS})
    return made


def section(lines: list[str], title: str) -> list[str]:
    """The rows of a table, from its heading to the empty line after it; of those that take two lines, the first.
    Without the lines that have the path of a log dir."""
    start = next(at for at, line in enumerate(lines) if line.startswith(title))
    rest = lines[lines.index("", start) + 3 :]
    return [line for line in rest[: rest.index("")] if line.startswith(" ") and not line.startswith("  ")]


def is_a_name(line: str) -> bool:
    """A name that is too long for its column has the line to itself, whole."""
    return len(line.split()) <= 2 and bool(re.search(r"-[0-9]+(\.[0-9a-f]{4}…-\w+)?$", line))


@pytest.mark.parametrize("columns", WIDTHS)
def test_scan_shows_every_directory_apart_from_the_others(host: Host, columns: int) -> None:
    """Names of 87 characters that differ in the middle: no topic or partition is cut."""
    for hall in ("east", "west", "upper", "lower"):
        (host.d1 / f"{LONG.format(hall)}-0").mkdir()
    lines = plain(on_a_terminal(host.arguments("scan", "--all"), columns=columns))
    # The path of a log dir is never cut: who copies it wants it whole.
    whole = (str(host.d1), str(host.d2), "share one file system: what is free or outside them there is shown once")
    assert max(len(line) for line in lines if not line.endswith(whole) and not is_a_name(line)) <= columns
    names = [entry.name for log_dir in (host.d1, host.d2) for entry in log_dir.iterdir() if entry.is_dir()]
    rows = [row for title in ("Not assigned", "Unknown", "Assigned") for row in section(lines, title)]
    assert len(rows) == len(names)
    shown = Counter(row.split()[0].rpartition("/")[2] for row in rows)
    cut = Counter(re.sub(r"(?<=\.[0-9a-f]{4})[0-9a-f]{28}(?=-[a-z]+$)", "…", name) for name in names)
    assert shown in (cut, Counter(names)), "every name, whole but for its UUID"
    for log_dir in (host.d1, host.d2):
        assert lines.count(str(log_dir)) in ((2, 3) if columns == 80 else (0, 2, 3)), "a line above its rows"


@pytest.mark.parametrize("columns", WIDTHS)
def test_cleanup_shows_what_goes_and_how_much(host: Host, columns: int) -> None:
    lines = plain(on_a_terminal(host.arguments("cleanup"), columns=columns))
    assert max(len(line) for line in lines if not is_a_name(line)) <= columns
    rows = section(lines, "Plan ")
    # Those of partitions that live on other nodes are refused: nobody can be asked whether they have all of them.
    strays = [name for name in host.find("", "-stray") if not name.startswith(("invoices-", "orders-"))]
    shown = [row for row in rows if row.startswith(" remove") and "-stray" in row]
    assert len(shown) == len(strays) and len({row.split()[1] for row in shown}) == len(strays)
    assert all(re.search(r"\d [KM]?i?B", row) for row in shown), "its size is on the line"
    assert any("; add --execute" in line for line in lines), lines


@pytest.mark.parametrize("columns", WIDTHS)
def test_rescue_shows_every_directory_on_its_line(host: Host, columns: int) -> None:
    for hall in ("east", "west"):
        shutil.copytree(next(host.disk.glob("d*/orders-1")), host.d1 / f"{LONG.format(hall)}-0")
    lines = plain(on_a_terminal(host.arguments("rescue"), columns=columns))
    sentences = {line for line in lines if not line.startswith(" ")}
    assert (
        max(len(line) for line in lines if line not in sentences and not is_a_name(line) and " kafka-" not in line)
        <= columns
    )
    rows = section(lines, "Plan ")
    assert all(re.search(r"-[0-9]+(\.[0-9a-f]{4,}…?-\w+)?$", row.split()[1]) for row in rows), rows
    assert all(re.match(r" \S+ +\S+( +[\d.]+ KiB +(due|early))?$", row) for row in rows), "nothing wraps"
    assert len({row.split()[1] for row in rows}) == len(rows) > 10
    assert any(line.startswith("cost of stray-past-retention: it can no longer be") for line in lines), lines
    advised = section(lines, "What only a running broker can do")
    assert {row.split()[0] for row in advised} >= {"shipments", "clicks", "orders", "eu.west_payments-v2"}
    assert "add --execute --approve" in " ".join(lines[-5:])


def test_rescue_keeps_a_topic_of_60_characters_on_one_line(host: Host) -> None:
    """In every table of it: what is due, what is kept, and what somebody removed by hand while a process has it."""
    topic = "plant.north-line.sensors.temperature.raw.by-minute.of-a-hall"
    for name in (
        f"{topic}-11.{'0123456789abcdef' * 2}-delete",
        f"{topic}-7.{'89abcdef01234567' * 2}-stray",
        f"{topic}-1",
    ):
        shutil.copytree(next(host.disk.glob("d*/orders-1")), host.d1 / name)
    log = next((host.d1 / f"{topic}-1").glob("*.log"))
    log.write_bytes(b"x" * 4096)
    with log.open("rb"):
        log.unlink()
        lines = plain(on_a_terminal(host.arguments("rescue"), columns=80))
    shown = [line for line in lines if line.startswith(f" {topic[:20]}")]
    assert shown and max(map(len, shown)) <= 80, shown
    bad = [line for line in shown if f"{topic}-" not in line and line != f" {topic}"]
    assert bad == [], "whole, with its partition"
    (by_hand,) = section(lines, "Removed by hand")[:1]
    assert by_hand == f" {topic}-1"


def test_what_a_terminal_shows_can_be_pasted_back(host: Host) -> None:
    """A marked directory as the queue prints it at 80 columns."""
    host.run("delete", "--partition", "orders-1", *FREELY, "--execute")
    host.configure(**NO_LIMITS)
    rows = section(plain(on_a_terminal(host.arguments("queue"), columns=80)), "Delete queue")
    (printed,) = (row.split()[0] for row in rows if row.startswith(" orders-1."))
    assert "…" in printed
    ran = host.run("restore", "--json", "--retention-will-delete", printed)
    assert [a["new_name"] for a in ran.deeds] == ["orders-1"], ran.err


def test_a_pipe_gets_the_full_names(host: Host) -> None:
    host.run("delete", "--partition", "orders-1", *FREELY, "--execute")
    host.configure(**NO_LIMITS)
    for command in ("scan --all", "queue", "cleanup", "rescue", "history"):
        out = run_forked(*host.arguments(*command.split()), environment={"COLUMNS": ""}).out
        assert "…" not in out, command
    for command in ("scan --all", "cleanup", "rescue"):
        out = run_forked(*host.arguments(*command.split()), environment={"COLUMNS": ""}).out
        for name in host.find("plant.", "-delete"):
            assert re.search(rf"^ .*/{re.escape(name)} .*KiB", out, re.MULTILINE), (command, name)


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_tables_of_status_fit_the_terminal(host: Host, columns: int) -> None:
    with host.daemon() as daemon:
        daemon.wait_for("cycle", job="cleanup")
        lines = plain(on_a_terminal(host.arguments("status"), columns=columns))
    tables = [line for title in ("Log dirs", "Last cycles") for line in section(lines, title)]
    assert max(map(len, tables)) <= columns
    assert any("/d1 " in line and "online" in line for line in tables), tables
    assert any(line.strip().startswith("cleanup") for line in tables), tables


def test_a_long_removal_shows_rate_and_time_left(host: Host) -> None:
    """Slowed down to some seconds."""
    large = host.d1 / host.find("labels-0.", "-stray")[0] / "00000000000000009000.log"
    large.write_bytes(os.urandom(3 << 20))
    settings = {**ALL_DUE, **NO_LIMITS, "delete.bytes_per_second": "1MiB"}
    host.with_assignments(**settings)
    text = on_a_terminal(host.arguments("cleanup", "--execute"), columns=80)
    frames = [line for line in re.split(r"[\r\n]", text) if "Removing" in line]
    assert any(
        re.search(r"Removing.* \d+% .*\d:\d\d:\d\d .*[\d.]+ [KM]iB, [\d.]+ [KM]iB/s", "".join(plain(f))) for f in frames
    ), text
    assert not large.exists()


def test_without_a_terminal_a_long_removal_says_a_line_a_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A day of removing into a log of cron's."""
    clock = [1000.0]
    monkeypatch.setattr("logagent.cleanup.session.of_command.time.monotonic", lambda: clock[0])
    call = Call(None, None, (), None, None, json=True, verbose=False, color=False)
    with Progress(call, "Removing", total=600 << 20) as progress:
        assert progress.on_bytes is not None
        for _ in range(600):
            clock[0] += 0.5
            progress.on_bytes(1, 1 << 20)
    said = capsys.readouterr()
    assert said.out == "" and said.err.splitlines() == [
        "Removing: 120.0 MiB of 600.0 MiB, 2.0 MiB/s, 4m left",
        "Removing: 240.0 MiB of 600.0 MiB, 2.0 MiB/s, 3m left",
        "Removing: 360.0 MiB of 600.0 MiB, 2.0 MiB/s, 2m left",
        "Removing: 480.0 MiB of 600.0 MiB, 2.0 MiB/s, 1m left",
        "Removing: 600.0 MiB of 600.0 MiB, 2.0 MiB/s",
    ]
