"""What agents did, on the page: the figure "cleared" opens the removals that it counts, by mouse and by keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from logagent.fleet.page import render
from logagent.fleet.page.first_screen import cleared_words
from logagent.fleet.page.words import size
from tests.browser import Open
from tests.page.sample import sample
from tests.page.test_browser import column


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_cleared_opens_the_removals_that_it_counts(width: int, scheme: Any, open_page: Open, tmp_path: Path) -> None:
    report, tables = sample()
    path = tmp_path / "index.html"
    path.write_text(render(report, tables), "utf-8")
    page = open_page(path, viewport={"width": width, "height": 900}, color_scheme=scheme)
    for at, change in enumerate(report["answers"]["changes"]):
        acts = change["by_agents"]
        link = page.locator("p.new a[href^='#audit']").nth(at)
        assert link.inner_text() == f"{acts['dirs']} dirs ({size(acts['bytes'])})"
        link.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#found")).to_contain_text(f"{acts['dirs']} of 40 rows, {size(acts['bytes'])}.")
        assert set(column(page, "action")) == {"remove"} and set(column(page, "outcome")) == {"done"}
        expect(page.locator(".chips")).to_contain_text("Since from")
        expect(page.locator("#view h3")).to_be_focused()
    # All of them, sorted by who did it, with the keyboard alone.
    page.locator("#browse > nav a[href='#audit']").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_contain_text("40 rows, newest first")
    page.locator("#view th button", has_text="By").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_contain_text("by By")
    expect(page.locator("#view .lead")).to_contain_text("What 2 agents did is not known")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_no_agent_says_stands_beside_the_figure() -> None:
    acts = {"dirs": 0, "bytes": 0, "otherwise": 0, "otherwise_bytes": 0, "unknown_hosts": 0, "left_out": 0}
    change = {"date": "2026-11-19", "by_agents": acts}
    assert cleared_words(change, link_rows=True) == "cleared by agents 0 dirs (0 B), otherwise 0 dirs (0 B)"
    acts |= {"dirs": 2, "bytes": 1024}
    assert cleared_words(change) == "cleared by agents 2 dirs (1.00 KiB)"
    acts |= {"otherwise": 1, "otherwise_bytes": 512, "unknown_hosts": 3, "left_out": 1}
    assert cleared_words(change) == (
        "cleared by agents 2 dirs (1.00 KiB), otherwise 1 dir (512 B); what 3 agents did is not known in full,"
        " 1 act left out"
    )
