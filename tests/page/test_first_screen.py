"""The four answers on the first screen, in a real browser: for a healthy fleet, one on fire, and one half unknown."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from logagent.fleet.page import render
from logagent.fleet.page import words as units
from tests.browser import Open, follow
from tests.page.fleet import Fleet
from tests.page.sample import report, tables

Made = tuple[dict[str, Any], dict[str, Any]]


def healthy() -> Made:
    fleet = Fleet(orphans=0)
    fleet.unknown_hosts = 0
    for row in fleet.log_dirs:
        row.update(health="online", reason=None)
    made = tables(fleet)
    for name in (
        "leftovers",
        "missing_replicas",
        "undecided_replicas",
        "growth",
        "log_dir_health",
        "undecided",
        "duplicates",
    ):
        made[name] = {**made[name], "rows": [], "total": 0}
    for row in made["usage_topics"]["rows"]:
        row["orphan_bytes"] = 0
    for row in made["usage_log_dirs"]["rows"]:
        row.update(health="online", used_share=min(row["used_share"] or 0.5, 0.9))
    document = report(fleet, made)
    document["answers"]["risk"] |= {"next_full_days": 64.2, "pace_unknown": 0}
    document["warnings"] = []
    for change in document["answers"]["changes"]:
        change["by_agents"]["unknown_hosts"] = 0
    return document, made


def on_fire() -> Made:
    fleet = Fleet(orphans=400)
    made = tables(fleet)
    for number, row in enumerate(made["usage_log_dirs"]["rows"][:20]):
        row.update(used_share=0.95 + number % 5 / 100)
    for row in made["missing_replicas"]["rows"]:
        row["copies_elsewhere"] = 0
    document = report(fleet, made)
    return document, made


def half_unknown() -> Made:
    fleet = Fleet()
    fleet.unknown_hosts = 36
    made = tables(fleet)
    document = report(fleet, made)
    return document, made


FLEETS: dict[str, Callable[[], Made]] = {"healthy": healthy, "on fire": on_fire, "half unknown": half_unknown}


@pytest.fixture(params=sorted(FLEETS))
def opened(request: pytest.FixtureRequest, open_page: Open, tmp_path: Path) -> tuple[str, Made, Page]:
    made = FLEETS[request.param]()
    path = tmp_path / "index.html"
    path.write_text(render(*made), "utf-8")
    return request.param, made, open_page(path, viewport={"width": 1400, "height": 1000})


def directories(made: Made) -> list[dict[str, Any]]:
    return [*made[1]["orphans"]["rows"], *(r for r in made[1]["leftovers"]["rows"] if r["why"] != "abandoned")]


def test_where_and_what_can_be_reclaimed(opened: tuple[str, Made, Page]) -> None:
    name, made, page = opened
    rows = made[1]["usage_log_dirs"]["rows"]
    used, size = (sum(row[key] or 0 for row in rows) for key in ("used", "size"))
    least = "At least " if name != "healthy" else ""
    expect(page.locator("#disks .big")).to_have_text(
        f"{least}{units.size(used)} used of {units.size(size)}, {units.percent(used / size)}"
    )
    for window in ("now", "restart", "approval", "later"):
        mine = sum(row["allocated"] for row in directories(made) if row["window"] == window)
        shown = page.locator(f"[data-answer={window}] [title]")
        expect(shown).to_have_text(units.size(mine))
        assert shown.get_attribute("title") == f"{mine:,} B"
    whole = sum(row["allocated"] for row in directories(made))
    expect(page.locator("#reclaim .big")).to_have_text(f"{least}{units.size(whole)} in orphans and leftovers")


def test_what_is_at_risk(opened: tuple[str, Made, Page]) -> None:
    name, made, page = opened
    missing = made[1]["missing_replicas"]["rows"]
    lost = len({(row["topic_id"], row["partition"]) for row in missing if row["copies_elsewhere"] == 0})
    where = "anywhere" if name == "healthy" else "on hosts that report"
    replicas = sum(row["copies_elsewhere"] == 0 for row in missing)
    counted = f": {replicas} replicas" if lost else ""
    left = made[1]["undecided_replicas"]["rows"]
    alone = len({(row["topic_id"], row["partition"]) for row in left if row["copies_elsewhere"] == 0})
    counted += f"; {alone} more could not be compared" if alone else ""
    hosts = len({(row["cluster_id"], row["node_id"]) for row in left})
    words = f"Could not be compared: {len(left)} replicas on {hosts} hosts (their snapshots are younger than the newest"
    expect(page.locator("[data-answer=not_compared]")).to_contain_text(words if left else "0 replicas could not be")
    expect(page.locator("[data-answer=replicas]")).to_contain_text(f"{len(left)} not compared")
    expect(page.locator("[data-answer=no_copy]")).to_have_text(f"{lost} partitions with no copy {where}{counted}")
    elsewhere = sum(row["copies_elsewhere"] > 0 for row in missing)
    expect(page.locator("[data-answer=missing_elsewhere]")).to_contain_text(f"{elsewhere} replicas missing")
    only = [row["allocated"] for row in made[1]["orphans"]["rows"] if row["only_copy"]]
    expect(page.locator("[data-answer=only_copies]")).to_contain_text(f"{len(only)} orphans are the only copy")
    growing = [row["days_to_full"] for row in made[1]["growth"]["rows"] if row["scope"] == "log_dir"]
    ahead = [days for days in growing if days is not None]
    soon, later = (sum(days <= span for days in ahead) for span in (7, 30))
    paced = {(row["cluster_id"], row["node_id"], row["log_dir"]) for row in made[1]["growth"]["rows"]}
    places = made[1]["usage_log_dirs"]["rows"]
    unpaced = sum((row["cluster_id"], row["node_id"], row["log_dir"]) not in paced for row in places)
    rest = f"; not known for {unpaced} log dirs" if unpaced and name != "healthy" else ""
    full = f"Log dirs full in 7 days: {soon}, in 30 days: {later}{rest}"
    expect(page.locator("[data-answer=full]")).to_have_text(full)
    if name == "healthy":
        expect(page.locator(".banner")).to_have_count(0)
    else:
        unknown = 36 if name == "half unknown" else 3
        expect(page.locator(".banner")).to_contain_text(f"36 of {36 + unknown} hosts reporting")


def test_what_next(opened: tuple[str, Made, Page]) -> None:
    name, made, page = opened
    if name == "healthy":
        expect(page.locator("#next")).to_contain_text("Nothing needs you today. ")
        expect(page.locator("#next")).to_contain_text("Next log dir full: in 64 d.")
        return
    steps = made[0]["answers"]["steps"]
    expect(page.locator(".steps > li")).to_have_count(len(steps))
    first = page.locator(".steps > li").first
    expect(first).to_contain_text(str(steps[0]["host"]))
    expect(first).to_contain_text(units.size(steps[0]["bytes"]))
    first.get_by_role("button").click()
    on_full = f"logagent rescue --log-dir {steps[0]['log_dir']}"
    expect(page.get_by_role("textbox", name="The command")).to_have_value(on_full)
    expect(page.locator(".commandbar")).to_contain_text(f"run it on {steps[0]['host']}")


def test_every_zero_without_a_copy_has_its_remainder() -> None:
    """At risk, new since a date, and over the table of an undecided cluster."""
    document, made = healthy()
    assert document["answers"]["changes"] and "could not be compared)" not in render(document, made)
    document["answers"]["replicas"]["no_copy"] = 3
    page = render(document, made)
    assert "with no copy anywhere; 3 more could not be compared" in page
    assert page.count("with no copy (3 more could not be compared)") == len(document["answers"]["changes"])
    document["clusters"][0]["verdicts"] = "unknown"
    none = "No verdict could be made for 1 cluster."
    assert none not in page and render(document, made).count(none) >= len(("directories", "missing", "undecided"))


def test_what_could_not_be_compared_is_no_all_clear() -> None:
    """Each remainder alone."""
    document, made = healthy()
    assert "Nothing needs you today" in render(document, made)
    one = {"state": "not_yet", "reason": "assigned-since", "replicas": 1, "hosts": 1}
    for path, value in (
        (("answers", "replicas", "not_compared"), [one]),
        (("answers", "disks", "unread"), 1),
        (("answers", "risk", "pace_unknown"), 1),
        (("tables", "undecided", "rows"), 1),
        (("hosts", "unknown_total"), 1),
        (("clusters", 0, "verdicts"), "unknown"),
        (("warnings",), ["rejected files or rows: 1"]),
        (("answers", "changes", 0, "by_agents", "unknown_hosts"), 1),
        (("tables", "log_dir_health", "rows"), 1),
        (("tables", "duplicates", "rows"), 1),
        (("answers", "reclaim", "approval", "dirs"), 1),
        (("answers", "reclaim", "barred"), 1),
    ):
        doubted = deepcopy(document)
        *above, last = path
        place: Any = doubted
        for key in above:
            place = place[key]
        place[last] = value
        assert "Nothing needs you today" not in render(doubted, made), path


def test_every_figure_leads_to_its_rows(opened: tuple[str, Made, Page]) -> None:
    """As many rows as the figure says, and their bytes are the figure's."""
    _, made, page = opened
    for window in ("now", "restart", "approval", "later"):
        mine = [row for row in directories(made) if row["window"] == window]
        links = page.locator(f"[data-answer={window}] a")
        if not mine:
            expect(links).to_have_count(0)
            continue
        follow(links)
        expected = f"{len(mine)} of {len(directories(made)) + made[1]['undecided']['total']} rows"
        expect(page.locator("#found")).to_contain_text(f"{expected}, {units.size(sum(r['bytes'] for r in mine))}.")
    if left := made[1]["undecided_replicas"]["rows"]:
        follow(page.locator("[data-answer=not_compared] a"))
        expect(page.locator("#found")).to_contain_text(f"{len(left)} row")
    lost = [row for row in made[1]["missing_replicas"]["rows"] if row["copies_elsewhere"] == 0]
    links = page.locator("[data-answer=no_copy] a")
    if not lost:
        expect(links).to_have_count(0)
        return
    follow(links)
    expect(page.locator("#found")).to_contain_text(f"{len(lost)} of {made[1]['missing_replicas']['total']} rows")


