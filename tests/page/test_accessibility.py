"""axe-core finds nothing to object to: labels, roles, names, order, contrast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from logagent.fleet.page import render
from tests.long_form import one_in
from tests.page.conftest import Open, follow
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
