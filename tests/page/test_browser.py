"""The tables in a real browser: sorting, filters, drill-down, search, addresses, keyboard, commands, paper, size."""

from __future__ import annotations

import json
import random
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from logagent.fleet.page import render
from logagent.fleet.page import words as units
from tests.browser import Open, follow
from tests.long_form import FULL
from tests.page.sample import empty, sample
from tests.page.test_render import HOSTILE, altered

VIEW = "#view tbody tr:not(.room)"


def column(page: Page, key: str) -> list[str]:
    """The texts of a column's cells, of the rows that are drawn."""
    script = """(key) => {
        const at = [...document.querySelectorAll('#view thead tr > *')].findIndex((head) => head.dataset.k === key);
        return [...document.querySelectorAll('#view tbody tr:not(.room)')].map((row) => row.cells[at].textContent);
    }"""
    return list(page.evaluate(script, key))


def show(page: Page, table: str) -> None:
    link = page.locator(f"#browse nav a[href='#{table}']").first  # the tables come before the way back
    if link.get_attribute("aria-current") is None:
        follow(link)
    expect(link).to_have_attribute("aria-current", "page")


def test_sorting_by_number_turns_around_and_goes_back(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    show(page, "usage_hosts")
    given = column(page, "host")
    head = page.locator("#view th[data-k=used]")
    for direction, reverse in (("descending", True), ("ascending", False)):
        head.get_by_role("button").click()
        expect(head).to_have_attribute("aria-sort", direction)
        expect(page.locator("#status")).to_have_text(f"Sorted by Used, {direction}.")
        figures = [float(text.split(" ")[0]) for text in column(page, "used")]
        assert figures == sorted(figures, reverse=reverse)
    head.get_by_role("button").click()
    expect(page.locator("#status")).to_have_text("In the order of the report.")
    assert column(page, "host") == given


def test_what_has_no_figure_stays_last_both_ways(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    show(page, "growth")
    page.locator("#view select", has=page.locator("option[value='=log_dir']")).select_option("=log_dir")
    for direction in ("descending", "ascending"):
        page.locator("#view th[data-k=days_to_full] button").click()
        expect(page.locator("#view th[data-k=days_to_full]")).to_have_attribute("aria-sort", direction)
        values = column(page, "days_to_full")
        known = [value for value in values if value != "–"]
        assert known and values[: len(known)] == known


def test_filters_narrow_and_say_how_many(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    show(page, "directories")
    page.locator("select[data-hold=reason]").select_option("topic-recreated")
    expect(page.locator("#found")).to_contain_text("of 195 rows")
    assert set(column(page, "reason")) == {"topic-recreated"}
    page.get_by_label("Filter rows").press_sequentially("ONLY  kafka-a")
    expect(page.get_by_label("Filter rows")).to_be_focused()
    expect(page.get_by_label("Filter rows")).to_have_value("ONLY  kafka-a")
    assert set(column(page, "standing")) == {"only copy"}
    page.get_by_label("Filter rows").fill("no such thing")
    expect(page.get_by_text("No row matches.")).to_be_visible()


def test_down_from_cluster_to_directory_and_back_by_history(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    seen = []
    titles = {"usage_hosts": "Hosts", "usage_log_dirs": "Log dirs", "places": "Topics of", "directories": "Directories"}
    for table, title in titles.items():
        follow(page.locator(f"{VIEW} td.first a").first)
        page.wait_for_url(f"**/*#{table}?*")
        expect(page.locator("#view h3")).to_contain_text(title)
        if table == "usage_log_dirs":
            # A log dir of that host in which there is something.
            host = {page.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('node_id')")}
            assert set(column(page, "node_id")) == host
        seen.append((page.url, page.locator("#found").inner_text()))
        if not page.locator(VIEW).count():
            break
    crumbs = page.get_by_role("navigation", name="Where you are")
    expect(crumbs).to_contain_text("All clusters")
    assert crumbs.locator("li").count() == len(seen) + (0 if len(seen) == 4 else 1)
    for url, found in reversed(seen[:-1]):
        page.go_back()
        page.wait_for_url(url)
        expect(page.locator("#found")).to_have_text(found)
    page.go_forward()
    expect(page.locator("#found")).to_have_text(seen[1][1])


def test_a_shared_link_shows_the_same_rows_in_the_same_order(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    follow(page.locator("[data-answer=restart] a"))
    page.get_by_label("Filter rows").fill("kafka-b")
    page.locator("#view th[data-k=age_seconds] button").click()
    rows, found = column(page, "name"), page.locator("#found").inner_text()
    other = open_page(fleet_page)
    other.goto(page.url)
    other.reload()
    expect(other.locator("#found")).to_have_text(found)
    assert column(other, "name") == rows
    expect(other.get_by_label("Filter rows")).to_have_value("kafka-b")


def test_one_search_over_everything(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    page.keyboard.press("/")
    search = page.get_by_role("searchbox", name="Search everything")
    expect(search).to_be_focused()
    search.fill("kafka-a-1001")
    search.press("Enter")
    expect(page.locator(".hits h4").first).to_be_visible()
    titles = page.locator(".hits h4").all_inner_texts()
    assert [title.partition(":")[0] for title in titles][:2] == ["Hosts", "Log dirs"]
    follow(page.locator(".hits h4 a").nth(1))
    expect(page.locator("#found")).to_contain_text("3 of 108 rows")
    page.go_back()
    expect(page.locator(".hits h4").first).to_be_visible()
    topic = sample()[1]["usage_topics"]["rows"][0]
    search.fill(topic["topic"])
    search.press("Enter")
    hits = page.locator(".hits", has=page.get_by_role("heading", name=re.compile("^Topics")))
    expect(hits.locator("li", has_text=f"Allocated {units.size(topic['allocated'])}").first).to_be_visible()


def test_the_keyboard_is_enough(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the report")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.locator("[data-answer=now] a").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#view h3")).to_be_focused()
    page.locator("#view .scroll").focus()
    # A key scrolls what has been drawn: without these two frames one press in six did nothing on a loaded machine.
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.keyboard.press("End")
    expect(page.locator(f"{VIEW}[aria-rowindex='2']")).to_have_count(0)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("1")
    on_full = "logagent rescue --log-dir /var/lib/kafka/data-3"
    expect(page.get_by_role("textbox", name="The command")).to_have_value(on_full)


def test_picked_rows_become_one_command(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    show(page, "directories")
    page.locator("select[data-hold=list]").select_option("orphan")
    page.locator("select[data-hold=cluster_id]").select_option("prod-1")
    page.get_by_label("Filter rows").fill("data-2")
    for number in (0, 2):
        page.locator(f"{VIEW} input[type=checkbox]").nth(number).check()
    expect(page.locator(".picked")).to_contain_text("2 picked")
    page.get_by_role("button", name="Copy the command for them").click()
    words = shlex.split(page.get_by_role("textbox", name="The command").input_value())
    place = ["--report", "/srv/reports/2026-11-20-7f3a91", "--store", "/srv/fleet"]
    assert words[:7] == ["logagent", "topics", "purge", *place]
    _, tables = sample()
    ids = {row["id"]: row for row in tables["orphans"]["rows"]}
    chosen = [ids[one] for one in words[words.index("--id") + 1].split(",")]
    assert len(chosen) == 2
    assert {row["cluster_id"] for row in chosen} == {words[words.index("--cluster") + 1]}
    assert {row["log_dir"] for row in chosen} == {"/var/lib/kafka/data-2"}


def test_is_it_safe_takes_two_clicks_from_the_host(open_page: Open, fleet_page: Path) -> None:
    """What next names a host; its figure leads to the directories, each with its standing, and to their command."""
    page = open_page(fleet_page)
    follow(page.locator(".steps a[href*=usage_log_dirs]").first)
    figures = page.locator("#view tbody a[href*='window=']")
    shown = figures.first.inner_text()
    follow(figures.first)
    expect(page.locator("#found")).to_contain_text(f", {shown}.")
    expect(page.get_by_role("columnheader", name="This copy")).to_be_visible()
    expect(page.get_by_role("button", name="Copy the command for these rows")).to_be_visible()


def test_a_refused_clipboard_leaves_the_command_selected(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page)
    page.evaluate("() => { document.execCommand = () => false; }")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    page.locator(".steps button").first.click()
    expect(page.locator(".commandbar")).to_contain_text("Selected: press Ctrl+C")
    expect(page.get_by_role("textbox", name="The command")).to_be_focused()
    on_full = "logagent rescue --log-dir /var/lib/kafka/data-3"
    assert page.evaluate("document.activeElement.selectionEnd") == len(on_full)


@pytest.mark.parametrize("unit", ["bytes", "seconds", "days", "share", "ratio", "int", "time"])
def test_figures_read_as_on_the_first_screen(open_page: Open, tmp_path: Path, unit: str) -> None:
    """The script formats the tables, Python the first screen: by the same rules."""
    source = (Path(units.__file__).parents[1] / "assets" / "units.js").read_text()
    path = tmp_path / "units.html"
    path.write_text(f"<script>{source}; self.said = (v, u) => v.map((one) => shown(one, u));</script>")
    chance, most = random.Random(unit), {"share": 3.0, "ratio": 200.0, "days": 5000.0}.get(unit)
    edges = [0, 1, 59, 60, 1023, 1024, 3599, 3600, 86399, 86400, 864000, 1047552, 2**40 - 1]
    made: list[Any] = [chance.uniform(0, most) if most else int(2 ** chance.uniform(0, 31)) for _ in range(300)]
    made += [2**50 - 1, 10**17] if unit == "bytes" else [] if most else edges[:-1]
    python: dict[str, Any] = {
        "bytes": units.size, "seconds": units.age, "days": units.days, "share": units.percent, "ratio": units.ratio,
        "int": units.exact, "time": lambda at: units.moment(datetime.fromtimestamp(at, UTC).isoformat()),
    }  # fmt: skip
    shown = open_page(path).evaluate(f"said({json.dumps(made)}, {json.dumps(unit)})")
    differ = [(v, a, b) for v, a, b in zip(made, shown, map(python[unit], made), strict=True) if a != b]
    # Halves may round either way.
    assert len(differ) <= (3 if unit in ("days", "share", "ratio", "bytes") else 0), differ


def test_the_theme_is_the_systems_until_the_reader_chooses(open_page: Open, fleet_page: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = open_page(fleet_page, color_scheme="light")
    dark = open_page(fleet_page, color_scheme="dark")
    assert light.evaluate(ground) != dark.evaluate(ground)
    button = dark.get_by_role("button", name="Theme: system")
    button.click()
    assert dark.evaluate(ground) == light.evaluate(ground)
    light.get_by_role("button", name="Theme: system").click()
    light.get_by_role("button", name="Theme: light").click()
    light.reload()
    expect(light.get_by_role("button", name="Theme: dark")).to_be_visible()


@pytest.mark.parametrize("width", [360, 768])
def test_narrow_screens_scroll_tables_and_not_the_page(open_page: Open, fleet_page: Path, width: int) -> None:
    page = open_page(fleet_page, viewport={"width": width, "height": 800})
    show(page, "usage_log_dirs")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_paper_has_no_controls(open_page: Open, fleet_page: Path) -> None:
    page = open_page(fleet_page, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    expect(page.locator("#browse > nav")).to_be_hidden()
    expect(page.locator("#disks .big")).to_be_visible()


def test_hostile_names_do_not_run_in_a_browser(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    report: Any = sample(hosts=6)
    number = iter(range(10**9))
    path.write_text(render(*altered(report, lambda _: HOSTILE[next(number) % len(HOSTILE)])), "utf-8")
    page = open_page(path)
    for table in ("usage_hosts", "usage_topics", "directories", "growth"):
        show(page, table)
        assert page.locator(VIEW).count()
    page.locator(f"{VIEW} a").first.click()
    page.get_by_role("searchbox", name="Search everything").fill("script")
    page.keyboard.press("Enter")
    expect(page.locator(".hits").first).to_be_visible()
    page.reload()
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("img, iframe").count() == 0


@pytest.mark.parametrize("hosts", [2_000, *([10_000] if FULL else [])])
def test_a_very_large_fleet_is_all_there(open_page: Open, tmp_path: Path, hosts: int) -> None:
    """`tests/run --full` opens ten thousand hosts, too."""
    path = tmp_path / "large.html"
    path.write_text(render(*sample(hosts=hosts, orphans=10 * hosts)), "utf-8")
    assert path.stat().st_size <= (3_000_000 if hosts == 2_000 else 6_000_000)
    page = open_page(path)
    show(page, "usage_log_dirs")
    expect(page.locator("#found")).to_contain_text(f"{3 * hosts:,} rows")
    assert page.locator(VIEW).count() < 60
    page.evaluate("document.querySelector('#view .scroll').scrollTop = 1e9")
    expect(page.locator(f"#view tbody tr[aria-rowindex='{3 * hosts + 1}']")).to_be_visible()
    page.get_by_label("Filter rows").fill("kafka-a-1001.")
    expect(page.locator("#found")).to_contain_text(f"3 of {3 * hosts:,} rows")


def test_a_report_of_nothing_says_so(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "empty.html"
    path.write_text(render(*empty()), "utf-8")
    page = open_page(path)
    expect(page.get_by_role("heading", name="No host reported")).to_be_visible()
    show(page, "directories")
    expect(page.locator("#view .empty")).to_contain_text("not the same as none")
