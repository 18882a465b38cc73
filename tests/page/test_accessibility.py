"""axe-core finds nothing to object to: labels, roles, names, order, contrast."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from logagent.fleet.page import render
from tests.browser import Open, follow
from tests.long_form import one_in
from tests.page.sample import empty, sample
from tests.page.test_render import HOSTILE, altered


def violations(page: Any, axe: str) -> list[str]:
    """What axe-core objects to, each with the first elements concerned. All of its rules, best practices included."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert found["passes"]
    return [
        f"{item['id']}: {item['help']} {json.dumps([node['html'][:160] for node in item['nodes'][:3]])}"
        for item in found["violations"]
    ]


@pytest.mark.parametrize(
    ("width", "scheme"), one_in(3, [(1400, "light"), (1400, "dark"), (400, "light"), (400, "dark")])
)
def test_no_violation_in_either_theme_and_width(
    open_page: Open, small_page: Path, axe: str, scheme: str, width: int
) -> None:
    page = open_page(small_page, color_scheme=scheme, viewport={"width": width, "height": 900})
    follow(page.locator("[data-answer=restart] a"))
    expect(page.locator("#found")).to_be_visible()
    page.locator(".steps button").first.click()
    assert violations(page, axe) == []


@pytest.mark.parametrize("table", ["usage_hosts", "usage_topics", "growth", "log_dir_health", "search?q=kafka"])
def test_no_violation_in_the_tables(open_page: Open, small_page: Path, axe: str, table: str) -> None:
    page = open_page(small_page)
    page.goto(small_page.as_uri() + f"#{table}")
    expect(page.locator("#found")).to_be_visible()
    assert violations(page, axe) == []


def test_no_violation_with_filters_set_and_hostile_names(open_page: Open, tmp_path: Path, axe: str) -> None:
    path = tmp_path / "hostile.html"
    number = iter(range(10**9))
    few: Any = sample(hosts=6, orphans=8)
    for table in few[1].values():
        table["rows"] = table["rows"][:8]
    path.write_text(render(*altered(few, lambda _: HOSTILE[next(number) % len(HOSTILE)])), "utf-8")
    page = open_page(path)
    follow(page.locator(".steps a").first)
    page.get_by_label("Filter rows").fill("no such row")
    expect(page.locator("#view .empty")).to_be_visible()
    assert violations(page, axe) == []


def test_no_violation_on_an_empty_report(open_page: Open, tmp_path: Path, axe: str) -> None:
    path = tmp_path / "empty.html"
    path.write_text(render(*empty()), "utf-8")
    assert violations(open_page(path), axe) == []


TAB_STOPS = """() => {
    const one = document.activeElement, box = one.getClientRects()[0];  // of a link over two lines the first
    const part = one.closest("header, .panel"), whole = (part ?? one).getBoundingClientRect();
    let scrolled = 0;
    for (let each = one; each; each = each.parentElement) scrolled += each.scrollLeft;
    return { part: part ? part.id || part.tagName : "page", label: one.textContent.slice(0, 40),
        isTable: one.matches(".scroll"), top: box.top + scrollY, bottom: box.bottom + scrollY,
        left: box.left + scrolled, partTop: whole.top + scrollY, partLeft: whole.left };
}"""


@pytest.mark.parametrize("width", [1400, 400])
def test_the_tab_key_goes_the_way_that_is_seen(open_page: Open, small_page: Path, width: int) -> None:
    """With nothing but the keyboard, from the first stop to the table: from panel to panel as they are read, down in
    each, left to right in a line."""
    page = open_page(small_page, viewport={"width": width, "height": 900})
    page.evaluate("document.body.focus()")
    stops: list[Any] = []
    for _ in range(400):
        page.keyboard.press("Tab")
        stops.append(page.evaluate(TAB_STOPS))
        if stops[-1]["isTable"]:
            break
    stops = stops[1:]  # the link over all that is only there while it has the focus
    assert len(stops) > 40 and {"disks", "reclaim", "risk", "next"} <= {stop["part"] for stop in stops}
    wrong = []
    for before, stop in pairwise(stops):
        if before["part"] == stop["part"]:
            follows = stop["top"] >= before["bottom"] - 8 or (
                stop["left"] > before["left"] and stop["bottom"] > before["top"]
            )
        else:
            follows = (stop["partTop"], stop["partLeft"]) > (before["partTop"], before["partLeft"])
        if not follows:
            wrong.append((before, stop))
    assert wrong == []


def test_the_panels_follow_a_window_that_is_made_narrow(open_page: Open, small_page: Path) -> None:
    """And the focus stays where it was."""
    page = open_page(small_page, viewport={"width": 1400, "height": 900})
    order = "() => [...document.querySelectorAll('.panel')].map((one) => one.id)"
    assert page.evaluate(order) == ["disks", "reclaim", "risk", "next"]
    page.locator("#disks a").first.focus()
    page.set_viewport_size({"width": 400, "height": 900})
    page.wait_for_function("document.querySelector('.panel').id === 'risk'")
    assert page.evaluate(order) == ["risk", "reclaim", "disks", "next"]
    assert page.evaluate("document.activeElement.closest('.panel')?.id") == "disks"
