"""The page in a real browser: sorting, filters, links, keyboard, themes, paper, no script, hostile names, size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from logagent.fleet.page import render
from tests.page.conftest import Open
from tests.page.sample import sample
from tests.page.test_render import HOSTILE, altered


def column(page: Page, table: str, at: int) -> list[str]:
    """The texts of a column's visible cells."""
    script = (
        "([table, at]) => [...document.querySelectorAll(`#t-${table} tbody tr:not([hidden])`)]"
        ".map((row) => row.cells[at].textContent)"
    )
    return list(page.evaluate(script, [table, at]))


def exact_bytes(page: Page, table: str, at: int) -> list[int]:
    script = (
        "([table, at]) => [...document.querySelectorAll(`#t-${table} tbody tr:not([hidden])`)]"
        ".map((row) => row.cells[at].querySelector('[title]')?.title || row.cells[at].textContent)"
    )
    texts = page.evaluate(script, [table, at])
    return [int(text.split(" ")[0].replace(",", "")) for text in texts]


def section(page: Page, name: str) -> Locator:
    found = page.locator(f"#{name}")
    found.scroll_into_view_if_needed()
    return found


def test_sorting_by_number_turns_around_and_goes_back(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    orphans = section(page, "orphans")
    given = column(page, "orphans", 0)
    seen = orphans.get_by_role("button", name="Bytes", exact=True)
    head = orphans.get_by_role("columnheader", name="Bytes", exact=True)
    seen.click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert exact_bytes(page, "orphans", 1) == sorted(exact_bytes(page, "orphans", 1), reverse=True)
    seen.click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert exact_bytes(page, "orphans", 1) == sorted(exact_bytes(page, "orphans", 1))
    expect(page.locator("#status")).to_have_text("Sorted by Bytes, ascending.")
    seen.click()
    assert head.get_attribute("aria-sort") is None
    assert column(page, "orphans", 0) == given


def test_what_has_no_figure_stays_last_both_ways(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    button = section(page, "growth").get_by_role("button", name="Full in")
    for _ in range(2):
        button.click()
        values = column(page, "growth", 1)
        figures = values[: values.index("–")]
        assert figures and set(values[len(figures) :]) == {"–"}


def test_filters_narrow_and_say_how_many(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    orphans = section(page, "orphans")
    orphans.get_by_label("Reason").select_option("topic-recreated")
    chosen = column(page, "orphans", 3)
    assert set(chosen) == {"topic-recreated"}
    expect(orphans.locator(".found")).to_have_text(f"{len(chosen)} of 140 rows")
    orphans.get_by_label("Filter rows").fill("ONLY  kafka-a")
    both = column(page, "orphans", 2)
    assert 0 < len(both) < len(chosen) and set(both) == {"only copy"}
    orphans.get_by_label("Filter rows").fill("no such thing")
    expect(orphans.get_by_text("No row matches.")).to_be_visible()
    orphans.get_by_label("Filter rows").fill("")
    orphans.get_by_label("Reason").select_option("all")
    assert len(column(page, "orphans", 0)) == 140
    expect(orphans.locator(".found")).to_have_text("")


def test_a_host_leads_to_its_log_dirs_and_a_filter_can_be_taken_off(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    row = section(page, "usage_hosts").locator("tbody tr").nth(2)
    host = row.locator("th").text_content()
    row.locator("td a[href='#usage_log_dirs']").click()
    expect(page.locator("#h-usage_log_dirs")).to_be_focused()
    assert set(column(page, "usage_log_dirs", 0)) == {host}
    assert len(column(page, "usage_log_dirs", 0)) == 3
    expect(page.locator("#t-usage_log_dirs")).to_be_in_viewport()
    page.locator("#usage_log_dirs").get_by_role("button", name="Remove the filter Node").click()
    assert len(column(page, "usage_log_dirs", 0)) > 3


def test_links_from_bars_and_the_address_filter_too(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    bar = section(page, "usage_log_dirs").locator(".bars a").first
    host, _, log_dir = str(bar.text_content()).partition(": ")
    bar.click()
    expect(page.locator("#h-usage_log_dirs")).to_be_focused()
    assert (column(page, "usage_log_dirs", 0), column(page, "usage_log_dirs", 1)) == ([host], [log_dir])
    again = open_page(fleet_page)
    again.goto(page.url)
    again.reload()
    assert (column(again, "usage_log_dirs", 0), column(again, "usage_log_dirs", 1)) == ([host], [log_dir])


def test_the_keyboard_is_enough(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the report")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    button = section(page, "orphans").get_by_role("button", name="Age", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#t-orphans th[data-k=age_seconds]")).to_have_attribute("aria-sort", "descending")
    bar = section(page, "usage_log_dirs").locator(".bars a").first
    bar.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#h-usage_log_dirs")).to_be_focused()
    assert len(column(page, "usage_log_dirs", 0)) == 1


def test_every_scrolling_table_takes_the_focus(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    for box in page.locator(".scroll").all():
        assert box.get_attribute("tabindex") == "0"
        assert box.get_attribute("aria-label")


def test_the_theme_is_the_systems_until_the_reader_chooses(open_page: Open, fleet_page: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = open_page(fleet_page, color_scheme="light")
    dark = open_page(fleet_page, color_scheme="dark")
    assert light.evaluate(ground) != dark.evaluate(ground)
    button = dark.get_by_role("button", name="Theme: system")
    button.click()
    assert dark.evaluate(ground) == light.evaluate(ground)
    dark.get_by_role("button", name="Theme: light").click()
    light.get_by_role("button", name="Theme: system").click()
    light.get_by_role("button", name="Theme: light").click()
    light.reload()
    expect(light.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert light.evaluate(ground) == dark.evaluate(ground)


def test_without_script_everything_is_there_and_nothing_is_dead(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page, java_script_enabled=False)
    assert page.locator("button, input, select").count() == 0
    assert page.locator("#t-orphans tbody tr").count() == 140
    page.locator("nav a[href='#orphans']").click()
    expect(page.locator("#h-orphans")).to_be_in_viewport()


@pytest.mark.parametrize("width", [360, 768])
def test_narrow_screens_scroll_tables_and_not_the_page(open_page: Open, fleet_page: Path, width: int) -> None:
    page = open_page(fleet_page, viewport={"width": width, "height": 800})
    page.evaluate("document.querySelectorAll('section').forEach((s) => { s.style.contentVisibility = 'visible'; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_paper_has_no_controls_and_says_what_it_leaves_out(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    expect(page.locator("nav")).to_be_hidden()
    expect(page.locator("#orphans .tools")).to_be_hidden()
    expect(page.locator("#t-orphans tbody tr").nth(59)).to_be_visible()
    expect(page.locator("#t-orphans tbody tr").nth(60)).to_be_hidden()
    expect(page.locator("#orphans .onpaper")).to_have_text("On paper: the first 60 rows and the first 12 columns.")


@pytest.mark.parametrize("hosts", [6, 40])
def test_hostile_names_do_not_run_in_a_browser(open_page: Open, tmp_path: Path, hosts: int) -> None:
    path = tmp_path / "hostile.html"
    report: Any = sample(hosts=hosts)
    number = iter(range(10**9))
    path.write_text(render(*altered(report, lambda _: HOSTILE[next(number) % len(HOSTILE)])), "utf-8")
    page = open_page(path)
    page.get_by_role("button", name="Bytes", exact=True).first.click()
    inputs = page.get_by_label("Filter rows")
    inputs.first.fill("script")
    for link in page.locator("main a[data-q]:visible").all()[:5]:
        link.click()
    page.reload()
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("img, iframe").count() == 0
    assert page.locator("body script").count() == 1


def test_a_very_large_fleet_can_be_sorted_and_filtered(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "large.html"
    path.write_text(render(*sample(hosts=10_000, orphans=100_000)), "utf-8")
    assert path.stat().st_size <= 3_000_000
    page = open_page(path)
    orphans = section(page, "orphans")
    rows = len(column(page, "orphans", 0))
    assert rows > 500
    orphans.get_by_role("button", name="Age", exact=True).click()
    orphans.get_by_label("Filter rows").fill("only data-2")
    matching = column(page, "orphans", 2)
    assert 0 < len(matching) < rows and set(matching) == {"only copy"}
    orphans.get_by_label("Filter rows").fill("on no host of this page")
    expect(orphans.get_by_text(f"None of the {rows:,} rows shown matches. The table has 100,000 rows")).to_be_visible()


def test_a_report_of_nothing_has_no_dead_control(open_page: Open, tmp_path: Path) -> None:
    from tests.page.sample import empty

    path = tmp_path / "empty.html"
    path.write_text(render(*empty()), "utf-8")
    page = open_page(path)
    expect(page.get_by_role("heading", name="No host reported")).to_be_visible()
    assert page.locator("input, select").count() == 0
