"""The numbers of a page's first screen that are links."""

from __future__ import annotations

import re

from playwright.sync_api import Page

from tests.browser import follow

SIZE = re.compile(r"[0-9.,]+ (?:B|[KMGTP]iB)")
# The sum of a column that the line above a table does not have; and names.
FIGURES = "main > div a, main > p a, #ahead .fillings p a, .panels a"
NAMES = ".steps a[href*=usage_log_dirs], .steps a[href*='topic='], #disks .big a, a[href*=due_at], .charts a"


def expected_of(text: str) -> tuple[int | None, str | None]:
    """How many rows a figure's words promise, and which bytes."""
    size = SIZE.search(text)
    words = SIZE.sub("", text)
    at_end = re.search(r": ([0-9,]+)$", words)
    number = at_end or re.search(r"([0-9][0-9,]*)(?! %)", words)
    return int(number[1].replace(",", "")) if number else None, size[0] if size else None


def follow_figures(page: Page) -> int:
    """Follows each: it opens as many rows as it says, with these bytes. How many there were."""
    skipped = set(page.locator(NAMES).evaluate_all("all => all.map((one) => one.outerHTML)"))
    links = page.locator(FIGURES)
    followed = 0
    for at in range(links.count()):
        link = links.nth(at)
        count, size = expected_of(link.inner_text())
        if link.evaluate("one => one.outerHTML") in skipped or (count is None and size is None):
            continue
        text = link.inner_text()
        follow(link)
        found = page.locator("#found").inner_text()
        if count is not None:
            assert re.match(rf"{count:,}( of [0-9,]+)? rows?\b", found), (text, found)
        if size is not None:
            assert size in found, (text, found)
        followed += 1
    return followed
