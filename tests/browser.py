"""A real browser, the distribution's Chromium, driven by Playwright: one for all tests of a run, whatever folder they
are in (`tests/conftest.py` loads this file). Playwright is imported where it is needed: it can only run once in a
process, and most runs need none.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.needs import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page, ViewportSize

Open = Callable[..., "Page"]

# The sandbox needs what a container does not give; the rest keeps the browser from calling anybody.
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


def follow(link: Locator) -> None:
    """Clicks a link into the tables and waits for its rows: just after a click the view before still stands."""
    from playwright.sync_api import expect

    page = link.page
    if link.evaluate("one => one.hash === location.hash"):
        link.click()  # two figures of the same rows, one after the other
        return
    page.evaluate("() => { self.moved = new Promise((done) => addEventListener('hashchange', done, { once: true })); }")
    link.click()
    page.evaluate("() => self.moved.then(() => {})")
    # The page's own listener came first: it says aria-busy until the rows are drawn.
    expect(page.locator("#view[aria-busy]")).to_have_count(0)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        missing("the command chromium")
    from playwright.sync_api import expect, sync_playwright

    # However slow the machine: what is expected of a page may take so long.
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS.split())
        yield browser
        browser.close()


VIEWPORT: ViewportSize = {"width": 1280, "height": 900}


@pytest.fixture(scope="session")
def reader(browser: Browser) -> Iterator[BrowserContext]:
    """For the pages of all tests, one after the other. Beside a page that stays, each takes 0.5 CPU seconds instead of
    1.3: the browser keeps what else it starts for its first one."""
    context = browser.new_context(viewport=VIEWPORT)
    context.new_page()
    yield context
    context.close()


@pytest.fixture
def open_page(browser: Browser, reader: BrowserContext) -> Iterator[Open]:
    """Opens a file as a reader would; afterwards: no console message, no exception, nothing loaded but the file, and
    nothing left behind that another page could read."""
    pages: list[Page] = []
    contexts: list[BrowserContext] = []
    complaints: list[str] = []
    requests: list[str] = []

    def opened(path: Path, *, viewport: ViewportSize = VIEWPORT, **context: Any) -> Page:
        if context:
            contexts.append(browser.new_context(viewport=viewport, **context))
            page = contexts[-1].new_page()
        else:
            page = reader.new_page()
            if viewport != VIEWPORT:
                page.set_viewport_size(viewport)
        pages.append(page)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        return page

    yield opened
    kept = [page.evaluate("localStorage.length") for page in pages if page in reader.pages] + reader.cookies()
    for page in (*pages, *reader.pages[1:]):
        page.close()
    for context in contexts:
        context.close()
    reader.clear_permissions()
    assert not any(kept)
    assert complaints == []
    assert {url.partition("#")[0].partition(":")[0] for url in requests} <= {"file"}
    assert len({url.partition("#")[0] for url in requests}) <= len(pages)
