"""Every number of the first screen that is a link opens exactly its rows: as many, and with these bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from logagent.fleet.page import render
from tests.browser import Open, follow
from tests.long_form import FULL
from tests.page.figures import follow_figures
from tests.page.sample import sample
from tests.page.test_browser import column
from tests.page.test_first_screen import FLEETS

# With `tests/run --full` also the fleet whose figures nobody can count by eye.
MADE = dict(FLEETS)
if FULL:
    MADE["large"] = lambda: sample(clusters=40, hosts=2000, orphans=20_000)


@pytest.mark.parametrize("name", sorted(MADE))
def test_every_number_that_is_a_link_opens_its_rows(name: str, open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    path.write_text(render(*MADE[name]()), "utf-8")
    page = open_page(path, viewport={"width": 1400, "height": 1000})
    followed = follow_figures(page)
    assert followed >= (1 if name == "healthy" else 12), followed


@pytest.mark.parametrize("table", ["usage_clusters", "usage_hosts", "usage_log_dirs"])
def test_the_numbers_of_a_table_open_their_rows(table: str, open_page: Open, tmp_path: Path) -> None:
    """Orphans are orphans alone, and bytes of a window those of it."""
    report, tables = sample(hosts=6, orphans=60)
    place = ("cluster_id", "node_id", "log_dir")
    key = place[: ("usage_clusters", "usage_hosts", "usage_log_dirs").index(table) + 1]
    for row in tables[table]["rows"]:
        mine = [one for one in tables["orphans"]["rows"] if all(one[name] == row[name] for name in key)]
        row["orphans"] = len(mine)
    path = tmp_path / "index.html"
    path.write_text(render(report, tables), "utf-8")
    page = open_page(path)
    for name, window in (("orphans", ""), ("reclaim_now", "now"), ("reclaim_restart", "restart")):
        page.goto(f"{path.as_uri()}#{table}")
        expect(page.locator("#view[aria-busy]")).to_have_count(0)
        shown = [text for text in column(page, name) if text not in ("0", "0 B")]
        assert shown, name
        link = page.locator("#view tbody tr:not(.room)").locator(f"td:nth-child({_at(page, name)}) a").first
        said = link.inner_text()
        follow(link)
        found = page.locator("#found").inner_text()
        assert found.startswith(f"{said} of ") if not window else f", {said}." in found, (said, found)


def _at(page: Page, name: str) -> int:
    script = """(key) => [...document.querySelectorAll('#view thead tr > *')].findIndex((h) => h.dataset.k === key)"""
    return int(page.evaluate(script, name)) + 1


def test_what_has_no_window_is_a_filter_too(open_page: Open, tmp_path: Path) -> None:
    """The topics of a log dir lead to their directories by window, also where there is none."""
    report, tables = sample(hosts=3, orphans=20)
    for row in tables["orphans"]["rows"]:
        row["window"] = None
    path = tmp_path / "index.html"
    path.write_text(render(report, tables), "utf-8")
    page = open_page(path)
    page.goto(f"{path.as_uri()}#places")
    expect(page.locator("#view[aria-busy]")).to_have_count(0)
    link = page.locator("#view tbody a[href*='window=']").first
    wanted = link.inner_text()
    follow(link)
    expect(page.locator("#found")).to_contain_text(re.compile(rf"^{wanted} of "))
