"""axe-core and sample pages for the tests of the page."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from logagent.fleet.page import render
from tests.needs import missing, need_command
from tests.page.sample import sample

AXE = "4.14.1"
# axe-core's own source, once fetched, stays here.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "logagent-tests" / f"axe-core-{AXE}"


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, from the npm registry or the cache."""
    source = CACHE / "node_modules" / "axe-core" / "axe.min.js"
    if not source.exists():
        need_command("npm")
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--prefix", str(CACHE), "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run([*command, f"axe-core@{AXE}"], capture_output=True, text=True, timeout=120, check=False)
        if not source.exists():
            missing(f"axe-core {AXE} (npm said: {done.stderr.strip()[-300:]})")
    return source.read_text("utf-8")


@pytest.fixture(scope="session")
def fleet_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a made-up fleet of 36 hosts, as a file."""
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(render(*sample()), "utf-8")
    return path


@pytest.fixture(scope="session")
def small_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every part of the page with a few rows each: axe-core looks at every element, and takes its time."""
    report, tables = sample()
    for table in tables.values():
        table["rows"] = table["rows"][:8]
    path = tmp_path_factory.mktemp("page") / "small.html"
    path.write_text(render(report, tables), "utf-8")
    return path
