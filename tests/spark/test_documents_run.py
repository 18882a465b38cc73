"""The `logagent fleet` lines that README and docs show do what stands beside them, on a store at another place.

`logagent fleet demo` runs in `test_commands.py` (smaller) and for the page's tests.
"""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logagent.cli import run
from logagent.fleet.demo import Fleet
from tests.fleets.planted import generate
from tests.markdown import PAGES, blocks, name_of

STORE = "/mnt/logagent-fleet"


def lines() -> dict[str, list[str]]:
    """By page: the commands that work on a store, without their comments."""
    found: dict[str, list[str]] = {}
    for page in PAGES:
        for block in (b for b in blocks(page) if b.language == "bash"):
            shown = [line.partition(" #")[0].strip() for line in block.text.splitlines()]
            found.setdefault(name_of(page), []).extend(
                x for x in shown if x.startswith("logagent fleet ") and STORE in x
            )
    return {page: shown for page, shown in found.items() if shown}


def test_readme_and_the_how_to_show_them() -> None:
    assert {"README.md", "docs/how-to/fleet-report.md"} <= lines().keys()


def test_the_commands_of_the_pages_make_their_reports(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line once: a page shows those that another one shows, and others after them."""
    store = tmp_path / "store"
    store.mkdir()
    generate(
        store, Fleet(at=datetime.now(UTC) - timedelta(hours=1), clusters=1, hosts=3, partitions=60, days=1, broken=0.0)
    )
    monkeypatch.chdir(tmp_path)
    for line in dict.fromkeys(line for shown in lines().values() for line in shown):
        assert run(shlex.split(line.replace(STORE, str(store)))[1:]) == 0, line
        latest = tmp_path / "reports" / "latest"
        assert (latest / "index.html").is_file(), line
        assert json.loads((latest / "report.json").read_text())["hosts"]["reporting"] > 0, line
    capsys.readouterr()
