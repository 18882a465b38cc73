"""What an operator asked the page at three in the morning, and where it hesitated or misled: one test a finding."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from logagent.fleet.page import render
from logagent.fleet.page import words as units
from logagent.fleet.report.answers import steps
from tests.browser import Open, follow
from tests.page.fleet import GIB
from tests.page.sample import is_asked, sample
from tests.page.test_browser import column, show

PHONE = {"width": 400, "height": 800}


@pytest.fixture
def page(open_page: Open, fleet_page: Path) -> Page:
    return open_page(fleet_page)


def test_a_step_promises_what_its_window_gives_back(open_page: Open, tmp_path: Path) -> None:
    """A log dir that fills up: "frees 386 GiB now" was the sum with what only a restart gives back."""
    document, made = sample(hosts=3)
    place = {"cluster_id": "c", "node_id": 1, "host": "h", "used_share": 0.97}
    full = [{**place, "log_dir": "/a", "reclaim_now": 5 * GIB, "reclaim_restart": 2 * GIB}]
    full.append({**place, "log_dir": "/b", "reclaim_now": GIB, "reclaim_restart": 3 * GIB})
    document["answers"]["steps"] = steps(full, [], [], dict.fromkeys(("offline", "read_only", "no_copy"), 0))
    path = tmp_path / "index.html"
    path.write_text(render(document, made), "utf-8")
    page = open_page(path)
    expect(page.locator(".steps li").nth(0)).to_contain_text("h /a nearly full, frees 5.00 GiB now")
    expect(page.locator(".steps li").nth(1)).to_contain_text("h /b nearly full, frees 3.00 GiB at restart")


def test_each_cause_of_unknown_hosts_leads_to_its_hosts(page: Page) -> None:
    causes = sample()[0]["answers"]["risk"]["unknown"]
    for number, cause in enumerate(causes):
        follow(page.locator(".banner a").nth(number))
        expect(page.locator("#found")).to_contain_text(re.compile(rf"^{cause['hosts']} of "))
        assert set(column(page, "cause")) == {cause["cause"]}
        assert set(column(page, "finding")) == {"unknown-host"}


def test_an_offline_log_dir_says_since_when(page: Page) -> None:
    follow(page.locator("[data-answer=ill] a", has_text="offline"))
    expect(page.locator("#view h3")).to_be_focused()
    assert column(page, "since") == ["17 Nov 2026"]


def test_what_is_full_on_sunday_is_a_date(page: Page) -> None:
    rows = [r for r in sample()[1]["growth"]["rows"] if r["scope"] == "log_dir" and (r["days_to_full"] or 99) <= 30]
    soonest = min(rows, key=lambda row: row["days_to_full"])
    on = datetime.fromisoformat(soonest["last_date"]) + timedelta(days=round(soonest["days_to_full"]))
    listed = page.locator(".filling li").first
    expect(listed).to_contain_text(f"{on:%a} {on.day} {on:%b}, in {units.days(soonest['days_to_full'])}")
    follow(page.locator("[data-answer=full] a").last)
    expect(page.locator("#view h3")).to_be_focused()
    assert column(page, "full_on")[0] == units.day(f"{on:%Y-%m-%d}")


@pytest.mark.parametrize(
    ("hours", "said"), [(1, None), (25, None), (30, "more than a day old"), (60, "2 days old")], ids=str
)
def test_an_old_page_says_how_old_it_is(open_page: Open, tmp_path: Path, hours: int, said: str | None) -> None:
    document, made = sample(hosts=3)
    document["as_of"] = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
    path = tmp_path / "index.html"
    path.write_text(render(document, made), "utf-8")
    old = open_page(path).locator("header p b")
    expect(old).to_have_count(0 if said is None else 1)
    if said is not None:
        expect(old).to_have_text(said)


def test_other_copies_stand_beside_this_copy(page: Page) -> None:
    """Whether it is safe is read without scrolling sideways."""
    show(page, "directories")
    heads = page.locator("#view thead th").all_inner_texts()
    assert heads.index("Elsewhere") == heads.index("This copy") + 1
    box = page.locator("#view th[data-k=copies_elsewhere]").bounding_box()
    assert box is not None and box["x"] + box["width"] < 1280


def test_only_copies_say_before_that_they_need_approval(page: Page) -> None:
    follow(page.locator("[data-answer=approval] a"))
    page.locator("select[data-hold=cluster_id]").select_option("prod-1")
    page.get_by_role("button", name="Copy the command for these rows").click()
    expect(page.locator(".commandbar p")).to_contain_text("--approve")
    follow(page.locator("[data-answer=restart] a"))
    page.locator("select[data-hold=cluster_id]").select_option("prod-1")
    page.get_by_role("button", name="Copy the command for").click()
    expect(page.locator(".commandbar p")).not_to_contain_text("--approve")


def test_rows_without_a_command_do_not_take_it_from_the_others(page: Page) -> None:
    """Deletions that a broker marked itself are among those of the next restart; `topics purge` is not for them."""
    follow(page.locator("[data-answer=restart] a"))
    page.locator("select[data-hold=cluster_id]").select_option("prod-1")
    made = sample()[1]
    rows = [*made["orphans"]["rows"], *(r for r in made["leftovers"]["rows"] if r["why"] != "abandoned")]
    mine = [r for r in rows if r["window"] == "restart" and r["cluster_id"] == "q8nXh2tPTfW3m0cVbL5RyA"]
    able = {r["id"] for r in mine if is_asked(r)}
    assert 0 < len(able) < len(mine)
    page.get_by_role("button", name=f"Copy the command for {len(able)} of these rows").click()
    words = shlex.split(page.get_by_role("textbox", name="The command").input_value())
    assert set(words[words.index("--id") + 1].split(",")) == able


def test_a_link_that_sorts_says_so(page: Page) -> None:
    follow(page.locator("p.new a", has_text="Orphans, youngest first").first)
    expect(page.locator("#found")).to_contain_text("Sorted by Age.")


def test_a_searched_host_is_one_view_and_one_key_away(page: Page) -> None:
    """After Enter the focus is on the results, and each row has the figures that tell which one to open."""
    page.keyboard.press("/")
    page.keyboard.type("kafka-a-1001")
    page.keyboard.press("Enter")
    expect(page.locator("#view h3")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator(".hits h4 a").first).to_be_focused()
    row = next(r for r in sample()[1]["usage_hosts"]["rows"] if r["host"].startswith("kafka-a-1001"))
    hosts = page.locator(".hits").first
    expect(hosts).to_contain_text(f"Full {units.percent(row['used_share'])}")
    expect(hosts).to_contain_text(f"Free {units.size(row['free'])}")


def test_the_command_is_reached_before_the_table(page: Page) -> None:
    """By keyboard forty cells stood before it; Escape puts the bar away."""
    follow(page.locator(".steps a[href*=usage_log_dirs]").last)
    expect(page.locator("#view h3")).to_be_focused()
    for _ in range(12):
        page.keyboard.press("Tab")
        if "Copy the command" in page.evaluate("document.activeElement.textContent"):
            break
    page.keyboard.press("Enter")
    bar = page.get_by_role("textbox", name="The command")
    expect(bar).to_have_value("logagent cleanup")
    page.keyboard.press("Escape")
    expect(bar).to_be_hidden()


def _host(page: Page) -> None:
    follow(page.locator(".steps a[href*=usage_log_dirs]").last)


def _search(page: Page) -> None:
    page.get_by_role("searchbox", name="Search everything").fill("kafka-a-1001")
    page.keyboard.press("Enter")


@pytest.mark.parametrize("view", [_host, _search], ids=["host", "search"])
def test_a_telephone_never_scrolls_sideways(open_page: Open, tmp_path: Path, view: Callable[[Page], None]) -> None:
    """The command's button has a host's whole name in it."""
    path = tmp_path / "index.html"
    report: Any = sample()
    path.write_text(render(*report), "utf-8")
    page = open_page(path, viewport=PHONE)
    view(page)
    expect(page.locator("#view h3")).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    inside = "[...document.querySelectorAll('#view *')].filter((e) => !e.closest('.scroll') && !e.closest('nav')"
    wide = page.evaluate(f"{inside} && e.getBoundingClientRect().right > {PHONE['width']}).map((e) => e.outerHTML)")
    assert wide == []


def test_one_row_is_one_row(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    show(page, "duplicates")
    expect(page.locator("#found")).to_contain_text(re.compile(r"^1 row, "))
