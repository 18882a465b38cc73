"""Picks are in the address, filters fold on a telephone, words are explained, the cluster stands second, and paper has
every column."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from logagent.fleet.page.columns import LAYOUT
from tests.browser import Open
from tests.page.test_at_night import PHONE
from tests.page.test_browser import column, show


def picked(page: Page) -> list[str]:
    script = "() => [...document.querySelectorAll('#view td.pick input:checked')].map((one) => one.ariaLabel)"
    return sorted(page.evaluate(script))


def test_picks_are_in_the_address(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    show(page, "directories")
    boxes = page.locator("#view td.pick input")
    for at in (0, 3):
        boxes.nth(at).check()
    command = page.get_by_role("button", name="Copy the command for them").get_attribute("title")
    chosen = picked(page)
    assert len(chosen) == 2 and "picked=" in page.url
    other = open_page(fleet_page)
    other.goto(page.url)
    other.reload()
    expect(other.locator("#view .picked")).to_contain_text("2 picked")
    assert picked(other) == chosen
    assert other.get_by_role("button", name="Copy the command for them").get_attribute("title") == command
    other.get_by_role("button", name="Pick none").click()
    assert "picked=" not in other.url and picked(other) == []


def test_a_pick_survives_a_filter(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    show(page, "directories")
    page.locator("#view td.pick input").first.check()
    page.get_by_label("Filter rows").fill("no such thing")
    expect(page.locator("#view .picked")).to_contain_text("1 picked")
    assert "picked=" in page.url


def test_filters_are_folded_on_a_telephone_and_stay_as_the_reader_left_them(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page, viewport=PHONE)
    page.goto(f"{fleet_page.as_uri()}#directories")
    select = page.locator("select[data-hold=reason]")
    expect(page.locator("#view table")).to_be_visible()
    expect(select).to_be_hidden()
    page.get_by_text("More filters").click()
    select.select_option("topic-recreated")
    expect(page.locator("#found")).to_contain_text(" of ")
    expect(select).to_be_visible()
    wide = open_page(fleet_page)
    wide.goto(f"{fleet_page.as_uri()}#directories")
    expect(wide.locator("select[data-hold=reason]")).to_be_visible()
    expect(wide.get_by_text("More filters")).to_be_hidden()


@pytest.mark.parametrize("table", ["directories", "usage_log_dirs", "growth"])
def test_the_first_row_is_in_the_upper_half_of_a_telephone(open_page: Open, fleet_page: Path, table: str) -> None:
    """It was 660 px down; what the table shows is one touch away."""
    page = open_page(fleet_page, viewport=PHONE)
    page.goto(f"{fleet_page.as_uri()}#{table}")
    expect(page.locator("#found")).to_be_visible()
    top = page.locator("#browse").bounding_box()
    row = page.locator("#view tbody tr:not(.room)").first.bounding_box()
    assert top is not None and row is not None and row["y"] - top["y"] <= PHONE["height"] / 2
    expect(page.locator("#view .lead")).to_be_hidden()
    page.get_by_text("What is this").click()
    expect(page.locator("#view .lead")).to_be_visible()


def test_a_telephone_shows_more_than_the_name(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page, viewport=PHONE)
    page.goto(f"{fleet_page.as_uri()}#usage_log_dirs")
    expect(page.locator("#found")).to_be_visible()
    expect(page.locator("#view tbody td.first").first).to_be_visible()
    first = page.locator("#view tbody td.first").first.bounding_box()
    assert first is not None and first["width"] <= 0.45 * PHONE["width"]


def test_a_row_of_a_log_dir_is_known_by_its_host(open_page: Open, fleet_page: Path) -> None:
    """Log dirs are called the same everywhere. Rows of one name after each other are a group: it is told once."""
    page = open_page(fleet_page)
    show(page, "usage_log_dirs")
    assert page.locator("#view thead th").all_inner_texts()[:3] == ["Host", "Cluster", "Log dir"]
    page.locator("#view th[data-k=host] button").click()
    expect(page.locator("#view th[data-k=host]")).to_have_attribute("aria-sort", "ascending")
    names = column(page, "host")
    again = page.locator("#view tbody td.first").evaluate_all("all => all.map((one) => one.matches('.again'))")
    assert again == [at > 0 and names[at - 1] == name for at, name in enumerate(names)] and True in again
    show(page, "growth")
    assert not [text for text in column(page, "what") if text.startswith("/")]


def test_the_address_of_a_search_shows_what_it_found(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    page.goto(f"{fleet_page.as_uri()}#search?q=kafka-a-1001")
    page.reload()
    expect(page.get_by_role("heading", name="Everything with")).to_be_in_viewport()
    expect(page.locator(".hits h4 a").first).to_be_in_viewport()


@pytest.mark.parametrize("table", LAYOUT)
def test_paper_has_every_column(open_page: Open, fleet_page: Path, table: str) -> None:
    """The last fifteen of log dirs were cut off."""
    page = open_page(fleet_page, viewport={"width": 1032, "height": 720})
    show(page, table)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    script = """(end) => [...document.querySelectorAll('#view thead th, #view tbody tr:nth-child(2) td:not(.pick)')]
        .filter((one) => one.getBoundingClientRect().right > end + 1 || one.scrollWidth > one.clientWidth + 1)
        .map((one) => one.textContent)"""
    box = page.locator("#view .scroll").bounding_box()
    assert box is not None
    assert page.evaluate(script, box["x"] + box["width"]) == []
    # A word of ours is not broken ("enforc/e"); a name from a disk may be.
    broken = """() => [...document.querySelectorAll('#view td:not(.m)')].flatMap((cell) => {
        const text = [...cell.childNodes].find((one) => one.nodeType === 3);
        const words = text?.data.matchAll(/[a-z]+/gi) ?? [];
        return [...words].filter((word) => {
            const range = document.createRange();
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            return range.getClientRects().length > 1;
        }).map((word) => word[0]);
    })"""
    assert page.evaluate(broken) == []
    rows = page.locator("#view tbody tr:not(.room)")
    assert rows.count() <= 60
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator("#view .onpaper")).to_have_count(0)


def test_the_windows_are_explained_where_they_stand(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    for label, meaning in (
        ("Now", "host would remove it"),
        ("Only with approval", "only copy"),
        ("Not yet due", "over"),
    ):
        words = page.locator("#reclaim li > span", has_text=re.compile(f"^{label}$"))
        assert meaning in (words.get_attribute("title") or ""), label
    expect(page.locator("#reading dt", has_text="When")).to_be_visible()


def test_words_are_explained_where_they_stand(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    show(page, "directories")
    for word, meaning in (
        ("only copy", "no other copy"),
        ("topic-recreated", "another id"),
        ("at restart", "next start"),
    ):
        cell = page.locator("#view tbody td", has_text=word).first
        assert meaning in (cell.get_attribute("title") or ""), word


def test_the_cluster_stands_second_where_there_are_several(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    for table in ("usage_hosts", "usage_log_dirs", "usage_topics", "directories", "growth"):
        show(page, table)
        heads = page.locator("#view thead th").all_inner_texts()
        assert heads[1] == "Cluster", table
