"""Ten tasks at three in the morning, on a page of 2,000 hosts in 40 clusters: how many clicks, key presses and seconds.

The seconds are the page's and the browser's; a reader adds their own. `-s` prints the table.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from logagent.fleet.page import render
from logagent.fleet.page import words as units
from tests.browser import Open, follow
from tests.long_form import long_form
from tests.page.sample import sample
from tests.page.test_browser import column

pytestmark = long_form
MOST_CLICKS = 4


class Hand:
    """An operator's hand: clicks and key presses, counted."""

    def __init__(self, page: Page, tables: dict[str, Any]) -> None:
        self.page, self.tables = page, tables
        self.clicks = self.keys = 0

    def follow(self, link: Locator) -> None:
        self.clicks += 1
        follow(link)

    def click(self, button: Locator) -> None:
        self.clicks += 1
        button.click()

    def choose(self, select: Locator, value: str) -> None:
        """Opens the list, and takes one."""
        self.clicks += 2
        select.select_option(value)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.keys += 1
            self.page.keyboard.press(key)

    def write(self, text: str) -> None:
        self.keys += len(text)
        self.page.keyboard.type(text)

    def tab(self, name: str) -> None:
        self.follow(self.page.locator("#browse nav a", has_text=re.compile(f"^{name} ")))

    @property
    def found(self) -> Locator:
        return self.page.locator("#found")

    def command(self) -> list[str]:
        return shlex.split(self.page.get_by_role("textbox", name="The command").input_value())


def fullest_host(hand: Hand) -> None:
    """Find the fullest host."""
    hand.tab("Hosts")
    hand.click(hand.page.locator("#view th[data-k=used_share] button"))
    expect(hand.page.locator("#view th[data-k=used_share]")).to_have_attribute("aria-sort", "descending")
    most = max(hand.tables["usage_hosts"]["rows"], key=lambda row: row["used_share"])
    assert column(hand.page, "host")[0] == most["host"]


def its_rows(hand: Hand) -> None:
    """Open what can be reclaimed on the fullest log dir that has something."""
    hand.tab("Log dirs")
    row = next(r for r in hand.tables["usage_log_dirs"]["rows"] if r["reclaim_now"])
    size = units.size(row["reclaim_now"])
    hand.follow(hand.page.locator("#view tbody tr", has_text=row["host"]).get_by_role("link", name=size).first)
    expect(hand.found).to_contain_text(f", {size}.")


def most_now(hand: Hand) -> None:
    """Copy what frees most of one host now."""
    step = hand.page.locator(".steps > li", has_text=re.compile(r"frees .* now$|frees .* now ?Copy$")).first
    number = hand.page.locator(".steps > li").all_inner_texts().index(step.inner_text()) + 1
    hand.press(str(number))
    assert hand.command() == ["logagent", "cleanup"]
    most = max(hand.tables["usage_hosts"]["rows"], key=lambda row: row["reclaim_now"])
    expect(step).to_contain_text(most["host"])


def everywhere(hand: Hand) -> None:
    """Copy the commands that reclaim everywhere."""
    for window in ("now", "restart"):
        hand.click(
            hand.page.locator("#reclaim li", has=hand.page.locator(f"[data-answer={window}]")).get_by_role("button")
        )
        assert hand.command()[:3] == ["logagent", "topics", "purge"] and hand.command()[-2:] == ["--window", window]


def without_copy(hand: Hand) -> None:
    """Find the partitions without any copy."""
    hand.follow(hand.page.locator("[data-answer=no_copy] a"))
    lost = [row for row in hand.tables["missing_replicas"]["rows"] if not row["copies_elsewhere"]]
    expect(hand.found).to_contain_text(f"{len(lost)} of ")


def not_heard_from(hand: Hand) -> None:
    """Find the hosts that were not heard from."""
    hand.follow(hand.page.locator(".banner a", has_text="never heard of"))
    assert set(column(hand.page, "cause")) == {"never heard"}


def bytes_of_a_topic(hand: Hand) -> None:
    """Find a topic's bytes."""
    row = hand.tables["usage_topics"]["rows"][17]
    hand.press("/")
    hand.write(row["topic"])
    hand.press("Enter")
    hits = hand.page.locator(".hits", has_text="Topics").locator("li", has_text=row["topic"]).first
    expect(hits).to_contain_text(f"Allocated {units.size(row['allocated'])}")


def sick_log_dirs(hand: Hand) -> None:
    """See which log dirs are offline or read-only."""
    hand.follow(hand.page.locator("[data-answer=ill] a").first)
    assert set(column(hand.page, "finding")) <= {"offline", "read-only"} and column(hand.page, "since")


def growing(hand: Hand) -> None:
    """See what is full this week."""
    hand.follow(hand.page.locator("[data-answer=full] a").first)
    assert column(hand.page, "full_on")[0]


def share_a_cluster(hand: Hand) -> None:
    """Filter one cluster and share the address."""
    hand.tab("Directories")
    hand.choose(hand.page.locator("select[data-hold=cluster_id]"), "prod-17")
    expect(hand.found).to_contain_text(" of ")
    other = hand.page.context.new_page()
    other.goto(hand.page.url)
    expect(other.locator("#found")).to_have_text(hand.found.inner_text())
    assert set(column(other, "cluster_id")) == {"prod-17"}
    other.close()


TASKS: tuple[Callable[[Hand], None], ...] = (
    fullest_host, its_rows, most_now, everywhere, without_copy, not_heard_from, bytes_of_a_topic, sick_log_dirs,
    growing, share_a_cluster,
)  # fmt: skip


def test_ten_tasks_at_night(open_page: Open, tmp_path: Path) -> None:
    report, tables = sample(clusters=40, hosts=2000, orphans=20_000)
    path = tmp_path / "index.html"
    path.write_text(render(report, tables), "utf-8")
    lines = [f"the page: {path.stat().st_size:,} bytes"]
    for task in TASKS:
        page = open_page(path, viewport={"width": 1400, "height": 1000})
        expect(page.locator(".steps button").first).to_be_visible()
        hand = Hand(page, tables)
        task(hand)
        said = (task.__doc__ or "").strip()
        lines.append(f"{said:60} {hand.clicks} clicks {hand.keys:3} keys")
        assert hand.clicks <= MOST_CLICKS, said
        page.close()
    print("\n" + "\n".join(lines))