@pytest.mark.parametrize("width", [1400, 400])
def test_the_answers_come_first_and_fit(open_page: Open, tmp_path: Path, width: int) -> None:
    """All four on the first screen of a desk; on a telephone in the order of urgency. Nothing scrolls sideways."""
    path = tmp_path / "index.html"
    path.write_text(render(*on_fire()), "utf-8")
    page = open_page(path, viewport={"width": width, "height": 1000})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    bottom = "(name) => document.querySelector(name).getBoundingClientRect().bottom"
    ends = {name: page.evaluate(bottom, name) for name in (".banner", "#risk", "#reclaim", "#disks", "#next")}
    if width == 1400:
        assert max(ends.values()) <= 1000
    else:
        order = [".banner", "#risk", "#reclaim", "#disks", "#next"]
        assert sorted(ends, key=lambda name: ends[name]) == order
        search = page.get_by_role("search").bounding_box()
        assert search is not None and search["y"] >= ends["#next"]


def test_without_script_the_answers_are_there_with_their_commands(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    path.write_text(render(*on_fire()), "utf-8")
    page = open_page(path, java_script_enabled=False)
    assert page.locator("button, input, select").count() == 0
    expect(page.locator("#next code").first).to_have_text(
        re.compile("^logagent rescue --log-dir /var/lib/kafka/data-.")
    )
    expect(page.locator("#view")).to_contain_text("orphans.csv")
    assert re.search(r"TiB used of", page.locator("#disks").inner_text())
