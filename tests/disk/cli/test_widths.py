"""What an operator sees on a terminal of 80 and of 200 columns: every directory, told from the others, on its line."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cli_host import ALL_DUE, NO_LIMITS, CliHost
from tests.daemon_process import DaemonProcess
from tests.terminal import on_a_terminal, plain

WIDTHS = (80, 200)
LONG = "plant.north-line.sensors.temperature.raw.readings.by-minute.of-the-{}-hall.kept-for-a-year"


@pytest.fixture
def host(tmp_path: Path) -> CliHost:
    made = CliHost(tmp_path)
    made.with_assignments(**{**ALL_DUE, **NO_LIMITS})
    return made


def section(lines: list[str], title: str) -> list[str]:
    """The rows of a table, from its heading to the empty line after it; of those that take two lines, the first."""
    start = next(at for at, line in enumerate(lines) if line.startswith(title))
    rest = lines[start + 4 :]
    return [line for line in rest[: rest.index("")] if not line.startswith("  ")]


@pytest.mark.parametrize("columns", WIDTHS)
def test_scan_shows_every_directory_apart_from_the_others(host: CliHost, columns: int) -> None:
    """Names of 87 characters that differ in the middle: what is left out is where they are the same."""
    for hall in ("east", "west", "upper", "lower"):
        (host.d1 / f"{LONG.format(hall)}-0").mkdir()
    lines = plain(on_a_terminal(host.arguments("scan", "--all"), columns=columns))
    # The path of a log dir is never cut: who copies it wants it whole.
    whole = (str(host.d1), str(host.d2), "share one file system: what is free or unexplained there is shown once")
    assert max(len(line) for line in lines if not line.endswith(whole)) <= columns
    names = [entry.name for log_dir in (host.d1, host.d2) for entry in log_dir.iterdir() if entry.is_dir()]
    rows = section(lines, "Directories")
    assert len(rows) == len(names)
    shown = [row.split()[0] for row in rows]
    assert len(set(shown)) == len(shown), "no two look alike"
    assert not any("……" in one for one in shown)
    assert {hall for hall in ("east", "west", "upper", "lower") if any(hall in one for one in shown)} == {
        "east", "west", "upper", "lower",
    }  # fmt: skip


@pytest.mark.parametrize("columns", WIDTHS)
def test_cleanup_shows_what_goes_and_how_much(host: CliHost, columns: int) -> None:
    lines = plain(on_a_terminal(host.arguments("cleanup"), columns=columns))
    assert max(map(len, lines)) <= columns
    rows = section(lines, "Plan ")
    # Those of partitions that live on other nodes are refused: nobody can be asked whether they have all of them.
    strays = [name for name in host.find("", "-stray") if not name.startswith(("invoices-", "orders-"))]
    shown = [row for row in rows if row.startswith(" remove") and "-stray" in row]
    assert len(shown) == len(strays) and len({row.split()[1] for row in shown}) == len(strays)
    assert all(re.search(r"\d [KM]?i?B", row) for row in shown), "its size is on the line"
    assert any("; add --execute" in line for line in lines)


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_tables_of_status_fit_the_terminal(host: CliHost, columns: int) -> None:
    with DaemonProcess(host.root, "--config", host.toml, "--state-dir", host.state) as daemon:
        daemon.wait_for("cycle", job="cleanup")
        lines = plain(on_a_terminal(host.arguments("status"), columns=columns))
    tables = [line for title in ("Log dirs", "Last cycles") for line in section(lines, title)]
    assert max(map(len, tables)) <= columns
    assert any("/d1 " in line and "online" in line for line in tables)
    assert any(line.strip().startswith("cleanup") for line in tables)


def test_a_long_removal_shows_rate_and_time_left(host: CliHost) -> None:
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
