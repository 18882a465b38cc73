"""Every command that a page offers, pasted into a real shell: names from disks and hosts run nothing there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from logagent.fleet.page import render
from tests.browser import Open, follow
from tests.page.sample import sample

NAMES = (
    "$(touch hacked)", "`touch hacked`", "; touch hacked;", "'; touch hacked; '", '"; touch hacked; "',
    "a\ntouch hacked\n", "\x1b[201~\ntouch hacked\n", "| touch hacked", "& touch hacked &", "> hacked", "-rf", "*", "~",
    "!!", "a' $(touch hacked) 'b",
)  # fmt: skip
PLACE = "/srv/it's $(touch hacked) & more/reports"
FROM_DISKS = ("host", "log_dir", "name", "topic", "topic_id", "id")
LOGAGENT = """#!{python}
import json, sys
with open({out!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
"""
OPTIONS = {"--store", "--report", "--cluster", "--window", "--kind", "--topic", "--id", "--host", "--reason"}


def hostile(report: dict[str, Any], tables: dict[str, Any], cluster: str | None) -> str:
    """A page on which every second name is hostile; of clusters all where `cluster` is given."""
    number = iter(range(10**9))

    def change(row: dict[str, Any]) -> dict[str, Any]:
        at = next(number)
        evil = {key: NAMES[at % len(NAMES)] for key in FROM_DISKS if row.get(key) is not None and at % 2}
        return {**row, **evil, **({"cluster_id": cluster} if cluster and "cluster_id" in row else {})}

    made: Any = {name: {**table, "rows": [change(row) for row in table["rows"]]} for name, table in tables.items()}
    steps = [change(step) for step in report["answers"]["steps"]]
    clusters = [change(one) for one in report["clusters"][: 1 if cluster else None]]
    whole = {**report, "place": PLACE, "clusters": clusters, "answers": {**report["answers"], "steps": steps}}
    return render(whole, made)


def offered(page: Page, path: Path) -> set[str]:
    """What can be copied on the first screen and in every table, with rows picked and without."""
    found: set[str] = set()

    def collect() -> None:
        found.update(page.locator("button.copy").evaluate_all("all => all.map((one) => one.title)"))

    collect()
    for table in ("usage_hosts", "usage_log_dirs", "usage_topics", "directories", "directories?list=orphan"):
        page.goto(f"{path.as_uri()}#{table}")
        page.locator("#view .picked").wait_for(state="attached")
        collect()
    boxes = page.locator("#view td.pick input")
    for at in range(min(boxes.count(), 6)):
        boxes.nth(at).check()
        collect()
        boxes.nth(at).uncheck()
    follow(page.locator("#view tbody a").first)
    page.locator("#view .picked").wait_for(state="attached")
    collect()
    return found


def test_no_name_runs_anything_in_the_shell(open_page: Open, tmp_path: Path) -> None:
    here, shim, out = tmp_path / "here", tmp_path / "bin" / "logagent", tmp_path / "out"
    here.mkdir()
    shim.parent.mkdir()
    shim.write_text(LOGAGENT.format(python=sys.executable, out=str(out)))
    shim.chmod(0o755)
    commands: set[str] = set()
    for cluster in (None, NAMES[0]):
        path = tmp_path / "index.html"
        path.write_text(hostile(*sample(hosts=6, orphans=30), cluster), "utf-8")
        commands |= offered(open_page(path), path)
    assert len(commands) >= 5
    for command in sorted(commands):
        subprocess.run(
            ["bash", "-c", command],
            cwd=here,
            env={"PATH": f"{shim.parent}:{os.environ['PATH']}"},
            timeout=60,
            check=True,
        )
    assert os.listdir(here) == []
    ran = [json.loads(line) for line in out.read_text().splitlines()]
    for words in ran:
        if words[0] == "rescue":
            assert words[1:] == [] or (words[1] == "--log-dir" and re.fullmatch(r"/var/lib/kafka/data-[1-3]", words[2]))
            assert len(words) in (1, 3)
            continue
        assert words == ["cleanup"] or words[:2] == ["topics", "purge"], words
        assert set(words[2::2]) <= OPTIONS, words
        values = dict(zip(words[2::2], words[3::2], strict=True))
        assert words == ["cleanup"] or values.pop("--store") == "/srv/fleet", words
        assert (
            values.pop("--report", "/srv/it's $(touch hacked) & more/reports")
            == "/srv/it's $(touch hacked) & more/reports"
        )
        assert not [value for value in values.values() if "hacked" in value], words
