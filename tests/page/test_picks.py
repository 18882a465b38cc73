"""Picks are in the address, filters fold on a telephone, words are explained, and the cluster stands second."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.page.conftest import Open
from tests.page.test_at_night import PHONE
from tests.page.test_browser import show


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
